"""What the launcher asks of Slurm and what it posts, each as a whole, and every time limit from both sides."""

import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_kit import NEXT, SETTINGS, SPEC, TOKEN, World
from structlog.testing import capture_logs

from supervisor.adapters import procfs
from supervisor.adapters.process import limits
from supervisor.features.slurm.adapters import launcher as launchers
from supervisor.features.slurm.adapters.client import SlurmRefused, Unknown
from supervisor.features.slurm.adapters.job_files import node_order
from supervisor.features.slurm.adapters.launcher import SlurmLauncher, mark_of
from supervisor.features.slurm.adapters.script import Tag, Terms, batch_script
from supervisor.features.slurm.messages import JobSight, JobsSeen
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.rules.jobs import Job, Node
from supervisor.features.slurm.settings import JobResources, NextJob
from supervisor.model.inputs import Ended, Ending, SpawnBroke, SpawnSucceeded, Survival, Survivor
from supervisor.model.settings import LOG_NONE, Progress
from supervisor.policy.script.figures import Figures
from supervisor.policy.script.placeholders import Template
from workers import contract

AWAY = Unknown("no controller", "unreachable")
RUNS = {"state": "RUNNING", "nodes": ("n7",)}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def running(world):
    """An attempt whose program runs on a node."""
    world.spawn()
    world.report()
    world.look(world.row(**RUNS))
    world.cluster.said()
    return world


def ends(world, *rows, **more):
    return [item for item in world.look(*rows, **more) if isinstance(item, Ended)]


# --- names and orders ---


def test_a_state_directory_has_one_mark_by_whatever_path_it_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert mark_of("/nonexistent/state") == "f8ca74b0"
    assert mark_of(str(tmp_path)) == mark_of(str(tmp_path / "link")) != mark_of("/")


def test_an_order_holds_all_that_a_node_needs(world):
    paths, run_dir = world.paths, world.paths.run_dir("Pong")
    plain = {
        "program": "Pong", "attempt": 3, "token": TOKEN, "argv": ["sleep", "1"], "env": {}, "builtin": False, "cwd": run_dir,
        "run_dir": run_dir, "stdout": f"{run_dir}/stdout.log", "stderr": f"{run_dir}/stderr.log",
        "beats": f"{paths.runtime_dir}/beats", "umask": procfs.umask(), "files": limits.GIVEN_FILES, "grace_s": 20.0,
        "done_codes": [0],
        "signal_to": "tree", "stop_signal": 15, "lead_s": 120.0, "time_limit_s": 7201.0, "witness": False,
    }  # fmt: skip
    assert node_order(paths, SPEC, 3, TOKEN, SETTINGS) == plain
    other = replace(
        SPEC, argv=("x", "{seed}"), env=(("A", "b"),), builtin=True, directory="/work", stdout_log="/log/o", stderr_log=LOG_NONE,
        umask="027", stop_grace_s=7.5, stop_signal="INT", stop_signal_to="leader", progress=Progress.AUTO,
        template=Template((("seed", "1"),)),
    )  # fmt: skip
    assert node_order(paths, other, 3, TOKEN, SETTINGS) == plain | {
        "argv": ["x", "1"], "env": {"A": "b", "EXTRALIFE_SEED": "1"}, "builtin": True, "cwd": "/work", "stdout": "/log/o", "stderr": "",
        "umask": 0o027, "grace_s": 7.5, "stop_signal": 2, "signal_to": "leader", "witness": True,
    }  # fmt: skip
    joined = node_order(paths, replace(SPEC, redirect_stderr=True, progress=Progress.FILES), 3, TOKEN, SETTINGS)
    assert joined == plain | {"stderr": plain["stdout"], "witness": True}


def test_the_code_for_nodes_is_copied_once_and_again_when_it_is_gone(world):
    world.spawn()
    (code,) = Path(world.paths.runtime_dir).glob("code-*")
    before = (code / "node.py").stat().st_ino
    world.restart()
    world.launcher.spawn(SPEC, 4, "cd" * 16)
    world.launcher.step()
    assert (code / "node.py").stat().st_ino == before
    shutil.rmtree(code)
    code.with_suffix(".new").mkdir()  # a copy that was not finished
    (code.with_suffix(".new") / "torn").touch()
    world.launcher.spawn(SPEC, 5, "ef" * 16)
    world.launcher.step()
    assert sorted(each.name for each in code.iterdir()) == ["node.py", "shim.py", "workers"]
    assert list(Path(world.paths.runtime_dir).glob("code-*")) == [code]


def test_the_resources_of_its_level_are_those_of_its_job(world):
    world.spawn(replace(SPEC, job=NextJob(JobResources(partition="h100", gpus=4))))
    options = world.cluster.scripts[0]
    assert "#SBATCH --partition=h100\n" in options
    assert "#SBATCH --gres=gpu:4\n" in options


# --- sights ---


def test_a_job_is_told_with_all_that_the_queue_shows_of_it(world):
    world.spawn()
    shown = {"partition": "a100", "account": "lab", "gpus": 2, "reason": "Resources", "start_expected_at_wall_s": 7.0}
    sight = JobSight(TOKEN, "17", "PENDING", "Resources", "", "a100", "lab", 2, 7.0, False)
    assert world.look(world.row(**shown)) == [JobsSeen(world.clock.now_s(), {"Pong": sight})]
    runs = JobSight(TOKEN, "17", "RUNNING", "", "n7", "a100", "lab", 2, None, True)
    shown |= {"reason": "", "start_expected_at_wall_s": None, "nodes": ("n7", "n8"), "state": "RUNNING"}
    assert world.look(world.row(**shown)) == [JobsSeen(world.clock.now_s(), {"Pong": runs})]
    assert (world.launcher.begun(TOKEN), world.launcher.suspended(TOKEN), world.launcher.number(TOKEN)) == (True, False, 3)
    assert world.look(world.row(state="SUSPENDED"))[0].jobs["Pong"].state == "SUSPENDED"
    assert world.launcher.suspended(TOKEN)


def test_the_queue_is_asked_once_a_period_and_only_while_there_is_an_attempt(world):
    world.clock.at_s += 100.0
    world.launcher.step()
    assert world.cluster.said() == []
    world.spawn()
    world.cluster.said()
    for later_s, asked in ((9.9, []), (0.1, [("jobs", ["17"])]), (5.0, []), (5.0, [("jobs", ["17"])])):
        world.clock.at_s += later_s
        world.launcher.step()
        assert world.cluster.said() == asked
    world.settings = replace(SETTINGS, poll_s=2.0)
    world.clock.at_s += 10.0
    world.launcher.step()
    world.clock.at_s += 2.0
    world.launcher.step()
    assert world.cluster.said() == [("jobs", ["17"])] * 2


# --- no answer ---


def test_one_failed_poll_is_ordinary_and_the_second_is_told(world):
    running(world)
    sights = world.look(world.row(**RUNS), later_s=10.0)[-1].jobs
    world.cluster.rows = AWAY
    told = []
    for _ in range(3):
        world.inbox.items.clear()
        world.clock.at_s += 10.0
        world.launcher.step()
        told.append(world.inbox.items[:])
    assert told == [[], *([JobsSeen(world.clock.now_s() - late_s, sights, "no controller")] for late_s in (10.0, 0.0))]
    world.look(world.row(**RUNS), later_s=10.0)
    world.cluster.rows = AWAY
    world.inbox.items.clear()
    world.clock.at_s += 24.9
    world.launcher.step()
    assert world.inbox.items == [], "counted anew after an answer"


def test_a_job_that_nobody_can_account_for_is_unknown_after_25_s(world):
    running(world)
    world.cluster.unread = "sacct is away"
    assert [item.jobs["Pong"].state for item in world.look(later_s=10.0)] == ["RUNNING"]
    assert [item.jobs["Pong"].state for item in world.look(later_s=24.9)] == ["RUNNING"]
    (seen,) = world.look(later_s=10.0)
    assert (seen.jobs["Pong"].state, seen.jobs["Pong"].reason) == ("UNKNOWN", "sacct is away")
    assert world.look(world.row(**RUNS), later_s=10.0)[-1].jobs["Pong"].state == "RUNNING"
    assert [item.jobs["Pong"].state for item in world.look(later_s=10.0)] == ["RUNNING"], "counted anew"


def test_a_submission_without_an_answer_whose_program_ran_has_ended(world):
    world.cluster.answer = Unknown("timeout", "timeout")
    world.spawn()
    world.restart()
    world.report(job="not a number")
    found = world.launcher.survey({"Pong": (3, TOKEN)})
    assert found == {"Pong": Survivor(TOKEN, Survival.ALIVE, 5, 6, 7, 8)}
    world.launcher.adopt("Pong", 3, found["Pong"])
    assert ends(world, later_s=120.0) == []
    (ended,) = ends(world, later_s=30.0)
    assert ended.ending.job == JobEnd("?", "", "", "n7", False, "", True, "")
    assert ended.ending.fate == "its job None left no exit record (Slurm no longer lists the job)"


# --- the end ---


def test_an_end_with_its_record_is_told_whole(world):
    running(world)
    world.left(code=3)
    offset_s = 6000.0 - world.clock.at_wall_s - 90.0
    assert ends(world, world.row(state="FAILED", nodes=("n8",), reason="NonZeroExitCode")) == [
        Ended(world.clock.now_s(), "Pong", TOKEN, Ending(
            code=3, max_rss_bytes=4096, ended_at_s=91.0 + offset_s,
            job=JobEnd("17", "FAILED", "NonZeroExitCode", "n7", False, "", True, ""),
        )),
    ]  # fmt: skip
    assert world.launcher.number(TOKEN) is None
    assert world.look(world.row(state="FAILED")) == [], "nobody is left to be asked about"


def test_an_end_before_a_report_names_the_node_of_the_queue(world):
    world.launcher = SlurmLauncher(
        world.paths, lambda: world.settings, world.cluster, world.inbox, world.clock,
        lambda *given: Figures(steps=700) if given[:2] == ("Pong", TOKEN) else Figures(),
    )  # fmt: skip
    world.spawn()
    (ended,) = ends(world, world.row(state="TIMEOUT", nodes=("n8", "n9"), reason="TimeLimit"))
    fate = "its job 17 ended before its program began (TIMEOUT)"
    assert ended.ending == Ending(
        fate=fate, shown=Figures(steps=700), job=JobEnd("17", "TIMEOUT", "TimeLimit", "n8", False, "", False, "")
    )


def test_a_worker_that_began_and_ended_between_two_polls_has_begun(world):
    world.spawn()
    world.report(asked="time limit")
    world.left()
    began, ended, _ = world.look(world.row(state="COMPLETED"))
    assert began == SpawnSucceeded(world.clock.now_s(), "Pong", TOKEN, 5, 6, 7, 8)
    assert ended.ending.job == JobEnd("17", "COMPLETED", "", "n7", False, "time limit", True, "")


def test_a_program_that_could_not_be_started_never_ran(world):
    running(world)
    world.left(code=None, spawn_error="no such file: x")
    assert world.look(world.row(state="COMPLETED"))[0] == SpawnBroke(world.clock.now_s(), "Pong", TOKEN, "no such file: x")


@pytest.mark.parametrize(
    ("state", "waits"),
    [("COMPLETED", True), ("FAILED", True), ("TIMEOUT", False), ("CANCELLED", False), ("NODE_FAIL", False)],
)
def test_the_record_of_an_end_is_waited_for_for_30_s_where_there_should_be_one(world, state, waits):
    running(world)
    assert (ends(world, world.row(state=state), later_s=10.0) == []) is waits
    if waits:
        assert ends(world, world.row(state=state), later_s=29.9) == []
        (ended,) = ends(world, world.row(state=state), later_s=10.0)
        assert ended.ending.fate == f"its job 17 left no exit record ({state})"


FAULTY_SETUP = [
    ("true\nconda activate rl", 127, "line 2 of launcher.setup ended with status 127: conda activate rl"),
    ("source nope.sh && true\ntrue", 1, "line 1 of launcher.setup ended with status 1: source nope.sh && true"),
    ("true\nexit 3", 3, "the lines of launcher.setup ended the script with status 3: see the output in job-17.out"),
    ("echo 'a", 2, "the lines of launcher.setup ended the script with status 2: see the output in job-17.out"),
]


@pytest.mark.parametrize(("setup", "status", "words"), FAULTY_SETUP)
def test_a_line_of_setup_that_fails_ends_the_job_and_is_named(world, setup, status, words):
    world.settings = replace(SETTINGS, setup=setup)
    world.spawn()
    environ = {"SLURM_JOB_ID": "17", "PATH": "/usr/bin:/bin"}
    script = subprocess.run(
        ["bash", world.directory() / "job.sh"], env=environ, capture_output=True, check=False, timeout=30
    )
    assert script.returncode == contract.EXIT_CONFIG
    assert world.look(world.row(state="FAILED", exit_code=contract.EXIT_CONFIG))[0] == SpawnBroke(
        world.clock.now_s(), "Pong", TOKEN, f"{words}; correct it, or add `|| true` if it may fail", permanent=True
    )


HARMLESS_SETUP = """\
source {}
false || true
if false; then true; fi
[ -e nope.sh ] && source nope.sh
first() {{ false; true; }}
first"""


def test_what_fails_within_a_line_of_setup_that_succeeds_is_no_fault(world, tmp_path):
    sourced, job = tmp_path / "sourced.sh", tmp_path / "job.sh"
    sourced.write_text("false\ntrue\n")
    script = batch_script(
        Terms(replace(SETTINGS, setup=HARMLESS_SETUP.format(sourced))), Tag("ab" * 4, "P", 1, TOKEN),
        command=("echo", "runs"), output="/o",
    )  # fmt: skip
    job.write_text(script)
    assert subprocess.run(["bash", job], capture_output=True, check=True, timeout=30).stdout == b"runs\n"


def test_a_signal_during_setup_is_no_fault_of_a_line(world):
    script = batch_script(
        Terms(replace(SETTINGS, setup="kill $$\ntrue")), Tag("ab" * 4, "P", 1, TOKEN), command=("echo", "runs"), output="/o"
    )
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (143, "")


def test_an_end_that_cannot_be_read_is_told_all_the_same(world, monkeypatch):
    running(world)

    def breaks(*_, **__):
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(launchers.endings, "without_record", breaks)
    (ended,) = ends(world, world.row(state="TIMEOUT"))
    job = JobEnd("17", "TIMEOUT", "", "n7", False, "", True, "")
    assert ended.ending == Ending(fate="its end could not be read: ZeroDivisionError: odd", job=job)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("slurmstepd: error: Step 17.0 exceeded memory limit (9 > 3)", "OUT_OF_MEMORY"),
        ("x\nSlurmstepd-n7: error: Job 17 EXCEEDED job memory limit", "OUT_OF_MEMORY"),
        ("slurmstepd: error: Detected 1 oom_kill event", "OUT_OF_MEMORY"),
        ("slurmstepd: error: Detected 1 oom-kill event", "OUT_OF_MEMORY"),
        ("it said: slurmstepd exceeded memory limit", "FAILED"),
        ("", "FAILED"),
    ],
)
def test_a_job_that_failed_for_its_memory_is_known_by_its_output(world, text, state):
    for shown, told in (("FAILED", state), ("TIMEOUT", "TIMEOUT")):
        other = World(Path(world.paths.state_dir) / shown)
        running(other)
        other.left(code=1)
        (other.directory() / "job-17.out").write_text(text)
        (ended,) = ends(other, other.row(state=shown))
        assert ended.ending.job.state == told


DRAINED = Node("n7", ("idle", "drain"), "gpu ecc")


@pytest.mark.parametrize(
    ("state", "nodes", "told"),
    [
        ("FAILED", [Node("n6", ("down",), "x"), DRAINED], (("idle", "drain"), "gpu ecc")),
        ("CANCELLED", [DRAINED], (("idle", "drain"), "gpu ecc")),
        ("FAILED", [Node("n6", ("down",), "x")], ((), "")),
        ("FAILED", AWAY, ((), "")),
        ("TIMEOUT", [DRAINED], None),
    ],
)
def test_the_node_of_a_job_that_failed_is_asked_about(world, state, nodes, told):
    running(world)
    world.left()
    world.cluster.all_nodes = nodes
    (ended,) = ends(world, world.row(state=state))
    assert (ended.ending.job.node_states, ended.ending.job.node_reason) == (told or ((), ""))
    assert world.cluster.said("jobs") == ([] if told is None else [("nodes",)])


def test_the_output_of_a_job_that_slurm_restarted_lies_with_its_first_attempt(world):
    requeued(world)
    world.launcher.spawn(SPEC, 4, NEXT)
    world.launcher.step()
    (world.directory() / "job-17.out").write_text("slurmstepd: error: Detected 1 oom_kill event")
    row = world.row(restarts=1, state="FAILED", nodes=("n7",))
    (ended,) = [*ends(world, row), *ends(world, row, later_s=30.0)]
    assert (ended.token, ended.ending.job.state) == (NEXT, "OUT_OF_MEMORY")


def test_a_path_with_odd_characters_is_quoted_for_sbatch_and_no_pattern(tmp_path):
    world = World(tmp_path / '50% "b"')
    world.spawn()
    directory = str(world.directory()).replace("%", "%%").replace('"', '\\"')
    assert f'#SBATCH --output="{directory}/job-%j.out"\n' in world.cluster.scripts[0]


# --- nodes that never begin ---


@pytest.mark.parametrize(("later_s", "given_up"), [(900.0, False), (900.1, True)])
def test_a_node_has_a_quarter_of_an_hour_to_begin_the_program(world, later_s, given_up):
    world.spawn()
    world.look(world.row(**RUNS))
    world.cluster.said()
    world.look(world.row(**RUNS), later_s=later_s)
    assert world.cluster.said("jobs") == ([("cancel", ["17"])] if given_up else [])
    (ended,) = ends(world, world.row(state="CANCELLED"))
    assert ended.ending.job.state == ("LAUNCH_FAILED" if given_up else "CANCELLED")


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({"state": "REQUEUE_HOLD"}, True), ({"state": "SPECIAL_EXIT"}, True), ({"reason": "JobHoldMaxRequeue"}, True),
        ({"reason": "launch failed requeued held"}, True), ({"reason": "Prolog"}, True), ({"reason": "JobHeldUser"}, False),
        ({"reason": "BadConstraints"}, False),
    ],
)  # fmt: skip
def test_a_job_that_slurm_holds_back_by_itself_is_deleted(world, more, held):
    world.spawn()
    world.cluster.said()
    told = ends(world, world.row(**more))
    assert world.cluster.gone() == (["17"] if held else [])
    assert [each.ending.job.state for each in told] == (["LAUNCH_FAILED"] if held else [])


# --- leaving ---


def test_a_request_to_leave_that_slurm_has_not_answered_is_sent_again_and_one_that_it_has_is_not(world):
    running(world)
    world.cluster.signalled = AWAY
    for _ in range(2):
        world.launcher.ask_to_leave("Pong", TOKEN)
    world.launcher.step()
    assert world.cluster.said() == [("signal", "17", "USR1")]
    world.cluster.signalled = SlurmRefused("Job is in transit")
    world.look(world.row(**RUNS))
    world.look(world.row(**RUNS))
    assert world.cluster.said("jobs") == [("signal", "17", "USR1")]


def test_a_job_that_is_to_die_is_deleted_again_while_it_runs(world):
    running(world)
    world.cluster.deleted = AWAY
    world.launcher.kill_tree("Pong", TOKEN)
    world.launcher.step()
    assert world.cluster.gone() == ["17"]
    world.look(world.row(**RUNS))
    assert world.cluster.said("jobs") == [("cancel", ["17"])]


def test_a_job_without_a_number_cannot_be_asked(world):
    world.cluster.answer = Unknown("timeout", "timeout")
    world.spawn()
    world.cluster.said()
    world.launcher.ask_to_leave("Pong", TOKEN)
    world.launcher.kill_tree("Pong", TOKEN)
    world.launcher.step()
    assert world.cluster.said("jobs") == []
    world.look(world.row())
    assert world.cluster.said("jobs") == [("cancel", ["17"])], "as soon as it has one"
    for nobody in (world.launcher.ask_to_leave, world.launcher.kill_tree):
        nobody("Pong", "x")


def test_a_requeued_job_that_was_to_leave_is_deleted_and_not_continued(world):
    running(world)
    world.launcher.ask_to_leave("Pong", TOKEN)
    world.launcher.step()
    world.cluster.said()
    world.left(code=contract.EXIT_LEFT)
    (ended,) = ends(world, world.row(restarts=1))
    assert ended.ending.job == JobEnd("17", "PENDING", "", "n7", True, "", True, "")
    assert world.cluster.said("jobs")[0] == ("cancel", ["17"])


def requeued(world):
    running(world)
    world.left(code=contract.EXIT_LEFT)
    (ended,) = ends(world, world.row(restarts=1))
    assert ended.ending.job == JobEnd("17", "PENDING", "", "n7", True, "", True, NEXT)
    world.cluster.said()
    return world


@pytest.mark.parametrize(
    ("poll_s", "later_s", "kept"), [(10.0, 30.0, True), (10.0, 30.1, False), (20.0, 40.0, True), (20.0, 40.1, False)]
)
def test_a_requeued_job_that_nobody_continues_is_deleted(world, poll_s, later_s, kept):
    world.settings = replace(SETTINGS, poll_s=poll_s)
    requeued(world)
    world.look(world.row(restarts=1), later_s=later_s)
    assert world.cluster.said() == [("jobs", ["17"]), *([] if kept else [("cancel", ["17"])])]


def test_the_next_attempt_is_the_same_job_and_another_one_is_not(world):
    requeued(world)
    world.launcher.spawn(SPEC, 4, NEXT)
    world.launcher.step()
    assert world.cluster.said() == [("jobs", ["17"])]
    assert world.inbox.items[-1].jobs == {"Pong": JobSight(NEXT, "17", "PENDING", runs=False)}
    world.launcher.spawn(SPEC, 5, "cd" * 16)
    world.launcher.step()
    assert world.cluster.said("jobs") == [("submit", (), world.paths.run_dir("Pong"))]


def test_a_job_that_was_requeued_goes_on_only_as_the_attempt_after(world):
    requeued(world)
    world.launcher.spawn(SPEC, 4, "cd" * 16)
    world.cluster.answer = launchers.Submitted(18)
    world.look(world.row(restarts=1))
    assert world.cluster.said("jobs") == [("submit", (), world.paths.run_dir("Pong")), ("cancel", ["17"])]


# --- which job it is ---


def test_of_jobs_of_one_attempt_the_one_that_runs_is_kept_then_the_lowest_number(world):
    world.cluster.answer = Unknown("timeout", "timeout")
    world.spawn()
    world.cluster.said()
    rows = world.row(15, state="CANCELLED"), world.row(16), world.row(18, **RUNS), world.row(17, **RUNS)
    assert world.look(*rows)[-1].jobs["Pong"].job == "17"
    assert world.cluster.said("jobs") == [("cancel", ["18", "16"])]


@pytest.mark.parametrize(
    ("fields", "is_it"),
    [
        ({"comment": "", "name": "extralife-{}-Pong"}, True),
        ({"comment": "", "name": "extralife-{}-Pong2"}, False),
        ({"comment": "", "name": "extralife-00000000-Pong"}, False),
        ({"comment": "extralife:{}:Pong:3:" + "cd" * 16, "name": "extralife-{}-Pong"}, False),
    ],
)
def test_a_number_that_slurm_gave_again_is_not_the_job(world, fields, is_it):
    running(world)
    fields = {name: text.format(world.launcher.mark) for name, text in fields.items()}
    row = replace(world.row(state="TIMEOUT"), **fields)
    told = [*ends(world, row), *ends(world, row), *ends(world, row, later_s=30.0)]
    assert [each.ending.job.state for each in told] == ["TIMEOUT" if is_it else ""]


def test_jobs_of_others_and_ended_ones_are_left_alone(world):
    running(world)
    mine = str(Tag(world.launcher.mark, "Pong", 1, "cd" * 16))
    other = str(Tag("00000000", "Pong", 1, "cd" * 16))
    rows = Job(20, comment=mine, state="COMPLETED"), Job(21, comment=other, state="RUNNING"), Job(22, state="RUNNING")
    world.look(world.row(**RUNS), *rows)
    assert world.cluster.said("jobs") == []
    world.look(world.row(**RUNS), *rows, Job(23, comment=mine, state="PENDING"))
    assert world.cluster.said("jobs") == [("cancel", ["23"])]


# --- another daemon ---


def survey(world, number=3, token=TOKEN):
    world.restart()
    world.cluster.said()
    return world.launcher.survey({"Pong": (number, token)})["Pong"]


def test_what_is_found_of_an_attempt(world):
    assert survey(world) == Survivor(TOKEN, Survival.NEVER)
    assert world.cluster.said() == [("jobs", ())]
    world.spawn()
    alive = Survivor(TOKEN, Survival.ALIVE)
    world.cluster.rows = AWAY
    assert survey(world) == alive, "its script is there, so it may have been submitted"
    (world.directory() / "job.sh").unlink()
    assert survey(world) == Survivor(TOKEN, Survival.NEVER)
    assert world.launcher.number(TOKEN) is None
    assert survey(world, 4, NEXT) == Survivor(NEXT, Survival.ALIVE), "it may go on in the job of the one before"
    world.cluster.rows = [world.row()]
    assert survey(world) == alive
    world.report(pid=11)
    assert survey(world) == Survivor(TOKEN, Survival.ALIVE, 11, 6, 7, 8)


def test_an_adopted_attempt_goes_on_where_it_was(world):
    running(world)
    world.report(job="19", restart=2)
    world.cluster.rows = AWAY
    found = survey(world)
    world.launcher.adopt("Pong", 3, found)
    world.launcher.adopt("Pong", 3, Survivor("x", Survival.ALIVE))
    world.cluster.rows = []
    world.look()
    assert world.cluster.said() == [("jobs", ()), ("jobs", ["19"])]
    assert world.launcher.number(TOKEN) == 3
    assert world.look()[-1].jobs == {"Pong": JobSight(TOKEN, "19", "PENDING")}


def test_jobs_that_the_journal_lacks_are_found_by_the_fence(world):
    world.spawn()
    mine = world.row(**RUNS)

    def found(*rows):
        world.restart()
        world.cluster.rows = list(rows)
        return world.launcher.unrecorded_workers(["Pong"])

    assert found(mine) == {"Pong": (3, Survivor(TOKEN, Survival.ALIVE))}
    assert world.launcher.unrecorded_workers(["Pong"]) == {}, "it is known by now"
    assert found(replace(mine, restarts=1)) == {"Pong": (4, Survivor(NEXT, Survival.ALIVE))}
    for no in (
        replace(mine, state="TIMEOUT"), replace(mine, comment=str(Tag("00000000", "Pong", 3, TOKEN))),
        replace(mine, comment=str(Tag(world.launcher.mark, "Qbert", 3, TOKEN))),
        replace(mine, comment=str(Tag(world.launcher.mark, "Pong", 3, "cd" * 16))), Job(17, state="RUNNING"),
    ):  # fmt: skip
        assert found(no) == {}
    world.restart()
    world.cluster.rows = AWAY
    assert world.launcher.unrecorded_workers(["Pong"]) == {}


# --- the rest of the port ---


def test_an_attempt_that_is_refused_while_the_queue_is_asked_spoils_nothing_for_the_others(world):
    running(world)
    jobs = world.cluster.jobs

    def refused_meanwhile(wanted=()):
        world.launcher.refuse("Pong", TOKEN, "the disk is full")
        return jobs(wanted)

    world.cluster.jobs = refused_meanwhile
    with capture_logs() as logged:
        told = world.look(world.row(state="TIMEOUT"))
    assert (told[0].error, type(told[-1]), logged) == ("cannot submit Pong: the disk is full", JobsSeen, [])
    world.inbox.items.clear()
    world.launcher.refuse("Qbert", NEXT, "no")
    assert world.inbox.items == [SpawnBroke(world.clock.now_s(), "Qbert", NEXT, "cannot submit Qbert: no")]


def test_a_run_directory_is_made_again_with_its_fence_and_a_newer_fence_is_kept(world):
    fence = Path(world.paths.run_dir("Pong"), "fence")
    world.spawn()
    world.restart()
    world.cluster.rows = [world.row(state="RUNNING", nodes=("n7",))]
    found = survey(world)
    shutil.rmtree(fence.parent)
    world.launcher.adopt("Pong", 3, found)
    assert (world.directory().is_dir(), fence.read_text()) == (True, f"{TOKEN}\n")
    fence.write_text("another\n")
    world.restart()
    world.launcher.adopt("Pong", 3, survey(world))
    assert fence.read_text() == "another\n"
    world.restart()
    found = survey(world)
    shutil.rmtree(fence.parent)
    fence.parent.write_text("a file in its place")
    with capture_logs() as logged:
        world.launcher.adopt("Pong", 3, found)
    assert [each["event"] for each in logged] == ["run_directory_not_restored"]


def test_a_file_that_cannot_be_written_is_named(world):
    beats = Path(world.paths.runtime_dir, "beats")
    beats.parent.mkdir(parents=True)
    beats.touch()
    world.spawn()
    (broke,) = world.inbox.items
    assert broke == SpawnBroke(world.clock.now_s(), "Pong", TOKEN, f"cannot submit Pong: {beats}: Not a directory")
    assert world.cluster.said() == []


def test_a_task_that_breaks_does_not_end_the_thread(world):
    def breaks(*_, **__):
        raise ZeroDivisionError

    world.cluster.submit = breaks
    with capture_logs() as logged:
        world.spawn()
    assert [(each["event"], each["exc_info"]) for each in logged] == [("slurm_task_failed", True)]


def test_the_thread_submits_what_is_asked_for_and_ends_when_it_is_told_to(world):
    submitted = threading.Event()
    submit = world.cluster.submit
    world.cluster.submit = lambda *given, **more: (submitted.set(), submit(*given, **more))[1]
    world.launcher.start()
    world.launcher.spawn(SPEC, 3, TOKEN)
    assert submitted.wait(60.0)
    assert "slurm" in {thread.name for thread in threading.enumerate()}
    world.launcher.close()
    for thread in threading.enumerate():
        if thread.name == "slurm":
            thread.join(60.0)
            assert not thread.is_alive()
    calls = len(world.cluster.calls)
    world.launcher.spawn(SPEC, 4, NEXT)
    world.launcher.step()
    assert len(world.cluster.calls) == calls, "nothing is submitted any more"


@pytest.mark.parametrize(
    ("words", "permanent"),
    [
        *((words, True) for words in (
            "Invalid account or account/partition combination specified", "Invalid qos specification", "invalid feature specification",
            "Invalid generic resource (gres) specification", "Invalid license specification", "Invalid Time limit specification",
            "Unable to allocate resources: Requested node configuration is not available", "Job not permitted", "unrecognized option '--x'",
            "Requested time limit is invalid (missing or exceeds some limit)", "Requested partition configuration is not available now",
            "Invalid job constraint",
        )),
        *((words, False) for words in (
            "Job violates accounting/QOS policy (job submit limit)", "Job submission rejected",
        )),
    ],
)  # fmt: skip
def test_which_refusals_are_for_good(world, words, permanent):
    world.cluster.answer = SlurmRefused(words)
    world.spawn()
    error = f"Slurm refuses the job of Pong: {words}"
    assert world.inbox.items == [SpawnBroke(world.clock.now_s(), "Pong", TOKEN, error, permanent, refused=permanent)]


def test_a_job_that_slurm_does_not_list_runs_as_long_as_its_node_reports(world):
    running(world)
    world.cluster.absent = frozenset({"17"})
    for at_ns in range(91, 100):
        world.report(at_ns=at_ns)
        assert ends(world) == []
    (seen,) = [item.jobs["Pong"] for item in world.inbox.items if isinstance(item, JobsSeen)]
    assert (seen.state, seen.reason) == ("UNKNOWN", "Slurm does not list the job, and its node still reports")
    assert [ends(world, later_s=15.0) for _ in range(2)] == [[], []]
    assert len(ends(world, later_s=15.0)) == 1, "after half a minute without a report it has ended"


def test_a_job_without_a_number_is_the_one_that_its_node_reports(world):
    world.cluster.answer = Unknown("timeout", "timeout")
    world.spawn()
    world.report()
    assert world.look(later_s=1000.0)[0].jobs["Pong"].job == "17"


def test_a_job_that_slurm_has_forgotten_has_ended_once_its_files_had_time_to_appear(world):
    world.spawn()
    world.cluster.absent = frozenset({"17"})
    assert ends(world) == []
    (ended,) = ends(world, later_s=30.0)
    assert ended.ending.fate == "its job 17 ended before its program began (Slurm no longer lists the job)"
