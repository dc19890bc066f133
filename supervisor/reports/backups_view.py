"""The page `backups` as plain JSON values."""

from __future__ import annotations

from typing import Any

from supervisor.model.backup_record import BackupRecord

Json = dict[str, Any]


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
