"""Checks of `doctor` on the state directory's disk: the latency of a durable write, the throughput, the free space."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor import formats
from supervisor.adapters.process import checkpoints
from supervisor.ctl.checks import Finding, Installation
from supervisor.model.settings import ProgramSpec, Settings
from workers.options import ON_POLICY

_SLOW_SYNC_S: Final = 0.1
_SYNCS: Final = 5
_MOST_BYTES: Final = 64 * 2**20  # size of the throughput test; at least as much must stay free beside it
_PIECE_BYTES: Final = 4 * 2**20
_MOST_S: Final = 2.0  # time limit for writing, and for reading
_LEAST_FREE: Final = 0.1  # share of the disk: below it, file systems slow down and other programs fail
CHECKPOINT_BYTES: Final = 30 * 2**20  # assumed for a built-in trainer that has no checkpoint yet
_CHECKPOINTS: Final = 40  # number kept by a program: the last three, one per hour for a day, the best
_SHARE: Final = 0.5  # share of a stop's grace time; games and learning steps need the rest to end first
_BROKEN: Final = "dmesg may say why: file systems are made read-only when their disk fails"
_WAYS_OUT: Final = {errno.ENOSPC: "make room (df -h, df -i)", errno.EDQUOT: "make room: the quota is used up (quota -v)"}


def fsync(installation: Installation) -> Iterator[Finding]:
    """Latency of a small durable write on the state directory's disk. Each fact and each checkpoint waits for one."""
    if not Path(installation.settings.paths.state_dir).is_dir():
        return
    try:
        times = sync_times(installation.settings.paths.state_dir)
    except OSError as error:
        yield _cannot("fsync", error)
        return
    median = statistics.median(times)
    message = f"a small durable write takes {1000 * median:.1f} ms, at worst {1000 * max(times):.1f} ms of {len(times)}"
    slow = median > _SLOW_SYNC_S
    do = "move the state directory to a faster disk, or reduce the other load of this disk" if slow else ""
    yield Finding("fsync", "warn" if slow else "ok", message, do)


def _cannot(name: str, error: OSError) -> Finding:
    """A finding for a failed write: bad if the daemon would fail too, unknown if only permissions may be missing."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}:
        return Finding(name, "bad", f"nothing can be written there: {error.strerror}", _WAYS_OUT.get(error.errno, _BROKEN))
    return Finding(name, "unknown", f"cannot write there: {error.strerror}", "run doctor as the daemon's user or as root")


def sync_times(directory: str) -> list[float]:
    """Seconds that each of a few 4 KiB writes with fsync takes, in a temporary file."""
    found = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            began_s = _now_s()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            found.append(_now_s() - began_s)
    return found


def disk_speed(installation: Installation) -> Iterator[Finding]:
    """Whether all programs of the heaviest level can save at the same time within the grace time of a stop."""
    if not Path(installation.settings.paths.state_dir).is_dir():
        return
    directory = installation.settings.paths.state_dir
    disk = shutil.disk_usage(directory)
    if disk.free < 2 * _MOST_BYTES:
        yield Finding("disk speed", "unknown", f"not tried: only {formats.size(disk.free)} are free", "make room first")
        return
    try:
        write, read = throughput(directory)
    except OSError as error:
        yield _cannot("disk speed", error)
        return
    size, grace_s, count = at_once(installation.settings)
    message = f"{formats.size(write)}/s written durably, {formats.size(read)}/s read"
    if not size:
        yield Finding("disk speed", "ok", message)
        return
    takes_s = size / write
    message += f"; {count} checkpoints at once, {formats.size(size)}, take {formats.span(takes_s)}"
    message += f"; a stop allows {formats.span(grace_s)}"
    if takes_s > grace_s:
        do = "a faster disk for the state, fewer slots, or a longer stop_grace_s: a kill during a save loses work"
        yield Finding("disk speed", "bad", message, do)
    elif takes_s > _SHARE * grace_s:
        yield Finding("disk speed", "warn", message, "a faster disk for the state, fewer slots, or a longer stop_grace_s")
    else:
        yield Finding("disk speed", "ok", message)


def throughput(directory: str, most_bytes: int = _MOST_BYTES, most_s: float = _MOST_S) -> tuple[float, float]:
    """(bytes per second written and synced, bytes per second read back from the disk), measured in a temporary file.

    Writing and reading end after `most_bytes`, or after `most_s` seconds each.
    """
    piece = os.urandom(_PIECE_BYTES)  # random bytes: a file system cannot compress them
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        fd, written, began_s = file.fileno(), 0, _now_s()
        while written < most_bytes and (not written or _now_s() - began_s < most_s):
            written += os.write(fd, piece)
            os.fdatasync(fd)
        write = written / max(_now_s() - began_s, 1e-9)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # else the page cache would be measured
        at, began_s = 0, _now_s()
        while at < written and (not at or _now_s() - began_s < most_s):
            at += len(os.pread(fd, _PIECE_BYTES, at)) or written
        return write, min(at, written) / max(_now_s() - began_s, 1e-9)


def at_once(settings: Settings) -> tuple[int, float, int]:
    """(bytes, seconds, count) of the largest set of checkpoints written together; seconds is their shortest grace time."""
    heaviest: tuple[int, float, int] = (0, 0.0, 0)
    for rung in settings.rungs:
        sized = [(_checkpoint_bytes(settings, spec), spec.stop_grace_s) for spec in rung.programs]
        together = sorted((each for each in sized if each[0]), reverse=True)[: rung.level.slots]
        size = sum(each[0] for each in together)
        if size > heaviest[0]:
            heaviest = size, min(each[1] for each in together), len(together)
    return heaviest


def _checkpoint_bytes(settings: Settings, spec: ProgramSpec) -> int:
    """Size of the newest checkpoint; without one, the assumed size for a built-in trainer, and 0 (unknown) for others."""
    with contextlib.suppress(OSError):
        found = checkpoints.survey(Path(settings.paths.run_dir(spec.name)))
        if found and found[0].size_bytes:
            return found[0].size_bytes
    return CHECKPOINT_BYTES if spec.builtin else 0


def room(installation: Installation) -> Iterator[Finding]:
    """The disk has room for the part of every program's replay and checkpoints that is not written yet."""
    state = Path(installation.settings.paths.state_dir)
    place = next((each for each in (state, *state.parents) if each.is_dir()), Path("/"))
    disk = shutil.disk_usage(place)
    there = sum(_used(Path(installation.settings.paths.run_dir(spec.name))) for spec in installation.settings.programs)
    needed = sum(needs_bytes(spec) for spec in installation.settings.programs)
    free, whole, full, exist = map(formats.size, (disk.free, disk.total, needed, there))
    what = f"{free} free of {whole}; the full state needs {full}, of which {exist} exist"
    if disk.free < needed - there:
        yield Finding("room", "bad", what, "a bigger disk, a smaller replay_size, or fewer programs")
    elif disk.free - (needed - there) < _LEAST_FREE * disk.total:
        yield Finding("room", "warn", f"{what}: less than a tenth will be free", "make room before it is full")
    else:
        yield Finding("room", "ok", what)


def needs_bytes(spec: ProgramSpec) -> int:
    """Most bytes that a built-in program keeps, from its flags. For others the size is unknown and counts as 0."""
    if not spec.builtin:
        return 0
    words = [part for word in spec.argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    flags = dict(itertools.pairwise(words))
    replay = 0
    if flags.get("--algo") not in ON_POLICY:
        side = int(flags.get("--resolution", "84"))
        replay = int(flags.get("--replay-size", "1000000")) * side * side  # one byte per pixel
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
