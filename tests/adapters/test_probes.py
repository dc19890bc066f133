"""Readings of attempts: real beat records, logs, files and processes; time is stepped, not waited for."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock
from structlog.testing import capture_logs

from supervisor.adapters import procfs
from supervisor.adapters.process import growth
from supervisor.adapters.process.logs import rotate
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.probes import LocalProbes
from supervisor.model.inputs import Report, Sample
from supervisor.model.settings import Paths, ProgramSpec, Progress
from workers import contract
from workers.contract import Client, WorkerPhase

TOKEN = "ab" * 16


class Scene:
    """One program under watch; its "process" is a real one that can be stopped and ended."""

    def __init__(self, root):
        self.root = root
        self.paths = Paths(str(root / "state"), str(root / "run"))
        (root / "run" / "beats").mkdir(parents=True)
        (root / "run" / "shims").mkdir()
        self.clock = FakeClock(at_s=contract.now_ns() / 1e9)
        self.edges = NotifySockets(self.paths.notify_socket, lambda: None)
        self.probes = LocalProbes(self.paths, self.clock, self.edges)
        self.process = subprocess.Popen(["sleep", "1000"])
        self.clients = []

    def watch(self, progress=Progress.BEAT, name="Pong", token=TOKEN, attempt=1, pid=None, adopted=False, **fields):
        spec = ProgramSpec(name, ("x",), "d", progress=progress, **fields)
        Path(self.paths.attempt_dir(name, attempt, token)).mkdir(parents=True, exist_ok=True)
        self.probes.watch(spec, attempt, token, self.process.pid if pid is None else pid, adopted=adopted)

    def client(self, name="Pong", token=TOKEN, attempt=1):
        env = {
            contract.ENV_BEAT: self.paths.beat(name, attempt), contract.ENV_TOKEN: token, contract.ENV_PROGRAM: name,
            contract.ENV_ATTEMPT: str(attempt), contract.ENV_RUN_DIR: self.paths.run_dir(name),
        }  # fmt: skip
        self.clients.append(Client(env, live_period_s=3600))
        return self.clients[-1]

    def look(self, name="Pong"):
        return self.probes.sample()[name]

    def say(self, text, name="Pong"):
        """As a worker would, but without a process: what the thread of `edges` would do with it."""
        self.edges._take(name, 0, dict(line.split("=", 1) for line in text.splitlines()))

    def shim_record(self, stdout_from=0, stderr_from=0, token=TOKEN):
        stat = procfs.read_stat(os.getpid())
        record = {
            "boot_id": "b" * 32, "program": "Pong", "attempt": 1, "token": token, "pid": 1, "start_ticks": 1,
            "shim_pid": os.getpid(), "shim_start_ticks": stat.start_ticks,
            "stdout_from": stdout_from, "stderr_from": stderr_from,
        }  # fmt: skip
        Path(self.paths.shim_record("Pong")).write_text(json.dumps(record))

    def log(self, channel, text, mode="a"):
        path = Path(self.paths.log("Pong", channel))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(text)
        return path

    def close(self):
        self.edges.close()
        for client in self.clients:
            client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    made.close()


# --- beats -----------------------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_none(scene):
    scene.watch()
    scene.client().phase(WorkerPhase.TRAINING, loss=math.nan, mean_return=math.inf)
    seen = scene.look()
    assert {"updates": 0}.items() <= seen.figures.items(), "in training a count of 0 is one"
    assert not {name for name in seen.figures if contract.FIGURES[name].code == "d"}
    for name in ("steps_per_s", "target", "target_kind", "ckpt_step", "ckpt_at_s", "ckpt_stall_s",
                 "ckpt_write_s", "num_envs", "batch_size", "rss_bytes", "cuda_bytes"):  # fmt: skip
        assert getattr(seen, name) is None, name
    assert seen.steps == 0, "in training a count of 0 is one"


def test_before_the_first_beat_nothing_is_known_but_the_process(scene):
    scene.watch()
    seen = scene.look()
    assert seen == Sample(TOKEN, seen.proc_state)
    assert seen.proc_state is not None


def test_a_beat_of_another_attempt_is_none_of_ours(scene):
    scene.watch()
    scene.client(token="cd" * 16).progress(env_steps=5)
    assert scene.look().progress_at_s is None


def test_a_torn_beat_is_no_stall_the_newest_whole_one_stands(scene):
    scene.watch()
    me = scene.client()
    me.phase(WorkerPhase.TRAINING, env_steps=10)
    before = scene.look()
    path = Path(scene.paths.beat("Pong", 1))
    whole = path.read_bytes()
    for torn in (b"", whole[:100], b"\0" * 4096, whole[:200] + b"\xff" + whole[201:]):
        path.write_bytes(torn)
        assert replace(scene.look(), proc_state=None) == replace(before, proc_state=None)
    path.unlink()
    assert scene.look().steps == 10


def test_a_removed_beat_is_read_from_the_record_that_its_worker_still_maps(scene, tmp_path):
    with contextlib.closing(Scene(tmp_path / "elsewhere")) as other:  # a file of the same name, open before it
        other.client().phase(WorkerPhase.TRAINING, env_steps=7)
        scene.watch(pid=os.getpid())
        me = scene.client()
        me.phase(WorkerPhase.TRAINING, env_steps=10)
        assert scene.look().steps == 10
        Path(scene.paths.beat("Pong", 1)).unlink()
        assert scene.probes.beat_defect("Pong", TOKEN) == "it is gone"
        me.progress(env_steps=20)
        for _ in range(3):
            scene.clock.at_s += 10
            seen = scene.look()
            assert (seen.steps, seen.beat_lost) == (20, False)


def test_an_adopted_worker_whose_beat_file_is_gone_is_judged_by_its_witnesses(scene):
    scene.watch(adopted=True)
    scene.clock.at_s += 5
    assert not scene.look().beat_lost, "it may have been started a moment ago"
    scene.clock.at_s += 6
    scene.look()
    scene.clock.at_s += 6
    assert scene.look().beat_lost


# --- the process -------------------------------------------------------------------------------------------------------------


def test_the_process_state_is_the_kernels(scene):
    scene.watch(Progress.NONE)
    scene.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, scene.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert scene.look().proc_state == "T"
    scene.process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, scene.process.pid, os.WCONTINUED | os.WNOWAIT)
    assert scene.look().proc_state in {"S", "R", "D"}
    assert scene.look().ready
    scene.process.kill()
    os.waitid(os.P_PID, scene.process.pid, os.WEXITED | os.WNOWAIT)
    assert scene.look().proc_state == "Z"
    scene.process.wait()
    scene.clock.advance(3.0)  # the tree is looked at every two seconds
    assert scene.look() == Sample(TOKEN, None), "gone: neither a state nor ready"


def test_a_pid_that_became_somebody_elses_is_not_read(scene, monkeypatch):
    """Only where no descriptor was left to hold on to the process itself: then its start ticks tell the two apart."""
    with monkeypatch.context() as patch:
        patch.setattr(procfs, "StateFile", lambda _pid: os.open("/no/descriptor/left", os.O_RDONLY))
        scene.watch(Progress.NONE)
    assert scene.look().proc_state in {"S", "R", "D"}
    true_stat = procfs.read_stat(scene.process.pid)
    monkeypatch.setattr(procfs, "read_stat", lambda _pid: replace(true_stat, start_ticks=true_stat.start_ticks + 1))
    assert scene.look().proc_state is None


# --- sd_notify ---------------------------------------------------------------------------------------------------------------


def test_a_real_datagram_reaches_the_sample(scene):
    scene.edges.bind("Pong")
    scene.watch(Progress.BEAT, pid=os.getpid())
    scene.client().phase(WorkerPhase.TRAINING)
    code = "import os,socket; s=socket.socket(1,2); s.sendto(b'STATUS=x' * 1, os.environ['NOTIFY_SOCKET']); input()"
    env = {contract.ENV_TOKEN: TOKEN, "NOTIFY_SOCKET": scene.paths.notify_socket("Pong")}
    with subprocess.Popen([sys.executable, "-S", "-I", "-c", code], env=env, stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 30
        while scene.look().status != "x":
            assert time.monotonic() < deadline
            time.sleep(0.005)
        child.communicate(b"\n")


# --- logs ----------------------------------------------------------------------------------------------------------------------


def test_a_growing_log_is_progress(scene):
    scene.log("stdout", "of an earlier attempt\n")
    scene.watch(Progress.LOG)
    first = scene.look()
    assert (first.ready, first.progress_at_s, first.phase) == (False, None, None)
    scene.clock.advance(5)
    scene.log("stderr", "epoch 1\n")
    seen = scene.look()
    assert (seen.ready, seen.progress_at_s, seen.phase) == (True, scene.clock.at_s, "training")
    grown_at_s = scene.clock.at_s
    scene.clock.advance(5)
    assert scene.look().progress_at_s == grown_at_s, "nothing new"
    scene.log("stdout", ".")
    assert scene.look().progress_at_s == scene.clock.at_s


def test_a_line_from_before_the_first_look_counts(scene):
    size = scene.log("stdout", "of an earlier attempt\n").stat().st_size
    scene.shim_record(stdout_from=size)
    scene.log("stdout", "epoch 1\n")
    scene.watch(Progress.LOG)
    assert scene.look().ready
    scene.watch(Progress.LOG, token="cd" * 16, attempt=2)
    assert not scene.look().ready, "the record is of another attempt"


def test_a_rotated_log_is_no_progress_but_what_follows_is(scene):
    path = scene.log("stdout", "x" * 1000)
    scene.watch(Progress.LOG)
    scene.look()
    assert rotate(path, 100, 1)
    assert scene.look().progress_at_s is None
    scene.log("stdout", "y")
    assert scene.look().progress_at_s == scene.clock.at_s
    grown_at_s = scene.clock.at_s
    scene.clock.advance(5)
    scene.log("stdout", "x" * 1000)
    assert scene.look().progress_at_s > grown_at_s
    assert rotate(path, 100, 1)
    scene.log("stdout", "shorter than before, and new")
    scene.clock.advance(5)
    assert scene.look().progress_at_s == scene.clock.at_s


def test_a_log_that_cannot_be_read_for_a_while_is_no_progress(scene):
    path = scene.log("stdout", "x" * 100)
    scene.watch(Progress.LOG)
    scene.look()
    away = path.rename(path.with_name("away"))
    assert scene.look().progress_at_s is None
    away.rename(path)
    assert scene.look().progress_at_s is None


# --- files ---------------------------------------------------------------------------------------------------------------------


def test_new_and_changed_files_are_progress(scene):
    where = scene.root / "out"
    (where / "deep").mkdir(parents=True)
    (where / "old.pt").write_text("there before")
    scene.watch(Progress.FILES, directory=str(where), progress_glob="**/*.pt")
    assert not scene.look().ready

    def moved():
        scene.clock.advance(1)
        return scene.look().progress_at_s == scene.clock.at_s

    (where / "deep" / "new.pt").write_text("1")
    assert moved()
    assert not moved()
    (where / "notes.txt").write_text("does not match")
    assert not moved()
    (where / "old.pt").write_text("rewritten")
    assert moved()
    os.utime(where / "old.pt", ns=(1, 1))
    assert moved()
    (where / "old.pt").unlink()
    assert not moved(), "tidying up is not getting on"
    assert scene.look().ready


def test_a_directory_that_comes_back_is_no_progress(scene):
    where = scene.root / "out"
    where.mkdir()
    (where / "a.pt").write_text("1")
    scene.watch(Progress.FILES, directory=str(where), progress_glob="*.pt")
    scene.look()
    away = where.rename(scene.root / "away")
    scene.look()
    away.rename(where)
    assert not scene.look().ready


def test_the_run_directory_is_where_files_are_looked_for(scene):
    scene.watch(Progress.FILES, progress_glob="model-*.bin")
    scene.look()
    (Path(scene.paths.run_dir("Pong")) / "model-1.bin").write_text("1")
    assert scene.look().ready


@pytest.mark.parametrize("pattern", ["/etc/*", "**bad", "", "\0"])
def test_an_odd_pattern_is_no_progress_and_blinds_nobody(scene, pattern):
    scene.watch(Progress.FILES, directory="/nonexistent", progress_glob=pattern)
    scene.watch(Progress.NONE, name="Qbert")
    samples = scene.probes.sample()
    assert samples["Pong"].progress_at_s is None
    assert samples["Qbert"].ready


def test_a_reading_that_breaks_is_unknown_and_blinds_nobody(scene, monkeypatch):
    scene.watch(Progress.FILES)
    scene.watch(Progress.NONE, name="Qbert")
    monkeypatch.setattr(growth, "files", lambda _paths, _spec: 1 / 0)
    with capture_logs() as logged:
        for _ in range(2):
            samples = scene.probes.sample()
            assert samples["Pong"] == Sample(TOKEN)
            assert samples["Qbert"].ready
    assert logged == [
        {"event": "reading_failed", "program": "Pong", "exc_info": True, "log_level": "error"}
    ], "once, not at each look"  # fmt: skip


# --- reports --------------------------------------------------------------------------------------------------------------------


def test_reports_are_read_once_each_and_only_when_whole(scene):
    scene.watch()
    assert scene.probes.reports() == ()
    scene.client().report("resumed", step=500)
    ((program, token, report),) = scene.probes.reports()
    assert (program, token, report.kind, report.fields["step"]) == ("Pong", TOKEN, "resumed", 500)
    assert scene.probes.reports() == ()
    path = Path(scene.paths.attempt_dir("Pong", 1, TOKEN)) / contract.REPORTS_FILE
    with path.open("a") as file:
        file.write('{"kind": "a"}\n{"kind": "torn')
    assert [item[2] for item in scene.probes.reports()] == [Report("a", {})]
    with path.open("a") as file:
        file.write('-no-more", "x": NaN}\n')
    assert [item[2] for item in scene.probes.reports()] == [Report("torn-no-more", {"x": None})]


def test_reports_that_are_none_are_passed_over(scene):
    scene.watch()
    path = Path(scene.paths.attempt_dir("Pong", 1, TOKEN)) / contract.REPORTS_FILE
    junk = [b"", b"[]", b"{}", b'{"kind": 5}', b"\xff\xfe", b"[" * 5000, b'{"kind": "' + b"x" * 200_000 + b'"}']
    path.write_bytes(b"\n".join(junk) + b'\n{"kind": "good"}\n')
    found = [item[2] for _ in range(10) for item in scene.probes.reports()]
    assert found == [Report("good", {})]


# --- cost -----------------------------------------------------------------------------------------------------------------------


def test_ten_programs_are_sampled_in_two_milliseconds(scene):
    for number in range(10):
        scene.watch(name=f"game-{number}")
        scene.client(name=f"game-{number}").phase(WorkerPhase.TRAINING, env_steps=1)
    scene.probes.sample()
    took_ms = []
    for _ in range(200):
        began = time.perf_counter()
        samples = scene.probes.sample()
        took_ms.append((time.perf_counter() - began) * 1e3)
    assert len(samples) == 10
    assert all(sample.ready for sample in samples.values())
    assert min(took_ms) < 2.0, "the best, because on a busy machine the rest measures the neighbours"
