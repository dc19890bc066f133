"""The agreement itself: records that are whole or not there, a client that never does harm, a document that is true."""

import errno
import json
import math
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from leaks import open_files
from tools import needs

from workers import contract, daemon_side
from workers.contract import (
    FIGURES,
    NO_DEADLINE,
    UNKNOWN,
    Beat,
    Client,
    Control,
    ControlReader,
    LeaveBy,
    Manifest,
    TargetKind,
    WorkerPhase,
    known_figures,
    now_ns,
    pack_beat,
    pack_measured,
    read_record,
)
from workers.daemon_side import ControlWriter, read_beat, unpack_beat, unpack_measured
from workers.exit_record import ExitRecord

ROOT = Path(__file__).resolve().parents[2]
TOKEN, OTHER = "ab" * 16, "cd" * 16
PATIENCE_S = 30.0

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
F64 = st.floats(width=64)


def kinds():
    """A strategy for each field of a beat, by the format it is stored in."""
    by_format = {"I": U32, "Q": U64, "d": F64, "H": U16}
    made = {name: by_format[code] for name, (code, _) in contract._LOCATIONS.items()}
    made |= dict.fromkeys(contract._MEASURED, F64)
    made |= {"phase": st.sampled_from(WorkerPhase), "target_kind": st.sampled_from(TargetKind)}
    return made | {"attempt": U32, "pid": U32, "boot_id": HEX, "token": HEX, "start_ticks": U64, "live_ns": U64}


BEATS = st.builds(Beat, **kinds())


def same(one, other):
    """Equal, with NaN equal to NaN."""
    return all(
        a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
        for a, b in ((getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    )


def environment(tmp_path, token=TOKEN, **more):
    return {
        contract.ENV_BEAT: str(tmp_path / "beat"), contract.ENV_CONTROL: str(tmp_path / "control"),
        contract.ENV_TOKEN: token, contract.ENV_ATTEMPT: "3", contract.ENV_PROGRAM: "Pong",
        contract.ENV_RUN_DIR: str(tmp_path / "run"), **more,
    }  # fmt: skip


@pytest.fixture
def me(tmp_path):
    client = Client(environment(tmp_path), live_period_s=3600)
    yield client
    client.close()


def beat_of(tmp_path):
    return read_beat(tmp_path / "beat")


def whole_beat_of(tmp_path):
    """Where another thread of this process writes: it may hold a half-written one until it gets the interpreter again."""
    deadline = time.monotonic() + PATIENCE_S
    while (beat := beat_of(tmp_path)) is None:
        assert time.monotonic() < deadline
        time.sleep(0)  # lets go of the interpreter
    return beat


# --- the record ------------------------------------------------------------------------------------------------------------


@given(BEATS)
def test_a_beat_comes_back_as_it_was(beat):
    measured = unpack_measured(whole(pack_beat(beat), pack_measured(beat)))
    assert same(unpack_beat(pack_beat(beat), beat.live_ns, measured), beat)


def whole(body, more=b""):
    """A record's bytes, with something beyond the body."""
    begins = contract._HEADER.pack(contract._BEAT_MAGIC, 2, 0, zlib.crc32(body), len(body)) + body
    told = contract._EXTRA_HEADER.pack(zlib.crc32(more), len(more)) + more if more else b""
    return (begins.ljust(contract._EXTRA_AT, b"\0") + told).ljust(contract.RECORD_BYTES, b"\0")


MEASURED = {name: float(number) for number, name in enumerate(contract._MEASURED)}


@pytest.mark.parametrize(
    ("more", "known"),
    [
        (b"", {}),  # a worker of an older version
        (struct.pack("<2d", 0.0, 1.0), dict(list(MEASURED.items())[:2])),  # one that knew two of the fields
        (struct.pack(f"<{len(MEASURED) + 2}d", *range(len(MEASURED) + 2)), MEASURED),  # one that knows of more than we do
        (struct.pack("<2d", 0.0, 1.0) + b"odd", dict(list(MEASURED.items())[:2])),
    ],
)
def test_a_worker_of_another_version_is_read_as_far_as_it_goes(tmp_path, more, known):
    body = pack_beat(Beat(WorkerPhase.TRAINING, 1, 1, TOKEN, TOKEN, 1, 0, 1, 1, env_steps=7))
    (tmp_path / "beat").write_bytes(whole(body, more))
    found = beat_of(tmp_path)
    assert found.env_steps == 7
    assert {name: getattr(found, name) for name in MEASURED if not math.isnan(getattr(found, name))} == known


def test_an_older_daemon_reads_a_newer_worker(me, tmp_path):
    me.progress(env_steps=5, q_mean=1.5)
    body = read_record((tmp_path / "beat").read_bytes(), contract._BEAT_MAGIC)[2]
    assert len(body) == 220, "to which older daemons insist"
    assert unpack_beat(body, 0).env_steps == 5


@given(st.integers(0, 63), st.integers(1, 255))
def test_damage_beyond_the_body_costs_what_lies_there_and_no_more(at, by):
    body = pack_beat(Beat(WorkerPhase.TRAINING, 1, 1, TOKEN, TOKEN, 1, 1, 1, 1))
    data = bytearray(whole(body, struct.pack("<8d", *range(8))))
    data[contract._EXTRA_AT + 8 + at] ^= by
    assert unpack_measured(bytes(data)) == {}
    assert read_record(bytes(data), contract._BEAT_MAGIC) is not None


def test_a_measurement_is_written_with_the_beat_and_stays(me, tmp_path):
    me.progress(env_steps=1, q_max_abs=12.5, entropy=None)
    me.progress(env_steps=2)
    seen = beat_of(tmp_path)
    assert (seen.env_steps, seen.q_max_abs) == (2, 12.5)
    assert math.isnan(seen.entropy), "not known"


def test_every_field_is_in_the_record():
    who = {"attempt", "pid", "boot_id", "token", "start_ticks", "live_ns"}
    assert {field.name for field in fields(Beat)} == set(contract._LOCATIONS) | set(contract._MEASURED) | who | {"own"}


@given(BEATS)
def test_what_is_not_known_is_no_figure(beat):
    """Known are finite numbers that are not the row's word for unknown; totals only once the training has begun."""
    begun = beat.phase >= WorkerPhase.TRAINING or beat.env_steps > 0
    told = known_figures(beat)
    for name, row in FIGURES.items():
        value, total = getattr(beat, name), name in {"env_steps", "frames", "updates", "episodes"}
        known = math.isfinite(value) and value != row.unknown and (begun or not total)
        assert told.get(name) == (value if known else None), name


@given(BEATS, st.integers(2, 2**16 - 1))
def test_another_version_is_refused(beat, version):
    body = bytearray(pack_beat(beat))
    struct.pack_into("<H", body, 0, version)
    with pytest.raises(ValueError, match=f"version {version}, this side speaks 1"):
        unpack_beat(bytes(body), 0)


@pytest.mark.parametrize("phase", [0, 9, 65535])
def test_an_unknown_phase_is_refused(phase):
    body = bytearray(pack_beat(Beat(WorkerPhase.TRAINING, 1, 1, TOKEN, TOKEN, 1, 1, 1, 1)))
    struct.pack_into("<H", body, contract._FIXED.size, phase)
    with pytest.raises(ValueError, match="Phase"):
        unpack_beat(bytes(body), 0)


@given(st.binary(max_size=400))
def test_another_length_is_refused(data):
    assume(len(data) != contract._FIXED.size + contract._MOVING.size)
    with pytest.raises(ValueError, match="bytes, expected 220"):
        unpack_beat(data, 0)


@given(st.binary(max_size=500), st.booleans())
def test_fuzzed_bytes_never_raise(tmp_path_factory, data, begin_right):
    path = tmp_path_factory.mktemp("fuzz") / "beat" if not FUZZED else FUZZED[0]
    FUZZED[:] = [path]
    data = contract._BEAT_MAGIC + data if begin_right else data
    path.write_bytes(data)
    assert read_beat(path) is None
    read_record(data, contract._BEAT_MAGIC)


FUZZED: list[Path] = []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 251), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_taken_for_truth(me, tmp_path, at, bit):
    me.progress(env_steps=123)
    path = tmp_path / "beat"
    whole = path.read_bytes()
    before = read_beat(path)
    damaged = bytearray(whole)
    damaged[at] ^= 1 << bit
    (tmp_path / "damaged").write_bytes(damaged)
    found = read_beat(tmp_path / "damaged")
    # Sequence and live stamp are outside of the sum: they move without it.
    assert found is None or same(replace(found, live_ns=before.live_ns), before)
    if not 8 <= at < 24:
        assert found is None


def test_a_record_that_is_cut_off_is_none(me, tmp_path):
    me.progress(env_steps=1)
    whole = (tmp_path / "beat").read_bytes()
    for size in range(252):
        (tmp_path / "cut").write_bytes(whole[:size])
        assert read_beat(tmp_path / "cut") is None
    assert read_beat(tmp_path / "missing") is None
    assert read_beat(tmp_path) is None


# --- a writer in the way -----------------------------------------------------------------------------------------------------

WRITER = """
import sys
from workers.contract import Client, WorkerPhase

class InPieces:
    # Copies as a slow machine would: without this a torn body is seen once in some seconds only.
    def __init__(self, memory):
        self.memory = memory
    def __setitem__(self, where, data):
        for at in range(0, len(data), 8):
            piece = data[at : at + 8]
            self.memory[where.start + at : where.start + at + len(piece)] = piece

me = Client(live_period_s=0.001)
me.phase(WorkerPhase.TRAINING)
me._record._map = InPieces(me._record._map)
print("ready", flush=True)
step, last = int(sys.argv[1]), float(sys.argv[2])
while step < last:
    step += 1
    me.progress(env_steps=step, frames=step, updates=step, episodes=step, loss=float(step), mean_return=float(step))
print("done", flush=True)
sys.stdin.read()
"""


def writer(tmp_path, first=0, last=math.inf):
    env = {**os.environ, **environment(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITER, str(first), str(last)]
    child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    return child


def whole_step(beat):
    """The step, if all six counters tell the same story."""
    told = {beat.env_steps, beat.frames, beat.updates, beat.episodes}
    if beat.env_steps:
        told |= {int(beat.loss), int(beat.mean_return)}
    assert len(told) == 1, "torn: the counters are of different beats"
    return beat.env_steps


def test_no_torn_record_is_ever_returned_while_another_process_writes(tmp_path):
    with writer(tmp_path) as child:
        newest, seen = 0, set()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 1_000 and time.monotonic() < deadline:
            beat = beat_of(tmp_path)
            if beat is None:  # the writer lost its processor in the middle of a beat
                continue
            step = whole_step(beat)
            assert step >= newest, "an older beat after a newer one"
            newest = step
            seen.add(step)
        child.kill()
    assert len(seen) >= 100


def test_the_last_beat_outlives_a_kill(tmp_path):
    with writer(tmp_path, last=50) as child:
        assert child.stdout.readline() == b"done\n"
        child.kill()
        child.wait(PATIENCE_S)
        beat = beat_of(tmp_path)
        assert (whole_step(beat), beat.pid) == (50, child.pid)


def test_a_kill_in_the_middle_of_a_beat_leaves_a_whole_one_or_none(tmp_path):
    for number in range(8):
        with writer(tmp_path, first=number * 10**9) as child:
            while (beat := beat_of(tmp_path)) is None or beat.env_steps <= number * 10**9:
                assert child.poll() is None
            child.kill()
            child.wait(PATIENCE_S)
        # Most die between the two stores of a beat, which this writer makes long: then there is none.
        beat = beat_of(tmp_path)
        if beat is not None:
            assert whole_step(beat) > number * 10**9
            assert beat.pid == child.pid


# --- the client --------------------------------------------------------------------------------------------------------------


def test_progress_and_phases(me, tmp_path):
    before_ns = contract.now_ns()
    me.phase(WorkerPhase.BUILDING, deadline_s=60, num_envs=64)
    building = beat_of(tmp_path)
    assert (building.phase, building.num_envs) == (WorkerPhase.BUILDING, 64)
    assert building.phase_deadline_ns == building.phase_since_ns + 60 * 10**9
    assert before_ns <= building.phase_since_ns == building.progress_ns
    me.phase(WorkerPhase.TRAINING, target=10, target_kind=TargetKind.EPISODES)
    me.progress(env_steps=5, loss=0.25, nan_count=1, rss_bytes=10)
    training = beat_of(tmp_path)
    assert (training.phase, training.target, training.target_kind) == (WorkerPhase.TRAINING, 10, TargetKind.EPISODES)
    assert (training.env_steps, training.loss, training.nan_count, training.rss_bytes) == (5, 0.25, 1, 10)
    assert training.phase_deadline_ns == contract.NO_DEADLINE
    assert building.progress_ns < training.progress_ns <= contract.now_ns()
    assert training.frames == 0
    me.progress(frames=20, env_steps=None, mean_return=None)
    assert (beat_of(tmp_path).env_steps, beat_of(tmp_path).frames) == (5, 20), "None leaves a field as it was"


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


def test_an_unknown_field_is_named(me):
    with pytest.raises(TypeError, match=r"unknown beat field 'env_step'; known: batch_size, .*env_steps"):
        me.progress(env_step=1)


def test_the_live_stamp_moves_by_itself_and_progress_does_not(tmp_path):
    me = Client(environment(tmp_path), live_period_s=0.01)
    me.progress(env_steps=1)
    first = beat_of(tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while beat_of(tmp_path).live_ns == first.live_ns:
        assert time.monotonic() < deadline
        time.sleep(0.01)
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
        if step % 50 == 0:
            whole_beat_of(tmp_path)
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
    assert beat is not None
    assert (beat.env_steps, beat.frames) == (11, 77)


def test_a_disk_that_refuses_a_report_does_not_end_the_training(me, tmp_path):
    (tmp_path / "run").write_text("a file where the directory should be")
    me.report("resumed", step=5)


# --- without a supervisor ------------------------------------------------------------------------------------------------------


def test_without_a_supervisor_every_call_is_a_no_op(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun_by, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: [begun_by.append(threading.get_ident()), start(thread)])
    me = Client({contract.ENV_RUN_DIR: str(tmp_path)})
    assert (me.supervised, me.token, me.program, me.attempt, me.is_fenced) == (False, "0" * 32, "", 0, False)
    me.phase(WorkerPhase.TRAINING, env_steps=1)
    me.progress(env_steps=2, loss=0.5)
    me.committed(2, stall_s=0.0, write_s=0.0)
    me.report("resumed", step=1)
    me.edge("READY=1")
    assert not me.save_wanted()
    assert me.control() == Control("0" * 32)
    assert me.fence_holds()
    assert not me.leave_wanted
    me.close()
    assert list(tmp_path.iterdir()) == []
    assert threading.get_ident() not in begun_by, "what other threads of this process begin meanwhile is their own"
    with pytest.raises(TypeError):
        me.progress(env_step=1)


# --- controls --------------------------------------------------------------------------------------------------------------------


@given(interval=U64, offset=U64, save_now=U32, leave_by=U64)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_control_comes_back_as_it_was(tmp_path, interval, offset, save_now, leave_by):
    control = Control(TOKEN, interval, offset, save_now, leave_by)
    writing = ControlWriter(tmp_path / "control")
    writing.write(control)
    writing.close()
    assert ControlReader(tmp_path / "control", TOKEN).read() == control


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


@pytest.mark.parametrize("at", [8, 24, 30, 40, 60])
def test_a_damaged_control_leaves_what_we_last_knew(tmp_path, at):
    writing, reading = ControlWriter(tmp_path / "control"), ControlReader(tmp_path / "control", TOKEN)
    writing.write(Control(TOKEN, 5, 6, 7))
    known = reading.read()
    writing.write(Control(TOKEN, 50, 60, 70))
    with (tmp_path / "control").open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    assert reading.read() == known
    writing.close()


@given(at_ns=st.integers(0, 2**62), interval_ms=st.integers(1, 10**7), offset_ms=st.integers(0, 10**7))
def test_saves_fall_on_the_grid(at_ns, interval_ms, offset_ms):
    next_ns = contract._next_save_ns(Control(TOKEN, interval_ms, offset_ms), at_ns)
    assert at_ns < next_ns <= at_ns + interval_ms * 10**6
    assert (next_ns - offset_ms * 10**6) % (interval_ms * 10**6) == 0


class Timed:
    """A client whose clock is stepped, and the daemon's end of its control record."""

    def __init__(self, tmp_path, monkeypatch):
        self.at_ns = 10**12
        monkeypatch.setattr(contract, "now_ns", lambda: self.at_ns)
        self.me = Client(environment(tmp_path), live_period_s=3600)
        self.daemon = ControlWriter(tmp_path / "control")

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
def timed(tmp_path, monkeypatch):
    made = Timed(tmp_path, monkeypatch)
    yield made
    made.me.close()
    made.daemon.close()


def test_saves_are_wanted_at_the_interval(timed):
    assert timed.saves(100) == [], "nobody asked"
    timed.wants(interval_ms=10_000, offset_ms=0)
    assert timed.saves(35) == [10, 20, 30]


def test_a_late_look_wants_one_save_and_keeps_the_grid(timed):
    timed.wants(interval_ms=10_000, offset_ms=0)
    assert timed.saves(1) == []
    timed.at_ns += 33 * 10**9
    assert timed.saves(10) == [0.5, 6], "one for those it missed, then the next on the grid"


def test_a_changed_interval_is_followed(timed):
    timed.wants(interval_ms=10_000, offset_ms=0)
    assert timed.saves(15) == [10]
    timed.wants(interval_ms=3_000, offset_ms=0)
    found = timed.saves(20)
    assert [late - early for early, late in pairwise(found)] == [3] * (len(found) - 1)
    assert len(found) >= 6
    timed.wants(interval_ms=UNKNOWN, offset_ms=0)
    assert timed.saves(100) == []


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
    timed.wants(save_now=1)
    assert timed.saves(10) == [0.5]
    timed.wants(save_now=2)
    assert timed.saves(10) == [0.5]
    assert timed.me.control().leave_by_ns == UNKNOWN
    timed.wants(save_now=2, leave_by_ns=5)
    assert timed.saves(10) == []
    assert timed.me.control().leave_by_ns == 5


# --- the fence --------------------------------------------------------------------------------------------------------------------


def test_the_fence_holds_for_the_attempt_that_is_named_in_it(me, tmp_path):
    assert not me.fence_holds(), "a fence that cannot be read does not hold"
    (tmp_path / "run").mkdir()
    fence = tmp_path / "run" / contract.FENCE_FILE
    fence.write_text(f"{TOKEN}\n")
    assert me.fence_holds()
    fence.write_text(f"{OTHER}\n")
    assert not me.fence_holds()
    fence.write_bytes(b"\xff\xfe")
    assert not me.fence_holds()


# --- what lies on disk ------------------------------------------------------------------------------------------------------------

MANIFEST = Manifest("Pong", TOKEN, 3, OTHER, 5_000, 1.7e9, {"game": "Pong"}, {"a.bin": (5, "00")}, mean_return=-3.5)
EXIT = ExitRecord(
    TOKEN, 5, 0, None, core_dumped=False, ended_ns=1, ended_wall_s=2.0, user_s=0.1, system_s=0.2, max_rss_bytes=9
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def read_or_refuse(read, text, sentence, only=None):
    """It is read, or refused with a ValueError that begins with `sentence`; nothing else comes out of it."""
    try:
        found = read(text)
    except ValueError as error:
        said = str(error)
    else:
        assert only in (None, found)
        return
    assert said.startswith(sentence)


@given(st.data())
def test_a_changed_manifest_is_damage(data):
    text = MANIFEST.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="utf-8")) + text[at + 1 :]
    read_or_refuse(Manifest.from_json, changed, "not a checkpoint manifest: ", only=MANIFEST)


def foreign(data, body):
    """The JSON text of `body` with some of its values replaced by anything at all."""
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(body)), JSON, max_size=3))
    return json.dumps({**body, **changes})


@given(st.data())
def test_a_foreign_manifest_raises_nothing_but_a_sentence(data):
    body = json.loads(MANIFEST.to_json())
    for text in (foreign(data, body), json.dumps(data.draw(JSON)), data.draw(st.binary(max_size=50))):
        read_or_refuse(Manifest.from_json, text, "not a checkpoint manifest: ")


@given(st.data())
def test_a_foreign_exit_record_raises_nothing_but_a_sentence(data):
    body = {field.name: getattr(EXIT, field.name) for field in fields(EXIT)}
    assert ExitRecord.from_json(json.dumps(body)) == EXIT
    for text in (foreign(data, body), json.dumps(data.draw(JSON)), data.draw(st.binary(max_size=50))):
        read_or_refuse(ExitRecord.from_json, text, "not an exit record: ")


def test_a_directory_that_turns_out_to_be_another_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    with pytest.raises(PermissionError) as refused:
        contract._make_private(tmp_path / "made")
    assert (refused.value.args, refused.value.filename) == ((errno.EPERM, "belongs to another user"), str(tmp_path / "made"))


def test_names_of_checkpoints():
    assert contract.parse_checkpoint_name(contract.checkpoint_name(500, TOKEN)) == (500, TOKEN)
    for name in ("ckpt-500", f"ckpt-0500.{TOKEN}", f"ckpt-500.{TOKEN}.tmp", f"ckpt-500.{TOKEN}.bad", "ckpt--5.ab", "x"):
        assert contract.parse_checkpoint_name(name) is None


# --- the document ------------------------------------------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs" / "contract.md").read_text()


def rows(heading):
    """Cells of the first table below a heading of the document."""
    section = DOCUMENT[DOCUMENT.index(f"\n## {heading}\n") :]
    lines = section[section.index("\n|") :].strip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def layout(*parts):
    """(offset, type, name) of each named field in a row of packed structs; "" is padding."""
    names = {"H": "u16", "I": "u32", "Q": "u64", "d": "f64", "8s": "8 bytes", "16s": "16 bytes"}
    at, out = 0, []
    for packed, fields_of in parts:
        codes = re.findall(r"\d*s|[A-Za-z]", packed.format)
        codes = [code for item in codes for code in ([item] if item.endswith("s") else list(item))]
        for code, name in zip(codes, fields_of, strict=True):
            if name:
                out.append([str(at), names[code], name])
            at += struct.calcsize("<" + code)
    return out


HEADER = (contract._HEADER, ("magic", "sequence", "live_ns", "crc32", "length"))


def test_the_documents_beat_record_is_the_codes():
    who = (contract._FIXED, ("version", "", "attempt", "pid", "boot_id", "token", "start_ticks"))
    told = [row[:3] for row in rows("The beat record")]
    assert told == layout(HEADER, who, (contract._MOVING, contract._MOVING_NAMES))
    more = layout((contract._EXTRA_HEADER, ("crc32", "length")), (contract._EXTRA, contract._MEASURED))
    told = [row[:3] for row in rows("Beyond the beat's body")]
    assert told == [[str(int(at) + contract._EXTRA_AT), kind, name] for at, kind, name in more]
    assert f"| of what follows: {contract._EXTRA.size} |" in DOCUMENT


def test_the_documents_figures_are_the_codes():
    told = [row[2:] for heading in ("The beat record", "Beyond the beat's body") for row in rows(heading)]
    assert [row for row in told if row[0] in FIGURES] == [[name, row.unit, row.help] for name, row in FIGURES.items()]


def test_the_documents_control_record_is_the_codes():
    control = (contract._CONTROL, ("version", "", "save_now", "token", "interval_ms", "offset_ms", "leave_by_ns"))
    assert [row[:3] for row in rows("The control record")] == layout(HEADER, control)


def test_the_documents_names_are_the_codes():
    told = {row[0] for row in rows("The environment")}
    assert told == {value for name, value in vars(contract).items() if name.startswith("ENV_")}
    assert {(row[0], row[1]) for row in rows("Phases")} == {(str(phase.value), phase.name) for phase in WorkerPhase}
    codes = {str(value) for name, value in vars(contract).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert codes <= {row[0] for row in rows("Exit codes")}
    for name in contract.STRIPPED_ENV:
        assert f"`{name}`" in DOCUMENT


def test_the_documents_python_runs(tmp_path):
    """Supervised (the records are there afterwards) and unsupervised."""
    script = tmp_path / "train.py"
    script.write_text((ROOT / "docs" / "recipes" / "counts.py").read_text())
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    plain = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
    assert plain.returncode == 0, plain.stderr.decode()
    for item in tmp_path.iterdir():
        if item != script:
            item.unlink()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / contract.FENCE_FILE).write_text(TOKEN)
    env |= environment(tmp_path)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    beat = beat_of(tmp_path)
    assert beat is not None
    assert beat.env_steps > 0
    assert beat.ckpt_count > 0


def test_the_documents_shell_notifies(tmp_path):
    needs("systemd-notify")
    script = tmp_path / "train.sh"
    script.write_text((ROOT / "docs" / "recipes" / "epochs.sh").read_text())
    heard = []

    def listen(sock):
        while "the end" not in heard:  # the last one in the queue: whoever reads late has read all before it
            message, passed, _, _ = socket.recv_fds(sock, 4096, 4)
            heard.append(message.decode())
            for fd in passed:
                os.close(fd)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        thread = threading.Thread(target=listen, args=(sock,), daemon=True)
        thread.start()
        env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "EPOCHS": "2", "EPOCH_S": "0"}
        done = subprocess.run(["sh", script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"the end", str(tmp_path / "notify"))
        thread.join(PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    said = "\n".join(heard)
    for expected in ("READY=1", "X_EXTRALIFE_STEPS=", "X_EXTRALIFE_CHECKPOINT=", "STOPPING=1"):
        assert expected in said


# --- a record that somebody has taken away ---------------------------------------------------------------------------------


def eventually(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_wrong_with_a_beat_is_said(me, tmp_path):
    path = tmp_path / "beat"
    me.progress(env_steps=10)
    whole = path.read_bytes()
    assert daemon_side.beat_defect(path, TOKEN) == ""
    assert daemon_side.beat_defect(path, "cd" * 16) == "it is of another attempt"
    assert daemon_side.beat_defect(tmp_path / "none", TOKEN) == "it is gone"
    path.write_bytes(whole[:40])
    assert daemon_side.beat_defect(path, TOKEN) == "it is not a beat record any more"
    path.write_bytes(b"x" + whole[1:])
    assert daemon_side.beat_defect(path, TOKEN) == "it is not a beat record any more"
    last = contract._BODY_AT + contract._FIXED.size + 1
    torn = bytearray(whole)
    torn[last] ^= 1
    path.write_bytes(torn)
    assert daemon_side.beat_defect(path, TOKEN) == "its checksum is wrong"
    torn[contract._SEQ_AT] |= 1
    path.write_bytes(torn)
    assert daemon_side.beat_defect(path, TOKEN) == "", "it is in the middle of a write"


@pytest.mark.parametrize("how", ["unlinked", "directory", "zeros", "garbage", "short", "another"])
def test_a_worker_makes_its_beat_again(tmp_path, how):
    path = tmp_path / "run" / "beats" / "Pong.1.beat"
    path.parent.mkdir(parents=True)
    token = "ab" * 16
    me = contract.Client({contract.ENV_BEAT: str(path), contract.ENV_TOKEN: token}, live_period_s=0.02)
    me.phase(contract.WorkerPhase.TRAINING, env_steps=10)
    if how == "unlinked":
        path.unlink()
    elif how == "directory":
        shutil.rmtree(tmp_path / "run")
    elif how == "another":
        aside = path.with_name("aside")  # renamed: no mapped file is cut short, which would be a SIGBUS
        aside.write_bytes(b"x" * 4096)
        aside.replace(path)
    else:
        content = {"zeros": bytes(4096), "garbage": b"\xff" * 300, "short": b"x"}[how]
        with path.open("r+b") as file:
            file.write(content)
    eventually(lambda: not daemon_side.beat_defect(path, token) and daemon_side.read_beat(path))
    assert daemon_side.read_beat(path).env_steps == 10
    me.progress(env_steps=11)
    assert daemon_side.read_beat(path).env_steps == 11
    assert path.parent.stat().st_mode & 0o077 == 0 or how != "directory"
    me.close()


def test_a_control_record_that_was_written_anew_is_read(tmp_path):
    beat, path, token = tmp_path / "beat", tmp_path / "control", "ab" * 16
    writer = daemon_side.ControlWriter(path)
    writer.write(contract.Control(token, save_now=1))
    env = {contract.ENV_BEAT: str(beat), contract.ENV_CONTROL: str(path), contract.ENV_TOKEN: token}
    me = contract.Client(env, live_period_s=0.02)
    assert me.control().save_now == 1
    path.unlink()
    anew = daemon_side.ControlWriter(path)
    anew.write(contract.Control(token, save_now=5))
    eventually(lambda: me.control().save_now == 5)
    for each in (writer, anew, me):
        each.close()


def supervised(tmp_path: Path, **more: str) -> Client:
    (tmp_path / "run").mkdir(exist_ok=True)
    names = {
        contract.ENV_BEAT: str(tmp_path / "beat"), contract.ENV_TOKEN: TOKEN, contract.ENV_ATTEMPT: "3",
        contract.ENV_PROGRAM: "Pong", contract.ENV_RUN_DIR: str(tmp_path / "run"), **more,
    }  # fmt: skip
    return Client(names, live_period_s=3600)


# --- who is who ----------------------------------------------------------------------------------------------------------------


def test_another_seed_after_each_rollback_and_another_token_for_each_attempt():
    assert [contract.seed_after(1, rollbacks) for rollbacks in (0, 1, 2)] == [1, 4_634_302, 350_212_839]
    assert contract.next_token(TOKEN) == "5f13bcd0a98883955acbf68407dc106d"


def test_a_process_is_known_by_its_start_whatever_its_name_is():
    code = "from workers.contract import *; open('/proc/self/comm', 'w').write('a) b (c'); print(start_ticks()); input()"
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as child:
        assert child.stdout is not None
        told = int(child.stdout.readline())
        assert contract.start_ticks(child.pid) == told
        ticks_a_second = os.sysconf("SC_CLK_TCK")
        assert 0 <= now_ns() / 1e9 - told / ticks_a_second < 300
        child.communicate("\n")
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        contract.start_ticks(child.pid)


def test_a_supervisor_is_one_that_names_a_beat_and_a_token(tmp_path):
    assert not Client({contract.ENV_TOKEN: TOKEN}).supervised
    assert not Client({contract.ENV_BEAT: str(tmp_path / "beat")}).supervised
    assert not (tmp_path / "beat").exists()


# --- what is reported ------------------------------------------------------------------------------------------------------------


def test_the_record_is_private_of_one_page_and_no_link(tmp_path):
    me = supervised(tmp_path)
    found = (tmp_path / "beat").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o600, 4096)
    me.close()
    (tmp_path / "beat").unlink()
    (tmp_path / "beat").symlink_to("other")
    before = open_files()
    with pytest.raises(OSError, match=re.escape(f"[Errno {errno.ELOOP}]")):
        supervised(tmp_path)
    assert open_files() <= before
    assert not (tmp_path / "other").exists()


def test_the_first_beat_says_who_it_is_and_that_nothing_is_known(tmp_path):
    before = now_ns()
    me = supervised(tmp_path)
    beat = read_beat(tmp_path / "beat")
    assert (beat.phase, beat.attempt, beat.pid, beat.token, beat.start_ticks) == (
        WorkerPhase.IMPORTING, 3, os.getpid(), TOKEN, contract.start_ticks(),
    )  # fmt: skip
    assert before <= beat.live_ns == beat.progress_ns == beat.phase_since_ns <= now_ns()
    assert beat.boot_id == contract.read_boot_id()
    assert (beat.phase_deadline_ns, beat.target, beat.ckpt_step, beat.env_steps) == (NO_DEADLINE, UNKNOWN, UNKNOWN, 0)
    me.close()


def test_a_checkpoint_is_counted_and_timed(tmp_path):
    me = supervised(tmp_path)
    before = now_ns()
    me.committed(5, stall_s=0.25, write_s=1.5)
    me.committed(9, stall_s=0.125, write_s=2.0)
    beat = read_beat(tmp_path / "beat")
    assert (beat.ckpt_step, beat.ckpt_stall_us, beat.ckpt_write_ms, beat.ckpt_count) == (9, 125_000, 2_000, 2)
    assert before <= beat.ckpt_ns <= now_ns()
    me.close()


def test_a_report_at_each_step_is_as_the_other_one(tmp_path):
    me = supervised(tmp_path)
    places = {name: me.field_location(name) for name in ("q_mean", "frames")}
    at_ns = me.progress_at(5, 0.5, places, {"q_mean": 1.5, "frames": 20})
    beat = read_beat(tmp_path / "beat")
    assert (beat.env_steps, beat.loss, beat.q_mean, beat.frames, beat.progress_ns) == (5, 0.5, 1.5, 20, at_ns)
    at_ns = me.progress_at(6, None, places, {})
    beat = read_beat(tmp_path / "beat")
    assert (beat.env_steps, beat.loss, beat.q_mean, beat.progress_ns) == (6, 0.5, 1.5, at_ns)
    with pytest.raises(KeyError):
        me.progress_at(7, None, {}, {"q_mean": 1.0})
    me.progress(env_steps=8)
    assert read_beat(tmp_path / "beat").env_steps == 8, "the lock is free again"
    me.close()


@pytest.mark.parametrize("abstract", [False, True])
def test_what_is_told_at_once_and_what_is_written_down(tmp_path, abstract):
    name = f"extralife-test-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0{name}" if abstract else name)
        heard.settimeout(30)
        me = supervised(tmp_path, **{contract.ENV_NOTIFY: f"@{name}" if abstract else name})
        before = open_files()
        for phase in (WorkerPhase.RESTORING, WorkerPhase.TRAINING, WorkerPhase.LEAVING):
            me.phase(phase)
        me.committed(70, stall_s=0, write_s=0)
        me.report("resumed", step=70)
        assert [heard.recv(4096).decode() for _ in range(5)] == [
            "STATUS=restoring\n", "READY=1\nSTATUS=training\n", "STOPPING=1\nSTATUS=leaving\n", "X_EXTRALIFE_CHECKPOINT=70\n",
            "X_EXTRALIFE_REPORT=resumed\n",
        ]  # fmt: skip
        me.report("again")
        with pytest.raises(ValueError, match=r"^Out of range float values are not JSON compliant"):
            me.report("odd", loss=float("nan"))
        assert open_files() <= before + 1
        assert heard.recv(4096) == b"X_EXTRALIFE_REPORT=again\n"
        me.progress(env_steps=1)
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.recv(4096)
        heard.close()
        me.edge("nobody is there any more")
        me.close()
        assert open_files() <= before
    lines = (tmp_path / "run" / "attempts" / f"3-{TOKEN}" / "reports.jsonl").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    assert all(0 <= now_ns() - report.pop("at_ns") < 300e9 for report in reports)
    assert reports == [{"kind": "resumed", "step": 70}, {"kind": "again"}]


# --- the end of the box ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1700000000\nspot reclaim\n", LeaveBy(1_700_000_000.0, "spot reclaim")),
        ("unknown\n maintenance \n", LeaveBy(None, "maintenance")),
        ("12", LeaveBy(12.0, "")),
        ("", None),
        ("soon\nx\n", None),
        ("12.5\nx\n", None),
    ],
)
def test_the_end_that_is_announced(tmp_path, text, found):
    (tmp_path / "leave-by").write_text(text)
    assert contract.read_leave_by(tmp_path / "leave-by") == found


def test_the_announcement_as_it_is_written(tmp_path):
    assert contract.leave_by_text(1_700_000_000.9, "spot reclaim") == "1700000000\nspot reclaim\n"
    assert contract.leave_by_text(None, "x") == "unknown\nx\n"
    assert contract.read_leave_by(tmp_path / "none") is None
    (tmp_path / "odd").write_bytes(b"12\n\xff" + b"x" * 5000)
    assert contract.read_leave_by(tmp_path / "odd") == LeaveBy(12.0, "\ufffd" + "x" * 4092)


# --- names and files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a\0", "x" * 256, "é" * 128, "\udcff\ud800", 4, None, b"x"])
def test_what_is_no_name(name):
    told = f"^{re.escape(f'{name!r:.200} is not a valid name of a file below its directory')}$"
    with pytest.raises(ValueError, match=told):
        contract.checked_name(name)
    with pytest.raises(ValueError, match=told if not isinstance(name, str) or name == "" else "is not a valid name"):
        contract.checked_path(name)


def test_a_path_has_at_most_sixteen_names():
    assert contract.checked_path("/".join("a" * 16)) == "/".join("a" * 16)
    for path in ("/".join("a" * 17), "/a", "a/", "a//b", "a/../b"):
        with pytest.raises(ValueError, match=r" is not a valid name of a file below its directory$"):
            contract.checked_path(path)


# --- manifests ---------------------------------------------------------------------------------------------------------------------

WRITTEN = Manifest("Pong", TOKEN, 3, OTHER, 5_000, 1.5e9, {"game": "Pong"}, {"b": (5, "00"), "a/b": (6, "11")})


def test_a_manifest_as_it_is_written():
    body = json.loads(WRITTEN.to_json())
    assert list(body) == [
        "version", "digest", "program", "token", "attempt", "boot_id", "env_steps", "created_wall_s", "identity", "mean_return",
        "files", "self_digest",
    ]  # fmt: skip
    assert WRITTEN.to_json().startswith('{\n "version": 1,\n "digest": "blake2b-256",\n "program": "Pong",\n')
    assert body.pop("self_digest") == "5fe9aeffeb08f79ce199d2d0af10e23c6db84fa126f01ea25cb9a7286529aba0"
    assert body == {
        "version": 1, "digest": "blake2b-256", "program": "Pong", "token": TOKEN, "attempt": 3, "boot_id": OTHER,
        "env_steps": 5_000, "created_wall_s": 1.5e9, "identity": {"game": "Pong"}, "mean_return": None,
        "files": {"a/b": {"size_bytes": 6, "digest": "11"}, "b": {"size_bytes": 5, "digest": "00"}},
    }  # fmt: skip
    assert list(body["files"]) == ["a/b", "b"]


def changed(**values: object) -> str:
    """A manifest with other values, and the digest that fits to them."""
    body = {**json.loads(WRITTEN.to_json()), **values}
    del body["self_digest"]
    return json.dumps({**body, "self_digest": contract._digest_of(body)})


FILE = {"size_bytes": 1, "digest": "00"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed(version=2), "manifest of version 2 with digest 'blake2b-256'"),
        (changed(digest="md5"), "manifest of version 1 with digest 'md5'"),
        (WRITTEN.to_json().replace("5000", "5001"), "it does not match its own digest"),
        (changed(created_wall_s=-1), "it says that it was made at -1 s"),
        (changed(created_wall_s=253_402_300_800), "it says that it was made at 2.53402e+11 s"),
        (changed(files={"manifest.json": FILE}), "'manifest.json' conflicts with another file"),
        (changed(files={"a": FILE, "a/b/c": FILE}), "'a/b/c' conflicts with another file"),
        (changed(files={"manifest.json/a": FILE}), "'manifest.json/a' conflicts with another file"),
        (changed(files={"../a": FILE}), "'..' is not a valid name of a file below its directory"),
        (changed(files={"a": {}}), "KeyError 'size_bytes'"),
        (changed(files=[]), "AttributeError 'list' object has no attribute 'items'"),
        (
            changed(attempt=None),
            "TypeError int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        ),
        ('{"version": 1e999}', "1e999 is not a finite number"),
        ('{"version": NaN}', "NaN is not a finite number"),
        ("{}", "KeyError 'version'"),
        ("[]", "TypeError list indices must be integers or slices, not str"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_a_manifest_that_is_none_is_refused_in_one_sentence(text, why):
    with pytest.raises(ValueError, match=f"^{re.escape(f'not a checkpoint manifest: {why}')}$"):
        Manifest.from_json(text)
