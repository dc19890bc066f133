"""One contract for every launcher: processes of this machine, jobs of a fake Slurm, and jobs of a real one.

What differs is in `Local` and `Cluster`. A test may not ask which of them it runs on.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import fake_slurm
import pytest
from attempts_kit import BOOT, BootClock, Inbox, spec
from tools import ROOT

from supervisor.adapters import procfs
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.figures.thread import FigureReader
from supervisor.adapters.process import processes
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.adapters.process.probes import LocalProbes
from supervisor.adapters.process.processes import LocalLauncher, make_dir
from supervisor.features.slurm import decide as cluster
from supervisor.features.slurm.adapters import node
from supervisor.features.slurm.adapters.client import Slurm
from supervisor.features.slurm.adapters.launcher import SlurmLauncher, remote_paths
from supervisor.features.slurm.adapters.probes import SlurmProbes
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.model.inputs import Ended, SpawnBroke, SpawnSucceeded, Survival
from supervisor.model.settings import Paths, Progress
from supervisor.policy.script.figures import Sources
from supervisor.policy.worker.diagnosis import Diagnosis
from workers import contract

PATIENCE_S = 60.0
SETTINGS = LauncherSettings(
    kind="slurm", partition="main", cpus=1, memory_mb=300, time_limit_s=600.0, signal_lead_s=20.0, poll_s=0.3, settle_s=5.0
)


class Launched:
    """A launcher with the readers of its programs, as the daemon wires them."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.specs = root, BootClock(), {}
        self.paths = self.paths_of(Paths(str(root / "state"), str(root / "run")))
        make_dir(root / "state")
        make_dir(root / "run")
        self.launcher = None
        self.begin_daemon()

    def paths_of(self, paths: Paths) -> Paths:
        return paths

    def begin_daemon(self) -> None:
        """As at the daemon's start; the one before is gone, and nothing is remembered."""
        if self.launcher is not None:
            self.end_daemon()
        self.inbox = Inbox()
        self.figures = FigureReader(self.paths, self.clock, self.specs.get)
        self.own = OwnCheckpoints(self.paths, self.clock, self.inbox, KeptCopies())
        self.make()
        self.launcher.start()

    def newest_own(self, name: str, *_):
        found = self.specs.get(name)
        return None if found is None else self.own.newest(found)

    def end_daemon(self) -> None:
        self.launcher.close()
        self.figures.stop()
        self.own.close()

    def begin(self, code: str, attempt: int = 1, *, name: str = "mine", **fields: object) -> str:
        """Start an attempt of a Python program; its token."""
        return self.start([sys.executable, "-S", "-u", "-c", code], attempt, name=name, **fields)

    def start(self, argv: list[str], attempt: int = 1, *, name: str = "mine", **fields: object) -> str:
        token = secrets.token_hex(16)
        self.specs[name] = spec(name, argv, **{"progress": Progress.AUTO, "directory": str(self.root), **fields})
        self.launcher.spawn(self.specs[name], attempt, token)
        return token

    def begun(self, token: str, attempt: int = 1, *, name: str = "mine") -> SpawnSucceeded:
        """Its worker runs, and is watched from now on."""
        found = self.inbox.expect(SpawnSucceeded, token)
        self.probes.watch(self.specs[name], attempt, token, found.pid)
        return found

    def ended(self, token: str):
        return self.inbox.expect(Ended, token).ending

    def until(self, seen, what: str, name: str = "mine"):
        """The first reading of the program of which `seen` is true."""
        ends_s, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < ends_s:
            found = self.probes.sample().get(name)
            if found is not None and seen(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}; the newest reading is {found}")

    def file(self, name: str) -> Path:
        """A file that the program writes, once it is there."""
        path, ends_s = self.root / name, time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < ends_s, f"{name} was never written"
            time.sleep(0.02)
        return path


class Local(Launched):
    def make(self) -> None:
        make_dir(Path(self.paths.notify_socket("mine")).parent)
        self.edges = NotifySockets(self.paths.notify_socket, lambda: None)
        self.launcher = LocalLauncher(self.paths, BOOT, self.inbox, self.clock, shown=self.figures.last)
        self.probes = LocalProbes(self.paths, self.clock, self.edges, own=self.newest_own, figures=self.figures)

    def end_daemon(self) -> None:
        super().end_daemon()
        self.edges.close()

    def close(self) -> None:
        self.end_daemon()
        for name in self.specs:
            record = processes.read_record(self.paths.shim_record(name))
            if record is not None:
                processes.kill_attempt(record.token, (record.shim_pid, record.shim_start_ticks))


class Cluster(Launched):
    def __init__(self, root: Path, commands: str = "") -> None:
        self.commands = commands
        super().__init__(root)

    def paths_of(self, paths: Paths) -> Paths:
        return remote_paths(paths)

    def make(self) -> None:
        slurm = Slurm(directory=self.commands)
        self.launcher = SlurmLauncher(self.paths, lambda: SETTINGS, slurm, self.inbox, self.clock, self.figures.last)
        self.probes = SlurmProbes(
            self.paths, self.clock, self.launcher.begun, self.newest_own, self.figures, self.launcher.suspended
        )  # fmt: skip

    def close(self) -> None:
        self.end_daemon()
        answer = Slurm(directory=self.commands).jobs()
        live = [job.target for job in answer.found if not job.ended]
        if live:
            Slurm(directory=self.commands).cancel(live)
        ends_s = time.monotonic() + PATIENCE_S
        while any(not job.ended for job in Slurm(directory=self.commands).jobs().found):
            assert time.monotonic() < ends_s, "jobs are left"
            time.sleep(0.1)


CLUSTERS = ["fake slurm", pytest.param("slurm", marks=[pytest.mark.slurm, pytest.mark.slow])]
KINDS = ["local", *CLUSTERS]


@pytest.fixture(params=KINDS)
def launched(request, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LOCK_WAIT_S", 0.2)
    if request.param == "local":
        made = Local(tmp_path)
    elif request.param == "fake slurm":
        made = Cluster(tmp_path, str(fake_slurm.install(tmp_path / "bin")))
        made.hold, made.release = (tmp_path / "bin" / "HOLD").touch, (tmp_path / "bin" / "HOLD").unlink
    else:
        real = request.getfixturevalue("real")
        made = Cluster(tmp_path)
        made.hold = lambda: real.run("scontrol", "update", "PartitionName=main", "State=DOWN")
        made.release = lambda: real.run("scontrol", "update", "PartitionName=main", "State=UP")
    yield made
    made.close()


def alive(pid: int) -> bool:
    found = procfs.read_stat(pid)
    return found is not None and found.alive


def cause(ending) -> str:
    by_exit = Diagnosis("by its exit", counted=True, why="")
    return cluster.FEATURE.verdict(ending, (0,), by_exit).cause


def test_a_program_sees_its_contract_and_its_end_is_known(launched):
    code = """
import json, os, sys
names = ("PROGRAM", "TOKEN", "ATTEMPT", "RUN_DIR", "LEAVE_BY", "BEAT", "CONTROL", "STACKS")
found = {name: os.environ.get("EXTRALIFE_" + name) for name in names}
print(json.dumps(found | {"cwd": os.getcwd(), "mine": os.environ["MINE"], "notify": os.environ.get("RL_X")}))
print("the last words", file=sys.stderr)
sys.exit(3)
"""
    token = launched.begin(code, 7, env=(("MINE", "a b"),))
    assert launched.begun(token, 7).pid > 0
    ending = launched.ended(token)
    assert (ending.code, ending.signal, cause(ending)) == (3, None, "by its exit")
    assert ending.last_lines[-1] == "the last words"
    told = json.loads(Path(launched.paths.log("mine", "stdout")).read_text())
    assert None not in (told[name] for name in ("LEAVE_BY", "BEAT", "CONTROL", "STACKS"))
    assert (told["PROGRAM"], told["TOKEN"], told["ATTEMPT"], told["cwd"], told["mine"]) == (
        "mine", token, "7", str(launched.root), "a b",
    )  # fmt: skip
    assert told["RUN_DIR"] == launched.paths.run_dir("mine")
    assert not Path(told["LEAVE_BY"]).exists(), "no end is announced"


def test_a_program_that_is_killed_has_ended_by_that_signal(launched):
    token = launched.begin("import os; os.kill(os.getpid(), 9)")
    ending = launched.ended(token)
    assert (ending.code, ending.signal, cause(ending)) == (None, 9, "by its exit")


def test_a_program_that_does_not_exist_is_said_in_one_sentence(launched):
    token = launched.start(["/nonexistent/python", "x"])
    assert "/nonexistent/python" in launched.inbox.expect(SpawnBroke, token).error


SAVES = """
import os, signal, sys, time
def leave(number, frame):
    open(f"saved by {number}", "w").close()
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
open("ready", "w").close()
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_program_is_asked_to_save_and_leave_by_its_own_signal(launched, name):
    token = launched.begin(SAVES, stop_signal=name)
    launched.begun(token)
    launched.file("ready")
    launched.launcher.ask_to_leave("mine", token)
    launched.launcher.ask_to_leave("mine", token)
    assert launched.ended(token).code == 75
    assert launched.file(f"saved by {signal.Signals['SIG' + name].value}")


def test_a_stubborn_tree_is_ended_with_all_that_it_has_started(launched):
    code = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open("pids.new", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
while True:
    time.sleep(1)
"""
    token = launched.begin(code)
    launched.begun(token)
    pids = [int(each) for each in launched.file("pids").read_text().split()]
    launched.launcher.ask_to_leave("mine", token)
    launched.launcher.kill_tree("mine", token)
    launched.ended(token)
    assert not any(alive(pid) for pid in pids)


def test_an_attempt_is_adopted_after_a_restart_of_the_daemon(launched):
    token = launched.begin(SAVES, 4)
    first = launched.begun(token, 4)
    launched.file("ready")
    launched.begin_daemon()
    found = launched.launcher.survey({"mine": (4, token), "other": (1, secrets.token_hex(16))})
    assert (found["mine"].survival, found["mine"].pid) == (Survival.ALIVE, first.pid)
    assert found["other"].survival is Survival.NEVER
    assert launched.launcher.unrecorded_workers(["mine"]).get("mine", (4, found["mine"]))[0] == 4
    launched.launcher.adopt("mine", 4, found["mine"])
    launched.probes.watch(launched.specs["mine"], 4, token, first.pid, adopted=True)
    launched.until(lambda sample: sample.proc_state == "S", "the adopted worker sleeps")
    launched.launcher.ask_to_leave("mine", token)
    assert launched.ended(token).code == 75


def test_the_fence_names_the_attempt_that_runs_and_two_never_run_at_once(launched):
    code = SAVES.replace('open("ready"', 'open(os.environ["EXTRALIFE_ATTEMPT"]')
    token = launched.begin(code)
    first = launched.begun(token)
    fence = Path(launched.paths.run_dir("mine"), contract.FENCE_FILE)
    assert fence.read_text().strip() == token
    newer = launched.begin(code, 2)
    ends_s = time.monotonic() + PATIENCE_S
    while alive(first.pid):  # either the older one is ended, or the newer one is refused
        launched.probes.sample()
        if any(isinstance(item, SpawnBroke) and item.token == newer for item in [*launched.inbox._kept, *_queued(launched)]):
            assert fence.read_text().strip() == token
            return
        both = (launched.root / "2").exists() and alive(first.pid)  # in this order: the older one may have ended by now
        assert not both, "both run"
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    launched.inbox.expect(SpawnSucceeded, newer)
    assert fence.read_text().strip() == newer


def _queued(launched):
    with launched.inbox._queue.mutex:
        return list(launched.inbox._queue.queue)


def test_a_suspended_program_is_continued(launched):
    token = launched.begin("import time\nwhile True: time.sleep(0.05)")
    os.kill(launched.begun(token).pid, signal.SIGSTOP)
    launched.until(lambda sample: sample.proc_state == "T", "it is suspended")
    launched.launcher.signal("mine", token, "SIGCONT")
    launched.until(lambda sample: sample.proc_state == "S", "it goes on")


def test_a_tree_that_stands_still_for_a_while_is_not_asked_to_leave(launched):
    """As by the suspension of a job or of a whole machine. The interrupted wait for a signal must not return one."""
    code = SAVES.replace("    time.sleep(0.05)", "    print(time.monotonic(), flush=True)\n    time.sleep(0.2)")
    started = launched.begun(launched.begin(code))
    launched.file("ready")
    launched.until(lambda sample: sample.progress_at_s is not None, "it writes")
    above = procfs.read_stat(started.shim_pid).parent  # on a node this is the process that waits for Slurm's signals
    tree = [*([above] if above != os.getpid() else []), started.shim_pid, started.pid]
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(node.PERIOD_S + 1.0)  # longer than any of their waits
    for pid in tree:
        os.kill(pid, signal.SIGCONT)
    goes_on_s = launched.clock.now_s()
    launched.until(lambda sample: sample.progress_at_s > goes_on_s + 1.0, "it writes on")
    assert list(launched.root.glob("saved by *")) == []
    assert alive(started.pid)


def begin_group(launched, *names):
    """Programs of one group, started together; by name the token of each. A program is ready once it has written its name."""
    code = SAVES.replace('open("ready"', 'open(os.environ["EXTRALIFE_PROGRAM"]').replace(
        "saved by {number}", "{os.environ['EXTRALIFE_PROGRAM']} saved"
    )  # fmt: skip
    tokens = {name: launched.begin(code, name=name, group="seeds") for name in names}
    for name in names:
        launched.begun(tokens[name], name=name)
        launched.file(name)
    return tokens


def test_programs_of_a_group_that_start_together_have_each_a_life_of_their_own(launched):
    tokens = begin_group(launched, "a", "b", "c")
    for name, token in tokens.items():
        assert Path(launched.paths.run_dir(name), contract.FENCE_FILE).read_text().strip() == token
    launched.launcher.ask_to_leave("b", tokens["b"])
    assert launched.ended(tokens["b"]).code == 75
    assert launched.file("b saved")
    launched.begin_daemon()
    found = launched.launcher.survey({name: (1, tokens[name]) for name in ("a", "c")})
    assert {each.survival for each in found.values()} == {Survival.ALIVE}
    for name, survivor in found.items():
        launched.launcher.adopt(name, 1, survivor)
    os.kill(found["a"].pid, signal.SIGKILL)
    assert launched.ended(tokens["a"]).signal == 9
    newer = launched.begin(SAVES, 2, name="a", group="seeds")
    launched.begun(newer, 2, name="a")
    launched.file("ready")
    assert alive(found["c"].pid)
    for name, token in (("a", newer), ("c", tokens["c"])):
        launched.launcher.ask_to_leave(name, token)
        assert launched.ended(token).code == 75


BEATS = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from workers import contract
me = contract.Client(live_period_s=0.2)
me.phase(contract.WorkerPhase.RESTORING)
me.report("resumed", step=40)
me.phase(contract.WorkerPhase.TRAINING, env_steps=40)
for step in range(40, 100000):
    me.progress(env_steps=step, mean_return=1.5)
    time.sleep(0.05)
"""


def test_beats_and_reports_of_a_program_are_read(launched):
    token = launched.begin(BEATS, 2)
    launched.begun(token, 2)
    sample = launched.until(lambda sample: (sample.steps or 0) > 41, "it trains")
    assert (sample.phase, sample.ready, sample.source, sample.beat_lost) == ("training", True, "beat", False)
    assert 0.0 <= launched.clock.now_s() - sample.progress_at_s < PATIENCE_S
    assert launched.until(lambda now: now.steps > sample.steps, "it goes on")
    found = [(program, report.kind, report.fields["step"]) for program, _, report in launched.probes.reports()]
    assert found == [("mine", "resumed", 40)]


WRITES = """
import json, pathlib, sys, time, zipfile
pathlib.Path("runs").mkdir()
with zipfile.ZipFile("runs/step=30.ckpt", "w") as file:
    file.writestr("weights", b"weights")
for step in range(10, 10_000, 10):
    print(f"step={step} loss=0.5", flush=True)
    with open("runs/metrics.jsonl", "a") as file:
        file.write(json.dumps({"eval": step / 10.0}) + "\\n")
    if pathlib.Path("enough").exists():
        print(f"step={step + 10_000}", flush=True)
        sys.exit(0)
    time.sleep(0.1)
"""


def test_figures_and_checkpoints_of_a_script_that_knows_nothing_are_read(launched):
    """On this machine as on a cluster."""
    sources = Sources(
        log_regex=(r"step=(?P<step>\d+) loss=(?P<loss>\S+)", r"step=(?P<step>\d+)$"), json_lines="runs/*.jsonl",
        names=(("mean_return", "eval"),), target_steps=5000,
    )  # fmt: skip
    token = launched.begin(WRITES, figures=sources, checkpoint_glob="runs/*.ckpt", checkpoint_step=r"step=(\d+)")
    launched.file("runs/metrics.jsonl")  # who looks before it is there looks again after ten seconds
    launched.begun(token)
    sample = launched.until(
        lambda now: (now.steps or 0) > 30 and now.figures.get("loss") == 0.5 and now.figures.get("mean_return") is not None,
        "its figures",
    )
    assert (sample.first_steps[0], sample.target, sample.target_kind, sample.source) == (10, 5000, "env_steps", "figures")
    assert (sample.phase, sample.ready, sample.unread) == ("training", True, "")
    saved = launched.until(lambda now: now.own is not None and now.own.path, "its checkpoint").own
    assert (saved.path, saved.step, saved.torn) == (f"{launched.root}/runs/step=30.ckpt", 30, "")
    assert launched.clock.now_s() - saved.saved_at_s < PATIENCE_S
    (launched.root / "enough").touch()
    ending = launched.ended(token)
    assert (ending.code, ending.steps) == (0, None)
    assert ending.shown.steps > 10_000, "the last line counts too"


def test_an_end_while_no_daemon_runs_shows_what_its_output_shows(launched):
    # No pipe reaches the process of a job, so it looks for a file, for a minute at most.
    waits = "import os, time\nfor _ in range(1200): os.path.exists('go') or time.sleep(0.05)\n"
    code = f"{waits}print('10/20', '11/20', sep='\\n', flush=True)"
    token = launched.begin(code, figures=Sources((r"(?P<step>\d+)/(?P<target>\d+)",)))
    launched.begun(token)
    launched.begin_daemon()
    (launched.root / "go").touch()
    launched.file(f"{launched.paths.attempt_dir('mine', 1, token)}/{contract.EXIT_FILE}")
    found = launched.launcher.survey({"mine": (1, token)})["mine"]
    if found.survival is Survival.ALIVE:  # a job ends once the cluster has said so
        launched.launcher.adopt("mine", 1, found)
    ending = found.ending or launched.ended(token)
    assert (ending.code, ending.shown.steps, ending.shown.target) == (0, 11, 20)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "import time\ntime.sleep(0.5)\nwhile True: print('x', flush=True); time.sleep(0.3)"),
        (
            {"progress": Progress.FILES, "progress_glob": "out/*"},
            "import os, time\nos.mkdir('out')\nfor n in range(9999): open(f'out/{n}', 'w').close(); time.sleep(0.3)",
        ),
    ],
    ids=["log", "files"],
)
def test_a_log_or_files_that_grow_are_progress(launched, fields, code):
    token = launched.begin(code, **fields)
    launched.begun(token)
    first = launched.until(lambda sample: sample.progress_at_s is not None, "its first sign of progress")
    assert (first.ready, first.phase) == (True, "training")
    launched.until(lambda sample: sample.progress_at_s > first.progress_at_s, "its next one")


def test_a_silent_program_that_works_has_a_witness(launched):
    works = "while True:\n began = time.process_time()\n while time.process_time() < began + 0.02: pass\n time.sleep(0.1)"
    token = launched.begin(f"import time\n{works}")  # a sixth of the time: the cores are for other tests
    launched.begun(token)
    sample = launched.until(lambda sample: sample.witness, "a witness")
    assert (sample.witness, sample.progress_at_s, sample.ready) == ("cpu", None, False)
