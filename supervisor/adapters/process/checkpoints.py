"""Lists, verifies and sets aside the checkpoints of a run directory, for the daemon.

A worker commits, verifies and prunes its own checkpoints (`workers/checkpoint.py`). The daemon only reads them, and sets one
aside when the worker repeatedly dies of it. Whatever is in the directory, reading does not raise. A file that the disk
refuses to read is unknown (`verified` None), not bad. Only a directory that cannot be read raises.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from supervisor.files import held
from supervisor.records import Record
from workers import contract

_CHUNK_BYTES: Final = 1 << 20
_MANIFEST_MAX_BYTES: Final = 1 << 20  # ours have 1 kB: more is garbage, and must not fill the daemon's memory


class CheckpointInfo(Record):
    """One committed checkpoint. `verified`: None not checked (or unreadable), True whole, False damaged (`error`)."""

    path: Path
    env_steps: int
    token: str
    created_wall_s: float | None
    size_bytes: int | None
    verified: bool | None
    error: str | None = None


class Damaged(Exception):
    """The checkpoint is damaged; the message says how, in a few words."""


def survey(run_dir: Path) -> list[CheckpointInfo]:
    """All committed checkpoints, newest first: by environment steps, then by time. Digests are not checked.

    Raises OSError if their directory cannot be read.
    """
    directory = Path(run_dir) / contract.CHECKPOINTS_DIR
    try:
        names = [item.name for item in directory.iterdir()]
    except FileNotFoundError:
        return []
    found = [look(directory / name) for name in names if contract.parse_checkpoint_name(name)]
    return sorted(found, key=lambda info: (info.env_steps, info.created_wall_s or 0.0, info.path.name), reverse=True)


def verify(info: CheckpointInfo, until_s: float = math.inf) -> CheckpointInfo:
    """Check the digests and return the result. Reads every byte, about 1 GB/s, so not in the deciding thread.

    `until_s` is a time of `time.monotonic`: if it passes before the last byte is read, the result is unknown.
    """
    try:
        for name, (size, digest) in manifest_of(info.path).files.items():
            _check(info.path, name, size, digest, until_s)
    except Damaged as error:
        return replace(info, verified=False, error=str(error))
    except OSError as error:
        return replace(info, verified=None, error=f"can't be read: {error}")
    return replace(info, verified=True, error=None)


def newest_good(run_dir: Path, until_s: float = math.inf) -> CheckpointInfo | None:
    """The newest checkpoint that is whole down to the last bit, or None. As slow as `verify`.

    None also if `until_s` passes first: an older checkpoint is then no answer, because the newest may be whole. Raises
    OSError if the directory cannot be read.
    """
    for info in survey(run_dir):
        checked = verify(info, until_s)
        if checked.verified:
            return checked
        if time.monotonic() > until_s:
            return None
    return None


def quarantine(run_dir: Path, step: int) -> Path | None:
    """Set aside the checkpoint that workers die of: rename it to `.bad`, so that the next attempt uses the previous one.

    A second call (by a daemon that was killed before it recorded the first one) finds nothing and returns None; it does not
    take the next, good checkpoint. Returns the new path; raises OSError when the disk refuses.
    """
    info = next((info for info in survey(run_dir) if info.env_steps == step), None)
    return None if info is None else set_aside(info.path)


def roll_back(run_dir: Path, from_step: int) -> list[Path]:
    """Set aside every checkpoint from this step on, so that the next attempt uses an older one; returns the new paths.

    One checkpoint that looks whole always stays: if no older one does, it is the oldest of these. Raises OSError.
    """
    found = survey(run_dir)
    newer = [info for info in found if info.env_steps >= from_step]
    if not any(info.env_steps < from_step and info.verified is not False for info in found):
        whole = [info for info in newer if info.verified is not False]
        newer = [info for info in newer if info not in whole[-1:]]
    return [set_aside(info.path) for info in newer]


def set_aside(path: Path) -> Path:
    """Rename a checkpoint to `.bad`, durably; return the new path."""
    # A link in place of the directory leads to files that are not the program's: nothing may be renamed there.
    with held(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)) as fd:
        return path.with_name(rename_aside(fd, path.name, path.name))


def rename_aside(directory_fd: int, name: str, target: str) -> str:
    """Rename a file of this directory, durably, to the first free name of `target.bad`, `target.2.bad` ...; return that."""
    for number in itertools.count(1):
        aside = f"{target}{'' if number == 1 else f'.{number}'}{contract.BAD_SUFFIX}"
        try:
            os.stat(aside, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            break
    os.rename(name, aside, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    os.fsync(directory_fd)
    return aside


def look(path: Path) -> CheckpointInfo:
    """Read one checkpoint by its path, without checking its digests. Never raises."""
    env_steps, token = contract.parse_checkpoint_name(path.name) or (0, "")
    try:
        found = manifest_of(path)
    except Damaged as error:
        return CheckpointInfo(path, env_steps, token, None, None, verified=False, error=str(error))
    except OSError as error:
        return CheckpointInfo(path, env_steps, token, None, None, verified=None, error=f"can't be read: {error}")
    size_bytes = sum(size for size, _ in found.files.values())
    return CheckpointInfo(path, env_steps, token, found.created_wall_s, size_bytes, verified=None)


def manifest_of(path: Path) -> contract.Manifest:
    """Read its manifest and check that it belongs to this checkpoint. Raises Damaged, or OSError when the disk refuses."""
    with held(opened(path, contract.MANIFEST_FILE)) as fd:
        text = os.read(fd, _MANIFEST_MAX_BYTES)
    try:
        manifest = contract.Manifest.from_json(text)
    except ValueError as error:
        raise Damaged(str(error)) from error
    if (manifest.env_steps, manifest.token) != contract.parse_checkpoint_name(path.name):
        raise Damaged(f"its manifest is that of step {manifest.env_steps} and token {manifest.token}")
    if not manifest.files:
        raise Damaged("its manifest lists no files")
    return manifest


def _check(path: Path, name: str, size: int, digest: str, until_s: float) -> None:
    found, running = 0, hashlib.blake2b(digest_size=32)
    with held(opened(path, name)) as fd:
        while found <= size and (piece := os.read(fd, _CHUNK_BYTES)):
            running.update(piece)
            found += len(piece)
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), f"{path}/{name}")
    if found != size:
        raise Damaged(f"{name} has {'more' if found > size else 'only'} {found} bytes, expected {size}")
    if running.hexdigest() != digest:
        raise Damaged(f"{name} does not match its digest")


def opened(path: Path, name: str) -> int:
    """Open a file of a checkpoint for reading. Raises Damaged if that is no file of it, OSError when the disk refuses.

    The checkpoint itself may not be a link either: it would lead to files that are not the program's.
    """
    try:
        return contract.open_below(path.parent, f"{path.name}/{name}")
    except FileNotFoundError:
        if path.is_dir():
            raise Damaged(f"{name} is missing") from None
        raise
    except NotADirectoryError:
        if path.is_symlink():
            raise Damaged("it is a link") from None
        wrong = f"the parent of {name} is not a directory" if path.is_dir() else "it is not a directory"
        raise Damaged(wrong) from None
    except ValueError as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{name} is a link") from None
        if error.errno in (errno.EINVAL, errno.ENXIO):
            raise Damaged(f"{name} is not a file") from None
        raise
