"""Seeds of a game that start together are one array: its script, its table, its tasks, and what becomes of them."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_kit import SPEC, World
from structlog.testing import capture_logs

from supervisor.adapters.slurm import launcher, node
from supervisor.adapters.slurm.arrays import Arrays
from supervisor.adapters.slurm.client import SlurmRefused, Submitted, Unknown
from supervisor.adapters.slurm.script import Tag, array_of
from supervisor.model.inputs import Ended, JobsSeen, SpawnBroke, Survival
from supervisor.policy.cluster.jobs import Job
from supervisor.policy.cluster.launcher import JobResources
from workers import contract

SEEDS = ("Pong-s4", "Pong-s6", "Pong-s8")
TOKENS = dict(zip(SEEDS, ("04" * 16, "06" * 16, "08" * 16), strict=True))
SETTLE_S = 120.0


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    for name in SEEDS:
        Path(made.paths.run_dir(name)).mkdir()
    return made


def spawn(world, *names, later_s=launcher.GATHER_S, **fields):
    for name in names or SEEDS:
        world.launcher.spawn(replace(SPEC, name=name, group="Pong", **fields), 3, TOKENS[name], ("n1", "n2"))
    world.launcher.step()
    world.clock.at_s += later_s
    world.launcher.step()


def directory(world, name):
    return Path(world.paths.attempt_dir(name, 3, TOKENS[name]))


def rows(world, id_=17, **more):
    """As Slurm shows the tasks of the array that was submitted last."""
    comment = re.search("--comment=(.*)", world.cluster.scripts[-1])[1]
    return [Job(id_, task, **{"comment": comment, "state": "PENDING", "restarts": 0, **more}) for task in (1, 2, 3)]


def sights(world):
    return {name: sight.job for name, sight in world.inbox.items[-1].jobs.items()}


def posted(world, kind):
    return [item for item in world.inbox.items if isinstance(item, kind)]


def table(world):
    (found,) = Path(world.paths.runtime_dir, "arrays").glob("*/tasks.json")
    return found


# --- submitting ---


def test_seeds_that_start_together_are_one_readable_script(world):
    spawn(world)
    (script,) = world.cluster.scripts
    array = array_of(script)
    place = Path(world.paths.runtime_dir, "arrays", array.token)
    orders = [f"attempts/3-{TOKENS[name]}/order.json" for name in SEEDS]
    runs = [shlex.quote(world.paths.run_dir(name)) for name in SEEDS]
    # No singleton: a later array of the group would wait for this one's last task.
    start = script.splitlines()[-1]
    assert (
        script[: script.rindex("exec ")]
        == f"""\
#!/bin/bash
# extralife: 3 programs of Pong, each a task of this array. The daemon wrote this file; a change of it has no effect.
#SBATCH --job-name=extralife-{world.launcher.mark}-Pong:all
#SBATCH --comment={array}
#SBATCH --array=1-3
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
#SBATCH --output="{place}/job-%A_%a.out"
#SBATCH --exclude="n[1-2]"
#SBATCH --requeue
#SBATCH --nice=5
#SBATCH --reservation=x
trap '' USR1  # until the program runs, a signal must not end the script
case $SLURM_ARRAY_TASK_ID in
1) cd {runs[0]} && extralife_order=$PWD/{orders[0]} ;;
2) cd {runs[1]} && extralife_order=$PWD/{orders[1]} ;;
3) cd {runs[2]} && extralife_order=$PWD/{orders[2]} ;;
esac
extralife_failed() {{  # its arguments: status, depth of sourced files, line (1: not known)
    [ $2 -eq 1 ] || return 0  # the status of the sourced file itself counts
    trap - ERR EXIT TERM
    [ $1 -lt 128 ] || exit $1  # a signal, such as Slurm's own, is no fault of a line
    {start} $1 $(($3 - 36)) "$(sed -n $3p "$0")"
}}
trap 'exit 143' TERM
trap 'extralife_failed $? 1 1' EXIT
trap 'extralife_failed $? ${{#BASH_SOURCE[@]}} $LINENO' ERR
module load conda
conda activate rl
trap - ERR EXIT TERM
"""
    )
    assert json.loads(table(world).read_text()) == {
        str(task): [name, 3, TOKENS[name]] for task, name in enumerate(SEEDS, start=1)
    }
    for name in SEEDS:
        assert (directory(world, name) / "job.sh").samefile(place / "job.sh")
        assert json.loads((directory(world, name) / "order.json").read_text())["token"] == TOKENS[name]
        assert (directory(world, name).parents[1] / "fence").read_text() == TOKENS[name] + "\n"
    assert sights(world) == {"Pong-s4": "17_1", "Pong-s6": "17_2", "Pong-s8": "17_3"}


def test_each_task_runs_the_order_of_its_own_program_in_its_run_directory(world):
    world.settings = replace(world.settings, setup="pwd")
    spawn(world)
    script = re.sub(r"^ *exec \S*python.*?node\.py'?", "exec echo", world.cluster.scripts[0], flags=re.MULTILINE)
    for task, name in enumerate(SEEDS, start=1):
        environ = {"SLURM_ARRAY_TASK_ID": str(task)}
        said = subprocess.run(["bash"], input=script, env=environ, check=True, capture_output=True, text=True, cwd="/")
        assert said.stdout.splitlines() == [world.paths.run_dir(name), f"{directory(world, name)}/order.json"]


def test_a_group_is_waited_for_until_none_of_it_has_come_for_a_while(world):
    spawn(world, "Pong-s4", later_s=0.6)
    spawn(world, "Pong-s6", later_s=0.6)
    assert world.cluster.scripts == []
    spawn(world, "Pong-s8")
    assert len(world.cluster.scripts) == 1


def test_a_group_that_goes_on_coming_is_not_waited_for_for_ever(world):
    for number in range(8):
        world.launcher.spawn(replace(SPEC, name="Pong-s4", group="Pong"), 3, f"{number:032x}")
        world.clock.at_s += 0.9
        world.launcher.step()
    assert len(world.cluster.scripts) == 1


@pytest.mark.parametrize(("last_s", "submitted"), [(0.09, 0), (0.11, 1)])
def test_a_group_waits_five_seconds_at_most_for_the_next_of_it(world, last_s, submitted):
    for number in range(6):
        world.launcher.spawn(replace(SPEC, name="Pong-s4", group="Pong"), 3, f"{number:032x}")
        world.launcher.step()
        world.clock.at_s += 0.9 if number < 5 else 0.4
    world.clock.at_s += last_s
    world.launcher.step()
    assert len(world.cluster.scripts) == submitted


@pytest.mark.parametrize("arrays", [True, False])
def test_what_asks_for_something_else_or_belongs_to_no_group_is_a_job_of_its_own(world, arrays):
    world.settings = replace(world.settings, arrays=arrays)
    world.launcher.spawn(SPEC, 3, "ab" * 16)
    world.launcher.step()
    assert len(world.cluster.scripts) == 1, "at once"
    spawn(world, "Pong-s4", later_s=0.0, job=JobResources(partition="h100"))
    spawn(world, "Pong-s6", later_s=0.0, checkpoint_glob="*.pt")
    spawn(world, "Pong-s8")
    assert len(world.cluster.scripts) == 4
    assert not any("--array" in script for script in world.cluster.scripts)


def test_without_arrays_each_seed_is_a_job_at_once(world):
    world.settings = replace(world.settings, arrays=False)
    spawn(world, later_s=0.0)
    assert len(world.cluster.scripts) == 3


def test_one_that_cannot_be_prepared_keeps_no_other_back(world):
    world.launcher.spawn(replace(SPEC, name="Pong-s4", group="Pong", user="nobody"), 3, TOKENS["Pong-s4"], ("n1", "n2"))
    spawn(world, "Pong-s6", "Pong-s8")
    (broke,) = posted(world, SpawnBroke)
    assert (broke.program, broke.error.partition(":")[0]) == ("Pong-s4", "cannot submit Pong-s4")
    assert sights(world) == {"Pong-s6": "17_1", "Pong-s8": "17_2"}


def test_one_that_is_stopped_while_its_group_is_waited_for_is_not_submitted(world):
    spawn(world, later_s=0.0)
    world.launcher.ask_to_leave("Pong-s6", TOKENS["Pong-s6"])
    world.clock.at_s += 2.0
    world.launcher.step()
    assert [item.error for item in posted(world, SpawnBroke)] == ["it was stopped before it was submitted"]
    assert sights(world) == {"Pong-s4": "17_1", "Pong-s8": "17_2"}


def test_a_table_that_cannot_be_written_is_said_for_each_of_them(world, tmp_path):
    parent = Path(world.paths.runtime_dir, "arrays")
    parent.parent.mkdir()
    parent.touch()
    spawn(world)
    assert {item.program for item in posted(world, SpawnBroke)} == set(SEEDS)
    assert all("cannot submit Pong-s" in item.error for item in posted(world, SpawnBroke))
    assert world.cluster.scripts == []


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("Batch job submission failed: Invalid job array specification", 0),
        (
            "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            1,
        ),
    ],
)
def test_an_array_that_slurm_refuses_is_submitted_job_by_job(world, words, again):
    """Where it takes no array at all, none is tried again."""
    world.cluster.of_arrays = SlurmRefused(words)
    with capture_logs() as logged:
        spawn(world)
    assert logged == [{"event": "array_refused", "programs": list(SEEDS), "said": words, "log_level": "info"}]
    assert [script.count("--array") for script in world.cluster.scripts] == [1, 0, 0, 0]
    assert posted(world, SpawnBroke) == []
    assert not list(Path(world.paths.runtime_dir, "arrays").glob("*/*"))
    assert sorted(sights(world)) == sorted(SEEDS)
    world.inbox.items.clear()
    for name in SEEDS:
        world.launcher.spawn(replace(SPEC, name=name, group="Pong"), 4, TOKENS[name].replace("0", "1"))
    world.clock.at_s += 2.0
    world.launcher.step()
    assert sum("--array" in script for script in world.cluster.scripts) == 1 + again


def test_as_many_as_slurm_allows_are_submitted_and_the_others_are_told_so_without_another_call(world):
    world.cluster.of_arrays = refused = SlurmRefused("Job violates accounting/QOS policy (job submit limit)")
    answers = [refused, Submitted(18), refused]
    world.cluster.submit = lambda script, options=(), *, cwd="/": answers.pop(0)
    spawn(world)
    assert (answers, sights(world)) == ([], {"Pong-s4": "18"})
    assert {item.program: item.permanent for item in posted(world, SpawnBroke)} == {"Pong-s6": False, "Pong-s8": False}


def test_what_no_job_would_be_granted_is_not_asked_for_again_job_by_job(world):
    world.cluster.answer = SlurmRefused("Batch job submission failed: Invalid partition name specified")
    spawn(world)
    assert len(world.cluster.scripts) == 1
    assert [item.permanent for item in posted(world, SpawnBroke)] == [True, True, True]


# --- finding its tasks ---


def test_an_array_whose_submission_nobody_answered_is_found_by_its_table(world):
    world.cluster.answer = Unknown("sbatch has not answered within 30 s", "timeout")
    spawn(world)
    world.look(*rows(world))
    assert sights(world) == {"Pong-s4": "17_1", "Pong-s6": "17_2", "Pong-s8": "17_3"}
    assert (world.cluster.cancelled, posted(world, SpawnBroke)) == ([], [])


def test_an_array_that_nobody_has_seen_is_given_up_task_by_task(world):
    world.cluster.answer = Unknown("sbatch has not answered within 30 s", "timeout")
    spawn(world)
    world.look(later_s=SETTLE_S)
    assert {item.program for item in posted(world, SpawnBroke)} == set(SEEDS)
    late = rows(world)
    world.spawn()
    world.look(*late)  # it comes after all: none of it could train
    assert world.cluster.cancelled == ["17_1", "17_2", "17_3"]


def test_of_an_array_that_was_submitted_twice_the_second_is_deleted(world):
    world.cluster.answer = Unknown("timeout", "timeout")
    spawn(world)
    world.look(*rows(world), *rows(world, 20))
    assert sorted(world.cluster.cancelled) == ["20_1", "20_2", "20_3"]


def begin_again(world):
    """A daemon that finds all seeds in its journal."""
    world.restart()
    found = world.launcher.survey({name: (3, TOKENS[name]) for name in SEEDS})
    for name, survivor in found.items():
        world.launcher.adopt(name, survivor)
    return found


def test_the_next_daemon_adopts_each_task(world):
    world.cluster.answer = Unknown("the daemon was killed", "timeout")
    spawn(world)
    world.cluster.rows = rows(world)
    assert {each.survival for each in begin_again(world).values()} == {Survival.ALIVE}
    world.look(*rows(world))
    assert sights(world) == {"Pong-s4": "17_1", "Pong-s6": "17_2", "Pong-s8": "17_3"}
    world.restart()
    found = world.launcher.unrecorded_workers(SEEDS)
    assert {name: (number, each.token) for name, (number, each) in found.items()} == {n: (3, TOKENS[n]) for n in SEEDS}


@pytest.mark.parametrize("harm", ["hidden", "unreadable", "damaged"])
def test_tasks_whose_table_cannot_be_read_are_unknown_and_nothing_is_submitted_for_them(world, harm):
    """A shared file system may show a name late, or fail for a while."""
    world.cluster.answer = Unknown("the daemon was killed", "timeout")
    spawn(world)
    path, text = table(world), table(world).read_text()
    path.unlink()
    if harm == "unreadable":
        path.mkdir()
    elif harm == "damaged":
        path.write_text('{"1": ["Pong-s4"]}')
    world.cluster.rows = rows(world)
    begin_again(world)
    world.look(*rows(world), later_s=SETTLE_S - 1.0)
    world.look(*rows(world), later_s=SETTLE_S - 1.0)
    assert (posted(world, SpawnBroke), posted(world, Ended), world.cluster.cancelled) == ([], [], [])
    world.look(*rows(world), later_s=2.0)
    world.look(*rows(world), later_s=SETTLE_S)
    if harm == "unreadable":
        assert world.cluster.cancelled == [], "nobody knows whose they are"
        path.rmdir()
        path.write_text(text)
        world.look(*rows(world))
        assert sights(world) == {"Pong-s4": "17_1", "Pong-s6": "17_2", "Pong-s8": "17_3"}
    else:
        assert set(world.cluster.cancelled) == {"17_1", "17_2", "17_3"}, "nobody can go on with them"
        world.look(*rows(world, state="CANCELLED"))
        assert {item.program for item in posted(world, SpawnBroke)} == set(SEEDS)


def test_a_task_keeps_its_job_while_its_table_cannot_be_read(world):
    spawn(world)
    for name, task in zip(SEEDS, (1, 2, 3), strict=True):
        report(world, name, f"17_{task}")
    table(world).unlink()
    world.cluster.rows = Unknown("no controller", "unreachable")
    begin_again(world)
    world.look(*rows(world, state="RUNNING", nodes=("n7",)))
    assert sights(world) == {"Pong-s4": "17_1", "Pong-s6": "17_2", "Pong-s8": "17_3"}
    other = [replace(row, comment=f"extralife:{'0' * 8}:Pong:array:{'0' * 32}") for row in rows(world)]
    world.inbox.items.clear()
    for _ in range(3):
        world.look(*other, later_s=40.0)
    assert [item.ending.fate for item in posted(world, Ended)] == [
        f"its job 17_{task} left no exit record (Slurm no longer lists the job)" for task in (1, 2, 3)
    ], "the number was given again, to somebody else's array"  # fmt: skip


def report(world, name, job, **more):
    """What the node writes of a task."""
    made = world.report(token=TOKENS[name], job=job, **more)
    made.rename(world.paths.beat(name, 3))


# --- one task is one attempt ---


def test_one_seed_is_stopped_and_the_others_are_left_alone(world):
    spawn(world)
    report(world, "Pong-s6", "17_2")
    waits, runs, other = rows(world)
    runs = replace(runs, state="RUNNING", nodes=("n7",))
    world.look(waits, runs, other)
    for name in SEEDS[:2]:
        world.launcher.ask_to_leave(name, TOKENS[name])
    world.launcher.step()
    assert set(world.cluster.cancelled) == {"17_1", ("17_2", "USR1")}


def test_a_task_that_is_deleted_before_it_begins_leaves_no_row_and_was_deleted_all_the_same(world):
    """As Slurm shows it: the others of its array, and nothing of it."""
    spawn(world)
    first, _, third = rows(world)
    world.cluster.absent = frozenset({"17_2"})
    world.look(first, third)
    (ended,) = posted(world, Ended)
    assert (ended.program, ended.ending.job.state) == ("Pong-s6", "CANCELLED")
    world.cluster.absent = frozenset({"17_1", "17_3"})
    world.look(replace(first, array_task=None, state="CANCELLED"))  # all that is left when the last one is deleted
    assert {item.ending.job.state for item in posted(world, Ended)} == {"CANCELLED"}


def test_a_task_that_is_deleted_while_no_daemon_runs_was_deleted_all_the_same(world):
    spawn(world)
    first, _, third = world.cluster.rows = rows(world)
    world.cluster.rows = [first, third]
    begin_again(world)
    world.look(first, third)
    (ended,) = posted(world, Ended)
    assert (ended.program, ended.ending.job.state) == ("Pong-s6", "CANCELLED")


def test_a_task_that_began_and_was_forgotten_was_not_deleted(world):
    spawn(world)
    first, _, third = rows(world)
    (table(world).parent / "job-17_2.out").touch()
    world.cluster.absent = frozenset({"17_2"})
    world.look(first, third)
    world.look(first, third, later_s=40.0)
    assert [item.ending.job.state for item in posted(world, Ended)] == [""]


def test_an_array_that_slurm_has_forgotten_was_not_deleted(world):
    """A controller that was killed forgets the newest jobs."""
    spawn(world)
    world.cluster.absent = frozenset({"17_1", "17_2", "17_3"})
    world.look()
    world.look(later_s=40.0)
    assert [(item.ending.job.state, item.ending.fate) for item in posted(world, Ended)] == [
        ("", f"its job 17_{task} ended before its program began (Slurm no longer lists the job)") for task in (1, 2, 3)
    ]  # fmt: skip


def test_a_task_that_slurm_starts_again_goes_on_with_its_own_next_token(world):
    spawn(world)
    report(world, "Pong-s6", "17_2")
    first, runs, third = rows(world)
    world.look(first, replace(runs, state="RUNNING", nodes=("n7",)), third)
    back = replace(runs, reason="BeginTime", restarts=1)
    world.look(first, back, third)
    world.look(first, back, third, later_s=31.0)
    (ended,) = posted(world, Ended)
    following = contract.next_token(TOKENS["Pong-s6"])
    assert (ended.program, ended.ending.job.job, ended.ending.job.next_token) == ("Pong-s6", "17_2", following)
    world.launcher.spawn(replace(SPEC, name="Pong-s6", group="Pong"), 4, following)
    world.look(first, back, third)
    assert (sights(world)["Pong-s6"], world.cluster.cancelled, len(world.cluster.scripts)) == ("17_2", [], 1)


def test_why_a_task_was_killed_for_its_memory_is_read_from_its_own_output(world):
    spawn(world)
    output = table(world).parent / "job-17_2.out"
    output.write_text("slurmstepd: error: Step 17.0 exceeded memory limit (900 > 300), being killed\n")
    failed = [replace(row, state="FAILED") for row in rows(world)]
    world.look(*failed)
    world.look(*failed, later_s=40.0)
    states = {item.program: item.ending.job.state for item in posted(world, Ended)}
    assert states == {"Pong-s4": "FAILED", "Pong-s6": "OUT_OF_MEMORY", "Pong-s8": "FAILED"}


def test_a_task_that_only_the_accounting_knows_is_known_by_its_name(world):
    """Which may have lost the comment."""
    spawn(world)
    mine = f"extralife-{world.launcher.mark}-Pong:all"
    ended = [replace(row, comment="", name=mine, state="TIMEOUT") for row in rows(world)]
    world.look(*ended)
    assert [item.ending.job.state for item in posted(world, Ended)] == ["TIMEOUT"] * 3


def test_a_job_knows_its_task(world):
    spawn(world)
    environ = {"SLURM_JOB_ID": "19", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2", "SLURMD_NODENAME": "n7"}
    order = json.loads((directory(world, "Pong-s6") / "order.json").read_text())
    run = node.Run(order, environ)
    run.claim()
    assert run.job == "17_2"
    with pytest.raises(node.NotOurs, match="already belongs to job 17_2"):
        node.Run(order, environ | {"SLURM_ARRAY_JOB_ID": "20"}).claim()


# --- tables ---


def test_a_table_is_kept_as_long_as_the_directory_of_one_of_its_attempts(world):
    spawn(world)
    arrays = Arrays(world.paths, world.launcher.mark)
    for name in SEEDS[:2]:
        shutil.rmtree(directory(world, name))
    arrays.prune(())
    assert table(world).exists()
    shutil.rmtree(directory(world, "Pong-s8"))
    arrays.prune({TOKENS["Pong-s4"]})
    assert table(world).exists(), "Slurm has started its job again, as a later attempt"
    arrays.prune(())
    assert not list(Path(world.paths.runtime_dir, "arrays").iterdir())


@pytest.mark.parametrize("still", ["submitted", "found", "requeued", "over"])
def test_a_table_stays_while_one_of_its_attempts_lives_without_its_directory(world, still):
    spawn(world)
    old = table(world)
    if still == "found":
        world.restart()
        world.launcher.survey({"Pong-s4": (3, TOKENS["Pong-s4"])})
    elif still == "requeued":
        back = rows(world, reason="BeginTime", restarts=1)
        world.look(*back)
        world.look(*back, later_s=31.0)
    elif still == "over":
        world.restart()
    for name in SEEDS:
        shutil.rmtree(directory(world, name))
    for name in ("a", "b"):
        Path(world.paths.run_dir(name)).mkdir()
        world.launcher.spawn(replace(SPEC, name=name, group="ab"), 1, name * 32)
    world.clock.at_s += 2.0
    world.launcher.step()
    assert len(list(old.parent.parent.iterdir())) == (1 if still == "over" else 2)
    assert old.exists() is (still != "over")


def test_no_array_has_more_tasks_than_a_cluster_takes(world, monkeypatch):
    monkeypatch.setattr(launcher, "MOST_TASKS", 2)
    world.cluster.answer = Submitted(17)
    spawn(world)
    assert ["--array=1-2" in script for script in world.cluster.scripts] == [True, False]
    assert isinstance(world.inbox.items[-1], JobsSeen)


def test_a_task_that_its_table_does_not_know_is_nobodys(world):
    spawn(world)
    arrays = Arrays(world.paths, world.launcher.mark)
    (one, two, _), beyond = rows(world), replace(rows(world)[0], array_task=9)
    known, unknown = arrays.tags([one, beyond, replace(two, array_task=None)])
    assert known == [(one, Tag(world.launcher.mark, "Pong-s4", 3, TOKENS["Pong-s4"]))]
    assert [surely for _, surely in unknown] == [True, True]
