"""The client of Slurm's commands: one suite for the recordings of three versions and for the Slurm that is installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tools import PATIENCE

from supervisor.adapters.slurm import reading
from supervisor.adapters.slurm.client import Done, Jobs, Slurm, SlurmRefused, Submitted, Unknown
from supervisor.formats import span

HERE = Path(__file__).parent
RECORDED = sorted(each.name for each in (HERE / "recorded").iterdir() if each.is_dir())
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
SCRIPT = "#!/bin/sh\n{}\n"


class Played:
    """The commands of a recording."""

    def __init__(self, where: Path, version: str) -> None:
        self.where = where
        where.mkdir()
        (where / "RECORDED").write_text(str(HERE / "recorded" / version))
        for each in COMMANDS:
            shutil.copy(HERE / "played.sh", where / each)
        self.slurm = Slurm(timeout_s=20, directory=str(where))

    def behave(self, how: str) -> None:
        (self.where / "BEHAVE").write_text(how)

    def calls(self) -> list[str]:
        return (self.where / "CALLS").read_text().splitlines()


@pytest.fixture
def played(tmp_path):
    return Played(tmp_path / "bin", RECORDED[-1])


def scenario(slurm: Slurm, real) -> None:
    """What was recorded, on a real Slurm. Its two nodes have two cores and one GPU each."""

    def submit(run: str, line: str, *options: str) -> int:
        answer = slurm.submit(
            SCRIPT.format(line),
            ["--output=/dev/null", "--job-name=extralife-Pong", f"--comment=extralife run={run}", *options],
        )
        assert isinstance(answer, Submitted), answer
        return answer.id

    ended = [
        submit("ok, a|b", "exit 0", "--time=30"), submit("bad", "exit 3", "--time=30", "--gres=gpu:1"),
        submit("killed", "kill -9 $$", "--time=30"),
    ]  # fmt: skip
    running = submit("run", "sleep 300", "--time=1:30:00", "--gres=gpu:1")
    submit("seeds", "sleep 300", "--array=1-9:2%1", "--time=20")
    cancelled = submit("cancelled", "true", "--hold")
    assert slurm.cancel([str(cancelled)]) == Done()
    submit("held", "true", "--hold")
    waits = submit("waits", "true", "--time=10", "--nodes=2", "--exclusive")
    for each in ended:
        real.until_state(each, "COMPLETED", "FAILED")
    real.until_state(running, "RUNNING")
    real.until(
        lambda: real.job(waits)["Reason"] == "Resources" and real.job(waits)["StartTime"] != "Unknown", 60, "it waits"
    )


@pytest.fixture(scope="module", params=[*RECORDED, pytest.param("the installed one", marks=pytest.mark.slurm)])
def told(request, tmp_path_factory):
    """The jobs of the scenario by the run in their comment."""
    if request.param in RECORDED:
        slurm = Played(tmp_path_factory.mktemp("played") / "bin", request.param).slurm
    else:
        slurm = Slurm()
        scenario(slurm, request.getfixturevalue("real"))
    answer = slurm.jobs()
    assert isinstance(answer, Jobs), answer
    return {"slurm": slurm, "jobs": answer.found}


def of(told, run):
    return [job for job in told["jobs"] if job.comment.endswith(f"run={run}")]


def test_every_job_is_told_once(told):
    targets = [job.target for job in told["jobs"]]
    assert len(targets) == len(set(targets)) == 9


@pytest.mark.parametrize(
    ("run", "state", "exit_code", "signal"),
    [("ok, a|b", "COMPLETED", 0, None), ("bad", "FAILED", 3, None), ("killed", "FAILED", None, 9)],
)
def test_how_jobs_ended(told, run, state, exit_code, signal):
    (job,) = of(told, run)
    assert (job.state, job.ended, job.exit_code, job.signal, job.restarts) == (state, True, exit_code, signal, 0)
    assert job.time_limit_s == 1800
    assert job.name == "extralife-Pong"
    assert job.partition == "main"
    assert job.start_expected_at_wall_s is None


def test_a_running_job_has_a_node_and_no_end(told):
    (job,) = of(told, "run")
    assert (job.state, job.ended, job.waiting, job.exit_code, job.signal) == ("RUNNING", False, False, None, None)
    assert job.nodes in {("n1",), ("n2",)}
    assert (job.gpus, job.time_limit_s) == (1, 5400)


def test_a_users_own_array_is_read_too(told):
    assert {job.state for job in of(told, "seeds")} == {"PENDING", "RUNNING"}


def test_why_jobs_wait_and_when_they_may_start(told):
    (held,), (waits,) = of(told, "held"), of(told, "waits")
    assert (held.waiting, held.reason, held.start_expected_at_wall_s) == (True, "JobHeldUser", None)
    assert (waits.waiting, waits.reason in {"", "Resources"}, waits.nodes) == (True, True, ())  # "": not looked at yet
    assert waits.start_expected_at_wall_s is not None


def test_a_deleted_job_is_cancelled(told):
    (job,) = of(told, "cancelled")
    assert job.state == "CANCELLED"


def test_nodes_and_partitions(told):
    nodes, partitions = told["slurm"].nodes(), told["slurm"].partitions()
    assert [(node.name, node.gpus, node.reason) for node in nodes] == [("n1", 1, ""), ("n2", 1, "")]
    main = next(each for each in partitions if each.name == "main")
    assert (main.default, main.up, main.time_limit_s, main.nodes) == (True, True, None, 2)


def test_a_version(told):
    assert told["slurm"].version() in {(22, 5), (23, 11), (24, 11)}


def test_slurm_refuses_in_its_own_words(told):
    refused = told["slurm"].submit(SCRIPT.format("true"), ["--partition=nope"])
    assert refused == SlurmRefused(
        "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified"
    )
    assert isinstance(told["slurm"].submit(SCRIPT.format("true"), ["--foo"]), SlurmRefused)
    assert told["slurm"].cancel(["9999"]) == Done()  # Slurm says nothing of it


def test_a_wanted_job_that_nobody_knows_is_absent_and_the_accounting_is_asked_once(told):
    slurm = told["slurm"]
    before = slurm.calls
    answer = slurm.jobs(["9999"])
    assert (answer.absent, answer.unread) == (frozenset({"9999"}), "")
    assert slurm.calls - before <= 3
    again = slurm.calls
    assert slurm.jobs(["9999"]).absent == {"9999"}
    assert slurm.calls - again == 2


def test_a_real_slurm_runs_a_job_that_is_found_by_its_comment(real):
    """The short form of all that is below, for every run of the tests where Slurm is installed."""
    slurm = Slurm()
    answer = slurm.submit(SCRIPT.format("sleep 100"), ["--output=/dev/null", "--comment=extralife run=short", "--time=5"])
    assert isinstance(answer, Submitted), answer
    real.until_state(answer.id, "RUNNING")
    (job,) = [each for each in slurm.jobs([str(answer.id)]).found if each.id == answer.id]
    assert (job.id, job.comment, job.state, job.time_limit_s) == (answer.id, "extralife run=short", "RUNNING", 300)
    assert slurm.cancel([job.target]) == Done()
    real.until_state(answer.id, "CANCELLED")


@pytest.mark.parametrize(
    ("how", "why"), [("down", "unreachable"), ("garbage", "garbage"), ("silent", "garbage"), ("killed", "garbage")]
)
def test_whatever_is_no_answer_is_unknown_and_never_a_failure(played, how, why):
    played.behave(how)
    for answer in (
        played.slurm.submit(SCRIPT.format("true")), played.slurm.jobs(["1"]), played.slurm.nodes(), played.slurm.partitions(),
        played.slurm.version(),
    ):  # fmt: skip
        assert isinstance(answer, Unknown), answer
        assert answer.why == why
        assert answer.words.isprintable()
        assert answer.words


def test_a_cut_list_of_jobs_is_no_list(played, monkeypatch):
    """The rest of the jobs would look as if they had vanished."""
    played.behave("cut")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with pytest.raises(reading.ParseError, match=r"has no end|fields instead of"):
        reading.jobs_in_text((HERE / "recorded" / RECORDED[-1] / "squeue.txt").read_text()[:700])
    assert played.slurm.jobs().why == "garbage"


def test_a_submission_that_is_not_answered_in_time_is_unknown_and_may_have_happened(played):
    slurm = Slurm(timeout_s=PATIENCE, directory=str(played.where))  # in this time it takes the script, on a busy machine too
    played.behave("late")
    answer = slurm.submit(SCRIPT.format("true"))
    assert answer == Unknown(f"sbatch has not answered within {span(PATIENCE)}", "timeout")
    assert (played.where / "SUBMITTED").read_text() == SCRIPT.format("true")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Batch job submission failed: Invalid account or account/partition combination specified", SlurmRefused),
        ("Batch job submission failed: Invalid qos specification", SlurmRefused),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", SlurmRefused),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", SlurmRefused),
        ("Batch job submission failed: Socket timed out on send/recv operation", Unknown),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", Unknown),
        ("Batch job submission failed: Zero Bytes were transmitted or received", Unknown),
        ("Batch job submission failed: Unexpected message received", Unknown),
        ("Batch job submission failed: Slurm backup controller in standby mode", Unknown),
        ("Batch job submission failed: Protocol authentication error", Unknown),
        ("Slurm temporarily unable to accept job, sleeping and retrying", Unknown),
        ("Munge encode failed: Failed to access /run/munge/munge.socket.2: No such file or directory", Unknown),
    ],
)  # fmt: skip
def test_which_words_of_sbatch_are_a_refusal(tmp_path, said, kind):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\ncat >/dev/null\ncat >&2 <<'END'\nsbatch: error: {said}\nEND\nexit 1\n")
    sbatch.chmod(0o755)
    answer = Slurm(directory=str(tmp_path)).submit(SCRIPT.format("true"))
    assert isinstance(answer, kind)
    assert answer.words == said


@pytest.mark.parametrize(
    ("text", "expected"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.1\n", (24, 11)), ("a site's slurm-x 23.2", (23, 2))],
)
def test_versions(text, expected):
    assert reading.version_in(text) == expected


@pytest.mark.parametrize("text", ["", "22.05", "myslurm 22.05", "SLURM 22.05", "slurm 22"])
def test_a_version_that_is_none_is_garbage(text):
    with pytest.raises(reading.ParseError) as garbage:
        reading.version_in(text)
    assert str(garbage.value) == f"--version: {text!r} names no version"
