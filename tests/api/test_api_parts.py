"""The small parts of the API, each on its own: log files, positions, signals, spans of pins, peers, encoded pages, port."""

import asyncio
import contextlib

import pytest
from fake_backend import FakeBackend, program
from leaks import nothing_stays_open

from supervisor.api import logfiles, peer, starting
from supervisor.api.logfiles import Chunk
from supervisor.api.peer import Peer
from supervisor.model.codes import BAD_NAME, FAILED, SUCCESS

# --- log files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    with nothing_stays_open():
        yield path


def id_of(path):
    return f"{path.stat().st_dev:x}-{path.stat().st_ino:x}"


def test_the_rest_of_a_rotated_log_comes_before_the_new_one(log):
    old_id = id_of(log)
    old = log.rename(f"{log}.1")
    log.write_bytes(b"abc")
    assert logfiles.read_from(str(log), old_id, 7, 2) == Chunk(b"78", old_id, 9)
    assert logfiles.read_from(str(log), old_id, 9, 2) == Chunk(b"9", old_id, 10)
    assert logfiles.read_from(str(log), old_id, 10, 2) == Chunk(b"ab", id_of(log), 2, "rotated")
    assert logfiles.read_from(str(log), "0-0", 1, 9) == Chunk(b"abc", id_of(log), 3, "rotated"), "of neither"
    old.unlink()
    assert logfiles.read_from(str(log), old_id, 1, 9) == Chunk(b"abc", id_of(log), 3, "rotated")


# --- starts ----------------------------------------------------------------------------------------------------------------


LONG_S = 60.0  # seen in the same condition for so long: it must not make an old attempt a new one


def outcome(phase, same_for_s, before=0, **known):
    view = program("Pong", phase, **{"attempt": 1, "pid": 7, "uptime_s": 0.0, "why": "why", **known})
    found = starting.outcome("Pong", view, before, same_for_s)
    return None if found is None else found[1:]


@pytest.mark.parametrize(
    ("phase", "same_for_s", "known", "told"),
    [
        ("STARTING", 0.49, {}, None),
        ("STARTING", 0.5, {}, (80, "started")),
        ("STARTING", 0.0, {"uptime_s": 0.5}, (80, "started")),
        ("STARTING", 9.0, {"attempt": 0}, None),
        ("RUNNING", 0.0, {}, (80, "started")),
        ("DONE", 0.0, {}, (80, "started")),
        ("BACKOFF", 0.0, {}, (40, "abnormal termination: why")),
        ("EXITED", 0.0, {}, (40, "abnormal termination: why")),
        ("FATAL", 0.0, {"spawn_error": "no file"}, (50, "spawn error: no file")),
        ("QUEUED", 0.5, {"attempt": 0}, (80, "queued: starts by itself once a slot is free")),
        ("GATED", 0.5, {"attempt": 0}, (80, "gated, starts by itself: why")),
        ("STOPPED", 0.0, {}, (70, "not running: it was stopped meanwhile")),
        ("STOPPED", 0.5, {"attempt": 0}, (70, "not running: it was stopped meanwhile")),
        ("STOPPING", 9.0, {}, None),
    ],
)
def test_a_start_is_answered_by_how_it_went(phase, same_for_s, known, told):
    assert outcome(phase, same_for_s, **known) == told


@pytest.mark.parametrize("phase", ["RUNNING", "STARTING", "DONE", "BACKOFF", "FATAL", "STOPPING"])
def test_the_attempt_from_before_a_restart_is_no_answer(phase):
    for attempt in (4, 3, None):
        assert outcome(phase, LONG_S, before=4, attempt=attempt, uptime_s=LONG_S) is None


@pytest.mark.parametrize(("same_for_s", "told"), [(0.49, None), (0.5, ("Pong", BAD_NAME, "no such process"))])
def test_one_that_is_removed_meanwhile(same_for_s, told):
    assert starting.outcome("Pong", None, 4, same_for_s) == told


def test_a_restart_is_reported_with_the_new_attempt():
    """The first snapshots still show the old attempt, trains as it does."""
    backend = FakeBackend()
    backend.add(program("Pong", "RUNNING", attempt=4, pid=7, uptime_s=LONG_S))
    before = starting.attempts(backend.snapshot())
    story = iter([
        ("RUNNING", 4, 7), ("RUNNING", 4, 7), ("STOPPING", 4, 7), ("STARTING", 5, None), ("RUNNING", 5, 8), ("RUNNING", 5, 8),
    ])  # fmt: skip
    shown = []

    def snapshot():
        phase, attempt, pid = next(story)
        backend.change("Pong", phase=phase, attempt=attempt, pid=pid)
        shown.append((phase, attempt))
        return backend.snapshot()

    (result,) = asyncio.run(starting.wait_for_starts(snapshot, before, [("Pong", SUCCESS, "accepted")]))
    assert result == ("Pong", SUCCESS, "started")
    assert shown[-1] == ("RUNNING", 5), "answered by the new one, and not before"


class Stepped(asyncio.SelectorEventLoop):
    """Its clock goes on by a hundredth of a second whenever it is read, however busy the machine is."""

    now_s = 0.0

    def time(self):
        self.now_s += 0.01
        return self.now_s


def waited(story, results, look_s=0.3, **known):
    """The results, how many looks they took, and how long. At each look the programs change as told."""
    backend = FakeBackend()
    looks = []
    backend.add(program("Pong", "QUEUED", attempt=0), program("Other", "QUEUED", attempt=0))
    with contextlib.closing(Stepped()) as loop:

        def snapshot():
            loop.now_s += look_s
            for name, change in story[min(len(looks), len(story) - 1)].items():
                backend.change(name, **change)
            looks.append(1)
            return backend.snapshot()

        told = loop.run_until_complete(starting.wait_for_starts(snapshot, {}, results, **known))
        return told, len(looks), loop.now_s


def test_each_accepted_start_is_waited_for_and_the_others_keep_their_result():
    refused, accepted = ("Other", FAILED, "no"), ("Pong", SUCCESS, "accepted")
    running = {"Pong": {"phase": "RUNNING", "attempt": 1}}
    assert waited([running], [refused, accepted])[:2] == ([refused, ("Pong", SUCCESS, "started")], 1)
    assert waited([running], [refused])[:2] == ([refused], 0)
    assert waited([running], [])[:2] == ([], 0)
    both = [("Other", SUCCESS, "accepted"), accepted]
    queued = ("Other", SUCCESS, "queued: starts by itself once a slot is free")
    assert waited([running], both)[:2] == ([queued, ("Pong", SUCCESS, "started")], 3)


# --- peers -----------------------------------------------------------------------------------------------------------------


def test_who_asks_has_a_name_for_people():
    assert peer.caller({peer.PEER_KEY: Peer(1, 0, 0)}) == ("root", 0)
    assert peer.caller({peer.PEER_KEY: Peer(1, 4_000_000_000, 0)}) == ("uid 4000000000", 4_000_000_000)
    assert peer.caller({}) == ("operator", None)
