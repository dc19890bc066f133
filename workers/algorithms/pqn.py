"""Parallelised Q-learning, to be read from top to bottom: no replay, no target network, lambda returns, LayerNorm.

Gallici et al. 2024 ("Simplifying deep temporal difference learning"): with a normalised network, online Q-learning from
many environments at once is stable, so only the last rollout has to be stored. Therefore it suits a box that reboots: a
checkpoint is 20 MB, and there is no replay to refill.

    R_t = r_t + gamma [lambda R_{t+1} + (1 - lambda) max_a Q(o_{t+1}, a)]        the game goes on
    R_t = r_t + gamma max_a Q(o_{t+1}, a)                                        truncated: valued by the final observation
    R_t = r_t                                                                    terminated
    L   = (Q(o_t, a_t) - R_t)^2 / 2

It uses RAdam, LayerNorm over the channels of every layer, and exploration that falls over environment steps. The rollout,
its fake steps and the loop come from `on_policy.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from workers import networks, on_policy, optimizers, schedules
from workers.acting import Actor
from workers.on_policy import Rollout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Spec, Step
    from workers.precision import Precision


class Learner(on_policy.Learner):
    """One Q network, the current rollout, and the optimizer."""

    def __init__(self, args: Args, spec: Spec, precision: Precision) -> None:
        super().__init__(args, spec, precision)
        self.online = networks.build(spec, args.network, normed=True).to(precision.device)
        self.optimizer = optimizers.RAdam(self.online.parameters(), args.lr, foreach=True)
        self._actor = Actor(self.online, precision, self.optimizer, plain=self._looked.wanted)
        self.rollout = Rollout(args.n_steps, args.num_envs, spec, precision.device, self.online.to_blocks)
        self._best = np.zeros((args.n_steps + 1, args.num_envs), np.float32)  # max_a Q of each observation
        self.reserve()

    def networks(self) -> tuple[tuple[str, nn.Module], ...]:
        return (("online", self.online),)

    def describe(self) -> str:
        return f"epsilon {schedules.epsilon(self.args, self.env_steps):.3f}  Q {self._best.mean():.3f}"

    # acting

    def act(self, step: Step) -> NDArray[np.int64]:
        """Epsilon-greedy actions; the estimated value of the best action is stored with the row."""
        best, worth = self._look_at(step)
        self._best[self.rollout.filled] = worth
        exploring = self._explore.random(len(best)) < schedules.epsilon(self.args, self.env_steps)
        return np.where(exploring, self._explore.integers(self.spec.actions, size=len(best)), best)

    def greedy(self, step: Step) -> NDArray[np.int64]:
        return self._look_at(step)[0]

    def _look_at(self, step: Step) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(best actions [N], their values [N])."""
        values = self.seen(step)
        return values.argmax(1), values.max(1)

    def acting(self, frames: torch.Tensor) -> torch.Tensor:
        return self._actor(frames).float()  # type: ignore[no-any-return]

    # learning

    def improve(self, last: Step, after_update: Callable[[], object]) -> None:
        """Make `epochs` passes over the full rollout; `last` is the observation after it."""
        args, rollout = self.args, self.rollout
        self._best[-1] = self._look_at(last)[1]
        returns = lambda_returns(
            rollout.rewards, self._best, rollout.terminated, rollout.done, gamma=args.gamma, lambda_=args.q_lambda
        )
        rows = args.n_steps * args.num_envs
        data = {
            "stacks": rollout.stacks()[:rows], "actions": rollout.moved(rollout.actions),
            "returns": rollout.moved(returns), "real": rollout.moved(rollout.real[:-1]).float(),
        }  # fmt: skip
        self.set_learning_rate()
        for _ in range(args.epochs):
            for batch in self.minibatches(data):
                self.update(**batch)
                if after_update():
                    return

    def loss(self, stacks: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Half the mean squared error of one minibatch."""
        with self.precision.autocast():
            q = self.online(self.rollout.observations(stacks))
        q = q.float().gather(1, actions.unsqueeze(1)).squeeze(1)
        self._estimates = q.detach()
        return 0.5 * (real * (q - returns).square()).sum() / real.sum().clamp(min=1.0)  # type: ignore[no-any-return]


def lambda_returns(
    rewards: NDArray[np.float32], best: NDArray[np.float32], terminated: NDArray[np.bool_], done: NDArray[np.bool_], *,
    gamma: float, lambda_: float,
) -> NDArray[np.float32]:  # fmt: skip
    """Returns [T, N]; `best` [T + 1, N] is max_a Q of each observation, including the one after the last row.

    Worked example: one environment, gamma = 1, lambda = 0.5, rewards 0, 1, best 0.2, 0.4, 0.6, nothing done:
    R_1 = 1 + 0.6 = 1.6, R_0 = 0 + (0.5 * 1.6 + 0.5 * 0.4) = 1.0.
    """
    returns = np.zeros_like(rewards)
    following = best[-1]  # the rollout ends here: the last row's return is a one-step bootstrap
    for row in reversed(range(len(rewards))):
        ahead = np.where(done[row], best[row + 1], lambda_ * following + (1.0 - lambda_) * best[row + 1])
        following = rewards[row] + gamma * ahead * ~terminated[row]
        returns[row] = following
    return returns
