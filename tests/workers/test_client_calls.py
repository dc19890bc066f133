"""A worker's side of the contract: its reports reach the record, it follows the daemon's requests, and it never does harm."""

import contextlib
import json
import math
import os
import re
import socket
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from leaks import open_files
from supervised import OTHER, TOKEN, environment, eventually

from workers import contract
from workers.contract import NO_DEADLINE, UNKNOWN, Client, Control, ControlReader, TargetKind, WorkerPhase, now_ns
from workers.daemon_side import ControlWriter, read_beat


@pytest.fixture
def me(tmp_path):
    client = Client(environment(tmp_path), live_period_s=3600)
    yield client
    client.close()


def beat_of(tmp_path):
    return read_beat(tmp_path / "beat")


# --- who is who ----------------------------------------------------------------------------------------------------------------


def test_another_seed_after_each_rollback_and_another_token_for_each_attempt():
    assert [contract.seed_after(1, rollbacks) for rollbacks in (0, 1, 2)] == [1, 4_634_302, 350_212_839]
    assert contract.next_token(TOKEN) == "5f13bcd0a98883955acbf68407dc106d"


# --- what is reported ------------------------------------------------------------------------------------------------------------


def test_the_first_beat_says_who_it_is_and_that_nothing_is_known(tmp_path):
    before = now_ns()
    me = Client(environment(tmp_path), live_period_s=3600)
    beat = beat_of(tmp_path)
    assert (beat.phase, beat.attempt, beat.pid, beat.token, beat.start_ticks) == (
        WorkerPhase.IMPORTING, 3, os.getpid(), TOKEN, contract.start_ticks(),
    )  # fmt: skip
    assert before <= beat.live_ns == beat.progress_ns == beat.phase_since_ns <= now_ns()
    assert beat.boot_id == contract.read_boot_id()
    assert (beat.phase_deadline_ns, beat.target, beat.ckpt_step, beat.env_steps) == (NO_DEADLINE, UNKNOWN, UNKNOWN, 0)
    me.close()


def test_progress_and_phases(me, tmp_path):
    before_ns = now_ns()
    me.phase(WorkerPhase.BUILDING, deadline_s=60, num_envs=64)
    building = beat_of(tmp_path)
    assert (building.phase, building.num_envs) == (WorkerPhase.BUILDING, 64)
    assert building.phase_deadline_ns == building.phase_since_ns + 60 * 10**9
    assert before_ns <= building.phase_since_ns == building.progress_ns
    me.phase(WorkerPhase.TRAINING, target=10, target_kind=TargetKind.EPISODES)
    me.progress(env_steps=5, loss=0.25, nan_count=1, rss_bytes=10, q_max_abs=12.5, entropy=None)
    training = beat_of(tmp_path)
    assert (training.phase, training.target, training.target_kind) == (WorkerPhase.TRAINING, 10, TargetKind.EPISODES)
    assert (training.env_steps, training.loss, training.nan_count, training.rss_bytes) == (5, 0.25, 1, 10)
    assert training.phase_deadline_ns == NO_DEADLINE
    assert building.progress_ns < training.progress_ns <= now_ns()
    assert training.frames == 0
    me.progress(frames=20, env_steps=None, mean_return=None)
    seen = beat_of(tmp_path)
    assert (seen.env_steps, seen.frames, seen.q_max_abs) == (5, 20, 12.5), "None leaves a field as it was"
    assert math.isnan(seen.entropy), "not known"


@pytest.mark.parametrize(
    ("name", "value"),
    [("env_steps", -1), ("frames", 1.5), ("updates", 2**64), ("episodes", "3"), ("loss", "high"), ("batch_size", 2**32),
     ("mean_return", [])],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_one_clear_sentence_and_spoils_nothing(me, tmp_path, name, value):
    me.progress(env_steps=5)
    with pytest.raises(
        ValueError, match=f"^beat field {name} cannot hold {re.escape(repr(value))}; leave out what is not known$"
    ):
        me.progress(**{name: value})
    assert beat_of(tmp_path).env_steps == 5
    me.progress(frames=6)
    assert (beat_of(tmp_path).env_steps, beat_of(tmp_path).frames) == (5, 6)


def test_a_checkpoint_is_counted_and_timed(me, tmp_path):
    before = now_ns()
    me.committed(5, stall_s=0.25, write_s=1.5)
    me.committed(9, stall_s=0.125, write_s=2.0)
    beat = beat_of(tmp_path)
    assert (beat.ckpt_step, beat.ckpt_stall_us, beat.ckpt_write_ms, beat.ckpt_count) == (9, 125_000, 2_000, 2)
    assert before <= beat.ckpt_ns <= now_ns()


def test_the_live_stamp_moves_by_itself_and_progress_does_not(tmp_path):
    me = Client(environment(tmp_path), live_period_s=0.01)
    me.progress(env_steps=1)
    first = beat_of(tmp_path)
    eventually(lambda: beat_of(tmp_path).live_ns != first.live_ns)
    assert beat_of(tmp_path).progress_ns == first.progress_ns
    me.close()


def test_commits_of_another_thread_and_progress_do_not_spoil_each_other(me, tmp_path):
    def commits():
        for number in range(1, 2_001):
            me.committed(number, stall_s=0.0, write_s=0.0)

    thread = threading.Thread(target=commits)
    thread.start()
    step = 0
    while thread.is_alive():
        step += 1
        me.progress(env_steps=step)
    thread.join()
    me.progress(env_steps=step)
    beat = beat_of(tmp_path)
    assert (beat.env_steps, beat.ckpt_step, beat.ckpt_count) == (step, 2_000, 2_000)


def test_a_write_that_was_interrupted_by_another_is_done_again(me, tmp_path, monkeypatch):
    """The same, made certain: a handler that runs when the sum has been computed and is not yet stored."""
    real, nested = contract.zlib.crc32, []

    def crc32(data, start=0):
        crc = real(data, start)
        if not nested:
            nested.append(True)
            me.progress(frames=77)
        return crc

    monkeypatch.setattr(contract.zlib, "crc32", crc32)
    me.progress(env_steps=11)
    monkeypatch.undo()
    assert nested
    beat = beat_of(tmp_path)
    assert (beat.env_steps, beat.frames) == (11, 77)


@pytest.mark.parametrize("abstract", [False, True])
def test_mistakes_are_printed_at_once_and_failures_are_written_down(tmp_path, abstract):
    name = f"extralife-test-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0{name}" if abstract else name)
        heard.settimeout(30)
        me = Client(environment(tmp_path, **{contract.ENV_NOTIFY: f"@{name}" if abstract else name}))
        before = open_files()
        for phase in (WorkerPhase.RESTORING, WorkerPhase.TRAINING, WorkerPhase.LEAVING):
            me.phase(phase)
        me.committed(70, stall_s=0, write_s=0)
        me.report("resumed", step=70)
        assert [heard.recv(4096).decode() for _ in range(5)] == [
            "STATUS=restoring\n", "READY=1\nSTATUS=training\n", "STOPPING=1\nSTATUS=leaving\n", "X_EXTRALIFE_CHECKPOINT=70\n",
            "X_EXTRALIFE_REPORT=resumed\n",
        ]  # fmt: skip
        with pytest.raises(ValueError, match=r"^Out of range float values are not JSON compliant"):
            me.report("odd", loss=float("nan"))
        me.progress(env_steps=1)
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.recv(4096)
        heard.close()
        me.edge("nobody is there any more")
        me.close()
        assert open_files() <= before
    (line,) = (tmp_path / "run" / "attempts" / f"3-{TOKEN}" / "reports.jsonl").read_text().splitlines()
    report = json.loads(line)
    assert 0 <= now_ns() - report.pop("at_ns") < 300e9
    assert report == {"kind": "resumed", "step": 70}


def test_a_disk_that_refuses_a_report_does_not_end_the_training(me, tmp_path):
    (tmp_path / "run").write_text("a file where the directory should be")
    me.report("resumed", step=5)


@pytest.mark.parametrize("missing", [contract.ENV_BEAT, contract.ENV_TOKEN])
def test_without_a_supervisor_every_call_is_a_no_op(tmp_path, monkeypatch, missing):
    monkeypatch.chdir(tmp_path)
    env = environment(tmp_path)
    del env[missing]
    me = Client(env)
    assert (me.supervised, me.is_fenced) == (False, False)
    me.phase(WorkerPhase.TRAINING, env_steps=1)
    me.progress(env_steps=2, loss=0.5)
    me.committed(2, stall_s=0.0, write_s=0.0)
    me.report("resumed", step=1)
    me.edge("READY=1")
    assert not me.save_wanted()
    assert me.control() == Control(me.token)
    assert me.fence_holds()
    assert not me.leave_wanted
    me.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError):
        me.progress(env_step=1)


# --- controls --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path):
    writer = ControlWriter(tmp_path / "control")
    yield writer
    writer.close()


def test_a_control_for_another_attempt_is_not_ours(tmp_path):
    reading = ControlReader(tmp_path / "control", TOKEN)
    assert reading.read() == Control(TOKEN), "nothing is there yet"
    (tmp_path / "control").touch()
    assert reading.read() == Control(TOKEN), "its space is not there yet"
    writing = ControlWriter(tmp_path / "control")
    writing.write(Control(OTHER, 5, 6, 7))
    assert reading.read() == Control(TOKEN)
    writing.write(Control(TOKEN, 5, 6, 7))
    assert reading.read() == Control(TOKEN, 5, 6, 7)
    writing.write(Control(OTHER, 8, 9, 10))
    assert reading.read() == Control(TOKEN, 5, 6, 7), "what we last knew stands"
    writing.close()


def test_a_next_daemon_goes_on_with_the_same_record(tmp_path):
    reading = ControlReader(tmp_path / "control", TOKEN)
    ours = Control(TOKEN, 5, 6, 7)
    for save_now in (7, 8):
        writing = ControlWriter(tmp_path / "control")
        assert reading.read() in (Control(TOKEN), ours), "nothing is lost while a daemon begins"
        ours = replace(ours, save_now=save_now)
        writing.write(ours)
        assert reading.read() == ours
        writing.close()


def test_a_control_record_that_was_written_anew_is_read(tmp_path, daemon):
    daemon.write(Control(TOKEN, save_now=1))
    me = Client(environment(tmp_path), live_period_s=0.02)
    assert me.control().save_now == 1
    (tmp_path / "control").unlink()
    anew = ControlWriter(tmp_path / "control")
    anew.write(Control(TOKEN, save_now=5))
    eventually(lambda: me.control().save_now == 5)
    for each in (anew, me):
        each.close()


@pytest.mark.parametrize("at", [8, 24, 30, 40, 60])
def test_a_damaged_control_leaves_what_we_last_knew(tmp_path, daemon, at):
    reading = ControlReader(tmp_path / "control", TOKEN)
    daemon.write(Control(TOKEN, 5, 6, 7))
    known = reading.read()
    daemon.write(Control(TOKEN, 50, 60, 70))
    with (tmp_path / "control").open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    assert reading.read() == known


class Timed:
    """A client whose clock is stepped, and the daemon's end of its control record."""

    def __init__(self, client, daemon, monkeypatch):
        self.at_ns = 10**12
        monkeypatch.setattr(contract, "now_ns", lambda: self.at_ns)
        self.me, self.daemon = client, daemon

    def wants(self, **fields):
        self.daemon.write(Control(TOKEN, **fields))

    def saves(self, seconds, step_s=0.5):
        """When a save was wanted, in seconds from now."""
        found = []
        for number in range(1, round(seconds / step_s) + 1):
            self.at_ns += int(step_s * 1e9)
            if self.me.save_wanted():
                found.append(number * step_s)
        return found


@pytest.fixture
def timed(me, daemon, monkeypatch):
    return Timed(me, daemon, monkeypatch)


def test_saves_are_wanted_at_the_interval(timed):
    assert timed.saves(100) == [], "nobody asked"
    timed.wants(interval_ms=10_000, offset_ms=3_000)
    assert timed.saves(35) == [3, 13, 23, 33]


def test_an_interval_that_changes_all_the_time_postpones_no_save(timed):
    """The interval follows the uptime of the box; each change began the wait anew, at another place of the grid."""
    saved_s = []
    for now_s in range(600):
        left_ns = 9 * 10**9 - timed.at_ns % (10 * 10**9)
        timed.wants(interval_ms=10_000, offset_ms=(timed.at_ns - left_ns) // 10**6 % 10_000)
        saved_s += [now_s] * len(timed.saves(1, step_s=1.0))
        timed.wants(interval_ms=10_000 + now_s, offset_ms=0)
        saved_s += [now_s] * len(timed.saves(1, step_s=1.0))
    assert max(late - early for early, late in pairwise([0, *saved_s, 600])) <= 10


def test_save_now_asks_once_for_each_increase(timed):
    for fields, saves in (({"save_now": 1}, [0.5]), ({"save_now": 2}, [0.5]), ({"save_now": 2, "leave_by_ns": 5}, [])):
        timed.wants(**fields)
        assert timed.saves(10) == saves
    assert timed.me.control().leave_by_ns == 5


@pytest.fixture
def fenced(tmp_path):
    """(client, its fence)."""
    (tmp_path / "run").mkdir()
    with contextlib.closing(Client(environment(tmp_path))) as client:
        yield client, tmp_path / "run" / contract.FENCE_FILE


def test_only_another_token_in_the_fence_is_another_attempt(fenced):
    me, fence = fenced
    fence.write_text(f"{OTHER}\n")
    assert not me.fence_holds()
    assert fence.read_text() == f"{OTHER}\n"
    fence.write_text(f"{TOKEN}\n")
    assert me.fence_holds()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda fence: None, Path.mkdir, os.mkfifo, lambda fence: fence.write_bytes(b"\xff\xfe"), Path.touch,
        lambda fence: fence.symlink_to("/dev/zero"),
    ],
    ids=["missing", "directory", "FIFO", "garbage", "empty", "link"],
)  # fmt: skip
def test_a_fence_that_names_nobody_stops_nobody_and_is_written_again(fenced, spoil):
    me, fence = fenced
    spoil(fence)
    assert not me.owns_run_dir()
    assert me.fence_holds()
    assert fence.read_text() == f"{TOKEN}\n"
    assert me.owns_run_dir()


def test_a_fence_is_written_neither_over_a_newer_one_nor_in_another_directory(fenced, monkeypatch):
    me, fence = fenced
    fence.write_text(OTHER)
    reads = iter(["", ""])
    real = contract.read_fence
    monkeypatch.setattr(contract, "read_fence", lambda *where: next(reads, None) or real(*where))
    assert not me.fence_holds(), "it could not be read twice, and was moved aside: then it could"
    assert fence.read_text() == OTHER
    fence.parent.rename(fence.parent.with_name("before"))
    fence.parent.mkdir()
    assert me.fence_holds()
    assert not fence.exists(), "the directory may be on another disk"
