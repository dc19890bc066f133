"""All values that change during a training, as plain functions of environment steps.

Nothing here has state. A schedule that counts its own calls starts again after a resume (exploration back at 1, the
learning rate back at its maximum: the most common resume bugs). A function of the checkpoint's step counter cannot.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.args import Args


def epsilon(args: Args, env_steps: int) -> float:
    """Exploration: linear from 1 to `epsilon_final` in `epsilon_steps`. At half of them: (1 + final) / 2."""
    done = min(1.0, env_steps / args.epsilon_steps)
    return 1.0 + done * (args.epsilon_final - 1.0)


def learning_rate(args: Args, env_steps: int) -> float:
    """Constant; a line or a half cosine from `lr` to `min_lr` in `scheduler_tmax`, then flat; `step_lr_gamma` per step size.

    torch's CosineAnnealingLR rises again after T_max; nobody wants a rate that is back at its maximum after a week of
    training.
    """
    if args.lr_scheduler == "linear":
        return args.lr + (args.min_lr - args.lr) * min(1.0, env_steps / args.scheduler_tmax)
    if args.lr_scheduler == "cosine":
        done = min(1.0, env_steps / args.scheduler_tmax)
        return args.min_lr + (args.lr - args.min_lr) * 0.5 * (1.0 + math.cos(math.pi * done))
    if args.lr_scheduler == "step":
        return args.lr * math.pow(args.step_lr_gamma, env_steps // args.step_lr_step_size)
    return args.lr


def crossed(period: int, before: int, after: int) -> bool:
    """Whether a multiple of `period` lies in (before, after]: 7,990 -> 8,022 crosses 8,000."""
    return before // period != after // period


def owed_updates(owed: float, *, replay_ratio: float, num_envs: int, batch_size: int) -> float:
    """The number of updates that are due after one more vector step; whole ones are to be made now.

    Each vector step adds num_envs transitions. Each is to be learned from replay_ratio times, batch_size at a time.
    32 environments and a batch of 512 at ratio 8 need half an update per step: one update every second step.
    """
    return owed + replay_ratio * num_envs / batch_size
