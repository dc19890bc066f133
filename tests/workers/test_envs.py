"""envpool as it really is: its resets, its lives, its seeds, and the actions that it must never see."""

import numpy as np
import pytest

from workers import envs

ATARI = envs.spec_of("Breakout", 84)


@pytest.fixture(scope="module")
def breakout():
    """One step a vector step of a few hundred random ones, from two environments."""
    games = envs.make(ATARI, envs.env_seeds(1, 1, 0, 2), threads=1)
    rng = np.random.default_rng(1)
    steps = [games.reset()]
    for _ in range(400):
        games.send(rng.integers(ATARI.actions, size=2))
        steps.append(games.recv())
    return steps


@pytest.mark.parametrize("wrong", [[10**6, 0], [-100_000, 0], [0, 4], [-1, 0], [0], [0, 1, 2]])
def test_actions_that_would_kill_or_hang_envpool_never_reach_it(wrong):
    games = envs.make(ATARI, [1, 2], threads=1)
    games.reset()
    with pytest.raises(ValueError, match="actions must be 2 numbers from 0 to 3"):
        games.send(np.array(wrong))
    games.send(np.array([0, 3]))
    assert games.recv().obs.shape == (2, 4, 84, 84)


def test_observations_are_pixels(breakout):
    assert all(step.obs.dtype == np.uint8 and step.obs.shape == (2, 4, 84, 84) for step in breakout)
    assert breakout[0].starts.all()
    assert (breakout[0].obs == breakout[0].obs[:, :1]).all(), "after a reset all frames of the stack are the first one"


def test_a_lost_life_ends_an_episode_but_not_the_game(breakout):
    for env in range(2):
        lives = [t for t, step in enumerate(breakout) if step.terminated[env] and not step.game_over[env]]
        games = [t for t, step in enumerate(breakout) if step.game_over[env]]
        assert len(games) >= 1
        assert len(lives) >= 4 * len(games), "five lives a game"
        for t in lives[:-1]:
            assert not breakout[t + 1].starts[env]
        for t in games:
            assert breakout[t].terminated[env]
        for t in games[:-1] if games[-1] == len(breakout) - 1 else games:
            assert breakout[t + 1].starts[env], "the call after the last one of a game shows a new one"
            assert breakout[t + 1].scores[env] == 0, "and what was done in it counts for nothing"
        starts = [t for t, step in enumerate(breakout) if step.starts[env]]
        assert starts == [0, *(t + 1 for t in games if t + 1 < len(breakout))]


def test_rewards_are_clipped_for_learning_and_scores_are_not():
    class Pool:
        def recv(self):
            scores = np.array([7.0, -30.0, 0.0], np.float32)
            no = np.zeros(3, bool)
            info = {"lives": np.ones(3), "terminated": np.zeros(3), "elapsed_step": np.ones(3)}
            return np.zeros((3, 4, 84, 84), np.uint8), scores, no, no, info

    step = envs.Envs(Pool(), ATARI, 3, clip=True).recv()
    assert step.rewards.tolist() == [1.0, -1.0, 0.0]
    assert step.scores.tolist() == [7.0, -30.0, 0.0]
    assert envs.Envs(Pool(), ATARI, 3, clip=False).recv().rewards.tolist() == [7.0, -30.0, 0.0]


def test_test_games_are_whole_games():
    games = envs.make(ATARI, [3, 4], threads=1, learning=False)
    games.reset()
    rng = np.random.default_rng(1)
    for _ in range(300):
        games.send(rng.integers(ATARI.actions, size=2))
        step = games.recv()
        assert (step.terminated == step.game_over).all()


def test_a_game_that_is_cut_is_truncated_not_lost(monkeypatch):
    monkeypatch.setattr(envs, "MOST_GAME_FRAMES", 20 * ATARI.frames_per_step)
    games = envs.make(ATARI, [5], threads=1)
    games.reset()
    for _ in range(20):
        games.send(np.array([0]))
        step = games.recv()
    assert step.truncated.all()
    assert step.game_over.all()
    games.send(np.array([0]))
    assert games.recv().starts.all()


def play_catch(seeds, count=40):
    games = envs.make(envs.spec_of("Catch", 84), seeds, threads=1)
    seen = [games.reset().obs]
    for _ in range(count):
        games.send(np.ones(len(seeds), np.int64))
        seen.append(games.recv().obs)
    return np.stack(seen, axis=1)  # [env, time, ...]


def test_the_same_seeds_play_the_same_games_and_another_attempt_plays_others():
    seeds = envs.env_seeds(seed=1, attempt=1, env_steps=0, num_envs=16)
    assert len(set(seeds)) == 16
    assert all(0 <= seed < 2**31 for seed in seeds)
    first = play_catch(seeds)
    assert np.array_equal(first, play_catch(seeds))
    for other in ({"attempt": 2}, {"env_steps": 4096}, {"seed": 2}):
        more = envs.env_seeds(**{"seed": 1, "attempt": 1, "env_steps": 0, "num_envs": 16, **other})
        assert not set(more) & set(seeds)
        assert not np.array_equal(first, play_catch(more))
