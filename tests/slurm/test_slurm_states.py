"""What a real Slurm said of jobs in many states (`record_states.py`), and what the parsers make of anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.slurm.adapters import reading
from supervisor.features.slurm.adapters.client import Jobs, Slurm
from supervisor.features.slurm.rules.jobs import Job

HERE = Path(__file__).parent / "recorded_states"
VERSIONS = sorted(each.name for each in HERE.iterdir())
# run: state, reason, nodes, exit code, signal, restarts
EXPECTED = {
    "completed": ("COMPLETED", "", 1, 0, None, 0),
    "failed": ("FAILED", "NonZeroExitCode", 1, 3, None, 0),
    "signalled": ("FAILED", "JobLaunchFailure", 1, None, 11, 0),
    "ate": ("FAILED", "JobLaunchFailure", 1, None, 9, 0),  # memory is watched without a cgroup there
    "range": ("COMPLETED", "", 3, 0, None, 0),
    "timeout": ("TIMEOUT", "TimeLimit", 1, None, 9, 0),
    "node_fail": ("NODE_FAIL", "NodeDown", 1, None, None, 0),
    "requeued": ("PENDING", "ReqNodeNotAvail", 0, None, None, 1),
    "preempted_requeued": ("PENDING", "Resources", 0, None, None, 1),
    "preempted": ("PREEMPTED", "", 1, None, 15, 0),
    "urgent": ("RUNNING", "", 1, None, None, 0),
    "requeue_hold": ("PENDING", "job requeued in held state", 0, None, None, 1),
    "special_exit": ("SPECIAL_EXIT", "job requeued in held state", 0, None, None, 1),
    "suspended": ("SUSPENDED", "", 1, None, None, 0),
    "cancelled": ("CANCELLED", "", 1, None, 15, 0),
    "cancelled_waiting": ("CANCELLED", "JobHeldUser", 0, None, None, 0),
    "held": ("PENDING", "JobHeldUser", 0, None, None, 0),
    "begin": ("PENDING", "BeginTime", 0, None, None, 0),
    "running": ("RUNNING", "", 2, None, None, 0),
    "dependency": ("PENDING", "Dependency", 0, None, None, 0),
    "never": ("PENDING", "DependencyNeverSatisfied", 0, None, None, 0),
    "resources": (
        "PENDING", "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        0, None, None, 0,
    ),
    "draining": ("RUNNING", "", 1, None, None, 0),
}  # fmt: skip


def said(version: str, name: str) -> str:
    return (HERE / version / name).read_text()


def run_of(job: Job) -> str:
    return job.comment.removeprefix("run=")


def as_expected(job: Job) -> tuple[object, ...]:
    return job.state, job.reason, len(job.nodes), job.exit_code, job.signal, job.restarts


@pytest.mark.parametrize("version", VERSIONS)
def test_each_state_is_read_from_the_queue(version):
    found = reading.jobs_in_text(said(version, "squeue.txt"))
    seeds = [job for job in found if run_of(job) == "seeds"]  # a user's own array
    by_run = {run_of(job): job for job in found if job not in seeds}
    assert {run: as_expected(job) for run, job in by_run.items()} == EXPECTED
    assert {"COMPLETED", "FAILED", "PENDING", "RUNNING"} == {job.state for job in seeds}
    assert by_run["range"].nodes == ("n2", "n3", "n4")
    assert by_run["running"].nodes == ("n1", "n2")
    assert (by_run["running"].gpus, by_run["running"].time_limit_s) == (2, 90180.0)
    assert {job.state for job in found if job.waiting} == {"PENDING", "SPECIAL_EXIT"}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_end_is_read_from_the_accounting(version):
    found = reading.jobs_in_accounting(said(version, "sacct.txt"))
    ends = {run_of(job): job for job in found if job.ended}
    told = {run: (job.state, len(job.nodes), job.exit_code, job.signal) for run, job in ends.items()}
    assert told == {
        "completed": ("COMPLETED", 1, 0, None), "failed": ("FAILED", 1, 3, None), "signalled": ("FAILED", 1, None, 11),
        "ate": ("FAILED", 1, None, 9), "range": ("COMPLETED", 3, 0, None), "timeout": ("TIMEOUT", 1, None, None),
        "node_fail": ("NODE_FAIL", 1, None, None), "requeued": ("NODE_FAIL", 1, None, None),
        "preempted_requeued": ("PREEMPTED", 1, None, None), "preempted": ("PREEMPTED", 1, None, None),
        "cancelled": ("CANCELLED", 1, None, None),
    }  # fmt: skip
    assert {job.comment for job in found if job.state in {"PENDING", "RUNNING"}} == {""}, "it is stored at the end"


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_in_many_states(version):
    found = {node.name: node for node in reading.nodes_in(said(version, "nodes.txt"))}
    assert {name: node.states for name, node in found.items()} == {
        "n1": ("allocated",), "n2": ("mixed",), "n3": ("idle",), "n4": ("draining",), "n5": ("allocated",),
        "n6": ("down", "not_responding"),
    }  # fmt: skip
    assert (found["n4"].reason, found["n6"].reason, found["n1"].reason) == ("a fan, loud", "Not responding", "")
    assert found["n5"].partitions == ("main", "urgent", "short")
    limits = {each.name: each.time_limit_s for each in reading.partitions_in(said(version, "partitions.txt"))}
    assert limits == {"main": None, "urgent": None, "short": 3600.0}


def test_a_job_that_only_the_accounting_calls_running_is_absent(tmp_path):
    """The controller, which knows every live job, never reported its end to the accounting."""
    for name, text in (("squeue", ""), ("sacct", said(VERSIONS[-1], "sacct.txt"))):
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{name}.txt\n")
        (tmp_path / name).chmod(0o755)
    found = {job.comment: job.id for job in reading.jobs_in_accounting(said(VERSIONS[-1], "sacct.txt")) if job.ended}
    lost, over = 20, found["run=failed"]
    answer = Slurm(directory=str(tmp_path)).jobs([str(over), str(lost)])
    assert isinstance(answer, Jobs)
    assert (over in {job.id for job in answer.found}, answer.absent) == (True, {str(lost)})
    assert all(job.ended for job in answer.found)


# --- anything else ---

WORDS = st.one_of(
    st.sampled_from(["", "(null)", "N/A", "PENDING", "RUNNING", "NEW_STATE", "n[1-3,7]", "n[3-1", "1:0", "0:9", "UNLIMITED",
                     "1-00:00:00", "gres/gpu=2", "gpu:a100:2", "4294967294", "-1", "9" * 5000, f"n[1-{'9' * 5000}]", "1-" + "9" * 5000, "gpu:" + "9" * 5000, "1e9", "²", "17_[1-3]", "17+1", "a,b:c"]),
    st.integers().map(str),
    st.text(max_size=12),
)  # fmt: skip
PARSERS = {
    "queue": (reading.jobs_in_text, reading.SQUEUE_FIELDS, reading.RECORD),
    "accounting": (reading.jobs_in_accounting, reading.SACCT_FIELDS, "\n"),
    "nodes": (reading.nodes_in, reading.SINFO_NODE, "\n"),
    "partitions": (reading.partitions_in, reading.SINFO_PARTITION, "\n"),
}
FILES = {"queue": "squeue.txt", "accounting": "sacct.txt", "nodes": "nodes.txt", "partitions": "partitions.txt"}


def total(parse, text: str) -> list[object]:
    """Records, or the one error that the client knows; its sentence is short and on one line."""
    try:
        return list(parse(text))
    except reading.ParseError as error:
        told = str(error)
    assert 0 < len(told) < 500
    return []


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_rows_of_any_words_are_records_or_garbage(kind, data):
    parse, fields, end = PARSERS[kind]
    rows = [row.lstrip("\n").split(reading.FIELD) for row in said(VERSIONS[-1], FILES[kind]).split(end)[:-1]]
    row = data.draw(st.sampled_from(rows))
    for at in data.draw(st.sets(st.integers(0, len(fields) - 1), max_size=3)):
        row[at] = data.draw(WORDS)
    total(parse, reading.FIELD.join(row) + end)


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_what_was_recorded_is_cut_or_damaged_anywhere(kind, data):
    """A cut answer never looks as if the jobs behind the cut had vanished: it is garbage, or it was cut between two."""
    parse, _, end = PARSERS[kind]
    whole = said(VERSIONS[-1], FILES[kind])
    at = data.draw(st.integers(0, len(whole)))
    if total(parse, whole[:at]):
        assert not whole[:at].split(end)[-1].strip()
    there = data.draw(st.text(max_size=8))
    total(parse, whole[:at] + there + whole[at + data.draw(st.integers(0, 20)) :])
