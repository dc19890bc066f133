"""Reads the GPUs through NVML in a separate thread: five samples a second, published as one value a second.

A learner takes most of its memory in short bursts, which one sample a second would miss. NVML calls can block in the driver
forever, so only this thread makes them. Readers get a reference to the newest readings. If one call blocks for `hang_s`,
they get "not known" and the name of that call. Readings resume when the call returns. A box without NVIDIA's library is no
error: it has no GPU.

Each value that a driver does not support is unknown by itself. After an error that concerns NVML as a whole (no driver, or
library and driver of different versions), the thread tries again every `retry_s`. A library sees no GPU that appears after
its start. So while the box has no GPU, or a program waits for one, the thread starts it anew every `retry_s`.

Each sample is attributed to the phases of the workers on that GPU at that moment, as their heartbeats report them. So the
memory and load of an update can be distinguished from those of acting, compiling or an evaluation. The driver identifies
workers by process ids. A container that sees other process ids than the host gets no attribution.

Why not a child process: SIGKILL does not end a process in the driver's uninterruptible sleep, a second process usually
blocks at the same lock, and it takes 15 MiB. In such a sleep a `reload` waits for the driver; workers train on.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from supervisor.adapters.threads import Repeated
from supervisor.formats import span
from supervisor.lack import is_lack
from supervisor.policy.box.readings import Gpu, Gpus, InPhase, Spread, Xid

_PERIOD_S: Final = 0.2
_TELL_S: Final = 1.0
_KEPT_S: Final = 60
_XIDS_KEPT: Final = 50
_XIDS_A_LOOK: Final = 32
_MW: Final = 1000.0

# NVML's bits for the reasons of reduced clocks. Newer drivers may have more bits, which are ignored here.
_REASONS: Final = {
    0x1: "idle", 0x2: "clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake", 0x100: "display_clocks",
}  # fmt: skip
_TRAINING: Final = "training"
_ACTING: Final = "acting"
_UPDATING: Final = "updating"
_LOST: Final = {15: "it has fallen off the bus", 16: "it needs a reset", 28: "it is not found"}
_WHOLE: Final = frozenset({1, 9, 12, 18})  # uninitialised, no driver, no library, library and driver differ
_NO_LIBRARY: Final = 12
_LIBRARY: Final = "libnvidia-ml.so.1"


class _NoLibrary(OSError):
    """Has the `value` of pynvml's own error for a missing library."""

    value = _NO_LIBRARY


class _Look(NamedTuple):
    at_s: float
    free: int | None
    used: int | None
    utilisation: float | None
    temperature_c: float | None
    phases: frozenset[str]


@dataclass(slots=True)
class _Device:
    index: int
    handle: Any
    name: str = ""
    uuid: str = ""
    slowdown_c: float | None = None
    power_limit_w: float | None = None
    lost: str = ""
    total_bytes: int | None = None
    looks: deque[_Look] = field(default_factory=deque)  # samples of the last minute
    reasons: tuple[str, ...] | None = None
    power_w: float | None = None
    ecc_errors: int | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    temperature_c: float | None = None


class NvmlGpu(Repeated):
    """Readings of the GPUs through this box's NVML library, taken by its own thread."""

    def __init__(
        self, *, period_s: float = _PERIOD_S, hang_s: float = 5.0, retry_s: float = 5.0,
        now_s: Callable[[], float] = time.monotonic, doing: Callable[[], Mapping[int, tuple[str, int]]] = dict,
        awaited: Callable[[], bool] = bool,
    ) -> None:  # fmt: skip
        """`doing` returns each worker's phase and its environment steps so far, by process id. It must not block.

        `awaited`: whether a program waits for a GPU that is missing.
        """
        super().__init__("gpu")
        self._period_s, self._hang_s, self._retry_s, self._now_s = period_s, hang_s, retry_s, now_s
        self._doing, self._awaited = doing, awaited
        self._steps: dict[int, int] = {}
        self._newest: Gpus | None = None
        self._call: tuple[str, float] | None = None  # the call that this thread is in, and its start
        self._devices: list[_Device] = []
        self._events: Any = None
        self._xids: deque[Xid] = deque(maxlen=_XIDS_KEPT)
        self._xid_count = 0
        self._nvml: Any = None

    def stop(self) -> None:
        """Leaves a thread that hangs in the driver behind: nothing can end it, and the daemon must not wait for it."""
        self._over.set()
        if self.hung_s() is None:
            super().stop()

    def hung_s(self) -> float | None:
        """Seconds that the current call has not returned. None while they are less than `hang_s`."""
        call = self._call
        for_s = None if call is None else self._now_s() - call[1]
        return for_s if for_s is not None and for_s >= self._hang_s else None

    def newest(self) -> Gpus | None:
        """The newest readings; None if there are none yet. Never blocks, even if the driver hangs."""
        call, for_s = self._call, self.hung_s()
        if call is not None and for_s is not None:
            return Gpus(None, f"{call[0]} has not answered for {span(for_s)}", for_s, xids=tuple(self._xids))
        return self._newest

    # --- the thread ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            self._serve()
        except Exception as error:  # NVML as a whole fails, or a bug here: unknown until the next attempt
            self._newest = self._trouble(error)
            if is_lack(error):
                raise
            self._over.wait(self._retry_s)

    def _serve(self) -> None:
        """Read until the end, or until the library is to be started anew."""
        try:
            ctypes.CDLL(_LIBRARY)  # pynvml does this first too; here it saves the 20 ms of CPU of its import
        except OSError as error:
            raise _NoLibrary from error
        self._open()
        told_s: float | None = None
        opened_s = self._now_s()
        while not self._over.is_set():
            now_s = self._now_s()
            if now_s - opened_s >= self._retry_s and (not self._devices or self._awaited()):
                self._ask("nvmlShutdown")
                return
            whole = told_s is None or now_s - told_s >= _TELL_S
            phases = self._phases()
            for device in self._devices:
                self._look(device, now_s, phases, whole=whole)
            if whole:
                self._take_events()
                self._newest = Gpus(tuple(_reading(device, now_s) for device in self._devices), xids=tuple(self._xids))
                told_s = now_s
            self._over.wait(self._period_s)

    def _trouble(self, error: Exception) -> Gpus:
        code = getattr(error, "value", None)
        if isinstance(error, ImportError):
            return Gpus((), "Python's nvidia-ml-py is not installed", absent=True)
        if code == _NO_LIBRARY:
            return Gpus((), "this box has no NVIDIA driver", absent=True)
        return Gpus(None, f"NVML: {error}", xids=tuple(self._xids))

    def _ask(self, name: str, *args: Any) -> Any:
        """Call the library. `_call` holds the call while it lasts."""
        self._call = (name, self._now_s())
        try:
            return getattr(self._nvml, name)(*args)
        finally:
            self._call = None

    def _maybe(self, name: str, *args: Any) -> Any:
        """Like `_ask`, but None for a value that this driver or GPU does not support. Other errors are raised."""
        try:
            return self._ask(name, *args)
        except self._nvml.NVMLError as error:
            if error.value in _WHOLE or error.value in _LOST:
                raise
            return None

    def _open(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._ask("nvmlInit")
        looks = {device.uuid: device.looks for device in self._devices if device.uuid}
        self._devices, self._events = [], self._maybe("nvmlEventSetCreate")
        for index in range(self._ask("nvmlDeviceGetCount")):
            device = _Device(index, None)
            with self._may_be_lost(device):
                device.handle = self._ask("nvmlDeviceGetHandleByIndex", index)
                self._describe(device)
            device.looks = looks.get(device.uuid, device.looks)
            self._devices.append(device)

    def _describe(self, device: _Device) -> None:
        handle = device.handle
        device.name, device.uuid = (str(self._maybe(f"nvmlDeviceGet{key}", handle) or "") for key in ("Name", "UUID"))
        slowdown_c = self._maybe("nvmlDeviceGetTemperatureThreshold", handle, self._nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        device.slowdown_c = float(slowdown_c) if slowdown_c else None
        limit = self._maybe("nvmlDeviceGetEnforcedPowerLimit", handle)
        device.power_limit_w = limit / _MW if limit else None
        if self._events is not None:
            self._maybe("nvmlDeviceRegisterEvents", handle, self._nvml.nvmlEventTypeXidCriticalError, self._events)

    @contextlib.contextmanager
    def _may_be_lost(self, device: _Device) -> Any:
        """A GPU that no longer answers is reported as lost; the others are read as before."""
        try:
            yield
        except self._nvml.NVMLError as error:
            if error.value not in _LOST:
                raise
            device.lost = _LOST[error.value]
        else:
            device.lost = ""

    def _phases(self) -> dict[int, str]:
        """Each worker's phase, by process id."""
        doing, before = self._doing(), self._steps
        self._steps = {pid: steps for pid, (_, steps) in doing.items()}
        found = {}
        for pid, (phase, steps) in doing.items():
            if phase != _TRAINING:
                found[pid] = phase
            elif pid in before:
                found[pid] = _ACTING if steps != before[pid] else _UPDATING
        return found

    def _look(self, device: _Device, now_s: float, phases: Mapping[int, str], *, whole: bool) -> None:
        if device.lost and not whole:
            return
        with self._may_be_lost(device):
            if device.lost:
                device.handle = self._ask("nvmlDeviceGetHandleByIndex", device.index)
                self._describe(device)
            free = used = None
            memory = self._memory(device.handle)
            if memory is not None:
                device.total_bytes, free, used = int(memory.total), int(memory.free), int(memory.used)
            rates = self._maybe("nvmlDeviceGetUtilizationRates", device.handle)
            if whole:
                self._look_slowly(device)
            share = None if rates is None else float(rates.gpu)
            here = frozenset(phases[pid] for pid, _ in device.processes or () if pid in phases)
            device.looks.append(_Look(now_s, free, used, share, device.temperature_c, here))
        while device.looks and (device.lost or now_s - device.looks[0].at_s > _KEPT_S):
            device.looks.popleft()

    def _memory(self, handle: Any) -> Any:
        """Version 2 reports the driver's reserved memory separately. Older drivers only have version 1."""
        found = self._maybe("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        return self._maybe("nvmlDeviceGetMemoryInfo", handle) if found is None else found

    def _look_slowly(self, device: _Device) -> None:
        """Read the values that do not change five times a second."""
        handle, nvml = device.handle, self._nvml
        temperature = self._maybe("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU)
        device.temperature_c = None if temperature is None else float(temperature)
        bits = self._maybe("nvmlDeviceGetCurrentClocksEventReasons", handle)
        bits = self._maybe("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if bits is None else bits
        device.reasons = None if bits is None else tuple(word for bit, word in _REASONS.items() if bits & bit)
        power = self._maybe("nvmlDeviceGetPowerUsage", handle)
        device.power_w = None if power is None else power / _MW
        device.ecc_errors = self._maybe(
            "nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        found = self._maybe("nvmlDeviceGetComputeRunningProcesses", handle)
        device.processes = None if found is None else tuple((int(each.pid), each.usedGpuMemory) for each in found)

    def _take_events(self) -> None:
        """Collect every Xid since the last call. Drivers without events report none."""
        if self._events is None:
            return
        by_handle = {_address(device.handle): device.index for device in self._devices if device.handle is not None}
        for _ in range(_XIDS_A_LOOK):
            event = self._maybe("nvmlEventSetWait", self._events, 0)
            if event is None:  # NVML returned "timeout"
                return
            self._xid_count += 1
            index = by_handle.get(_address(event.device), 0)
            self._xids.append(Xid(self._xid_count, index, int(event.eventData)))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _reading(device: _Device, now_s: float) -> Gpu:
    """The published reading of a GPU: its newest sample, and statistics of the last minute."""
    if device.lost:
        return Gpu(device.index, device.uuid, device.name, device.lost)
    newest = device.looks[-1]
    least: dict[int, int] = {}
    for look in device.looks:
        if look.free is not None:
            second = int(now_s - look.at_s)
            least[second] = min(look.free, least.get(second, look.free))
    return Gpu(
        device.index, device.uuid, device.name, "", device.total_bytes, newest.free,
        tuple(least[second] for second in sorted(least, reverse=True)),
        _spread([look.used for look in device.looks]), newest.utilisation,
        _spread([look.utilisation for look in device.looks]), newest.temperature_c,
        _spread([look.temperature_c for look in device.looks]), device.slowdown_c, device.reasons, device.power_w,
        device.power_limit_w, device.ecc_errors, device.processes, _by_phase(device),
    )  # fmt: skip


def _by_phase(device: _Device) -> tuple[InPhase, ...]:
    found = []
    for phase in sorted({phase for look in device.looks for phase in look.phases}):
        looks = [look for look in device.looks if phase in look.phases]
        used, busy = _spread([look.used for look in looks]), _spread([look.utilisation for look in looks])
        found.append(InPhase(phase, len(looks), used, busy))
    return tuple(found)


def _spread(values: list[Any]) -> Spread | None:
    known = [float(value) for value in values if value is not None]
    return Spread(min(known), sum(known) / len(known), max(known)) if known else None
