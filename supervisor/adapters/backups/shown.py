"""Backups as people and programs are shown them: plain JSON values. Used by the API, and by `supervisorctl` without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.adapters.backups import store as backups
from supervisor.adapters.backups.store import BackupError
from supervisor.model.backup_record import BackupRecord

Json = dict[str, Any]


def backups_view(root: Path, record: BackupRecord, progress: Json | None) -> Json:
    """All backups on disk, the newest first; what is being made; how the newest ones ended."""
    return {
        "backups": [
            {
                "name": info.name, "label": info.label, "cause": info.cause, "method": info.method, "error": info.error,
                "created_wall_s": None if info.error else info.created_wall_s,
                "size_bytes": None if info.error else info.size_bytes,
                "programs": [
                    {"name": saved.program, "steps": saved.env_steps, "checkpoints": len(saved.checkpoints),
                     "size_bytes": saved.size_bytes, "results": saved.results is not None}
                    for saved in info.programs
                ],
            }
            for info in backups.survey(root)
        ],
        "making": [each.name for each in record.making],
        "rollback": None if record.rollback is None else {
            "backup": record.rollback.backup, "kept_as": record.rollback.kept_as, "begun": record.rollback.begun,
            "programs": list(record.rollback.programs),
        },
        "progress": progress,
        "ends": [{"name": end.name, "ok": end.ok, "text": end.text} for end in record.ends],
    }  # fmt: skip


def check_view(root: Path, name: str) -> Json:
    """Every byte of a backup, read now: what is wrong with it, or nothing."""
    try:
        return {"name": name, "error": backups.verify(backups.find(root, name))}
    except BackupError as error:
        return {"name": name, "error": str(error)}
