"""Checkpoint directories with any content: written aside, synced, renamed, verified, pruned, set aside.

`workers/checkpoint.py` stores tensors in them, and `extralife-client` the files of any script: it ships this file too,
for Python from 3.8 on. Standard library only. A checkpoint is committed in this order:

    <name>.tmp, in the same directory -> write, hashing what is written -> fsync each file -> manifest, fsync ->
    fsync <name>.tmp -> does the fence still hold? -> rename to <name> -> fsync the parent -> only now prune

A rename without the fsyncs leaves, after a power cut, a zero-length file under the final name (measured on ext4), and
a marker file beside it does not help. No common format notices a flipped bit: hence the digests.

The fence, the file `fence` in the run directory, names the attempt that may commit; the shim of each attempt writes it. A
worker that comes back after its successor started (frozen for minutes, its shim killed) therefore commits nothing more. Only
another token is another attempt: a fence that is missing or cannot be read stops nobody, and is written again.
Example: attempt 3 freezes at step 80,000, attempt 4 resumes and is at 95,000. Attempt 3 wakes up and saves: the fence
names attempt 4, so the save is not renamed. Trusting "its process was killed" instead leads to two writers in one
directory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .contract import (
    BACKUPS_DIR,
    BAD_SUFFIX,
    CHECKPOINTS_DIR,
    MANIFEST_FILE,
    TMP_SUFFIX,
    Client,
    Manifest,
    checkpoint_name,
    open_below,
    parse_checkpoint_name,
    read_boot_id,
)
from .durable import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

KEEP_NEWEST: Final = 3
KEEP_HOURS: Final = 24
KEEP_BAD: Final = 5
_HOUR_S: Final = 3600.0
_CHUNK_BYTES: Final = 1 << 20  # between two chunks the interpreter is free for the training thread

_Found = TypeVar("_Found")


class Fenced(Exception):
    """Another attempt owns the run directory: this one must not write any more."""


class WrongIdentity(Exception):
    """The newest checkpoint has another game, algorithm or shape; it stays unchanged."""


class AllDamaged(Exception):
    """There are checkpoints, but all are damaged. They are kept as `.bad`."""


class Damaged(Exception):
    """One checkpoint failed its check."""


class Unfit(Exception):
    """This state must not become the newest checkpoint."""


@dataclass(frozen=True)
class Entry:
    """The fields of a checkpoint for the keep rule."""

    name: str
    env_steps: int
    created_wall_s: float
    boot_id: str
    mean_return: float | None


def names_to_keep(checkpoints: Iterable[Entry], now_wall_s: float) -> set[str]:
    """Names of the checkpoints to keep: the last 3, one an hour for a day, the best, the last of the previous boot.

    Called after each commit; the others are pruned. "Last" is by environment steps, then by time. Of each hour it keeps
    the newest, which is therefore never pruned during its hour. A checkpoint from the future (the wall clock went
    back) has age 0; at most 24 hours are kept, whatever the clock does. Example: a save every minute
    from 10:00 to 12:00 keeps 11:58, 11:59, 12:00 and 10:59, besides the best one.

    Keeping only the last few would be wrong: after one hour of silent divergence, none of them is of use.
    """
    order = sorted(checkpoints, key=lambda entry: (entry.env_steps, entry.created_wall_s, entry.name), reverse=True)
    names = {entry.name for entry in order[:KEEP_NEWEST]}
    hours: dict[int, str] = {}
    for entry in order:
        if now_wall_s - entry.created_wall_s < KEEP_HOURS * _HOUR_S and len(hours) < KEEP_HOURS:
            hours.setdefault(int(entry.created_wall_s // _HOUR_S), entry.name)
    names.update(hours.values())
    scored = [(entry.mean_return, place) for place, entry in enumerate(reversed(order)) if entry.mean_return is not None]
    if scored:
        names.add(order[len(order) - 1 - max(scored)[1]].name)
    earlier = [entry.name for entry in order if entry.boot_id != order[0].boot_id]
    names.update(earlier[:1])
    return names


class Store:
    """The checkpoints of one run directory, for one attempt. `identity` (JSON-able) describes them.

    Only one thread at a time may use it. Every method may raise OSError.
    """

    def __init__(self, run_dir: Path, client: Client, identity: Mapping[str, Any]) -> None:
        self._run_dir, self._dir = Path(run_dir), Path(run_dir) / CHECKPOINTS_DIR
        self._client = client
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._boot_id = read_boot_id()
        self._reported: str | None = None  # cause of the last reported failure
        self._known: dict[str, Entry] = {}
        self._to_remove: set[Path] = set()  # renamed, to be removed; retried after a disk error
        self.bad_count = 0  # set aside by this attempt
        self.committed_step: int | None = None  # newest durable step of this attempt
        self.failure: str | None = None  # why the last save failed; None after one that succeeded
        if not self._dir.is_dir():
            self._dir.mkdir(parents=True, exist_ok=True)
            sync_directory(self._run_dir)
        if client.fence_holds():  # else another attempt may be saving
            self._remove_leftovers()

    def is_gone(self) -> bool:
        """Whether the directory was removed while this attempt may commit; the next save makes it again."""
        return not self._dir.is_dir() and self._client.owns_run_dir()

    # saving

    @contextlib.contextmanager
    def _committing(self, env_steps: int, mean_return: float | None) -> Iterator[tuple[Path, dict[str, tuple[int, str]]]]:
        """Yields an empty directory and a dict, which the caller fills with its durable files; the block's end commits it.

        Raises `Fenced` when another attempt owns the run directory. After any error it is removed.
        """
        name = checkpoint_name(env_steps, self._client.token)
        aside = self._dir / (name + TMP_SUFFIX)
        if aside.exists():
            remove(aside)
        self._make_place()
        aside.mkdir()
        files: dict[str, tuple[int, str]] = {}
        try:
            yield aside, files
            manifest = Manifest(
                program=self._client.program, token=self._client.token, attempt=self._client.attempt,
                boot_id=self._boot_id, env_steps=env_steps, created_wall_s=time.time(), identity=self._identity,
                files=files, mean_return=mean_return,
            )  # fmt: skip
            write_file(aside / MANIFEST_FILE, [manifest.to_json().encode()])
            sync_directory(aside)
            if not self._client.fence_holds():
                raise Fenced(f"another attempt owns {self._run_dir}: checkpoint at step {env_steps} was not committed")
            aside.rename(self._dir / name)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(aside)
            raise
        sync_directory(self._dir)
        self._known[name] = _entry(name, manifest)

    def _make_place(self) -> None:
        """Make the directory of checkpoints again if it was removed.

        Only if the fence lets this attempt commit. Raises OSError without it: the daemon makes a lost run directory again,
        with the fence. A worker that made its own could write beside the real one.
        """
        if self._dir.is_dir():
            return
        if not self._client.owns_run_dir():
            raise FileNotFoundError(errno.ENOENT, "its run directory was removed", str(self._run_dir))
        self._dir.mkdir(parents=True, exist_ok=True)
        sync_directory(self._run_dir)

    def _refuse_lower(self, env_steps: int) -> None:
        """Only a stray attempt has a lower step."""
        for name in self._names():
            step = _step_of(name)
            if step > env_steps:
                raise Unfit(f"a checkpoint at step {step} already exists, and a lower step never replaces a higher one")

    def _fail(self, env_steps: int, outcome: str, error: Exception) -> None:
        """Report it once, not at each interval: a disk may stay full for days."""
        self.failure = f"checkpoint at step {env_steps} {outcome}: {error}"
        cause = str(error.errno if isinstance(error, OSError) else error)
        if cause != self._reported:
            self._reported = cause
            free = {} if (room := free_bytes(self._dir)) is None else {"free_bytes": room}
            self._report("checkpoint_failed", error=self.failure, step=env_steps, **free)

    # pruning

    def _prune(self) -> None:
        pinned = set(_list(self._run_dir / BACKUPS_DIR))
        entries: list[Entry] = []
        names = self._names()
        for name in names:
            try:
                entries.append(self._known.get(name) or _entry(name, read_manifest(self._dir / name)))
            except Damaged as error:
                self._set_aside(name, str(error))
        self._known = {entry.name: entry for entry in entries}
        for name in set(self._known) - names_to_keep(entries, time.time()) - pinned:
            # Rename first, in one step: a checkpoint with half of its files would read as damaged.
            aside = self._dir / (name + TMP_SUFFIX)
            (self._dir / name).rename(aside)
            self._to_remove.add(aside)
            del self._known[name]
        if self._to_remove:
            sync_directory(self._dir)
        for aside in tuple(self._to_remove):
            if aside.exists():
                remove(aside)
            self._to_remove.discard(aside)

    def tidy(self) -> None:
        """Remove the checkpoints that the keep rule drops."""
        try:
            self._prune()
        except OSError as error:
            self._fail(self.committed_step or 0, "is committed, but old ones could not be removed", error)
        else:
            self._reported = None

    def _remove_leftovers(self) -> None:
        for name in _list(self._dir):
            if name.endswith(TMP_SUFFIX) and parse_checkpoint_name(name[: -len(TMP_SUFFIX)]):
                remove(self._dir / name)

    def _set_aside(self, name: str, error: str) -> None:
        target = self._dir / (name + BAD_SUFFIX)
        number = 1
        while os.path.lexists(target):
            number += 1
            target = self._dir / f"{name}.{number}{BAD_SUFFIX}"
        (self._dir / name).rename(target)
        sync_directory(self._dir)
        self.bad_count += 1
        self._known.pop(name, None)
        self._report("checkpoint_bad", path=str(target), error=error)
        bad = sorted((self._dir / item for item in self._bad()), key=lambda path: os.lstat(path).st_ctime_ns)
        for path in bad[:-KEEP_BAD]:
            remove(path)

    def _report(self, kind: str, **fields: Any) -> None:
        print(f"{kind}: {', '.join(str(value) for value in fields.values())}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):  # the disk that failed the save may fail the report as well
            self._client.report(kind, **fields)

    def _names(self) -> list[str]:
        return [name for name in _list(self._dir) if parse_checkpoint_name(name)]

    def _bad(self) -> list[str]:
        return [name for name in _list(self._dir) if name.endswith(BAD_SUFFIX)]

    # loading

    def _newest(self, load: Callable[[str], _Found]) -> _Found | None:
        """The result of `load` for the newest whole checkpoint, or None when there never was one.

        From newest to oldest; a damaged one (`load` raises `Damaged`) is renamed `.bad`, reported and skipped. Raises
        `AllDamaged` when none is whole, and OSError for a disk error (EIO, a directory that vanishes): that proves
        nothing about the checkpoint, so it stays, and the attempt should fail and be tried again.
        """
        damaged: list[str] = []
        for name in self._newest_first():
            try:
                return load(name)
            except Damaged as error:
                damaged.append(f"{name}: {error}")
                self._set_aside(name, str(error))
        if damaged or self._bad():
            detail = "; ".join(damaged) if damaged else "all of them were set aside before"
            raise AllDamaged(f"no checkpoint in {self._dir} is whole ({detail}); they are kept there as *{BAD_SUFFIX}")
        return None

    def _newest_first(self) -> list[str]:
        return sorted(self._names(), key=lambda name: (_step_of(name), self._created(name), name), reverse=True)

    def _created(self, name: str) -> float:
        with contextlib.suppress(Damaged):
            return read_manifest(self._dir / name).created_wall_s
        return 0.0

    def _check_identity(self, path: Path, manifest: Manifest) -> None:
        theirs, ours = manifest.identity, self._identity
        if theirs == ours:
            return
        keys = [key for key in sorted({*theirs, *ours}) if theirs.get(key) != ours.get(key)]
        was, now = (
            ", ".join(f"{key} {side[key]!r}" if key in side else f"no {key}" for key in keys) for side in (theirs, ours)
        )
        raise WrongIdentity(
            f"checkpoint {path} has {was}, this run has {now}: set it back, or give the run another name or directory"
        )


def newest_identity(run_dir: Path) -> dict[str, Any]:
    """The identity of the newest checkpoint with a whole manifest; empty without one. Sets nothing aside."""
    directory = run_dir / CHECKPOINTS_DIR
    if not directory.is_dir():
        return {}
    names = [name for name in _list(directory) if parse_checkpoint_name(name) is not None]
    manifests = []
    for name in names:
        with contextlib.suppress(Damaged, OSError):
            manifests.append(read_manifest(directory / name))
    newest = max(manifests, key=lambda manifest: (manifest.env_steps, manifest.created_wall_s), default=None)
    return {} if newest is None else newest.identity


# --- files ---------------------------------------------------------------------------------------------------------------


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a new, durable file; returns the size and the digest of the given data."""
    digest, size = hashlib.blake2b(digest_size=32), 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for piece in pieces:
            for start in range(0, len(piece), _CHUNK_BYTES):
                chunk = memoryview(piece)[start : start + _CHUNK_BYTES]
                digest.update(chunk)
                size += len(chunk)
                while len(chunk):
                    chunk = chunk[os.write(fd, chunk) :]
        os.fsync(fd)
        found = os.fstat(fd).st_size
        if found != size:
            raise OSError(errno.EIO, f"has {found} bytes after writing {size}", str(path))
    finally:
        os.close(fd)
    return size, digest.hexdigest()


def free_bytes(path: Path) -> int | None:
    """Free bytes for us on that disk, to explain a failed save."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize
    return None


def pieces_of(directory: Path, name: str, *, sync: bool = False) -> Iterator[bytes]:
    """All bytes of a file. `Damaged` if it is missing or no file, but its directory exists; else OSError."""
    try:
        fd = open_below(directory, name)
    except FileNotFoundError:
        if directory.is_dir():
            raise Damaged(f"{name} is missing") from None
        raise
    except NotADirectoryError:
        raise Damaged("it is not a directory") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
            raise Damaged(f"{name} is not a file") from None
        raise
    try:
        while piece := os.read(fd, _CHUNK_BYTES):
            yield piece
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_file(directory: Path, name: str) -> bytes:
    """All bytes; raises as `pieces_of` does."""
    return b"".join(pieces_of(directory, name))


def read_manifest(path: Path) -> Manifest:
    try:
        manifest = Manifest.from_json(read_file(path, MANIFEST_FILE))
    except ValueError as error:
        raise Damaged(str(error)) from error
    if (manifest.env_steps, manifest.token) != parse_checkpoint_name(path.name):
        raise Damaged(f"its manifest is that of {checkpoint_name(manifest.env_steps, manifest.token)}")
    return manifest


def _entry(name: str, manifest: Manifest) -> Entry:
    return Entry(name, manifest.env_steps, manifest.created_wall_s, manifest.boot_id, manifest.mean_return)


def _step_of(name: str) -> int:
    parsed = parse_checkpoint_name(name)
    return -1 if parsed is None else parsed[0]


def _list(path: Path) -> list[str]:
    """Names in a directory; none when there is no such directory. Any other error is not "none"."""
    try:
        return [item.name for item in path.iterdir()]
    except FileNotFoundError:
        return []


def remove(path: Path) -> None:
    """Remove a file, or a directory and its content."""
    if path.is_dir() and not path.is_symlink():
        for item in path.iterdir():
            remove(item)
        path.rmdir()
    else:
        path.unlink()
