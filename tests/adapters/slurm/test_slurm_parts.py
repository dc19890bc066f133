"""What lies between the daemon and a job: the batch script, the claim and the fence on the node, reports, readings."""

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_kit import NEXT, SETTINGS, SPEC, TOKEN, World
from tools import ROOT

from supervisor.adapters.process.processes import KEPT_ATTEMPTS
from supervisor.features.slurm.adapters import node
from supervisor.features.slurm.adapters.client import Unknown
from supervisor.features.slurm.adapters.job_files import node_order
from supervisor.features.slurm.adapters.report import SlurmControls
from supervisor.features.slurm.adapters.script import Tag, Terms, batch_script, tag_of
from supervisor.features.slurm.messages import JobsSeen
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.model.commands import SetControl
from supervisor.model.inputs import Ended, SpawnBroke, Survival, Survivor
from supervisor.policy.script.placeholders import Template
from workers import contract


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# --- the batch script ---


def test_a_batch_script_is_whole_and_readable(world):
    world.spawn()
    script = (world.directory() / "job.sh").read_text()
    assert world.cluster.scripts == [script]
    start = script.splitlines()[-1]
    assert (
        script[: script.rindex("exec ")]
        == f"""\
#!/bin/bash
# extralife: attempt 3 of Pong. The daemon wrote this file; a change of it has no effect.
#SBATCH --job-name=extralife-{world.launcher.mark}-Pong
#SBATCH --comment=extralife:{world.launcher.mark}:Pong:3:{TOKEN}
#SBATCH --dependency=singleton
#SBATCH --partition=a100
#SBATCH --account=lab
#SBATCH --qos=night
#SBATCH --gres=gpu:2
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=1000M
#SBATCH --time=121
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output="{world.directory()}/job-%j.out"
#SBATCH --exclude=n1,n2
#SBATCH --requeue
#SBATCH --nice=5
#SBATCH --reservation=x
trap '' USR1  # until the program runs, a signal must not end the script
extralife_failed() {{  # its arguments: status, depth of sourced files, line (1: not known)
    [ $2 -eq 1 ] || return 0  # the status of the sourced file itself counts
    trap - ERR EXIT TERM
    [ $1 -lt 128 ] || exit $1  # a signal, such as Slurm's own, is no fault of a line
    {start} $1 $(($3 - 31)) "$(sed -n $3p "$0")"
}}
trap 'exit 143' TERM
trap 'extralife_failed $? 1 1' EXIT
trap 'extralife_failed $? ${{#BASH_SOURCE[@]}} $LINENO' ERR
module load conda
conda activate rl
trap - ERR EXIT TERM
"""
    )
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    command = shlex.split(script.splitlines()[-1])
    assert command[1] == sys.executable
    assert Path(command[-2]).parent.joinpath("workers/contract.py").is_file()
    assert json.loads(Path(command[-1]).read_text())["token"] == TOKEN
    assert (world.directory().parents[1] / "fence").read_text() == TOKEN + "\n"


def test_a_time_limit_is_rounded_up_to_whole_minutes_and_what_is_not_asked_for_is_not_named():
    for limit_s, minutes in ((1.0, 1), (60.0, 1), (60.1, 2), (7200.0, 120)):
        terms = Terms(LauncherSettings(kind="slurm", time_limit_s=limit_s, signal_lead_s=60.5, constraint="a&b", gres="x:1"))
        text = batch_script(terms, Tag("ab" * 4, "P", 1, TOKEN), command=("x", "y z"), output="/o")
        options = {f"time={minutes}", "signal=B:USR1@61", 'constraint="a&b"', "gres=x:1"}
        assert options <= {line.removeprefix("#SBATCH --") for line in text.splitlines()}
        assert not any(f"--{name}=" in text for name in ("partition", "account", "qos", "mem", "exclude"))
        assert text.endswith("exec x 'y z'\n")


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({}, "--requeue"),
        ({"checkpoint_glob": "*.pt"}, "--no-requeue"),
        ({"argv": ("x", "--resume={resume}"), "template": Template((("resume", "/c"),))}, "--no-requeue"),
        ({"argv": ("x", "{seed}"), "template": Template((("seed", "1"),))}, "--requeue"),
    ],
)
def test_slurm_may_not_start_a_script_again_that_is_given_an_old_checkpoint(world, fields, option):
    world.spawn(replace(SPEC, **fields))
    assert f"#SBATCH {option}\n" in world.cluster.scripts[0]


def test_a_job_is_known_by_its_comment_even_if_the_cluster_adds_to_it():
    tag = Tag("ab" * 4, "Pong:s1", 3, TOKEN)
    assert tag_of(f"checked by site policy; {tag} ok") == tag
    assert tag_of("extralife:me:you") is None
    assert tag.name == "extralife-abababab-Pong:s1"


# --- submitting ---


@pytest.mark.parametrize("fields", [{"user": "nobody"}, {"stdin": True}])
def test_a_program_that_no_job_can_run_is_refused_in_a_sentence(world, fields):
    world.spawn(replace(SPEC, **fields))
    assert world.inbox.items[0].error == (
        "cannot submit Pong: a job runs as the user who submits it, and has no standard input: remove `user` and `stdin`"
    )
    assert world.cluster.scripts == []


def test_a_job_whose_node_still_boots_waits_as_long_as_slurm_lets_it(world):
    world.spawn()
    for _ in range(30):
        world.look(world.row(state="CONFIGURING", nodes=("n7",)))
    assert (world.launcher.begun(TOKEN), world.cluster.cancelled) == (False, [])
    world.launcher.ask_to_leave("Pong", TOKEN)
    world.look(world.row(state="CONFIGURING", nodes=("n7",)))
    assert "17" in world.cluster.cancelled, "and is deleted when it is to leave"


def test_a_job_that_is_suspended_before_its_program_began_is_not_given_up(world):
    world.spawn()
    for _ in range(30):
        world.look(world.row(state="SUSPENDED", nodes=("n7",)))
    assert (world.launcher.suspended(TOKEN), world.cluster.cancelled) == (True, [])
    world.look(world.row(state="RUNNING", nodes=("n7",)))
    assert not world.launcher.suspended(TOKEN)


@pytest.mark.parametrize("left", [contract.EXIT_FILE, "claim"])
def test_an_attempt_whose_job_was_deleted_in_the_queue_is_not_submitted_again(world, left):
    world.directory().mkdir(parents=True)
    (world.directory() / left).touch()
    world.spawn()
    assert world.inbox.items[0].error == (
        "cannot submit Pong: its last job was deleted while Slurm had it back in its queue; it is submitted as another attempt"
    )
    assert world.cluster.scripts == []


def test_a_job_is_continued_once_it_runs_and_gets_no_other_signal(world):
    world.spawn()
    for name in ("SIGHUP", "SIGCONT"):
        world.launcher.signal("Pong", TOKEN, name)
    world.report()
    world.look(world.row(state="RUNNING", nodes=("n7",)))
    world.launcher.signal("Pong", TOKEN, "SIGCONT")
    world.launcher.step()
    assert world.cluster.cancelled == [("17", "CONT")]


def test_a_lost_answer_is_looked_for_and_given_up_only_when_slurm_does_not_know_the_job(world):
    world.cluster.answer = Unknown("sbatch has not answered within 30s", "timeout")
    world.spawn()
    assert [type(item) for item in world.inbox.items] == [JobsSeen]
    world.cluster.rows = Unknown("no controller", "unreachable")
    world.clock.at_s += 1000.0
    world.launcher.step()
    assert not any(isinstance(item, SpawnBroke) for item in world.inbox.items)
    broke = [item for item in world.look() if isinstance(item, SpawnBroke)]
    error = "cannot submit Pong: sbatch gave no answer, and Slurm has not shown such a job for 18m 20s"
    assert [item.error for item in broke] == [error]
    assert len(world.cluster.scripts) == 1


def test_a_job_that_slurm_has_started_again_is_found_by_the_token_after_its_own(world):
    world.spawn()
    Path(world.paths.attempt_dir("Pong", 4, NEXT)).mkdir(parents=True)
    for rows, survival in (([world.row(restarts=1)], Survival.ALIVE), ([], Survival.NEVER)):
        world.cluster.rows = rows
        world.restart()
        assert world.launcher.survey({"Pong": (4, NEXT)}) == {"Pong": Survivor(NEXT, survival)}


def test_without_slurm_on_this_host_nothing_was_submitted(world):
    world.cluster.answer = Unknown("sbatch cannot be run: No such file or directory", "missing")
    world.spawn()
    assert world.inbox.items[0].error == ("Slurm refuses the job of Pong: sbatch cannot be run: No such file or directory")


@pytest.mark.parametrize("answers", [True, False])
def test_an_adopted_job_that_runs_is_asked_to_save_and_not_deleted_before_the_first_poll(world, answers):
    world.spawn()
    world.report()
    runs = world.row(state="RUNNING", nodes=("n7",))
    world.restart()
    world.cluster.rows = [runs] if answers else Unknown("no controller", "unreachable")
    world.launcher.adopt("Pong", 3, world.launcher.survey({"Pong": (3, TOKEN)})["Pong"])
    world.launcher.ask_to_leave("Pong", TOKEN)
    world.launcher.step()
    assert world.cluster.cancelled == [("17", "USR1")]


def test_a_job_that_only_its_node_has_ended_has_ended_although_the_accounting_gives_no_answer(world):
    """While no daemon ran, Slurm forgot the job, and `sacct` does not work on this host."""
    world.spawn()
    world.report()
    world.restart()
    world.cluster.unread = "sacct cannot be run: No such file or directory"
    world.launcher.adopt("Pong", 3, world.launcher.survey({"Pong": (3, TOKEN)})["Pong"])
    world.look()
    (seen,) = world.look()
    assert (seen.jobs["Pong"].state, seen.jobs["Pong"].reason) == ("UNKNOWN", world.cluster.unread)
    world.left(contract.EXIT_LEFT)
    (ended,) = [item for item in world.look() if isinstance(item, Ended)]
    assert ended.ending.code == contract.EXIT_LEFT


def test_a_job_that_slurm_restarts_often_keeps_the_order_that_each_restart_reads(world):
    world.spawn()
    number, token = 3, TOKEN
    for restarts in range(1, KEPT_ATTEMPTS + 3):
        Path(world.paths.attempt_dir("Pong", number, token)).mkdir(exist_ok=True)  # its node makes it
        back = world.row(reason="BeginTime", restarts=restarts)
        world.look(back)
        world.look(back, later_s=31.0)
        number, token = number + 1, contract.next_token(token)
        world.launcher.spawn(SPEC, number, token)
    assert (world.directory() / "order.json").exists()
    assert len(list(world.directory().parent.iterdir())) == KEPT_ATTEMPTS + 1
    world.look(world.row(state="CANCELLED", restarts=restarts))
    world.launcher.spawn(SPEC, number + 1, "cd" * 16)
    world.launcher.step()
    world.look(replace(world.row(state="CANCELLED"), comment=str(Tag(world.launcher.mark, "Pong", number + 1, "cd" * 16))))
    assert not world.directory().exists(), "no job reads it any more"


def test_a_node_that_still_saves_when_slurm_counts_the_restart_is_not_blamed(world):
    """The exit record comes a moment after Slurm has put the job back into its queue."""
    world.spawn()
    world.report()
    world.look(world.row(state="RUNNING", nodes=("n7",)))
    back = world.row(state="PENDING", reason="BeginTime", restarts=1)
    assert [type(item) for item in world.look(back, later_s=11.0)] == [JobsSeen]
    world.left(contract.EXIT_LEFT)
    (ended,) = [item for item in world.look(back, later_s=11.0) if isinstance(item, Ended)]
    assert (ended.ending.code, ended.ending.job.requeued, ended.ending.job.next_token) == (contract.EXIT_LEFT, True, NEXT)
    world.launcher.spawn(SPEC, 4, NEXT)  # the next attempt is the same job
    world.look(back)
    assert world.cluster.cancelled == []


def test_a_node_without_a_last_word_is_waited_for_no_longer_than_its_files_may_take(world):
    world.spawn()
    world.report()
    world.look(world.row(state="RUNNING", nodes=("n7",)))
    back = world.row(state="PENDING", reason="BeginTime", restarts=1)
    world.look(back, later_s=11.0)
    (ended,) = [item for item in world.look(back, later_s=31.0) if isinstance(item, Ended)]
    assert (ended.ending.code, ended.ending.job.requeued, ended.ending.job.asked) == (None, True, "")
    assert ended.ending.fate == "its job 17 left no exit record (PENDING)"


# --- on the node ---


def order_of(world):
    paths = world.paths
    return json.loads(json.dumps(node_order(paths, SPEC, 3, TOKEN, SETTINGS)))


def fence(world, token):
    (world.directory().parents[1] / "fence").write_text(token + "\n")


def run(world, job="17", restart="0"):
    return node.Run(order_of(world), {"SLURM_JOB_ID": job, "SLURM_RESTART_COUNT": restart, "SLURMD_NODENAME": "n7"})


def test_a_second_job_of_an_attempt_does_nothing(world):
    fence(world, TOKEN)
    run(world).claim()
    run(world).claim()  # the same job: its script was started again
    with pytest.raises(node.NotOurs, match="already belongs to job 17"):
        run(world, job="18").claim()


def test_a_job_that_starts_after_a_newer_attempt_does_nothing(world):
    fence(world, "cd" * 16)
    with pytest.raises(node.NotOurs, match="is not the newest"):
        run(world).claim()


def test_the_fence_is_on_the_disk_before_it_counts(world, monkeypatch):
    """Otherwise a power cut leaves an empty fence, which no attempt may pass."""
    fence(world, TOKEN)
    late, done, fsync, rename = run(world, restart="1"), [], os.fsync, Path.rename
    monkeypatch.setattr(node.os, "fsync", lambda fd: done.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd))
    monkeypatch.setattr(Path, "rename", lambda path, to: done.append("rename") or rename(path, to))
    late.claim()
    assert done == [f"{late.fence}.17.1", "rename", str(late.run_dir)]


def test_a_restarted_job_takes_the_fence_from_its_earlier_run_and_that_one_cannot_take_it_back(world):
    fence(world, TOKEN)
    early, late = run(world), run(world, restart="1")
    late.claim()
    assert (late.number, late.token) == (4, NEXT)
    assert late.owner() == NEXT
    with pytest.raises(node.NotOurs):
        early.claim()
    fence(world, "cd" * 16)
    with pytest.raises(node.NotOurs):
        run(world, restart="2").claim()


def test_the_end_of_a_job_is_announced_one_lead_before_it_is_asked_to_leave(world):
    """Time limit 7201 s, lead 120 s: 240 s before the limit the file appears."""
    fence(world, TOKEN)
    path = world.directory().parents[1] / "leave-by"
    for left_s, expected in ((300.0, None), (200.0, "the time limit of job 17")):
        late = node.Run(order_of(world), {"SLURM_JOB_ID": "17"}, node.boot_s() - SETTINGS.time_limit_s + left_s)
        announced = node.Announcement(path)
        announced.of_limit(late)
        found = contract.read_leave_by(path)
        assert (None if found is None else found.why) == expected
    assert found.wall_s == pytest.approx(time.time() + 200.0, abs=30.0)
    announced.make(None, "job 17 is asked to leave")
    assert contract.read_leave_by(path) == found, "the first one counts"


def test_a_job_that_is_deleted_or_preempted_announces_an_end_without_a_time(world):
    fence(world, TOKEN)
    path = world.directory().parents[1] / "leave-by"
    node.Announcement(path).make(None, "job 17 is asked to leave")
    assert contract.read_leave_by(path) == contract.LeaveBy(None, "job 17 is asked to leave")
    node.Announcement(path / "x").make(None, "nobody can write there")


@pytest.mark.parametrize(
    ("said", "early_s"),
    [
        (lambda end: end - 600.0, 600.0),  # of which the prolog took ten minutes
        (lambda end: end + 60.0, 0.0),  # a clock that is a minute ahead
        (lambda end: end - 4000.0, 0.0),  # no prolog takes so long: the node's clock is wrong
        (lambda _: "NONE", 0.0),
    ],
)
def test_the_time_limit_counts_from_where_slurm_counts_it(world, said, early_s):
    fence(world, TOKEN)
    named = said(time.time() + SETTINGS.time_limit_s)
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": named if isinstance(named, str) else f"{named:.0f}"}
    assert node.Run(order_of(world), environ).left_s() == pytest.approx(SETTINGS.time_limit_s - early_s, abs=30.0)


def test_what_runs_on_a_node_needs_nothing_but_what_lies_with_the_job(world):
    world.spawn()
    (code,) = Path(world.paths.runtime_dir).glob("code-*")
    alone = [sys.executable, "-S", "-E", "-c", "import sys; sys.path[0] = sys.argv[1]; import node", str(code)]
    said = subprocess.run(alone, check=False, capture_output=True, text=True, cwd="/")
    assert said.stderr == ""


def test_the_time_of_a_job_began_with_its_batch_script_and_not_after_its_setup():
    code = """
import sys, time
time.sleep(0.3)
sys.path.insert(0, sys.argv[1])
from supervisor.features.slurm.adapters import node
print(node.boot_s() - node.began_s())
"""
    said = subprocess.run([sys.executable, "-c", code, str(ROOT)], check=True, capture_output=True, text=True)
    assert 0.3 <= float(said.stdout) < 60.0


# --- reports and readings ---


def test_a_control_record_is_whole_for_other_hosts_after_each_write(world):
    controls = SlurmControls(world.paths, world.clock)
    controls.begin(TOKEN, 3)
    for interval_s in (10.0, 20.0):
        controls.write(SetControl("Pong", TOKEN, interval_s, 0.0, 0, leave_by_s=99.0))
        found = contract.ControlReader(world.paths.control("Pong", 3), TOKEN).read()
        assert (found.interval_ms, found.leave_by_ns) == (interval_s * 1000, contract.UNKNOWN)
    controls.end("Pong", TOKEN)
