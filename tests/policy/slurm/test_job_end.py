"""Why a job ended: the table of `features/slurm/rules/job_end.py`, and which nodes are avoided."""

import signal
from dataclasses import replace

import pytest

from supervisor.features.slurm.rules import nodes
from supervisor.features.slurm.rules.job_end import JobEnd, judge
from supervisor.features.slurm.settings import JobResources, LauncherSettings

DAY_S = 86400.0

ENDS = [
    # what is seen of the job, exit code, signal -> cause, counted, the node's fault
    ("node failed", {"state": "NODE_FAIL"}, None, None, ("node_failed", False, True)),
    ("never launched", {"state": "LAUNCH_FAILED"}, None, None, ("node_failed", False, True)),
    ("preempted", {"state": "PREEMPTED"}, None, None, ("job_preempted", False, False)),
    ("preempted after its save", {"state": "PREEMPTED", "asked": "signal"}, 75, None, ("job_preempted", False, False)),
    (
        "requeued, had saved",
        {"state": "PENDING", "requeued": True, "asked": "signal"},
        75,
        None,
        ("job_preempted", False, False),
    ),
    (
        "requeued, was asked",
        {"state": "PENDING", "requeued": True, "asked": "signal"},
        None,
        None,
        ("job_preempted", False, False),
    ),
    ("requeued, ended", {"state": "PENDING", "requeued": True}, 1, None, ("job_preempted", False, False)),
    ("requeued, vanished", {"state": "PENDING", "requeued": True}, None, None, ("node_failed", False, True)),
    ("at its limit, saved", {"state": "COMPLETED", "asked": "time limit"}, 75, None, ("time_limit", False, False)),
    ("a script at its limit", {"state": "FAILED", "asked": "time limit"}, None, 15, ("time_limit", False, False)),
    ("saved, then overran", {"state": "TIMEOUT", "asked": "time limit"}, 75, None, ("time_limit", False, False)),
    ("too slow to save", {"state": "TIMEOUT", "asked": "time limit"}, None, None, ("timeout", True, False)),
    ("past the partition's end", {"state": "DEADLINE"}, None, None, ("timeout", True, False)),
    ("out of memory", {"state": "OUT_OF_MEMORY"}, None, 9, ("oom_killed", True, False)),
    ("deleted", {"state": "CANCELLED", "asked": "signal"}, 75, None, ("cancelled", False, False)),
]

WHYS = {  # of each cause, and whether Slurm put the job back
    ("node_failed", False): "job 17 ended with its node on node a14 ({})",
    ("node_failed", True): "job 17 vanished on node a14, and Slurm put it back into its queue",
    ("job_preempted", False): "job 17 on node a14 had to make room for another ({})",
    ("job_preempted", True): "Slurm took job 17 on node a14 back into its queue",
    ("time_limit", False): "the time of job 17 on node a14 is over: it saved and left",
    (
        "timeout",
        False,
    ): "job 17 on node a14 was killed at its time limit before it had saved and left; raise launcher.signal_lead_s",
    ("oom_killed", False): "job 17 on node a14 needed more memory than it was given",
    ("cancelled", False): "somebody deleted job 17 on node a14, such as with scancel",
}


@pytest.mark.parametrize(("seen", "code", "number", "expected"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_an_end_that_the_cluster_explains(seen, code, number, expected):
    found = judge(JobEnd("17", node="a14", **seen), code=code, signal=number, done_codes=(0,))
    assert found is not None
    assert (found.cause, found.counted, found.fault) == expected
    assert found.why == WHYS[expected[0], bool(seen.get("requeued"))].format(seen["state"])


@pytest.mark.parametrize(
    ("seen", "code", "number"),
    [
        ({"state": "COMPLETED"}, 0, None),
        ({"state": "PREEMPTED"}, 0, None),  # preempted after its last step
        ({"state": "PENDING", "requeued": True}, 0, None),
        ({"state": "FAILED"}, 1, None),
        ({"state": ""}, None, signal.SIGSEGV),
        ({"state": ""}, None, None),
        ({"state": "COMPLETED", "asked": "signal"}, 75, None),
    ],
)
def test_an_end_that_its_exit_code_explains(seen, code, number):
    assert judge(JobEnd("17", **seen), code=code, signal=number, done_codes=(0,)) is None


def test_a_node_without_a_name_is_left_out_of_the_sentence():
    found = judge(JobEnd("17", "NODE_FAIL"), code=None, signal=None, done_codes=(0,))
    assert found is not None
    assert found.why == "job 17 ended with its node (NODE_FAIL)"


WEEK = {"now_s": 7 * DAY_S, "faults": 2, "exclude_s": DAY_S, "avoided": 0, "used": 9}


def test_the_worked_example_of_a_bad_node():
    faults = {}
    for day, until_day in ((0.0, None), (1.0, None), (1.5, 2.5), (3.0, 4.0)):
        faults = nodes.remembered(faults, "a14", day * DAY_S)
        until_s = nodes.exclude_until_s(faults["a14"], **{**WEEK, "now_s": day * DAY_S, "faults": 3})
        assert until_s == (None if until_day is None else until_day * DAY_S)


def test_faults_of_more_than_a_week_ago_are_forgotten():
    faults = nodes.remembered({"a14": (0.0, 1.0), "b": (0.0,)}, "a14", 8 * DAY_S)
    assert faults == {"a14": (8 * DAY_S,)}
    assert nodes.remembered({"a14": (0.0, 1.0)}, "a14", 7 * DAY_S) == {"a14": (1.0, 7 * DAY_S)}, "a week and no more"
    assert nodes.exclude_until_s((0.0, 7 * DAY_S), **WEEK) is None
    assert nodes.exclude_until_s((1.0, 7 * DAY_S), **WEEK) == 8 * DAY_S
    assert nodes.exclude_until_s((0.0, 1.0, 8 * DAY_S), **{**WEEK, "now_s": 8 * DAY_S}) is None


def test_the_memory_of_nodes_is_bounded():
    faults = {}
    for number in range(nodes.KEPT + 50):
        faults = nodes.remembered(faults, f"n{number}", float(number))
    assert len(faults) == nodes.KEPT
    assert "n0" not in faults
    assert f"n{nodes.KEPT + 49}" in faults


@pytest.mark.parametrize(
    ("avoided", "used", "excluded"), [(0, 1, True), (0, 2, True), (1, 2, False), (1, 4, True), (2, 4, False), (0, 0, True)]
)
def test_at_most_half_of_the_nodes_are_avoided_at_once(avoided, used, excluded):
    """A level that overheats them all would leave nowhere to go."""
    found = nodes.exclude_until_s((0.0, 1.0, 2.0), **{**WEEK, "now_s": 2.0, "avoided": avoided, "used": used})
    assert found == (2.0 + DAY_S if excluded else None)


def test_several_jobs_may_be_lost_by_one_fault():
    assert not nodes.same_fault((), begun_at_s=0.0, at_s=5.0)
    assert nodes.same_fault((100.0,), begun_at_s=50.0, at_s=130.0)
    assert not nodes.same_fault((100.0,), begun_at_s=110.0, at_s=130.0), "it began after that fault"
    assert nodes.same_fault((100.0,), begun_at_s=50.0, at_s=700.0)
    assert not nodes.same_fault((100.0,), begun_at_s=50.0, at_s=701.0), "it has lived on after that fault"
    assert not nodes.same_fault((100.0,), begun_at_s=100.0, at_s=130.0), "it began with that fault"
    assert nodes.same_fault((20.0, 100.0), begun_at_s=50.0, at_s=130.0)
    assert not nodes.same_fault((100.0, 20.0), begun_at_s=50.0, at_s=130.0), "the last fault counts"
    assert not nodes.same_fault((100.0,), begun_at_s=None, at_s=130.0)


@pytest.mark.parametrize(
    ("job", "lines", "says"),
    [
        (
            {},
            ("RuntimeError: CUDA error: uncorrectable ECC error encountered",),
            "job 17 failed on node a14: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        ),
        (
            {},
            ("a", "NVRM: Xid 79, GPU has fallen off the bus.", "b"),
            "job 17 failed on node a14: NVRM: Xid 79, GPU has fallen off the bus.",
        ),
        (
            {"node_states": ("drained",), "node_reason": "gpu ecc"},
            (),
            "job 17 failed on node a14: the node is out of use: gpu ecc",
        ),
        (
            {"node_states": ("mixed", "drain"), "node_reason": "NHC: check_hw nv_healthmon"},
            (),
            "job 17 failed on node a14: the node is out of use: NHC: check_hw nv_healthmon",
        ),
        ({"node_states": ("idle",), "node_reason": "gpu ecc was last week"}, (), None),
        ({"node_states": ("drained",), "node_reason": "planned kernel update"}, (), None),
        ({}, ("RuntimeError: CUDA error: an illegal memory access was encountered",), None),
        ({"node": ""}, ("uncorrectable ECC error encountered",), None),
        (
            {"state": "OUT_OF_MEMORY"},
            ("uncorrectable ECC error encountered",),
            "job 17 on node a14 needed more memory than it was given",
        ),
    ],
)
def test_broken_hardware_is_the_nodes_fault(job, lines, says):
    end = JobEnd(**{"job": "17", "state": "FAILED", "node": "a14", "began": True, **job})
    found = judge(end, code=1, signal=None, done_codes=(0,), last_lines=lines)
    assert (found is None) is (says is None)
    if found is not None:
        assert found.why == says
        assert found.fault is (found.cause == "node_failed")
        assert found.counted is (found.cause == "oom_killed")


def test_what_a_level_asks_for_of_a_job():
    base = LauncherSettings(kind="slurm", gpus=1, cpus=4)
    assert JobResources().over(base) == base
    assert JobResources(gres="gpu:a100:2").over(base) == replace(base, gres="gpu:a100:2", gpus=0)
    assert JobResources(gpus=2).over(replace(base, gpus=0, gres="gpu:a100:1")) == replace(base, gpus=2)
    assert JobResources(gres="gpu:x:1", cpus=2).then({"gpus": 3}) == JobResources(gpus=3, cpus=2)
    assert JobResources(gpus=3).then({"cpus": 8}) == JobResources(gpus=3, cpus=8)
