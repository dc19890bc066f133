"""Learners for the tests: Catch with settings that solve it in seconds, on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from workers import args as args_module
from workers import envs, precision
from workers.dqn import Learner
from workers.replay import Replay

if TYPE_CHECKING:
    from pathlib import Path

    from workers.args import Args

CATCH: dict[str, Any] = {
    "num_envs": 32, "batch_size": 64, "threads": 1, "replay_size": 20_000, "learning_starts": 1_000, "lr": 1e-3,
    "target_period": 500, "epsilon_steps": 10_000,
}  # fmt: skip


def settings(game: str = "Catch", **changes: Any) -> Args:
    return args_module.make(game, **{**CATCH, **changes})


def learner(args: Args, directory: Path | None = None, dtype: str = "fp32") -> Learner:
    torch.set_num_threads(1)
    spec = envs.spec_of(args.game, args.resolution)
    replay = Replay(
        args.replay_size, args.num_envs, spec.frame_shape, stack=spec.stack, n_step=args.n_step, gamma=args.gamma,
        directory=directory, identity={"game": args.game},
    )  # fmt: skip
    return Learner(args, spec, precision.choose("cpu", dtype), replay)


def games(made: Learner, attempt: int = 1) -> envs.Envs:
    args = made.args
    return envs.make(made.spec, envs.env_seeds(args.seed, attempt, made.env_steps, args.num_envs), threads=1)
