"""What counts as well after an upgrade: deploy/health.py beside a real server, and the journal on its way back."""

import contextlib
import importlib.util
import json

import pytest
from fake_backend import FakeBackend, daemon, journal, known_to, program
from serving import served
from tools import ROOT

from supervisor.adapters.journal.sqlite import Journal, open_or_salvage
from supervisor.model.facts import Finished

RELEASE = "/opt/extralife/releases/0.2.0-5f1c"


def _load():
    spec = importlib.util.spec_from_file_location("upgrade_health", ROOT / "deploy" / "health.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


health = _load()


@pytest.fixture
def backend():
    made = FakeBackend(header=daemon(release="/opt/extralife/releases/0.1.0-aa", started_wall_s=1.0))
    made.add(
        program("Pong", pid=41, steps=1000, updates=10, worker_phase="training", steps_per_s=50.0),
        program("Qbert", "DONE", steps=7),
    )
    return made


@pytest.fixture
def sock(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(health, "_ends", lambda: 0)
    monkeypatch.setattr(health, "_EVERY_S", 0.01)
    with served(backend, tmp_path / "s"):
        yield str(tmp_path / "s")


def upgraded(backend, **known):
    """Another image answers from now on."""
    backend.header = known_to(backend.header, **{"release": RELEASE, "started_wall_s": 2.0, **known})


def judged(sock, before, healthy_s=0.0, ready_s=60.0):
    health.judge(sock, before, RELEASE, ready_s, healthy_s)


def test_a_new_image_with_every_worker_is_well(backend, sock):
    before = health.ask(sock)
    upgraded(backend)
    backend.change("Pong", steps=1010)
    judged(sock, before, healthy_s=0.05)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the daemon has not replaced itself"),
        ({"release": "/opt/extralife/releases/0.1.5-bb"}, "the daemon runs /opt/extralife/releases/0.1.5-bb, not"),
        ({"journal": journal(error="the disk is full")}, "the daemon cannot write its journal: the disk is full"),
    ],
)
def test_a_daemon_that_is_not_well(backend, sock, change, said, monkeypatch):
    ask = health.ask
    monkeypatch.setattr(health, "ask", lambda path, _s=0.0: ask(path, 60.0))  # its last look has 0.1 s: little when busy
    before = health.ask(sock)
    if change:
        upgraded(backend, **change)
    with pytest.raises(health.Unwell, match=said):
        judged(sock, before, ready_s=60.0 if change else 0.2)


def test_a_journal_error_that_was_there_before_is_no_reason_to_go_back(backend, sock):
    """The disk was full before the upgrade, and still is: the release before would do no better."""
    backend.header = known_to(backend.header, journal=journal(error="the disk is full"))
    before = health.ask(sock)
    assert before["daemon"]["journal"]["error"] == "the disk is full"
    upgraded(backend)
    judged(sock, before, healthy_s=0.05)


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        ({"pid": 42}, "Pong has lost its worker: it was pid 41, now there is 42"),
        ({"pid": None, "phase": "BACKOFF"}, "Pong has lost its worker: it was pid 41, now there is none"),
        ({"steps": 900}, "Pong went back from step 1000 to 900"),
        ({"worker_phase": None}, "the daemon gets no beats from Pong, whose worker is pid 41"),
    ],
)
def test_a_worker_that_is_not_what_it_was(backend, sock, worker, said):
    before = health.ask(sock)
    upgraded(backend)
    backend.change("Pong", **worker)
    with pytest.raises(health.Unwell, match=said):
        judged(sock, before)


def test_a_worker_that_does_not_get_on(backend, sock, monkeypatch):
    monkeypatch.setattr(health, "_LONG_S", 0.01)
    before = health.ask(sock)
    upgraded(backend)
    with pytest.raises(health.Unwell, match="Pong trained before and has made no progress for"):
        judged(sock, before, healthy_s=0.02)


def test_a_start_that_ends_again_and_again_is_not_waited_for(tmp_path, monkeypatch):
    ends = iter(range(10))
    monkeypatch.setattr(health, "_ends", lambda: next(ends))
    monkeypatch.setattr(health, "_EVERY_S", 0.0)
    with pytest.raises(health.Unwell, match="ends again and again"):
        judged(str(tmp_path / "nobody"), {}, ready_s=60)


def test_nobody_there_is_said_within_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "_ends", lambda: 0)
    with pytest.raises(health.Unwell, match=r"the daemon does not answer after 0\.1 s"):
        judged(str(tmp_path / "nobody"), {}, ready_s=0.1)
    assert health.main(["look", str(tmp_path / "nobody")]) == 1


def test_look_and_same_are_what_the_script_asks(backend, sock, tmp_path, capsys):
    assert health.main(["look", sock]) == 0
    before = tmp_path / "before"
    before.write_text(capsys.readouterr().out)
    assert [each["name"] for each in json.loads(before.read_text())["programs"]] == ["Pong", "Qbert"]
    assert health.main(["same", sock, str(before)]) == 0
    upgraded(backend)
    assert health.main(["same", sock, str(before)]) == 1
    assert health.main(["judge", sock, str(before), RELEASE, "60", "0"]) == 0


# --- the journal -------------------------------------------------------------------------------------------------------


def append(journal, *names):
    journal.append([Finished(why="x", program=name) for name in names], at_s=1.0, wall_s=2.0, boot_id="b" * 32)


def test_a_journal_that_is_put_back_is_the_copy_and_the_newer_one_stays(tmp_path):
    path, copy = tmp_path / "journal.sqlite", tmp_path / "journal.sqlite.of-old"
    with contextlib.closing(Journal(path)) as journal:
        append(journal, "a", "b")
        assert health.main(["keep-journal", str(path), str(copy)]) == 0
        append(journal, "c")
        assert health.main(["put-back", str(path), str(copy)]) == 0  # while somebody still writes to it
        append(journal, "d")
    journal, facts, salvage = open_or_salvage(path, wall_s=3.0, seen_seq=4)
    journal.close()
    assert [each.fact.program for each in facts[:2]] == ["a", "b"]
    assert salvage is not None, "what is missing is told"
    assert salvage.lost == 2
    newer, facts, _ = open_or_salvage(tmp_path / "journal.sqlite.newer", wall_s=3.0)
    newer.close()
    assert [each.fact.program for each in facts[:3]] == ["a", "b", "c"]


def test_a_damaged_copy_is_not_put_back(tmp_path):
    path, copy = tmp_path / "journal.sqlite", tmp_path / "journal.sqlite.of-old"
    with contextlib.closing(Journal(path)) as journal:
        append(journal, "a")
    health.keep_journal(path, copy)
    data = bytearray(copy.read_bytes())
    data[4096:8192] = bytes(4096)
    copy.write_bytes(data)
    with pytest.raises((health.Unwell, health.sqlite3.DatabaseError)):
        health.put_back(path, copy)
    assert not (tmp_path / "journal.sqlite.rebuilt").exists()
