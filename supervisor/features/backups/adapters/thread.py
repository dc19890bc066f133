"""The thread that makes backups and rolls back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.store import BackupError, BackupInfo, NothingToBackUp, PartlyRolledBack
from supervisor.adapters.copies.thread import CopyThread, Task
from supervisor.adapters.process.own_checkpoints import Place, ShownBy, places_of
from supervisor.features.backups.messages import (
    Backup,
    BackupChecked,
    BackupMade,
    BackupRestored,
    CheckBackup,
    RestoreBackup,
)
from supervisor.features.backups.rules import ROLLBACK, Kept, superfluous
from supervisor.features.backups.settings import BackupSettings
from supervisor.model.inputs import Input
from supervisor.model.settings import Paths, Settings
from supervisor.ports import Clock, Inbox

log = structlog.get_logger()

BackupCommand = Backup | CheckBackup | RestoreBackup
_KEPT_LABEL = "before rollback"


class Backups(CopyThread[BackupCommand]):
    """Carries out the commands of `decide.py`. Any thread may read `progress`."""

    def __init__(
        self, paths: Paths, settings: Callable[[], Settings], inbox: Inbox, clock: Clock, shown: ShownBy = lambda *_: None
    ) -> None:
        super().__init__("backup", inbox)
        self._paths, self._settings, self._clock, self._shown = paths, settings, clock, shown
        self._root = Path(paths.backups)

    def progress(self) -> dict[str, Any] | None:
        """The current work and its progress. None if there is none."""
        running = self._running
        if running is None:
            return None
        command, task = running
        name = command.name if isinstance(command, Backup) else command.backup
        return {"name": name, "program": task.program, "done_bytes": task.done_bytes, "total_bytes": task.total_bytes}

    def _outcome(self, command: BackupCommand, task: Task) -> Input:
        now_s = self._clock.now_s
        done: dict[str, int | None] = {}
        try:
            match command:
                case Backup(programs=programs):
                    info = backups.make(
                        self._root, command.name, self._run_dirs(programs), label=command.label, cause=command.cause,
                        wall_s=self._clock.wall_s(), task=task, places=self._places(programs),
                    )  # fmt: skip
                    gone = self._prune((command.name, *command.spare))
                    return BackupMade(now_s(), info.name, "", info.steps, info.size_bytes, info.method, gone, info.missed)
                case CheckBackup(programs=programs):
                    info = backups.find(self._root, command.backup, programs)
                    programs = programs or tuple(saved.program for saved in info.programs)
                    task.total_bytes = sum(saved.size_bytes for saved in info.programs if saved.program in programs)
                    message = backups.verify(info, programs, task)
                    return BackupChecked(now_s(), command.kept_as, message, () if message else programs)
                case _:
                    return self._restore(command, task)
        except PartlyRolledBack as error:
            message, done = str(error), error.done
        except BackupError as error:
            message = str(error)
        except Exception as error:
            log.exception("backup_failed", command=type(command).__name__)
            message = f"it stopped at a bug ({type(error).__name__}); see the daemon's log"
        match command:
            case Backup(name=name):
                return BackupMade(now_s(), name, message)
            case CheckBackup(kept_as=kept_as):
                return BackupChecked(now_s(), kept_as, message)
            case RestoreBackup(kept_as=kept_as):
                return BackupRestored(now_s(), kept_as, message, done)

    def _run_dirs(self, programs: tuple[str, ...]) -> dict[str, Path]:
        return {name: Path(self._paths.run_dir(name)) for name in programs}

    def _places(self, programs: tuple[str, ...]) -> dict[str, Place]:
        return places_of(self._settings(), self._paths, programs, self._shown)

    def _restore(self, command: RestoreBackup, task: Task) -> BackupRestored:
        info = backups.find(self._root, command.backup, command.programs)
        run_dirs, kept = self._run_dirs(command.programs), True
        places = self._places(command.programs)

        def keep() -> BackupInfo | None:
            nonlocal kept
            try:
                return backups.make(
                    self._root, command.kept_as, run_dirs, label=f"{_KEPT_LABEL} to {command.backup}", cause=ROLLBACK,
                    wall_s=self._clock.wall_s(), task=task, every=True, places=places,
                )  # fmt: skip
            except NothingToBackUp:
                kept = False
                return None

        steps = backups.restore(info, run_dirs, keep, task, places)
        self._prune((command.kept_as, command.backup))
        return BackupRestored(self._clock.now_s(), command.kept_as, "", steps, kept)

    def _prune(self, spare: tuple[str, ...]) -> tuple[str, ...]:
        """Remove surplus backups. If a disk refuses, that is logged, and no backup fails because of it."""
        known = [Kept(info.name, info.cause, info.created_wall_s) for info in backups.survey(self._root) if not info.error]
        removed = []
        for name in superfluous(known, self._settings().of(BackupSettings).keep, spare):
            try:
                backups.remove(self._root, name)
            except OSError as error:
                log.warning("backup_not_removed", name=name, error=str(error))
            else:
                removed.append(name)
        return tuple(removed)
