"""Why a job ended: the table of `policy/cluster/job_end.py`, and which nodes are avoided."""

import signal

import pytest

from supervisor.policy.cluster import nodes
from supervisor.policy.cluster.job_end import JobEnd, judge
from supervisor.policy.cluster.launcher import LauncherSettings

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


@pytest.mark.parametrize(("seen", "code", "number", "expected"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_an_end_that_the_cluster_explains(seen, code, number, expected):
    found = judge(JobEnd("17", node="a14", **seen), code=code, signal=number, done_codes=(0,))
    assert found is not None
    assert (found.cause, found.counted, found.fault) == expected
    assert "job 17" in found.why
    assert "on node a14" in found.why


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


def test_only_a_cluster_is_remote():
    assert not LauncherSettings().remote
    assert LauncherSettings(kind="slurm").remote


def test_the_worked_example_of_a_bad_node():
    faults = {}
    for day, until_day in ((0.0, None), (1.0, None), (1.5, 2.5), (3.0, 4.0)):
        faults = nodes.remembered(faults, "a14", day * DAY_S)
        until_s = nodes.exclude_until_s(faults["a14"], now_s=day * DAY_S, faults=3, exclude_s=DAY_S)
        assert until_s == (None if until_day is None else until_day * DAY_S)


def test_faults_of_more_than_a_week_ago_are_forgotten():
    faults = nodes.remembered({"a14": (0.0, 1.0), "b": (0.0,)}, "a14", 8 * DAY_S)
    assert faults == {"a14": (8 * DAY_S,)}
    assert nodes.exclude_until_s((0.0, 1.0, 8 * DAY_S), now_s=8 * DAY_S, faults=2, exclude_s=DAY_S) is None


def test_the_memory_of_nodes_is_bounded():
    faults = {}
    for number in range(nodes.KEPT + 50):
        faults = nodes.remembered(faults, f"n{number}", float(number))
    assert len(faults) == nodes.KEPT
    assert "n0" not in faults
    assert f"n{nodes.KEPT + 49}" in faults
