"""Backups on disk: make one, list them, verify one, roll back to one, remove one. Their contents: docs/backups.md.

    backups/<name>/backup.json                                  list of contents, with a digest of itself; written last
    backups/<name>/programs/<program>/ckpt-<steps>.<token>/     as in the run directory, with its manifest
    backups/<name>/programs/<program>/results.csv
    backups/<name>/programs/<program>/own/files/                checkpoints that the program wrote itself (`own.py`)

A backup is made like a checkpoint: write everything under `<name>.tmp`, sync, rename, sync the directory. A file is cloned
(FICLONE) where the file system supports it, else linked, else copied. With each method, every byte in the backup is read
and must match the digest in the checkpoint's manifest. Checkpoints never change in place, so a link protects as well as a
copy against everything except a failure of the disk itself. If a program's checkpoints cannot be copied, the backup leaves
that program out and names it: one program's files cost no other its backup. A full disk fails the whole backup.

A rollback may be killed at any point. It must leave either the old state or the wanted state:

1. Verify the backup. Make a backup of the current state. Copy the wanted checkpoints into their final directory, as
   `<name>.tmp`. Up to here, no valid checkpoint has changed.
2. Rename the copies into place, the newest first. Then rename all other checkpoints away, the oldest first. A worker takes
   the newest complete checkpoint, so a single rename decides. It is the one that puts the wanted checkpoint into place, if
   that is newer than all old ones; else it is the one that removes the newest old checkpoint.
3. Replace `results.csv`, and remove the checkpoints that were renamed away.

If the rollback is requested again, each step skips finished work and does the rest.

Why not exchange two directories (RENAME_EXCHANGE): overlays and network file systems lack it, and the way without it
would be the less tested one. Why not a pointer to the chosen checkpoint: it could contradict the directory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.copies import own
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.copies.own import OwnSaved, Waiting
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.durable import sync_directory
from supervisor.adapters.process import checkpoints
from supervisor.adapters.process.checkpoints import CheckpointInfo
from supervisor.adapters.process.own_checkpoints import Place, Unanswered
from supervisor.files import held, open_regular
from supervisor.records import Record
from workers.contract import CHECKPOINTS_DIR, MANIFEST_FILE, TMP_SUFFIX, checked_name, parse_checkpoint_name
from workers.options import nearest

BACKUP_FILE: Final = "backup.json"
PROGRAMS_DIR: Final = "programs"
RESULTS_FILE: Final = "results.csv"
VERSION: Final = 1
_MOST_RESULTS_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_TRIES: Final = 3  # a worker may prune a checkpoint during its copy; the third-newest still stays for minutes
DISK_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # the disk of the backups fails: no program can be saved
_OPEN_AT_ONCE: Final = 64
_METHODS: Final = (own.REFLINK, own.LINK, own.COPY)  # a backup records the last of these that it needed


class BackupError(Exception):
    """The request failed; the message is one clause for a person. No valid checkpoint was changed."""


class NothingToBackUp(BackupError):
    """No program has anything yet that could be copied."""


class _Missed(Exception):
    """The checkpoints of one program cannot be copied."""


class Saved(Record):
    """The part of a backup that belongs to one program: its checkpoints, the newest first."""

    program: str
    checkpoints: tuple[tuple[str, int, int], ...]  # (name, environment steps, bytes)
    results: tuple[int, str] | None = None  # size and digest of its results.csv
    own: OwnSaved | None = None  # a checkpoint that the program wrote itself

    @property
    def env_steps(self) -> int | None:
        """None if the step is unknown: a checkpoint that the program wrote itself may not state it."""
        if self.checkpoints:
            return self.checkpoints[0][1]
        return None if self.own is None else self.own.step

    @property
    def size_bytes(self) -> int:
        own_bytes = 0 if self.own is None else self.own.size_bytes
        return sum(size for _, _, size in self.checkpoints) + (self.results[0] if self.results else 0) + own_bytes


class BackupInfo(Record):
    """One backup. If `error` is not empty, its list of contents cannot be trusted, and no rollback uses it."""

    path: Path
    label: str = ""
    cause: str = ""
    created_wall_s: float = 0.0
    method: str = ""
    programs: tuple[Saved, ...] = ()
    missed: dict[str, str] = field(default_factory=dict)  # program -> why its checkpoints could not be copied
    error: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def steps(self) -> dict[str, int | None]:
        return {each.program: each.env_steps for each in self.programs}

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.programs)


# --- making one -------------------------------------------------------------------------------------------------------


def make(
    root: Path, name: str, run_dirs: dict[str, Path], *, label: str, cause: str, wall_s: float, task: Task,
    every: bool = False, places: Mapping[str, Place | Waiting] | None = None,
) -> BackupInfo:  # fmt: skip
    """Make a verified copy of each program's newest complete checkpoint (`every`: of all complete ones), all or nothing.

    `places` maps programs that write their own checkpoints to the place of these; the newest complete one of each is copied.
    Raises BackupError if no backup was made. If a complete backup with this name exists, it is returned.
    """
    final, aside = root / name, root / (name + TMP_SUFFIX)
    if final.exists():
        known = read(final)
        if known.error:
            raise BackupError(f"a backup of that name exists, but {known.error}")
        return known
    try:
        if not root.is_dir():
            files.make_room(root, files.DIRECTORY, follow=True)
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_directory(root.parent)
        for item in root.glob(f"*{TMP_SUFFIX}"):  # unfinished backups of a killed daemon
            shutil.rmtree(item, ignore_errors=True)
        (aside / PROGRAMS_DIR).mkdir(mode=0o700, parents=True)
        task.total_bytes = sum(_bytes_to_copy(run_dir, every=every) for run_dir in run_dirs.values())
        methods: set[str] = set()
        saved, missed = [], {}
        for program, run_dir in run_dirs.items():
            task.program = program
            place = (places or {}).get(program)
            try:
                each = _save_or_miss(program, run_dir, aside / PROGRAMS_DIR, methods, task, every=every, place=place)
            except _Missed as error:
                missed[program] = str(error)
                continue
            if each is not None:
                saved.append(each)
        if not saved:
            reasons = "; ".join(f"{program}: {why}" for program, why in missed.items())
            raise NothingToBackUp(reasons or "none of the programs has a complete checkpoint yet")
        info = BackupInfo(final, label, cause, wall_s, max(methods, key=_METHODS.index), tuple(saved), missed)
        durable.create(aside / BACKUP_FILE, _to_json(info), 0o644)
        for directory in (aside / PROGRAMS_DIR, aside):
            sync_directory(directory)
        aside.rename(final)
        sync_directory(root)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(aside)
        raise BackupError(_error_text(error)) from error
    except BackupError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return info


def _candidates(run_dir: Path, *, every: bool) -> list[CheckpointInfo]:
    found = [info for info in checkpoints.survey(run_dir) if info.verified is not False]
    return found if every else found[: _TRIES + 3]


def _bytes_to_copy(run_dir: Path, *, every: bool) -> int:
    with contextlib.suppress(OSError):  # `_save` reports it
        return sum(info.size_bytes or 0 for info in _candidates(run_dir, every=every)[: None if every else 1])
    return 0


def _save_or_miss(
    program: str, run_dir: Path, directory: Path, methods: set[str], task: Task, *,
    every: bool, place: Place | Waiting | None,
) -> Saved | None:  # fmt: skip
    """The program's part of a backup. None if there is nothing yet. Raises _Missed; OSError if no program can be saved."""
    target = directory / program
    try:
        checked_name(program)
        saved = _save(program, run_dir, target, methods, task, every=every)
        found = None if place is None else own.save(place, target, task.went_on)
        if isinstance(found, str):
            raise _Missed(f"its own checkpoints cannot be copied; {found}")
        if found is None:
            return saved
        methods |= found[1]
        return replace(saved or Saved(program, ()), own=found[0])
    except (OSError, ValueError, _Missed) as error:
        if not isinstance(error, ValueError):
            shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
            raise
        raise _Missed(_error_text(error)) from error


def _save(program: str, run_dir: Path, target: Path, methods: set[str], task: Task, *, every: bool) -> Saved | None:
    """Copy the newest complete checkpoint, or all. None if there is none yet. Raises _Missed if none can be copied."""
    target.mkdir(mode=0o700)
    wrong: list[str] = []
    saved: list[tuple[str, int, int]] = []
    for _ in range(_TRIES):
        candidates = _candidates(run_dir, every=every)
        for info in candidates:
            if saved and not every:
                break
            try:
                methods.add(_copy_checkpoint(info.path, target / info.path.name, task))
            except (checkpoints.Damaged, OSError) as error:
                if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
                    raise
                wrong.append(f"{info.path.name}: {_error_text(error)}")
                shutil.rmtree(target / info.path.name, ignore_errors=True)
                continue
            saved.append((info.path.name, info.env_steps, info.size_bytes or 0))
        if saved or not candidates:
            break
    if not saved:
        target.rmdir()
        if wrong:
            raise _Missed(f"none of its checkpoints can be copied; {wrong[0]}")
        for info in checkpoints.survey(run_dir):
            if info.error:
                raise _Missed(f"none of its checkpoints is complete; {info.path.name}: {info.error}")
        return None
    results = _copy_results(run_dir / RESULTS_FILE, target / RESULTS_FILE)
    sync_directory(target)
    return Saved(program, tuple(saved), results)


def _copy_checkpoint(source: Path, target: Path, task: Task) -> str:
    """Copy all files of a checkpoint, verified. Returns the method.

    Raises checkpoints.Damaged, also if the checkpoint was just pruned.
    """
    methods = set()
    with contextlib.ExitStack() as stack:
        fds: dict[str, int] = {}
        try:
            manifest = checkpoints.manifest_of(source)
            # Open as many files as allowed before copying: an open file stays readable if the checkpoint is pruned.
            for name in (MANIFEST_FILE, *manifest.files)[:_OPEN_AT_ONCE]:
                fds[name] = checkpoints.opened(source, name)
                stack.callback(os.close, fds[name])
            target.mkdir(mode=0o755)
            for name, (size, digest) in manifest.files.items():
                (target / name).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                with contextlib.ExitStack() as later:
                    fd = fds.get(name)
                    if fd is None:
                        fd = checkpoints.opened(source, name)
                        later.callback(os.close, fd)
                    *found, method = own.copy_file(fd, target / name, task.went_on, link=True)
                    if found != [size, digest]:
                        raise checkpoints.Damaged(f"{name} does not match its digest")
                    methods.add(method)
        except FileNotFoundError as error:
            raise checkpoints.Damaged("it was pruned") from error
        text = os.pread(fds[MANIFEST_FILE], _CHUNK_BYTES, 0)
        durable.create(target / MANIFEST_FILE, text, 0o644)
    for directory, _, _ in os.walk(target, topdown=False):
        sync_directory(Path(directory))
    return max(methods, key=_METHODS.index)


def _copy_results(source: Path, target: Path) -> tuple[int, str] | None:
    """(size, digest) of the copy. None if there are no results, or the path leads to something else."""
    try:
        fd = open_regular(source)
    except OSError:
        return None
    with held(fd):
        if os.fstat(fd).st_size > _MOST_RESULTS_BYTES:
            return None
        size, digest, _ = own.copy_file(fd, target, lambda _: None)
    return size, digest


# --- looking ----------------------------------------------------------------------------------------------------------


def survey(root: Path) -> list[BackupInfo]:
    """All backups, the newest first. Does not check the digests of their contents. Never raises."""
    try:
        names = [item.name for item in root.iterdir() if not item.name.endswith(TMP_SUFFIX)]
    except OSError:
        return []
    found = [read(root / name) for name in names]
    return sorted(found, key=lambda info: (info.created_wall_s, info.name), reverse=True)


def read(path: Path) -> BackupInfo:
    """The contents that a backup lists. Never raises."""
    try:
        body = durable.read_json(path / BACKUP_FILE)
        if body.pop("self_digest") != _digest(body):
            return BackupInfo(path, error="its list does not match its own digest")
        if body["version"] != VERSION:
            return BackupInfo(path, error=f"it was made by another extralife (version {body['version']})")
        return _from_json(path, body)
    except FileNotFoundError:
        return BackupInfo(path, error=f"{BACKUP_FILE} is missing")
    except OSError as error:
        return BackupInfo(path, error=f"it cannot be read: {error.strerror or error}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
        return BackupInfo(path, error="its list is damaged")


def verify(info: BackupInfo, programs: Iterable[str] = (), task: Task | None = None) -> str:
    """The defects of a backup, or of these programs in it. Empty if every bit matches."""
    wanted = set(programs)
    if info.error:
        return info.error
    chosen = (saved for saved in info.programs if not wanted or saved.program in wanted)
    return "; ".join(wrong for saved in chosen if (wrong := _first_defect(info, saved, task)))


def _first_defect(info: BackupInfo, saved: Saved, task: Task | None) -> str:
    for name, _, size in saved.checkpoints:
        checked = checkpoints.verify(checkpoints.look(_inside(info, saved.program) / name))
        if not checked.verified:
            return f"{saved.program}, {name}: {checked.error}"
        if task is not None:
            task.went_on(size)
    if saved.own is not None:
        wrong = own.first_defect(_inside(info, saved.program), saved.own, (lambda _: None) if task is None else task.went_on)
        if wrong:
            return f"{saved.program}, {wrong}"
    if saved.results is None:
        return ""
    results = own.CopiedFile(RESULTS_FILE, *saved.results, 0)
    wrong = own.defect(_inside(info, saved.program), RESULTS_FILE, results, lambda _: None)
    return f"{saved.program}, {RESULTS_FILE}: {wrong}" if wrong else ""


def find(root: Path, name: str, programs: Iterable[str] = ()) -> BackupInfo:
    """The backup of that name, which must contain these programs. Raises BackupError with the nearest name."""
    known = {info.name: info for info in survey(root)}
    if name not in known:
        hint = nearest(name, list(known)) or "; `extralifectl backups` lists them"
        raise BackupError(f"there is no backup {name!r:.80}{hint}")
    info = known[name]
    missing = sorted(set(programs) - {saved.program for saved in info.programs})
    if missing and not info.error:
        raise BackupError(f"backup {name} contains nothing of {', '.join(missing)}")
    return info


def _inside(info: BackupInfo, program: str) -> Path:
    return info.path / PROGRAMS_DIR / program


# --- going back -------------------------------------------------------------------------------------------------------


def restore(
    info: BackupInfo, run_dirs: dict[str, Path], keep: Callable[[], BackupInfo | None], task: Task,
    places: Mapping[str, Place] | None = None,
) -> dict[str, int | None]:  # fmt: skip
    """Put the state of these programs back to the backup. Returns the step of each. None of the programs may be running.

    `keep` makes a backup of the current state and returns None if there is nothing to copy. It is called only after the
    source is verified. Raises BackupError if no valid checkpoint was changed, else PartlyRolledBack.
    """
    wrong = verify(info, run_dirs, task)
    if wrong:
        raise BackupError(wrong)
    chosen = [saved for saved in info.programs if saved.program in run_dirs]
    nowhere = [saved.program for saved in chosen if saved.own is not None and saved.program not in (places or {})]
    if nowhere:
        raise BackupError(f"{', '.join(nowhere)} must have a checkpoint_glob again, which says where its checkpoints were")
    owned = [(saved, saved.own, (places or {})[saved.program]) for saved in chosen if saved.own is not None]
    before = keep()
    kept = {each.program: {name for name, _, _ in each.checkpoints} for each in (before.programs if before else ())}
    aside: list[Path] = []
    try:
        for saved in chosen:
            task.program = saved.program
            _stage(info, saved, run_dirs[saved.program] / CHECKPOINTS_DIR, task, aside)
        for saved, copy, place in owned:
            own.stage(_inside(info, saved.program), copy, place, task.went_on)
    except (OSError, ValueError, checkpoints.Damaged) as error:
        for path in aside:
            shutil.rmtree(path, ignore_errors=True)
        for _, copy, place in owned:
            own.remove_staged(copy, place)
        raise BackupError(_error_text(error)) from error
    done: dict[str, int | None] = {}
    for saved in chosen:
        try:
            if saved.checkpoints:
                _exchange(info, saved, run_dirs[saved.program], kept.get(saved.program, set()))
            for _, copy, place in (each for each in owned if each[0] is saved):
                own.exchange(copy, place)
                KeptCopies().drop(place)
        except (OSError, ValueError, Unanswered) as error:
            raise PartlyRolledBack(f"{saved.program}: {_error_text(error)}", done) from error
        done[saved.program] = saved.env_steps
    return done


class PartlyRolledBack(Exception):
    """The disk failed between two renames. `done` has the programs that were already rolled back."""

    def __init__(self, message: str, done: dict[str, int | None]) -> None:
        super().__init__(message)
        self.done = done


def _stage(info: BackupInfo, saved: Saved, directory: Path, task: Task, aside: list[Path]) -> None:
    """Copy all missing checkpoints next to their final place. A damaged one of the same name is set aside.

    Adds each copy to `aside` before it begins: the caller removes those that an error leaves.
    """
    if not saved.checkpoints:
        return
    if directory.is_symlink():
        raise OSError(errno.ELOOP, "not a directory of the program's own", str(directory))
    directory.mkdir(parents=True, exist_ok=True)
    for name, _, _ in saved.checkpoints:
        if os.path.lexists(directory / name):
            if checkpoints.verify(checkpoints.look(directory / name)).verified:
                continue
            checkpoints.set_aside(directory / name)
        path = directory / (name + TMP_SUFFIX)
        shutil.rmtree(path, ignore_errors=True)
        aside.append(path)
        _copy_checkpoint(_inside(info, saved.program) / name, path, task)


def _exchange(info: BackupInfo, saved: Saved, run_dir: Path, kept: set[str]) -> None:
    """The renames; the module docstring explains their order. `kept`: names in the backup of the previous state."""
    directory = run_dir / CHECKPOINTS_DIR
    names = [name for name, _, _ in saved.checkpoints]
    for name in names:
        if not os.path.lexists(directory / name):
            (directory / (name + TMP_SUFFIX)).rename(directory / name)
            sync_directory(directory)
    for found in reversed(checkpoints.survey(run_dir)):
        if found.path.name in names:
            continue
        if found.path.name in kept:
            away = found.path.with_name(found.path.name + TMP_SUFFIX)
            if os.path.lexists(away):
                shutil.rmtree(away)
            found.path.rename(away)
        else:  # the backup of the previous state lacks it: it stays as `.bad`, because no other copy exists
            checkpoints.set_aside(found.path)
        # Sync each rename by itself: some file systems do not keep the order of renames over a power cut.
        sync_directory(directory)
    _exchange_results(_inside(info, saved.program) / RESULTS_FILE, run_dir / RESULTS_FILE, given=saved.results is not None)
    for item in list(directory.iterdir()):
        if item.name.endswith(TMP_SUFFIX) and parse_checkpoint_name(item.name.removesuffix(TMP_SUFFIX)):
            shutil.rmtree(item, ignore_errors=True)


def _exchange_results(source: Path, target: Path, *, given: bool) -> None:
    """Evaluation results of later steps belong to a discarded learner. They remain in the backup of the previous state."""
    if not given:
        target.unlink(missing_ok=True)
    else:
        aside = target.with_name(target.name + TMP_SUFFIX)
        aside.unlink(missing_ok=True)
        with held(open_regular(source)) as fd:
            own.copy_file(fd, aside, lambda _: None)
        aside.rename(target)
    sync_directory(target.parent)


def only_own(info: BackupInfo, root: Path, name: str) -> BackupInfo | None:
    """Make a backup `name` of the checkpoints that programs in another backup wrote themselves. Moves the files there.

    Returns None if there are none. It is for a copy on another box: only the configuration there says where the checkpoints
    belong, and `rollback` puts them there.
    """
    programs = tuple(replace(saved, checkpoints=(), results=None) for saved in info.programs if saved.own is not None)
    if not programs:
        return None
    aside = root / (name + TMP_SUFFIX)
    for left in (aside, root / name):  # by a restore that was killed
        shutil.rmtree(left, ignore_errors=True)
    for saved in programs:
        target = aside / PROGRAMS_DIR / checked_name(saved.program)
        target.mkdir(mode=0o700, parents=True)
        (_inside(info, saved.program) / own.FOLDER).rename(target / own.FOLDER)
    made = replace(info, path=root / name, label="from the copy", programs=programs, missed={})
    durable.create(aside / BACKUP_FILE, _to_json(made), 0o644)
    sync_directory(aside)
    shutil.rmtree(root / name, ignore_errors=True)  # of a restore of the same copy that stopped halfway
    aside.rename(root / name)
    sync_directory(root)
    return made


# --- removing ---------------------------------------------------------------------------------------------------------


def remove(root: Path, name: str) -> None:
    """Remove a backup from the list in one step, then delete its files."""
    aside = root / (name + TMP_SUFFIX)
    (root / name).rename(aside)
    sync_directory(root)
    shutil.rmtree(aside)


# --- files ------------------------------------------------------------------------------------------------------------


def _to_json(info: BackupInfo) -> bytes:
    body: dict[str, Any] = {
        "version": VERSION, "label": info.label, "cause": info.cause, "created_wall_s": info.created_wall_s,
        "method": info.method,
        "programs": {
            saved.program: {"checkpoints": [list(each) for each in saved.checkpoints], "results": saved.results}
            | ({} if saved.own is None else {"own": saved.own.to_json()})
            for saved in info.programs
        },
        "missed": info.missed,
    }  # fmt: skip
    return json.dumps({**body, "self_digest": _digest(body)}, indent=1, allow_nan=False).encode()


def _from_json(path: Path, body: dict[str, Any]) -> BackupInfo:
    programs = []
    for program, entry in body["programs"].items():
        found = tuple((str(name), int(steps), int(size)) for name, steps, size in entry["checkpoints"])
        written = OwnSaved.from_json(entry["own"]) if "own" in entry else None
        named = all(parse_checkpoint_name(each[0]) for each in found)
        if not (found or written) or checked_name(program).startswith(".") or not named:
            return BackupInfo(path, error="its list names an invalid program or checkpoint")
        results = entry["results"]
        programs.append(Saved(program, found, None if results is None else (int(results[0]), str(results[1])), written))
    missed = {str(program): str(why) for program, why in body.get("missed", {}).items()}
    return BackupInfo(
        path, str(body["label"]), str(body["cause"]), float(body["created_wall_s"]), str(body["method"]),
        tuple(programs), missed,
    )  # fmt: skip


def _digest(body: object) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "the disk is full: make room, or lower [backup] keep"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
