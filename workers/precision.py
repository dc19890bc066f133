"""Number formats: the choice of the format, loss scaling where it is needed, and masking that works in every format.

| device | auto | because |
|---|---|---|
| CUDA with bf16 (Ampere and later) | bf16 | fp32's range at half the size: no loss scaling |
| older CUDA | fp16 with GradScaler | the only fast half there |
| CPU with AMX or AVX512-BF16 | bf16 | measured: 2x the whole loop on AMX |
| other CPUs | fp32 | bf16 is emulated there and slower |
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from workers.pci import has_nvidia_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class NoGpu(Exception):
    """There is no GPU that torch can use, and the CPU may not take its place; the message is one sentence for the user."""


class NoSuchDevice(Exception):
    """The requested device does not exist; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The device and the number format for computing. Parameters stay fp32."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        if self.dtype is torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """Scales the loss so that small gradients survive fp16's range; does nothing for the other formats."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype is torch.float16)

    def __str__(self) -> str:
        return f"{self.device} {next(name for name, dtype in _TYPES.items() if dtype is self.dtype)}"


def choose(device: str, dtype: str, when_no_gpu: str = "") -> Precision:
    """Device and format by the table above; raises NoSuchDevice. A GPU becomes this process's current one.

    `when_no_gpu` is the supervisor's word: `wait` raises NoGpu instead of the CPU, `cpu` takes it also in place of `cuda`.
    """
    where = _device(device, when_no_gpu)
    if dtype != "auto":
        return Precision(where, _TYPES[dtype])
    if where.type == "cuda":
        return Precision(where, torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16)
    return Precision(where, torch.bfloat16 if cpu_has_bf16() else torch.float32)


def cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware. Unknown (another torch) counts as no: fp32 is never wrong."""
    checks = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(check() for check in checks if check is not None)


def use_fast_matmul(device: torch.device) -> None:
    """Use TF32 for fp32 operations on CUDA, and let cuDNN benchmark its algorithms: shapes never change here."""
    torch.set_float32_matmul_precision("high")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True


def use_deterministic(device: torch.device) -> None:
    """Make results bit-identical: use algorithms that add in a fixed order, and no benchmark that chooses among them.

    cuBLAS reads its workspace setting at its first use, so call this before any work on the device. An operation without
    a deterministic algorithm raises. Uninitialised memory is not filled: nothing here reads it.
    """
    torch.set_float32_matmul_precision("high")
    if device.type == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(mode=True)


def only_if_finite(optimizer: torch.optim.Optimizer, *signs: torch.Tensor) -> torch.Tensor:
    """Make the optimizer skip its next step unless all `signs` are finite; returns 1.0 if it will skip, else 0.0.

    One step on a NaN makes every weight NaN permanently. A fused optimizer skips on the device, as for GradScaler: reading
    each loss before each step would make the CPU wait for the GPU. For any other optimizer the gradients are removed.
    """
    found_inf = 1.0 - torch.stack([sign.detach().isfinite() for sign in signs]).all().float()
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = found_inf  # type: ignore[attr-defined]  # where GradScaler puts it too
    elif found_inf.item():
        optimizer.zero_grad(set_to_none=True)
    return found_inf


def mask_invalid(values: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """`values`, but the lowest finite number of their format where not `valid`, for an argmax or a softmax.

    A constant such as -1e9 overflows fp16, whose lowest number is -65504. With -inf a softmax without any valid entry
    would be NaN.
    """
    return values.masked_fill(~valid, torch.finfo(values.dtype).min)


def idle_gpu(chosen: Precision, device: str, environ: Mapping[str, str], root: Path = Path("/")) -> str:
    """One sentence if `auto` chose the CPU although the box has an NVIDIA GPU that is not hidden; else empty."""
    if chosen.device.type != "cpu" or device != "auto" or environ.get("CUDA_VISIBLE_DEVICES", "0") in {"", "-1"}:
        return ""
    if not has_nvidia_gpu(root):
        return ""
    return (
        "this box has an NVIDIA GPU that torch cannot use: training goes on with the CPU, many times slower; "
        "extralifectl doctor says why"
    )


def _device(name: str, when_no_gpu: str) -> torch.device:
    with warnings.catch_warnings():  # torch warns about an old driver; `idle_gpu` reports it
        warnings.simplefilter("ignore")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count and name != "cpu" and when_no_gpu == "wait":
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "a build for the CPU"
        raise NoGpu(f"torch {torch.__version__} ({build}) sees no GPU")
    if not count and when_no_gpu == "cpu":
        return torch.device("cpu")
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= count:
        have = f"{count} CUDA device{'s' if count > 1 else ''}" if count else "no CUDA device"
        raise NoSuchDevice(f"device is {name}, but this machine has {have} that torch can use: set device to auto or cpu")
    if device.index is not None:
        # Events are recorded on the current GPU's stream, and format queries refer to the current GPU. With another one
        # current, an event would not wait for the copy from a pinned buffer, and the next batch would overwrite it.
        torch.cuda.set_device(device)
    return device
