"""The backups on disk as plain JSON values, for the page of backups (`reports/backups_view.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.store import BackupError

Json = dict[str, Any]


def rows(root: Path) -> list[Json]:
    """All backups, the newest first."""
    return [
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
    ]  # fmt: skip


def check(root: Path, name: str) -> str:
    """Read every byte of a backup. Returns its defects; empty if it has none."""
    try:
        return backups.verify(backups.find(root, name))
    except BackupError as error:
        return str(error)
