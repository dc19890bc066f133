"""Checkpoints that can be trusted: written aside, synced, renamed, verified on load, never silently lost.

One directory a checkpoint, `checkpoints/ckpt-<env steps>.<token>/`, with `tensors.safetensors`, `state.json` and
`manifest.json` (size and digest of the other two, and of itself). It is committed in this order:

    <name>.tmp, in the same directory -> write, hashing what is written -> fsync each file -> manifest, fsync ->
    fsync <name>.tmp -> does the fence still hold? -> rename to <name> -> fsync the parent -> only now prune

A rename without the fsyncs leaves, after a power cut, a zero-length file under the final name (measured on ext4), and
a marker file beside it does not help. Neither `torch.load` nor safetensors notices a flipped bit: hence the digests,
checked over the very bytes that are then parsed. Nothing is ever unpickled.

The fence, the file `fence` in the run directory, names the attempt that may commit; the shim of each attempt writes it. A
worker that comes back after its successor started (frozen for minutes, its shim killed) therefore commits nothing more and
leaves with 77. Example: attempt 3 stands still at step 80,000, attempt 4 resumes and is at 95,000; attempt 3 moves again and
saves: the fence names attempt 4, so the save is not renamed. Trusting "its process was killed" instead is what makes two
writers of one directory.

The training thread only clones its tensors and calls `save`; a thread of its own writes, one save at a time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import safetensors.torch
import torch

from workers.background import begun_or_done
from workers.contract import (
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
from workers.durable import sync_directory

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

TENSORS_FILE: Final = "tensors.safetensors"
STATE_FILE: Final = "state.json"

KEEP_NEWEST: Final = 3
KEEP_HOURS: Final = 24
KEEP_BAD: Final = 5
_HOUR_S: Final = 3600.0
_CHUNK_BYTES: Final = 1 << 20  # between two chunks the interpreter is free for the training thread

# safetensors' names of the types (its file format, "dtype").
_DTYPES: Final = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Fenced(Exception):
    """Another attempt owns the run directory: this one must not write any more."""


class WrongIdentity(Exception):
    """The newest checkpoint is of another game, algorithm or shape; it was left as it is."""


class AllDamaged(Exception):
    """There were checkpoints and none of them is whole. They stay beside, as `.bad`."""


class _Damaged(Exception):
    """One checkpoint failed its check."""


class _Unfit(Exception):
    """This state must not become the newest checkpoint."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that passed every check."""

    env_steps: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]
    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Entry:
    """What the keep rule needs to know of a checkpoint."""

    name: str
    env_steps: int
    created_wall_s: float
    boot_id: str
    mean_return: float | None


@dataclass(frozen=True, slots=True)
class _Job:
    env_steps: int
    tensors: dict[str, torch.Tensor]
    state_text: bytes
    mean_return: float | None
    stall_s: float


def kept(checkpoints: Iterable[Entry], now_wall_s: float) -> set[str]:
    """Names of the checkpoints to keep: the last 3, one an hour for a day, the best, the last of the boot before.

    Called after each commit; what is not kept is pruned. "Last" is by environment steps, then by time. The one of an
    hour is the newest of it, so that it is never pruned while its hour goes on. A checkpoint from the future (the wall
    clock went back) has age 0; not more than 24 hours are kept whatever the clock did. Example: a save every minute
    from 10:00 to 12:00 keeps 11:58, 11:59, 12:00 and 10:59, besides the best one.

    Keeping only the last few would be wrong: one hour of silent divergence, and every one of them is of no use.
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


class Checkpointer:
    """Saves and loads the checkpoints of one run directory, for one attempt.

    `identity` (JSON-able) says of what they are: game, algorithm, network shape, resolution. All methods are for the
    training thread. What goes wrong in the writing thread is reported, not raised, with two exceptions that the next
    call raises: `Fenced`, and errors in our own code.
    """

    def __init__(self, run_dir: Path, client: Client, identity: Mapping[str, Any]) -> None:
        self._run_dir, self._dir = Path(run_dir), Path(run_dir) / CHECKPOINTS_DIR
        self._client = client
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._boot_id = read_boot_id()
        self._thread: threading.Thread | None = None
        self._pending: BaseException | None = None  # for the training thread to raise
        self._reported: str | None = None  # cause of the failure that was reported last
        self._known: dict[str, Entry] = {}
        self._doomed: set[Path] = set()  # renamed to be removed; kept over an error of the disk
        self.bad_count = 0  # set aside by this attempt
        self.committed_step: int | None = None  # newest that this attempt made durable
        self.failure: str | None = None  # why the last save failed; None after one that succeeded
        if not self._dir.is_dir():
            self._dir.mkdir(parents=True, exist_ok=True)
            sync_directory(self._run_dir)
        if client.fence_holds():  # else somebody else's save may be under way
            self._remove_leftovers()

    def is_gone(self) -> bool:
        """Somebody has removed all checkpoints; this attempt may still commit, and the next save makes the directory."""
        return not self._dir.is_dir() and self._client.fence_holds()

    # saving

    def save(
        self,
        env_steps: int,
        tensors: Mapping[str, torch.Tensor],
        state: Mapping[str, Any],
        *,
        mean_return: float | None,
        stall_s: float,
    ) -> bool:
        """Begin to write a checkpoint; False when the one before is still being written.

        `tensors` must be clones that nobody changes any more (any device); `state` is JSON. Raises TypeError for what
        can't be stored, `Fenced` once another attempt owns the directory. A step that this attempt has committed already
        is not written again.
        """
        self._raise_pending()
        if self._thread is not None and self._thread.is_alive():
            return False
        if (self._dir / checkpoint_name(env_steps, self._client.token)).is_dir():
            self.committed_step = env_steps
            return True
        for name, tensor in tensors.items():
            if tensor.dtype not in _DTYPES:
                raise TypeError(f"tensor {name!r} has type {tensor.dtype}, which checkpoints do not hold")
        # Serialised here: a state that is no JSON is an error of the caller, and the caller may go on changing it.
        # NaN is let through for the writer to refuse, because a diverged learner is no error of the program.
        text = json.dumps(state).encode()
        score = mean_return if mean_return is not None and math.isfinite(mean_return) else None
        job = _Job(env_steps, dict(tensors), text, score, stall_s)
        self._thread = begun_or_done("checkpoint", self._write, job)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """True once no save is under way any more (`failure` says how it went); raises `Fenced` like `save`."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        self._raise_pending()
        return True

    def close(self, timeout_s: float = 60.0) -> None:
        """Wait for a save under way. A disk that hangs longer is left behind: an unfinished save harms nothing."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _raise_pending(self) -> None:
        if self._pending is not None:
            raise self._pending

    def _write(self, job: _Job) -> None:
        try:
            self._write_and_prune(job)
        except BaseException as error:  # noqa: BLE001  raised again on the training thread
            self._pending = error

    def _write_and_prune(self, job: _Job) -> None:
        begun_ns = time.perf_counter_ns()
        try:
            self._commit(job)
        except (OSError, MemoryError, _Unfit) as error:
            self._fail(job.env_steps, "was not written", error)
            return
        self.failure, self.committed_step = None, job.env_steps
        self._client.committed(job.env_steps, stall_s=job.stall_s, write_s=(time.perf_counter_ns() - begun_ns) / 1e9)
        try:
            self._prune()
        except OSError as error:
            self._fail(job.env_steps, "is committed, but old ones could not be removed", error)
        else:
            self._reported = None

    def _fail(self, env_steps: int, what: str, error: Exception) -> None:
        """Say it once, not at each interval: a disk may stay full for days."""
        self.failure = f"checkpoint at step {env_steps} {what}: {error}"
        cause = str(error.errno if isinstance(error, OSError) else error)
        if cause != self._reported:
            self._reported = cause
            free = {} if (room := _free_bytes(self._dir)) is None else {"free_bytes": room}
            self._report("checkpoint_failed", error=self.failure, step=env_steps, **free)

    def _commit(self, job: _Job) -> None:
        self._refuse_unfit(job)
        name = checkpoint_name(job.env_steps, self._client.token)
        aside = self._dir / (name + TMP_SUFFIX)
        if aside.exists():
            _remove(aside)
        self._make_place()
        aside.mkdir()
        try:
            files = {
                TENSORS_FILE: _write_file(aside / TENSORS_FILE, _safetensors(job.tensors)),
                STATE_FILE: _write_file(aside / STATE_FILE, [job.state_text]),
            }
            manifest = Manifest(
                program=self._client.program, token=self._client.token, attempt=self._client.attempt,
                boot_id=self._boot_id, env_steps=job.env_steps, created_wall_s=time.time(), identity=self._identity,
                files=files, mean_return=job.mean_return,
            )  # fmt: skip
            _write_file(aside / MANIFEST_FILE, [manifest.to_json().encode()])
            sync_directory(aside)
            if not self._client.fence_holds():
                raise Fenced(f"another attempt owns {self._run_dir}: checkpoint at step {job.env_steps} was not committed")
            aside.rename(self._dir / name)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(aside)
            raise
        sync_directory(self._dir)
        self._known[name] = _entry(name, manifest)

    def _make_place(self) -> None:
        """The directory of checkpoints, again if somebody has removed it.

        Only where the fence says that this attempt may commit. Without its run directory it waits: the daemon makes that
        again with the fence, and a run directory that a worker made by itself could be beside the one that counts.
        """
        if self._dir.is_dir():
            return
        if not self._client.fence_holds():
            raise FileNotFoundError(errno.ENOENT, "its run directory was removed", str(self._run_dir))
        self._dir.mkdir(parents=True, exist_ok=True)
        sync_directory(self._run_dir)

    def _refuse_unfit(self, job: _Job) -> None:
        """Not-finite numbers would push the good checkpoints out one by one; a lower step is a stray attempt's."""
        for name, tensor in job.tensors.items():
            if not _finite(tensor):
                raise _Unfit(f"tensor {name!r} holds numbers that are not finite")
        try:
            json.dumps(json.loads(job.state_text), allow_nan=False)
        except ValueError:
            raise _Unfit("the state holds a number that is not finite") from None
        for name in self._names():
            step = _step_of(name)
            if step > job.env_steps:
                raise _Unfit(f"step {step} is there already, and a lower step never replaces a higher one")

    # pruning

    def _prune(self) -> None:
        pinned = set(_list(self._run_dir / BACKUPS_DIR))
        entries: list[Entry] = []
        names = self._names()
        for name in names:
            try:
                entries.append(self._known.get(name) or _entry(name, _read_manifest(self._dir / name)))
            except _Damaged as error:
                self._set_aside(name, str(error))
        self._known = {entry.name: entry for entry in entries}
        for name in set(self._known) - kept(entries, time.time()) - pinned:
            # Off the list first, in one step: a checkpoint with half of its files would read as damaged.
            aside = self._dir / (name + TMP_SUFFIX)
            (self._dir / name).rename(aside)
            self._doomed.add(aside)
            del self._known[name]
        if self._doomed:
            sync_directory(self._dir)
        for aside in tuple(self._doomed):
            if aside.exists():
                _remove(aside)
            self._doomed.discard(aside)

    def _remove_leftovers(self) -> None:
        for name in _list(self._dir):
            if name.endswith(TMP_SUFFIX) and parse_checkpoint_name(name.removesuffix(TMP_SUFFIX)):
                _remove(self._dir / name)

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
            _remove(path)

    def _report(self, kind: str, **fields: Any) -> None:
        print(f"{kind}: {', '.join(str(value) for value in fields.values())}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):  # the disk that failed the save may fail the report as well
            self._client.report(kind, **fields)

    def _names(self) -> list[str]:
        return [name for name in _list(self._dir) if parse_checkpoint_name(name)]

    def _bad(self) -> list[str]:
        return [name for name in _list(self._dir) if name.endswith(BAD_SUFFIX)]

    # loading

    def load_newest(self) -> Loaded | None:
        """The newest whole checkpoint, or None when there never was one.

        From newest to oldest; a damaged one is renamed `.bad`, reported and passed over. Raises `AllDamaged` when
        nothing whole is left, `WrongIdentity` when the newest whole manifest is of something else, and OSError when
        the disk can't tell (EIO, a directory that vanishes): that says nothing about the checkpoint, so it stays, and
        the attempt should fail and be tried again.
        """
        damaged: list[str] = []
        for name in sorted(self._names(), key=lambda name: (_step_of(name), self._created(name), name), reverse=True):
            try:
                return self._load(name)
            except _Damaged as error:
                damaged.append(f"{name}: {error}")
                self._set_aside(name, str(error))
        if damaged or self._bad():
            detail = "; ".join(damaged) if damaged else "all of them were set aside before"
            raise AllDamaged(f"no checkpoint in {self._dir} is whole ({detail}); they are kept beside as *{BAD_SUFFIX}")
        return None

    def _created(self, name: str) -> float:
        with contextlib.suppress(_Damaged):
            return _read_manifest(self._dir / name).created_wall_s
        return 0.0

    def _load(self, name: str) -> Loaded:
        path = self._dir / name
        manifest = _read_manifest(path)
        if set(manifest.files) != {TENSORS_FILE, STATE_FILE}:
            raise _Damaged(f"its manifest lists {', '.join(sorted(manifest.files)) or 'no files'}")
        self._check_identity(path, manifest)
        contents = {file: _read_whole(path, file, *manifest.files[file]) for file in manifest.files}
        try:
            state = json.loads(contents[STATE_FILE])
            tensors = safetensors.torch.load(contents[TENSORS_FILE])
        except (ValueError, RecursionError, safetensors.SafetensorError) as error:
            raise _Damaged(f"its files can't be read: {error}") from error
        if not isinstance(state, dict):
            raise _Damaged(f"{STATE_FILE} is not an object")
        for key, tensor in tensors.items():
            if not _finite(tensor):
                raise _Damaged(f"tensor {key!r} holds numbers that are not finite")
        return Loaded(manifest.env_steps, tensors, state, path, manifest)

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
    """What the newest checkpoint with a whole manifest says that it is of; empty without one. Nothing is set aside."""
    directory = run_dir / CHECKPOINTS_DIR
    if not directory.is_dir():
        return {}
    names = [name for name in _list(directory) if parse_checkpoint_name(name) is not None]
    manifests = []
    for name in names:
        with contextlib.suppress(_Damaged, OSError):
            manifests.append(_read_manifest(directory / name))
    newest = max(manifests, key=lambda manifest: (manifest.env_steps, manifest.created_wall_s), default=None)
    return {} if newest is None else newest.identity


# --- files ---------------------------------------------------------------------------------------------------------------


def _safetensors(tensors: Mapping[str, torch.Tensor]) -> Iterable[bytes | memoryview]:
    """The file in pieces: length, JSON header, then the tensors' bytes as they lie in memory.

    By hand, because `safetensors.torch.save` copies everything twice and holds the interpreter meanwhile, which is
    time of the training thread. A test reads the outcome with safetensors itself.
    """
    # Wide types first keeps every tensor aligned to its own size.
    order = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in order:
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size],
        }  # fmt: skip
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in order:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            yield flat.view(torch.uint8).numpy().data


def _write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """A new, durable file; returns its size and the digest of what was meant to be written."""
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


def _free_bytes(path: Path) -> int | None:
    """Room for us on that disk, for a person who wonders why a save failed."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize
    return None


def _read_file(directory: Path, name: str) -> bytes:
    """All bytes. `_Damaged` when the file is not there or no file, although its directory is; else OSError."""
    try:
        fd = open_below(directory, name)
    except FileNotFoundError:
        if directory.is_dir():
            raise _Damaged(f"{name} is missing") from None
        raise
    except NotADirectoryError:
        raise _Damaged("it is not a directory") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
            raise _Damaged(f"{name} is not a file") from None
        raise
    try:
        pieces = []
        while piece := os.read(fd, _CHUNK_BYTES):
            pieces.append(piece)
    finally:
        os.close(fd)
    return b"".join(pieces)


def _read_manifest(path: Path) -> Manifest:
    try:
        manifest = Manifest.from_json(_read_file(path, MANIFEST_FILE))
    except ValueError as error:
        raise _Damaged(str(error)) from error
    if (manifest.env_steps, manifest.token) != parse_checkpoint_name(path.name):
        raise _Damaged(f"its manifest is that of {checkpoint_name(manifest.env_steps, manifest.token)}")
    return manifest


def _read_whole(path: Path, name: str, size: int, digest: str) -> bytes:
    data = _read_file(path, name)
    if len(data) != size:
        raise _Damaged(f"{name} has {len(data)} bytes, expected {size}")
    if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
        raise _Damaged(f"{name} does not match its digest")
    return data


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


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


def _remove(path: Path) -> None:
    """A file, or a directory with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        for item in path.iterdir():
            _remove(item)
        path.rmdir()
    else:
        path.unlink()
