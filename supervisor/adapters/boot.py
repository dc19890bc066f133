"""Did the box restart? And the durable sign of life that tells for how long it was gone.

Three witnesses, because each alone can be silent: the boot id (a container keeps its host's over its own restart), the
start time of pid 1 (the same after a restart of the host at the same tick), and a marker file on tmpfs. The marker alone
is not believed while the other two say "same boot": a runtime directory can be removed by hand, and calling that a
reboot would bury workers that live.

`EXTRALIFE_BOOT_FILES` names a directory with `boot_id` and `pid1_stat` to read in place of /proc: for containers whose
runtime knows better, and for tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from supervisor.core.inputs import BootEvidence

ENV_BOOT_FILES: Final = "EXTRALIFE_BOOT_FILES"
_SLOT_BYTES: Final = 16384
_HEAD: Final = struct.Struct("<8sQII")  # magic, sequence, crc32 of the body, body length
_MAGIC: Final = b"XLALIVE1"


@dataclass(frozen=True, slots=True)
class BootFiles:
    """Where this boot's identity is read."""

    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")
    pid1_stat: Path = Path("/proc/1/stat")

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> BootFiles:
        given = environ.get(ENV_BOOT_FILES)
        return cls(Path(given) / "boot_id", Path(given) / "pid1_stat") if given else cls()


@dataclass(frozen=True, slots=True)
class Boot:
    """This boot's identity. `pid1_ticks` is field 22 of pid 1's stat, None when it can't be read."""

    boot_id: str
    pid1_ticks: int | None


@dataclass(frozen=True, slots=True)
class AliveMark:
    """One durable sign of life: three clocks at one moment, the boot, and what ran."""

    boot_id: str
    pid1_ticks: int | None
    at_s: float
    wall_s: float
    boot_s: float
    level: str = ""
    steps: dict[str, int] = field(default_factory=dict)


def read_boot(files: BootFiles) -> Boot:
    """Raises OSError when not even the boot id can be read."""
    boot_id = files.boot_id.read_text().strip().replace("-", "")
    ticks = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = files.pid1_stat.read_bytes()
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
    return Boot(boot_id, ticks)


def examine(
    boot: Boot, last: AliveMark | None, *, marker: Path, clean: bool | None, wall_now_s: float, boot_now_s: float
) -> BootEvidence:
    """What the witnesses say. `clean`: the last daemon had ended in order (None: there was none)."""
    boot_wall_s = wall_now_s - boot_now_s
    if last is None:
        return BootEvidence(boot.boot_id, None, "no sign of an earlier life", boot_wall_s=boot_wall_s)
    said = _witnesses(boot, last, marker)
    if not said:
        return BootEvidence(boot.boot_id, rebooted=False, evidence="the same boot", boot_wall_s=boot_wall_s)
    return BootEvidence(
        boot_id=boot.boot_id,
        rebooted=True,
        evidence=", ".join(said),
        cause="orderly" if clean else "unclean",
        down_s=max(0.0, boot_wall_s - last.wall_s),
        up_s=last.boot_s,
        steps=last.steps,
        last_sign_wall_s=last.wall_s,
        boot_wall_s=boot_wall_s,
    )


def _witnesses(boot: Boot, last: AliveMark, marker: Path) -> list[str]:
    said = []
    if boot.boot_id != last.boot_id:
        said.append("the boot id changed")
    if None not in (boot.pid1_ticks, last.pid1_ticks) and boot.pid1_ticks != last.pid1_ticks:
        said.append("pid 1 was started at another time")
    if said and not marker.exists():
        said.append("the marker in the runtime directory is gone")
    return said


def leave_marker(marker: Path, boot: Boot) -> None:
    """A file on tmpfs that a reboot takes away."""
    marker.write_text(f"{boot.boot_id}\n")


# --- the sign of life ----------------------------------------------------------------------------------------------------


def pack_mark(mark: AliveMark, sequence: int) -> bytes:
    """One slot: magic, sequence, CRC and the mark as JSON."""
    body = json.dumps(asdict(mark), allow_nan=False).encode()
    return _HEAD.pack(_MAGIC, sequence, zlib.crc32(body), len(body)) + body


def unpack_mark(slot: bytes) -> tuple[int, AliveMark] | None:
    """(sequence, mark), or None when the slot is empty, torn or damaged."""
    if len(slot) < _HEAD.size:
        return None
    magic, sequence, crc, length = _HEAD.unpack_from(slot)
    body = slot[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or len(body) != length or zlib.crc32(body) != crc:
        return None
    try:
        return sequence, AliveMark(**json.loads(body))
    except (ValueError, TypeError):
        return None


def read_mark(path: Path) -> AliveMark | None:
    """The newest whole mark of the two slots; None when there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    slots = [unpack_mark(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
    found = [slot for slot in slots if slot is not None]
    return max(found, key=lambda slot: slot[0])[1] if found else None


def _newest_sequence(path: Path) -> int:
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        slots = [unpack_mark(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
        return max((slot[0] for slot in slots if slot is not None), default=0)
    return 0


class AliveWriter:
    """Writes the mark every period from a thread of its own, into two slots in turn, with fdatasync.

    A torn write can only hurt the slot that is being written; the other one is at most a period older. A disk that
    refuses is told once to `on_error` and tried again: dying for a missing sign of life would be the greater harm.
    """

    def __init__(self, path: Path, make: Callable[[], AliveMark], period_s: float, on_error: Callable[[str], None]) -> None:
        """`make` gives the mark of this moment; it is called in the writer's thread."""
        self._path, self._make, self._period_s, self._on_error = path, make, period_s, on_error
        self._sequence = _newest_sequence(path)
        self._failed = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write a last mark and end the thread."""
        self._over.set()
        self._thread.join(5.0)
        self.write()

    def write(self) -> None:
        """One mark, durably. Never raises."""
        try:
            data = pack_mark(self._make(), self._sequence + 1)
            if len(data) > _SLOT_BYTES:
                raise OSError(f"a sign of life of {len(data)} bytes does not fit into its slot")
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(fd, data, _SLOT_BYTES * ((self._sequence + 1) % 2))
                os.fdatasync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if not self._failed:
                self._on_error(f"cannot write the sign of life {self._path}: {error.strerror or error}")
            self._failed = True
            return
        self._failed = False
        self._sequence += 1

    def _run(self) -> None:
        while not self._over.wait(self._period_s):
            self.write()


def boot_now_s() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
