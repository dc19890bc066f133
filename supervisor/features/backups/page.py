"""The page `backups` as plain JSON values."""

from __future__ import annotations

from supervisor.features.backups.record import BackupRecord
from supervisor.reports.added import Added
from supervisor.reports.sources import Json, Sources


def backups(sources: Sources, check: str | None) -> Json:
    """All backups. With `check`, the name of one backup: what is wrong with that one."""
    if check is not None:
        return {"name": check, "error": sources.check_backup(check)}
    record = sources.state.of(BackupRecord) if sources.alive else BackupRecord()  # a dead daemon makes none
    return backups_view(sources.backups(), record, sources.backup_progress())


def backups_view(backups: list[Json], record: BackupRecord, progress: Json | None) -> Json:
    """All backups on disk, those in progress, the present rollback, and the outcomes of the newest ones."""
    target = record.rollback
    return {
        "backups": backups,
        "making": [each.name for each in record.making],
        "rollback": None if target is None else {
            "backup": target.backup, "kept_as": target.kept_as, "begun": target.begun, "programs": list(target.programs),
        },
        "progress": progress,
        "ends": [{"name": end.name, "ok": end.ok, "text": end.text} for end in record.ends],
    }  # fmt: skip


def _needs_you(sources: Sources, _: Json) -> list[str]:
    return [f"the newest backup: {end.text}" for end in sources.state.of(BackupRecord).ends[-1:] if not end.ok]


ADDED = Added(needs_you=_needs_you)
