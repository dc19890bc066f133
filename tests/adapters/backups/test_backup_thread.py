"""The thread that does what `features/backups/decide.py` orders: every order has one outcome, and what is shown meanwhile and after."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from checkpoints_kit import TOKEN
from copies_kit import NOW_S, WALL_S, Box
from test_own_checkpoints import plain, spec

from supervisor.adapters.copies import store as backups
from supervisor.adapters.copies.thread import Interrupted
from supervisor.adapters.process.checkpoints import survey
from supervisor.adapters.state_files import StateFiles
from supervisor.features.backups.adapters.thread import Backups
from supervisor.features.backups.messages import (
    Backup,
    BackupChecked,
    BackupMade,
    BackupRestored,
    CheckBackup,
    RestoreBackup,
)
from supervisor.features.backups.settings import BackupSettings
from supervisor.model.settings import Settings


class OneAnswer(Box):
    """Two programs with checkpoints, and the thread, which posts nothing but outcomes."""

    def __init__(self, directory):
        super().__init__(directory, Pong=100, Qbert=7)
        self.settings = Settings(self.paths, backup=BackupSettings(keep=1))
        self.thread = Backups(self.paths, lambda: self.settings, self.inbox, self.clock)

    def does(self, command):
        (outcome,) = super().does(command)
        return outcome


@pytest.fixture
def box(tmp_path):
    made = OneAnswer(tmp_path)
    yield made
    made.thread.stop()


def size_of(box, name):
    return next(info.size_bytes for info in backups.survey(box.root) if info.name == name)


def test_one_that_is_made_says_all_about_it_and_the_superfluous_go(box):
    first = box.does(Backup("b1", "Before Friday", "calendar", ("Pong", "Qbert", "Never")))
    info = backups.find(box.root, "b1")
    assert first == BackupMade(NOW_S, "b1", "", {"Pong": 100, "Qbert": 7}, size_of(box, "b1"), info.method, (), {})
    assert (info.label, info.cause, info.created_wall_s) == ("Before Friday", "calendar", WALL_S)
    second = box.does(Backup("b2", "", "calendar", ("Pong",), spare=("b1",)))
    assert second.removed == (), "what is needed is spared"
    (box.root / "bad").mkdir()
    third = box.does(Backup("b3", "", "calendar", ("Pong",)))
    assert sorted(third.removed) == ["b1", "b2"]
    assert [each.name for each in backups.survey(box.root)] == ["b3", "bad"], (
        "one without a list counts for none, and is left"
    )


def test_the_way_there_and_back(box):
    box.does(Backup("b1", "", "operator", ("Pong", "Qbert")))
    box.commit("Pong", 300)
    assert box.does(CheckBackup("b1", (), "kept")) == BackupChecked(NOW_S, "kept", "", ("Pong", "Qbert"))
    assert box.does(CheckBackup("b1", ("Pong",), "kept")) == BackupChecked(NOW_S, "kept", "", ("Pong",))
    restored = box.does(RestoreBackup("b1", ("Pong",), "kept"))
    assert restored == BackupRestored(NOW_S, "kept", "", {"Pong": 100}, kept=True)
    kept = backups.find(box.root, "kept")
    assert (kept.label, kept.cause, kept.created_wall_s) == ("before rollback to b1", "rollback", WALL_S)
    assert [(each.program, [step for _, step, _ in each.checkpoints]) for each in kept.programs] == [("Pong", [300, 100])]
    assert [each.env_steps for each in survey(box.run_dir("Qbert"))] == [7]
    assert [each.name for each in backups.survey(box.root)] == ["kept", "b1"], "neither of them is pruned"


def test_where_there_is_nothing_to_keep_it_goes_back_all_the_same(box):
    box.does(Backup("b1", "", "operator", ("Pong",)))
    pong = box.run_dir("Pong")
    (pong / "checkpoints").rename(pong / "gone")
    assert box.does(RestoreBackup("b1", ("Pong",), "kept")) == BackupRestored(NOW_S, "kept", "", {"Pong": 100}, kept=False)


def test_what_goes_wrong_is_an_outcome_of_each_order(box):
    missing = "there is no backup 'zzz'; `extralifectl backups` lists them"
    assert box.does(CheckBackup("zzz", (), "kept")) == BackupChecked(NOW_S, "kept", missing, ())
    assert box.does(RestoreBackup("zzz", ("Pong",), "kept")) == BackupRestored(NOW_S, "kept", missing, {})
    made = box.does(Backup("b1", "", "operator", ("Never",)))
    assert made == BackupMade(NOW_S, "b1", "none of the programs has a complete checkpoint yet")
    box.does(Backup("b1", "", "operator", ("Pong", "Qbert")))
    next((box.root / "b1" / "programs" / "Pong").rglob("state.json")).unlink()
    wrong = f"Pong, ckpt-100.{TOKEN}: state.json is missing"
    assert box.does(CheckBackup("b1", (), "kept")) == BackupChecked(NOW_S, "kept", wrong, ())
    assert box.does(CheckBackup("b1", ("Qbert",), "kept")) == BackupChecked(NOW_S, "kept", "", ("Qbert",))
    assert box.does(RestoreBackup("b1", ("Pong",), "kept")) == BackupRestored(NOW_S, "kept", wrong, {})
    none = "backup b1 contains nothing of Never"
    assert box.does(RestoreBackup("b1", ("Never",), "kept")) == BackupRestored(NOW_S, "kept", none, {})


def test_what_is_under_way_is_shown_and_left_at_the_end(box, monkeypatch):
    inside, ended = threading.Event(), threading.Event()

    def slow(_root, _name, _dirs, *, task, **_more):
        task.program, task.done_bytes, task.total_bytes = "Pong", 3, 9
        inside.set()
        task.over.wait(30.0)
        ended.set()
        raise Interrupted

    monkeypatch.setattr(backups, "make", slow)
    assert box.thread.progress() is None
    box.thread.perform(Backup("b1", "", "operator", ("Pong",)))
    box.thread.perform(CheckBackup("zzz", (), "kept"))
    assert inside.wait(30.0)
    assert box.thread.progress() == {"name": "b1", "program": "Pong", "done_bytes": 3, "total_bytes": 9}
    assert box.inbox.take(0) is None, "one after the other"
    box.thread.stop()
    assert ended.is_set()
    assert box.thread.progress() is None
    assert box.inbox.take(0) is None, "the next daemon begins it anew"


def test_checkpoints_that_a_script_writes_itself_are_where_its_settings_say(box, tmp_path):
    script = replace(spec(tmp_path / "work", "*.pt"), name="mine")
    box.settings = replace(box.settings, programs=(script,))
    plain(tmp_path / "work" / "step=5.pt")
    made = box.does(Backup("b1", "", "operator", ("mine", "Pong")))
    assert (made.steps, made.missed) == ({"mine": 5, "Pong": 100}, {})
    plain(tmp_path / "work" / "step=6.pt")
    assert box.does(RestoreBackup("b1", ("mine",), "kept")) == BackupRestored(NOW_S, "kept", "", {"mine": 5}, kept=True)
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"step=5.pt", ".step=6.pt.bad"}
    assert backups.find(box.root, "kept").steps == {"mine": 6}


def test_a_damaged_backup_is_on_the_page_without_figures(box):
    box.does(Backup("b1", "Before Friday", "operator", ("Pong",)))
    (box.root / "bad").mkdir()
    shown = StateFiles(SimpleNamespace(backups=box.root), SimpleNamespace())
    (damaged,) = [each for each in shown.backups() if each["name"] == "bad"]
    assert damaged["error"]
    assert (damaged["created_wall_s"], damaged["size_bytes"], damaged["programs"]) == (None, None, [])
    assert shown.check_backup("b1") == ""
    assert shown.check_backup("zzz") == "there is no backup 'zzz'; `extralifectl backups` lists them"
