"""What `status` says of jobs: id, node, queue reason, expected start; nodes that are avoided; hours by account."""

import pytest
from core_kit import Core, settings
from fakes import FakeSources

from supervisor.features.slurm import lines as shown
from supervisor.features.slurm.messages import JobSight, JobsSeen
from supervisor.features.slurm.page import NO_CLUSTER, cluster_view, job_view, nodes
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.features.slurm.verbs import page as nodes_page
from supervisor.model.inputs import Ended, Ending
from supervisor.model.memory import Memory
from supervisor.reports.status_view import status_view

ONE = LauncherSettings(kind="slurm", node_faults=1, node_exclude_s=3600.0)


def begun():
    core = Core(settings("Pong", launcher=ONE))
    core.begin()
    return core


def see(core, **more):
    core.give(JobsSeen(core.now_s, {"Pong": JobSight(core.token("Pong"), "17", **more)}))


def view(core, memory=None):
    return job_view("Pong", core.state, core.memory if memory is None else memory)


def test_a_job_that_waits():
    core = begun()
    assert view(core) is None
    see(core, state="PENDING", reason="Resources", partition="gpu", start_expected_wall_s=1_800_000_500.0)
    found = view(core)
    assert (found["id"], found["state"], found["reason"], found["node"]) == ("17", "PENDING", "Resources", None)
    assert found["start_expected_wall_s"] == 1_800_000_500.0
    assert shown.cell(found).startswith("17 PENDING (Resources), begins about ")


def test_a_job_that_runs_also_as_the_record_of_a_dead_daemon_has_it():
    core = begun()
    see(core, state="RUNNING", node="a14", partition="gpu", account="lab", runs=True, start_expected_wall_s=1.0)
    assert shown.cell(view(core)) == "17 on a14"
    assert view(core)["start_expected_wall_s"] is None
    dead = view(core, Memory())
    assert (dead["id"], dead["node"], dead["partition"], dead["account"], dead["state"]) == ("17", "a14", "gpu", "lab", None)
    assert shown.cell(dead) == "17 on a14"


def test_the_job_of_an_attempt_that_is_over_is_not_shown():
    core = begun()
    see(core, state="RUNNING", node="a14", runs=True)
    core.later(7200.0)
    end = JobEnd("17", "NODE_FAIL", node="a14")
    core.give(Ended(core.now_s, "Pong", core.token("Pong"), Ending(job=end)))
    assert view(core) is None
    assert job_view("Qbert", core.state, core.memory) is None
    assert shown.cell(None) == "-"
    see(core, state="COMPLETING")
    assert shown.cell(view(core)) == "17 COMPLETING"


def test_what_stands_out_of_a_cluster():
    core = begun()
    see(core, state="RUNNING", node="a14", partition="gpu", account="lab", gpus=2, runs=True)
    core.later(7200.0)
    core.give(Ended(core.now_s, "Pong", core.token("Pong"), Ending(job=JobEnd("17", "NODE_FAIL", node="a14"))))
    core.give(JobsSeen(core.now_s, {}, "no controller"))
    core.later(60.0)
    found = cluster_view(core.state, now_s=core.now_s)
    assert found == {
        "error": "no controller", "unreachable_s": 60.0, "avoided": {"a14": 3540.0},
        "accounts": {"lab": {"jobs": 1, "hours": 2.0, "gpu_hours": 4.0, "hours_unknown": 0.0}},
    }  # fmt: skip
    lines = shown.lines({"cluster": found})
    assert "has not answered" in lines[0]
    assert lines[1].startswith("nodes that new jobs avoid: a14 for ")
    assert lines[2] == "used by account: lab 2h in 1 job, 4.0 GPU hours"


def test_without_a_cluster_no_page_has_a_word_of_it():
    core = Core(settings("Pong"))
    core.begin()
    for settings_ in (core.settings, None):
        page = status_view(FakeSources(core.state, settings=settings_, memory=core.memory, now_s=core.now_s))
        assert ["cluster" in page["daemon"], *("job" in each for each in page["programs"])] == [False, False]
    assert shown.lines({}) == []


def test_status_has_the_job_of_each_program():
    core = begun()
    see(core, state="RUNNING", node="a14", runs=True)
    sources = FakeSources(core.state, settings=core.settings, memory=core.memory, now_s=core.now_s)
    assert [each["job"]["node"] for each in status_view(sources)["programs"]] == ["a14"]


def lost(core, job, node="a14", after_s=7200.0, **more):
    see(core, state="RUNNING", node=node, partition="gpu", account="lab", gpus=2, runs=True)
    core.spawned("Pong")
    core.later(after_s)
    end = JobEnd(job, **{"state": "NODE_FAIL", "node": node, "began": True, **more})
    core.give(Ended(core.now_s, "Pong", core.token("Pong"), Ending(job=end)))


def test_nodes_and_partitions_those_with_the_most_faults_first():
    core = begun()
    lost(core, "17", state="PREEMPTED", node="a13")
    lost(core, "18")
    core.later(60.0)
    see(core, state="RUNNING", node="a15", partition="gpu", runs=True)
    core.later(3600.0)
    found = nodes(FakeSources(core.state, core.settings, now_s=core.now_s))
    assert found["says"] == ""
    assert [(each["name"], each["jobs"], each["hours"], each["faults"]) for each in found["nodes"]] == [
        ("a14", 1, 2.0, 1), ("a13", 1, 2.0, 0), ("a15", 1, 1.0, 0),
    ]  # fmt: skip
    worst, preempted, _ = found["nodes"]
    assert (worst["mtbf_h"], worst["faults_in_a_week"], worst["last_fault_ago_s"]) == (2.0, 1, 3660.0)
    assert worst["mtbf_bound_h"] == pytest.approx(0.51, abs=0.01)
    assert worst["avoided_for_s"] is None, "an hour is over"
    assert (preempted["mtbf_h"], preempted["last_fault_ago_s"], preempted["preemptions"]) == (None, None, 1)
    assert [(each["name"], each["jobs"], each["hours"], each["faults"]) for each in found["partitions"]] == [
        ("gpu", 3, 5.0, 1)
    ]


def test_the_nodes_as_people_see_them():
    core = begun()
    lost(core, "18")
    lines = nodes_page(nodes(FakeSources(core.state, core.settings, now_s=core.now_s)))
    assert lines[0].split() == ["NODE", "JOBS", "HOURS", "FAULTS", "PREEMPTED", "MTBF", "MTBF", ">=", "LAST", "FAULT"]
    assert lines[1].split()[:6] == ["a14", "1", "2.0", "1", "0", "2h"]
    assert lines[1].endswith("new jobs avoid it for 1h")
    assert lines[3].startswith("PARTITION")
    assert lines[4].split()[:2] == ["gpu", "1"]
    core = begun()
    see(core, state="PENDING")
    assert nodes_page(nodes(FakeSources(core.state, core.settings, now_s=0.0))) == ["no job has run on a node yet"]
    assert nodes_page(nodes(FakeSources(core.state, None, now_s=0.0))) == [NO_CLUSTER]


def test_a_node_that_fails_before_it_has_run_anything_has_no_hours():
    core = begun()
    lost(core, "17", after_s=0.0)
    (node,) = nodes(FakeSources(core.state, core.settings, now_s=core.now_s))["nodes"]
    assert (node["hours"], node["mtbf_h"], node["mtbf_bound_h"]) == (0.0, 0.0, None)


def test_hours_whose_gpus_are_not_known_are_said():
    used = {"jobs": 2, "hours": 3.0, "gpu_hours": 4.0, "hours_unknown": 1.0}
    found = {"unreachable_s": None, "avoided": {}, "accounts": {"lab": used, "x": {**used, "gpu_hours": None}}}
    told = "used by account: lab 3h in 2 jobs, at least 4.0 GPU hours; x 3h in 2 jobs, GPU hours unknown"
    assert shown.lines({"cluster": found}) == [told]
    core = begun()
    see(core, state="RUNNING", node="a14", account="lab", runs=True)
    core.later(3600.0)
    core.give(Ended(core.now_s, "Pong", core.token("Pong"), Ending(job=JobEnd("17", "PREEMPTED"))))
    view = cluster_view(core.state, now_s=core.now_s)
    assert view["accounts"] == {"lab": {"jobs": 1, "hours": 1.0, "gpu_hours": None, "hours_unknown": 1.0}}
