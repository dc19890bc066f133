"""Presets, `batch_size = "auto"`, and what makes a batch valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.args import BadArguments, make, parse, with_algorithm
from workers.options import largest_valid_divisor


def load(args):
    return args.algo, args.num_envs, args.n_steps, args.batch_size, args.epochs, args.target_kl


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("fast", ("ppo", 16, 256, 2048, 15, 0.02)),
        ("heavy", ("ppo", 32, 256, 4096, 20, 0.02)),
        ("beast", ("ppo", 64, 512, 8192, 30, 0.02)),
    ],
)
def test_a_preset_is_the_users_numbers(preset, wanted):
    assert load(make("Pong", preset=preset)) == wanted
    assert load(parse(["--program=Pong", "--preset", preset], {})) == wanted
    assert load(parse(["--program=Pong"], {"RL_PRESET": preset})) == wanted
    assert load(make("Pong", preset=preset, algo="auto")) == wanted, "the preset has chosen already"


def test_what_is_given_wins_over_a_preset_wherever_it_is_given():
    args = parse(["--program=Pong", "--preset=heavy", "--epochs=4"], {"RL_NUM_ENVS": "64", "RL_TARGET_KL": "0"})
    assert load(args) == ("ppo", 64, 256, 4096, 4, 0.0)


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_it_is_valid_and_nothing_larger_is(rows, at_most):
    valid = [size for size in range(8, min(rows, at_most) + 1, 8) if rows % size == 0]
    assert largest_valid_divisor(rows, at_most) == max(valid, default=None)


@pytest.mark.parametrize(
    ("flags", "batch"),
    [
        ("--algo ppo --num-envs 12 --n-steps 120", 480),  # 1,440 steps, at most 512
        ("--algo pqn --num-envs 8 --n-steps 20", 160),
        ("--preset fast --num-envs 10", 1280),  # 2,560 steps, at most the preset's 2,048
        ("--algo dqn", 512),
        ("--algo auto", 512),
    ],
)
def test_an_automatic_batch_is_the_largest_that_is_valid(flags, batch):
    assert parse(f"--program Pong --batch-size auto {flags}".split(), {}).batch_size == batch
    assert parse(f"--program Pong {flags}".split(), {"RL_BATCH_SIZE": "AUTO"}).batch_size == batch


def test_where_no_batch_is_valid_the_sentence_says_what_to_change():
    with pytest.raises(BadArguments) as caught:
        parse("--program Pong --batch-size auto --algo ppo --num-envs 3 --n-steps 5".split(), {})
    assert caught.value.errors == (
        "batch_size 512 does not divide the 15 steps of a rollout (3 environments x 5); make n_steps a multiple of 8",
    )


def test_an_automatic_batch_is_lowered_like_any_other_and_the_rate_follows():
    args = parse("--program Pong --batch-size auto".split(), {"EXTRALIFE_BATCH_SIZE": "128"})
    assert (args.batch_size, args.lr) == (128, pytest.approx(1.25e-4))
    made = parse("--program Pong --preset fast".split(), {"EXTRALIFE_BATCH_SIZE": "1000"})
    assert made.batch_size == 512


def test_an_algorithm_that_was_left_open_takes_what_was_asked_for():
    args = make("Pong", algo="auto", num_envs=12, n_steps=20, batch_size=64, seed=3)
    assert (args.algo, args.batch_size) == ("auto", 64)
    pqn = with_algorithm(args, "pqn")
    assert (pqn.algo, pqn.batch_size, pqn.lr, pqn.max_grad_norm, pqn.seed) == ("pqn", 48, 2.5e-4, 10.0, 3)
    dqn = with_algorithm(args, "dqn")
    assert (dqn.algo, dqn.batch_size, dqn.lr) == ("dqn", 64, pytest.approx(6.25e-5 * 2**0.5))
    assert with_algorithm(make("Pong", algo="auto", lr=0.5), "dqn").lr == 0.5
    lowered = parse("--program Pong --algo auto".split(), {"EXTRALIFE_BATCH_SIZE": "64"})
    assert with_algorithm(lowered, "dqn").batch_size == 64


def test_what_does_not_go_with_the_algorithm_is_reported_then():
    with pytest.raises(BadArguments) as caught:
        with_algorithm(make("Pong", algo="auto", num_envs=512, replay_size=4096), "dqn")
    assert caught.value.errors == ("replay_size 4096 holds less than 16 steps of 512 environments; at least 8192 is needed",)
