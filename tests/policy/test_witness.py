"""Who says nothing: what proves that it works, what does not, and how long its silence is borne."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.readiness import ready_after_s
from supervisor.policy.worker.stall import Action, Reading, StallSettings, judge, limit_s
from supervisor.policy.worker.witness import WORDS, GpuUse, TreeUsage, works, works_on_gpu

DEFAULT = StallSettings()
BEFORE = TreeUsage(100.0, cpu_s=50.0, io_bytes=10_000_000, written_ns=5)


def silent(age_s, witness_age_s=None, **more):
    """A script that last printed so long ago, and was last seen to work so long ago."""
    now_s = 100_000.0
    witness_at_s = None if witness_age_s is None else now_s - witness_age_s
    base = {"phase": "training", "progress_at_s": now_s - age_s, "proc_state": "S", "beats": False, "witnessed": True}
    return Reading(now_s, spawned_at_s=0.0, **{**base, "witness_at_s": witness_at_s, "witness": "cpu", **more})


@pytest.mark.parametrize(
    ("used", "by"),
    [
        ({}, ""),
        ({"cpu_s": 50.1}, "cpu"),  # 2 % of a core
        ({"cpu_s": 50.09}, ""),
        ({"io_bytes": 10_000_000 + 5 * 16_384}, "io"),
        ({"io_bytes": 10_000_000 + 5 * 16_384 - 1}, ""),
        ({"written_ns": 6}, "files"),
        ({"cpu_s": 55.0, "io_bytes": 10**9, "written_ns": 6}, "cpu"),
        ({"cpu_s": 0.0, "io_bytes": 0, "written_ns": 4}, ""),  # a process has left
        ({"cpu_s": None, "io_bytes": None, "written_ns": None}, ""),
        ({"cpu_s": None, "io_bytes": 10**9}, "io"),  # one that cannot be read leaves the word to the others
    ],
)
def test_what_shows_that_a_tree_works(used, by):
    assert works(BEFORE, dataclasses.replace(BEFORE, at_s=105.0, **used)) == by
    assert by == "" or by in WORDS


def test_a_first_count_and_one_of_the_same_moment_show_nothing():
    assert works(TreeUsage(100.0), dataclasses.replace(BEFORE, at_s=105.0)) == ""
    assert works(BEFORE, dataclasses.replace(BEFORE, cpu_s=99.0)) == ""


def test_a_gpu_is_a_witness_for_the_only_tree_that_holds_it():
    def seen(*holders, percent=50.0):
        return works_on_gpu((GpuUse(frozenset({9}), 90.0), GpuUse(frozenset(holders), percent)), frozenset({7, 8}))

    assert seen(7)
    assert seen(7, 8, percent=5.0)
    assert not seen(7, 9), "another program may be the one that uses it"
    assert not seen()
    assert not seen(7, percent=4.0)
    assert not seen(7, percent=None)


def test_the_worked_example_of_silence():
    verdict = judge(DEFAULT, silent(601.0, 3.0))
    assert (verdict.kind, verdict.action) == ("quiet", Action.NOTE_QUIET)
    assert verdict.why == "no sign of progress for 10m 1s while training, but it uses CPU time: it is quiet, not stalled"
    assert judge(DEFAULT, silent(3600.0, 600.0)).kind == "quiet"
    verdict = judge(DEFAULT, silent(3600.0, 601.0))
    assert (verdict.kind, verdict.action) == ("silent", Action.HEAL)
    nor = "nor has it used CPU time, read or written anything for"
    assert verdict.why == f"no progress for 1h while training (limit 10m): {nor} 10m 1s"
    verdict = judge(DEFAULT, silent(601.0))
    assert (verdict.kind, verdict.why) == ("silent", f"no progress for 10m 1s while training (limit 10m): {nor} 1d 3h")
    assert judge(DEFAULT, silent(600.0)) is None


@pytest.mark.parametrize(
    ("witness", "words"),
    [
        ("cpu", "it uses CPU time"), ("io", "it reads and writes"), ("files", "files below its directory are written"),
        ("gpu", "it uses its GPU"), ("one of tomorrow", "it works"),
    ],
)  # fmt: skip
def test_a_quiet_program_is_reported_with_its_witness(witness, words):
    why = judge(DEFAULT, silent(601.0, 3.0, witness=witness)).why
    assert why == f"no sign of progress for 10m 1s while training, but {words}: it is quiet, not stalled"


def test_a_start_without_a_word_is_borne_as_well():
    start = silent(0.0, 3.0, progress_at_s=None, phase=None)
    assert judge(DEFAULT, start).kind == "quiet"
    assert judge(DEFAULT, dataclasses.replace(start, start_timeout_s=60.0)).kind == "silent"


def test_the_operators_word_is_enough():
    verdict = judge(DEFAULT, silent(61.0, 3.0, stall_timeout_s=60.0))
    assert (verdict.kind, verdict.age_s) == ("silent", 61.0)
    assert verdict.why == "no progress for 1m 1s while training (limit 1m): its configuration calls that a stall"
    assert judge(DEFAULT, silent(901.0, 3.0, stall_timeout_s=60.0, phase="evaluating")).kind == "quiet"


def test_who_reports_its_progress_is_not_asked_for_witnesses():
    assert judge(DEFAULT, silent(601.0, 3.0, witnessed=False)).kind == "silent"


def test_a_child_in_the_kernel_holds_the_whole_tree():
    verdict = judge(DEFAULT, silent(601.0, held_child="python(12)"))
    assert (verdict.kind, verdict.action) == ("uninterruptible", Action.REPORT)
    since = "no progress for 10m 1s while training (limit 10m):"
    waits = "waits inside the kernel or a driver (state D), where no signal reaches it"
    assert verdict.why == f"{since} its process python(12) {waits}"
    assert judge(DEFAULT, silent(601.0, held_child="python(12)", proc_state="D")).why == f"{since} it {waits}"


@pytest.mark.parametrize(("silences", "limit"), [(0, 600), (1, 1200), (2, 2400), (5, 19_200), (6, 21_600), (1000, 21_600)])
def test_a_kill_that_healed_nothing_raises_the_limit(silences, limit):
    assert limit_s(DEFAULT, silent(0.0, silences=silences)) == limit
    assert limit_s(DEFAULT, silent(0.0, silences=silences, stall_timeout_s=60.0)) == 60.0, "the operator's word stays"
    assert limit_s(DEFAULT, silent(0.0, silences=silences, witnessed=False)) == 600.0
    assert limit_s(StallSettings(silence_max_s=60.0), silent(0.0, silences=silences)) == 600.0, "never below the first"


ages = st.floats(0, 1e5)


@given(ages, st.none() | ages, st.integers(0, 20), st.none() | st.floats(1, 1e5), st.sampled_from("RSDTtZ"))
def test_who_works_is_never_healed_and_who_does_not_is_found(age_s, witness_age_s, silences, told_s, state):
    found = silent(age_s, witness_age_s, silences=silences, stall_timeout_s=told_s, proc_state=state)
    verdict, limit = judge(DEFAULT, found), limit_s(DEFAULT, found)
    works_now = witness_age_s is not None and witness_age_s <= limit
    if told_s is None and works_now:
        assert verdict is None or verdict.action is not Action.HEAL
    if age_s > limit and not works_now and state not in "DTt":
        left_alone = silences >= 2 and told_s is None
        assert verdict.action is (Action.REPORT if left_alone else Action.HEAL)


def test_who_died_early_has_to_live_longer_to_count_as_running():
    rules = {"settle_s": 10.0, "start_s": 120.0}
    assert ready_after_s(**rules, died_after_s=None) == 10.0
    assert ready_after_s(**rules, died_after_s=1.0) == 10.0
    assert ready_after_s(**rules, died_after_s=15.0) == pytest.approx(16.5)
    assert ready_after_s(**rules, died_after_s=120.0) == pytest.approx(132.0)
    assert ready_after_s(**rules, died_after_s=121.0) == 10.0, "it had shown that it can start"
