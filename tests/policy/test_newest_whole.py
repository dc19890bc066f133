"""Checkpoints that a script writes itself: which one counts, from when on one is doubtful, and which one is set aside."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker import newest_whole, unsaved
from supervisor.policy.worker.newest_whole import DOUBTED, DOUBTFUL, TORN, UNREADABLE, WHOLE, Candidate, Choice, choose
from supervisor.policy.worker.step_in_name import parsed
from supervisor.policy.worker.suspects import Verdict, judge


def found(step: int | None, verdict: str = WHOLE, written_s: float = 0.0) -> Candidate:
    return Candidate(f"step={step}.pt", step, written_s, 100, verdict)


@pytest.mark.parametrize(
    ("verdicts", "newest", "torn_at", "unsure"),
    [
        ((), None, None, None),
        ((TORN, WHOLE), 1, 0, None),
        ((TORN, TORN, WHOLE), 2, 0, None),
        ((DOUBTFUL, WHOLE), 1, None, 0),
        ((UNREADABLE, TORN, DOUBTFUL, WHOLE), 3, 1, 0),
        ((DOUBTED, DOUBTFUL), None, 0, 0),
        ((WHOLE, TORN, DOUBTFUL), 0, None, None),  # what is older than a whole one says nothing
    ],
)
def test_the_newest_whole_one(
    verdicts: tuple[str, ...], newest: int | None, torn_at: int | None, unsure: int | None
) -> None:
    candidates = [found(step, verdict) for step, verdict in enumerate(verdicts)]
    choice = choose(candidates)
    assert choice.spare is None
    for place, each in ((newest, choice.newest), (torn_at, choice.torn), (unsure, choice.unsure)):
        assert each == (None if place is None else candidates[place])


def test_if_none_is_whole_the_oldest_doubtful_one_is_the_last_resort() -> None:
    candidates = [found(step, verdict) for step, verdict in enumerate((DOUBTFUL, DOUBTED, TORN))]
    assert [newest_whole.last_resort(candidates[at:]) for at in (0, 2)] == [candidates[1], None]
    last = found(900, DOUBTFUL, 1000.0)
    chosen = [newest_whole.last_resort([last, found(100, WHOLE, written_s), candidates[0]]) for written_s in (399.0, 401.0)]
    assert chosen == [last, None], "nor does a best.pt of hours ago take the place of the last one"


def test_a_spare_one_is_the_next_whole_one() -> None:
    candidates = [found(step, verdict) for step, verdict in enumerate((TORN, WHOLE, TORN, DOUBTFUL, WHOLE, WHOLE))]
    assert choose(candidates) == Choice(candidates[1], candidates[0], None, candidates[4])


def test_order_is_by_step_where_one_has_a_step_and_else_by_time() -> None:
    rows = [(None, 9.0, "last.pt"), (300, 1.0, "a"), (300, 2.0, "a"), (1000, 0.5, "b"), (None, 8.0, "best.pt")]
    newest_first = sorted(rows, key=lambda row: newest_whole.order(*row), reverse=True)
    assert newest_first == [rows[3], rows[2], rows[1], rows[0], rows[4]]


def test_one_whose_step_file_is_torn_comes_after_the_one_written_before_it() -> None:
    rows = [("run", None, 300.0), ("c-120", 120, 100.0), ("c-240", None, 200.0), ("c-60", None, 50.0), ("c-180", 180, 150.0)]
    assert newest_whole.with_stand_ins(rows) == [None, 120, 180, None, 180]


def test_the_newest_is_what_the_newest_attempt_wrote() -> None:
    """A script that counts from 0 again: attempt 1 began at 100 s, attempt 2 at 200 s, attempt 3 at 300 s wrote nothing."""
    first, second = (2300, 150.0, "step=2300.pt"), (700, 250.0, "step=700.pt")
    copied_back, best = (900, 260.0, "step=900.pt"), (None, 270.0, "best.pt")
    rows = [first, second, copied_back, best, (5000, 50.0, "from before.pt")]
    newest_first = sorted(rows, key=lambda row: newest_whole.order(*row, [100.0, 200.0, 300.0]), reverse=True)
    assert newest_first == [copied_back, second, best, first, rows[4]], "of one attempt the step decides"


@pytest.mark.parametrize("starts", [[1000.0, 10.0], [10.0, 1000.0 + 3600.0]])
def test_after_a_clock_that_stepped_the_step_decides(starts: list[float]) -> None:
    """It was set back after the first start, or was an hour ahead at the second: both files count as of one attempt."""
    rows = [(900, 1005.0, "of the first"), (950, 1002.0, "of the second")]
    assert max(rows, key=lambda row: newest_whole.order(*row, starts)) == rows[1]


@pytest.mark.parametrize(
    ("age_s", "running", "seen", "doubt_s", "settled"),
    [
        (4.0, True, "stable alone", None, False),
        (5.0, True, "stable", None, True),
        (10.0, True, "", None, False),  # seen once, while it was open
        (0.5, True, "closed alone", None, True),
        (0.4, True, "closed alone", None, False),
        (4.9, True, "closed", None, False),  # the next file of the directory may not have begun
        (5.0, True, "closed", None, True),
        (0.1, False, "", None, True),  # after an orderly end nobody was writing
        (0.1, False, "stable closed", 95.0, False),
        (5.1, False, "", 95.0, True),
    ],
)
def test_a_format_that_does_not_tell_is_settled_by_time_and_writers(
    age_s: float, running: bool, seen: str, doubt_s: float | None, settled: bool
) -> None:
    evidence = {each: each in seen for each in ("stable", "closed", "alone")}
    assert (
        newest_whole.is_settled(100.0 - age_s, running=running, quiet_s=age_s, doubt_from_wall_s=doubt_s, **evidence)
        is settled
    )


@pytest.mark.parametrize(
    ("cause", "by_itself", "ended_s", "sign_s", "doubt_s"),
    [
        ("", False, None, None, None),  # its first start
        ("stopped", True, 1000.0, None, None),
        ("stopped", False, 1000.0, None, 995.0),  # SIGKILL after its grace
        ("crash", True, 1000.0, None, 995.0),  # a full disk ends a save with an exit code
        ("killed", False, 1000.0, 1005.0, 945.0),  # its last save had not reached the disk at the power cut
        ("stopped", True, 1000.0, 7000.0, 6940.0),
        ("reboot", False, 1100.0, 1000.0, 940.0),
        ("reboot", False, 1100.0, None, 1040.0),
    ],
)
def test_what_an_end_may_have_cut(
    cause: str, by_itself: bool, ended_s: float | None, sign_s: float | None, doubt_s: float | None
) -> None:
    got = newest_whole.doubt_from_wall_s(cause, by_itself=by_itself, ended_wall_s=ended_s, last_sign_wall_s=sign_s)
    assert got == doubt_s


@pytest.mark.parametrize(
    ("times", "gap_s"),
    [((), None), ((5.0,), None), ((0.0, 300.0), None), ((9301.0, 0.0, 300.0, 605.0, 9000.0), 303.0), ((7.0,) * 5, None)],
)
def test_the_usual_gap(times: tuple[float, ...], gap_s: float | None) -> None:
    assert newest_whole.usual_gap_s(times) == gap_s


@pytest.mark.parametrize(
    ("deaths", "torn", "older", "tried", "acquitted", "verdict"),
    [
        (0, True, True, 0, False, Verdict.KEEP),
        (2, True, True, 0, False, Verdict.KEEP),
        (3, True, True, 0, False, Verdict.SET_ASIDE),
        (2, False, True, 0, False, Verdict.KEEP),
        (3, False, True, 0, False, Verdict.SET_ASIDE),
        (3, False, True, 1, False, Verdict.SET_ASIDE),
        (3, False, True, 2, False, Verdict.PUT_BACK),  # three in a row: the cause is not a checkpoint
        (3, False, False, 0, False, Verdict.PUT_BACK),  # no older one is whole: a person is told
        (3, False, False, 1, False, Verdict.PUT_BACK),  # all that there are
        (3, False, True, 0, True, Verdict.KEEP),
        (3, True, True, 0, True, Verdict.KEEP),
    ],
)
def test_a_suspect_is_tried_and_acquitted(
    deaths: int, torn: bool, older: bool, tried: int, acquitted: bool, verdict: Verdict
) -> None:
    assert judge(3, deaths=deaths, torn=torn, older_is_whole=older, tried=tried, acquitted=acquitted) is verdict


@pytest.mark.parametrize(
    ("age_s", "gap_s", "steps", "saved", "says"),
    [
        (3601.0, 1200.0, None, None, "no checkpoint for 1h (usually every 20m): a note"),
        (3600.0, 1200.0, None, None, ""),
        (601.0, 10.0, 500, 400, "no checkpoint for 10m 1s (usually every 10s): a note"),
        (601.0, 10.0, 400, 400, ""),  # it makes no steps
        (7200.0, None, None, None, ""),
        (7201.0, None, None, None, "no checkpoint for 2h: a note"),
    ],
)
def test_overdue_by_its_own_habit(
    age_s: float, gap_s: float | None, steps: int | None, saved: int | None, says: str
) -> None:
    assert unsaved.overdue_unasked(age_s, gap_s, steps=steps, saved_step=saved, note="a note") == says


def test_overdue_without_a_note() -> None:
    assert unsaved.overdue_unasked(7201.0, None, steps=None, saved_step=None, note="") == "no checkpoint for 2h"


# --- steps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "path", "step"),
    [
        (r"step=(\d+)", "runs/a/epoch=3-step=1200.ckpt", 1200),
        (r"step=(\d+)", "runs/a/last.ckpt", None),
        (r"(\w+)\.pt", "final.pt", None),
        (r"(\d+)\.pt", "0.pt", 0),
        (r"(\d+)\.pt", f"{10**18}.pt", None),  # no count of steps
        (r"(\d*)\.pt", "x.pt", None),
        (r"(?P<epoch>\d+)-(?P<step>\d+)", "3-700.pt", 700),
        (r"(x)?(?P<step>\d+)", "8.pt", 8),
        (r"(a)|(b)", "b", None),
        (r"checkpoint-(\d+)$", "checkpoint-500", 500),
        (r"(\d+)", "line\nbreak 7.pt", 7),
        (r"(\d+)", "\u0663.pt", None),  # a digit of another script
        (r"(\d+)", "7" * 501, None),
        ("", "step=7.pt", None),
    ],
)
def test_the_step_in_a_path(rule: str, path: str, step: int | None) -> None:
    assert parsed(rule).of_path(path) == step


@pytest.mark.parametrize(
    ("rule", "base", "path", "step"),
    [
        (r"step_(\d+)", "/data/step_1200", "last.pt", 1200),
        (r"step_(\d+)", "/data/step_1200", "step_1300.pt", 1300),
        (r"(\d+)", "/data/exp2/run5", "ckpt-500.pt", 500),
        (r"(\d+)", "/data/exp2/run5", "last.pt", None),
        (r"run(\d+)", "/data/run2/run5", "last.pt", 5),
        (r"run5/.*-(\d+)", "/data/exp2/run5", "ckpt-500.pt", 500),
        (
            r"exp(\w+)",
            "/data/exp2",
            "exponent.pt",
            None,
        ),  # it matches the part of the path that comes first, without a number
        (r"step=(\d+)", "/data", "last.pt", None),
        (r"(\d+)", "/data/" + "x" * 500, "last.pt", None),
    ],
)
def test_the_step_is_searched_in_the_whole_path_below_the_globs_directory_first(rule, base, path, step):
    assert parsed(rule).of_path(path, base) == step


@pytest.mark.parametrize(
    ("rule", "body", "step"),
    [
        ("trainer_state.json:global_step", {"global_step": 500}, 500),
        ("trainer_state.json:global_step", {"global_step": 500.0}, 500),
        ("trainer_state.json:global_step", {"global_step": 0.5}, None),
        ("trainer_state.json:global_step", {"global_step": True}, None),
        ("trainer_state.json:global_step", {"global_step": -1}, None),
        ("trainer_state.json:global_step", {"global_step": "500"}, None),
        ("trainer_state.json:global_step", [], None),
        ("trainer_state.json:global_step", None, None),
        ("s.json:a.b", {"a": {"b": 7}}, 7),
        ("s.json:a.b", {"a": 7}, None),
    ],
)
def test_the_step_in_a_file(rule: str, body: object, step: int | None) -> None:
    found_rule = parsed(rule)
    assert found_rule.file.endswith(".json")
    assert found_rule.pattern is None
    assert found_rule.of_json(body) == step


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (r"(\d+", "is no regular expression: missing ), unterminated subpattern at position 0"),
        (r"step=\d+", "has no group for the number; write it in parentheses, such as step=(\\d+)"),
        (r"(\d+)+", "repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)"),
        (r"(a|ab)*(\d)", "repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)"),
        (r"((?:x+y)*)", "repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)"),
        (r"(?:(?=a+))*(\d)", "repeats what holds a repetition or a choice, which can take for ever; try step=(\\d+)"),
        (r"(.*).*.*.*", "has more than 3 open repetitions (such as .*), which can take for ever"),
        (r"(\d)" * 51, "has more than 200 characters"),
    ],
)
def test_expressions_that_are_refused(rule: str, why: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(why)}$"):
        parsed(rule)


@pytest.mark.parametrize("rule", [r"(?:\d+)?(\d+)", r"(?:ab)+(\d+)", r"(?:(a)b)*(\d+)", r"^.*/.*?(\d+)\.", r"(\d{1,9})"])
def test_expressions_that_are_fine(rule: str) -> None:
    assert parsed(rule).pattern is not None


@given(st.text(max_size=250))
def test_no_path_takes_long_or_makes_a_step_of_what_is_no_number(path: str) -> None:
    for rule in (r".*(\d+)-(\d+)", r"(?:(a)b)*(\d*)", r"(\w*)"):
        step = parsed(rule).of_path(path)
        assert step is None or str(step).isascii()
