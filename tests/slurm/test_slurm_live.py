"""The real daemon on a real Slurm: links past the time limit, nodes that die, preemption, faults of the controller.

`tests/run slurm` runs them. Slurm's shortest time limit is a minute, and a node is called down after ten seconds of silence here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from box import ROOT, Box, until
from cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]  # the first one is cheap enough for CI, the others are slow

HERE = Path(__file__).parent
COUNTS = HERE / "programs" / "counts.py"
SCRIPT = HERE / "programs" / "script.py"


@pytest.fixture
def slurm(real: Cluster):
    """Both nodes are up and idle, before and after."""
    yield real
    with contextlib.suppress(AssertionError):
        real.run("scancel", "--user=root")
    for name in real.names:
        if name not in real._running:
            real.start_node(name)
        with contextlib.suppress(
            AssertionError
        ):  # a killed controller gives a job's number twice, and drains the node for it
            real.run("scontrol", "update", f"nodename={name}", "state=resume")
    real.until(lambda: set(real.states().values()) == {"idle"}, 60, "both nodes are idle again")


@pytest.fixture
def box(slurm: Cluster, tmp_path: Path):
    made = Box(tmp_path)
    made.env = {"SLURM_CONF": slurm.environ["SLURM_CONF"]}
    try:
        yield made
    finally:
        made.close()


def launcher(**more: object) -> str:
    """`[launcher]` of the tests: looks at the queue every second."""
    rows = {
        "partition": "main",
        "cpus": 1,
        "memory_mb": 300,
        "time_limit_s": 600,
        "signal_lead_s": 20,
        "poll_s": 1,
        "settle_s": 10,
    }
    return "[launcher]\nkind = 'slurm'\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in (rows | more).items())


LEVEL = "[level]\nslots = 4\nnum_envs = 2\nbatch_size = 32\n"


def configure(box: Box, programs: str, level: str = LEVEL, **more: object) -> None:
    """Reports of nodes are two seconds apart, so the limits of a stall are not those of a box."""
    box.config_file.write_text(f"""
[daemon]
state_dir = "{box.state}"
runtime_dir = "{box.runtime}"
sample_period_s = 0.2
alive_period_s = 0.5
{level}
{launcher(**more)}
{programs}
""")


def counting(name: str, *flags: str, keys: str = "") -> str:
    command = json.dumps([sys.executable, str(COUNTS), *flags])
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = 3.0\n{keys}\n'


def trace(box: Box, name: str = "a", event: str | None = None) -> list[dict]:
    path = box.state / "programs" / name / "trace"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if event in (None, line["event"])]


def step_of(box: Box, name: str = "a") -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(json.loads((box.state / "programs" / name / "counter.json").read_text())["step"])
    return 0


def writer(box: Box, name: str = "a") -> str:
    """The token of the attempt that saved last."""
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads((box.state / "programs" / name / "counter.json").read_text())["token"])
    return ""


def jobs_of(slurm: Cluster, state: str = "all") -> list[tuple[int, str, str]]:
    """(id, state, comment), from Slurm itself. A task of an array has an id of its own."""
    rows = slurm.run("squeue", "-h", "--array", f"--states={state}", "-o", "%A|%T|%k").splitlines()
    return [(int(number), said, comment) for number, said, comment in (row.split("|", 2) for row in rows)]


def running(slurm: Cluster, box: Box) -> list[int]:
    """Jobs of this box that have processes, or will."""
    return [number for number, said, comment in jobs_of(slurm, "PD,R,CG") if mark(box) in comment]


def mark(box: Box) -> str:
    from supervisor.features.slurm.adapters.launcher import mark_of

    return f"extralife:{mark_of(str(box.state))}:"


def training(box: Box, *flags: str, keys: str = "", saved: int = 0, level: str = LEVEL, **more: object) -> dict:
    """The daemon runs, and so does one training `a`, which has saved this step. The line of its begin."""
    configure(box, counting("a", *flags, keys=keys), level, **more)
    box.start()
    first = begun(box)
    until(lambda: step_of(box) >= saved, 60, f"a checkpoint of step {saved}")
    return first


def begun(box: Box, count: int = 1, name: str = "a", timeout_s: float = 60) -> dict:
    """The line of the `count`th begin."""
    return until(
        lambda: (trace(box, name, "begins")[count - 1 : count] or [None])[0], timeout_s, f"{name} to begin {count} times"
    )


def test_two_programs_run_to_their_end_and_each_was_submitted_once(box: Box, slurm: Cluster):
    foreign = "[program.mine]\ncommand = ['bash', '-c', 'for i in 1 2 3; do echo $i on $SLURMD_NODENAME; sleep 1; done']\n"
    configure(box, counting("a", "--steps", "60") + foreign)
    box.start()
    box.wait_phase("a", "DONE", 90)
    box.wait_phase("mine", "DONE", 90)
    assert trace(box, event="done")[0]["step"] == 60
    assert "3 on n" in (box.state / "programs" / "mine" / "stdout.log").read_text()
    assert len([row for row in jobs_of(slurm) if mark(box) in row[2]]) == 2
    assert box.ctl("tail", "mine").stdout.splitlines()[-1].startswith("3 on n")


@pytest.mark.slow
def test_two_real_games_train_to_their_end_as_jobs(box: Box, slurm: Cluster):
    games = "[training]\nsteps = 1500\nlearning_starts = 100\nreplay_size = 5000\n[program.Pong]\n[program.Breakout]\n"
    configure(box, games, memory_mb=2500)
    box.start()
    for name in ("Pong", "Breakout"):
        box.wait_phase(name, "DONE", 300)
    assert len([row for row in jobs_of(slurm) if mark(box) in row[2]]) == 2
    assert box.ctl("results").returncode == 0


@pytest.mark.slow
def test_a_time_limit_is_a_checkpoint_and_the_next_link_loses_no_step(box: Box, slurm: Cluster):
    training(box, time_limit_s=60, signal_lead_s=30)
    begun(box, 3, timeout_s=300)
    begins, leaves = trace(box, event="begins"), trace(box, event="leaves")
    assert [line["step"] for line in leaves[:2]] == [line["step"] for line in begins[1:3]]
    assert begins[2]["step"] > begins[1]["step"] > 0
    assert len({line["job"] for line in begins[:3]}) == 3
    kinds = {fact["kind"] for fact in box.facts(program="a")}
    assert "SlowRetry" not in kinds
    assert box.program("a")["phase"] in {"RUNNING", "STARTING"}


def script(box: Box, **more: object) -> Path:
    """The daemon runs a script that knows nothing of it; the directory where that writes."""
    out = box.directory / "out"
    command = json.dumps([sys.executable, str(SCRIPT), str(out), "--resume={resume}"])
    configure(
        box,
        f"[program.mine]\ncommand = {command}\nstop_signal = 'INT'\ncheckpoint_glob = '{out}/*.ckpt'\n"
        "checkpoint_step = 'step-(\\d+)'\nlog_regex = 'step=(?P<step>\\d+) loss=(?P<loss>\\S+)'\n",
        **more,
    )
    box.start()
    return out


def lines(path: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_script_that_knows_nothing_loses_no_step_at_its_time_limit(box: Box, slurm: Cluster):
    out = script(box, time_limit_s=60, signal_lead_s=15)
    until(lambda: len(lines(out / "begins")) >= 3, 300, "two links")
    begins, leaves = lines(out / "begins"), lines(out / "leaves")
    assert [begin[0] for begin in begins[:3]] == [0, leaves[0][0], leaves[1][0]]
    assert len({begin[1] for begin in begins}) == len(begins)
    assert "the time limit of job" in (out / "announced").read_text()
    until(lambda: str(box.program("mine")["ckpt_path"]).startswith(str(out)), 60, "its checkpoint in status")
    until(lambda: (box.program("mine")["steps"] or 0) > leaves[1][0], 60, "its steps in status")
    assert {fact["lost_steps"] for fact in box.facts("Resumed", "mine")} <= {0, None}


@pytest.mark.slow
def test_a_preempted_script_resumes_from_the_checkpoint_of_its_last_moment(box: Box, slurm: Cluster):
    """It is submitted anew: Slurm's own requeue would start it with the words of its first start."""
    out = script(box, options="--nodelist=n1")
    until(lambda: list(out.glob("*.ckpt")), 90, "a checkpoint")
    urgent = slurm.run(
        "sbatch", "--parsable", "-o/dev/null", "-purgent", "-wn1", "--exclusive", "-t5", given="#!/bin/sh\nsleep 5\n"
    )
    slurm.until_state(int(urgent), "COMPLETED", within_s=90)
    until(lambda: len(lines(out / "begins")) >= 2, 120, "the next job")
    assert lines(out / "begins")[1][0] == lines(out / "leaves")[0][0] > 0
    assert box.wait_fact("Exited", "mine")["cause"] == "job_preempted"
    assert not box.facts("NodeFaulted")


@pytest.mark.slow
def test_a_node_that_loses_power_is_replaced_and_the_training_goes_on(box: Box, slurm: Cluster):
    first = training(box, saved=40)
    slurm.kill_node(first["node"])
    second = begun(box, 2, timeout_s=180)
    assert second["node"] != first["node"]
    assert second["step"] >= 40
    assert box.wait_fact("NodeFaulted", timeout_s=60)["node"] == first["node"]
    assert len(running(slurm, box)) == 1


@pytest.mark.slow
def test_a_change_of_level_saves_first_and_asks_for_the_resources_of_the_new_one(box: Box, slurm: Cluster):
    light = '[load]\nmode = "fixed"\n[levels.light]\nslots = 4\nnum_envs = 2\nbatch_size = 32\n'
    heavy = '[levels.heavy]\nnum_envs = 4\n[levels.heavy.launcher]\npartition = "short"\ncpus = 2\n'
    configure(box, counting("a"), level=light + heavy)
    box.start()
    first = begun(box)
    box.wait_phase("a", "RUNNING", 60)
    assert (slurm.job(int(first["job"]))["Partition"], slurm.job(int(first["job"]))["NumCPUs"]) == ("main", "1")
    assert box.ctl("level", "pin", "heavy").returncode == 0
    second = begun(box, 2, timeout_s=90)
    assert second["step"] == trace(box, event="leaves")[0]["step"]
    assert (slurm.job(int(second["job"]))["Partition"], slurm.job(int(second["job"]))["NumCPUs"]) == ("short", "2")


@pytest.mark.slow
def test_a_crash_on_a_node_that_was_drained_for_its_gpu_is_the_nodes_fault(box: Box, slurm: Cluster):
    configure(box, counting("a"))
    box.start()
    first = begun(box)
    box.wait_phase("a", "RUNNING", 60)
    slurm.run("scontrol", "update", f"nodename={first['node']}", "state=drain", "reason=gpu ecc")
    try:
        os.kill(first["pid"], signal.SIGKILL)
        second = begun(box, 2, timeout_s=90)
        assert second["node"] != first["node"]
        fault = box.wait_fact("NodeFaulted", timeout_s=30)
        assert fault["node"] == first["node"]
        assert [(fact["cause"], fact["counted"]) for fact in box.facts("Exited")] == [("node_failed", False)]
        shown = until(lambda: nodes_of(box, first["node"], second["node"]), 60, "both nodes on record")
        assert (shown[first["node"]]["faults"], shown[second["node"]]["faults"]) == (1, 0)
    finally:
        slurm.run("scontrol", "update", f"nodename={first['node']}", "state=resume")


def nodes_of(box: Box, *names: str) -> dict[str, Any] | None:
    """Their rows, once the daemon has recorded the starts of their jobs."""
    shown = {each["name"]: each for each in json.loads(box.ctl("nodes", "--json").stdout)["nodes"]}
    return shown if shown.keys() >= set(names) else None


@pytest.mark.slow
def test_a_stale_node_can_not_write_over_the_newer_attempt(box: Box, slurm: Cluster):
    """Its slurmd dies, so Slurm starts the job elsewhere, while the first copy goes on and knows nothing of it."""
    first = training(box, saved=20)
    slurm.kill_slurmd(first["node"])
    second = begun(box, 2, timeout_s=180)
    assert second["node"] != first["node"]
    until(lambda: not alive(first["pid"]), 30, "the stale copy to be ended by its fence")
    until(lambda: writer(box) == second["token"], 30, "the new attempt to save")
    seen = step_of(box)
    until(lambda: step_of(box) > seen, 30, "the new attempt to go on")
    assert writer(box) == second["token"]


@pytest.mark.slow
def test_preemption_saves_first_and_goes_on_with_nothing_counted(box: Box, slurm: Cluster):
    training(box, saved=20, options="--nodelist=n1")
    urgent = slurm.run(
        "sbatch", "--parsable", "-o/dev/null", "-purgent", "-wn1", "--exclusive", "-t5", given="#!/bin/sh\nsleep 5\n"
    )
    slurm.until_state(int(urgent), "COMPLETED", within_s=90)
    second = begun(box, 2, timeout_s=120)
    assert second["step"] == trace(box, event="leaves")[0]["step"]
    assert not box.facts("NodeFaulted")


@pytest.mark.slow
def test_a_job_that_slurm_suspends_is_no_stall_and_goes_on(box: Box, slurm: Cluster):
    """As where another partition preempts by suspending: four times the limit of a stall."""
    limits = "[stall]\nfloor_s = 10\ncoarse_floor_s = 12\n"
    first = training(box, saved=20, level=LEVEL + limits)
    box.wait_phase("a", "RUNNING", 60)
    slurm.run("scontrol", "suspend", first["job"])
    until(lambda: job_state(box) == "SUSPENDED", 30, "the daemon to see it")
    seen = step_of(box)
    time.sleep(50)  # what is to be shown is that nothing happens in this time
    assert (step_of(box), job_state(box)) == (seen, "SUSPENDED"), "it did stand still"
    slurm.run("scontrol", "resume", first["job"])
    until(lambda: step_of(box) > seen, 30, "the job to train on")
    time.sleep(15)
    assert box.facts("Stalled") == []
    assert len(trace(box, event="begins")) == 1, box.ctl("history", "a").stdout
    box.ctl("stop", "a", check=True)
    box.wait_phase("a", "STOPPED", 60)
    waited_s = json.loads(box.ctl("accounts", "--json").stdout)["programs"][0]["seconds"]["WAITING"]
    assert waited_s > 45.0, "a suspended job waits for its cluster, it does not train"


def job_state(box: Box) -> str:
    return json.loads(box.ctl("status", "--json").stdout)["programs"][0]["job"]["state"]


@pytest.mark.slow
def test_a_job_that_eats_more_memory_than_it_asked_for_is_told(box: Box, slurm: Cluster):
    configure(box, counting("a", "--eat-mib", "900", keys='restart = "never"'))
    box.start()
    box.wait_phase("a", "EXITED", 120)
    assert "needed more memory than it was given" in box.ctl("history", "a").stdout


@pytest.mark.slow
def test_a_killed_daemon_adopts_its_job(box: Box, slurm: Cluster):
    first = training(box)
    box.wait_phase("a", "RUNNING", 60)
    box.kill_daemon()
    seen = step_of(box)
    until(lambda: step_of(box) > seen, 30, "the job to train on without a daemon")
    box.start()
    box.wait_phase("a", "RUNNING", 60)
    assert running(slurm, box) == [int(first["job"])]
    assert len(trace(box, event="begins")) == 1


@pytest.mark.slow
def test_a_controller_that_is_down_is_unknown_and_nothing_is_submitted_again(box: Box, slurm: Cluster):
    first = training(box)
    box.wait_fact("JobStarted", "a")
    slurm.save()
    slurm.kill_controller()
    box.wait_fact("ClusterUnreachable", timeout_s=90)
    seen = step_of(box)
    until(lambda: step_of(box) > seen + 20, 30, "the job to train on")
    assert box.program("a")["phase"] == "RUNNING"
    slurm.start_controller()
    box.wait_fact("ClusterReached", timeout_s=90)
    until(lambda: running(slurm, box) == [int(first["job"])], 60, "the same job, alone")
    assert len(trace(box, event="begins")) == 1


@pytest.mark.slow
def test_empty_answers_of_squeue_replace_no_job_that_runs_or_waits(box: Box, slurm: Cluster):
    wrapped, lies = box.directory / "bin", box.directory / "lies"
    wrapped.mkdir()
    (wrapped / "squeue").write_text(f'#!/bin/sh\n[ -e {lies} ] || exec {shutil.which("squeue")} "$@"\necho >> {lies}\n')
    (wrapped / "squeue").chmod(0o755)
    box.env["PATH"] = f"{wrapped}:{os.environ['PATH']}"
    four = "".join(counting(name) for name in "abcde")
    configure(box, four, "[level]\nslots = 5\nnum_envs = 2\nbatch_size = 32\n")
    box.start()
    until(lambda: len(box.facts("JobStarted")) == 4 and len(box.facts("JobSubmitted")) == 5, 60, "four jobs run, one waits")
    before = running(slurm, box)
    lies.touch()
    until(lambda: lies.stat().st_size >= 45, 90, "three quarters of a minute of empty answers")
    assert box.facts("Exited") == box.facts("SpawnFailed") == []
    lies.unlink()
    assert running(slurm, box) == before


@pytest.mark.slow
def test_a_shutdown_ends_although_the_controller_is_away(box: Box, slurm: Cluster):
    first = training(box)
    box.wait_fact("JobStarted", "a")
    slurm.save()
    slurm.kill_controller()
    try:
        assert "Shut down" in box.ctl("shutdown").stdout
        assert box.daemon.wait(60) == 0
        assert f"a (job {first['job']})" in box.facts("DaemonStopped")[0]["why"]
        seen = step_of(box)
        until(lambda: step_of(box) > seen, 30, "the job that was left to train on")
    finally:
        slurm.start_controller()
    box.start()
    box.wait_fact("Exited", "a")
    assert box.facts("Exited")[0]["cause"] == "stopped"
    until(lambda: len(trace(box, event="begins")) == 2, 60, "it goes on as another job")


@pytest.mark.slow
def test_a_job_deleted_by_hand_stays_down_until_somebody_starts_it(box: Box, slurm: Cluster):
    first = training(box)
    box.wait_phase("a", "RUNNING", 60)
    slurm.run("scancel", first["job"])
    box.wait_phase("a", "STOPPED", 90)
    assert not running(slurm, box)
    assert box.ctl("start", "a").returncode == 0
    assert begun(box, 2, timeout_s=90)["step"] > 0


# --- seeds ---

SEEDS = ("a-s1", "a-s2", "a-s3", "a-s4")


def seeds(count: int = 4, keys: str = "") -> str:
    return counting("a", "--seed={seed}", keys=f"seeds = {list(range(1, count + 1))}\n{keys}")


def begins(box: Box, *names: str) -> list[int]:
    """How often each has begun."""
    return [len(trace(box, name, "begins")) for name in names or SEEDS]


def accepted(calls: Path) -> list[list[str]]:
    """(token of the comment, number) of each submission that Slurm has taken."""
    return [line.split()[1:] for line in calls.read_text().splitlines() if line.startswith("accepted")]


def until_begun(box: Box, *counts: int, timeout_s: float = 120) -> None:
    until(
        lambda: all(have >= want for have, want in zip(begins(box), counts, strict=True)), timeout_s, f"begins of {counts}"
    )


def all_run(box: Box) -> None:
    for name in SEEDS:
        box.wait_phase(name, "RUNNING", 90)


@pytest.mark.slow
def test_a_daemon_killed_between_the_submission_of_seeds_and_its_record_adopts_all_of_them(
    box: Box, slurm: Cluster, tmp_path: Path
):
    calls = wrapped(box, tmp_path / "bin")
    (tmp_path / "bin" / "FAULT").write_text("silent")
    configure(box, seeds())
    box.start()
    until(lambda: accepted(calls), 60, "Slurm to take the first job")
    box.kill_daemon()
    assert not box.facts("JobSubmitted")
    box.start()
    until_begun(box, 1, 1, 1, 1)
    all_run(box)
    pause(2 * 10)  # longer than `settle_s`: nothing more is submitted
    assert (begins(box), len(accepted(calls)), len(running(slurm, box))) == ([1, 1, 1, 1], 4, 4)


@pytest.mark.slow
def test_the_daemon_in_a_job_of_its_own_is_followed_by_another_that_adopts_everything(box: Box, slurm: Cluster):
    configure(box, counting("a"))
    script = str(ROOT / "deploy" / "slurm" / "daemon.sbatch")
    out = f"--output={box.directory}/daemon.out"
    first = int(slurm.run("sbatch", "--parsable", f"--chdir={ROOT}", out, script, str(box.config_file)))
    began = begun(box, timeout_s=90)
    box.wait_phase("a", "RUNNING", 60)
    daemons = slurm.run("squeue", "-h", "--name=extralife-daemon", "-o", "%A %T").splitlines()
    assert sorted(line.split()[1] for line in daemons) == ["PENDING", "RUNNING"], "one runs, and one waits for its end"
    slurm.run("scancel", "--signal=TERM", "--batch", str(first))
    slurm.until_state(first, "COMPLETED", "FAILED", within_s=60)
    until(lambda: len(box.facts("DaemonStarted")) == 2, 90, "the successor to begin")
    box.wait_phase("a", "RUNNING", 60)
    assert len(trace(box, event="begins")) == 1, "the training went on"
    assert alive(began["pid"])
    assert box.ctl("shutdown").returncode == 0
    until(lambda: not slurm.run("squeue", "-h", "--name=extralife-daemon"), 60, "no successor after a shutdown")
    assert trace(box, event="leaves")
    (ROOT / "extralife-daemon.out").unlink()  # the successor's; the first one's is elsewhere


@pytest.mark.slow
def test_twenty_random_faults_submit_nothing_twice(box: Box, slurm: Cluster, tmp_path: Path):
    """The daemon is killed, sbatch answers late, fails after submitting or not at all, the controller restarts or stalls."""
    dice = random.Random(20)
    calls = wrapped(box, tmp_path / "bin")
    configure(box, seeds(3) + counting("b"), settle_s=6)
    names = [*SEEDS[:3], "b"]
    for _ in range(20):
        fault = dice.choice(["kill", "kill", "late", "after", "refuse", "controller", "stall"])
        (tmp_path / "bin" / "FAULT").write_text(fault)
        if box.daemon is None or box.daemon.poll() is not None:
            box.start(wait=False)
        pause(dice.uniform(0.5, 4.0))
        if fault == "controller":
            slurm.kill_controller()
            slurm.start_controller()
        elif fault == "stall":
            slurm.pause_controller()
            pause(dice.uniform(0.5, 3.0))
            slurm.resume_controller()
        elif fault == "kill" or dice.random() < 0.3:
            box.kill_daemon()
        for name in dice.sample(names, dice.randint(1, 3)):  # workers die, so that something is submitted again
            for line in trace(box, name, "begins")[-1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(line["pid"], signal.SIGKILL)
    (tmp_path / "bin" / "FAULT").write_text("none")
    if box.daemon is None or box.daemon.poll() is not None:
        box.start(wait=False)
    for name in names:
        until(lambda name=name: trace(box, name) and alive(trace(box, name, "begins")[-1]["pid"]), 240, f"{name} to train")
    until(lambda: len(running(slurm, box)) == 4, 60, "four jobs for four programs")
    taken = [token for token, _ in accepted(calls)]
    assert len(taken) >= 2
    assert len(taken) == len(set(taken)), "one attempt was submitted twice"
    for name in names:
        tokens = [line["token"] for line in trace(box, name, "begins")]
        assert len(tokens) == len(set(tokens)), "one attempt ran twice"


def pause(seconds: float) -> None:
    time.sleep(seconds)


def wrapped(box: Box, where: Path) -> Path:
    """An sbatch in front of the real one that misbehaves as the file FAULT says. Returns its log: what Slurm accepted."""
    where.mkdir()
    (where / "FAULT").write_text("none")
    real_one, calls = shutil.which("sbatch"), where / "CALLS"
    calls.touch()
    (where / "sbatch").write_text(f"""#!/bin/bash
fault=$(cat {where}/FAULT) script=$(cat) lost='sbatch: error: Batch job submission failed: Socket timed out on send/recv operation'
token=$(sed -n 's/^#SBATCH --comment=.*:\\([0-9a-f]*\\)"*$/\\1/p' <<<"$script")
[[ $fault != refuse ]] || {{ echo "$lost" >&2; exit 1; }}
[[ $fault != late ]] || sleep 3
number=$({real_one} "$@" <<<"$script") || exit
echo "accepted $token $number" >>{calls}
[[ $fault != silent ]] || exec sleep 60
[[ $fault != after ]] || {{ echo "$lost" >&2; exit 1; }}
echo "$number"
""")
    (where / "sbatch").chmod(0o755)
    box.env["PATH"] = f"{where}:{os.environ['PATH']}"
    return calls


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
