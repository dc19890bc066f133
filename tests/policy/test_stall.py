"""Whether a worker still makes progress: every phase, every class, and nothing judged by what is not known."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.stall import NOT_HEALED, Action, Reading, StallSettings, judge, limit_s

DEFAULT = StallSettings()
PHASES = ["importing", "building", "restoring", "compiling", "training", "evaluating", "saving", "leaving"]


def reading(age_s, **more):
    """`age_s` since the last sign of progress, the live thread just seen, state S."""
    now_s = 100_000.0
    base = {"phase": "training", "progress_at_s": now_s - age_s, "live_at_s": now_s - 0.4, "proc_state": "S"}
    return Reading(now_s, spawned_at_s=0.0, **{**base, **more})


def test_the_worked_example_of_the_docstring():
    assert judge(DEFAULT, reading(30.0, largest_gap_s=0.8)) is None
    verdict = judge(DEFAULT, reading(31.0, largest_gap_s=0.8))
    assert (verdict.kind, verdict.action, verdict.age_s, verdict.limit_s) == ("hang", Action.HEAL, 31.0, 30.0)
    assert judge(DEFAULT, reading(99.0, largest_gap_s=20.0)) is None
    assert judge(DEFAULT, reading(101.0, largest_gap_s=20.0)).limit_s == 100.0


@pytest.mark.parametrize(
    ("phase", "more", "limit"),
    [
        ("training", {}, 30),
        ("training", {"largest_gap_s": 10.0}, 50),
        ("training", {"largest_gap_s": 1e6}, 3600),  # learned, but not without end
        ("training", {"stall_timeout_s": 7.0, "largest_gap_s": 1e6}, 7),  # the operator's word overrides both
        ("training", {"beats": False}, 600),  # a log may grow once in a few minutes
        ("training", {"beats": False, "largest_gap_s": 200.0}, 1000),
        ("training", {"beats": False, "stall_timeout_s": 7.0}, 7),
        (None, {}, 30),  # a program that names no phase trains
        ("building", {}, 60),
        ("building", {"num_envs": 256}, 188),
        ("building", {"num_envs": 10**6}, 3600),
        ("building", {"stall_timeout_s": 7.0}, 60),  # that one is for training alone
        ("importing", {}, 300),
        ("restoring", {}, 300),
        ("compiling", {}, 900),
        ("evaluating", {}, 900),
        ("saving", {}, 120),
        ("leaving", {}, 120),
        ("a phase of tomorrow", {}, 3600),
        ("saving", {"phase_deadline_s": 100_500.0}, 500),  # its own deadline is later: `progress_at_s` is 100,000
        ("saving", {"phase_deadline_s": 100_050.0}, 120),  # or earlier: then it does not count
        ("saving", {"phase_deadline_s": 200_000.0}, 3600),  # up to the cap
        ("training", {"progress_at_s": None}, 120),
        ("training", {"progress_at_s": None, "beats": False}, 600),
        ("training", {"progress_at_s": None, "start_timeout_s": 9.0}, 9),
        ("training", {"progress_at_s": None, "beats": False, "start_timeout_s": 9.0}, 9),
        ("training", {"phase_deadline_s": 100_500.0}, 500),
        ("training", {"phase_deadline_s": 100_500.0, "stall_timeout_s": 60.0}, 60),  # the operator's word counts
        ("training", {"progress_at_s": None, "start_timeout_s": 9.0, "phase_deadline_s": 700.0}, 700),
    ],
)  # fmt: skip
def test_every_phase_has_its_limit(phase, more, limit):
    now = reading(0.0, phase=phase, **more)
    assert limit_s(DEFAULT, now) == limit
    began_s = now.spawned_at_s if now.progress_at_s is None else now.progress_at_s
    assert judge(DEFAULT, dataclasses.replace(now, now_s=began_s + limit)) is None
    assert judge(DEFAULT, dataclasses.replace(now, now_s=began_s + limit + 1)) is not None


def test_a_start_without_any_sign_of_progress():
    verdict = judge(DEFAULT, Reading(121.0, spawned_at_s=0.0, proc_state="S"))
    assert verdict.kind == "silent"
    assert verdict.why == "no progress for 2m 1s since it was started (limit 2m): it sends no beats"


@pytest.mark.parametrize(
    ("proc_state", "live_age_s", "kind", "action"),
    [
        ("S", 0.4, "hang", Action.HEAL),
        ("R", 10.0, "hang", Action.HEAL),
        ("R", 10.1, "gil", Action.HEAL),
        ("S", None, "silent", Action.HEAL),
        (None, 0.4, "hang", Action.HEAL),
        (None, None, "silent", Action.HEAL),
        ("D", 0.4, "uninterruptible", Action.REPORT),
        ("D", None, "uninterruptible", Action.REPORT),
        ("T", 0.4, "stopped", Action.CONTINUE),
        ("t", None, "stopped", Action.CONTINUE),
    ],
)
def test_classes(proc_state, live_age_s, kind, action):
    live_at_s = None if live_age_s is None else 100_000.0 - live_age_s
    verdict = judge(DEFAULT, reading(31.0, proc_state=proc_state, live_at_s=live_at_s))
    assert (verdict.kind, verdict.action) == (kind, action)
    still = "no progress for 31s while training"
    assert verdict.why == {
        "hang": f"{still} (limit 30s): its other threads run, so a call in Python, the environment or CUDA never returned",
        "gil": f"{still} (limit 30s): none of its threads ran for 10s: something holds the GIL",
        "silent": f"{still} (limit 30s): it sends no beats",
        "uninterruptible": f"{still} (limit 30s): it waits inside the kernel or a driver (state D), where no signal reaches it",
        "stopped": f"someone stopped the process (state {proc_state}): {still}",
    }.get(kind)
    assert (kind in NOT_HEALED) == (action is Action.REPORT), "`status` says `being healed` of every other kind"


def test_a_stopped_process_is_seen_long_before_the_limit():
    assert judge(DEFAULT, reading(5.0, proc_state="T")) is None
    assert judge(DEFAULT, reading(5.1, proc_state="T")).kind == "stopped"
    short = reading(3.0, proc_state="T", stall_timeout_s=2.0)
    assert judge(DEFAULT, short).kind == "stopped", "a limit below `continue_s` holds for it too"


numbers = st.floats(0, 1e6)
maybe = st.none() | numbers


@given(
    numbers, maybe, maybe, maybe, maybe, maybe, maybe, st.none() | st.integers(0, 2000), st.booleans(),
    st.sampled_from([None, *"RSDTtZ"]), st.sampled_from([None, *PHASES]),
)  # fmt: skip
def test_unknown_is_never_judged_as_zero(now_s, progress, live, deadline, gap, stall_s, start_s, envs, beats, proc, phase):
    """A reading that is missing may only make us wait longer, or call the stall by another name."""
    full = Reading(
        now_s=now_s + 1e6, spawned_at_s=now_s, phase=phase, phase_deadline_s=deadline, progress_at_s=progress,
        live_at_s=live, proc_state=proc, beats=beats, num_envs=envs, largest_gap_s=gap, stall_timeout_s=stall_s,
        start_timeout_s=start_s,
    )  # fmt: skip
    verdict = judge(DEFAULT, full)
    if verdict is None:
        assert judge(DEFAULT, dataclasses.replace(full, live_at_s=None)) is None
        assert judge(DEFAULT, dataclasses.replace(full, proc_state=None)) is None
    else:
        assert verdict.age_s > min(verdict.limit_s, DEFAULT.continue_s)
        assert verdict.why
    blank = Reading(now_s=full.now_s, spawned_at_s=full.now_s - 1.0)
    assert judge(DEFAULT, blank) is None, "nothing known, just started: nothing to say"


@pytest.mark.parametrize("state", [None, "S", "T", "D"])
def test_a_job_that_its_cluster_suspended_does_not_stall(state):
    suspended = reading(90_000.0, phase="suspended", proc_state=state)
    assert judge(DEFAULT, suspended) is None
    assert judge(DEFAULT, dataclasses.replace(suspended, phase="training")) is not None
