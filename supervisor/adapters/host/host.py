"""The host's memory, swap, pressure, cores, their use and disk, read from the kernel's files in a separate thread.

If a container's own limit is lower than the host's memory, the limit counts: the rest of the host's memory is not
available. A value that cannot be read is unknown. If a disk hangs, all become unknown after a while, but no reader blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from supervisor.adapters.threads import Repeated
from supervisor.config.cores import usable_cores
from supervisor.files import text
from supervisor.policy.box.readings import Host
from workers.memory_limits import memory_limits

_PERIOD_S: Final = 5.0
_STALE_S: Final = 30.0
_KB: Final = 1024


class LocalHost(Repeated):
    def __init__(
        self, state_dir: str, *, period_s: float = _PERIOD_S, root: Path = Path("/"),
        looks: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`looks` read more fields of `Host`, by their names."""
        super().__init__("host")
        self._state_dir, self._period_s, self._root, self._looks = state_dir, period_s, root, looks
        self._newest: tuple[float, Host] | None = None
        self._ticks: list[int] = []

    def stop(self) -> None:
        """Waits for nothing: a disk may hang."""
        self._over.set()

    def newest(self) -> Host | None:
        """The newest readings; None if there are none, or if they are too old. Never blocks."""
        newest = self._newest
        return None if newest is None or time.monotonic() - newest[0] > _STALE_S else newest[1]

    def look(self) -> Host:
        lines = re.findall(r"^(\w+): *(\d+)\b", text(self._root / "proc/meminfo"), re.MULTILINE)
        memory = {name: int(size) * _KB for name, size in lines}
        whole, left = memory.get("MemTotal"), memory.get("MemAvailable")
        for limit_bytes, used_bytes, inactive_bytes, _ in memory_limits(self._root):  # of this process's cgroup, where less
            if used_bytes is not None:
                room = max(0, limit_bytes - used_bytes + inactive_bytes)
                whole = limit_bytes if whole is None else min(whole, limit_bytes)
                left = room if left is None else min(left, room)
        # Percentages of the last minute in which all tasks were stalled. None if the kernel does not report it.
        pressures = {name: dict(pressure(name, text(self._root / f"proc/pressure/{name}"))) for name in ("memory", "io")}
        try:
            disk = os.statvfs(self._state_dir)
            disk_free_bytes: int | None = disk.f_bavail * disk.f_frsize
        except OSError:
            disk_free_bytes = None
        before, self._ticks = self._ticks, _ticks(self._root / "proc/stat")
        return Host(
            whole, left, memory.get("SwapTotal"), memory.get("SwapFree"),
            pressures["memory"].get("memory full"), pressures["io"].get("io full"), usable_cores(self._root),
            disk_free_bytes, cpu_busy=_busy(before, self._ticks), **{name: look() for name, look in self._looks.items()},
        )  # fmt: skip

    def _turn(self) -> None:
        self._newest = (time.monotonic(), self.look())
        self._over.wait(self._period_s)


def pressure(name: str, report: str) -> Iterator[tuple[str, float]]:
    """`some avg10=0.00 avg60=1.25 ...` of memory.pressure -> ("memory some", 1.25)."""
    for line in report.splitlines():
        kind, *fields = line.split()
        values = dict(field.partition("=")[::2] for field in fields)
        with contextlib.suppress(KeyError, ValueError):
            if kind in {"some", "full"}:
                yield f"{name} {kind}", float(values["avg60"])


def _ticks(path: Path) -> list[int]:
    """Ticks of all cores since the boot: user, nice, system, idle, iowait, irq, softirq, steal. Empty: unknown."""
    words = text(path).partition("\n")[0].split()[1:9]
    return [int(word) for word in words] if len(words) == 8 and all(word.isdecimal() for word in words) else []


def _busy(before: list[int], now: list[int]) -> float | None:
    """Percentage of the ticks between two readings in which the cores did not idle."""
    spent = [new - old for old, new in zip(before, now, strict=False)]
    return 100.0 * (1.0 - (spent[3] + spent[4]) / sum(spent)) if spent and min(spent) >= 0 < sum(spent) else None
