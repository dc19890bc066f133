"""Checkpoints of a script: any files that it writes into a directory, made durable and checked like all others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contract import MANIFEST_FILE, TMP_SUFFIX, checked_path, checkpoint_name
from .durable import sync_directory
from .store import AllDamaged, Damaged, Fenced, Store, Unfit, WrongIdentity, free_bytes, pieces_of, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AllDamaged", "Fenced", "Restored", "Saver", "Unfit", "WrongIdentity"]

_FULL_BYTES = 8 << 20  # with less space, any error of a writer counts as a full disk


class _Dropped(Exception):
    """Discard the files of this block."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint that passed every check: its files lie in `path`. `mean_return` is as it was at that time."""

    step: int
    path: Path
    mean_return: float | None = None


class Saver(Store):
    """Saves and finds the checkpoints of one run directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Saver belongs to the process that saves: pickle the Run, or call extralife.init() where it is needed"
        )

    def newest(self, *, change: bool) -> Restored | None:
        """The newest whole one. Without `change` a damaged one is skipped and stays as it is.

        Raises AllDamaged, WrongIdentity, and OSError for a disk error.
        """
        if change:
            return self._newest(self._load)
        for name in self._newest_first():
            with contextlib.suppress(Damaged):
                return self._load(name)
        return None

    def _load(self, name: str) -> Restored:
        path = self._dir / name
        manifest = read_manifest(path)
        if not manifest.files:
            raise Damaged("its manifest lists no files")
        self._check_identity(path, manifest)
        for file, (size, digest) in manifest.files.items():
            if _digest(path, file) != (size, digest):
                raise Damaged(f"{file} does not match its size and digest")
        return Restored(manifest.env_steps, path, manifest.mean_return)

    @contextlib.contextmanager
    def saving(self, step: int, mean_return: float | None, refusal: str) -> Iterator[Path]:
        """A directory to write into. A disk error is reported; an error of the writer's own code is raised.

        It is discarded with a `refusal`, or if this attempt already saved this step. Raises Fenced.
        """
        entered, there = False, (self._dir / checkpoint_name(step, self._client.token)).is_dir()
        try:
            with self._committing(step, mean_return) as (aside, files):
                entered = True
                yield aside
                if refusal or there:
                    raise _Dropped
                self._refuse_lower(step)
                files.update(_durable(aside))
        except Fenced:
            raise
        except _Dropped:
            if refusal:
                print(f"extralife: no checkpoint at step {step}: {refusal}", file=sys.stderr, flush=True)
        except (OSError, MemoryError, Unfit) as error:
            self._fail(step, "was not written", error)
        except Exception as error:
            room = free_bytes(self._dir)
            if room is None or room >= _FULL_BYTES:
                raise
            self._fail(step, "was not written", error)
        else:
            self.failure, self.committed_step = None, step
        if not entered:  # the block cannot be skipped: its writes fail, silently
            with contextlib.suppress(Exception):
                yield self._dir / (checkpoint_name(step, self._client.token) + TMP_SUFFIX)


def _durable(directory: Path) -> dict[str, tuple[int, str]]:
    """Sync every file below it: path -> (size, digest). Raises Unfit if no checkpoint can hold one."""
    found: dict[str, tuple[int, str]] = {}
    for parent, directories, names in os.walk(directory, topdown=False):
        for name in (*names, *directories):
            path = Path(parent, name)
            if path.is_symlink():
                raise Unfit(f"{path.relative_to(directory)} is a link; a checkpoint must hold the file itself")
        for name in names:
            below = str(Path(parent, name).relative_to(directory))
            try:
                found[checked_path(below)] = _digest(directory, below, sync=True)
            except (ValueError, Damaged) as error:
                raise Unfit(str(error)) from None
        if Path(parent) != directory:
            sync_directory(Path(parent))
    if not found:
        raise Unfit("the block wrote no file into the directory")
    if MANIFEST_FILE in found:
        raise Unfit(f"{MANIFEST_FILE} is the name of its manifest; give that file another name")
    return found


def _digest(directory: Path, name: str, *, sync: bool = False) -> tuple[int, str]:
    """(size, digest) of one file. Raises Damaged if it is no file, OSError for a disk error."""
    size, digest = 0, hashlib.blake2b(digest_size=32)
    for piece in pieces_of(directory, name, sync=sync):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()
