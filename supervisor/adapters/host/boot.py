"""Detects a reboot of the box, and writes the durable sign of life that shows how long the box was down.

It uses four witnesses, because each alone can miss a reboot:

* the boot id (a container keeps its host's boot id over its own restart);
* the start time of pid 1 (two boots whose clocks begin at zero can share a tick of 10 ms: seen once in twenty power cuts
  of a box in a time namespace);
* CLOCK_BOOTTIME, which never goes back within one boot (but a container has its host's);
* a marker file on tmpfs. It only supports the others and never counts alone: somebody can remove a runtime directory by
  hand, and if that counted as a reboot, running workers would be recorded as dead.

"The box" means everything below pid 1. A container's pid 1 starts long after its host boots. So downtime ends and uptime
begins with the start of pid 1, not at the zero of CLOCK_BOOTTIME. With the same boot id, only the container was started
again.

In a pod whose containers share their processes, pid 1 is that of the pod, and outlives a container. There two others count
together: the first process of this container is another one, and its root was mounted anew or the marker is gone. A worker
that still lives refutes both.

`EXTRALIFE_BOOT_FILES` names a directory with `boot_id` and `pid1_stat`, which are read instead of /proc. It is for
containers whose runtime has better information, and for tests.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Final

from supervisor import files, filesystems, lack
from supervisor.adapters import procfs
from supervisor.adapters.durable import json_of, sync_directory, write_all
from supervisor.adapters.foundations import directory
from supervisor.adapters.threads import Repeated
from supervisor.model.inputs import BootEvidence
from supervisor.policy.box.reboot_cause import CONTAINER
from supervisor.records import Record
from supervisor.wall_clock import is_set

ENV_BOOT_FILES: Final = "EXTRALIFE_BOOT_FILES"
_SLOT_BYTES: Final = 16384
_CLOCK_SLACK_S: Final = 2.0  # a hardware clock with whole seconds may place the boot before the last sign of life
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_HEAD: Final = struct.Struct("<8sQII")  # magic, sequence, crc32 of sequence and body, body length
_SEQUENCE: Final = struct.Struct("<Q")
_MAGIC: Final = b"XLALIVE1"
_COMPRESSED: Final = b"XLALIVE2"  # its body is compressed: hundreds of programs with long names do not fit otherwise
_MOST_BODY_BYTES: Final = 1 << 20


class BootFiles(Record):
    """The files that identify this boot."""

    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")
    pid1_stat: Path = Path("/proc/1/stat")
    folder: Path | None = None  # files that identify the box (`box_identity.py`); None: those of the system

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> BootFiles:
        given = environ.get(ENV_BOOT_FILES)
        return cls(Path(given) / "boot_id", Path(given) / "pid1_stat", Path(given)) if given else cls()


class Boot(Record):
    """This boot's identity. `pid1_ticks` is field 22 of pid 1's stat, None when it can't be read."""

    boot_id: str
    pid1_ticks: int | None
    first: str = ""  # the first process of this container, if that is not pid 1; empty: it is, or is not known
    root: str = ""  # the mount of this container's root, likewise


class AliveMark(Record):
    """One durable sign of life: three clocks at one moment, the boot, and the state of the training."""

    boot_id: str
    pid1_ticks: int | None
    at_s: float
    wall_s: float
    boot_s: float
    level: str = ""
    steps: dict[str, int] = field(default_factory=dict)
    seq: int = 0  # the number of the journal's last fact
    ckpt_steps: dict[str, int] = field(default_factory=dict)  # for programs whose checkpoints only they can read
    first: str = ""
    root: str = ""


def read_boot(files: BootFiles) -> Boot:
    """Raises OSError if even the boot id cannot be read."""
    boot_id = files.boot_id.read_text(encoding="utf-8").strip().replace("-", "")
    ticks = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = procfs.parse_stat(files.pid1_stat.read_bytes()).start_ticks
    return Boot(boot_id, ticks, *_container(files.folder))


def is_container() -> bool:
    """Whether this is a container: processes of its own, or a root made of an image's layers."""
    return procfs.contained() or filesystems.layered(filesystems.kind_of(Path("/")))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _container(folder: Path | None) -> tuple[str, str]:
    """(first process, mount of its root) of a container whose pid 1 belongs to another one; empty elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        if folder is not None:
            return _read(folder / "first").strip(), _read(folder / "root").strip()
        mounts, pid = procfs.mount_namespace(os.getpid()), os.getpid()
        if is_container() and mounts and mounts != procfs.mount_namespace(1):
            while (stat := procfs.read_stat(pid)) is not None and procfs.mount_namespace(stat.parent) == mounts:
                pid = stat.parent
            lines = Path("/proc/self/mountinfo").read_text(errors="replace", encoding="utf-8").splitlines()
            root = next(words[2:] for words in map(str.split, lines) if words[4] == "/")
            return f"{pid} {stat.start_ticks if stat else 0}", f"{mounts} {' '.join(root)}"
    return "", ""


def examine(
    boot: Boot, last: AliveMark | None, *, marker: Path, clean: bool | None, wall_now_s: float, boot_now_s: float,
    journal_boot_id: str = "", journal_at_s: float = 0.0, lives: Callable[[], bool] = lambda: False,
) -> BootEvidence:  # fmt: skip
    """Whether the box restarted since the last sign of life, by which witnesses, and for how long it was down.

    `clean`: the last daemon ended in order (None: there was none). `journal_boot_id` is the boot of the journal's last fact.
    It replaces a lost mark. If it is this boot, the journal already has the reboot that an older mark shows.
    `journal_at_s` is the time of that fact; if it is later than the mark, it is the last sign of life. `down_s` is unknown
    (None) if the wall clock places the boot before the last sign of life, or is not set. `lives`: whether a worker that an
    earlier daemon started still runs.

    Example: last sign at 12:00:00, now 12:00:45, up for 5 s: the downtime was 40 s, or up to one period less.
    """
    boot_wall_s = wall_now_s - boot_now_s + _began_at_s(boot, boot_now_s)
    witnesses = _witnesses(boot, last, journal_boot_id, boot_now_s)
    if not witnesses and last is not None and _is_another_container(boot, last, marker) and not lives():
        witnesses.append("the container has another first process and root")
    if not witnesses:
        known = last is not None or journal_boot_id
        evidence = "the same boot" if known else "no sign of an earlier life"
        evidence_of = BootEvidence(boot.boot_id, False if known else None, evidence, boot_wall_s=boot_wall_s)
        if last is None:
            return evidence_of
        return replace(evidence_of, steps=last.steps, last_sign_s=last.at_s, mark_at_s=last.at_s)
    if not marker.exists():
        witnesses.append("the marker in the runtime directory is gone")
    cause = "orderly" if clean else "unclean"
    kind = CONTAINER if boot.boot_id in {journal_boot_id, "" if last is None else last.boot_id} else ""
    if last is None:
        return BootEvidence(boot.boot_id, rebooted=True, evidence=", ".join(witnesses), cause=cause, boot_wall_s=boot_wall_s)
    mark_at_s = last.at_s
    if journal_boot_id == last.boot_id:  # the accounts begin a downtime at the time of the daemon's last fact
        later_s = max(0.0, journal_at_s - last.at_s)
        last = replace(last, at_s=last.at_s + later_s, wall_s=last.wall_s + later_s, boot_s=last.boot_s + later_s)
    down_s = boot_wall_s - last.wall_s
    possible = down_s >= -_CLOCK_SLACK_S and is_set(last.wall_s) and is_set(boot_wall_s)
    return BootEvidence(
        boot_id=boot.boot_id, rebooted=True, evidence=", ".join(witnesses), cause=cause, kind=kind,
        down_s=max(0.0, down_s) if possible else None, up_s=last.boot_s - _began_at_s(last, last.boot_s),
        steps=last.steps, ckpt_steps=last.ckpt_steps, last_sign_wall_s=last.wall_s, boot_wall_s=boot_wall_s,
        last_sign_s=last.at_s, mark_at_s=mark_at_s,
    )  # fmt: skip


def _witnesses(boot: Boot, last: AliveMark | None, journal_boot_id: str, boot_now_s: float) -> list[str]:
    witnesses = []
    known = {boot_id for boot_id in (journal_boot_id, last.boot_id if last is not None else "") if boot_id}
    if known and boot.boot_id not in known:
        witnesses.append("the boot id changed")
    if last is None or journal_boot_id not in {"", last.boot_id}:
        return witnesses  # the mark, if there is one, is older than the journal: its pid 1 adds nothing
    if None not in (boot.pid1_ticks, last.pid1_ticks) and boot.pid1_ticks != last.pid1_ticks:
        witnesses.append("pid 1 was started at another time")
    if not witnesses and boot_now_s < last.boot_s:
        witnesses.append("the time since boot is less than at the last sign of life")
    return witnesses


def _is_another_container(boot: Boot, last: AliveMark, marker: Path) -> bool:
    known = all((boot.first, boot.root, last.first, last.root)) and boot.first != last.first
    return known and (boot.root != last.root or not marker.exists())


def _began_at_s(boot: Boot | AliveMark, boot_now_s: float) -> float:
    """Start of the box, that is of its first process, in seconds of CLOCK_BOOTTIME; 0.0 if it is unknown or impossible."""
    *_, first = boot.first.split() or [""]
    ticks = int(first) if first.isdigit() else boot.pid1_ticks
    at_s = 0.0 if ticks is None else ticks / _TICKS_PER_S
    return at_s if at_s <= boot_now_s else 0.0


def leave_marker(marker: Path, boot: Boot) -> None:
    """Write a file on tmpfs, which a reboot removes."""
    with files.held(files.open_own(marker, os.O_WRONLY | os.O_TRUNC)) as fd:
        write_all(fd, f"{boot.boot_id}\n".encode())


# --- the sign of life ----------------------------------------------------------------------------------------------------


def pack_mark(mark: AliveMark, sequence: int) -> bytes:
    """One slot: magic, sequence, CRC and the mark as JSON, compressed if the slot is too small for it."""
    kept = {key: value for key, value in asdict(mark).items() if value or key not in {"first", "root"}}
    body, magic = json.dumps(kept, allow_nan=False).encode(), _MAGIC  # elsewhere than in a pod, an older version can read it
    if _HEAD.size + len(body) > _SLOT_BYTES:
        body, magic = zlib.compress(body), _COMPRESSED
    return _HEAD.pack(magic, sequence, _crc(sequence, body), len(body)) + body


def _crc(sequence: int, body: bytes) -> int:
    # The CRC covers the sequence too. Otherwise a write torn between the two would make the old mark look like the newest.
    return zlib.crc32(body, zlib.crc32(_SEQUENCE.pack(sequence)))


def unpack_mark(slot: bytes) -> tuple[int, AliveMark] | None:
    """(sequence, mark); None if the slot is empty, torn or damaged."""
    if len(slot) < _HEAD.size:
        return None
    magic, sequence, crc, length = _HEAD.unpack_from(slot)
    body = slot[_HEAD.size : _HEAD.size + length]
    if magic not in {_MAGIC, _COMPRESSED} or len(body) != length or _crc(sequence, body) != crc:
        return None
    try:
        text = zlib.decompressobj().decompress(body, _MOST_BODY_BYTES) if magic == _COMPRESSED else body
        return sequence, AliveMark(**json_of(text))
    except (ValueError, TypeError, zlib.error):
        return None


def read_mark(path: Path) -> AliveMark | None:
    """The newest complete mark of the two slots; None if there is none."""
    newest = _newest(path)
    return newest[1] if newest is not None else None


def _newest(path: Path) -> tuple[int, AliveMark] | None:
    try:
        data = files.read(path, 2 * _SLOT_BYTES)
    except OSError as error:
        lack.check(error)
        return None
    slots = [unpack_mark(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


class AliveWriter(Repeated):
    """Writes the mark every period from its own thread, into two slots in turn, with fdatasync.

    A torn write can only damage the slot that is being written; the other one is at most a period older. An error is
    reported once to `on_error`, and the write is retried: ending the daemon for a missing sign of life would do more harm.
    """

    def __init__(self, path: Path, make: Callable[[], AliveMark], period_s: float, on_error: Callable[[str], None]) -> None:
        """`make` returns the current mark. The writer's thread calls it."""
        super().__init__("alive")
        self._path, self._make, self._period_s, self._on_error = path, make, period_s, on_error
        self._directory_fd = -1
        newest = _newest(path)
        self._sequence = newest[0] if newest is not None else 0
        self._failed = False

    def stop(self) -> None:
        """Write a last mark and end the thread.

        Writes nothing if the thread was never started: a mark of this boot, written before the reboot is in the journal,
        would hide the reboot from the next daemon.
        """
        if self._thread.ident is None:
            return
        super().stop()
        if not self._thread.is_alive():  # otherwise it hangs on the disk, and this write would hang too
            self.write()
            if self._directory_fd >= 0:
                os.close(self._directory_fd)
                self._directory_fd = -1

    def write(self) -> None:
        """Write one mark durably. Never raises."""
        try:
            self._write(pack_mark(self._make(), self._sequence + 1))
        except Exception as error:  # noqa: BLE001  any error: the write in the next period may succeed
            if not self._failed:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                self._on_error(f"cannot write the sign of life {self._path}: {reason}")
            self._failed = True
            return
        self._failed = False
        self._sequence += 1

    def _write(self, data: bytes) -> None:
        if len(data) > _SLOT_BYTES:
            raise ValueError(f"{len(data)} bytes do not fit into a slot of {_SLOT_BYTES}")
        if self._directory_fd < 0:
            # Stays open from the first mark on. With a path, a later mark could get into another journal's directory: one
            # that was mounted there later, or that becomes visible when this one is unmounted.
            self._directory_fd = directory(self._path.parent)
        with files.held(files.open_own(self._path.name, os.O_WRONLY, dir_fd=self._directory_fd)) as fd:
            new = os.fstat(fd).st_size == 0
            # A short write must not count: the next mark would then overwrite the only complete slot.
            if os.pwrite(fd, data, _SLOT_BYTES * ((self._sequence + 1) % 2)) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(fd)
        if new:
            sync_directory(".", dir_fd=self._directory_fd)

    def _turn(self) -> None:
        if not self._over.wait(self._period_s):
            self.write()
