"""Checks of `doctor` on GPUs: the driver, and which processes hold GPU memory. `checks_training.py` compares torch with it.

NVML's calls may hang in the driver for ever. A kernel update can break the installation, and that is when users run doctor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from supervisor.adapters.durable import read_json
from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.ctl.checks import Finding, Installation, probed, text_of
from supervisor.formats import mib, span
from supervisor.model.fold import replay
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.box.gate import MB
from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.policy.box.visible import gpu_seen
from supervisor.records import Record, replace
from workers.pci import has_nvidia_gpu

_PROBE_S: Final = 20.0
_NO_PERMISSION, _NOT_LOADED, _NO_LIBRARY, _DIFFER = 4, 9, 12, 18
_LOST: Final = {15: "it has fallen off the bus", 16: "it needs a reset", 28: "it is not found"}
_PROBE: Final = """
import json, sys
found = {"gpus": []}
try:
    import pynvml
except ImportError:
    sys.exit(print('{"missing": true}'))
def maybe(name, *args):
    try:
        return getattr(pynvml, name)(*args)
    except pynvml.NVMLError as error:
        return None
def text(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else value
def one(index):
    gpu = {"index": index}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu["name"] = text(pynvml.nvmlDeviceGetName(handle))
    except pynvml.NVMLError as error:
        return gpu | {"error": str(error), "code": error.value}
    gpu["uuid"] = text(maybe("nvmlDeviceGetUUID", handle))
    memory = maybe("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2) or maybe("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        gpu |= {"total": int(memory.total), "free": int(memory.free)}
    running = maybe("nvmlDeviceGetComputeRunningProcesses", handle)
    if running is not None:
        gpu["processes"] = [(int(each.pid), each.usedGpuMemory) for each in running]
    return gpu
try:
    pynvml.nvmlInit()
    found["driver"] = text(maybe("nvmlSystemGetDriverVersion"))
    found["cuda"] = maybe("nvmlSystemGetCudaDriverVersion_v2")
    found["gpus"] = [one(index) for index in range(pynvml.nvmlDeviceGetCount())]
except pynvml.NVMLError as error:
    found |= {"error": str(error), "code": error.value}
print(json.dumps(found))
"""


class Driver(Record):
    """NVML's answer. `error` and `do` are empty if NVML answers, or if no program needs a GPU and the box has none."""

    gpus: tuple[Gpu, ...] = ()
    version: str = ""
    cuda: tuple[int, int] | None = None  # the newest CUDA version that the driver supports
    error: str = ""
    do: str = ""

    @property
    def names(self) -> list[str]:
        return [f"{gpu.name} (driver {self.version})" for gpu in self.gpus if not gpu.lost]


def driver(installation: Installation) -> Driver:
    """The driver of this box, with its fault if there is one. A GPU that a program needs is a fault if it is missing."""
    has_gpu = has_nvidia_gpu(Path(installation.root))
    needing = _needing(installation.settings)
    found = _answered(ask_nvml(), installation, has_gpu=has_gpu or bool(needing))
    if found.gpus or not needing:
        return found
    what = found.error if has_gpu else found.error.removeprefix("there is a GPU, but ")
    why = f"{what or 'NVML shows no GPU'}; {', '.join(needing)} ran on a GPU or asked for one"
    do = 'start the box or container with its GPU again; when_no_gpu = "cpu" lets them use the CPU'
    return replace(found, error=why, do=found.do or do)


def _needing(settings: Settings) -> list[str]:
    """The programs that wait without a GPU, by their settings and the journal (`policy/box/lost_gpu.py`)."""
    if settings.remote:
        return []
    used = {name for name, program in _state(settings).programs.items() if program.gpus is not None}
    specs = [spec for spec in settings.programs if not settings.may_use_cpu(spec)]
    return [spec.name for spec in specs if spec.name in used or settings.asks_gpu(spec)]


def _answered(found: dict[str, Any] | None, installation: Installation, *, has_gpu: bool) -> Driver:
    if found is None:
        what = f"the driver hangs: NVML has not answered for {span(_PROBE_S)}"
        return Driver(error=what, do="dmesg | grep NVRM says more; a reboot ends it") if has_gpu else Driver()
    if "missing" in found:
        do = "deploy/bootstrap or deploy/install.sh repairs it"
        return Driver(error="Python's nvidia-ml-py is not installed", do=do) if has_gpu else Driver()
    if "code" in found:
        return _fault(int(found["code"]), str(found["error"]), installation.root) if has_gpu else Driver()
    cuda = found.get("cuda")
    version = (cuda // 1000, cuda % 1000 // 10) if cuda else None
    return Driver(tuple(map(_as_gpu, found["gpus"])), str(found.get("driver") or "unknown"), version)


def ask_nvml() -> dict[str, Any] | None:
    """NVML's answer; None if NVML hangs or crashes. `missing`: Python's package for NVML is not installed."""
    found: dict[str, Any] | None = probed(_PROBE, timeout_s=_PROBE_S)
    return found


def _fault(code: int, error: str, root: str) -> Driver:
    """What NVML's error means, and what to do."""
    if code == _NOT_LOADED and _has_module(root, os.uname().release):
        what = "the NVIDIA kernel module is missing: it is installed but not loaded"
        do = "modprobe nvidia; if that fails, dmesg | grep -i -e NVRM -e nouveau says why"
    elif code == _NOT_LOADED:
        what = f"the NVIDIA kernel module is missing: none is installed for the running kernel {os.uname().release}"
        do = "after a kernel update: apt-get install linux-headers-$(uname -r), dkms autoinstall, modprobe nvidia"
    elif code == _DIFFER:
        # Its own line is `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  ...`.
        words = text_of(f"{root}/proc/driver/nvidia/version").partition("\n")[0].split()
        loaded = next((word for word in words if word[0].isdigit() and "." in word), "")
        what = f"NVIDIA's library is of another version than the kernel module {loaded} that is loaded"
        again = "rmmod nvidia_uvm nvidia, modprobe nvidia"
        do = f"the driver was updated while in use: reboot, or stop all that uses it, {again}"
    elif code == _NO_LIBRARY:
        what = "there is a GPU, but NVIDIA's library libnvidia-ml.so.1 is missing"
        do = "install the driver's libraries; in a container: start it with the GPUs (--gpus all, nvidia-container-toolkit)"
    elif code == _NO_PERMISSION:
        what = "this user may not use the GPU's device files"
        do = "ls -l /dev/nvidia*; the user extralife has to be able to read and write them"
    else:
        what = f"there is a GPU, but its driver does not answer: {error}"
        do = "dmesg | grep NVRM says more; a reboot may help"
    return Driver(error=what.replace("  ", " "), do=do)


def _has_module(root: str, kernel: str) -> bool:
    modules = Path(f"{root}/lib/modules/{kernel}")
    return any(True for where in ("updates", "extra", "kernel/drivers/video", "kernel/nvidia") for _ in
               (modules / where).glob("**/nvidia.ko*"))  # fmt: skip


def _as_gpu(found: dict[str, Any]) -> Gpu:
    lost = _LOST.get(found.get("code", 0), found.get("error", ""))
    running = found.get("processes")
    return Gpu(
        int(found["index"]), str(found.get("uuid") or ""), str(found.get("name") or ""), lost, found.get("total"),
        found.get("free"), processes=None if running is None else tuple((int(pid), size) for pid, size in running),
    )  # fmt: skip


# --- memory --------------------------------------------------------------------------------------------------------------


def gpu_memory(installation: Installation) -> Iterator[Finding]:
    """For each GPU: free memory, memory of other processes, and the levels' needs, as configured or as measured before."""
    found = driver(installation)
    if found.error and not any(spec.builtin for spec in installation.settings.programs):  # else `gpu` reports it with torch
        yield Finding("gpu", "bad", found.error, found.do)
    if found.error:
        return
    ours = _ours(installation.settings)
    for gpu in found.gpus:
        name = f"GPU {gpu.index} memory"
        if gpu.lost:
            yield Finding(
                f"GPU {gpu.index}", "bad", f"it does not answer: {gpu.lost}", "dmesg | grep NVRM; a reboot brings most back"
            )
        elif gpu.total_bytes is None or gpu.free_bytes is None:
            yield Finding(name, "unknown", "the driver does not report how much is free")
        else:
            yield _memory(name, gpu, _needs(installation.settings, gpu, found.gpus), ours)


def _memory(name: str, gpu: Gpu, needs: list[tuple[str, int]], ours: set[int]) -> Finding:
    total, free = gpu.total_bytes or 0, gpu.free_bytes or 0
    holders = [(pid, size) for pid, size in gpu.processes or () if pid not in ours]
    strange = [(pid, size) for pid, size in holders if _is_here(pid)]
    hidden = [size for pid, size in holders if not _is_here(pid)]
    unseen = sum(size or 0 for size in hidden)
    mine = sum(size or 0 for pid, size in gpu.processes or () if pid in ours)
    room = f"{mib(free)} of {mib(total)} are free"
    if strange:
        room += f"; {', '.join(f'{_who(pid)} holds {_held(size)}' for pid, size in strange)}, outside of extralife"
    if hidden:  # in a container the driver may report the host's pids, even for our own workers
        room += f"; {_held(unseen or None)} {'are' if unseen else 'is'} held by processes that cannot be seen from here"
        mine += unseen
    room += "".join(f"; level {level} needs {mib(need)}" for level, need in needs[-1:])
    beyond = next(((level, need) for level, need in needs if need > total), None)
    tight = next(((level, need) for level, need in needs if need > free + mine), None)
    if beyond is not None:
        what = f"{room}: level {beyond[0]} cannot fit" if beyond == needs[-1] else f"{room}; level {beyond[0]} cannot fit"
        return Finding(name, "bad" if beyond == needs[0] else "warn", what, "fewer slots, a smaller batch, or another GPU")
    if tight is not None:
        what = f"{room}; at level {tight[0]} programs wait for {mib(tight[1] - free - mine)} more"
        return Finding(name, "warn", what, "end the other programs on this GPU, or pin programs to another one (gpu = N)")
    return Finding(name, "ok", room)


def _held(size_bytes: int | None) -> str:
    return "an unknown amount" if size_bytes is None else mib(size_bytes)


def _needs(settings: Settings, gpu: Gpu, gpus: tuple[Gpu, ...]) -> list[tuple[str, int]]:
    """(level, bytes needed on this GPU) where known, lowest level first. A level runs as many programs as it has slots."""
    known = _state(settings).programs
    learned = {(name, level): at.gpu_bytes for name, program in known.items() for level, at in program.by_level.items()}
    all_of_them, out = Gpus(gpus), []
    for rung in settings.rungs:
        here = [spec for spec in rung.programs if gpu_seen(spec.visible, spec.gpu or 0, all_of_them) == gpu.index]
        level = rung.level.name
        needs = (max(settings.min_free_mb(spec) * MB, learned.get((spec.name, level)) or 0) for spec in here)
        needed = sum(sorted(needs, reverse=True)[: rung.level.slots])
        if needed:
            out.append((level, needed))
    return out


def _state(settings: Settings) -> State:
    """The state by the journal; if it cannot be read, that of a new box."""
    try:
        with JournalReader(settings.paths.journal) as journal:
            return replay(journal.since_snapshot())[0]
    except OSError:
        return State()


def _ours(settings: Settings) -> set[int]:
    """Pids of the shims, workers and all their descendants, from the records of the shims."""
    ours: set[int] = set()
    for record in Path(settings.paths.runtime_dir, "shims").glob("*.json"):
        try:
            shim = psutil.Process(int(read_json(record)["shim_pid"]))
            ours |= {shim.pid, *(child.pid for child in shim.children(recursive=True))}
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            continue
    return ours


def _is_here(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _who(pid: int) -> str:
    name = text_of(f"/proc/{pid}/comm").strip()
    return f"pid {pid} ({name})" if name else f"pid {pid}"
