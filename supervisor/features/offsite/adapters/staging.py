"""The files of a copy, collected in one directory: `offsite/work/copy` below the state directory.

    copy.json                             when, on which box, with which configuration file; the step of each program
    backup.json, programs/<program>/...   checkpoints and results, as in a backup (`adapters/copies/store.py`)
    journal.sqlite, recording.sqlite      consistent snapshots, by SQLite's own backup
    journal-archive/                      older facts
    files/<program>/...                   the other files of its run directory: curves, and files of your own program
    replay/<program>/                     with `with_replay`
    also/<number>/                        directories that `also` names (`code.py`)
    config/extralife.toml, alive, reboot_alerts.log

Checkpoints are linked or cloned and verified by the rules of backups. So collecting takes no space, and a worker may save
and prune meanwhile. The journal comes first: a checkpoint that is newer than the journal is an ordinary resume. A journal
that is newer than its checkpoints would report a loss that never happened. A replay is copied while a worker writes it. Its
rows carry checksums, and a process that opens it in another boot drops those that do not match (`workers/replay.py`).

Every copy uses the same directory, because restic recognizes an unchanged file by its path.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.copies import put_back
from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.own import Waiting
from supervisor.adapters.copies.store import BackupError, NothingToBackUp
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.journal import archive
from supervisor.adapters.journal.schema import copy_database
from supervisor.adapters.process.own_checkpoints import KEPT, Place
from supervisor.features.offsite.adapters import code
from supervisor.model.settings import Paths
from supervisor.records import Record
from workers.contract import (
    ATTEMPTS_DIR,
    BACKUPS_DIR,
    BAD_SUFFIX,
    FENCE_FILE,
    LOCK_FILE,
    REPLAY_DIR,
    TMP_SUFFIX,
    parse_checkpoint_name,
)

COPY_FILE: Final = "copy.json"
VERSION: Final = 1
JOURNAL: Final = "journal.sqlite"
RECORDING: Final = "recording.sqlite"
ARCHIVE: Final = "journal-archive"
FILES: Final = "files"
REPLAY: Final = "replay"
CONFIG: Final = "config/extralife.toml"
SMALL: Final = ("alive", "reboot_alerts.log")
# Names in a run directory that have their own place in the copy, or are of no use on another box.
_LEFT_OUT: Final = frozenset({ATTEMPTS_DIR, BACKUPS_DIR, REPLAY_DIR, LOCK_FILE, FENCE_FILE, KEPT, backups.RESULTS_FILE})
_LOGS: Final = ("stdout.log", "stderr.log")
_MOST_DEEP: Final = 16
_NAME: Final = "copy"


class Collected(Record):
    """The collected copy. `steps`: the step of each program; `missed`: why a program's checkpoints are missing."""

    directory: Path
    steps: dict[str, int | None] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)


def collect(
    paths: Paths, programs: tuple[str, ...], about: dict[str, Any], *, wall_s: float, with_replay: bool, task: Task,
    places: Mapping[str, Place] | None = None, also: tuple[str, ...] = (),
) -> Collected:  # fmt: skip
    """Collect all files of a copy. Raises OSError, sqlite3.Error, BackupError, Interrupted."""
    root = Path(paths.offsite) / "work"
    directory = root / _NAME
    shutil.rmtree(directory, ignore_errors=True)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal, recording = root / JOURNAL, root / RECORDING
    snapshot(Path(paths.journal), journal)
    if Path(paths.recording).exists():
        with contextlib.suppress(sqlite3.Error):  # it holds only curves: a copy without them loses no training
            snapshot(Path(paths.recording), recording)
    steps, missed = _checkpoints(root, paths, programs, wall_s, task, places or {})
    for each in (journal, recording):
        if each.exists():
            each.rename(directory / each.name)
    links = _Links(directory, task)
    links.add(archive.folder(Path(paths.journal)), ARCHIVE)
    for name in programs:
        run_dir = Path(paths.run_dir(name))
        links.add(run_dir, f"{FILES}/{name}", is_left_out=_is_left_out, most_deep=_MOST_DEEP, mode=0o755)
        if with_replay:
            links.add(run_dir / REPLAY_DIR, f"{REPLAY}/{name}")
    missed |= lacking(links.unread) | code.collect(also, directory / code.ALSO)
    for name in SMALL:
        _copy_small(Path(paths.state_dir) / name, directory / name)
    if paths.config_file is not None:
        (directory / CONFIG).parent.mkdir(exist_ok=True)
        _copy_small(Path(os.path.realpath(paths.config_file)), directory / CONFIG)  # the daemon reads it through links, too
    body = {"version": VERSION, "wall_s": wall_s, "programs": steps, "missed": missed, **about}
    body |= {code.ALSO: also} if also else {}
    durable.create(directory / COPY_FILE, json.dumps(body, indent=1, sort_keys=True).encode())
    return Collected(directory, steps, missed)


def clear(paths: Paths) -> None:
    """Remove the links. Otherwise a pruned checkpoint would keep its disk blocks until the next copy."""
    shutil.rmtree(Path(paths.offsite) / "work" / _NAME, ignore_errors=True)


def snapshot(source: Path, target: Path) -> None:
    """A consistent copy of a database that a process may be writing. Raises OSError or sqlite3.Error."""
    target.unlink(missing_ok=True)
    copy_database(source, target)
    target.chmod(0o600)


def _checkpoints(
    root: Path, paths: Paths, programs: tuple[str, ...], wall_s: float, task: Task, places: Mapping[str, Place]
) -> tuple[dict[str, int | None], dict[str, str]]:
    run_dirs, sources = {name: Path(paths.run_dir(name)) for name in programs}, dict[str, Place | Waiting](places)
    for name in programs:
        with contextlib.suppress(BackupError, OSError):  # then its start is refused, which says why
            if (found := put_back.waiting(paths, name)) is not None:
                sources[name] = found
    try:
        info = backups.make(root, _NAME, run_dirs, label="", cause="offsite", wall_s=wall_s, task=task, places=sources)
    except NothingToBackUp as nothing:
        (root / _NAME).mkdir(mode=0o700, exist_ok=True)
        message = str(nothing)
        return {}, {} if "none of the programs" in message else {"every program": message}
    return info.steps, info.missed


@dataclass(slots=True)
class _Links:
    """Links regular files into the copy, or copies them if linking fails. Symbolic links are not followed.

    Writers rename a finished file into place, so a linked file is complete.
    """

    copy: Path
    task: Task
    unread: dict[str, str] = field(default_factory=dict)  # path in the copy -> why it is missing there

    def add(
        self, source: Path, target: str, *, is_left_out: Callable[[str, bool], bool] = lambda _, __: False,
        most_deep: int = 0, depth: int = 0, mode: int = 0o700,
    ) -> None:  # fmt: skip
        """Link the files of a directory, down to `most_deep` levels below it. Raises OSError if the copy's disk fails."""
        self.task.went_on(0)
        with self._noting(target):
            for item in sorted(os.scandir(source), key=lambda each: each.name):
                if item.is_symlink() or is_left_out(item.name, depth == 0):
                    continue
                path = f"{target}/{item.name}"
                if item.is_dir(follow_symlinks=False) and depth < most_deep:
                    self.add(Path(item.path), path, is_left_out=is_left_out, most_deep=most_deep, depth=depth + 1, mode=mode)
                elif item.is_file(follow_symlinks=False):
                    with self._noting(path):
                        (self.copy / target).mkdir(mode=mode, parents=True, exist_ok=True)
                        self._link(Path(item.path), self.copy / path)

    @staticmethod
    def _link(source: Path, target: Path) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(source, target, follow_symlinks=False)
        if not os.access(target, os.R_OK, effective_ids=True):
            target.unlink()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    @contextlib.contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Note an error of one file or directory, so that the others are copied."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):  # rotated away meanwhile
            pass
        except OSError as error:
            if error.errno in backups.DISK_ERRNOS:
                raise
            self.unread[path] = error.strerror or str(error)


def lacking(unread: Mapping[str, str]) -> dict[str, str]:
    """The files that a copy lacks, by program. Raises BackupError for a file without which a copy is of no use.

    Example: {"files/Pong/logs/a": "Permission denied"} becomes {"Pong": "logs/a: Permission denied"}.
    """
    found: dict[str, list[str]] = {}
    for path, why in sorted(unread.items()):
        folder, name, *rest = (*path.split("/", 2), "")
        if folder not in {FILES, REPLAY}:
            raise BackupError(f"{path} cannot be copied: {why}")
        found.setdefault(name, []).append(f"{'/'.join(rest).strip('/') or 'its directory'}: {why}")
    return {name: each[0] + (f" (and {len(each) - 1} more)" if each[1:] else "") for name, each in found.items()}


def _is_left_out(name: str, top: bool) -> bool:
    own = name in _LEFT_OUT or name.startswith(_LOGS)
    return (top and own) or name.endswith((TMP_SUFFIX, BAD_SUFFIX)) or parse_checkpoint_name(name) is not None


def _copy_small(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        durable.create(target, files.read(source, 16 << 20, follow=False))
