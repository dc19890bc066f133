"""The inputs and commands of backups."""

from __future__ import annotations

from dataclasses import field

from supervisor.model.commands import Command
from supervisor.model.inputs import Input


class BackupDue(Input):
    """The newest time of the backup calendar that has passed (`rules.py`)."""

    due_wall_s: float


class BackupMade(Input):
    """The result of `commands.Backup`. With an `error` there is no backup."""

    name: str
    error: str = ""
    steps: dict[str, int | None] = field(default_factory=dict)
    size_bytes: int = 0
    method: str = ""
    removed: tuple[str, ...] = ()
    missed: dict[str, str] = field(default_factory=dict)  # programs that could not be saved, and why


class BackupChecked(Input):
    """The result of `commands.CheckBackup`: the programs that can be restored from the backup, or why none can."""

    kept_as: str
    error: str = ""
    programs: tuple[str, ...] = ()


class BackupRestored(Input):
    """The result of `commands.RestoreBackup`. With an `error`, `steps` has the programs that were restored before it."""

    kept_as: str
    error: str = ""
    steps: dict[str, int | None] = field(default_factory=dict)
    kept: bool = False  # there were checkpoints to back up before the restore


class Backup(Command):
    """Copy the newest whole checkpoint of each of these programs. Outcome: BackupMade. `spare`: backups not to remove."""

    name: str
    label: str
    cause: str
    programs: tuple[str, ...]
    spare: tuple[str, ...] = ()


class CheckBackup(Command):
    """Verify the checkpoints of these programs in a backup (no names: all programs). Outcome: BackupChecked."""

    backup: str
    programs: tuple[str, ...]
    kept_as: str


class RestoreBackup(Command):
    """Back up the present checkpoints of these programs, then restore those of `backup`. Outcome: BackupRestored.

    None of the programs runs meanwhile. If the command is repeated after a crash, it finishes the interrupted work.
    """

    backup: str
    programs: tuple[str, ...]
    kept_as: str
