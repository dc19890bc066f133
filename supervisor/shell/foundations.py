"""The table of the files and directories that the daemon relies on (`adapters/foundations.py`, docs/box.md).

To watch another one, add its row here, or call `Foundations.watch` where it is created.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from supervisor import files, trust
from supervisor.adapters.foundations import Identity, Remembered, Watched, of_path
from supervisor.adapters.host import boot
from supervisor.adapters.journal import archive, schema, spare
from supervisor.adapters.journal.sqlite import Journal
from supervisor.adapters.main_log import MainLog
from supervisor.adapters.process.controls import Controls
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.processes import make_dir
from supervisor.adapters.singleton import Singleton
from supervisor.api.listener import Listener
from supervisor.config.directories import refusal
from supervisor.model.settings import Paths
from supervisor.policy.box.foundations import JOURNAL
from supervisor.ports import Launcher
from workers.contract import CHECKPOINTS_DIR

_AT_LOGOUT: Final = "the system removes it when you log out, unless you switch lingering on: loginctl enable-linger"
_LEAST_BYTES: Final = 64 * 1024  # room for the records of ten starts


def rows(paths: Paths, journal: Journal, lock: Singleton, main_log: MainLog) -> tuple[Watched, ...]:
    """The files and directories that every daemon relies on, from its start to its end."""
    state_dir, journal_file = os.path.realpath(paths.state_dir), os.path.realpath(paths.journal)
    whole_state = Remembered(state_dir)
    whole_state.renew()  # now, because at the first check it may already be another directory
    return (
        Watched(
            "state directory", state_dir, whole_state, holds_starts=True,
            check=lambda: unwritable(state_dir, "its file system"),
            consequence="no worker is started and nothing can be recorded; workers that run train on",
            remedy=(
                "put it back, or mount its file system again; if the directory that is there now is the right one, restart "
                "extralife"
            ),
        ),
        Watched(
            "lock", paths.lock, lock.identity, restore=lock.restore,
            consequence="a second daemon could be started beside this one",
            remedy="stop the other daemon, if there is one",
        ),
        # Somebody's logrotate may do this every day: it needs a line in the log itself, but no alert.
        Watched(
            "main log", main_log.baseFilename, main_log.identity, check=main_log.trouble, restore=main_log.reopen,
            consequence="its lines are only on standard output", remedy="supervisorctl history lists the decisions",
            minor=True,
        ),
        # The deciding thread restores it before it handles any other input: only that thread may use the connection.
        Watched(JOURNAL, journal_file, journal.identity, check=journal.moved, restore=lambda: None),
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
    return f"{what} is full" if found.f_bavail * found.f_frsize < least_bytes else ""


def runtime_rows(
    paths: Paths, listener: Listener, notify_sockets: NotifySockets, launcher: Launcher, controls: Controls,
    this_boot: boot.Boot, group: Callable[[], str],
) -> tuple[Watched, ...]:  # fmt: skip
    """The rows of the runtime directory. Each round restores in this order: first the directory, then its contents."""
    whole, marker = Remembered(paths.runtime_dir), Remembered(paths.marker)
    notify, shims, beats = (Remembered(f"{paths.runtime_dir}/{name}") for name in ("notify", "shims", "beats"))
    for each in (whole, marker):
        each.renew()

    def remake(remembered: Remembered, path: str, *more: Callable[[], None]) -> Callable[[], None]:
        def restore() -> None:
            files.make_room(path, files.DIRECTORY, follow=True)
            make_trusted(path)
            for each in more:
                each()
            remembered.renew()

        return restore

    def mark() -> None:
        boot.leave_marker(Path(paths.marker), this_boot)
        marker.renew()

    def row(name: str, remembered: Remembered, check: Callable[[], str], *more: Callable[[], None]) -> Watched:
        path = f"{paths.runtime_dir}/{name}"
        return Watched(f"runtime directory's {name}", path, remembered, check, remake(remembered, path, *more))

    return (
        Watched(
            "runtime directory", paths.runtime_dir, whole, restore=remake(whole, paths.runtime_dir), holds_starts=True,
            consequence="no client can connect and no worker is started; workers that run train on",
            remedy=_AT_LOGOUT if paths.runtime_dir.startswith("/run/user/") else "",
        ),
        Watched(
            "runtime directory's file system", paths.runtime_dir, lambda: None,
            check=lambda: unwritable(paths.runtime_dir, "it", _LEAST_BYTES), holds_starts=True,
            consequence="no worker is started; workers that run train on", remedy="make room there",
        ),
        Watched(
            "control socket", paths.socket, listener.identity, restore=lambda: listener.restore(group()),
            consequence="no client can connect",
        ),
        row("notify", notify, notify_sockets.missing, notify_sockets.restore),
        row("shims", shims, launcher.unrecorded, launcher.restore_records),
        row("beats", beats, controls.missing, controls.restore),
        Watched("boot marker", paths.marker, marker, restore=mark),
    )  # fmt: skip


def run_dir_rows(program: str, run_dir: str, restore: Callable[[], None], *, saves: bool) -> tuple[Watched, ...]:
    """The run directory of one running attempt, and its checkpoints. Its worker saves again once the fence exists again."""
    whole, saved = Remembered(run_dir), Remembered(f"{run_dir}/{CHECKPOINTS_DIR}")  # not opened yet: a disk may hang

    def again() -> None:
        restore()
        whole.renew()

    def by_the_worker() -> None:
        if not Path(f"{run_dir}/{CHECKPOINTS_DIR}").is_dir():
            raise OSError("its worker has not made them again")
        saved.renew()

    directory = Watched(
        f"run directory of {program}", run_dir, whole, restore=again,
        consequence="its worker cannot save, and its log goes to a removed file until its next start",
    )  # fmt: skip
    checkpoints = Watched(
        f"checkpoints of {program}", f"{run_dir}/{CHECKPOINTS_DIR}", saved, restore=by_the_worker,
        consequence="until its worker can save again, its progress is only in memory",
    )  # fmt: skip
    return (directory, checkpoints) if saves else (directory,)


def log_row(program: str, channel: str, path: str, taken: Callable[[], tuple[int, int] | None]) -> Watched:
    """A log of one attempt. `taken` returns its device and inode once it was taken away under its worker."""

    def expected() -> Identity | None:
        own = taken()
        return None if own is None else Identity(*own, "file")

    return Watched(
        f"{channel} log of {program}", path, expected,
        consequence="its worker goes on writing into the file that was taken away, which nobody shows or rotates",
        remedy=f"use `copytruncate` of logrotate, or only log_max_bytes; then: supervisorctl restart {program}",
    )  # fmt: skip


def beat_row(program: str, path: str, defect: Callable[[], str]) -> Watched:
    """The beat file of one attempt. Its worker creates it again; this row only checks whether it has."""

    def by_the_worker() -> None:
        if why := defect():
            raise OSError(f"{why}, and its worker has not recreated it")

    return Watched(
        f"beat file of {program}", path, lambda: of_path(path) or (_NO_FILE if defect() else None), defect, by_the_worker,
        consequence="until then its log and its CPU time show its progress",
    )  # fmt: skip


_NO_FILE: Final = Identity(0, 0, "file")


def make_trusted(directory: str) -> None:
    """Check that only this user can change the directory; create it if it is missing. Raises OSError."""
    make_dir(directory)
    if why := trust.why_untrusted(directory):
        raise PermissionError(errno.EPERM, f"daemon.runtime_dir: {refusal(directory, why)}")
