"""When the box that holds the copies is presumed dead, and when the next one is rented."""

from __future__ import annotations

import bisect
import random
from dataclasses import dataclass, field, replace

import pytest

from supervisor.features.next_box.rent import FAILED, LEFT_TO, ORDERED, RENTED, RentRules, Step, Try, away, next_step
from supervisor.features.next_box.rules import Judgement, Sight, Verdict, Watch, judge, longest_gap_s, watched
from supervisor.features.offsite.rules import retry_s
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.policy.upkeep.copies import DONE, IDLE, LEFT

SIGHT = Sight("copy 7", "ada", "900")


def looks(*steps, first=SIGHT):
    """The watch after looks of one kind: (sight, number of looks, seconds between them)."""
    watch, now_s = watched(Watch(), first, 0.0), 0.0
    for sight, count, every_s in steps:
        for _ in range(count):
            now_s += every_s
            watch = watched(watch, sight, now_s)
    return watch


@pytest.mark.parametrize(
    ("sight", "silent_s", "verdict"),
    [
        (SIGHT, 1919, Verdict.LIVES),
        (SIGHT, 1920, Verdict.DEAD),
        (replace(SIGHT, then="60"), 240, Verdict.DEAD),
        (replace(SIGHT, then=""), 1e6, Verdict.UNKNOWN),
        (replace(SIGHT, then="nan"), 1e6, Verdict.UNKNOWN),
        (replace(SIGHT, then="from a later release"), 1e6, Verdict.UNKNOWN),
        (replace(SIGHT, then=DONE), 1e6, Verdict.ENDED),
        (replace(SIGHT, then=IDLE), 1e6, Verdict.RESTS),
        (replace(SIGHT, then=LEFT), 59, Verdict.LIVES),
        (replace(SIGHT, then=LEFT), 60, Verdict.DEAD),
        (replace(SIGHT, there=True), 1e6, Verdict.LIVES),
        (replace(SIGHT, there=True, presumed="desk"), 0, Verdict.LIVES),
        (replace(SIGHT, presumed="desk"), 0, Verdict.DEAD),
        (replace(SIGHT, same=True), 0, Verdict.DEAD),
        (replace(SIGHT, same=True, then=DONE), 0, Verdict.ENDED),
        (replace(SIGHT, paused="me", then=LEFT), 1e6, Verdict.PAUSED),
        (Sight(""), 1e6, Verdict.NOTHING),
    ],
)
def test_the_verdict(sight, silent_s, verdict):
    found = judge(Watch(sight.sign, float(silent_s)), sight)
    assert found.verdict is verdict, found.why


def test_the_operators_time_replaces_the_promise_and_the_lack_of_one():
    for then in ("", "900"):
        sight = replace(SIGHT, then=then)
        assert judge(Watch(sight.sign, 299), sight, after_s=300).verdict is Verdict.LIVES
        assert judge(Watch(sight.sign, 300), sight, after_s=300).verdict is Verdict.DEAD
    assert judge(Watch(sight.sign, 1e6), replace(SIGHT, then=IDLE), after_s=300).verdict is Verdict.RESTS


def test_a_provider_that_says_gone_is_believed_after_a_minute_without_a_sign_or_another_word():
    gone = replace(SIGHT, there=False)
    assert judge(looks((gone, 2, 30.0)), gone).verdict is Verdict.LIVES
    assert judge(looks((gone, 3, 30.0)), gone).verdict is Verdict.DEAD
    for but in (replace(gone, there=None), replace(gone, there=True), replace(gone, sign="copy 8")):
        assert judge(looks((gone, 2, 30.0), (but, 1, 30.0), (gone, 1, 30.0)), gone).verdict is Verdict.LIVES


def test_silence_counts_from_the_newest_sign_as_this_machine_saw_it():
    assert looks((SIGHT, 10, 60.0)).silent_s == 600
    assert looks((SIGHT, 10, 60.0), (replace(SIGHT, sign="copy 8"), 3, 60.0)).silent_s == 120


@pytest.mark.parametrize("gap", [(None, 1, 60.0), (SIGHT, 1, 451.0), (SIGHT, 1, -1.0)])
def test_the_count_begins_anew_if_nobody_looked_or_the_repository_was_away(gap):
    assert looks((SIGHT, 10, 60.0), gap, (SIGHT, 2, 60.0)).silent_s == (60 if gap[0] is None else 120)


def test_how_rare_looks_may_be():
    assert [longest_gap_s(replace(SIGHT, then=then)) for then in ("60", "300", "900", "")] == [90, 330, 450, 330]


# --- the rent -------------------------------------------------------------------------------------------------------------

DEAD = Judgement(Verdict.DEAD, "box ada has been silent for 32m")
HOUR_S, AT_S = 3600.0, 1_800_000_000.0


def rents(tries, minutes, rules=RentRules(), of="7/1"):  # noqa: B008
    return next_step(rules, tries, DEAD, of, AT_S + 60 * minutes)


def played(rules=RentRules(), what=RENTED, hours=24, usd=None):  # noqa: B008
    """The minutes at which the command runs, if no box ever takes over."""
    tries = []
    for minute in range(60 * hours):
        if rents(tries, minute, rules).do == "rent":
            tries.append(Try(what, "7/1", AT_S + 60 * minute, usd))
    return [int(each.wall_s - AT_S) // 60 for each in tries]


def test_a_box_that_never_takes_over_is_rented_again_ever_more_rarely_and_not_above_the_limit():
    assert played() == [0, 20, 60, 140]
    assert played(RentRules(a_day=9)) == [0, 20, 60, 140, 300, 540, 780, 1020, 1260]
    limit = rents([Try(RENTED, "7/1", AT_S)], 60, RentRules(a_day=1))
    assert (limit.do, limit.severity) == ("wait", "critical")
    assert rents([Try(RENTED, "7/1", AT_S)], 24 * 60, RentRules(a_day=1)).do == "rent"


def test_a_command_that_fails_is_tried_again_within_limits():
    assert played(what=FAILED)[:9] == [0, 1, 3, 7, 15, 31, 63, 127, 255]
    assert len(played(RentRules(a_day=1), FAILED, hours=48)) <= 20


def test_a_limit_that_is_set_to_zero_rents_nothing():
    assert played(RentRules(a_day=0)) == []


def test_another_box_that_dies_is_replaced_at_once():
    tries = [Try(RENTED, "7/1", AT_S)]
    assert rents(tries, 1).do == "wait"
    assert rents(tries, 1, of="9/2").do == "rent"


def test_a_box_that_costs_more_than_allowed_is_the_last_one():
    rules = RentRules(usd_per_hour=2.0)
    assert played(rules, usd=2.5) == [0]
    assert played(rules, usd=2.0) == played(rules, usd=None) == [0, 20, 60, 140]
    assert rents([Try(RENTED, "7/1", AT_S, 2.5)], 60, rules).severity == "critical"


def test_a_repository_that_does_not_answer_is_no_reason_to_rent():
    assert away("no route") == Step("wait", "away", "the repository does not answer: no route")


def test_an_order_counts_as_a_rent_until_its_outcome_is_known():
    ordered, failed = Try(ORDERED, "7/1", AT_S), Try(FAILED, "7/1", AT_S)
    assert rents([ordered], 19).do == "wait"
    assert rents([ordered, failed], 1).do == "rent"
    assert rents([ordered, Try(RENTED, "7/1", AT_S)], 20).do == "rent", "one, not two"


def test_another_machine_that_was_first_rents():
    tries = [Try(LEFT_TO, "7/1", AT_S)]
    assert [rents(tries, minute).do for minute in (1, 19, 20)] == ["wait", "wait", "rent"]


@pytest.mark.parametrize(
    ("verdict", "do", "severity"),
    [
        (Verdict.ENDED, "end", "info"),
        (Verdict.PAUSED, "wait", "info"),
        (Verdict.UNKNOWN, "wait", "warning"),
        (Verdict.LIVES, "wait", ""),
    ],
)
def test_without_a_dead_box_nothing_is_rented(verdict, do, severity):
    step = next_step(RentRules(), [], Judgement(verdict, "why"), "7/1", AT_S)
    assert (step.do, step.key, step.why, step.severity) == (do, verdict.value, "why", severity)


# --- nights ------------------------------------------------------------------------------------------------------------

NIGHT_S, RULES = 36_000.0, OffsiteSettings(repository="/r")
STARTS_S = (120.0, 600.0)  # a provider's


@dataclass
class Night:
    """One night of boxes that copy every 15 minutes, and of one machine that looks. Times of the world, in seconds."""

    luck: random.Random
    cut_s: tuple[float, float] = (0.0, 600.0)  # how long a box's own link to the repository may be away
    signs: list[tuple[float, str]] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)  # of the repository
    sleeps: list[tuple[float, float]] = field(default_factory=list)  # of the machine that looks
    live_dead = doubles_s = boxes = deaths = found = 0
    delays_s: list[float] = field(default_factory=list)

    def play(self):
        luck = self.luck
        self.outages = [(at, at + luck.expovariate(1 / 600)) for at in self._some(1.0)]
        self.sleeps = [(at, at + luck.uniform(60, 20_000)) for at in self._some(0.2)]
        if luck.random() < 0.5:
            self.outages += self.sleeps  # the repository is on the machine that looks
        every_s, now_s = luck.choice((20.0, 60.0, 300.0)), luck.uniform(0, 300)
        dies_s = self._box(0.0)
        watch = Watch()
        while now_s < NIGHT_S:
            if not _within(self.sleeps, now_s):
                sight = self._sight(now_s)
                watch = watched(watch, sight, now_s)
                if sight is not None and judge(watch, sight).verdict is Verdict.DEAD:
                    self.deaths += 1
                    if dies_s > now_s:
                        self.live_dead += 1
                        self.doubles_s += self._lives_on(now_s, dies_s)
                    else:
                        self.delays_s.append(now_s - dies_s)
                    now_s += luck.uniform(*STARTS_S)
                    dies_s = self._box(now_s)
            now_s += every_s + luck.uniform(0, 5)
        return self

    def _some(self, mean):
        return [self.luck.uniform(0, NIGHT_S) for _ in range(self.luck.choices((0, 1, 2), (1, mean, mean / 4))[0])]

    def _box(self, begins_s):
        """The signs of life of one box until its death. Its clock is wrong, which no look can see. When it dies."""
        luck = self.luck
        self.boxes += 1
        dies_s = begins_s + luck.expovariate(1 / 20_000)
        self.cuts = [(at, at + luck.uniform(*self.cut_s)) for at in self._some(0.5)]
        clock_s = luck.choice((0.0, 0.0, luck.gauss(0, 5), luck.uniform(-9e4, 9e4)))
        slow_s = luck.choice((5.0, 20.0, 90.0, luck.uniform(90, 2400)))  # of an upload
        self._sign(begins_s, dies_s, f"lease {begins_s + clock_s:.3f}")
        at_s, failures = begins_s + 30, 0
        while at_s < min(dies_s, NIGHT_S):
            took_s = slow_s * luck.uniform(0.5, 1.5)
            fails_s = min(
                (max(start, at_s) for start, end in self.outages + self.cuts if start < at_s + took_s and at_s < end),
                default=None,
            )
            for lock in range(int(((at_s + took_s if fails_s is None else fails_s) - at_s) // 300) + (fails_s != at_s)):
                self._sign(at_s + 300 * lock, dies_s, f"lock {at_s + 300 * lock + clock_s:.3f}")
            if fails_s is not None:
                failures += 1
                at_s = fails_s + luck.uniform(1, 20) + retry_s(RULES, failures)
                continue
            self._sign(at_s + took_s, dies_s, f"copy {at_s + clock_s:.3f}")
            at_s, failures = at_s + max(900.0, took_s), 0
        return dies_s

    def _sign(self, at_s, dies_s, sign):
        if at_s < dies_s:
            self.signs.append((at_s, sign))

    def _sight(self, now_s):
        if _within(self.outages, now_s):
            return None
        self.signs.sort()
        return replace(SIGHT, sign=self.signs[bisect.bisect(self.signs, (now_s, "~")) - 1][1])

    def _lives_on(self, now_s, dies_s):
        """How long it goes on beside the next box: until its next copy, which reads the lease."""
        ends_s = min([at for at, _ in self.signs if at > now_s] + [dies_s, NIGHT_S])
        self.signs = [each for each in self.signs if each[0] <= now_s]
        return ends_s - now_s


def _within(times, now_s):
    return any(start <= now_s < end for start, end in times)


@pytest.mark.parametrize("nights", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_nights_with_deaths_wrong_clocks_and_late_copies_declare_no_live_box_dead(nights):
    played = [Night(random.Random(seed)).play() for seed in range(nights)]
    assert [seed for seed, night in enumerate(played) if night.live_dead] == []
    died = [delay for night in played for delay in night.delays_s]
    assert len(died) > nights / 2
    print(f"{nights} nights, {len(died)} deaths, presumed after {sorted(died)[len(died) // 2]:.0f} s (median)")


@pytest.mark.parametrize("nights", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_boxes_whose_own_link_is_cut_for_hours_cost_less_than_one_per_cent_twice(nights):
    played = [
        Night(random.Random(seed), cut_s=(0.0, 7200.0) if seed % 20 == 0 else (0.0, 600.0)).play() for seed in range(nights)
    ]
    doubles_s = sum(night.doubles_s for night in played)
    assert 0 < doubles_s < 0.01 * NIGHT_S * nights
    print(
        f"{nights} nights: {sum(n.live_dead for n in played)} live boxes, {doubles_s / NIGHT_S / nights:.3%} of the time twice"
    )
