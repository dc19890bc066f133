"""The small pieces of the contract, each whole: what is written letter by letter, what is refused with which words."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from leaks import open_files

from workers import contract
from workers.contract import NO_DEADLINE, UNKNOWN, Client, LeaveBy, Manifest, WorkerPhase, now_ns
from workers.daemon_side import read_beat

TOKEN, BOOT = "ab" * 16, "cd" * 16


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

MANIFEST = Manifest("Pong", TOKEN, 3, BOOT, 5_000, 1.5e9, {"game": "Pong"}, {"b": (5, "00"), "a/b": (6, "11")})


def test_a_manifest_as_it_is_written():
    body = json.loads(MANIFEST.to_json())
    assert list(body) == [
        "version", "digest", "program", "token", "attempt", "boot_id", "env_steps", "created_wall_s", "identity", "mean_return",
        "files", "self_digest",
    ]  # fmt: skip
    assert MANIFEST.to_json().startswith('{\n "version": 1,\n "digest": "blake2b-256",\n "program": "Pong",\n')
    assert body.pop("self_digest") == "5fe9aeffeb08f79ce199d2d0af10e23c6db84fa126f01ea25cb9a7286529aba0"
    assert body == {
        "version": 1, "digest": "blake2b-256", "program": "Pong", "token": TOKEN, "attempt": 3, "boot_id": BOOT,
        "env_steps": 5_000, "created_wall_s": 1.5e9, "identity": {"game": "Pong"}, "mean_return": None,
        "files": {"a/b": {"size_bytes": 6, "digest": "11"}, "b": {"size_bytes": 5, "digest": "00"}},
    }  # fmt: skip
    assert list(body["files"]) == ["a/b", "b"]


def changed(**values: object) -> str:
    """A manifest with other values, and the digest that fits to them."""
    body = {**json.loads(MANIFEST.to_json()), **values}
    del body["self_digest"]
    return json.dumps({**body, "self_digest": contract._digest_of(body)})


FILE = {"size_bytes": 1, "digest": "00"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed(version=2), "manifest of version 2 with digest 'blake2b-256'"),
        (changed(digest="md5"), "manifest of version 1 with digest 'md5'"),
        (MANIFEST.to_json().replace("5000", "5001"), "it does not match its own digest"),
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


def test_the_borders_of_a_manifest():
    for values in ({"created_wall_s": 0}, {"created_wall_s": 253_402_300_799}, {"mean_return": -3.5}, {"files": {}}):
        (name, value), found = *values.items(), Manifest.from_json(changed(**values))
        assert getattr(found, name) == value
    assert Manifest.from_json(changed(files={"a": FILE, "ab": FILE, "b/a": FILE})).files == dict.fromkeys(
        ("a", "ab", "b/a"), (1, "00")
    )
