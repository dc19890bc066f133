"""What a script's own output says: rows of numbers, and what is known after them."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.script.figures import (
    EVENTS,
    JSON_LINES,
    LOG,
    MOST_OTHERS,
    OWN,
    Bar,
    Fall,
    FigureRow,
    Figures,
    Sources,
    after,
    figure_of,
    matched,
    number,
)
from supervisor.policy.worker.divergence import Losses
from supervisor.policy.worker.reason_line import plain_text

NAN, INF = math.nan, math.inf


def told(*rows, before=None, rank=LOG, from_s=100.0):
    """One row a second."""
    made = [FigureRow(rank, from_s + place, row) for place, row in enumerate(rows)]
    return after(before or Figures(), made)


def steps(*found, **more):
    return told(*({"step": float(step)} for step in found), **more)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4.0), ("-3.5", -3.5), ("1e6", 1e6), ("[21.]", 21.0), (" 21. ", 21.0), ("(0.5)", 0.5), ("50%", 50.0),
        ("1,024", 1024.0), ("12,345,678.5", 12_345_678.5), ("1_024", 1024.0), ("1.5k", 1500.0), ("-2M,", -2e6), ("3B", 3e9), ("1,000K", 1e6), ("inf", INF), ("-Infinity", -INF),
        ("1,5", None), ("12,34", None), ("", None), ("k", None), ("1.5kk", None), ("5m", None), ("twelve", None), ("1 2", None), ("0x10", None),
    ],
)  # fmt: skip
def test_numbers_as_scripts_print_them(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("step=1500 x", "1500"), ("step=1.5k", "1.5k"), ("step=1,500, loss", "1,500"), ("step=1_500_000:", "1_500_000"),
        ("step=1e6", "1e6"), ("step=2.5M|", "2.5M"), ("step=15.", "15"), ("step=5,100,7", "5"), ("step=7,1234", "7"),
        ("step=100kB/s", "100"), ("step=10.3.2", "10"), ("step=12345,678", "12345"), ("step=12/500 [", "12"),
    ],
)  # fmt: skip
def test_a_number_goes_on_where_the_expression_ends_within_it(line, text):
    assert matched(re.search(r"step=(?P<step>\d+)", line), "step") == text


def test_a_group_with_text_behind_it_or_without_a_number_is_as_it_is_matched():
    assert matched(re.search(r"(?P<step>\d+),(?P<loss>\w+)", "1,500"), "step") == "1"
    units = re.search(r"(?P<step>[\d.]+)k/(?P<total>[\d.]+)k? (?P<mem>\d+)M.", "14.9k/15.0k 512M.")
    assert [matched(units, name) for name in ("step", "total", "mem")] == ["14.9k", "15.0k", "512"]
    assert matched(re.search(r"(?P<step>\w+)", "warm.5"), "step") == "warm"
    assert matched(re.search(r"a(?P<step>\d)?", "ab"), "step") is None


@pytest.mark.parametrize("line", ["\x1b[1;32mstep=4\x1b[0m", "step=\x1b[A4", "\x1b]0;a title\x07step=4\x1b(B", "step=4"])
def test_codes_of_the_terminal_are_no_text(line):
    assert plain_text(line) == "step=4"


def test_a_printed_nan_is_a_number():
    assert math.isnan(number("nan"))
    assert math.isnan(number("[NaN]"))


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("step", "step"), ("global_step", "step"), ("time/total_timesteps", "step"), ("loss", "loss"), ("train/loss", "loss"),
        ("train_loss", "loss"), ("rollout/ep_rew_mean", "mean_return"), ("return", "mean_return"),
        ("charts/episodic_return", "episode_return"), ("charts/SPS", "steps_per_s"), ("time/fps", "steps_per_s"),
        ("losses/value_loss", "losses/value_loss"), ("lr", "lr"), ("eval/loss", "eval/loss"), ("val/loss", "val/loss"),
        ("updates", "updates"), ("", None), ("a" * 65, None), ("a\nb", None), ("share_act", None),
        *[(key, None) for key in sorted(OWN)],
    ],
)  # fmt: skip
def test_which_figure_a_key_means(key, figure):
    assert figure_of(key) == figure


def test_steps_their_first_one_their_pace_and_a_rewind():
    seen = steps(0, 500, 1000)
    assert (seen.steps, seen.first_steps, seen.rate, seen.moves, seen.moved_at_s) == (1000, (0, 500, 1000), 500.0, 3, 102.0)
    again = steps(1000, before=seen, from_s=110.0)
    assert (again.moves, again.moved_at_s) == (3, 102.0), "a step that does not grow is no progress"
    back = steps(480, before=again, from_s=120.0)
    assert (back.steps, back.first_steps, back.rate, back.moves) == (480, (0, 500, 1000), None, 4), "the pace begins anew"
    assert back.fall == Fall(1000, (480,))
    assert steps(580, 680, before=back, from_s=140.0).rate == pytest.approx(200 / 21)
    assert steps(580, before=back, from_s=140.0).rate is None, "a launcher's ranks may still load their checkpoint"


@pytest.mark.parametrize(
    ("firsts", "at_s", "rate"),
    [
        ((0, 74_000), (0, 5), None),  # a bar that has just jumped to its checkpoint
        ((0, 74_000, 74_010), (0, 5, 6), 10.0),
        ((0, 10, 20, 300, 310), (0, 1, 2, 30, 31), 10.0),
    ],
)
def test_a_rate_over_a_jump_is_no_rate(firsts, at_s, rate):
    rows = [FigureRow(LOG, float(at), {"step": float(step)}) for step, at in zip(firsts, at_s, strict=True)]
    assert after(Figures(), rows).rate == rate


def test_steps_that_fall_twice_before_they_go_on_have_fallen_once():
    seen = steps(5000, 0, 4900, 10, 20, 30, 40)
    assert seen.fall == Fall(5000, (10, 20, 30))
    assert steps(35, before=seen).fall == Fall(40, (35,))


def test_the_pace_is_that_of_the_newest_minute():
    slow = after(Figures(), [FigureRow(LOG, at_s, {"step": at_s * 10}) for at_s in range(0, 600, 20)])
    assert slow.rate == 10.0
    assert len(slow.marks) <= 5
    fast = after(slow, [FigureRow(LOG, 580.0 + at_s, {"step": 5800.0 + at_s * 100}) for at_s in range(1, 101)])
    assert fast.rate == pytest.approx(100.0)
    rare = after(Figures(), [FigureRow(LOG, at_s, {"step": at_s}) for at_s in (0.0, 600.0, 1200.0)])
    assert rare.rate == 1.0, "two lines in an hour are enough"
    assert steps(7).rate is None
    burst = after(Figures(), [FigureRow(LOG, 5.0, {"step": 1.0}), FigureRow(LOG, 5.0, {"step": 9.0})])
    assert (burst.steps, burst.rate, burst.marks) == (9, None, ((5.0, 9),)), "no time has passed between the two"


def test_a_rate_that_the_script_says_itself_counts_before_ours():
    assert told({"step": 0.0}, {"step": 100.0, "steps_per_s": 7.0}).rate == 7.0
    assert told({"step": 0.0}, {"step": 100.0}, {"step": 200.0, "steps_per_s": -7.0}).rate == 100.0


def test_the_first_step_is_known_only_from_the_beginning():
    missed = after(Figures(), [FigureRow(LOG, 1.0, {"step": 50.0}, whole=False), FigureRow(LOG, 2.0, {"step": 60.0})])
    assert (missed.steps, missed.first_steps) == (60, ())


def test_the_steps_of_the_better_source_count():
    seen = told({"step": 9.0, "loss": 1.0}, rank=EVENTS)
    assert (seen.steps, seen.first_steps) == (9, (9,))
    seen = told({"step": 4.0}, rank=JSON_LINES, before=seen)
    assert (seen.steps, seen.first_steps, seen.moves) == (4, (4,), 2)
    seen = after(seen, [FigureRow(LOG, 200.0, {"step": 2.0}, whole=False), FigureRow(LOG, 201.0, {"step": 3.0})])
    assert (seen.steps, seen.first_steps, seen.moves) == (3, (), 4)
    seen = told({"step": 99.0, "loss": 2.0}, rank=EVENTS, before=seen)
    assert (seen.steps, seen.moves, seen.values["loss"]) == (3, 4, 2.0)


def test_of_event_files_the_furthest_step_counts():
    """A curve over epochs lies between the curves over steps."""
    seen = steps(1000, 12, 2000, 3000, rank=EVENTS)
    assert (seen.steps, seen.rate, seen.fall) == (3000, pytest.approx(2000 / 3), None)
    assert steps(13, before=seen, rank=EVENTS).moves == 5, "but it shows that it goes on"
    assert steps(3000, before=seen, rank=EVENTS).moves == 4


def test_without_steps_every_row_is_a_sign_of_progress():
    seen = told({"loss": 1.0}, {"loss": 1.0}, {})
    assert (seen.moves, seen.moved_at_s, seen.steps) == (2, 101.0, None)
    seen = told({"step": 5.0}, {"loss": 1.0}, before=seen)
    assert seen.moves == 3


@pytest.mark.parametrize("bad", [-1.0, NAN, INF, 2.0**63, 1e300])
def test_what_cannot_be_a_step_is_passed_over(bad):
    assert steps(bad) == Figures()
    assert steps(5, bad).steps == 5


def test_episodes_are_averaged_and_counted():
    seen = told(*({"episode_return": float(score)} for score in (10, 20, NAN)))
    assert (seen.values["mean_return"], seen.episodes) == (15.0, 2)
    assert "best_return" not in seen.values
    full = told(*({"episode_return": float(score)} for score in range(1, 99)), before=seen)
    assert full.values["first_return"] == full.values["best_return"] == pytest.approx((10 + 20 + sum(range(1, 99))) / 100)
    better = told({"episode_return": 1000.0}, before=full)
    assert better.values["best_return"] == better.values["mean_return"] > better.values["first_return"]
    worse = told({"episode_return": -1e6}, before=better)
    assert worse.values["best_return"] == better.values["best_return"] > worse.values["mean_return"]
    assert len(worse.returns) == 100
    assert told({"episodes": 7.0}, before=worse).episodes == 7


def test_a_loss_that_is_not_finite_is_a_bad_update_and_a_finite_one_ends_them():
    fine = told({"step": 1.0, "loss": 0.5})
    assert (fine.nan_count, fine.values["loss"], fine.losses) == (0, 0.5, Losses(True, 1))
    bad = told({"step": 2.0, "loss": NAN}, {"step": 3.0, "loss": -INF}, before=fine)
    assert (bad.nan_count, bad.losses.bad, bad.losses.fine_step, "loss" in bad.values) == (2, 2, 1, False)
    assert steps(4, 5, before=bad).losses == bad.losses, "a step is no loss"
    well = told({"step": 6.0, "loss": 0.25}, before=bad)
    assert (well.nan_count, well.values["loss"], well.losses) == (2, 0.25, Losses(True, 6))
    assert told({"loss": NAN}).losses.finite is False
    assert told({"step": 9.0}, {"step": 1.0, "loss": 0.5}).losses.fine_step is None, (
        "of an epoch: a rollback would go to the first"
    )
    assert steps(1, 2).nan_count is None, "no loss was said: unknown is never zero"


def test_targets_counts_and_other_figures():
    seen = told({"target": 1e6, "frames": 400.0, "updates": 7.0, "resumed_step": 90.0, "lr": 1e-4})
    assert seen.target == 1_000_000
    assert seen.values == {"frames": 400, "updates": 7, "resumed_step": 90, "lr": 1e-4}
    assert isinstance(seen.values["frames"], int)
    seen = told({"lr": NAN, "frames": -1.0, "target": NAN, "unheard": INF}, before=seen)
    assert seen.values == {"frames": 400, "updates": 7, "resumed_step": 90}, "what is NaN now is not known now"
    assert seen.target == 1_000_000


def test_at_most_so_many_other_figures():
    seen = told({f"layer{place}": 1.0 for place in range(MOST_OTHERS + 5)} | {"loss": 1.0})
    assert len(seen.values) == MOST_OTHERS + 1
    seen = told({"layer0": 2.0, "another": 1.0}, before=seen)
    assert (seen.values["layer0"], "another" in seen.values) == (2.0, False)
    seen = told({"layer0": NAN}, {"another": 1.0}, {"mean_return": NAN}, before=seen)
    assert seen.values["another"] == 1.0, "one that is gone makes room"


def drawn(*bars, before=None):
    """Rows of bars: (time, step, target)."""
    return after(
        before or Figures(), [FigureRow(LOG, at_s, {"step": float(n), "target": float(of)}) for at_s, n, of in bars]
    )


def test_a_bar_beside_that_of_the_training_is_progress_but_gives_no_step():
    seen = drawn((0.0, 10, 500), (5.0, 20, 500))
    seen = drawn(*((5.0 + number, number, 40) for number in range(1, 41)), before=seen)
    assert (seen.steps, seen.target, seen.moved_at_s, seen.other_bars) == (20, 500, 45.0, ())
    seen = drawn((46.0, 1, 1), (50.0, 30, 500), before=seen)
    assert (seen.steps, seen.target, seen.first_steps, seen.rate) == (30, 500, (), 20 / 50), "drawn for five seconds"
    assert drawn((60.0, 30, 500), (66.0, 40, 500), (69.0, 50, 500), before=seen).first_steps == (10, 20, 30)
    beside = FigureRow(LOG, 51.0, {"step": 1.0, "target": 40.0, "loss": 0.5})
    assert after(seen, [beside]).values["loss"] == 0.5
    assert steps(31, before=seen, from_s=52.0).steps == 31, "a line without a target is no bar"


def test_a_bar_that_is_drawn_for_longer_than_a_full_one_takes_its_place():
    data = drawn((0.0, 0, 25_000), (4.0, 25_000, 25_000))
    training = drawn((5.0, 0, 500), (8.0, 30, 500), (9.0, 40, 500), before=data)
    assert (training.steps, training.target) == (25_000, 25_000)
    training = drawn((10.0, 50, 500), before=training)
    assert (training.steps, training.target, training.bar.first_steps, training.rate) == (50, 500, (0, 30, 40), None)
    over = drawn((50.0, 500, 500), (50.0, 0, 1), (52.0, 1, 1), (52.0, 500, 500), before=training)
    assert (over.steps, over.target) == (500, 500)


def test_evaluations_between_do_not_hide_how_long_a_bar_is_drawn():
    """On a busy box the first bar is read over ten seconds, and an evaluation comes every five."""
    seen = drawn((0.0, 0, 25_000), (10.0, 25_000, 25_000))
    for at in range(12, 36, 6):
        seen = drawn((at, at, 500), (at + 4.0, at + 4, 500), (at + 5.0, 8, 40), (at + 5.0, 40, 40), before=seen)
    assert (seen.steps, seen.target) == (34, 500)


def test_a_bar_that_begins_again_shows_a_part_of_the_training():
    once = drawn((0.0, 0, 50), (1.0, 50, 50), (2.0, 30, 50))
    assert not once.bar.is_part, "two ranks may draw the same bar"
    again = drawn((3.0, 1, 50), (4.0, 50, 50), before=once)
    assert (again.bar.is_part, again.steps, again.laps) == (True, 50, 1)
    assert steps(0, 50, 26, 12, 50, 0, 3).laps == 2, "a rewind to more than half is none"


def test_an_abandoned_bar_is_left_after_half_an_hour():
    seen = drawn((0.0, 7, 25_000), (1800.0, 8, 500))
    assert seen.steps == 7
    late = after(seen, [FigureRow(LOG, 1800.5, {"step": 9.0, "target": 500.0}, whole=False)])
    assert (late.steps, late.target, late.bar.first_steps) == (9, 500, (8, 9))


def test_sources_that_are_read():
    assert not Sources().read
    assert not Sources(target_steps=5).read
    assert all(
        each.read
        for each in (Sources(log_regex=("x",)), Sources(json_lines="x"), Sources(csv_glob="x"), Sources(events_glob="x"))
    )


values = st.floats() | st.integers(-5, 2**70).map(float)
names = st.sampled_from(
    ["step", "loss", "episode_return", "target", "steps_per_s", "frames", "episodes", "mean_return", "lr", "q_mean"]
)
rows = st.lists(
    st.builds(FigureRow, st.sampled_from([LOG, JSON_LINES, EVENTS]), st.floats(0, 1e6), st.dictionaries(names, values), st.booleans()),
    max_size=12,
)  # fmt: skip


@given(rows, rows)
def test_whatever_is_said_what_is_known_is_finite_and_the_past_is_not_changed(first, then):
    before = after(Figures(), first)
    kept = Figures(**{name: getattr(before, name) for name in Figures.__dataclass_fields__})
    seen = after(before, then)
    assert before == kept
    assert set(map(math.isfinite, seen.values.values())) <= {True}
    assert seen.rate is None or (math.isfinite(seen.rate) and seen.rate >= 0)
    assert seen.steps is None or 0 <= seen.steps < 2**63
    assert seen.moves >= before.moves
    assert seen.nan_count is None or seen.nan_count >= (before.nan_count or 0)
    assert (seen.steps is None) == (seen.rank is None)
    assert len(seen.marks) < 2 or seen.marks[0][0] < seen.marks[-1][0]


@given(rows, st.integers(0, 12))
def test_a_look_more_or_less_changes_no_step_and_no_return(said, cut):
    whole, parts = after(Figures(), said), after(after(Figures(), said[:cut]), said[cut:])
    names = "steps first_steps episodes returns moves moved_at_s values target marks bar losses fall"
    for name in names.split():
        assert getattr(whole, name) == getattr(parts, name)


@pytest.mark.parametrize(
    ("figures", "configured", "at_end"),
    [
        (Figures(steps=99), 100, True),
        (Figures(steps=98), 100, False),
        (Figures(steps=100), None, False),
        (Figures(steps=100, target=100), None, True),
        (Figures(steps=50, target=50, bar=Bar(100, (), 50, 9.0)), None, False),
        (Figures(target=100), None, False),
    ],
)
def test_whether_an_output_has_come_to_its_target(figures, configured, at_end):
    assert figures.is_at(configured) is at_end
