"""The record of a beat: it is whole or not there; no other version and no damage is taken for a report."""

import math
import os
import shutil
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from supervised import PATIENCE_S, TOKEN, environment, eventually
from tools import ROOT

from workers import contract, daemon_side
from workers.contract import FIGURES, Beat, Client, TargetKind, WorkerPhase, known_figures, pack_beat, pack_measured
from workers.daemon_side import read_beat, unpack_beat, unpack_measured

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
F64 = st.floats(width=64)
BY_FORMAT = {"I": U32, "Q": U64, "d": F64, "H": U16}
KINDS = {name: BY_FORMAT[code] for name, (code, _) in contract._LOCATIONS.items()} | dict.fromkeys(contract._MEASURED, F64)
KINDS |= {"phase": st.sampled_from(WorkerPhase), "target_kind": st.sampled_from(TargetKind)}
BEATS = st.builds(Beat, attempt=U32, pid=U32, boot_id=HEX, token=HEX, start_ticks=U64, live_ns=U64, **KINDS)
BODY = pack_beat(Beat(WorkerPhase.TRAINING, 1, 1, TOKEN, TOKEN, 1, 0, 1, 1, env_steps=7))


def same(one, other):
    """Equal, with NaN equal to NaN."""
    return all(
        a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
        for a, b in ((getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    )


def record(body, more=b""):
    """A record's bytes, with something beyond the body."""
    begins = contract._HEADER.pack(contract._BEAT_MAGIC, 2, 0, zlib.crc32(body), len(body)) + body
    beyond = contract._EXTRA_HEADER.pack(zlib.crc32(more), len(more)) + more if more else b""
    return (begins.ljust(contract._EXTRA_AT, b"\0") + beyond).ljust(contract.RECORD_BYTES, b"\0")


@pytest.fixture
def written(tmp_path):
    """The file of a beat with 123 steps."""
    client = Client(environment(tmp_path), live_period_s=3600)
    client.progress(env_steps=123)
    yield tmp_path / "beat"
    client.close()


@given(BEATS)
def test_a_beat_comes_back_as_it_was(beat):
    measured = unpack_measured(record(pack_beat(beat), pack_measured(beat)))
    assert same(unpack_beat(pack_beat(beat), beat.live_ns, measured), beat)


@given(BEATS)
def test_what_is_not_known_is_no_figure(beat):
    """Known are finite numbers that are not the row's word for unknown; totals only once the training has begun."""
    begun = beat.phase >= WorkerPhase.TRAINING or beat.env_steps > 0
    found = known_figures(beat)
    for name, row in FIGURES.items():
        value, total = getattr(beat, name), name in {"env_steps", "frames", "updates", "episodes"}
        known = math.isfinite(value) and value != row.unknown and (begun or not total)
        assert found.get(name) == (value if known else None), name


MEASURED = {name: float(number) for number, name in enumerate(contract._MEASURED)}
TWO = dict(list(MEASURED.items())[:2])


@pytest.mark.parametrize(
    ("more", "known"),
    [
        (b"", {}),  # a worker of an older version
        (struct.pack("<2d", 0.0, 1.0), TWO),  # one that knew two of the fields
        (struct.pack(f"<{len(MEASURED) + 2}d", *range(len(MEASURED) + 2)), MEASURED),  # one with more than these
        (struct.pack("<2d", 0.0, 1.0) + b"odd", TWO),
    ],
)
def test_a_worker_of_another_version_is_read_as_far_as_it_goes(tmp_path, more, known):
    (tmp_path / "beat").write_bytes(record(BODY, more))
    found = read_beat(tmp_path / "beat")
    assert found.env_steps == 7
    assert {name: getattr(found, name) for name in MEASURED if not math.isnan(getattr(found, name))} == known


def with_u16(at, value):
    body = bytearray(BODY)
    struct.pack_into("<H", body, at, value)
    return bytes(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (with_u16(0, 2), "version 2, this side speaks 1"),
        (with_u16(contract._FIXED.size, 9), "9 is not a valid WorkerPhase"),
        (BODY + b"\0", "has 221 bytes, expected 220"),  # to which older daemons insist
    ],
)
def test_a_record_that_this_side_cannot_read_is_refused(tmp_path, body, why):
    with pytest.raises(ValueError, match=why):
        unpack_beat(body, 0)
    (tmp_path / "beat").write_bytes(record(body))
    assert read_beat(tmp_path / "beat") is None


@given(st.integers(0, 63), st.integers(1, 255))
def test_damage_beyond_the_body_costs_what_lies_there_and_no_more(at, by):
    data = bytearray(record(BODY, struct.pack("<8d", *range(8))))
    data[contract._EXTRA_AT + 8 + at] ^= by
    assert unpack_measured(bytes(data)) == {}
    assert contract.read_record(bytes(data), contract._BEAT_MAGIC) is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 251), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_taken_for_truth(written, at, bit):
    before = read_beat(written)
    damaged = bytearray(written.read_bytes())
    damaged[at] ^= 1 << bit
    written.with_name("damaged").write_bytes(damaged)
    found = read_beat(written.with_name("damaged"))
    # Sequence and live stamp are outside of the sum: they move without it.
    assert found is None or same(replace(found, live_ns=before.live_ns), before)
    if not 8 <= at < 24:
        assert found is None


def test_what_is_wrong_with_a_beat_is_said(written, tmp_path):
    whole = written.read_bytes()
    torn = bytearray(whole)
    torn[contract._BODY_AT + contract._FIXED.size + 1] ^= 1
    in_a_write = bytearray(torn)
    in_a_write[contract._SEQ_AT] |= 1
    assert daemon_side.beat_defect(tmp_path / "none", TOKEN) == "it is gone"
    assert daemon_side.beat_defect(written, "cd" * 16) == "it is of another attempt"
    for data, defect in (
        (whole, ""), (in_a_write, ""), (torn, "its checksum is wrong"),
        (whole[:40], "it is not a beat record any more"), (b"x" + whole[1:], "it is not a beat record any more"),
    ):  # fmt: skip
        written.write_bytes(data)
        assert daemon_side.beat_defect(written, TOKEN) == defect


@pytest.mark.parametrize("how", ["unlinked", "directory", "zeros", "garbage", "short", "another"])
def test_a_worker_makes_its_beat_again(tmp_path, how):
    path = tmp_path / "run" / "beats" / "Pong.1.beat"
    path.parent.mkdir(parents=True)
    me = Client({contract.ENV_BEAT: str(path), contract.ENV_TOKEN: TOKEN}, live_period_s=0.02)
    me.phase(WorkerPhase.TRAINING, env_steps=10)
    if how == "unlinked":
        path.unlink()
    elif how == "directory":
        shutil.rmtree(tmp_path / "run")
    elif how == "another":
        aside = path.with_name("aside")  # renamed: no mapped file is cut short, which would be a SIGBUS
        aside.write_bytes(b"x" * 4096)
        aside.replace(path)
    else:
        with path.open("r+b") as file:
            file.write({"zeros": bytes(4096), "garbage": b"\xff" * 300, "short": b"x"}[how])
    eventually(lambda: not daemon_side.beat_defect(path, TOKEN) and read_beat(path))
    assert read_beat(path).env_steps == 10
    me.progress(env_steps=11)
    assert read_beat(path).env_steps == 11
    assert path.parent.stat().st_mode & 0o077 == 0 or how != "directory"
    me.close()


# --- a writer in another process ---------------------------------------------------------------------------------------------

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
    """The step, if all six counters are of the same beat."""
    counters = {beat.env_steps, beat.frames, beat.updates, beat.episodes}
    if beat.env_steps:
        counters |= {int(beat.loss), int(beat.mean_return)}
    assert len(counters) == 1, "torn: the counters are of different beats"
    return beat.env_steps


def test_no_torn_record_is_ever_returned_while_another_process_writes(tmp_path):
    with writer(tmp_path) as child:
        newest, seen = 0, set()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 1_000 and time.monotonic() < deadline:
            beat = read_beat(tmp_path / "beat")
            if beat is None:  # the writer lost its processor in the middle of a beat
                continue
            step = whole_step(beat)
            assert step >= newest, "an older beat after a newer one"
            newest = step
            seen.add(step)
        child.kill()
    assert len(seen) >= 100


def test_a_kill_in_the_middle_of_a_beat_leaves_a_whole_one_or_none(tmp_path):
    for number in range(4):
        first = number * 10**9
        with writer(tmp_path, first=first) as child:
            while (beat := read_beat(tmp_path / "beat")) is None or beat.env_steps <= first:
                assert child.poll() is None
            child.kill()
            child.wait(PATIENCE_S)
        # Most die between the two stores of a beat, which this writer makes long: then there is none.
        beat = read_beat(tmp_path / "beat")
        assert beat is None or (whole_step(beat) > first and beat.pid == child.pid)
