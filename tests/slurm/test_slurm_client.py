"""The client of Slurm's commands: one suite for the recordings of three versions and for the Slurm that is installed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from leaks import open_files
from tools import PATIENCE

from supervisor.features.slurm.adapters import reading
from supervisor.features.slurm.adapters.client import Done, Jobs, Slurm, SlurmRefused, Submitted, Unknown, environment
from supervisor.features.slurm.rules.jobs import Job
from supervisor.formats import span
from workers import contract

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
    ("text", "expected"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.1\n", (24, 11)), ("a site's slurm-x 23.2", (23, 2))]
)
def test_versions(text, expected):
    assert reading.version_in(text) == expected


@pytest.mark.parametrize("text", ["", "22.05", "myslurm 22.05", "SLURM 22.05", "slurm 22"])
def test_a_version_that_is_none_is_garbage(text):
    with pytest.raises(reading.ParseError) as garbage:
        reading.version_in(text)
    assert str(garbage.value) == f"--version: {text!r} names no version"


COMMAND = """\
#!/bin/sh
here=$(dirname "$0")
name=$(basename "$0")
for each in "$name" "$@" "cwd=$(pwd)"; do printf '%s\\0' "$each" >>"$here/calls"; done
printf '\\n' >>"$here/calls"
cat >"$here/given"
env >"$here/env"
cat "$here/$name.out"
cat "$here/$name.err" >&2
exit "$(cat "$here/$name.code")"
"""
FIELDS = dict.fromkeys(reading.SQUEUE_FIELDS, "")


class Commands:
    """Slurm's commands, each of which notes how it was called and says what it is told to."""

    def __init__(self, where: Path) -> None:
        self.where, self.slurm = where, Slurm(directory=str(where))
        for name in ("sbatch", "squeue", "sacct", "sinfo", "scancel", "scontrol"):
            (where / name).write_text(COMMAND)
            (where / name).chmod(0o755)
            self.say(name)

    def say(self, name: str, out: str = "", err: str = "", code: int = 0) -> None:
        for end, text in (("out", out), ("err", err), ("code", str(code))):
            (self.where / f"{name}.{end}").write_text(text)

    def knows_no_job(self) -> None:
        self.say("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", code=1)

    def calls(self) -> list[list[str]]:
        """All calls since the last look, each with the directory in which it ran."""
        path = self.where / "calls"
        found = [line.split("\0") for line in path.read_text().split("\0\n")[:-1]]
        path.unlink()
        return found


@pytest.fixture
def said(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def queue(*rows: dict[str, str]) -> str:
    return "".join(reading.FIELD.join((FIELDS | row).values()) + reading.RECORD + "\n" for row in rows)


FORM = ",".join(f"{name}:\x1f" for name in reading.SQUEUE_FIELDS[:-1]) + f",{reading.SQUEUE_FIELDS[-1]}:\x1e"
ME = ["--all", "--states=all", f"--user={os.getuid()}"]
SQUEUE = ["squeue", *ME, "--noheader", "-O", FORM]
SACCT = "JobID,JobName,Comment,State,NodeList,Partition,Account,QOS,ExitCode,AllocTRES,TimelimitRaw"


def sacct(*targets: str) -> list[str]:
    return ["sacct", "-n", "-P", "-X", "--delimiter=\x1f", f"--jobs={','.join(targets)}", f"--format={SACCT}"]


CALLS: list[tuple[Callable[[Slurm], Any], list[str], Any]] = [
    (lambda slurm: slurm.cancel(["17", "18"]), ["scancel", "17", "18"], Done()),
    (lambda slurm: slurm.signal("17", "USR1"), ["scancel", "--signal=USR1", "--batch", "17"], Done()),
    (lambda slurm: slurm.nodes(), ["sinfo", "--all", "-N", "-h", "-o", "%N\x1f%T\x1f%E\x1f%R\x1f%G\x1f%c"], []),
    (lambda slurm: slurm.partitions(), ["sinfo", "--all", "-h", "-o", "%P\x1f%a\x1f%l\x1f%D"], []),
    (lambda slurm: slurm.jobs(), SQUEUE, Jobs(())),
]


@pytest.mark.parametrize(("call", "argv", "answer"), CALLS, ids=[f"{argv[0]} {argv[1]}" for _, argv, _ in CALLS])
def test_each_call_is_one_command(said: Commands, call: Callable[[Slurm], Any], argv: list[str], answer: Any) -> None:
    assert call(said.slurm) == answer
    assert said.calls() == [[*argv, "cwd=/"]]
    assert ((said.where / "given").read_text(), said.slurm.calls) == ("", 1)


def test_a_script_is_given_to_sbatch_with_its_options_where_it_is_to_run(said: Commands, tmp_path: Path) -> None:
    said.say("sbatch", "17\n")
    assert said.slurm.submit("#!/bin/sh\nä\n", ["--a=b c", "-x"], cwd=str(tmp_path)) == Submitted(17)
    assert said.calls() == [["sbatch", "--parsable", "--a=b c", "-x", f"cwd={tmp_path}"]]
    assert (said.where / "given").read_text() == "#!/bin/sh\nä\n"
    assert said.slurm.submit("x") == Submitted(17)
    assert said.slurm.would_take("#!x") == Done()
    assert said.calls() == [["sbatch", "--parsable", "cwd=/"], ["sbatch", "--test-only", "cwd=/"]]
    assert (said.where / "given").read_text() == "#!x"


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        ("17;main\n", "", 0, Submitted(17)),
        ("hello\n 17 \nbye\n", "a warning", 0, Submitted(17)),
        ("17\n", "", 1, Submitted(17)),
        ("17;a b\n", "", 0, Unknown("sbatch: an answer without a job's number: '17;a b'", "garbage")),
        ("17\n18\n", "", 0, Unknown("sbatch: an answer without a job's number: '17 18'", "garbage")),
        ("x" * 300, "", 0, Unknown(f"sbatch: an answer without a job's number: {'x' * 200!r}", "garbage")),
        ("", "sbatch: error: a\nsbatch: fatal: b\nsbatch: error: a\n", 1, SlurmRefused("a; b")),
        ("", "SBATCH: Error: a\n\nsbatch: c\n", 1, SlurmRefused("a; c")),
        ("", "a wrapper\nsbatch: error: a\n", 1, SlurmRefused("a wrapper; a")),
        ("", "a wrapper: sbatch: no\n", 1, Unknown("a wrapper: sbatch: no", "garbage")),
        ("no\x1b\n", "", 1, Unknown("no\\x1b", "garbage")),
        ("", "", 3, Unknown("sbatch ended with status 3 and printed nothing", "garbage")),
        ("", f"sbatch: error: {'x' * 700}\n", 1, SlurmRefused("x" * 600)),
        ("", "sbatch: error: Munge encode failed\n", 1, Unknown("Munge encode failed", "unreachable")),
    ],
)
def test_what_sbatch_says(said: Commands, out: str, err: str, code: int, answer: Any) -> None:
    said.say("sbatch", out, err, code)
    assert said.slurm.submit("x") == answer


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        ("whatever", "a warning", 0, Done()),
        ("", "sbatch: error: no\n", 1, SlurmRefused("no")),
        ("", "Connection refused", 1, Unknown("Connection refused", "unreachable")),
    ],
)
def test_whether_sbatch_would_take_a_script(said: Commands, out: str, err: str, code: int, answer: Any) -> None:
    said.say("sbatch", out, err, code)
    assert said.slurm.would_take("x") == answer


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        ("something", " \n", 0, Done()),
        ("", "scancel: error: Kill job error on job id 17: Invalid job id specified\n", 0,
         SlurmRefused("Kill job error on job id 17: Invalid job id specified")),
        ("", "scancel: error: no\n", 1, SlurmRefused("no")),
        ("said here\n", "", 1, SlurmRefused("said here")),
        ("", "", 1, Unknown("scancel ended with status 1 and printed nothing", "garbage")),
        ("", "scancel: error: Socket timed out\n", 1, Unknown("Socket timed out", "unreachable")),
    ],
)  # fmt: skip
def test_what_scancel_says(said: Commands, out: str, err: str, code: int, answer: Any) -> None:
    said.say("scancel", out, err, code)
    assert said.slurm.cancel(["17"]) == answer


def test_a_command_that_was_killed_has_decided_nothing(said: Commands) -> None:
    (said.where / "scancel").write_text("#!/bin/sh\necho 'scancel: error: no' >&2\nkill -9 $$\n")
    assert said.slurm.cancel(["17"]) == Unknown("no", "garbage")


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        ("x", "", 0, Unknown("sinfo: its last line has no end: 'x'", "garbage")),
        ("", "sinfo: error: no\n", 1, Unknown("no", "garbage")),
        ("", "slurm_load_node: Unable to contact slurm controller (connect failure)", 1,
         Unknown("slurm_load_node: Unable to contact slurm controller (connect failure)", "unreachable")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_unknown(said: Commands, out: str, err: str, code: int, answer: Any) -> None:
    said.say("sinfo", out, err, code)
    assert said.slurm.nodes() == said.slurm.partitions() == answer


# --- the queue ---------------------------------------------------------------------------------------------------------------

RUNS = {"JobID": "17", "State": "RUNNING"}
NO_ACCOUNTING = "Slurm accounting storage is disabled\n"
OVER = "18|a|c|FAILED|n1||||5:0||\n".replace("|", "\x1f")
LASTS = "19|a||RUNNING|n1||||0:0||\n".replace("|", "\x1f")
ENDED = Job(18, "a", "c", "FAILED", "", ("n1",), "", "", "", None, 5)


def test_jobs_that_the_queue_lacks_are_looked_up_once_in_the_accounting(said: Commands) -> None:
    said.knows_no_job()
    said.say("squeue", queue(RUNS))
    said.say("sacct", OVER + LASTS)
    (runs,) = said.slurm.jobs(["17"]).found  # type: ignore[union-attr]
    assert (runs, said.calls()) == (Job(17, state="RUNNING"), [[*SQUEUE, "cwd=/"]])
    assert said.slurm.jobs(["20", "19", "17", "18"]) == Jobs((runs, ENDED), frozenset({"19", "20"}))
    newest = ["scontrol", "-o", "show", "job", "20", "cwd=/"]
    assert said.calls() == [[*SQUEUE, "cwd=/"], [*sacct("18", "19", "20"), "cwd=/"], newest]


@pytest.mark.parametrize(
    ("out", "err", "doubt"),
    [
        (
            "JobId=1710 UserId=me({me}) JobState=PENDING\n",
            "",
            "squeue does not list job 1710, and scontrol does not say that it is unknown",
        ),
        ("", "", "squeue does not list job 1710, and scontrol does not say that it is unknown"),
        (
            "",
            "slurm_load_jobs error: Unable to contact slurm controller\n",
            "slurm_load_jobs error: Unable to contact slurm controller",
        ),
        ("JobId=1710 UserId=her(77777) JobState=RUNNING\n", "", ""),
        ("", "slurm_load_jobs error: Invalid job id specified\n", ""),
    ],
)
def test_an_empty_queue_needs_the_controllers_word_that_the_newest_job_is_unknown(
    said: Commands, out: str, err: str, doubt: str
) -> None:
    said.say("sacct", err=NO_ACCOUNTING, code=1)
    said.say("scontrol", out.format(me=os.getuid()), err, code=1 if err or "not found" in out else 0)
    gone = frozenset({"9", "179", "1710"})
    assert said.slurm.jobs(gone) == Jobs((), frozenset() if doubt else gone, doubt)


def test_an_accounting_that_gives_no_answer_leaves_the_missing_ones_unknown(said: Commands) -> None:
    said.knows_no_job()
    said.say("squeue", queue(RUNS))
    said.say("sacct", err="sacct: error: Connection refused\n", code=1)
    for _ in range(2):
        assert said.slurm.jobs(["18"]) == Jobs((Job(17, state="RUNNING"),), unread="Connection refused")
    assert len(said.calls()) == 4, "it is asked again"
    said.say("sacct", err=NO_ACCOUNTING, code=1)
    for _ in range(2):
        assert said.slurm.jobs(["18"]) == Jobs((Job(17, state="RUNNING"),), frozenset({"18"}))
    assert [call[0] for call in said.calls()] == ["squeue", "sacct", "scontrol", "squeue", "scontrol"], (
        "a cluster without one is asked once"
    )


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_a_wanted_job_that_failed_leaves_the_second_call_to_the_nodes(said: Commands, state: str) -> None:
    said.knows_no_job()
    said.say("squeue", queue(RUNS | {"State": state}))
    said.say("sacct", err=NO_ACCOUNTING, code=1)
    unread = "a job failed, so sinfo is queried for its node; sacct is queried at the next poll"
    job = Job(17, state=state)
    assert said.slurm.jobs(["17", "18"]) == Jobs((job,), unread=unread)
    assert said.slurm.jobs(["18"]) == Jobs((job,), frozenset({"18"})), "nobody waits for the one that failed"
    said.say("squeue", queue(RUNS | {"State": "TIMEOUT"}))
    assert said.slurm.jobs(["17", "18"]) == Jobs((Job(17, state="TIMEOUT"),), frozenset({"18"}))


def test_a_controller_that_is_away_is_not_asked_in_another_form(said: Commands) -> None:
    said.say("squeue", err="squeue: error: Unable to contact slurm controller", code=1)
    assert said.slurm.jobs(["17"]) == Unknown("Unable to contact slurm controller", "unreachable")
    assert said.calls() == [[*SQUEUE, "cwd=/"]]


# --- processes ---------------------------------------------------------------------------------------------------------------


def test_a_command_that_hangs_is_killed_with_its_children_and_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "scancel").write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{tmp_path}/child\nwait\n")
    (tmp_path / "scancel").chmod(0o755)
    before = open_files()
    ends_s = time.monotonic() + 60.0
    for timeout_s in (0.25, 1.0, 4.0, 16.0):  # a busy machine may need so long to begin it
        assert Slurm(timeout_s=timeout_s, directory=str(tmp_path)).cancel(["1"]) == Unknown(
            f"scancel has not answered within {span(timeout_s)}", "timeout"
        )
        if (tmp_path / "child").exists() and (tmp_path / "child").read_text():
            break
    child = int((tmp_path / "child").read_text())
    while not ended(child):
        assert time.monotonic() < ends_s, "its child lives on"
        time.sleep(0.01)
    assert open_files() <= before


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_script_that_no_process_can_be_given_is_unknown() -> None:
    assert Slurm(directory="/nonexistent").cancel(["a"]) == Unknown(
        "scancel cannot be run: No such file or directory", "missing"
    )
    assert Slurm(directory="/bin/true").cancel(["a"]) == Unknown("scancel cannot be run: Not a directory", "missing")
    assert Slurm().cancel(["a\0b"]).why == "missing"  # type: ignore[union-attr]
    assert Slurm().cancel(["a\0b"]).words == "scancel cannot be run: embedded null byte"  # type: ignore[union-attr]


def test_the_environment_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    kept = {
        "SLURM_CONF": "a",
        "SLURM_JWT": "b",
        "SLURM_CLUSTERS": "c",
        "SLURM_CONF_SERVER": "d",
        "HOME": "e",
        "MY_SLURM_X": "f",
    }
    lost = [f"{each}_X" for each in (
        "SLURM", "SLURMD", "SBATCH", "SQUEUE", "SACCT", "SINFO", "SCANCEL", "SALLOC", "SCONTROL", "SRUN",
    )] + sorted(contract.STRIPPED_ENV)  # fmt: skip
    for name, value in {**kept, **dict.fromkeys(lost, "x"), "LC_ALL": "de_DE"}.items():
        monkeypatch.setenv(name, value)
    assert environment() == {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def test_a_command_is_given_that_environment(said: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "x")
    said.slurm.cancel(["1"])
    lines = (said.where / "env").read_text().splitlines()
    assert "SLURM_TIME_FORMAT=%s" in lines
    assert "SBATCH_ACCOUNT=x" not in lines
