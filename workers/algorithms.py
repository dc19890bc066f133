"""Which module trains what `algo` names. Each has a `Learner` and a `train(learner, envs, boundary, after_update)`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import torch

from workers import auto, dqn, ppo, pqn
from workers.checkpoint import newest_identity
from workers.contract import REPLAY_DIR
from workers.options import ON_POLICY
from workers.replay import STEP, Replay, available_memory_bytes
from workers.rollout import refuse_too_large, rollout_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workers.args import Args
    from workers.envs import Envs, Spec
    from workers.learner import Learner
    from workers.precision import Precision


def make(args: Args, spec: Spec, precision: Precision, directory: Path | None, *, only_tests: bool = False) -> Learner:
    """A new learner. `directory` is where a replay is kept (None: in memory); `only_tests`: it will learn no more.

    Raises ReplayError or RolloutTooLarge, in one sentence, when this box can't hold the experience.
    """
    if args.algo in ON_POLICY:
        if not only_tests:
            refuse_too_large(args.n_steps, args.num_envs, spec, precision.device)
        module = {"ppo": ppo, "pqn": pqn}[args.algo]
        made: Learner = module.Learner(args, spec, precision)
        return made
    size = (spec.stack + args.n_step + 2) * args.num_envs if only_tests else args.replay_size
    return dqn.Learner(args, spec, precision, _replay(args, spec, precision, directory, size))


def found(args: Args, spec: Spec, precision: Precision, run_dir: Path) -> auto.Found:
    """What `auto` chooses by: what each algorithm would take, what there is, and what the newest checkpoint is of."""
    replay_dir, frame_bytes = run_dir / REPLAY_DIR, spec.frame_shape[0] * spec.frame_shape[1]
    held = sum(path.stat().st_size for path in replay_dir.iterdir()) if replay_dir.is_dir() else 0
    place = next(path for path in (run_dir, *run_dir.parents) if path.is_dir())
    cuda = precision.device.type == "cuda"
    return auto.Found(
        checkpoint_algo=newest_identity(run_dir).get("algo"), num_envs=args.num_envs,
        replay_bytes=args.replay_size * (frame_bytes + STEP.itemsize),
        rollout_bytes=rollout_bytes(args.n_steps, args.num_envs, spec),
        disk_bytes=shutil.disk_usage(place).free + held, memory_bytes=available_memory_bytes(),
        gpu_bytes=torch.cuda.mem_get_info(precision.device)[0] if cuda else None,
    )  # fmt: skip


def train(learner: Learner, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], object]) -> None:
    """Until `boundary`, asked between any two vector steps, says stop; `after_update` is called after each update.

    What it answers, if anything true, tells an algorithm that learns from rollouts to learn no more from this one.
    """
    {"dqn": dqn, "ppo": ppo, "pqn": pqn}[learner.args.algo].train(learner, envs, boundary, after_update)


def _replay(args: Args, spec: Spec, precision: Precision, directory: Path | None, size: int) -> Replay:
    return Replay(
        size, args.num_envs, spec.frame_shape, stack=spec.stack, n_step=args.n_step, gamma=args.gamma,
        directory=directory, identity={"game": spec.game}, pin_memory=precision.device.type == "cuda",
    )  # fmt: skip
