"""The table of the files and directories that the daemon relies on (`adapters/foundations.py`, docs/box.md).

To watch another one, add its row here, or call `Foundations.watch` where it is created.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from supervisor import files, trust
from supervisor.adapters.foundations import NO_FILE, Identity, Remembered, Seen, Watched, of_path
from supervisor.adapters.journal import archive, schema, spare
from supervisor.adapters.main_log import MainLog
from supervisor.adapters.process.processes import make_dir
from supervisor.adapters.singleton import Singleton
from supervisor.config.directories import refusal
from supervisor.model.settings import Paths, ProgramSpec, Progress
from supervisor.ports import Probes
from workers.contract import CHECKPOINTS_DIR, FENCE_FILE

_AT_LOGOUT: Final = "the system removes it when you log out, unless you switch lingering on: loginctl enable-linger"
_LEAST_BYTES: Final = 64 * 1024  # room for the records of ten starts


def rows(paths: Paths, lock: Singleton, main_log: MainLog) -> tuple[Watched, ...]:
    """The files and directories that every daemon relies on, from its start to its end."""
    state_dir = os.path.realpath(paths.state_dir)
    whole_state = Remembered(state_dir)
    whole_state.renew()  # now, because at the first check it may already be another directory
    return (
        Watched(
            "state directory", state_dir, whole_state, holds_starts=True,
            check=lambda: unwritable(state_dir, "its file system"),
            consequence="no worker is started and nothing can be recorded; workers that run train on",
            remedy=(
                "make room (df -h, df -i), put it back, or mount its file system again; if the directory that is there now "
                "is the right one, restart extralife"
            ),
        ),
        Watched(
            "lock", paths.lock, lock.identity, restarts=True, prepare=lock.refuse_if_held,
            consequence="a second daemon could be started beside this one",
            remedy="stop the other daemon, if there is one",
        ),
        Watched(
            "main log", main_log.baseFilename, lambda: None, check=main_log.trouble,
            consequence="its lines are only on standard output", remedy="extralifectl history lists the decisions",
        ),
    )  # fmt: skip


def journal_row(paths: Paths, defect: Callable[[], str]) -> Watched:
    """The content of the journal, as the last copy found it. The daemon needs that content only at its next start."""
    return Watched(
        "journal on disk", paths.journal, lambda: None, check=defect,
        consequence="the last good copy of it stays, and all later facts are written in text beside it",
        remedy="restart extralife, which builds a new journal from these",
    )  # fmt: skip


def make_room(paths: Paths) -> None:
    """At the start: put aside what is in the way of the daemon's directories and of SQLite's files. Raises OSError.

    Its other files make room for themselves when they are opened (`files.open_own`).
    """
    journals = (str(folder(Path(paths.journal))) for folder in (archive.folder, spare.folder))
    below = (f"{paths.runtime_dir}/{name}" for name in ("notify", "shims", "beats", "controls"))
    for directory in (paths.programs, paths.backups, paths.offsite, *journals, *below):
        files.make_room(directory, files.DIRECTORY, follow=True)
    schema.make_room(Path(paths.journal))


def unwritable(directory: str, what: str, least_bytes: int = 0) -> str:
    """A clause that says that no file can be created there; empty if one can be. Raises OSError if that is unknown.

    The kernel makes a file system read-only when its disk fails (ext4's `errors=remount-ro`). While there is nothing to
    record, no write would show it.
    """
    try:
        found = os.statvfs(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # missing is another finding
    if found.f_flag & os.ST_RDONLY:
        return f"{what} is mounted read-only"
    if found.f_files and not found.f_favail:  # some file systems count none
        return f"{what} has no free inode"
    return f"{what} is full" if found.f_bavail * found.f_frsize < least_bytes else ""


def runtime_rows(paths: Paths, refuse_if_alive: Callable[[str], None]) -> tuple[Watched, ...]:
    whole, socket, marker = Remembered(paths.runtime_dir), Remembered(paths.socket), Remembered(paths.marker)
    for each in (whole, socket, marker):
        each.renew()
    return (
        Watched(
            "runtime directory", paths.runtime_dir, whole, restarts=True, prepare=lambda: make_trusted(paths.runtime_dir),
            holds_starts=True, consequence="no client can connect and no worker is started; workers that run train on",
            remedy=_AT_LOGOUT if paths.runtime_dir.startswith("/run/user/") else "",
        ),
        Watched(
            "runtime directory's file system", paths.runtime_dir, lambda: None,
            check=lambda: unwritable(paths.runtime_dir, "it", _LEAST_BYTES), holds_starts=True,
            consequence="no worker is started; workers that run train on", remedy="make room there",
        ),
        Watched(
            "control socket", paths.socket, socket, restarts=True, prepare=lambda: refuse_if_alive(paths.socket),
            consequence="no client can connect",
        ),
        Watched("boot marker", paths.marker, marker, restarts=True),
    )  # fmt: skip


def attempt_rows(paths: Paths, probes: Probes, spec: ProgramSpec, attempt: int, token: str) -> Iterator[Watched]:
    """What one running attempt relies on. Its worker saves again once the fence exists again."""
    program, run_dir = spec.name, paths.run_dir(spec.name)
    whole = Remembered(run_dir)
    yield Watched(  # neither this one nor the next is opened yet: a disk may hang
        f"run directory of {program}", run_dir, lambda: whole() or NO_FILE, restarts=True,
        prepare=partial(_refuse_a_link_to_nothing, Path(paths.programs)),
        consequence="its worker cannot save, and its log goes to a removed file until its next start",
    )  # fmt: skip
    if spec.builtin:
        yield Watched(
            f"checkpoints of {program}", f"{run_dir}/{CHECKPOINTS_DIR}", Remembered(f"{run_dir}/{CHECKPOINTS_DIR}"),
            by_others=True, consequence="until its worker can save again, its progress is only in memory",
        )  # fmt: skip
    own = {
        "fence": f"{run_dir}/{FENCE_FILE}",
        "notify socket": paths.notify_socket(program), "shim record": paths.shim_record(program),
        "control record": paths.control(program, attempt),
    }  # fmt: skip
    for what, path in own.items():
        yield Watched(f"{what} of {program}", path, Seen(path), restarts=True)
    for channel in ("stdout", "stderr"):
        place = paths.log_of(spec, channel)
        if place is not None:
            yield log_row(program, channel, place, partial(probes.log_taken, program, token, channel))
    if spec.progress is Progress.BEAT:
        beat, defect = paths.beat(program, attempt), partial(probes.beat_defect, program, token)
        yield Watched(
            f"beat file of {program}", beat, lambda: of_path(beat) or (NO_FILE if defect() else None), defect,
            by_others=True, consequence="until then its log and its CPU time show its progress",
        )  # fmt: skip


def _refuse_a_link_to_nothing(path: Path) -> None:
    """No start could make a directory there. Its target may be on a disk that is not mounted."""
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(errno.ENOENT, f"{path} leads to {path.readlink()}, which is missing")


def log_row(program: str, channel: str, path: str, taken: Callable[[], tuple[int, int] | None]) -> Watched:
    """A log of one attempt. `taken` returns its device and inode once it was taken away under its worker."""

    def expected() -> Identity | None:
        own = taken()
        return None if own is None else Identity(*own, "file")

    return Watched(
        f"{channel} log of {program}", path, expected,
        consequence="its worker goes on writing into the file that was taken away, which nobody shows or rotates",
        remedy=f"use `copytruncate` of logrotate, or only log_max_bytes; then: extralifectl restart {program}",
    )  # fmt: skip


def make_trusted(directory: str) -> None:
    """Check that only this user can change the directory; create it if it is missing. Raises OSError."""
    files.make_room(directory, files.DIRECTORY, follow=True)
    make_dir(directory)
    if why := trust.why_untrusted(directory):
        raise PermissionError(errno.EPERM, f"daemon.runtime_dir: {refusal(directory, why)}")
