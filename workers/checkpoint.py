"""Reliable checkpoints: written aside, synced, renamed, verified on load, never silently lost.

Each checkpoint is a directory, `checkpoints/ckpt-<env steps>.<token>/`, with `tensors.safetensors`, `state.json` and
`manifest.json` (size and digest of the other two, and its own digest). `workers/store.py` commits, verifies and prunes
checkpoints of any content.

Neither `torch.load` nor safetensors notices a flipped bit: hence the digests, checked over the same bytes that are then
parsed. Nothing is ever unpickled.

The training thread only clones its tensors and calls `save`; a separate thread writes, one save at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import safetensors.torch
import torch

from workers.background import run_in_thread
from workers.contract import Client, Manifest, checkpoint_name
from workers.store import Damaged, Store, Unfit, read_file, read_manifest, write_file

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping
    from pathlib import Path

TENSORS_FILE: Final = "tensors.safetensors"
STATE_FILE: Final = "state.json"

# Type names in safetensors' file format ("dtype").
_DTYPES: Final = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that passed every check."""

    env_steps: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]
    path: Path
    manifest: Manifest


class Checkpointer(Store):
    """Saves and loads the checkpoints of one run directory, for one attempt.

    `identity` (JSON-able) describes the training: game, algorithm, network shape, resolution. All methods are for the
    training thread. Errors in the writing thread are reported, not raised, with two exceptions that the next call raises:
    `Fenced`, and errors in our own code.
    """

    def __init__(self, run_dir: Path, client: Client, identity: Mapping[str, Any]) -> None:
        super().__init__(run_dir, client, identity)
        self._thread: threading.Thread | None = None
        self._pending: BaseException | None = None  # for the training thread to raise

    # saving

    def save(
        self, env_steps: int, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any], *,
        mean_return: float | None, stall_s: float,
    ) -> bool:  # fmt: skip
        """Begin to write a checkpoint; False when the previous one is still being written.

        `tensors` must be clones (on any device) that do not change any more; `state` is JSON. Raises TypeError for data
        that can't be stored, and `Fenced` once another attempt owns the directory. A step that this attempt has already
        committed is not written again.
        """
        self._raise_pending()
        if self._thread is not None and self._thread.is_alive():
            return False
        if (self._dir / checkpoint_name(env_steps, self._client.token)).is_dir():
            self.committed_step = env_steps
            return True
        for name, tensor in tensors.items():
            if tensor.dtype not in _DTYPES:
                raise TypeError(f"tensor {name!r} has type {tensor.dtype}, which checkpoints do not hold")
        # Serialise here, for two reasons: a state that is not JSON is the caller's error, and the caller may change the
        # state later. NaN passes here, and the writer refuses it: a diverged learner is not an error of the program.
        text = json.dumps(state).encode()
        score = mean_return if mean_return is not None and math.isfinite(mean_return) else None
        self._thread = run_in_thread("checkpoint", self._write, env_steps, dict(tensors), text, score, stall_s)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a running save; True once none is running (`failure` has its error). Raises `Fenced` like `save`."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        self._raise_pending()
        return True

    def close(self, timeout_s: float = 60.0) -> None:
        """Wait for a running save. If the disk hangs longer, give up: an unfinished save does no harm."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _raise_pending(self) -> None:
        if self._pending is not None:
            raise self._pending

    def _write(
        self, env_steps: int, tensors: dict[str, torch.Tensor], state: bytes, mean_return: float | None, stall_s: float
    ) -> None:
        begun_ns = time.perf_counter_ns()
        try:
            try:
                self._refuse_unfit(tensors, state)
                self._refuse_lower(env_steps)
                with self._committing(env_steps, mean_return) as (aside, files):
                    files[TENSORS_FILE] = write_file(aside / TENSORS_FILE, _safetensors(tensors))
                    files[STATE_FILE] = write_file(aside / STATE_FILE, [state])
            except (OSError, MemoryError, Unfit) as error:
                self._fail(env_steps, "was not written", error)
                return
            self.failure, self.committed_step = None, env_steps
            self._client.committed(env_steps, stall_s=stall_s, write_s=(time.perf_counter_ns() - begun_ns) / 1e9)
            self.tidy()
        except BaseException as error:  # noqa: BLE001  raised again on the training thread
            self._pending = error

    @staticmethod
    def _refuse_unfit(tensors: Mapping[str, torch.Tensor], state: bytes) -> None:
        """Refuse non-finite numbers, which would replace good checkpoints one by one."""
        for name, tensor in tensors.items():
            if not _finite(tensor):
                raise Unfit(f"tensor {name!r} holds numbers that are not finite")
        try:
            json.dumps(json.loads(state), allow_nan=False)
        except ValueError:
            raise Unfit("the state holds a number that is not finite") from None

    # loading

    def load_newest(self) -> Loaded | None:
        """The newest whole checkpoint, or None when there never was one; see `Store._newest`.

        Raises `WrongIdentity` when the newest whole manifest has another identity.
        """
        return self._newest(self._load)

    def _load(self, name: str) -> Loaded:
        path = self._dir / name
        manifest = read_manifest(path)
        if set(manifest.files) != {TENSORS_FILE, STATE_FILE}:
            raise Damaged(f"its manifest lists {', '.join(sorted(manifest.files)) or 'no files'}")
        self._check_identity(path, manifest)
        contents = {file: _read_whole(path, file, *manifest.files[file]) for file in manifest.files}
        try:
            state = json.loads(contents[STATE_FILE])
            tensors = safetensors.torch.load(contents[TENSORS_FILE])
        except (ValueError, RecursionError, safetensors.SafetensorError) as error:
            raise Damaged(f"its files can't be read: {error}") from error
        if not isinstance(state, dict):
            raise Damaged(f"{STATE_FILE} is not an object")
        for key, tensor in tensors.items():
            if not _finite(tensor):
                raise Damaged(f"tensor {key!r} holds numbers that are not finite")
        return Loaded(manifest.env_steps, tensors, state, path, manifest)


# --- files ---------------------------------------------------------------------------------------------------------------


def _safetensors(tensors: Mapping[str, torch.Tensor]) -> Iterable[bytes | memoryview]:
    """The file in pieces: length, JSON header, then the tensors' bytes as they lie in memory.

    Our own code writes it, because `safetensors.torch.save` copies everything twice and holds the GIL meanwhile, which
    stops the training thread. A test reads the result with safetensors itself.
    """
    # With wide types first, every tensor is aligned to its item size.
    order = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in order:
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size],
        }  # fmt: skip
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in order:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            yield flat.view(torch.uint8).numpy().data


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _read_whole(path: Path, name: str, size: int, digest: str) -> bytes:
    data = read_file(path, name)
    if len(data) != size:
        raise Damaged(f"{name} has {len(data)} bytes, expected {size}")
    if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
        raise Damaged(f"{name} does not match its digest")
    return data
