"""Bad hours: found by reboots of the same level at the same hours of three days, and by nothing less."""

import itertools
import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.model.codec import as_text, of_text
from supervisor.policy.level import hours as rule
from supervisor.policy.level import load
from supervisor.policy.level.hours import DAY_S, Hours
from supervisor.policy.level.load import Cap, LoadSettings, LoadState
from supervisor.policy.level.worth import Costs

H = 3600.0
HEAVY = 2
S, COSTS = LoadSettings(), Costs()


def trained(hours):
    return sum(map(sum, hours.up_s))


def days(count, bad, *, level=HEAVY, first_day=0, hours=None, runs=lambda _hour: True):
    """`level` trains in ten-minute steps; in the hours `bad` it reboots at the middle of each."""
    hours = rule.unseen(3) if hours is None else hours
    for step in range(first_day * 144, (first_day + count) * 144):
        before_s, at_s = step * 600.0, (step + 1) * 600.0
        hour = int(before_s % DAY_S / H)
        if not runs(hour):
            continue
        hours = rule.ran(hours, level, before_s=before_s, at_s=at_s, up_s=600.0)
        if hour in bad and step % 6 == 3:
            hours = rule.rebooted(hours, level, at_s=at_s, weight=1.0)
    return hours


def test_hours_in_which_it_reboots_three_days_long_are_bad_from_the_first_reboot_to_the_last():
    found = days(3, range(10, 20))
    assert found.bad == pytest.approx((10 * H + 2400.0 - 600.0, 19 * H + 2400.0 + 600.0))
    assert rule.are_bad(found, 5 * DAY_S + 15 * H)
    assert not rule.are_bad(found, 5 * DAY_S + 9 * H)
    assert not rule.are_bad(found, 5 * DAY_S + 21 * H)


def test_two_days_are_not_enough():
    assert days(2, range(10, 20)).bad is None


def test_a_stretch_may_go_over_the_end_of_the_cycle():
    found = days(4, (22, 23, 0, 1, 2))
    assert rule.are_bad(found, 23.5 * H)
    assert rule.are_bad(found, 1.0 * H)
    assert not rule.are_bad(found, 12 * H)
    begin_s, end_s = found.bad
    assert begin_s > end_s


def test_a_level_that_runs_at_one_hour_alone_has_no_bad_hours():
    """Tried once a day, dead each time: it was never seen at another hour."""
    hours = days(10, (14,), runs=lambda hour: hour == 14)
    assert hours.bad is None
    assert days(10, (), level=0, hours=hours).bad is None, "what another level does at other hours says nothing"


def test_a_level_that_has_hardly_trained_at_other_hours_has_no_bad_ones():
    hours = days(3, (11, 12, 13), runs=lambda hour: 9 <= hour < 17)
    assert hours.bad is None, "fifteen hours outside"
    assert days(3, (11, 12, 13)).bad is not None


def test_a_fault_that_began_this_afternoon_is_no_hour_of_the_day():
    hours = days(4, ())
    for minute in range(0, 300, 20):
        hours = rule.rebooted(hours, HEAVY, at_s=4 * DAY_S + 14 * H + 60.0 * minute, weight=1.0)
    assert hours.bad is None


def test_hours_that_are_twice_as_bad_are_borne():
    hours = days(20, range(0, 24, 2))
    assert hours.bad is None, "reboots at every hour"


@pytest.mark.parametrize("seed", range(6))
def test_reboots_that_come_by_chance_make_no_bad_hours(seed):
    chance, hours = random.Random(seed), rule.unseen(3)
    for step in range(30 * 144):
        hours = rule.ran(hours, HEAVY, before_s=step * 600.0, at_s=(step + 1) * 600.0, up_s=600.0)
        if chance.random() < 5 / 144:
            hours = rule.rebooted(hours, HEAVY, at_s=(step + 1) * 600.0, weight=1.0)
    assert hours.bad is None


def test_a_box_that_dies_at_once_whenever_it_is_started_in_some_hour_has_a_bad_hour():
    """No training at all in that hour: nothing was due there."""
    hours = Hours(tuple(tuple(0.0 if hour == 12 else 3 * H for hour in range(24)) for _ in range(3)))
    for day, minute in itertools.product(range(4), (5, 10, 15)):
        hours = rule.rebooted(hours, HEAVY, at_s=day * DAY_S + 12 * H + 60.0 * minute, weight=1.0)
    assert rule.are_bad(hours, 9 * DAY_S + 12 * H + 600.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_cheap_look_passes_over_no_stretch_that_is_bad_enough(seed):
    """Every stretch of a day, from a reboot to a reboot, around the newest, of boxes with bad hours and without."""
    chance, likely = random.Random(seed), 0
    for _ in range(100):
        first, width, level = chance.randrange(24), chance.choice((1, 2, 5, 9)), chance.randrange(3)
        now_s = 21 * DAY_S + first * H
        inside = [
            chance.randrange(12, 21) * DAY_S + (first + chance.random() * width) * H for _ in range(chance.randrange(2, 15))
        ]
        outside = [chance.random() * now_s for _ in range(chance.choice((0, 0, 1, 2, 4, 20)))]
        past = [
            (when_s, level if chance.random() < 0.9 else 0, chance.choice((1.0, 1.0, 1.0, 0.5)))
            for when_s in inside + outside
        ]
        up_s = chance.choice((0.0, 5 * H, 10 * H, 20 * H))
        hours = Hours(tuple(tuple(up_s * chance.random() for _ in range(24)) for _ in range(3)))
        came = rule._counts((*sorted(past), (now_s, level, 1.0)), now_s)
        rows, looked = rule._rows(hours, came), set(rule._candidates(hours, came, first))
        hours_of = {hour for row in came.values() for hour, each in enumerate(row) if each}
        for begin, length in itertools.product(sorted(hours_of), range(1, 19)):
            if (first - begin) % 24 < length and (begin + length - 1) % 24 in hours_of:
                found = rule._log_ratio(rows, begin, length)
                inside = sum(row.counts[begin + length] - row.counts[begin] for row in rows)
                assert (begin, length) in looked or found == 0.0 or (inside < 2.8 and found < 11.0)
                likely += found > 11.0
    assert likely > 30, "there were some"


def test_halves_of_reboots_count_as_halves():
    hours = days(3, ())
    told = hours
    for day in range(3):
        told = rule.rebooted(told, HEAVY, at_s=day * DAY_S + 12 * H, weight=0.5)
    assert rule.share(told, 3 * DAY_S, HEAVY, bad=False)[0] == pytest.approx(0.5 * (0.95**2.5 + 0.95**1.5 + 0.95**0.5))


def test_training_fades_by_five_per_cent_a_day_and_old_reboots_are_forgotten():
    hours = days(3, ())
    assert trained(hours) == pytest.approx(24 * H * (1 + 0.95 + 0.95**2), rel=0.01)
    hours = rule.rebooted(hours, HEAVY, at_s=0.0, weight=1.0)
    assert len(rule.rebooted(hours, HEAVY, at_s=22 * DAY_S, weight=1.0).reboots) == 1
    for _ in range(100):
        hours = rule.rebooted(hours, HEAVY, at_s=DAY_S, weight=1.0)
    assert len(hours.reboots) == 60


def test_what_a_level_has_shown_is_shared_between_the_hours():
    found = days(3, range(10, 20))
    in_reboots, in_s = rule.share(found, 3 * DAY_S, HEAVY, bad=True)
    out_reboots, out_s = rule.share(found, 3 * DAY_S, HEAVY, bad=False)
    assert out_reboots == 0.0
    assert in_reboots == pytest.approx(sum(each[2] * 0.95 ** ((3 * DAY_S - each[0]) / DAY_S) for each in found.reboots))
    assert in_s + out_s == pytest.approx(trained(found))
    assert in_s / trained(found) == pytest.approx(9 / 24, abs=0.05)
    assert rule.share(found, 3 * DAY_S, 0, bad=True) == (0, 0.0)


def test_when_they_begin_and_end():
    hours = Hours(bad=(10 * H, 20 * H))
    assert rule.changes_in_s(hours, 8 * H) == 2 * H
    assert rule.changes_in_s(hours, 3 * DAY_S + 15 * H) == 5 * H
    assert rule.changes_in_s(Hours(), 8 * H) is None


# --- what the load policy makes of them ------------------------------------------------------------------------------------


def at_heavy(count=6, known_days=4):
    """A box that is known to be bad from 10 to 20 o'clock, at the top of its ladder on a later morning at 9."""
    at_s = known_days * DAY_S + 9 * H
    state = load.begin(count, count - 1, at_s=at_s)
    hours = days(3, range(10, 20), level=count - 1, hours=rule.unseen(count))
    for level in range(1, count):
        hours = rule.ran(hours, level - 1, before_s=at_s, at_s=at_s, up_s=20 * H)
    speeds = state.speeds
    for level in range(count):
        for _ in range(4):
            speeds = load.pace.read(speeds, level, 100.0 * (1.0 + 0.2 * level))
    known = tuple(load.LevelKnown(up_s=30 * H, reboots_ever=1.0) for _ in range(count))
    return state._replace(hours=hours, speeds=speeds, known=known)


def review(state, at_s, cap=5):
    return load.reviewed(S, COSTS, state, at_s=at_s, up_s=600.0, reading=None, cap=Cap(cap, "no room"))


def through(state, from_h, to_h):
    """Reviews every ten minutes; the levels at each."""
    told = []
    at_s = 4 * DAY_S + from_h * H
    while at_s < 4 * DAY_S + to_h * H:
        at_s += 600.0
        state, verdict = review(state, at_s)
        told.append(verdict)
    return state, told


def test_the_hour_comes_and_it_goes_to_the_level_that_is_worth_most_then_and_back_at_its_end():
    state, morning = through(at_heavy(), 9, 10.2)
    assert {verdict.level for verdict in morning} == {5}
    state, day = through(state, 10.2, 19.5)
    assert "heavy: the hours with frequent reboots begin" in [verdict.why for verdict in day]
    assert state.bad
    assert day[6].level < 5
    state, evening = through(state, 19.5, 21)
    assert evening[-1].level == 5, "at once, and without a trial"
    assert "heavy: the hours with frequent reboots are over" in [verdict.why for verdict in evening]
    assert not state.bad
    assert state.other is not None
    assert of_text(LoadState, as_text(state)) == state
    again, _ = through(state._replace(at_s=state.at_s), 21, 24)
    assert again.level == 5


def test_a_reboot_in_the_bad_hours_is_held_against_them_alone():
    state, _ = through(at_heavy(), 9, 10.2)
    after, verdict = load.rebooted(S, COSTS, state, at_s=4 * DAY_S + 10.7 * H, up_s=600.0, weight=1.0)
    assert after.bad
    assert after.other.known[5].reboots == 0.0, "the record of the other hours"
    assert after.known[5].reboots > 1.0
    assert verdict.level <= 5
    meant, _ = load.rebooted(S, COSTS, state, at_s=4 * DAY_S + 10.7 * H, up_s=600.0, weight=0.0)
    assert not meant.bad


def test_the_bad_hours_never_lead_up():
    state = at_heavy()
    state, _ = through(state, 9, 21)
    assert state.other is not None
    low = load.placed(state, 0)._replace(other=state.other._replace(home=4))
    after, verdict = review(low, 5 * DAY_S + 11 * H)
    assert after.bad
    assert verdict.level == 0


def test_a_veto_holds_when_the_bad_hours_are_over():
    state, _ = through(at_heavy(), 9, 19.5)
    after, verdict = review(load.placed(state, 2), 4 * DAY_S + 20.5 * H, cap=3)
    assert not after.bad
    assert verdict.level == 3


def test_a_memory_of_an_older_version_begins_to_look_at_the_hours():
    old = load.begin(3)._replace(hours=Hours())
    after = load.learned(old, at_s=600.0, up_s=600.0, reading=None)
    assert trained(after.hours) == 600.0
    assert [len(row) for row in after.hours.up_s] == [24] * 3


def test_while_a_level_is_pinned_its_hours_have_their_own_record_and_it_stays_where_it_is():
    state = load.placed(at_heavy(), 4)
    up_s = state.known[4].up_s
    told = load.pinned(state, at_s=4 * DAY_S + 9.5 * H, up_s=600.0, reading=None)
    assert (told.bad, told.home, told.known[4].up_s) == (False, 4, up_s + 600.0)
    day = load.pinned(told, at_s=4 * DAY_S + 11 * H, up_s=600.0, reading=None)
    assert (day.bad, day.level, day.trial) == (True, 4, None)
    again = load.pinned(day, at_s=4 * DAY_S + 11.5 * H, up_s=600.0, reading=None)
    assert again.known[4].up_s == day.known[4].up_s + 600.0
    evening = load.pinned(again, at_s=4 * DAY_S + 21 * H, up_s=600.0, reading=None)
    assert (evening.bad, evening.level) == (False, 4)
    assert evening.known[4].up_s > again.known[4].up_s


def test_reboots_of_a_level_that_has_no_training_on_record_say_nothing_of_hours():
    hours = days(5, (), level=0)
    for day in range(5):
        for minute in (0, 30, 60, 90):
            hours = rule.rebooted(hours, HEAVY, at_s=day * DAY_S + 12 * H + 60.0 * minute, weight=1.0)
    assert hours.bad is None


# --- against the same rule written out, hour by hour -----------------------------------------------------------------------


def by_the_book(ups, comes, first, length):
    """`_log_ratio` without running sums. Returns also how much worse the hours are, and the time outside of them."""
    inside_hours = [(first + number) % 24 for number in range(length)]
    levels, out_s = [], 0.0
    for up, came in zip(ups, comes, strict=True):
        ins, whole, in_s, whole_s = sum(came[h] for h in inside_hours), sum(came), sum(up[h] for h in inside_hours), sum(up)
        share = min(max(in_s / whole_s, 0.01), 0.99) if whole_s else 0.5
        levels.append((ins, whole - ins, share))
        out_s += whole_s - in_s if ins else 0.0
    inside, outside = sum(ins for ins, _, _ in levels), sum(outs for _, outs, _ in levels)
    due_in = sum((ins + outs) * share for ins, outs, share in levels)
    due_out = sum((ins + outs) * (1.0 - share) for ins, outs, share in levels)
    worse = ((inside + 0.5) / (due_in + 0.5)) / ((outside + 0.5) / (due_out + 0.5))
    likely = inside * math.log(worse) - sum((i + o) * math.log(1.0 + share * (worse - 1.0)) for i, o, share in levels)
    return likely, worse, out_s


day_of_training = st.lists(st.sampled_from([0.0, 0.0, 3600.0, 20_000.0, 90_000.0]), min_size=24, max_size=24)
day_of_reboots = st.lists(st.sampled_from([0.0] * 9 + [1.0, 2.5, 4.0]), min_size=24, max_size=24)
levels_seen = st.lists(st.tuples(day_of_training, day_of_reboots), min_size=1, max_size=3)


@given(levels_seen, st.integers(0, 23), st.integers(1, 12))
def test_how_much_likelier_is_the_rule_written_out(levels, first, length):
    ups, comes = [up for up, _ in levels], [came for _, came in levels]
    likely, worse, out_s = by_the_book(ups, comes, first, length)
    assume(abs(worse - rule._RATE_RATIO) > 1e-9)
    rows = rule._rows(Hours(tuple(map(tuple, ups))), dict(enumerate(comes)))
    found = rule._log_ratio(rows, first, length)
    assert found == (pytest.approx(likely, abs=1e-9) if worse >= rule._RATE_RATIO and out_s >= rule._OUTSIDE_S else 0.0)


@given(levels_seen, st.data())
def test_no_stretch_that_is_likely_enough_is_passed_over(levels, data):
    """The sum over all levels only saves time: whatever the rule itself would choose is among the candidates."""
    ups, comes = [up for up, _ in levels], [came for _, came in levels]
    struck = [hour for hour in range(24) if any(came[hour] for came in comes)]
    assume(struck)
    newest = data.draw(st.sampled_from(struck))
    hours = Hours(tuple(map(tuple, ups)))
    candidates = set(rule._candidates(hours, dict(enumerate(comes)), newest))
    around = {
        (first, length)
        for first in struck
        for length in range(1, rule._LONGEST + 1)
        if (first + length - 1) % 24 in struck and (newest - first) % 24 < length
    }
    assert candidates <= around
    likely = {each for each in around if by_the_book(ups, comes, *each)[0] > rule._LOG_RATIO + 1e-9}
    worse = {each for each in likely if by_the_book(ups, comes, *each)[1] > rule._RATE_RATIO + 1e-9}
    assert worse <= candidates


@pytest.mark.parametrize(
    ("stretch", "within", "without"),
    [
        ((3600.0, 7200.0), (3600.0, 7199.0), (3599.0, 7200.0)),
        ((82_800.0, 3600.0), (82_800.0, 0.0, 3599.0), (82_799.0, 3600.0)),
    ],
)
def test_the_bad_hours_begin_with_their_first_second_and_end_before_their_last(stretch, within, without):
    assert [rule._within(stretch, phase_s) for phase_s in within] == [True] * len(within)
    assert [rule._within(stretch, phase_s) for phase_s in without] == [False] * len(without)


def test_training_counts_to_the_hour_in_which_it_was():
    up = [0.0] * 24
    up[5], up[6] = 100.0, 10.0
    hours = Hours((tuple(up),), bad=(5 * 3600.0, 6 * 3600.0))
    assert rule.share(hours, 0.0, 0, bad=True) == (0.0, 100.0)
    assert rule.share(hours, 0.0, 0, bad=False) == (0.0, 10.0)
