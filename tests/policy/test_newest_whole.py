"""Checkpoints that a script writes itself: which one counts, from when on one is doubtful, and which one is set aside."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker import newest_whole, unsaved
from supervisor.policy.worker.intervention import Intervention, noted
from supervisor.policy.worker.newest_whole import TORN, UNKNOWN, WHOLE, Candidate, choose
from supervisor.policy.worker.step_in_name import parsed
from supervisor.policy.worker.suspects import ASIDE, Suspicion, Verdict, judge, names


def found(step: int | None, verdict: str = WHOLE, written_s: float = 0.0) -> Candidate:
    return Candidate(f"step={step}.pt", step, written_s, 100, verdict)


@pytest.mark.parametrize(
    ("verdicts", "newest", "start", "torn", "spare"),
    [
        ((), None, None, None, None),
        ((TORN, WHOLE), 1, 1, 0, None),
        ((TORN, TORN, WHOLE, TORN, UNKNOWN, WHOLE, WHOLE), 2, 2, 0, 5),
        ((UNKNOWN, WHOLE), 1, 0, None, 1),  # nearly all that an end may have cut are whole
        ((TORN, UNKNOWN, UNKNOWN), None, 1, 0, None),
        ((TORN, TORN), None, None, 0, None),
        ((WHOLE, TORN, UNKNOWN), 0, 0, None, None),  # what is older than a whole one says nothing
    ],
)
def test_a_start_gets_the_newest_that_is_not_torn_and_a_copy_the_newest_whole_one(verdicts, newest, start, torn, spare):
    candidates = [found(step, verdict) for step, verdict in enumerate(verdicts)]
    choice = choose(candidates)
    for place, each in ((newest, choice.newest), (start, choice.start), (torn, choice.torn), (spare, choice.spare)):
        assert each == (None if place is None else candidates[place])


def test_order_is_by_step_where_one_has_a_step_and_else_by_time() -> None:
    rows = [(None, 9.0, "last.pt"), (300, 1.0, "a"), (300, 2.0, "a"), (1000, 0.5, "b"), (None, 8.0, "best.pt")]
    newest_first = sorted(rows, key=lambda row: newest_whole.order(*row), reverse=True)
    assert newest_first == [rows[3], rows[2], rows[1], rows[0], rows[4]]


def test_one_whose_step_file_is_torn_comes_after_the_one_written_before_it() -> None:
    rows = [("run", None, 300.0), ("c-120", 120, 100.0), ("c-240", None, 200.0), ("c-60", None, 50.0), ("c-180", 180, 150.0)]
    assert newest_whole.with_stand_ins(rows) == [None, 120, 180, None, 180]
    at_once = [("c-1", 7000, 5.0), ("c-2", 8000, 5.0), ("c-3", None, 6.0)]
    assert newest_whole.with_stand_ins(at_once) == [7000, 8000, 8000]


def test_one_that_is_named_as_the_last_comes_after_the_best_one_that_was_saved_long_before_it() -> None:
    rows = [("v1/last.ckpt", None, 300.0), ("v1/step=100.ckpt", 100, 50.0), ("v1/blast.ckpt", None, 300.0)]
    assert newest_whole.with_stand_ins(rows) == [100, 100, None]
    assert newest_whole.with_stand_ins([("last-v1.ckpt", None, 55.0), rows[1]]) == [None, 100], "of the same save"
    assert newest_whole.with_stand_ins(rows[:2], [200.0]) == [None, 100], "another attempt may count from 0 again"


def test_the_newest_is_what_the_newest_attempt_wrote() -> None:
    """A script that counts from 0 again: attempt 1 began at 100 s, attempt 2 at 200 s, attempt 3 at 300 s wrote nothing."""
    first, second = (2300, 150.0, "step=2300.pt"), (700, 250.0, "step=700.pt")
    copied_back, best = (900, 260.0, "step=900.pt"), (None, 270.0, "best.pt")
    rows = [first, second, copied_back, best, (5000, 50.0, "from before.pt")]
    newest_first = sorted(rows, key=lambda row: newest_whole.order(*row, [100.0, 200.0, 300.0]), reverse=True)
    assert newest_first == [copied_back, second, best, first, rows[4]], "of one attempt the step decides"
    at_start = newest_whole.order(1, 200.0, "a", [100.0, 200.0])
    assert at_start > newest_whole.order(9, 199.0, "b", [100.0, 200.0])


@pytest.mark.parametrize("starts", [[1000.0, 10.0], [10.0, 1000.0 + 3600.0]])
def test_after_a_clock_that_stepped_the_step_decides(starts: list[float]) -> None:
    """It was set back after the first start, or was an hour ahead at the second: both files count as of one attempt."""
    rows = [(900, 1005.0, "of the first"), (950, 1002.0, "of the second")]
    assert max(rows, key=lambda row: newest_whole.order(*row, starts)) == rows[1]


@pytest.mark.parametrize(
    ("age_s", "running", "lived_on_s", "closed_s", "replaced", "doubt_s", "settled"),
    [
        (900.0, True, 4.9, 0.4, False, None, False),  # however old: it may be suspended within the write
        (9.0, True, 5.0, 0.0, False, None, True),
        (0.5, True, -60.0, 0.5, False, None, True),
        (0.1, False, 0.0, 0.0, False, None, True),  # after an orderly end nobody was writing
        (0.1, False, 5.0, 0.5, False, 95.0, False),
        (5.1, False, 0.0, 0.0, False, 95.0, True),
        (0.1, False, 0.0, 0.0, True, 95.0, True),  # a rename comes after the last write
    ],
)
def test_an_unknown_format_is_settled_by_what_came_later(age_s, running, lived_on_s, closed_s, replaced, doubt_s, settled):
    ended = {"running": running, "lived_on_s": lived_on_s, "closed_s": closed_s, "replaced": replaced}
    got = newest_whole.is_settled(100.0 - age_s, doubt_from_wall_s=doubt_s, **ended)
    assert got is settled


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
def test_what_an_end_may_have_cut(cause, by_itself, ended_s, sign_s, doubt_s):
    got = newest_whole.doubt_from_wall_s(cause, by_itself=by_itself, ended_wall_s=ended_s, last_sign_wall_s=sign_s)
    assert got == doubt_s


def test_what_was_written_after_the_last_progress_may_be_cut_however_long_before_the_end() -> None:
    assert newest_whole.doubt_since_progress(895.0, 99.0) == 94.0
    assert newest_whole.doubt_since_progress(895.0, 901.0) == 895.0
    assert newest_whole.doubt_since_progress(None, 99.0) is None, "an orderly end"


@pytest.mark.parametrize(
    ("times", "gap_s"),
    [
        ((), None),
        ((5.0,), None),
        ((0.0, 300.0), None),
        ((0.0, 300.0, 700.0), 350.0),
        ((9301.0, 0.0, 300.0, 605.0, 9000.0), 303.0),
        ((7.0,) * 5, None),
    ],
)
def test_the_usual_gap(times: tuple[float, ...], gap_s: float | None) -> None:
    assert newest_whole.usual_gap_s(times) == gap_s


TRIED = Intervention(ASIDE, 0.0)


@pytest.mark.parametrize(
    ("suspicion", "named", "slow", "done", "verdict"),
    [
        ({"deaths": 2, "torn": True, "spare": True}, False, True, 0, Verdict.KEEP),
        ({"deaths": 1, "torn": True, "spare": True}, True, True, 0, Verdict.SET_ASIDE),  # two signs
        ({"deaths": 2, "spare": True}, True, True, 0, Verdict.KEEP),
        ({"torn": True, "spare": True}, False, False, 0, Verdict.SET_ASIDE),
        ({"torn": True}, False, False, 0, Verdict.SET_ASIDE),  # it kills each start, so to begin anew loses nothing
        ({"cut": True}, None, False, 0, Verdict.SET_ASIDE),
        ({"cut": True, "spare": True}, False, False, 0, Verdict.KEEP),  # it dies of something else
        ({"spare": True}, True, False, 0, Verdict.SET_ASIDE),
        ({}, True, False, 0, Verdict.PUT_BACK),  # the only one stays, and a person is asked
        ({"spare": True}, False, False, 0, Verdict.KEEP),  # a port in use, a missing mount, a failed upload
        ({"spare": True}, False, True, 0, Verdict.KEEP),  # however long the mount is missing
        ({"spare": True}, None, True, 0, Verdict.SET_ASIDE),  # nothing says why, half an hour later too
        ({}, False, True, 0, Verdict.PUT_BACK),  # a person is asked
        ({"cut": True, "spare": True, "innocent": True}, True, True, 0, Verdict.KEEP),
        ({"torn": True, "spare": True, "innocent": True}, False, False, 0, Verdict.SET_ASIDE),
        ({"path": ""}, True, True, 0, Verdict.KEEP),
        ({"spare": True}, True, False, 2, Verdict.KEEP),  # two trials had no effect
        ({"tried": ("b",), "spare": True}, True, False, 1, Verdict.SET_ASIDE),
        ({"tried": ("b",), "spare": True}, False, True, 1, Verdict.PUT_BACK),
        ({"tried": ("b",)}, True, False, 1, Verdict.PUT_BACK),
        ({"tried": ("b", "c"), "spare": True}, True, True, 2, Verdict.PUT_BACK),
        ({"tried": ("b",), "path": "", "deaths": 2}, True, True, 1, Verdict.KEEP),
        ({"tried": ("b",), "path": ""}, True, True, 1, Verdict.PUT_BACK),
        ({"path": "", "step": 80_000}, None, False, 2, Verdict.SET_ASIDE),  # a worker's, whose digests fit
        ({"path": "", "step": 80_000, "deaths": 2}, True, True, 0, Verdict.KEEP),
    ],
)
def test_a_suspect_is_set_aside_by_evidence_and_put_back_without_an_effect(suspicion, named, slow, done, verdict):
    interventions: tuple[Intervention, ...] = ()
    for _ in range(done):
        interventions = noted(interventions, TRIED)
    suspected = Suspicion(**{"path": "a", "deaths": 3} | suspicion)
    assert judge(3, suspected, interventions, named=named, slow=slow) is verdict


def test_a_checkpoint_is_innocent_if_the_attempt_that_wrote_it_died_of_the_same() -> None:
    wrote = Suspicion("old").wrote().dies("exit code 1: ConnectionError: 503", trained=True)
    begun = wrote.begins("new", torn=False, cut=False, spare=True, left=())
    again = begun.dies("exit code 1: ConnectionError: 504", trained=False)
    assert (again.deaths, again.innocent) == (1, True)
    assert Suspicion("a", born="line 0: 0 Segmentation fault").is_as_before("line 1:  3712 Segmentation fault; 1 left")
    assert not Suspicion("a", born="exit code 134").is_as_before("exit code 137")
    other = begun.dies("exit code 1: KeyError: 'w'", trained=False)
    assert (other.deaths, other.innocent) == (1, False)


def test_deaths_after_a_step_do_not_count_against_a_checkpoint_nor_do_those_with_another_one() -> None:
    first = Suspicion().begins("a", torn=False, cut=False, spare=True, left=()).dies("exit code 1", trained=False)
    assert first.dies("exit code 1", trained=True).deaths == 1
    assert first.begins("a", torn=False, cut=True, spare=False, left=("x",)) == Suspicion(
        "a", cut=True, deaths=1, condemned=("x",)
    )
    assert first.begins("b", torn=True, cut=False, spare=True, left=()) == Suspicion("b", torn=True, spare=True)
    known = Suspicion("a", innocent=True, put_back=("x",))
    assert known.begins("a", torn=False, cut=False, spare=False, left=()) == Suspicion("a", innocent=True)
    assert known.begins("b", torn=False, cut=False, spare=False, left=()) == Suspicion("b")


def test_deaths_of_a_worker_count_against_the_checkpoint_from_which_it_has_resumed() -> None:
    first = Suspicion().resumes(80_000).dies("exit code 1", trained=False)
    assert first.resumes(80_000).dies("exit code 1", trained=False) == Suspicion(step=80_000, deaths=2)
    assert first.dies("a missing GPU", trained=True) == first, "before it had read it"
    assert first.resumes(60_000) == Suspicion(step=60_000)
    assert first.resumes(None) == Suspicion(), "from nothing"
    assert first.begins("a", torn=False, cut=False, spare=False, left=()) == Suspicion("a"), "a script's own"


def test_on_trial_it_comes_back_unless_the_program_has_written_another() -> None:
    tried = Suspicion("b", deaths=3).condemn("a", on_trial=False).condemn("b", on_trial=True)
    assert (tried.condemned, tried.tried, tried.deaths) == (("a", "b"), ("b",), 0)
    assert tried.condemn("", on_trial=True) == tried, "a worker's own has no path"
    back = Suspicion("c", deaths=2, condemned=("a", "b"), tried=("b",), put_back=("x",)).with_tried_back()
    assert (back.condemned, back.tried, back.put_back, back.deaths) == (("a",), (), ("x", "b"), 0)
    wrote = Suspicion("c", torn=True, deaths=2, condemned=("a",), tried=("b",), put_back=("x",)).wrote()
    assert wrote == Suspicion(condemned=("a",), put_back=("x",)), "the trial is over; what is still to be done stays"


def test_without_an_exception_an_output_says_nothing_about_a_checkpoint() -> None:
    assert names("/w/ck/global_step20", ("resumed from ck/global_step20", "Segmentation fault")) is None
    assert names("/w/ck/global_step20", ("OSError: ck/global_step20 is cut",)) is True, "also without its stack"
    chained = ("FileNotFoundError: /mnt/cache", "RuntimeError: cannot load ck/global_step20")
    assert names("/w/ck/global_step20", chained) is True, "the last one counts"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ck/global_step20/rank_1.pt'", True),
        ("  File \"/home/me/train.py\", line 12, in load_model\nKeyError: 'fc.weight'", True),  # it lacks a part
        ('  File "/venv/torch/serialization.py", line 1500, in load', True),
        ('  File "/home/me/train.py", line 12, in upload', False),
        ('Fatal Python error: Aborted\n  File "/home/me/train.py", line 12 in run', False),
        ('Fatal Python error: Bus error\n  File "/venv/torch/serialization.py", line 12 in load', True),
        ('  File "/home/me/train.py", line 12, in load_dataset', False),
        ('  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load', False),
        ("OSError: [Errno 98] Address already in use", False),
        ('  File "/home/me/train.py", line 12, in load_model\nFileNotFoundError: /mnt/pretrained.pt', False),
        ("Segmentation fault", False),  # only `resumed from` names it
        ("ImportError: libcuda.so.1: cannot open shared object file", False),
        ("  File \"/t.py\", line 1, in load_games\nFileNotFoundError: No such file or directory: 'games.npy'", False),
        ('  File "/torch/__init__.py", line 9, in _load_deps\nOSError: libcublas.so.11: cannot open shared object', False),
        ('  File "/usr/lib/python3.11/json/__init__.py", line 9, in load\nJSONDecodeError: Expecting value', False),
        ('  File "/t.py", line 9, in <module>\nEOFError: Ran out of input', False),
    ],
)
def test_what_an_output_says_about_a_checkpoint(line: str, named: bool) -> None:
    said = "resumed from ck/global_step20", "Traceback (most recent call last):", *line.split("\n")
    assert names("/w/ck/global_step20", said) is named


def test_data_that_end_too_soon_are_a_sign_only_of_one_that_may_be_cut():
    ends = "Traceback (most recent call last):", '  File "/t.py", line 9, in main', "EOFError: Ran out of input"
    assert names("/w/ck/m_40.pickle", ends, cut=True) is True
    of_games = (ends[0], '  File "/t.py", line 9, in load_dataset', ends[2])
    assert names("/w/ck/m_40.pickle", of_games, cut=True) is False, "a cache of the data was cut, too"


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
def test_overdue_by_its_own_habit(age_s, gap_s, steps, saved, says):
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
        (r"exp(\w+)", "/data/exp2", "exponent.pt", None),  # the part of the path that comes first matches, without a number
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
