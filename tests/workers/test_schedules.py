"""Schedules are functions of environment steps: they cannot start again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.args import make
from workers.schedules import crossed, epsilon, learning_rate, owed_updates


def test_exploration_falls_in_a_straight_line_and_stays():
    args = make("Pong", epsilon_steps=1000, epsilon_final=0.1)
    assert [round(epsilon(args, step), 12) for step in (0, 250, 500, 1000, 10**9)] == [1.0, 0.775, 0.55, 0.1, 0.1]


def test_learning_rates():
    plain = make("Pong", lr=0.1)
    assert {learning_rate(plain, step) for step in (0, 10**6, 10**9)} == {0.1}
    line = make("Pong", lr=0.1, lr_scheduler="linear", scheduler_tmax=1000, min_lr=0.02)
    assert [learning_rate(line, step) for step in (0, 250, 1000, 1500)] == pytest.approx([0.1, 0.08, 0.02, 0.02])
    cosine = make("Pong", lr=0.1, lr_scheduler="cosine", scheduler_tmax=1000, min_lr=0.02)
    wanted = [0.1, 0.02 + 0.08 * (1 + math.cos(math.pi / 4)) / 2, 0.06, 0.02, 0.02]
    assert [learning_rate(cosine, step) for step in (0, 250, 500, 1000, 1500)] == pytest.approx(wanted)
    step = make("Pong", lr=0.1, lr_scheduler="step", step_lr_step_size=100, step_lr_gamma=0.5)
    assert [learning_rate(step, at) for at in (0, 99, 100, 250)] == pytest.approx([0.1, 0.1, 0.05, 0.025])


def test_periods_are_crossed_once_whatever_the_stride():
    for stride in (1, 7, 32, 256):
        steps = range(0, 100_000, stride)
        copies = sum(crossed(8000, before, before + stride) for before in steps)
        assert copies == (steps[-1] + stride) // 8000
    assert crossed(8000, 7990, 8022)
    assert not crossed(8000, 8000, 8032)


@given(st.floats(0, 32), st.integers(1, 512), st.integers(1, 256).map(lambda n: 8 * n), st.integers(50, 300))
def test_the_replay_ratio_is_kept_by_carrying_fractions(ratio, num_envs, batch_size, steps):
    owed, updates = 0.0, 0
    for _ in range(steps):
        owed = owed_updates(owed, replay_ratio=ratio, num_envs=num_envs, batch_size=batch_size)
        updates += int(owed)
        owed -= int(owed)
    assert abs(updates - steps * ratio * num_envs / batch_size) <= 1 + 1e-6
