"""Which level to run at: the rules one by one, on the default ladder of six, with reviews every ten minutes."""

import math

import pytest

from supervisor.formats import span
from supervisor.model.codec import as_text, of_text
from supervisor.policy.level import load
from supervisor.policy.level.load import Cap, LoadSettings, LoadState
from supervisor.policy.level.worth import Costs

S, COSTS, FREE = LoadSettings(), Costs(), Cap(5)
SPEEDS = (1.0, 1.35, 1.67, 1.9, 2.1, 2.5)
LIGHT, THREE, MEDIUM, FIVE, SIX, HEAVY = range(6)


class Box:
    """Feeds the policy, and keeps what it has said."""

    def __init__(self, start=LIGHT, speeds=SPEEDS, settings=S):
        self.state, self.at_s, self.speeds, self.settings = load.begin(6, start), 0.0, speeds, settings
        self.levels, self.says = [start], []

    def quiet(self, minutes, *, cap=FREE, reading=True):
        for _ in range(int(minutes / 10)):
            self.at_s += 600.0
            seen = self.speeds[self.state.level] if reading else None
            self._take(load.reviewed(self.settings, COSTS, self.state, at_s=self.at_s, up_s=600.0, reading=seen, cap=cap))
        return self

    def reboot(self, after_min=5.0, *, weight=1.0, charged=None, cap=None):
        self.at_s += 60.0 * after_min + 210.0
        self._take(
            load.rebooted(
                self.settings, COSTS, self.state, at_s=self.at_s, up_s=60.0 * after_min, weight=weight, charged=charged, cap=cap
            )
        )  # fmt: skip
        return self

    def _take(self, step):
        self.state, verdict = step
        assert (verdict.level, verdict.trial) == (self.state.level, self.state.trial is not None)
        assert of_text(LoadState, as_text(self.state)) == self.state
        self.levels.append(verdict.level)
        self.says.append(verdict.why)

    @property
    def level(self):
        return self.state.level

    def holds(self, level, *, up_h=48.0):
        """Home at a level that has run well, as have all below it."""
        for each in range(level + 1):
            self.state = load.placed(self.state, each)
            known = self.state.known[each]._replace(up_s=up_h * 3600.0)
            self.state = load._with(self.state, each, known)
            for _ in range(6):
                self.at_s += 600.0
                self.state = load.learned(self.state, at_s=self.at_s, up_s=0.0, reading=self.speeds[each])
        self.state = load.placed(self.state, level)._replace(trial=None, home=level, stretch_s=0.0)
        return self


def test_a_box_that_bears_everything_is_climbed_in_an_hour_one_level_at_a_time():
    box = Box().quiet(70)
    assert box.level == HEAVY
    assert box.state.trial is None
    assert all(after - before in {0, 1} for before, after in zip(box.levels, box.levels[1:], strict=False))
    assert box.says[-1] == "heavy stays: it is the highest level"


def test_the_first_trial_says_what_it_hopes_for():
    box = Box().quiet(10)
    assert (box.level, box.state.trial) == (THREE, THREE)
    assert box.says[-1] == "trying 3: expected +13 % speed"


def test_once_a_reboot_was_held_against_the_box_trials_come_after_the_dwell_and_take_longer():
    box = Box().reboot(2.0).quiet(10)
    assert (box.level, box.says[-1]) == (LIGHT, "light stays: too soon after a change or a reboot for a trial")
    box.quiet(10)
    assert box.state.trial == THREE
    box.quiet(20)
    assert box.says[-1] == "3 on trial for 20m, 30m are needed"
    box.quiet(10)
    assert box.says[-1] == "3 passed its trial: 30m without a reboot; trying medium: expected +13 % speed"


def test_a_level_that_dies_right_after_a_short_trial_has_failed_it():
    box = Box().quiet(20)
    assert (box.state.home, box.state.trial) == (THREE, MEDIUM)
    box.quiet(10)
    assert (box.state.home, box.state.trial) == (MEDIUM, FIVE)
    box.quiet(30)
    assert (box.state.home, box.state.trial) == (HEAVY, None)
    box.reboot(7.0)
    assert (box.level, box.state.known[HEAVY].failures) == (SIX, 1)
    assert box.says[-1] == "back to 6: heavy failed its trial after 17m (1 in a row) and is tried again in 2h"


def test_a_level_that_ran_for_as_long_as_a_trial_has_passed_it():
    box = Box().quiet(60)
    assert (box.state.home, box.state.trial, box.state.stretch_s) == (HEAVY, None, 600.0)
    box.reboot(20.0)
    assert S.trial_s == 1_800.0
    assert box.state.known[HEAVY].failures == 0
    assert "failed" not in box.says[-1]


def test_a_reboot_in_a_trial_ends_it_and_the_level_rests_longer_each_time():
    box = Box().holds(SIX)
    rests_h = []
    for _ in range(6):
        while box.state.trial is None:
            box.quiet(10)
        assert box.level == HEAVY
        box.reboot(7.0)
        assert (box.level, box.state.trial) == (SIX, None)
        rests_h.append((box.state.known[HEAVY].next_trial_s - box.at_s) / 3600.0)
    assert rests_h[:4] == [2.0, 4.0, 8.0, 16.0]
    assert rests_h[5] == S.cool_max_s / 3600.0
    assert box.says[-1] == "back to 6: heavy failed its trial after 7m (6 in a row) and is tried again in 1d"
    box.quiet(20)
    assert box.says[-1] == "6 stays: heavy is tried again in 23h 40m"


def test_a_reboot_at_home_does_not_cost_the_level_when_no_lower_one_is_worth_more():
    box = Box().holds(HEAVY, up_h=100.0).quiet(30).reboot()
    assert box.level == HEAVY
    assert box.says[-1] == "heavy stays: no lower level is worth more, even with this reboot"


def test_reboots_at_home_step_back_once_a_lower_level_is_worth_more():
    box = Box().holds(HEAVY, up_h=3.0)
    for _ in range(6):
        box.quiet(10).reboot()
    assert box.level < HEAVY
    assert "back to 6: with one reboot in 1h 13m at heavy it is worth 2 % more" in box.says


def test_two_quick_reboots_count_against_a_clean_record():
    box = Box().holds(HEAVY, up_h=500.0).quiet(30).reboot(7.0).quiet(10)
    before = load.rate(box.state, HEAVY)
    box.reboot(7.0)
    assert box.state.known[HEAVY].up_s < 3600.0
    assert load.rate(box.state, HEAVY) > 20 * before
    assert box.reboot(7.0).reboot(7.0).level < HEAVY


def test_an_alarm_dies_down_in_quiet_time():
    box = Box().holds(HEAVY, up_h=20.0).quiet(30).reboot(7.0)
    assert box.state.cluster.alarm > 0
    box.quiet(24 * 60)
    assert box.state.cluster.alarm == 0.0


def test_a_reboot_that_was_meant_changes_nothing_but_the_time():
    box = Box().holds(MEDIUM)
    before = box.state
    box.reboot(weight=0.0)
    assert box.level == before.level
    assert [known.next_trial_s for known in box.state.known] == [known.next_trial_s for known in before.known]
    assert [known.reboots for known in box.state.known] == [known.reboots for known in before.known]
    assert box.says[-1] == "medium stays: the reboot does not count"


def test_a_reboot_just_after_a_step_down_is_held_against_the_level_that_was_left():
    box = Box().holds(SIX).quiet(10).reboot(0.5, charged=HEAVY)
    assert box.level == SIX
    assert box.state.known[HEAVY].failures == 1
    assert box.state.known[SIX].reboots == 0


def test_a_level_that_is_no_faster_is_left_again_and_rests():
    box = Box(speeds=(1.0, 1.3, 1.6, 1.0, 1.0, 1.0)).quiet(600)
    assert box.state.home == MEDIUM
    assert "back to medium: 5 is no faster (-8 %); tried again in 2h" in box.says


def test_a_level_that_is_known_to_be_slower_promises_no_more():
    box = Box(speeds=(1.0, 1.3, 1.6, 1.2, 1.0, 1.0)).quiet(1800)
    assert box.says[-1] == "medium stays: 5 is not expected to be faster (-17 %)"


def test_a_level_accepted_on_lucky_readings_is_left_when_a_lower_one_is_worth_more():
    box = Box().holds(MEDIUM)
    for _ in range(60):
        box.at_s += 600.0
        box.state = load.learned(load.placed(box.state, FIVE), at_s=box.at_s, up_s=600.0, reading=1.2)
        box.at_s += 600.0
        box.state = load.learned(load.placed(box.state, MEDIUM), at_s=box.at_s, up_s=600.0, reading=1.67)
    box.state = load.placed(box.state, FIVE)
    box.quiet(20)
    assert box.state.home == MEDIUM
    assert "back to medium: by all measurements it is worth more than 5" in box.says


def test_a_level_that_may_be_no_better_than_the_one_below_has_that_one_looked_at():
    box = Box(speeds=(1.0, 1.3, 1.31, 1.32, 1.33, 1.34)).quiet(300)
    assert [said for said in box.says if "it may be worth more than" in said] == [
        "trying 6: it may be worth more than heavy", "trying 5: it may be worth more than 6",
        "trying medium: it may be worth more than 5", "trying 6: it may be worth more than heavy",
    ]  # fmt: skip


def soon_tried_above(noise):
    """Home after a look from above: the level above is about to be tried again, and the one below may be worth more."""
    box = Box(speeds=(1.0, 1.3, 1.305, 1.31, 1.31, 1.32)).holds(SIX)
    state = box.state._replace(stretch_s=1e5, speeds=box.state.speeds._replace(noise=noise))
    state = load._with(state, FIVE, state.known[FIVE]._replace(next_look_s=0.0))
    box.state = load._with(state, HEAVY, state.known[HEAVY]._replace(next_trial_s=box.at_s + 1200.0))
    return box


def test_a_look_that_finds_the_level_below_as_good_goes_on_down():
    box = soon_tried_above(0.12).quiet(10)
    assert (box.level, box.says[-1]) == (FIVE, "trying 5: it may be worth more than 6")


def test_where_readings_scatter_the_level_above_is_tried_before_a_look_further_down():
    """On luck alone, one look after the other would lead anywhere."""
    box = soon_tried_above(0.25).quiet(10)
    assert (box.level, box.says[-1]) == (SIX, "6 stays: heavy is tried again in 10m")
    assert (box.quiet(10).state.trial, box.level) == (HEAVY, HEAVY)


def test_a_veto_lowers_at_once_and_counts_no_failure():
    box = Box().holds(SIX).quiet(10, cap=Cap(MEDIUM, "GPU 0 throttles for heat"))
    assert (box.level, box.says[-1]) == (MEDIUM, "down to medium: GPU 0 throttles for heat")
    assert not any(known.failures for known in box.state.known)
    box.quiet(60, cap=Cap(MEDIUM, "GPU 0 throttles for heat"))
    assert box.says[-1] == "medium stays: no trial of 5 while GPU 0 throttles for heat"


def test_a_veto_ends_a_trial_above_it():
    box = Box().quiet(10)
    assert box.state.trial == THREE
    box.quiet(10, cap=Cap(LIGHT, "too little memory"))
    assert (box.level, box.state.trial) == (LIGHT, None)


def test_after_a_reboot_the_cap_lowers_too():
    box = Box().holds(HEAVY).reboot(cap=Cap(THREE, "too little memory"))
    assert (box.level, box.says[-1]) == (THREE, "down to 3: too little memory")
    box.reboot(weight=0.0, cap=Cap(THREE, "too little memory"))
    assert box.level == THREE


def test_a_bad_record_is_refuted_by_a_quiet_time_in_which_three_reboots_were_due():
    box = Box().holds(SIX)
    bad = box.state.known[HEAVY]._replace(up_s=3600.0, reboots=4.0, reboots_ever=4.0, failures=4)
    box.state = load._with(box.state, HEAVY, bad)._replace(trial=HEAVY)
    box.quiet(60)
    assert box.state.trial == HEAVY
    assert box.says[-1] == "heavy on trial for 1h: its reboots so far still outweigh its speed"
    worse = box.state.known[HEAVY]._replace(reboots=20.0)
    box.state = load._with(box.state, HEAVY, worse)._replace(stretch_s=7200.0)
    box.quiet(10)
    assert box.state.home == HEAVY
    assert box.state.known[HEAVY].reboots == 0.0
    assert box.state.known[HEAVY].failures == 0


def test_without_readings_it_climbs_all_the_same():
    box = Box().quiet(300, reading=False)
    assert box.level == HEAVY


def test_placed_where_it_is_changes_nothing():
    state = load.begin(6, 2)
    assert load.placed(state, 2) is state
    assert load.placed(state, 4).home == 4


def test_the_ladder_as_it_is_shown():
    box = Box().holds(SIX).quiet(10).reboot(7.0)
    lines = load.shown(S, COSTS, box.state)
    light, six, heavy = lines[LIGHT], lines[SIX], lines[HEAVY]
    assert six.worth == six.speed == 1.0
    assert (light.speed_error, heavy.speed_error) == (load.pace.gain(box.state.speeds, LIGHT, SIX)[1], None)
    assert light.speed == pytest.approx(1 / 2.1, rel=0.1)
    assert heavy.next_trial_s == box.at_s + 7200.0
    assert heavy.speed is None
    known = box.state.known[HEAVY]
    assert (known.reboots, known.failures, known.shortest_s) == (1, 1, 420.0)
    resting = load._with(box.state, SIX, box.state.known[SIX]._replace(next_trial_s=box.at_s + 600.0))
    assert load.shown(S, COSTS, resting)[SIX].next_trial_s is None, "nothing is tried where it is already"
    untouched = load.shown(S, COSTS, load.begin(6))[HEAVY]
    assert (untouched.speed, untouched.next_trial_s) == (None, None)


def test_one_level_has_nowhere_to_go():
    settings = LoadSettings(names=("only",))
    state = load.begin(1)
    for at_s in range(600, 6000, 600):
        state, verdict = load.reviewed(settings, COSTS, state, at_s=at_s, up_s=600.0, reading=1.0, cap=Cap(0))
    assert verdict == load.LoadVerdict(0, trial=False, why="only stays: it is the highest level")
    state, verdict = load.rebooted(settings, COSTS, state, at_s=6300.0, up_s=60.0, weight=1.0)
    assert verdict.level == 0


def test_every_level_above_the_one_it_steps_back_to_rests():
    box = Box().holds(HEAVY)
    for level in (FIVE, SIX, HEAVY):
        bad = box.state.known[level]._replace(up_s=3 * 3600.0, reboots=12.0, reboots_ever=12.0)
        box.state = load._with(box.state, level, bad)
    box.reboot()
    assert box.level == MEDIUM
    rests_h = [(box.state.known[level].next_trial_s - box.at_s) / 3600.0 for level in (FIVE, SIX, HEAVY)]
    assert rests_h == [2.0, 2.0, 2.0]


def test_time_that_goes_back_is_no_time():
    state = load.learned(load.begin(6), at_s=1000.0, up_s=600.0, reading=100.0)
    after = load.learned(state, at_s=400.0, up_s=0.0, reading=None)
    assert after.at_s == 1000.0
    assert after.speeds == load.pace.aged(state.speeds, 0.0)


def test_the_ladder_as_it_is_shown_says_how_sure_the_speeds_are():
    box = Box().holds(SIX).quiet(10)
    lines = load.shown(S, COSTS, box.state)
    assert [line.speed_error is None for line in lines] == [readings == 0 for readings in box.state.speeds.readings]
    assert lines[LIGHT].speed_error == load.pace.gain(box.state.speeds, LIGHT, SIX)[1]
    assert lines[SIX].next_trial_s is None, "one is at home there"


def test_a_step_back_says_how_often_it_reboots_and_what_less_load_is_worth():
    box = Box().holds(SIX)
    for level in (MEDIUM, SIX):
        known = box.state.known[level]._replace(up_s=7200.0, reboots=0.0 if level == MEDIUM else 24.0, failures=1)
        box.state = load._with(box.state, level, known)
    before = box.state
    state, verdict = load._step_back(S, COSTS, before, box.at_s)
    best = state.home
    worth = load.advantage(S, COSTS, before, best, SIX)
    lasts_s = 1.0 / load.rate(before, SIX)
    assert best < SIX
    assert verdict.why == (
        f"back to {S.names[best]}: with one reboot in {span(lasts_s)} at {S.names[SIX]} it is worth {100 * (math.exp(min(worth, 5.0)) - 1):.0f} % more"
    )
    rests = [after.next_trial_s - now.next_trial_s for now, after in zip(before.known, state.known, strict=True)]
    assert rests[: best + 1] == [0.0] * (best + 1), "the level that it goes to, and those below, are as they were"
    assert rests[SIX] == box.at_s + 2.0 * S.cool_s, "it has failed once before"


def test_placed_at_a_level_it_has_no_trial_and_has_run_no_time():
    state = load.begin(6)._replace(home=THREE, trial=FIVE, stretch_s=99.0)
    placed = load.placed(state, MEDIUM)
    assert (placed.home, placed.trial, placed.stretch_s) == (MEDIUM, None, 0.0)
