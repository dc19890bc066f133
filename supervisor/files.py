"""Opens files, and makes room for the daemon's own: opening never hangs, and what is no file is put aside.

A worker runs as the daemon's own user, so it can put anything in its run directory: a log that links to another user's file,
an exit record that is a FIFO, a report file of gigabytes. A person or a script can do the same to `extralife.log` or `lock`.
So files are opened here: regular ones only, without waiting for the other end of a FIFO, without following a link in the
last part of a path (unless `follow`), and with a limit for what is read.

A reader refuses what is no regular file. The writer of one of the daemon's own files gives it another name and goes on
(`open_own`, `make_room`): a FIFO called `extralife.log` becomes `extralife.log.found`, and nothing is removed.
`adapters/foundations.py` reports each of them.
"""

# `extralifectl` reads with it, and pathlib takes 10 ms to import:
# ruff: noqa: PTH108, PTH115, PTH116, PTH118

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from supervisor import lack

FILE, DIRECTORY, SOCKET = stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK

_BLOCK_BYTES = 1 << 20  # the largest of a file system
put_aside: list[tuple[str, str, str]] = []  # (path, kind, its new name), until they are reported
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFSOCK: "socket", stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO",
}  # fmt: skip


def kind_of(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "special file")


@contextlib.contextmanager
def held(fd: int) -> Iterator[int]:
    """Close the descriptor at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_regular(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600, *, dir_fd: int | None = None,
    follow: bool = False,
) -> int:  # fmt: skip
    """Open a regular file and return its descriptor. Raises OSError, also for a link, a FIFO or a device."""
    # Without O_NONBLOCK, opening a FIFO waits for its other end. The flag has no effect on a regular file.
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    raise _refused(mode, path)


def read(path: str | os.PathLike[str], limit_bytes: int, *, follow: bool = True) -> bytes:
    """The first `limit_bytes` of a regular file. Raises OSError."""
    with open(open_regular(path, follow=follow), "rb") as file:  # a read takes the memory for its limit
        return file.read(min(limit_bytes, max(os.fstat(file.fileno()).st_size, _BLOCK_BYTES)))


def text(path: str | os.PathLike[str], limit_bytes: int = 65_536) -> str:
    """The first `limit_bytes` of a file as text, without white space around it; empty if it cannot be read."""
    try:
        return read(path, limit_bytes).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def read_bounded(path: str, limit_bytes: int, from_byte: int = 0, *, log: bool = False) -> bytes:
    """The last `limit_bytes` of the file's content after `from_byte`; empty when the file can't be read.

    Raises OSError for a lack of descriptors or memory.
    A file that is now shorter than `from_byte` was truncated by a rotation: then all of it is new.
    `log`: without the hole at the beginning that a rotation may leave. A record of bytes may begin with zeros of its own.
    """
    try:
        fd = open_regular(path)
    except ValueError:
        return b""
    except OSError as error:
        lack.check(error)
        return b""
    with held(fd), contextlib.suppress(OSError):
        size = os.fstat(fd).st_size
        begin = from_byte if from_byte <= size else 0
        begin = data_from(fd, begin) if log else begin
        return os.pread(fd, limit_bytes, max(begin, size - limit_bytes))
    return b""


def data_from(fd: int, at: int) -> int:
    """Where a file's data begins at or after `at`: behind a hole, the zeros of the block that it ends in, and their newline.

    Example: the first 10,000 bytes of a log are rotated. Its hole ends at 8,192, and its data begins at 10,000.
    """
    size = os.fstat(fd).st_size  # before the look: what is appended meanwhile is data
    if at >= size:
        return at
    try:
        at = os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else at
    if os.pread(fd, 1, at) != b"\0":
        return at
    block = os.pread(fd, _BLOCK_BYTES, at)
    return at + len(block) - len(block.lstrip(b"\0").removeprefix(b"\n"))


def create(path: str | os.PathLike[str], mode: int = 0o600) -> int:
    """Create an empty file at `path` and return its descriptor. An existing file or link there is removed, not followed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        make_room(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)


def was_at(opened: str, path: str) -> bool:
    """Whether a descriptor in /proc leads to a file that was removed from `path`, or renamed beside it as by logrotate."""
    with contextlib.suppress(OSError):
        directory, name = os.path.split(path)
        here = f"{os.path.realpath(directory)}/{name}"
        return (leads := os.readlink(opened)) != here and leads.startswith(here)
    return False


# --- the daemon's own ----------------------------------------------------------------------------------------------------


def open_own(
    path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, dir_fd: int | None = None, follow: bool = False
) -> int:
    """Open one of the daemon's own files for writing, and create it if it is missing. Raises OSError."""
    make_room(path, dir_fd=dir_fd, follow=follow)
    return open_regular(path, flags | os.O_CREAT, mode, dir_fd=dir_fd, follow=follow)


def make_room(path: str | os.PathLike[str], kind: int = FILE, *, dir_fd: int | None = None, follow: bool = False) -> None:
    """Give whatever has this path another name, unless it is of this kind. Raises OSError.

    A device stays: only root can make one, and it may be the system's own.
    """
    try:
        mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        mode = stat.S_IFLNK  # a link to itself leads to no kind
    if stat.S_IFMT(mode) != kind and not stat.S_ISCHR(mode) and not stat.S_ISBLK(mode):
        put_away(os.fspath(path), mode, dir_fd)


def put_away(path: str, mode: int = stat.S_IFREG, dir_fd: int | None = None) -> None:
    """Give whatever has this path another name, and note it for the report. Raises OSError."""
    kept = _free_name(path, dir_fd)
    os.rename(path, kept, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    directory = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
    put_aside.append((os.path.join(directory, path), kind_of(mode), kept))


def _free_name(path: str, dir_fd: int | None) -> str:
    number = 0
    while True:
        name = f"{path}.found-{number}" if number else f"{path}.found"
        try:
            os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return name
        number += 1


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError if a link or this path itself leads to anything but a regular file. Opens nothing."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise _refused(mode, path)


def _refused(mode: int, path: str | os.PathLike[str]) -> OSError:
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    return OSError(number, f"a {kind_of(mode)}, not a regular file", os.fspath(path))
