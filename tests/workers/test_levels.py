"""A run goes from light to heavy and back with nothing lost: counters, schedules, optimizer, experience, what it can do."""

import numpy as np
import pytest
from learners import games, learner, settings

from workers import schedules
from workers.checkpoint import Checkpointer
from workers.contract import Client

LIGHT, HEAVY = "light", "heavy"
LEVELS = {
    "dqn": {LIGHT: {"num_envs": 8, "batch_size": 32}, HEAVY: {"num_envs": 48, "batch_size": 256}},
    "pqn": {LIGHT: {"num_envs": 8, "batch_size": 64}, HEAVY: {"num_envs": 48, "batch_size": 512}},
    "ppo": {LIGHT: {"num_envs": 8, "batch_size": 64}, HEAVY: {"num_envs": 48, "batch_size": 512}},
}


class Run:
    """A training in a directory, as a sequence of processes at one level or another."""

    def __init__(self, directory, **changes):
        self.directory, self.changes, self.attempt = directory, changes, 0
        self.made = None

    def begin(self, level):
        """The next process: it comes back from the newest checkpoint."""
        self.attempt += 1
        algo = self.changes.get("algo", "dqn")
        args = settings(**{**self.changes, **LEVELS[algo][level]})
        self.made = learner(args, self.directory / "replay")
        self.saver = Checkpointer(self.directory, Client({}), {"game": args.game})
        loaded = self.saver.load_newest()
        if loaded is not None:
            self.made.restore(loaded.tensors, loaded.state)
        return self.made

    def train(self, steps):
        """Until so many more environment steps are done, and on to a moment of rest."""
        made, until = self.made, self.made.env_steps + steps
        made.train(games(made, self.attempt), lambda: made.env_steps < until or not made.can_save_all(), lambda: None)
        return made

    def leave(self):
        tensors, state = self.made.snapshot()
        assert self.saver.save(self.made.env_steps, tensors, state, mean_return=None, stall_s=0.0)
        assert self.saver.wait(60)
        assert self.saver.failure is None
        self.made.close()
        return {name: tensor.clone() for name, tensor in tensors.items()}, state


def samplable(replay):
    """How many whole transitions there are."""
    return int(replay._resolve(np.arange(replay.total - len(replay), replay.total))[0].sum())


@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo"])
def test_counters_schedules_and_optimizer_go_on_over_every_change_of_level(algo, tmp_path):
    run = Run(tmp_path, algo=algo, epsilon_steps=3_600, lr_scheduler="cosine", scheduler_tmax=4_800, min_lr=1e-4)
    tensors = state = None
    for level in (LIGHT, HEAVY, LIGHT, HEAVY):
        made = run.begin(level)
        if state is not None:
            again, same = made.snapshot()
            assert {name for name in same if same[name] != state[name]} <= {"batch_size", "owed"}
            assert tensors
            assert all(again[name].equal(tensors[name]) for name in tensors), "weights, moments and randomness"
        run.train(1_200)
        rate = made.optimizer.param_groups[0]["lr"]
        row = made.args.num_envs * (1 if algo == "dqn" else 0)  # it counts the row after it has learned
        assert rate == schedules.learning_rate(made.args, made.env_steps - row)
        if algo == "dqn":
            assert made.optimizer.param_groups[0]["eps"] == 0.01 / made.args.batch_size
        tensors, state = run.leave()
    assert state["env_steps"] >= 4_800
    assert schedules.epsilon(made.args, made.env_steps) == pytest.approx(made.args.epsilon_final)
    if algo == "dqn":
        assert len(made.replay) == state["env_steps"], "every step of all four is there"


def test_dqn_keeps_its_experience_and_its_replay_ratio(tmp_path):
    """Updates times batch is the ratio times the steps, over all levels: nothing that is owed is forgotten."""
    run = Run(tmp_path, replay_ratio=4.0, learning_starts=1_000)
    learned = before = kept = 0
    for number, level in enumerate((LIGHT, HEAVY, LIGHT)):
        made = run.begin(level)
        assert samplable(made.replay) == kept, "what could be sampled can be sampled"
        run.train(1_501)
        if number:
            assert made.updates > before, "no waiting for learning_starts: its experience is there"
        learned += (made.updates - before) * made.args.batch_size
        before, kept = made.updates, samplable(made.replay)
        run.leave()
        told = made.owed * made.args.batch_size
        # The vector step that fills the replay up to learning_starts is the first that owes anything.
        assert learned + told == pytest.approx(4.0 * (made.env_steps - 1_000), abs=4.0 * 8)
    assert kept > 0.8 * made.env_steps, "all but fake steps, one in ten on Catch, and seams"


@pytest.mark.parametrize("algo", ["ppo", *(pytest.param(algo, marks=pytest.mark.slow) for algo in ("dqn", "pqn"))])
def test_the_curve_goes_on(algo, tmp_path):
    """Catch is solved over changes of level, and what was learned is there at once after the next; anew it would not be."""
    run = Run(tmp_path, algo=algo, seed=2)
    for level, steps in ((LIGHT, 8_000), (HEAVY, 10_000), (LIGHT, 2_000)):
        made = run.begin(level)
        run.train(steps)
        run.leave()
    assert made.mean_return >= 0.8, f"{made.mean_return} after {made.env_steps} steps"
    made = run.begin(HEAVY)
    made.recent.clear()
    run.train(1_200)
    kept = made.mean_return
    anew = Run(tmp_path / "anew", algo=algo, seed=2)
    anew.begin(HEAVY)
    begun = anew.train(1_200).mean_return
    assert kept >= 0.8 > 0.0 > begun, f"{kept} at the new level, {begun} of one that begins anew"
    run.made.close()
    anew.made.close()
