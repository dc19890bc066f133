"""Checks of `doctor` on the disk under the state: how long a durable write takes, how much goes through, the room."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor.adapters.process import checkpoints
from supervisor.ctl.checks import Finding, Patient
from supervisor.model.settings import ProgramSpec, Settings
from workers.options import ON_POLICY

_SLOW_SYNC_S: Final = 0.1
_SYNCS: Final = 5
_MOST_BYTES: Final = 64 * 2**20  # of the try, and what stays free beside it at least
_PIECE_BYTES: Final = 4 * 2**20
_MOST_S: Final = 2.0  # each of writing and reading
_LEAST_FREE: Final = 0.1  # of the disk: below that file systems slow down and other things on the box fail
CHECKPOINT_BYTES: Final = 30 * 2**20  # of a built-in trainer, until its own are there to be looked at
_CHECKPOINTS: Final = 40  # the last three, one an hour for a day, the best
_SHARE: Final = 0.5  # of the time that a stop gives: the rest is for games and learning steps that have to end first
_BROKEN: Final = "dmesg may say why: file systems are made read-only when their disk fails"
_WAYS_OUT: Final = {errno.ENOSPC: "make room (df -h, df -i)", errno.EDQUOT: "make room: the quota is used up (quota -v)"}


def fsync(who: Patient) -> Iterator[Finding]:
    """How long the disk under the state takes to make a small write durable: each fact and each checkpoint waits for it."""
    if who.settings is None or not Path(who.settings.paths.state_dir).is_dir():
        return
    try:
        times = sync_times(who.settings.paths.state_dir)
    except OSError as error:
        yield _cannot("fsync", error)
        return
    median = statistics.median(times)
    told = f"a small durable write takes {1000 * median:.1f} ms, at worst {1000 * max(times):.1f} ms of {len(times)}"
    slow = median > _SLOW_SYNC_S
    do = "move the state directory to a faster disk, or reduce the other load of this disk" if slow else ""
    yield Finding("fsync", "warn" if slow else "ok", told, do)


def _cannot(name: str, error: OSError) -> Finding:
    """What a daemon could not do either is bad; what may be a matter of rights alone is not known."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}:
        return Finding(name, "bad", f"nothing can be written there: {error.strerror}", _WAYS_OUT.get(error.errno, _BROKEN))
    return Finding(name, "unknown", f"cannot write there: {error.strerror}", "run doctor as the daemon's user or as root")


def sync_times(directory: str) -> list[float]:
    """Seconds of a few writes of 4 KiB, each with fsync, in a file that is gone at once."""
    found = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            began_s = _now_s()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            found.append(_now_s() - began_s)
    return found


def disk_speed(who: Patient) -> Iterator[Finding]:
    """Whether all programs of the heaviest level can save, all at the same time, in the time that a stop gives them."""
    if who.settings is None or not Path(who.settings.paths.state_dir).is_dir():
        return
    directory = who.settings.paths.state_dir
    disk = shutil.disk_usage(directory)
    if disk.free < 2 * _MOST_BYTES:
        yield Finding("disk speed", "unknown", f"not tried: only {_mib(disk.free)} are free", "make room first")
        return
    try:
        write, read = throughput(directory)
    except OSError as error:
        yield _cannot("disk speed", error)
        return
    size, grace_s, count = at_once(who.settings)
    told = f"{_mib(write)}/s written durably, {_mib(read)}/s read"
    if not size:
        yield Finding("disk speed", "ok", told)
        return
    takes_s = size / write
    told += f"; {count} checkpoints at once, {_mib(size)}, take {takes_s:.1f} s; a stop allows {grace_s:.0f} s"
    if takes_s > grace_s:
        do = "a faster disk for the state, fewer slots, or a longer stop_grace_s: a kill during a save loses work"
        yield Finding("disk speed", "bad", told, do)
    elif takes_s > _SHARE * grace_s:
        yield Finding("disk speed", "warn", told, "a faster disk for the state, fewer slots, or a longer stop_grace_s")
    else:
        yield Finding("disk speed", "ok", told)


def throughput(directory: str, most_bytes: int = _MOST_BYTES, most_s: float = _MOST_S) -> tuple[float, float]:
    """(bytes a second written and synced, and read back from the disk), tried for so long in a file that is gone."""
    piece = os.urandom(_PIECE_BYTES)  # what a file system could not compress away
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        fd, written, began_s = file.fileno(), 0, _now_s()
        while written < most_bytes and (not written or _now_s() - began_s < most_s):
            written += os.write(fd, piece)
            os.fdatasync(fd)
        write = written / max(_now_s() - began_s, 1e-9)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # else memory is what would be measured
        at, began_s = 0, _now_s()
        while at < written and (not at or _now_s() - began_s < most_s):
            at += len(os.pread(fd, _PIECE_BYTES, at)) or written
        return write, min(at, written) / max(_now_s() - began_s, 1e-9)


def at_once(settings: Settings) -> tuple[int, float, int]:
    """(bytes, seconds, how many): the largest checkpoints that are written together, and the shortest time that one has."""
    heaviest: tuple[int, float, int] = (0, 0.0, 0)
    for rung in settings.rungs:
        sized = [(_checkpoint_bytes(settings, spec), spec.stop_grace_s) for spec in rung.programs]
        together = sorted((each for each in sized if each[0]), reverse=True)[: rung.level.slots]
        size = sum(each[0] for each in together)
        if size > heaviest[0]:
            heaviest = size, min(each[1] for each in together), len(together)
    return heaviest


def _checkpoint_bytes(settings: Settings, spec: ProgramSpec) -> int:
    """Of its newest one, else what a built-in trainer's come to; 0 of others: not known."""
    found = checkpoints.survey(Path(settings.paths.run_dir(spec.name)))
    if found and found[0].size_bytes:
        return found[0].size_bytes
    return CHECKPOINT_BYTES if spec.builtin else 0


def room(who: Patient) -> Iterator[Finding]:
    """The disk has room for every program's replay and checkpoints, as far as they are not there yet."""
    if who.settings is None:
        return
    state = Path(who.settings.paths.state_dir)
    place = next((each for each in (state, *state.parents) if each.is_dir()), Path("/"))
    disk = shutil.disk_usage(place)
    there = sum(_used(Path(who.settings.paths.run_dir(spec.name))) for spec in who.settings.programs)
    needed = sum(needs_bytes(spec) for spec in who.settings.programs)
    told = f"{_gib(disk.free)} free of {_gib(disk.total)}; the full state needs {_gib(needed)}, of which {_gib(there)} exist"
    if disk.free < needed - there:
        yield Finding("room", "bad", told, "a bigger disk, a smaller replay_size, or fewer programs")
    elif disk.free - (needed - there) < _LEAST_FREE * disk.total:
        yield Finding("room", "warn", f"{told}: less than a tenth will be free", "make room before it is full")
    else:
        yield Finding("room", "ok", told)


def needs_bytes(spec: ProgramSpec) -> int:
    """What a built-in program keeps at most, by its flags; for others it is not known and counted as nothing."""
    if not spec.builtin:
        return 0
    flags = dict(zip(spec.argv, spec.argv[1:], strict=False))
    replay = 0
    if flags.get("--algo") not in ON_POLICY:
        side = int(flags.get("--resolution", "84"))
        replay = int(flags.get("--replay-size", "1000000")) * side * side  # a byte a pixel
    return replay + _CHECKPOINTS * CHECKPOINT_BYTES


def _used(directory: Path) -> int:
    used = 0
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                used += os.lstat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH118  many files
            except OSError:
                continue  # pruned meanwhile
    return used


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


ALL: Final = (fsync, disk_speed, room)
