"""The thread that makes copies: what each command asks of the repository, its whole outcome, and what ends it."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from copies_kit import NOW_S, WALL_S, Box
from leaks import open_files
from structlog.testing import capture_logs
from test_offsite_files import database
from test_offsite_leases import Repository, of_lease
from test_own_checkpoints import plain, spec
from tools import PATIENCE

from supervisor.adapters.copies.thread import Interrupted, Task
from supervisor.features.offsite.adapters import hardware, staging, thread
from supervisor.features.offsite.adapters.restic import Restic, ResticError, ResticSnapshot
from supervisor.features.offsite.adapters.thread import Offsite
from supervisor.features.offsite.messages import (
    Claim,
    Lease,
    LeaseFound,
    OffsiteCopy,
    OffsiteDone,
    OffsiteTakeOver,
    OffsiteTend,
)
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.settings import Settings

SUMMARY = {"message_type": "summary", "snapshot_id": "abcdef012345", "total_bytes_processed": 900, "data_added": 70}
FOREIGN = (
    "the repository belongs to box bob, and this box never held it; name another repository, or "
    "`extralifectl offsite take-over`"
)


class Asked(Repository):
    """Notes what it is asked, and does what `doing` says meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[object] = []
        self.calls: list[object] = []
        self.about: dict[str, object] = {}
        self.summary: dict[str, object] = dict(SUMMARY)
        self.unread: dict[str, str] = {}
        self.doing: Callable[[], object] = lambda: None
        self.nice = 0

    def __call__(self, rules: OffsiteSettings, cache: Path, *, over: threading.Event, at_terminal: bool) -> Restic:
        self.given = [rules, cache, over, at_terminal]
        return self

    def copy(  # type: ignore[override]
        self, directory: Path, *, host: str, tags: tuple[str, ...]
    ) -> tuple[dict[str, object], dict[str, str]]:  # fmt: skip
        self.about = json.loads((directory / "copy.json").read_text())
        self.calls.append((str(directory), host, tags, sorted(path.name for path in directory.iterdir())))
        self.nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.doing()
        return self.summary, self.unread

    def forget(self, programs: Iterable[str]) -> None:
        self.calls.append(("forget", *programs))
        self.doing()

    def check(self) -> None:
        self.calls.append("check")
        self.doing()


class AdasBox(Box):
    def __init__(self, directory: Path, repository: Asked) -> None:
        super().__init__(directory, Pong=100)
        self.repository = repository
        self.settings = Settings(self.paths, offsite=OffsiteSettings(repository="/r", timeout_s=80.0))
        database(Path(self.paths.journal), "fact")
        self.thread = Offsite(self.paths, lambda: self.settings, self.inbox, self.clock, "9.9", lambda: "ada")


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(thread, "Restic", made)
    monkeypatch.setattr(hardware, "here", lambda: {"cores": 2})
    return made


@pytest.fixture
def box(tmp_path: Path, repository: Asked) -> Iterator[AdasBox]:
    made = AdasBox(tmp_path, repository)
    yield made
    made.thread.stop()


def copy(cause: str = "period", **more: object) -> OffsiteCopy:
    given: dict[str, object] = {"programs": ("Pong",), "limit_s": 60.0, "token": "", "generation": 0, "place": ""}
    return OffsiteCopy(cause, **{**given, **more})  # type: ignore[arg-type]


# --- copies --------------------------------------------------------------------------------------------------------------


def test_all_of_a_copy_and_of_its_outcome(box: AdasBox) -> None:
    Path(str(box.paths.config_file)).touch()
    before = open_files()
    found, done = box.does(copy(then="900"))
    assert isinstance(found, LeaseFound)
    lease = found.lease
    assert found == LeaseFound(NOW_S, Claim.HELD, Lease(lease.token, 1, "ada", WALL_S, "l0", box.repository.place))
    assert isinstance(done, OffsiteDone)
    assert 0.0 < done.took_s < 30.0 * PATIENCE
    assert replace(done, took_s=0.0) == OffsiteDone(
        NOW_S, "copy", "period", "", "abcdef01", NOW_S, WALL_S, {"Pong": 100}, 900, 70, 0.0, {}, then="900"
    )
    directory = f"{box.paths.offsite}/work/copy"
    names = ["backup.json", "config", "copy.json", "journal.sqlite", "programs"]
    assert box.repository.calls == [
        (directory, "ada", ("extralife", "generation=1", "number=1", "cause=period", "then=900", "step=Pong:100"), names)
    ]
    assert box.repository.about == {
        "version": 1, "wall_s": WALL_S, "programs": {"Pong": 100}, "missed": {}, "box": "ada", "generation": 1,
        "token": lease.token, "extralife": "9.9", "state_dir": box.paths.state_dir, "config_file": box.paths.config_file,
        "cause": "period", "hardware": {"cores": 2}, "at_s": NOW_S,
    }  # fmt: skip
    assert not Path(directory).exists(), "a pruned checkpoint would keep its disk blocks"
    assert (box.repository.given[0], box.repository.given[3]) == (box.settings.offsite, False)
    assert box.repository.nice >= 10
    assert open_files() <= before


@pytest.mark.parametrize("wanted", [True, False])
def test_a_copy_has_what_its_settings_say(box: AdasBox, tmp_path: Path, wanted: bool) -> None:
    script = replace(spec(tmp_path / "work", "*.pt"), name="mine")
    plain(tmp_path / "work" / "step=5.pt")
    replay = box.run_dir("Pong") / "replay"
    replay.mkdir()
    (replay / "rows").touch()
    box.settings = replace(box.settings, programs=(script,), offsite=OffsiteSettings(repository="/r", with_replay=wanted))
    done = box.does(copy(programs=("Pong", "mine", "Never")))[-1]
    assert isinstance(done, OffsiteDone)
    assert (done.steps, done.missed) == ({"Pong": 100, "mine": 5}, {})
    ((_, _, _, names),) = box.repository.calls
    assert ("replay" in names) is wanted


def test_what_is_missed_is_in_the_outcome(box: AdasBox) -> None:
    next(box.run_dir("Pong").rglob("state.json")).unlink()
    done = box.does(copy())[-1]
    assert isinstance(done, OffsiteDone)
    assert done.steps == {}
    assert list(done.missed) == ["every program"]
    box.repository.unread = {"files/Pong/a/b": "Permission denied", "files/Pong/c": "x", "replay/mine/d": "lost"}
    done = box.does(copy())[-1]
    assert isinstance(done, OffsiteDone)
    assert done.missed["Pong"] == "a/b: Permission denied (and 1 more)"
    assert done.missed["mine"] == "d: lost"
    box.repository.unread = {"journal.sqlite": "Input/output error"}
    done = box.does(copy())[-1]
    assert isinstance(done, OffsiteDone)
    assert done.error == "journal.sqlite cannot be copied: Input/output error", "without it a copy is of no use"


def test_each_copy_counts_on_from_the_newest_one_whatever_the_clocks_say(box: AdasBox) -> None:
    box.repository.kept = [of_lease("t", 2), ResticSnapshot("ahead", 9e9, "bob", ("extralife", "generation=1", "number=7"))]
    box.does(copy(token="t", generation=2, place=box.repository.place))
    assert "number=8" in box.repository.calls[0][2]  # type: ignore[index]


@pytest.mark.parametrize(
    ("known", "claim", "error"),
    [
        ({}, Claim.FOREIGN, FOREIGN),
        ({"token": "t", "generation": 2}, Claim.HELD, ""),
        ({"token": "x", "generation": 2}, Claim.LOST, FOREIGN),
    ],
)
@pytest.mark.parametrize("look_only", [True, False])
def test_only_the_holder_copies_and_a_look_copies_nothing(
    box: AdasBox, known: dict[str, object], claim: Claim, error: str, look_only: bool
) -> None:
    box.repository.kept = [of_lease("t", 2)]
    found, done = box.does(copy("start", look_only=look_only, **{"place": box.repository.place, **known}))
    assert found == LeaseFound(NOW_S, claim, Lease("t", 2, "bob", 3.0, "l", box.repository.place))
    if look_only or error:
        assert done == OffsiteDone(NOW_S, "look" if look_only else "copy", "start", error)
        assert box.repository.calls == []
    else:
        assert isinstance(done, OffsiteDone)
        assert done.snapshot == "abcdef01"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ResticError("restic backup: no key"), "restic backup: no key"),
        (OSError(28, "No space left on device"), "the files could not be collected: [Errno 28] No space left on device"),
        (sqlite3.OperationalError("locked"), "the files could not be collected: locked"),
        (ZeroDivisionError(), "it stopped at a bug (ZeroDivisionError); see the daemon's log"),
    ],
)  # fmt: skip
def test_a_failed_copy_is_an_outcome_and_leaves_no_files(box: AdasBox, error: Exception, told: str) -> None:
    def fails() -> None:
        raise error

    box.repository.doing = fails
    with capture_logs() as logged:
        done = box.does(copy("operator"))[-1]
    assert done == OffsiteDone(NOW_S, "copy", "operator", told)
    assert logged[-1] == {"event": "offsite_failed", "what": "copy", "error": told, "log_level": "warning"}
    assert list(Path(box.paths.offsite, "work").iterdir()) == []


# --- other tasks -----------------------------------------------------------------------------------------------------------


def test_the_outcome_of_each_other_task(box: AdasBox) -> None:
    box.repository.kept = [of_lease("t", 4)]
    found, done = box.does(OffsiteTakeOver())
    assert isinstance(found, LeaseFound)
    lease = Lease(found.lease.token, 5, "ada", WALL_S, "l1", box.repository.place)
    assert (found, done) == (LeaseFound(NOW_S, Claim.HELD, lease), OffsiteDone(NOW_S, "take-over"))
    assert box.does(OffsiteTend("forget", 5.0)) == [OffsiteDone(NOW_S, "forget", due_wall_s=5.0)]
    assert box.does(OffsiteTend("check")) == [OffsiteDone(NOW_S, "check")]
    assert box.repository.calls == [("forget",), "check"]


# --- what ends a task --------------------------------------------------------------------------------------------------------


class Held:
    """A task of the repository that lasts until it is interrupted."""

    def __init__(self, box: AdasBox) -> None:
        self.box, self.begun = box, threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        over = self.box.repository.given[2]
        assert isinstance(over, threading.Event)
        assert over.wait(30.0 * PATIENCE)
        raise Interrupted


def test_an_urgent_copy_ends_the_running_task_and_any_other_waits(box: AdasBox) -> None:
    held = Held(box)
    box.repository.doing = held
    box.thread.perform(OffsiteTend("check", 6.0))
    assert held.begun.wait(30.0 * PATIENCE)
    box.thread.perform(OffsiteTend("forget", 7.0))
    box.thread.perform(copy("period"))
    assert box.inbox.take(0.05) is None
    assert box.repository.calls == ["check"]
    box.repository.doing = lambda: None
    box.thread.perform(copy("notice", urgent=True))
    posted = [box.inbox.take(30.0 * PATIENCE) for _ in range(5)]
    assert [(each.what, each.cause, each.error) for each in posted if isinstance(each, OffsiteDone)] == [
        ("forget", "", ""), ("copy", "period", ""), ("copy", "notice", ""),
    ]  # fmt: skip
    assert box.inbox.take(0) is None, "the check has no outcome: it is not recorded as failed"


def test_stopping_ends_the_running_task_and_drops_those_that_wait(box: AdasBox) -> None:
    before = open_files()
    held = Held(box)
    box.repository.doing = held
    box.thread.perform(OffsiteTend("check"))
    assert held.begun.wait(30.0 * PATIENCE)
    box.thread.perform(OffsiteTend("forget"))
    box.thread.stop()
    assert (box.repository.calls, box.inbox.take(0)) == (["check"], None)
    assert open_files() <= before
    box.thread._do(OffsiteTend("forget"))
    assert box.repository.calls == ["check"], "none begins any more"
    assert open_files() <= before


def test_an_interrupt_stops_the_collecting_of_files_too(box: AdasBox, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def collects(*_args: object, task: Task, **_more: object) -> None:
        begun.set()
        assert task.over.wait(30.0 * PATIENCE)
        raise Interrupted

    monkeypatch.setattr(staging, "collect", collects)
    box.thread.perform(copy())
    assert begun.wait(30.0 * PATIENCE)
    box.thread.stop()
    assert isinstance(box.inbox.take(0), LeaseFound)
    assert box.inbox.take(0) is None
