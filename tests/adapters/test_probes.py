"""Readings of attempts: real beat records, logs, files and processes; time is stepped, not waited for."""

import contextlib
import json
import math
import os
import signal
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest
from attempts_kit import eventually
from fakes import FakeClock
from leaks import open_below
from structlog.testing import capture_logs
from test_trees import process, table

from supervisor.adapters import procfs
from supervisor.adapters.figures.thread import FigureReading, began_wall_s
from supervisor.adapters.logs import rotate
from supervisor.adapters.process import growth, trees
from supervisor.adapters.process.cgroups import Load
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.probes import LocalProbes, beat_sample, completed
from supervisor.adapters.process.processes import read_record
from supervisor.model.inputs import Halted, OwnCheckpoint, Report, Sample
from supervisor.model.settings import Paths, ProgramSpec, Progress
from supervisor.policy.script.figures import Figures, Sources
from supervisor.policy.script.service_health import Checked, HealthCheck
from supervisor.policy.worker.divergence import Losses
from workers import contract
from workers.contract import Beat, Client, TargetKind, WorkerPhase

TOKEN = "ab" * 16


class Scene:
    """One program under watch; its "process" is a real one that can be stopped and ended.

    Its cgroup, its own checkpoints and its figures are what a test sets; `figures_asked` is what the reader was told.
    """

    def __init__(self, root):
        self.root = root
        self.paths = Paths(str(root / "state"), str(root / "run"))
        (root / "run" / "beats").mkdir(parents=True)
        (root / "run" / "shims").mkdir()
        self.clock = FakeClock(at_s=contract.now_ns() / 1e9)
        self.edges = NotifySockets(self.paths.notify_socket, lambda: None)
        self.load, self.own, self.signs = None, {}, None
        self.reading, self.figures_asked = None, []
        self.probes = LocalProbes(self.paths, self.clock, self.edges, self, self.newest_own, self)
        self.process = subprocess.Popen(["sleep", "1000"])
        self.child = self.process.pid + 1_000_000  # of no process: only made-up scans have it
        self.clients = []

    def newest_own(self, name, *signs):
        self.signs = signs
        return self.own.get(name)

    def begin(self, progress=Progress.BEAT, name="Pong", token=TOKEN, attempt=1, pid=None, adopted=False, **fields):
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

    def read(self, _token):
        return self.load

    def watch(self, *args, **more):
        if args and isinstance(args[0], ProgramSpec):
            self.figures_asked.append(args)
        else:
            self.begin(*args, **more)

    def forget(self, program, token):
        self.figures_asked.append((program, token))

    def newest(self, program, token):
        return self.reading if (program, token) == ("Pong", TOKEN) else None

    def write_beat(self, phase=WorkerPhase.TRAINING, token=TOKEN, program="Pong", pid=77, **more):
        now_ns = int(self.clock.at_s * 1e9)
        stamps = {"live_ns": now_ns, "progress_ns": now_ns - 1_000, "phase_since_ns": now_ns - 2_000}
        beat = Beat(phase, 1, pid, "b" * 32, token, 1, **(stamps | more))
        body = contract.pack_beat(beat)
        record = contract._Record(self.paths.beat(program, 1), contract._BEAT_MAGIC, b"", len(body))
        record.write(body)
        record.stamp_live(beat.live_ns)
        record.close()
        return beat

    def notified(self):
        return self.edges.state_of("Pong", TOKEN)

    def sees(self, sample):
        """Whether the next look gives this sample, with the state that the process happens to have."""
        seen = self.look()
        assert seen.proc_state in {"S", "R", "D"}
        assert replace(seen, proc_state=None) == sample
        return seen

    def close(self):
        self.edges.close()
        for client in self.clients:
            client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def scene(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "newest_ns", lambda _directory: None)  # another thread's look may come at any time
    made = Scene(tmp_path)
    yield made
    made.close()


# --- beats -----------------------------------------------------------------------------------------------------------------


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
    assert scene.signs == ((scene.process.pid,), grown_at_s), "what its checkpoints are judged by"
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


OTHER = "cd" * 16
MEASURED = {each.name: 0.5 + number for number, each in enumerate(fields(Beat)) if each.metadata and each.type == "float"}


@pytest.fixture
def scan(monkeypatch, scene):
    """Scans that a test makes up: the worker, what is below it, and what each scan was asked to read again."""

    class Made:
        below: tuple = ()
        changed = None
        worker_ticks = 0
        asked: tuple = ()

        def __call__(self, *args):
            self.asked = args
            start = procfs.read_stat(scene.process.pid).start_ticks
            worker = process(scene.process.pid, os.getpid(), ticks=self.worker_ticks, start=start)
            return table(worker, *self.below, changed=self.changed)

    made = Made()
    monkeypatch.setattr(procfs, "scan", made)
    return made


# --- beats -----------------------------------------------------------------------------------------------------------------


def test_every_field_of_a_beat_is_in_its_sample():
    beat = Beat(
        WorkerPhase.TRAINING, 3, 77, "b" * 32, TOKEN, 1, live_ns=1, progress_ns=2, phase_since_ns=3,
        target_kind=TargetKind.EPISODES, env_steps=10, frames=40, updates=5, episodes=6, nan_count=7, target=8, ckpt_step=9,
        ckpt_ns=4, ckpt_stall_us=2_500_000, ckpt_write_ms=1_500, ckpt_count=2, ckpt_bad_count=1, resumed_step=3,
        batch_size=512, num_envs=32, rss_bytes=100, cuda_bytes=200, **MEASURED,
    )  # fmt: skip
    whole = Sample(
        TOKEN, "S", live_at_s=100.0, progress_at_s=200.0, phase="training", phase_since_s=300.0, phase_deadline_s=99.0,
        ready=True, steps=10, frames=40, episodes=6, nan_count=7, target=8, target_kind="episodes",
        steps_per_s=MEASURED["steps_per_s"], ckpt_step=9, ckpt_at_s=400.0, ckpt_stall_s=2.5, ckpt_write_s=1.5, ckpt_count=2,
        num_envs=32, batch_size=512, rss_bytes=100, cuda_bytes=200, status="as it goes",
        figures={name: value for name, value in MEASURED.items() if name != "steps_per_s"}
        | {"updates": 5, "ckpt_ns": 4, "ckpt_stall_us": 2_500_000, "ckpt_write_ms": 1_500, "ckpt_bad_count": 1, "resumed_step": 3},
    )  # fmt: skip

    def at(at_ns):
        return at_ns * 100.0

    assert beat_sample(beat, "S", at, 99.0, "as it goes") == whole
    unknown = beat_sample(replace(beat, loss=math.nan, mean_return=math.inf), "S", at, None)
    assert not {"loss", "mean_return"} & set(unknown.figures), "what is not known is none"
    assert beat_sample(beat, None, at, None) == replace(whole, proc_state=None, phase_deadline_s=None, status="")
    none_yet = beat_sample(replace(beat, ckpt_count=0), "S", at, 99.0)
    assert (none_yet.ckpt_stall_s, none_yet.ckpt_write_s, none_yet.ckpt_count) == (None, None, 0)
    first = beat_sample(replace(beat, ckpt_count=1), "S", at, 99.0)
    assert (first.ckpt_stall_s, first.ckpt_write_s, first.ckpt_count) == (2.5, 1.5, 1)
    names = {kind: beat_sample(replace(beat, target_kind=kind), "S", at, None).target_kind for kind in TargetKind}
    assert names == {
        TargetKind.NONE: None, TargetKind.ENV_STEPS: "env_steps", TargetKind.EPISODES: "episodes",
        TargetKind.SECONDS_LEFT: "seconds_left",
    }  # fmt: skip


def test_a_beat_is_read_with_its_deadline_and_what_was_notified(scene):
    scene.watch()
    scene.say("STATUS=loading")
    scene.sees(Sample(TOKEN, status="loading"))
    now_ns = int(scene.clock.at_s * 1e9)
    beat = scene.write_beat(phase_deadline_ns=now_ns + 60_000_000_000)
    made = beat_sample(beat, None, lambda at_ns: at_ns / 1e9, (now_ns + 60_000_000_000) / 1e9, "loading")
    scene.sees(replace(made, ckpt_at_s=None))
    beat = scene.write_beat()
    assert scene.look().phase_deadline_s is None, "no deadline is not the start of the clock"


# --- beats that are lost ----------------------------------------------------------------------------------------------------


def test_lost_beats_are_replaced_after_five_seconds_until_they_are_back(scene):
    scene.watch(pid=0)  # no CPU time can be read: the logs alone are witnesses
    scene.say("STATUS=at work")
    beat = scene.write_beat(env_steps=10)
    before = scene.look()
    assert before.steps == 10
    path = Path(scene.paths.beat("Pong", 1))
    path.write_bytes(b"\xff" * 4096)
    assert scene.look() is not None
    scene.clock.at_s += 4.9
    assert scene.look() == before
    scene.clock.at_s += 0.1
    lost = Sample(TOKEN, phase="training", beat_lost=True, status="at work")
    assert scene.look() == lost
    scene.log("stderr", "x")
    scene.clock.at_s += 1.0
    assert scene.look() == replace(lost, progress_at_s=scene.clock.at_s)
    scene.write_beat(env_steps=beat.env_steps + 1)
    assert (scene.look().steps, scene.look().beat_lost) == (11, False)
    path.write_bytes(b"\xff" * 4096)
    assert not scene.look().beat_lost, "the five seconds begin anew"
    scene.clock.at_s += 4.9
    assert not scene.look().beat_lost


def test_where_beats_are_lost_cpu_time_is_progress(scene, monkeypatch):
    ticks, read = 100, procfs.read_stat
    monkeypatch.setattr(procfs, "read_stat", lambda pid: (stat := read(pid)) and stat._replace(ticks=ticks))
    scene.watch()
    scene.write_beat()
    scene.look()
    Path(scene.paths.beat("Pong", 1)).unlink()
    scene.look()
    scene.clock.at_s += 5.0
    lost = Sample(TOKEN, phase="training", beat_lost=True)
    scene.sees(lost)
    scene.clock.at_s += 1.0
    scene.sees(lost)
    ticks = 101
    scene.clock.at_s += 1.0
    scene.sees(replace(lost, progress_at_s=scene.clock.at_s))


# --- notifications -----------------------------------------------------------------------------------------------------------


def test_every_field_of_what_was_notified_is_in_the_sample(scene):
    scene.watch(Progress.NOTIFY)
    began_s = scene.clock.at_s
    scene.clock.advance(5.0)
    scene.say("STATUS=loading")
    scene.sees(Sample(TOKEN, status="loading"))
    scene.say("READY=1\nEXTEND_TIMEOUT_USEC=60000000\nX_EXTRALIFE_STEPS=12\nX_EXTRALIFE_CHECKPOINT=10\nSTATUS=at work")
    told = scene.notified()
    whole = Sample(
        TOKEN, progress_at_s=told.progress_ns / 1e9, phase="training", phase_since_s=began_s,
        phase_deadline_s=told.deadline_ns / 1e9, ready=True, steps=12, ckpt_step=10, ckpt_at_s=told.ckpt_ns / 1e9, ckpt_count=1,
        status="at work",
    )  # fmt: skip
    scene.sees(whole)
    scene.say("STOPPING=1")
    scene.sees(replace(whole, phase="leaving"))
    scene.watch(Progress.NOTIFY, token=OTHER)
    scene.sees(Sample(OTHER))


# --- the best source ---------------------------------------------------------------------------------------------------------


def test_the_best_source_that_reports_is_taken(scene):
    scene.watch(Progress.AUTO)
    quiet = Sample(TOKEN, source="log")
    scene.sees(quiet)
    scene.clock.advance(1.0)
    scene.log("stdout", "x")
    grown_s = scene.clock.at_s
    grows = replace(quiet, progress_at_s=grown_s, phase="training", ready=True)
    scene.sees(grows)
    figures = Figures(steps=7, first_steps=(5,), moved_at_s=grown_s + 1.0, moves=1)
    scene.reading = FigureReading(figures, grown_s)
    scene.sees(replace(grows, steps=7, first_steps=(5,)))
    scene.reading = FigureReading(replace(figures, moves=2), grown_s)
    by_figures = replace(grows, source="figures", progress_at_s=grown_s + 1.0, steps=7, first_steps=(5,))
    scene.sees(by_figures)
    scene.clock.advance(60.0)
    scene.sees(replace(grows, steps=7, first_steps=(5,)))
    scene.say("X_EXTRALIFE_STEPS=12")
    told_s = scene.notified().progress_ns / 1e9
    scene.sees(replace(grows, progress_at_s=max(told_s, grown_s), steps=12))
    scene.say("X_EXTRALIFE_STEPS=13")
    by_word = Sample(
        TOKEN, progress_at_s=scene.notified().progress_ns / 1e9, phase="training", phase_since_s=grown_s - 1.0, ready=True,
        steps=13, source="notify",
    )  # fmt: skip
    scene.sees(by_word)
    scene.write_beat(token=OTHER)
    scene.sees(by_word)
    beat = scene.write_beat(env_steps=20)
    by_beat = replace(beat_sample(beat, None, lambda at_ns: at_ns / 1e9, None), source="beat", ckpt_at_s=None)
    scene.reading = FigureReading(Figures(steps=30, values={"mine": 7.0}), grown_s)
    by_beat = replace(by_beat, figures={"mine": 7.0, **by_beat.figures})
    scene.sees(by_beat)
    Path(scene.paths.beat("Pong", 1)).unlink()
    scene.sees(by_beat)


def test_files_are_looked_at_beside_the_log_where_a_pattern_names_them(scene):
    scene.watch(Progress.AUTO, progress_glob="*.pt")
    scene.watch(Progress.AUTO, name="Qbert")
    scene.probes.sample()
    for name in ("Pong", "Qbert"):
        Path(scene.paths.run_dir(name), "a.pt").touch()
    seen = scene.probes.sample()
    assert (seen["Pong"].ready, seen["Qbert"].ready) == (True, False)


# --- figures of its own output ---------------------------------------------------------------------------------------------


FOUND = Figures(
    steps=10, first_steps=(3,), target=100, episodes=4, nan_count=2, losses=Losses(True, 10), values={"frames": 40.0, "loss": 0.5, "mine": 7.0},
    given_rate=9.0,
)  # fmt: skip
SPEC = ProgramSpec("Pong", ("x",), "d")


def test_figures_fill_what_a_sample_lacks():
    whole = Sample(
        TOKEN, steps=10, first_steps=(3,), target=100, target_kind="env_steps", episodes=4, nan_count=2, losses=Losses(True, 10), frames=40,
        steps_per_s=9.0, figures={"loss": 0.5, "mine": 7.0}, unread="a file is torn",
    )  # fmt: skip
    reading = FigureReading(FOUND, 1.0, "a file is torn")
    assert completed(Sample(TOKEN), SPEC, reading) == whole
    known = Sample(
        TOKEN, steps=1, target=2, target_kind="episodes", episodes=3, nan_count=0, frames=5, steps_per_s=6.0,
        figures={"loss": 0.25},
    )  # fmt: skip
    filled = replace(known, figures={"loss": 0.25, "mine": 7.0}, unread="a file is torn")
    assert completed(known, SPEC, reading) == filled, "a better source goes first"
    nothing = FigureReading(Figures(), 1.0)
    assert completed(known, SPEC, nothing) == known
    assert completed(known, SPEC, None) is known


def test_the_configured_target_counts_where_no_beat_has_one():
    own = replace(SPEC, figures=Sources(target_steps=500))
    sample = Sample(TOKEN, "S", steps=7)
    for reading in (None, FigureReading(Figures(target=100), 1.0)):
        assert completed(sample, own, reading) == replace(sample, target=500, target_kind="env_steps")
    given = replace(sample, target=9, target_kind="episodes")
    assert completed(given, own, None) == given


def test_a_program_of_the_users_is_read_from_where_its_logs_began(scene):
    scene.shim_record(stdout_from=5, stderr_from=6)
    scene.watch(Progress.LOG)
    scene.watch(Progress.LOG, token=OTHER)
    scene.watch(Progress.BEAT, name="Breakout", builtin=True)
    scene.probes.forget("Pong", TOKEN)
    (spec, token, since_s, logs_from, roots), other, forgotten = scene.figures_asked
    assert (spec.name, token, logs_from) == ("Pong", TOKEN, (5, 6))
    assert roots == (scene.process.pid, read_record(scene.paths.shim_record("Pong")).shim_pid)
    assert since_s == pytest.approx(began_wall_s(procfs.read_stat(scene.process.pid).start_ticks), abs=2.0)
    assert (other[1], *other[3:]) == (OTHER, None, (scene.process.pid,)), "that record is of another attempt"
    assert forgotten == ("Pong", TOKEN)


# --- cgroup, tree, health and own checkpoints ---------------------------------------------------------------------------------


def test_all_that_is_seen_of_an_attempt_is_in_one_sample(scene, scan):
    child = scene.child
    scan.below = (process(child, scene.process.pid, "T"),)
    scene.watch(Progress.LOG, health=HealthCheck(tcp="localhost:1", every_s=3600.0))
    at_s = scene.clock.at_s
    whole = Sample(TOKEN, pids=(child,), halted=(Halted(child, 5, f"p{child}", "T", at_s),), health=Checked())
    scene.sees(whole)
    scene.clock.advance(5.0)
    scan.worker_ticks = 1000
    whole = replace(whole, witness="cpu", witness_at_s=scene.clock.at_s)
    scene.sees(whole)
    scene.clock.advance(5.0)
    scene.load = Load((("cpu some", 12.5),), 4096)
    whole = replace(whole, pressure=(("cpu some", 12.5),), memory_bytes=4096, witness_at_s=scene.clock.at_s)
    scan.worker_ticks = 2000
    scene.sees(whole)
    scene.own["Pong"] = OwnCheckpoint("/x.pt", 7)
    scene.sees(replace(whole, own=OwnCheckpoint("/x.pt", 7)))
    scene.probes.forget("Pong", OTHER)
    scene.probes.forget("Pong", TOKEN)
    assert scene.probes.sample() == {}


# --- the tree ---------------------------------------------------------------------------------------------------------------


def test_the_worker_itself_is_judged_by_its_tree_only_where_nothing_else_judges_it(scene, monkeypatch):
    start = procfs.read_stat(scene.process.pid).start_ticks
    stopped = table(process(scene.process.pid, os.getpid(), "T", start=start))
    monkeypatch.setattr(procfs, "scan", lambda *_: stopped)
    scene.watch(Progress.NONE)
    scene.watch(Progress.LOG, name="Qbert")
    seen = scene.probes.sample()
    assert [each.pid for each in seen["Pong"].halted] == [scene.process.pid]
    assert seen["Qbert"].halted == ()


def test_files_below_its_directory_are_a_witness_unless_it_is_shared(scene, scan, monkeypatch):
    looked = []
    monkeypatch.setattr(trees, "newest_ns", looked.append)
    for name, directory in (("A", "/nowhere/shared"), ("B", "/nowhere/shared"), ("C", "/nowhere/own"), ("D", "")):
        scene.watch(Progress.LOG, name=name, directory=directory)
    scene.watch(Progress.NOTIFY, name="E", directory="/nowhere/else")
    scene.probes.sample()
    assert eventually(lambda: len(looked) == 2)
    assert sorted(looked) == sorted(["/nowhere/own", scene.paths.run_dir("D")])


def test_witnesses_are_read_while_a_program_is_silent(scene, scan):
    for name, source in (("Pong", Progress.AUTO), ("Qbert", Progress.LOG), ("Riverraid", Progress.NOTIFY)):
        scene.watch(source, name=name)
    scene.probes.sample()
    scan.worker_ticks = 1000
    scene.clock.advance(5.0)
    assert [each.witness for each in scene.probes.sample().values()] == ["cpu", "cpu", ""]
    for steps in (1, 2):
        scene.say(f"X_EXTRALIFE_STEPS={steps}")
    assert scene.look().source == "notify"
    scene.clock.advance(5.0)
    assert scene.look().witness == ""


# --- what it does, and its reports ------------------------------------------------------------------------------------------


def test_what_workers_do_is_told_of_those_that_beat(scene):
    beats = (
        ("Pong", Progress.BEAT), ("Auto", Progress.AUTO), ("Log", Progress.LOG), ("Other", Progress.BEAT),
        ("None", Progress.BEAT),
    )  # fmt: skip
    for number, (name, source) in enumerate(beats):
        scene.watch(source, name=name)
        if name != "None":
            token = OTHER if name == "Other" else TOKEN
            scene.write_beat(WorkerPhase.SAVING, token, name, env_steps=number, pid=100 + number)
    assert scene.probes.doing() == {100: ("saving", 0), 101: ("saving", 1)}


def reports_of(scene, attempt=1):
    return Path(scene.paths.attempt_dir("Pong", attempt, TOKEN)) / contract.REPORTS_FILE


def kinds(scene):
    return [report.kind for _, _, report in scene.probes.reports()]


def test_no_descriptor_stays_open(scene):
    scene.watch()
    scene.write_beat()
    reports_of(scene).write_text('{"kind": "a"}\n')
    for _ in range(3):
        scene.look()
        scene.probes.reports()
        with contextlib.suppress(FileNotFoundError):
            Path(scene.paths.beat("Pong", 1)).unlink()
    reports_of(scene).unlink()
    reports_of(scene).mkdir()
    assert kinds(scene) == []
    assert open_below(scene.root) == []
