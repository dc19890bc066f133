"""Copies checkpoints that a program writes itself into a backup (`programs/<program>/own/files/`), and back into place.

They have no manifest, so the backup records the size, digest and times of each copied file. If a file changes during the
copy, the copy starts again. Files are cloned or copied, never linked: a script may overwrite a file that it wrote before,
and a link would change with it.

A rollback removes no file of the script. It sets everything newer than the restored checkpoint aside (`.NAME.bad`), the
newest last. So at every moment a script finds either the old state or the wanted one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from supervisor.adapters import durable
from supervisor.adapters.durable import sync_directory
from supervisor.adapters.process import own_checkpoints, whole_files
from supervisor.adapters.process.own_checkpoints import Budget, Life, Place, Scanner, Unanswered
from supervisor.adapters.process.whole_files import File
from supervisor.as_user import acting_as, as_daemon, other
from supervisor.files import held, open_regular
from supervisor.policy.worker.newest_whole import Candidate
from supervisor.records import Record
from workers import contract

FOLDER: Final = "own"
FILES: Final = f"{FOLDER}/files"
_ALONE: Final = "checkpoint"  # name in FILES of a checkpoint that is a single file, not a directory
_CHUNK_BYTES: Final = 1 << 20
_TRIES: Final = 3
_PAUSE_S: Final = 0.8
REFLINK, LINK, COPY = durable.REFLINK, "link", "copy"
_MOST_FILES: Final = 10_000

ProgressCallback = Callable[[int], None]


class Changed(OSError):
    """A file of the checkpoint changed during the copy."""


class CopiedFile(Record):
    """One copied file. `path` is relative to the checkpoint; it is empty if the checkpoint is this single file."""

    path: str
    size_bytes: int
    digest: str
    written_ns: int


class OwnSaved(Record):
    """The part of a backup that a program wrote itself: its newest complete checkpoint."""

    path: str  # relative to the fixed directory at the start of the program's pattern
    step: int | None
    files: tuple[CopiedFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def to_json(self) -> dict[str, Any]:
        files = [[each.path, each.size_bytes, each.digest, each.written_ns] for each in self.files]
        return {"path": self.path, "step": self.step, "files": files}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> OwnSaved:
        """Raises ValueError, KeyError or TypeError, also for a path that leads out of its directory."""
        files = tuple(
            CopiedFile(contract.checked_path(path) if path else "", int(size), str(digest), int(written_ns))
            for path, size, digest, written_ns in body["files"]
        )
        if not 0 < len(files) <= _MOST_FILES or (len(files) > 1 and not all(each.path for each in files)):
            raise ValueError("its list of files is empty or invalid")
        step = body["step"]
        return cls(contract.checked_path(body["path"]), None if step is None else int(step), files)


# --- making a copy ----------------------------------------------------------------------------------------------------


class Waiting(Record):
    """A checkpoint in the directory of another backup, which is to be put back into its place (`put_back.py`)."""

    directory: Path
    saved: OwnSaved


def save(place: Place | Waiting, target: Path, on_progress: ProgressCallback) -> tuple[OwnSaved, set[str]] | str | None:
    """Copy the newest complete checkpoint. Returns the copy and the methods used; None if there is no checkpoint yet.

    Returns a string with the reason if none can be copied. Raises OSError.
    """
    if isinstance(place, Waiting):
        for each in place.saved.files:  # linked, or copied: nothing changes them
            name = each.path or _ALONE
            copy = target / FILES / name
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with held(open_regular(place.directory / FILES / name)) as fd:
                if copy_file(fd, copy, on_progress, link=True)[:2] != (each.size_bytes, each.digest):
                    return f"{place.directory / FILES / name} does not match its digest"
        return place.saved, {LINK}
    scanner, newest, why = Scanner(), None, ""
    for number in range(_TRIES):
        time.sleep(_PAUSE_S if number else 0.0)  # then a script that saves all the time has closed its file
        try:
            with acting_as(place.user):
                found = scanner.scan(place, Budget(), now_wall_s=time.time(), life=Life())
            if not found.looked:
                return None
            if (newest := found.choice.newest) is not None:
                return copy_checkpoint(place, newest, scanner.known[newest.path].files, target, on_progress)
            why = f"{found.looked[0].path}: {found.looked[0].why}"
        except (Unanswered, PermissionError) as error:
            return str(error)
        except (FileNotFoundError, Changed, ValueError, whole_files.TooMany) as error:
            why = f"{newest.path if newest else place.base} changed while it was copied ({error})"
            shutil.rmtree(target, ignore_errors=True)
    return why


def copy_checkpoint(
    place: Place, newest: Candidate, files: tuple[File, ...], target: Path, on_progress: ProgressCallback, link: bool = False
) -> tuple[OwnSaved, set[str]]:  # fmt: skip
    """Copy it, whose files were whole; `link`: its script replaces them, so links are safe. OSError, ValueError, TooMany."""
    path, copied, methods = newest.path, [], set()
    for file in files:
        copy = target / FILES / (file.path or _ALONE)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with acting_as(place.user):
            source = contract.open_below(place.base, f"{path}/{file.path}" if file.path else path)
        with held(source) as fd:
            size, digest, method = copy_file(fd, copy, on_progress, link=link and _may_link(fd, place))
        os.utime(copy, ns=(file.written_ns, file.written_ns))
        copied.append(CopiedFile(file.path, size, digest, file.written_ns))
        methods.add(method)
    with acting_as(place.user):
        if whole_files.files_of(f"{place.base}/{path}", lambda: None) != files:
            raise Changed("its files differ from those before the copy")
    for directory, _, _ in os.walk(target, topdown=False):
        sync_directory(Path(directory))
    return OwnSaved(path, newest.step, tuple(copied)), methods


def _may_link(fd: int, place: Place) -> bool:
    """Whether it is the user's own file: root could link to any file that this user may read, and then set its times."""
    user = other(place.user)
    return user is None or os.fstat(fd).st_uid == user.uid


def copy_file(source: int, target: Path, on_progress: ProgressCallback, *, link: bool = False) -> tuple[int, str, str]:
    """Clone, link or copy, then read what the target now contains. Returns size, digest and method."""
    method = durable.clone(source, target)
    if link and not method:
        with contextlib.suppress(OSError):  # another file system, or a file of another user
            os.link(f"/proc/self/fd/{source}", target, src_dir_fd=source)  # without a descriptor, link(2) follows no link
            method = LINK
    flags = os.O_RDONLY if method else os.O_RDWR | os.O_CREAT | os.O_EXCL
    with held(os.open(target, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)) as fd:
        size, digest = _digest(fd if method else source, on_progress, None if method else fd)
        os.fsync(fd)
    return size, digest, method or COPY


def _digest(fd: int, on_progress: ProgressCallback, copy: int | None = None) -> tuple[int, str]:
    """Size and digest of a file. Each piece is also written to `copy`."""
    running, size = hashlib.blake2b(digest_size=32), 0
    while piece := os.pread(fd, _CHUNK_BYTES, size):
        running.update(piece)
        if copy is not None:
            durable.write_all(copy, piece)
        size += len(piece)
        on_progress(len(piece))
    return size, running.hexdigest()


# --- verifying --------------------------------------------------------------------------------------------------------


def first_defect(directory: Path, saved: OwnSaved, on_progress: ProgressCallback) -> str:
    """The first defect of a copy in a backup. Empty if every byte matches."""
    for each in saved.files:
        name = each.path or _ALONE
        wrong = defect(directory / FILES, name, each, on_progress)
        if wrong:
            return f"{saved.path}, {name}: {wrong}"
    return ""


def defect(base: str | Path, path: str, expected: CopiedFile, on_progress: ProgressCallback) -> str:
    """The defect of one file, as a clause; empty: every byte matches."""
    try:
        with held(contract.open_below(base, path)) as fd:
            same = _digest(fd, on_progress) == (expected.size_bytes, expected.digest)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", "") or str(error)
    return "" if same else "it does not match its digest"


# --- going back -------------------------------------------------------------------------------------------------------


def has_newer(place: Place, saved: OwnSaved) -> bool:
    """Whether a newer whole checkpoint is in place: of a later step, or without steps written later. Raises Unanswered."""
    with acting_as(place.user):
        newest = Scanner().scan(place, Budget(), now_wall_s=time.time(), life=None).choice.newest
    if newest is None:
        return False
    if newest.step is not None and saved.step is not None:
        return newest.step > saved.step
    return newest.written_wall_s > max(each.written_ns for each in saved.files) / 1e9


def stage(directory: Path, saved: OwnSaved, place: Place, on_progress: ProgressCallback) -> None:
    """Copy the checkpoint next to its final place, as `.NAME.tmp`, unless it is already in place. Changes no existing one.

    Raises OSError, ValueError, after it has removed an unfinished copy: it would take the space of a checkpoint.
    """
    try:
        with acting_as(place.user):
            Path(place.base).mkdir(parents=True, exist_ok=True)
            _stage(directory, saved, place, on_progress)
    except BaseException:
        remove_staged(saved, place)
        raise


def _stage(directory: Path, saved: OwnSaved, place: Place, on_progress: ProgressCallback) -> None:
    fd, name = own_checkpoints.parent_below(place.base, saved.path, make=True)
    with held(fd):
        aside = Path(f"/proc/self/fd/{fd}") / _aside(name)
        _remove(aside)
        if saved.path not in own_checkpoints.noted_of(place).doubts and _is_there(saved, place, on_progress):
            return  # one in doubt would stay so: only another file in its place is whole
        for each in saved.files:
            copy = aside / each.path if each.path else aside
            copy.parent.mkdir(parents=True, exist_ok=True)
            with as_daemon():
                kept = open_regular(directory / FILES / (each.path or _ALONE))
            with held(kept) as source:
                if copy_file(source, copy, on_progress)[:2] != (each.size_bytes, each.digest):
                    raise OSError(f"{name}: the copy does not match the backup")
            copy.chmod(0o644)
            os.utime(copy, ns=(each.written_ns, each.written_ns))
        if os.geteuid() == 0 and other(place.user) is None:  # a script may become another user by itself, and writes over it
            owner = os.fstat(fd)
            for path in (aside, *aside.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        if aside.is_dir():
            for below, _, _ in os.walk(aside, topdown=False):
                sync_directory(Path(below))


def _is_there(saved: OwnSaved, place: Place, on_progress: ProgressCallback) -> bool:
    """Whether identical files are already in place: an interrupted rollback starts again from the beginning."""
    try:
        found = whole_files.files_of(f"{place.base}/{saved.path}", lambda: None)
    except (OSError, whole_files.TooMany):
        return False
    return {each.path for each in found} == {each.path for each in saved.files} and not any(
        defect(place.base, f"{saved.path}/{each.path}" if each.path else saved.path, each, on_progress)
        for each in saved.files
    )


def exchange(saved: OwnSaved, place: Place, most_aside: int = 0) -> None:
    """Move it into place, then set everything newer aside, the newest last. Raises OSError, Unanswered.

    `most_aside`: so many of its name stay aside. A script that saves all the time leaves one at each kill.
    """
    with acting_as(place.user):
        _exchange(saved, place, most_aside)


def _exchange(saved: OwnSaved, place: Place, most_aside: int) -> None:
    fd, name = own_checkpoints.parent_below(place.base, saved.path)
    with held(fd):
        aside = Path(f"/proc/self/fd/{fd}") / _aside(name)
        if os.path.lexists(aside):  # otherwise it was moved into place before the daemon was killed
            with contextlib.suppress(FileNotFoundError):
                own_checkpoints.set_aside(place.base, saved.path)
            os.rename(_aside(name), name, src_dir_fd=fd, dst_dir_fd=fd)
            os.fsync(fd)
            for old in own_checkpoints.asides_of(fd, name)[:-most_aside] if most_aside else ():
                _remove(aside.with_name(old))
    for path in own_checkpoints.newer_than(place, saved.path, Budget()):
        own_checkpoints.set_aside(place.base, path)


def remove_staged(saved: OwnSaved, place: Place) -> None:
    """Remove the copy that `stage` made."""
    with contextlib.suppress(OSError, ValueError), acting_as(place.user):
        fd, name = own_checkpoints.parent_below(place.base, saved.path)
        with held(fd):
            _remove(Path(f"/proc/self/fd/{fd}") / _aside(name))


def _aside(name: str) -> str:
    return f".{name}{contract.TMP_SUFFIX}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
