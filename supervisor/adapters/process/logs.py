"""Rotates worker logs that cannot be reopened: the worker writes with O_APPEND and does not know the daemon.

Copy, then truncate: the writer's next line lands at the new end. The last check of the size and the truncation follow each
other within two microseconds, in which no other thread of the daemon can run. A line that is written in between is lost. No
call of the kernel truncates a file only if it has a given size. FALLOC_FL_COLLAPSE_RANGE removes copied bytes without a
race, but only whole blocks, and on few file systems. A pipe through the daemon would lose nothing, but would cost the worker
its life, or its progress, whenever no daemon runs.

A log that has grown to several times its limit becomes several copies, each of one to two times the limit. So whatever the
burst, and however long no daemon ran, nothing is lost that the log and its copies have room for. Of a larger log the newest
lines are kept.

A script that opens its log once more (`tee /dev/stderr`) writes at its own offset, not at the end: an emptied log then has
a hole up to that offset. A hole is neither counted nor copied.

Rotation once a minute is enough for a log of normal growth. A worker that writes 100 MB/s would fill 6 GB in between. So a
guard checks the logs after every second in which the disk has lost room, and every five seconds in any case. It rotates a
log of more than twice its limit at once. So a log and its copies, including the copy in progress, take at most
`2 x (backups + 2) x log_max_bytes`, plus what the writer can add in a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
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
from supervisor.files import create, held, open_regular
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
_LINE_BYTES: Final = 64 * 1024  # a copy that would begin inside a longer line begins right there


def rotate(path: Path, max_bytes: int, backups: int, factor: int = 1) -> bool:
    """Copy `path` to `path.1` (.1 to .2 ...) and empty it, if it is larger than `factor * max_bytes`. True if it was.

    A larger log becomes several copies. A copy holds at most twice the limit, and it does not follow a faster writer for
    ever. On a full disk the log is emptied without a copy, because the log itself fills the disk; the older copies stay.
    Any other error is raised as OSError, and the log stays as it was. This includes a link, or anything else that is not a
    file, in place of the log: it is never followed.
    """
    try:
        fd = open_regular(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return False
    with held(fd):
        size = os.fstat(fd).st_size
        head, at = (b"", 0) if size <= factor * max_bytes else _around_holes(fd, max_bytes)
        if len(head) + size - at <= factor * max_bytes:
            return False
        if backups == 0 or not _move(fd, path, head, at, max_bytes, backups):
            os.ftruncate(fd, 0)
    return True


def _around_holes(fd: int, max_bytes: int) -> tuple[bytes, int]:
    """The newest bytes before the log's last hole, and where the log goes on after it. Without a hole: none, and 0."""
    head, at, end = b"", 0, 0
    with contextlib.suppress(OSError):  # ENXIO: no data any more
        while True:
            if (begin := os.lseek(fd, end, os.SEEK_DATA)) > end:
                head = (head + os.pread(fd, end - at, at).strip(b"\0"))[-max_bytes:]
                window = os.pread(fd, _PIECE_BYTES, begin)  # a hole ends at a block
                at = begin + len(window) - len(window.lstrip(b"\0"))
            end = os.lseek(fd, begin, os.SEEK_HOLE)
    return head, at


def _move(fd: int, path: Path, head: bytes, at: int, max_bytes: int, backups: int) -> bool:
    """Move the log's content, `head` and all from `at`, to copies; False on a full disk.

    Example: 9.3 MB, limit 1 MB, 10 copies: nine copies of 1.03 MB. With 3 copies: the newest 3 MB in three copies.
    """
    size, begin = os.fstat(fd).st_size, at
    if size - begin > 2 * backups * max_bytes:
        head, at = b"", _line_after(fd, size - backups * max_bytes)
        log.warning("log_flood", path=str(path), dropped_bytes=at - begin)
    pieces = min(backups, max(1, (size - at) // max_bytes))
    aside = path.with_name(f"{path.name}.tmp")
    try:
        for left in range(pieces, 1, -1):
            end = _line_before(fd, at, at + (size - at) // left)
            os.close(_copy(fd, aside, at, end, head))
            _shift(path, backups, aside)
            head, at = b"", end
        _move_rest(fd, path, aside, head, at, at + 2 * max_bytes, backups)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno not in _FULL:
            raise
        return False
    return True


def _move_rest(fd: int, path: Path, aside: Path, head: bytes, at: int, limit: int, backups: int) -> None:
    """Copy `head`, all from `at`, and what is written meanwhile, up to `limit`; then empty the log."""
    with held(_copy(fd, aside, at, limit, head)) as target:
        _shift(path, backups, aside)
        end = at + os.fstat(target).st_size - len(head)
        while end < limit and not _empty_if(fd, end):
            end += _send_all(target, fd, end, limit)
        if end == limit:
            os.ftruncate(target, len(head) + _line_before(fd, at, limit) - at)
            os.ftruncate(fd, 0)


def _empty_if(fd: int, size: int) -> bool:
    """Empty the file if it has this size. Between the two calls no other thread of the daemon runs."""
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


def _copy(fd: int, to: Path, at: int, end: int, head: bytes) -> int:
    """Copy `head` and the bytes from `at` to `end`, or to the end of the file; return the open copy."""
    target = create(to, 0o640)
    try:
        with open(target, "wb", closefd=False) as begun:
            begun.write(head)
        _send_all(target, fd, at, end)
    except BaseException:
        os.close(target)
        raise
    return target


def _send_all(target: int, fd: int, at: int, end: int) -> int:
    begin = at
    while at < end and (sent := _send(target, fd, at, end)):
        at += sent
    return at - begin


def _send(target: int, fd: int, at: int, end: int) -> int:
    """Copy one piece; return its size in bytes, 0 at the end of the file."""
    sent = os.sendfile(target, fd, at, min(_PIECE_BYTES, end - at))
    if sent == 0 and at % mmap.PAGESIZE == 0:
        # A write that crosses a page shows its first part early: the apparent end is then the middle of a line. A seek for
        # a hole waits for the file's lock, and so for that write.
        with contextlib.suppress(OSError):
            os.lseek(fd, 0, os.SEEK_HOLE)
        sent = os.sendfile(target, fd, at, min(_PIECE_BYTES, end - at))
    return sent


def _shift(path: Path, backups: int, newest: Path) -> None:
    """Make `newest` the copy `.1`; the oldest copy is overwritten."""
    for number in range(backups - 1, 0, -1):
        older = _copy_of(path, number)
        if os.path.lexists(older):
            older.replace(_copy_of(path, number + 1))
    newest.replace(_copy_of(path, 1))


def _copy_of(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
