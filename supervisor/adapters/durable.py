"""Durable files: after a power cut, either the new or the previous file is complete under its name.

A write lasts only when the file's data is synced. A name lasts only when its directory is synced. So a file is written under
another name, synced, renamed, and then its directory is synced. `tests/recorded.py` checks that order in the system calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor import files
from supervisor.files import held

REFLINK = "reflink"
_MOST_JSON_BYTES = 16 << 20
_FICLONE = 0x40049409  # ioctl_ficlone(2)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def sync(path: str | os.PathLike[str]) -> None:
    """Sync a file's data, or the names in a directory, to the disk."""
    with held(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


def sync_directory(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Sync the names in a directory to the disk. Raises NotADirectoryError for anything else."""
    with held(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)) as fd:
        os.fsync(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; one call of write(2) may write fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def create(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """Create a file with this content and sync it, but not its directory. Raises FileExistsError, also for a link."""
    with held(os.open(path, _NEW, mode)) as fd:
        write_all(fd, data)
        os.fsync(fd)


def replace(path: Path, data: bytes, *, aside: Path, before_rename: Callable[[], object] = lambda: None) -> None:
    """Replace the file's content durably: after a crash the file has all of the new content or all of the old.

    `aside` is the temporary file, in the same directory; a leftover of that name is removed. `before_rename` runs once the
    new content is on the disk.
    """
    files.make_room(aside)
    aside.unlink(missing_ok=True)
    try:
        create(aside, data)
        before_rename()
        files.make_room(path, follow=True)  # a link to a file is replaced by the rename
        aside.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    sync_directory(path.parent)


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a JSON file, of up to 16 MiB. Raises OSError, also for a link, and ValueError."""
    return json_of(files.read(path, _MOST_JSON_BYTES, follow=False))


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for any other text, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def clone(source: int, target: Path) -> str:
    """Create a file that shares `source`'s blocks until either is written to (btrfs, XFS, bcachefs); empty: impossible."""
    with held(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)) as fd:
        try:
            fcntl.ioctl(fd, _FICLONE, source)
        except OSError:
            target.unlink()
            return ""
    return REFLINK
