"""How fast the levels are: readings, their common drift, and doubt that is honest."""

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.policy.level import speeds as pace


def fed(readings, *, every_s=600.0, levels=3):
    speeds = pace.unread(levels)
    for level, reading in readings:
        speeds = pace.read(pace.aged(speeds, every_s), level, reading)
    return speeds


class Textbook:
    """The Kalman filter of any textbook, in matrices, over all levels and the drift at every reading."""

    def __init__(self, levels):
        start = pace.unread(levels)
        self.mean = np.array(start.mean)
        self.cov = np.array(start.cov).reshape(levels + 1, levels + 1)
        self.noise, self.seen = start.noise, [False] * levels

    def age(self, for_s):
        keep = math.exp(-for_s / (6 * 3600.0))
        moves = np.diag([1.0] * (len(self.mean) - 1) + [keep])
        fades = np.diag([0.02**2 / (48 * 3600.0) * for_s] * (len(self.mean) - 1) + [0.08**2 * (1.0 - keep**2)])
        self.mean, self.cov = moves @ self.mean, moves @ self.cov @ moves.T + fades

    def read(self, level, reading):
        looks = np.zeros(len(self.mean))
        looks[[level, -1]] = 1.0
        miss, doubt, before = math.log(reading) - looks @ self.mean, looks @ self.cov @ looks, self.noise
        if self.seen[level]:
            told = min(max(0.03**2, miss**2 - doubt), 9.0 * before**2)
            self.noise = math.sqrt(0.95 * before**2 + 0.05 * told)
        gain = self.cov @ looks / (doubt + self.noise**2)
        self.mean = self.mean + gain * miss
        self.cov = (max(self.noise, 0.12) / max(before, 0.12)) ** 2 * (self.cov - np.outer(gain, looks @ self.cov))
        self.seen[level] = True


looked = st.tuples(st.integers(0, 3), st.floats(0.5, 2.0), st.sampled_from([0.0, 600.0, 5e4]), st.integers(1, 9))


@given(st.lists(looked, min_size=1, max_size=12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_it_is_the_textbook_filter(stays, seed):
    chance, speeds, known = Random(seed), pace.unread(4), Textbook(4)
    for level, reading, after_s, count in stays:
        for _ in range(count):
            known.age(after_s)
            if chance.random() < 0.2:
                speeds = pace.aged(speeds, after_s)
                continue
            scattered = reading * math.exp(chance.gauss(0.0, 0.2))
            speeds = pace.read(speeds, level, scattered, after_s)
            known.read(level, scattered)
        assert speeds.mean == pytest.approx(known.mean, abs=1e-7)
        assert speeds.noise == pytest.approx(known.noise)
        assert speeds.cov == pytest.approx(known.cov.ravel(), abs=1e-8, rel=1e-7)
        for one, other in itertools.product(range(4), repeat=2):
            variance = known.cov[one, one] + known.cov[other, other] - 2.0 * known.cov[one, other]
            assert pace.gain(speeds, one, other) == pytest.approx(
                (known.mean[one] - known.mean[other], math.sqrt(max(0.0, variance))), abs=2e-5
            )


def test_before_any_reading_a_step_up_is_believed_to_gain_an_eighth():
    mean, error = pace.gain(pace.unread(6), 3, 2)
    assert (mean, error) == (pytest.approx(0.12), pytest.approx(0.12))
    assert pace.gain(pace.unread(6), 4, 2)[1] > error
    assert not any(pace.unread(6).cov[-7:-1] + pace.unread(6).cov[6:-1:7]), "no level is slow because all are"


def test_the_worked_example():
    speeds = fed([(0, 100.0)] * 3 + [(1, 130.0)] * 3)
    mean, error = pace.gain(speeds, 1, 0)
    assert 0.18 < mean < 0.28
    assert 0.04 < error < 0.10
    beyond, more = pace.gain(speeds, 2, 0)
    assert beyond == pytest.approx(mean + 0.12, abs=0.02)
    assert more > error


def test_a_box_that_gets_slower_altogether_is_drift_and_changes_no_comparison():
    before = fed([(0, 100.0), (1, 130.0)] * 20)
    after = before
    for _ in range(6):
        after = pace.read(pace.aged(after, 600.0), 1, 110.0)
    assert pace.gain(after, 1, 0)[0] > 0.7 * pace.gain(before, 1, 0)[0]


def test_knowledge_fades():
    speeds = fed([(0, 100.0), (1, 130.0)] * 10)
    assert pace.gain(pace.aged(speeds, 10 * 86400.0), 1, 0)[1] > pace.gain(speeds, 1, 0)[1]
    assert pace.gain(pace.aged(speeds, 10 * 86400.0), 1, 0)[0] == pytest.approx(pace.gain(speeds, 1, 0)[0])


def test_the_error_is_honest():
    """Over many boxes, the truth lies within one and two standard errors about as often as it should."""
    within = [0, 0]
    for seed in range(150):
        chance = Random(seed)
        truth = chance.gauss(0.12, 0.12)
        drift, readings = 0.0, []
        for k in range(12):
            drift = drift * math.exp(-600 / 21600) + 0.08 * math.sqrt(1 - math.exp(-1200 / 21600)) * chance.gauss(0, 1)
            readings.append((k // 3 % 2, math.exp(k // 3 % 2 * truth + drift + 0.1 * chance.gauss(0, 1))))
        mean, error = pace.gain(fed(readings), 1, 0)
        within = [count + (abs(mean - truth) < times * error) for times, count in enumerate(within, 1)]
    assert within[0] > 0.58 * 150
    assert within[1] > 0.88 * 150


def test_a_box_that_turns_out_to_be_noisy_is_doubted_in_what_it_has_shown_before():
    """One low reading of the next level, then readings of the first that scatter by a quarter."""
    speeds = pace.read(pace.read(pace.read(pace.unread(2), 0, 100.0), 0, 100.0), 1, 70.0)
    mean, error = pace.gain(speeds, 1, 0)
    assert mean + error < 0.02, "it seems no faster"
    for number in range(40):
        speeds = pace.read(speeds, 0, 100.0 * (1.28 if number % 2 else 0.78), 600.0)
    assert speeds.noise > 0.2
    mean, error = pace.gain(speeds, 1, 0)
    assert mean + error > 0.02, "and may well be, once it is known how little one reading says"
