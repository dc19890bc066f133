"""Restores a copy from the repository to a state directory on which a daemon can start.

Everything is read, verified and put into place before the journal. A state directory without a journal has no past. So a
restore that was killed has no effect, and a second call repeats all of it. A directory that already has a journal is
refused.

A restored directory never continues as the box of the copy: it gets a new lease (`lease.py`). With `take_over` the lease is
written into the repository, and the box that held it stops its programs. Without `take_over`, a daemon that starts here is
fenced until `extralifectl offsite take-over`: a user who only inspects a copy must not stop the box that trains.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor.adapters.copies import put_back
from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.store import BackupError, PartlyRolledBack
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.durable import read_json, sync, sync_directory
from supervisor.adapters.journal import schema
from supervisor.features.offsite.adapters import code, hardware, staging
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import COPY_TAG, Restic, ResticError, ResticSnapshot
from supervisor.features.offsite.messages import Claim, Lease, Origin
from supervisor.records import Record
from workers.contract import REPLAY_DIR, checked_name

ASIDE: Final = ".restoring"
CONFIG: Final = "restored.toml"  # in the state directory: the configuration of the box that was copied
_ORIGIN: Final = f"offsite/{staging.COPY_FILE}"  # in the state directory, until the first daemon on it has logged it ...
_LOGGED: Final = "origin.json"  # ... and from then on, beside it

log = structlog.get_logger()


class NotRestored(Exception):
    """The restore failed; the message is one sentence with the reason.

    It placed no journal, so no daemon starts on the directory.
    """


class Overtaken(NotRestored):
    """Another box was faster."""


class Restored(Record):
    """The source of a restored state directory.

    `box`, `wall_s` and `config` (the path of the configuration) are those of the copy.
    """

    snapshot: str
    box: str
    wall_s: float
    steps: dict[str, int | None]
    config: Path | None
    about: dict[str, Any] = field(default_factory=dict)
    own: str = ""  # name of the backup with the scripts' own checkpoints; empty: there is none


def choose(snapshots: list[ResticSnapshot], wanted: str = "latest") -> ResticSnapshot:
    """The copy with that id, or the newest copy of the newest generation. Raises NotRestored."""
    copies = [each for each in snapshots if COPY_TAG in each.tags]
    if not copies:
        raise NotRestored("the repository has no copy of extralife yet")
    if wanted == "latest":
        return max(copies, key=lambda each: each.age_order)
    found = [each for each in copies if each.id.startswith(wanted)]
    if len(found) != 1:
        raise NotRestored(f"the repository has {len(found)} copies with the id {wanted!r:.40}; `offsite list` shows them")
    return found[0]


def restore(
    restic: Restic, snapshot: ResticSnapshot, target: Path, *, take_over: bool, box: str, wall_s: float,
    say: Callable[[str], object] = lambda _: None,
    ready: Callable[[Path | None, dict[str, Any]], object] = lambda _, __: None,
    known: list[ResticSnapshot] | None = None,
) -> Restored:  # fmt: skip
    """Make `target` a state directory with the content of that copy. Raises NotRestored, ResticError or OSError.

    `ready` is called when everything except the lease and the journal is in place. It gets the path of the copied
    configuration and the copy's record of its box. An exception from `ready` ends the restore. `known`: the repository's
    snapshots when `snapshot` was chosen.
    """
    if (target / staging.JOURNAL).exists():
        raise NotRestored(f"{target} holds a journal already; restore into an empty directory")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = target / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    say(f"reading copy {snapshot.id} of box {snapshot.host}")
    restic.restore(snapshot.id, aside)
    say("verifying it")
    about = _about(aside)
    info = _verified(aside)
    _place(aside, target, info)
    if isinstance(also := about.get(code.ALSO), list):
        code.put(also, aside / code.ALSO, say)
    config = target / CONFIG
    ready(config if config.exists() else None, about)
    _made(target / "offsite")
    _move(aside / staging.COPY_FILE, target / _ORIGIN)
    if take_over:
        claim, lease = leases.take_over(restic, target / "offsite", box, wall_s, known)
        if claim is not Claim.HELD:
            raise Overtaken(f"box {lease.box} has taken over at the same moment; only one of you should go on")
    else:
        leases.write(target / "offsite", Lease(uuid.uuid4().hex, 0, box, wall_s, place=restic.place))
    sync(aside / staging.JOURNAL)
    (aside / staging.JOURNAL).rename(target / staging.JOURNAL)  # last: from here on it is a state directory
    sync_directory(target)
    shutil.rmtree(aside, ignore_errors=True)
    return Restored(
        snapshot.id, str(about.get("box") or snapshot.host), float(about["wall_s"]), dict(info.steps) if info else {},
        config if config.exists() else None, about,
        _own_name(info) if info is not None and any(each.own for each in info.programs) else "",
    )  # fmt: skip


def log_origin(state_dir: Path) -> None:
    """Log once, in the first daemon on a restored directory, from which copy it comes and what hardware this box lacks.

    `restore` has printed this too, but perhaps no user was at that terminal.
    """
    path = state_dir / _ORIGIN
    if not path.exists():
        return
    try:
        about = _about(path.parent)
    except NotRestored:
        about = {}
    log.info("goes_on_from_a_copy", box=about.get("box"), copied_wall_s=about.get("wall_s"))
    before = about.get("hardware")
    for each in hardware.missing(before if isinstance(before, dict) else {}, hardware.here()):
        log.warning("this_box_has_less", has=each, than_box=about.get("box"))
    with contextlib.suppress(OSError):
        path.rename(path.with_name(_LOGGED))


def origin(offsite_dir: Path) -> Origin | None:
    """The copy from which this state directory was restored; None: it was not, or an earlier release restored it."""
    with contextlib.suppress(NotRestored):
        about = _about(offsite_dir, staging.COPY_FILE if (offsite_dir / staging.COPY_FILE).exists() else _LOGGED)
        at_s = about.get("at_s")  # earlier releases did not write it
        known_s = float(at_s) if isinstance(at_s, int | float) else None
        return Origin(str(about.get("box") or "?"), str(about.get("token")), known_s)
    return None


def _about(aside: Path, name: str = staging.COPY_FILE) -> dict[str, Any]:
    try:
        body: dict[str, Any] = read_json(aside / name)
        if body["version"] != staging.VERSION:
            raise NotRestored(f"the copy was made by another extralife (version {body['version']})")
        float(body["wall_s"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotRestored(
            "the copy has no list of its contents, or a damaged one; choose another with --snapshot"
        ) from error
    return body


def _verified(aside: Path) -> backups.BackupInfo | None:
    """The copy's checkpoints, each byte verified by its digest, and its journal; None if the copy has no checkpoints."""
    info = backups.read(aside) if (aside / backups.BACKUP_FILE).exists() else None
    wrong = "" if info is None else backups.verify(info)
    if wrong:
        raise NotRestored(f"the copy is damaged: {wrong}; choose another with --snapshot")
    try:
        with contextlib.closing(schema.opened(aside / staging.JOURNAL)) as db:
            wrong = schema.defect(db)
    except sqlite3.Error as error:
        wrong = str(error)
    if wrong:
        raise NotRestored(f"the journal in the copy is damaged ({wrong}); choose another with --snapshot")
    return info


def _place(aside: Path, target: Path, info: backups.BackupInfo | None) -> None:
    if info is not None:
        kept = backups.only_own(info, _made(target / "backups"), _own_name(info))
        if kept is not None:
            put_back.note(_made(target / "offsite"), kept.name, kept.steps)
        info = replace(info, programs=tuple(replace(each, own=None) for each in info.programs if each.checkpoints))
        run_dirs = {each.program: target / "programs" / checked_name(each.program) for each in info.programs}
        for run_dir in run_dirs.values():
            run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            backups.restore(info, run_dirs, lambda: None, Task())
        except (BackupError, PartlyRolledBack) as error:
            raise NotRestored(f"the checkpoints could not be put into place: {error}") from error
    for each in _entries(aside / staging.REPLAY):
        _move(each, target / "programs" / checked_name(each.name) / REPLAY_DIR)
    for each in _entries(aside / staging.FILES):
        _merge(each, target / "programs" / checked_name(each.name))
    _move(aside / staging.ARCHIVE, target / staging.ARCHIVE)
    for name in (staging.RECORDING, *staging.SMALL):
        _move(aside / name, target / name)
    _move(aside / staging.CONFIG, target / CONFIG)


def _own_name(info: backups.BackupInfo) -> str:
    return f"copy-{info.created_wall_s:.0f}"


def _made(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _merge(source: Path, target: Path) -> None:
    """Move the files of a directory into another one that has other files."""
    target.mkdir(mode=0o755, parents=True, exist_ok=True)
    for each in _entries(source):
        if each.is_dir() and not each.is_symlink():
            _merge(each, target / each.name)
        else:
            each.rename(target / each.name)


def _move(source: Path, target: Path) -> None:
    """Move a file or directory, if it exists. It replaces what an earlier attempt left."""
    if not source.exists():
        return
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def try_out(restic: Restic, directory: Path, *, box: str) -> str:
    """Test the repository: write one small file, read it back, remove it. `directory` must be empty.

    Returns the reason of a failure, or an empty string.
    """
    source, target = directory / "source", directory / "target"
    source.mkdir()
    text = uuid.uuid4().hex
    (source / "probe").write_text(text, encoding="utf-8")
    try:
        summary, _ = restic.copy(source, host=box, tags=("extralife-probe",))
        restic.restore(str(summary["snapshot_id"]), target)
        restic.remove(str(summary["snapshot_id"]))
        if (target / "probe").read_text(encoding="utf-8") != text:
            return "the file read back differs from the file written"
    except ResticError as error:
        return str(error)
    except OSError as error:
        return f"the file that was written cannot be read back: {error.strerror or error}"
    return ""
