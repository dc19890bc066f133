"""`backup`, `backups` and `rollback` as people run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_backend import WALL_S, FakeBackend, program
from running import ctl, too_wide

from supervisor.model.inputs import Verb


@pytest.fixture
def kept(backend: FakeBackend) -> FakeBackend:
    backend.add(program("Pong"), program("Qbert"))
    games = [{"name": "Pong", "steps": 12_300_000, "checkpoints": 1, "size_bytes": 27e6, "results": True}]
    good = {
        "name": "good", "label": "before heavy", "cause": "level", "method": "link", "error": "", "created_wall_s": WALL_S,
        "size_bytes": 27e6, "programs": games,
    }  # fmt: skip
    backend.backed_up = [good, {**good, "name": "bad", "label": "", "cause": "operator"}]
    return backend


def test_a_backup_is_followed_to_its_end(api: Path, kept: FakeBackend) -> None:
    done = ctl("backup", "Pong", "--label", "good so far", socket=api)
    assert (done.returncode, done.stdout) == (0, "backup 20261121-033000 is whole\n")
    assert kept.asked[0][:3] == (Verb.BACKUP, ("Pong",), "good so far")
    failed = ctl("backup", "all", "--label", "bad", socket=api)
    assert (failed.returncode, failed.stdout) == (1, "backup 20261121-033000 failed\n")
    assert kept.asked[1][1] == (), "no names: every program"


def test_a_narrow_terminal(api: Path, kept: FakeBackend) -> None:
    assert too_wide("backups", socket=api) == []


def test_a_rollback_that_is_refused(api: Path, kept: FakeBackend) -> None:
    busy = ctl("rollback", "busy", socket=api)
    assert (busy.returncode, busy.stdout) == (1, "busy: ERROR (a rollback to b is under way; wait for its end)\n")


def test_the_list(api: Path, kept: FakeBackend) -> None:
    checked = ctl("backups", "--check", socket=api)
    assert checked.returncode == 1
    assert "yes, now" in checked.stdout
    assert "DAMAGED" in checked.stdout
    assert "state.json does not match its digest" in checked.stdout
    (only,) = json.loads(ctl("backups", "good", "--json", socket=api).stdout)["backups"]
    assert only["name"] == "good"
    kept.backed_up = []
    assert ctl("backups", socket=api).stdout == "no backups yet: `extralifectl backup` makes one\n"


def test_without_a_daemon_the_disk_tells(tmp_path: Path) -> None:
    from supervisor.adapters.journal.sqlite import Journal

    Journal(str(tmp_path / "journal.sqlite")).close()
    (tmp_path / "backups" / "odd").mkdir(parents=True)
    done = ctl("--state-dir", str(tmp_path), "backups", EXTRALIFE_RUNTIME_DIR=str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "backup.json is missing" in done.stdout
    assert (
        "backup.json is missing"
        in ctl("--state-dir", str(tmp_path), "backups", "--check", EXTRALIFE_RUNTIME_DIR=str(tmp_path / "n")).stdout
    )


def test_a_backup_that_is_not_there_is_no_complete_one(api: Path, kept: FakeBackend) -> None:
    """`backups --check NAME` of a pruned backup said that there are no backups yet, with exit code 0."""
    done = ctl("backups", "--check", "god", socket=api)
    assert (done.returncode, done.stdout, done.stderr) == (1, "god: ERROR (no such backup)\n", "did you mean good?\n")
    done = ctl("backups", "god", "--json", socket=api)
    assert (done.returncode, json.loads(done.stdout)["error"]) == (1, "god: ERROR (no such backup)")
