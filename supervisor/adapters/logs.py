"""Rotates worker logs that cannot be reopened: the worker writes with O_APPEND and does not know the daemon.

Copy, then free the copied blocks: a hole takes their place (FALLOC_FL_PUNCH_HOLE), and the writer goes on at the same end.
So nothing is lost, however fast it writes meanwhile. A log that did not grow during the copy is truncated instead, because a
hole makes it look large. The last check of the size and the truncation follow each other within two microseconds, in which
no other thread of the daemon can run. A line that is written in between is lost: one in about 5,000 rotations of a worker
that writes 100 lines a second. No call of the kernel truncates a file only if it has a given size. Where the file system
knows no holes (NFS 3), a log is truncated once it or twice its limit is copied. A pipe through the daemon would lose
nothing, but would cost the worker its life, or its progress, whenever no daemon runs.

A log that has grown to several times its limit becomes several copies, each of one to two times the limit. So whatever the
burst, and however long no daemon ran, nothing is lost that the log and its copies have room for. Of a larger log the newest
lines are kept.

A script that opens its log once more (`tee /dev/stderr`) writes at its own offset, not at the end: an emptied log then has
a hole up to that offset, like a rotated one. A hole is neither counted nor copied.

Rotation once a minute is enough for a log of normal growth. A worker that writes 100 MB/s would fill 6 GB in between. So a
guard checks the logs after every second in which the disk has lost room, and every five seconds in any case. It rotates a
log of more than twice its limit at once. So a log and its copies, including the copy in progress, take at most
`2 x (backups + 2) x log_max_bytes`, plus what the writer can add in a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.threads import Repeated, Rounds
from supervisor.as_user import log_at
from supervisor.files import create, data_from, held, open_regular
from supervisor.model.settings import Settings

log = structlog.get_logger()

GUARD_S: Final = 1.0
_LOOK_ANYWAY_S: Final = 5.0
_HANG_S: Final = 5.0  # of one log
_GUARD_FACTOR: Final = 2  # times log_max_bytes: below it, the rotation once a minute is soon enough
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_PIECE_BYTES: Final = 1 << 20
_LIBC: Final = ctypes.PyDLL(None)  # its calls keep the interpreter's lock
_LIBC.lseek.argtypes, _LIBC.lseek.restype = (ctypes.c_int, ctypes.c_int64, ctypes.c_int), ctypes.c_int64
_LIBC.ftruncate.argtypes = (ctypes.c_int, ctypes.c_int64)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_...
_LINE_BYTES: Final = 64 * 1024  # a copy that would begin inside a longer line begins right there
_Parts = list[tuple[int, int]]


def rotate(path: Path, max_bytes: int, backups: int, factor: int = 1) -> bool:
    """Copy `path` to `path.1` (.1 to .2 ...) and empty it, if it holds more than `factor * max_bytes`. True if it did.

    A larger log becomes several copies of at most twice the limit. What is written meanwhile stays in the log. On a full
    disk the log is emptied without a copy, because the log itself fills the disk; the older copies stay. Any other error is
    raised as OSError, and the log stays as it was. This includes a link, or anything else that is not a file, in place of
    the log: it is never followed.
    """
    try:
        fd = open_regular(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return False
    with held(fd):
        parts = _parts(fd, 0)
        if _bytes_of(parts) <= factor * max_bytes:
            return False
        if backups == 0 or not _move(fd, path, parts, max_bytes, backups):
            os.ftruncate(fd, 0)
    return True


def _parts(fd: int, at: int) -> _Parts:
    """Begin and end of each part of the log from `at` on that is no hole."""
    parts: _Parts = []
    size = os.fstat(fd).st_size
    while (begin := data_from(fd, at)) < size:
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        end = at
        if at < size:  # a hole begins at a block
            last = os.pread(fd, min(_LINE_BYTES, at - begin), max(begin, at - _LINE_BYTES))
            end = at - len(last) + len(last.rstrip(b"\0"))
        parts += [(begin, end)] if begin < end else []
    return parts


def _bytes_of(parts: _Parts) -> int:
    return sum(end - begin for begin, end in parts)


def _move(fd: int, path: Path, parts: _Parts, max_bytes: int, backups: int) -> bool:
    """Move these parts of the log to copies; False on a full disk.

    Example: 9.3 MB, limit 1 MB, 10 copies: nine copies of 1.03 MB. With 3 copies: the newest 3 MB in three copies.
    """
    size_bytes = _bytes_of(parts)
    if size_bytes > 2 * backups * max_bytes:
        before, parts = size_bytes, _newest(fd, parts, backups * max_bytes)
        size_bytes = _bytes_of(parts)
        log.warning("log_flood", path=str(path), dropped_bytes=before - size_bytes)
    aside = path.with_name(f"{path.name}.tmp")
    try:
        for left in range(min(backups, max(1, size_bytes // max_bytes)), 0, -1):
            piece = _oldest(fd, parts, min(_bytes_of(parts) // left, 2 * max_bytes))
            with held(_copy(fd, aside, piece)) as target:
                _shift(path, backups, aside)
                end = _free(fd, target, piece, max_bytes, last=left == 1)
            parts = _parts(fd, end)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno not in _FULL:
            raise
        return False
    return True


def _newest(fd: int, parts: _Parts, most_bytes: int) -> _Parts:
    """The newest whole lines, at most so many bytes."""
    dropped = _bytes_of(parts) - most_bytes
    while dropped >= (first := parts[0])[1] - first[0]:
        dropped -= first[1] - first[0]
        parts = parts[1:]
    return [(_line_after(fd, first[0] + dropped), first[1]), *parts[1:]]


def _oldest(fd: int, parts: _Parts, most_bytes: int) -> _Parts:
    """The oldest whole lines, at most so many bytes."""
    taken: _Parts = []
    for begin, end in parts:
        cut = end if end - begin <= most_bytes else _line_before(fd, begin, begin + most_bytes)
        taken.append((begin, cut))
        most_bytes -= cut - begin
        if cut < end:
            break
    return taken


def _free(fd: int, target: int, piece: _Parts, max_bytes: int, *, last: bool) -> int:
    """Free the room of a piece that `target` is the copy of. Returns where the log goes on.

    The end of a log that grows may be the middle of a line: then this line stays in the log.
    """
    begin, end = piece[-1]
    if last:
        if _empty_if(fd, end):
            return end
        cut = _line_before(fd, begin, end)
        os.ftruncate(target, os.fstat(target).st_size - (end - cut))
        end = cut
    if not _punch(fd, end - 1) and last:  # the newline stays, and ends the zeros as a line
        limit = begin + 2 * max_bytes
        while end < limit and not _empty_if(fd, end):
            end += _send_all(target, fd, end, limit)
        if end == limit:
            os.ftruncate(target, os.fstat(target).st_size - (end - _line_before(fd, begin, end)))
            os.ftruncate(fd, 0)
    return end


def _punch(fd: int, size: int) -> bool:
    """Make a hole of a file's first bytes; False: its file system knows none."""
    return bool(_LIBC.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, 0, size) == 0)


def _empty_if(fd: int, size: int) -> bool:
    """Empty the file if it has this size. Between the last two calls no other thread of the daemon runs.

    A write that crosses a page shows its first part early. A seek for a hole waits for the file's lock, so for that write.
    """
    with contextlib.suppress(OSError):
        os.lseek(fd, 0, os.SEEK_HOLE)
    return bool(_LIBC.lseek(fd, 0, os.SEEK_END) == size and _LIBC.ftruncate(fd, 0) == 0)


def clear(path: Path) -> None:
    """Empty a log; its rotated copies stay. A missing log counts as empty. Raises OSError as `rotate` does."""
    with contextlib.suppress(FileNotFoundError), log_at(str(path)), held(open_regular(path, os.O_WRONLY)) as fd:
        os.ftruncate(fd, 0)


class LogGuard(Repeated):
    """Keeps every program's logs within their limit: housekeeping calls `look` once a minute, its own thread in between."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """`settings` returns the settings in force, so a reread needs no restart."""
        super().__init__("log-guard")
        self._settings = settings
        self._guard = threading.Lock()  # two rotations of one log at once would lose a copy
        self._rounds: Rounds[None] = Rounds("log-look", _HANG_S)
        self._failing: set[Path] = set()
        self._looked = -_LOOK_ANYWAY_S, 0  # when all were last checked, and the free bytes of their disk then

    def look(self, factor: int = 1) -> None:
        """Rotate every log that holds more than `factor` times its limit."""
        settings, looks = self._settings(), {}
        for spec in settings.programs:
            max_bytes, backups = settings.log_max_bytes(spec), settings.log_backups(spec)
            for channel in ("stdout", "stderr"):
                name = settings.paths.log_of(spec, channel)
                if name is not None and max_bytes:
                    looks[name] = partial(self._one, name, max_bytes, backups, factor)
        with self._guard:
            self._rounds.of(looks)

    def _one(self, name: str, max_bytes: int, backups: int, factor: int) -> None:
        path = Path(name)
        try:
            with log_at(name):
                if not self._failing and _is_small(name, factor * max_bytes):
                    return
                if rotate(path, max_bytes, backups, factor):
                    log.info("log_rotated", path=str(path))
            self._failing.discard(path)
        except OSError as error:
            if path not in self._failing:  # logged once, not every second
                log.warning("log_rotation_failed", path=str(path), error=str(error))
            self._failing.add(path)

    def _is_due(self) -> bool:
        """Whether a log can have grown much since the last check: then the disk has that much less room.

        This is one system call instead of one for each of 400 logs. It misses a log that grows while somebody deletes as
        much elsewhere, and growth on a file system that counts late. So all logs are checked every five seconds in any case.
        """
        settings, now_s = self._settings(), time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            disk = os.statvfs(settings.paths.state_dir)
        except OSError:  # `shell/foundations.py` reports a state directory that is gone
            return False
        free_bytes = disk.f_bavail * disk.f_frsize
        looked_s, free_then_bytes = self._looked
        if now_s - looked_s < _LOOK_ANYWAY_S and free_then_bytes - free_bytes < settings.daemon.log_max_bytes:
            return False
        self._looked = now_s, free_bytes
        return True

    def _turn(self) -> None:
        if not self._over.wait(GUARD_S) and self._is_due():
            self.look(_GUARD_FACTOR)


def _is_small(path: str, max_bytes: int) -> bool:
    """Whether a log is small, in one system call: it runs for every log every second, 400 of them with 200 programs."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return error.errno == errno.ENOENT
    return stat.S_ISREG(found.st_mode) and found.st_size <= max_bytes


def _line_after(fd: int, at: int) -> int:
    """The next start of a line at or after `at`; inside an endless line, `at` itself."""
    return at + max(0, os.pread(fd, _LINE_BYTES, at - 1).find(b"\n"))


def _line_before(fd: int, begin: int, end: int) -> int:
    """The end of the last whole line between `begin` and `end`; in an endless line, `end` itself."""
    window = max(begin, end - _LINE_BYTES)
    last = os.pread(fd, end - window, window).rfind(b"\n") + 1
    return window + last if last else end


def _copy(fd: int, to: Path, parts: _Parts) -> int:
    """Copy these parts; return the open copy."""
    target = create(to, 0o640)
    try:
        for begin, end in parts:
            _send_all(target, fd, begin, end)
    except BaseException:
        os.close(target)
        raise
    return target


def _send_all(target: int, fd: int, at: int, end: int) -> int:
    begin = at
    while at < end and (sent := os.sendfile(target, fd, at, min(_PIECE_BYTES, end - at))):
        at += sent
    return at - begin


def _shift(path: Path, backups: int, newest: Path) -> None:
    """Make `newest` the copy `.1`; the oldest copy is overwritten."""
    for number in range(backups - 1, 0, -1):
        older = _copy_of(path, number)
        if os.path.lexists(older):
            older.replace(_copy_of(path, number + 1))
    newest.replace(_copy_of(path, 1))


def _copy_of(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
