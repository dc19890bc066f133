"""Backups as people and programs are shown them: plain JSON values."""

from __future__ import annotations

from typing import Any

from supervisor.model.backup_record import BackupRecord

Json = dict[str, Any]


def backups_view(backups: list[Json], record: BackupRecord, progress: Json | None) -> Json:
    """All backups on disk; what is being made, and how far it is; the way back to one; how the newest ones ended."""
    back = record.rollback
    return {
        "backups": backups,
        "making": [each.name for each in record.making],
        "rollback": None if back is None else {
            "backup": back.backup, "kept_as": back.kept_as, "begun": back.begun, "programs": list(back.programs),
        },
        "progress": progress,
        "ends": [{"name": end.name, "ok": end.ok, "text": end.text} for end in record.ends],
    }  # fmt: skip
