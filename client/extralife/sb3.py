"""Stable-Baselines3: `model, run = extralife.sb3.load(PPO, make, total)`, then `extralife.sb3.learn(model, run)`.

Steps are those of all environments together (`num_timesteps`), as Stable-Baselines3 counts them.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from .run import init

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .run import Run

MODEL_FILE = "model.zip"
BUFFER_FILE = "replay_buffer.pkl"
NORMALIZE_FILE = "vecnormalize.pkl"


def load(
    algorithm: Any, make: Callable[[], Any], total: int, *, identity: Mapping[str, Any] | None = None, **given: Any
) -> tuple[Any, Run]:
    """(model, run): the model of the newest checkpoint, else a new one by `make()`, with its environment.

    The identity is the algorithm, the policy and the spaces; `identity` adds to it. `save_every_s` and `directory` are those
    of `init`. Hyperparameters come from the checkpoint, by `algorithm.load`, which unpickles: load only your own files.
    """
    run = init(total, **given)  # before the environments: their processes stay silent
    run.phase("building", 900.0)
    fresh = make()
    env = fresh.get_env()
    run.identity = {
        "algorithm": algorithm.__name__, "policy": type(fresh.policy).__name__, "observations": str(env.observation_space),
        "actions": str(env.action_space), **(identity or {}),
    }  # fmt: skip
    found = run.restore()
    if found is None:
        return fresh, run
    model = algorithm.load(str(found.path / MODEL_FILE), env=env, device=fresh.device)
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None and (found.path / NORMALIZE_FILE).exists():
        earlier = type(normalizer).load(str(found.path / NORMALIZE_FILE), normalizer.venv)
        normalizer.obs_rms, normalizer.ret_rms = earlier.obs_rms, earlier.ret_rms
    if (found.path / BUFFER_FILE).exists():
        _load_buffer(model, found.path / BUFFER_FILE)
    return model, run


def _load_buffer(model: Any, path: Path) -> None:
    """The replay buffer; an empty one if it is of another number of environments, because it cannot take their steps."""
    empty = model.replay_buffer
    model.load_replay_buffer(str(path))
    before = model.replay_buffer.n_envs
    if before != model.n_envs:
        model.replay_buffer = empty
        error = f"the replay buffer of {before} environments cannot serve {model.n_envs}: it begins empty"
        print(f"extralife: {error}", file=sys.stderr, flush=True)


def learn(model: Any, run: Run, callback: Any = None, **given: Any) -> None:
    """`model.learn` up to the run's total, with checkpoints; ends the process with the right code.

    `callback` is what `model.learn` takes. If it ends the training early, the training is saved and done.
    """
    left = (run.total or 0) - model.num_timesteps
    if left > 0 and not run.should_stop():
        mine = saver(run)
        first = model.num_timesteps == 0
        model.learn(left, callback=[mine, *_callbacks(callback)], reset_num_timesteps=first, **given)
    run.leave()


def _callbacks(given: Any) -> list[Any]:
    """All that `model.learn` takes as its callback, as a list: none, a function, a callback, or a list of callbacks."""
    from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback

    several = given if isinstance(given, list) else [] if given is None else [given]
    return [each if isinstance(each, BaseCallback) else ConvertCallback(each) for each in several]


def saver(run: Run, *, replay: bool = True) -> Any:
    """A callback that reports each step, saves when it is due and ends `learn` when asked to leave."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Saver(BaseCallback):  # type: ignore[misc, unused-ignore]
        """Saves between two rollouts, when the model is whole; at once when it leaves."""

        _updates = 0  # updates with a reported loss: each counts once

        def _on_training_start(self) -> None:
            run.num_envs(self.model.n_envs)
            self._report()

        def _on_rollout_start(self) -> None:
            if run.should_save():
                self._save()

        def _on_step(self) -> bool:
            self._report()
            if not run.should_stop():
                return True
            self._save()
            return False

        def _on_training_end(self) -> None:
            run.step(self.num_timesteps)
            if run.should_save() or not run.is_saved():  # the callback of an early stop has ended it
                self._save()

        def _report(self) -> None:
            games = self.model.ep_info_buffer
            mean = sum(game["r"] for game in games) / len(games) if games else math.nan
            updates = int(self.model._n_updates)
            loss = self.model.logger.name_to_value.get("train/loss") if updates != self._updates else None
            self._updates = self._updates if loss is None else updates
            run.step(self.num_timesteps, loss=loss, mean_return=mean, updates=updates)

        def _save(self) -> None:
            with run.checkpoint(self.num_timesteps) as directory:
                self.model.save(str(directory / MODEL_FILE))
                normalizer = self.model.get_vec_normalize_env()
                if normalizer is not None:
                    normalizer.save(str(directory / NORMALIZE_FILE))
                if replay and getattr(self.model, "replay_buffer", None) is not None:
                    self.model.save_replay_buffer(str(directory / BUFFER_FILE))

    return Saver()
