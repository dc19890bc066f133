"""Asked to leave in the middle of a rollout: it is finished and learned from, if that takes no longer than there is time."""

import json
import time

from learners import settings
from supervised import environment_of

from workers import contract, run
from workers.contract import Client, Control
from workers.daemon_side import ControlWriter
from workers.listen import PendingRequests

ROLLOUT, EPOCHS, BATCHES = 128, 2, 4
ON_POLICY = {"num_envs": 8, "n_steps": 16, "batch_size": 32, "epochs": EPOCHS, "threads": 1, "num_test_episodes": 0}


class Leaving(Client):
    """Asked to leave at the first step, or the first update, beyond a number of them."""

    def __init__(self, environ=None, *, steps=None, updates=None):
        super().__init__(environ or {})
        self._steps, self._updates, self._made = steps, updates, 0

    def progress(self, **counters):
        if not counters:  # that of an update
            self._made += 1
            self.leave_wanted |= self._updates is not None and self._made >= self._updates
        elif self._steps is not None and counters.get("env_steps", 0) > self._steps:
            self.leave_wanted = True
        super().progress(**counters)


def left(client, monkeypatch, tmp_path):
    """(environment steps, updates) of the checkpoint with which it left."""
    monkeypatch.chdir(tmp_path)
    assert (
        run.run(settings("Catch", algo="ppo", steps=100_000, **ON_POLICY), client, PendingRequests()) == contract.EXIT_LEFT
    )
    (saved,) = (client.run_dir or tmp_path / "runs" / "Catch").glob("checkpoints/ckpt-*/state.json")
    state = json.loads(saved.read_text())
    return state["env_steps"], state["updates"]


def test_a_rollout_that_is_half_full_is_finished_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "HALF_DONE_S", 600.0)
    assert left(Leaving(steps=ROLLOUT + 50), monkeypatch, tmp_path) == (2 * ROLLOUT, 2 * EPOCHS * BATCHES)
    assert "left on request; everything is saved\n" in capsys.readouterr().out


def test_a_rollout_that_takes_too_long_is_forgotten_and_that_is_reported(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "HALF_DONE_S", 0.0)
    assert left(Leaving(steps=ROLLOUT + 50), monkeypatch, tmp_path) == (ROLLOUT + 56, EPOCHS * BATCHES)
    assert "everything is saved, except 56 steps of an unfinished rollout\n" in capsys.readouterr().out


def test_no_more_than_a_third_of_the_time_left_is_taken(monkeypatch, tmp_path):
    """The supervisor's word: to be gone by a moment that has passed."""
    monkeypatch.setattr(run, "HALF_DONE_S", 600.0)
    control = ControlWriter(tmp_path / "control")
    environ = environment_of(tmp_path / "Catch", 1) | {contract.ENV_CONTROL: str(tmp_path / "control")}

    class Told(Leaving):
        def progress(self, **counters):
            if counters.get("env_steps") == ROLLOUT + 48:
                now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                control.write(Control(environ[contract.ENV_TOKEN], leave_by_ns=now_ns - 1))
            super().progress(**counters)

    assert left(Told(environ), monkeypatch, tmp_path) == (ROLLOUT + 48, EPOCHS * BATCHES)
