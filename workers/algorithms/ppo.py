"""Proximal policy optimisation on many environments at once, to be read from top to bottom.

* Schulman et al. 2017: the clipped surrogate objective, several epochs of minibatches over each rollout.
* Schulman et al. 2016: generalised advantage estimation.
* Huang et al. 2022 ("The 37 implementation details of PPO"): orthogonal weights, advantages normalised in each
  minibatch, the clipped value loss, Adam's epsilon 1e-5; the defaults are those of their Atari setting.

    delta_t = r_t + gamma V(o_{t+1}) (1 - terminated_t) - V(o_t)
    A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1}
    L       = -min(rho A, clip(rho, 1 - c, 1 + c) A) + c_v L_value - c_e entropy,   rho = pi(a|o) / pi_old(a|o)

A truncated game is cut, not lost: the value of its last step comes from the final observation, which envpool shows in the
next row. That row is a fake step (`on_policy.py`) and takes no part in the loss or in the normalisation.

Conventions: a *rollout* is `n_steps` vector steps of all N environments; an *update* is one minibatch. A checkpoint in
the middle of a rollout would lose the rollout, so a save waits for its end. Leaving waits too, if there is enough time; if
not, the rollout is lost but its steps stay counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from workers import networks, on_policy, optimizers
from workers.acting import Actor
from workers.on_policy import Rollout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Spec, Step
    from workers.precision import Precision


class Learner(on_policy.Learner):
    """One network with two heads, the current rollout, and the optimizer."""

    def __init__(self, args: Args, spec: Spec, precision: Precision) -> None:
        super().__init__(args, spec, precision)
        self.policy = networks.build(spec, args.network, networks.POLICY).to(precision.device)
        self.optimizer = optimizers.Adam(self.policy.parameters(), args.lr, eps=1e-5, fused=True)
        self._actor = Actor(self.policy, precision, self.optimizer, plain=self._looked.wanted)
        self.rollout = Rollout(args.n_steps, args.num_envs, spec, precision.device, self.policy.to_blocks)
        self._log_probs = np.zeros((args.n_steps, args.num_envs), np.float32)
        self._values = np.zeros((args.n_steps + 1, args.num_envs), np.float32)
        self._statistics = torch.zeros(3, device=precision.device)  # of the newest update: entropy, KL, share clipped
        self._entropy = self._kl = self._clipped = float("nan")  # of the last rollout, for the log line
        self.reserve()

    def networks(self) -> tuple[tuple[str, nn.Module], ...]:
        return (("policy", self.policy),)

    def describe(self) -> str:
        return f"entropy {self._entropy:.3f}  kl {self._kl:.4f}  clipped {self._clipped:.2f}"

    # acting

    def act(self, step: Step) -> NDArray[np.int64]:
        """Actions drawn from the policy; their log-probabilities and the values are stored with the row."""
        logits, values = self._look_at(step)
        row = self.rollout.filled
        # Gumbel's trick: the argmax of log-probabilities plus this noise is a sample. It uses our own generator, so that a
        # resumed run draws the same actions as an uninterrupted one, on any device.
        noise = self._explore.gumbel(size=logits.shape).astype(np.float32)
        actions: NDArray[np.int64] = (logits + noise).argmax(1)
        self._log_probs[row] = np.take_along_axis(logits, actions[:, None], 1)[:, 0]
        self._values[row] = values
        return actions

    def greedy(self, step: Step) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self._look_at(step)[0].argmax(1)
        return best

    def _look_at(self, step: Step) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(log-probabilities [N, heads], values [N])."""
        both = self.seen(step)
        return both[:, :-1], both[:, -1]

    def acting(self, frames: torch.Tensor) -> torch.Tensor:
        logits, values = self._actor(frames)
        return torch.cat([logits.float().log_softmax(1), values.float().unsqueeze(1)], 1)

    # learning

    def improve(self, last: Step, after_update: Callable[[], object]) -> None:
        """Make `epochs` passes over the full rollout; `last` is the observation after it.

        If `after_update` returns a true value, learning stops: it is a request to leave, and a rollout can take minutes.
        """
        args, rollout = self.args, self.rollout
        self._values[-1] = self._look_at(last)[1]
        advantages = gae(
            rollout.rewards, self._values, rollout.terminated, rollout.done, gamma=args.gamma, lambda_=args.gae_lambda
        )
        rows = args.n_steps * args.num_envs
        data = {
            "stacks": rollout.stacks()[:rows], "actions": rollout.moved(rollout.actions),
            "log_probs": rollout.moved(self._log_probs), "values": rollout.moved(self._values[:-1]),
            "advantages": rollout.moved(advantages), "real": rollout.moved(rollout.real[:-1]).float(),
        }  # fmt: skip
        self.set_learning_rate()
        for _ in range(args.epochs):
            statistics, late = [], False
            for batch in self.minibatches(data):
                self.update(**batch)
                statistics.append(self._statistics.clone())
                if late := bool(after_update()):
                    break
            # Read the device once per epoch.
            self._entropy, self._kl, self._clipped = torch.stack(statistics).mean(0).tolist()
            if late or (args.target_kl and self._kl > args.target_kl):
                break

    def loss(
        self, stacks: torch.Tensor, actions: torch.Tensor, log_probs: torch.Tensor, values: torch.Tensor,
        advantages: torch.Tensor, real: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The clipped surrogate, the value's error and the entropy of one minibatch."""
        args, returns = self.args, values + advantages
        weight = real / real.sum().clamp(min=1.0)
        mean = (weight * advantages).sum()
        spread = (weight * (advantages - mean).square()).sum().sqrt()
        advantages = (advantages - mean) / (spread + 1e-8)
        with self.precision.autocast():
            logits, estimates = self.policy(self.rollout.observations(stacks))
        self._estimates = estimates.detach()
        log_all = logits.float().log_softmax(1)
        log_ratio = log_all.gather(1, actions.unsqueeze(1)).squeeze(1) - log_probs
        ratio = log_ratio.exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(1.0 - args.clip, 1.0 + args.clip) * advantages)
        entropy = -(log_all.exp() * log_all).sum(1)
        value_loss = self._value_loss(estimates.float(), values, returns)
        loss = (weight * (-surrogate + args.vf_coef * value_loss - args.ent_coef * entropy)).sum()
        with torch.no_grad():
            # Schulman's k3 estimator (joschu.net/blog/kl-approx.html): never negative, and of low variance.
            kl = ((ratio - 1.0) - log_ratio).detach()
            outside = ((ratio.detach() - 1.0).abs() > args.clip).float()
            self._statistics = torch.stack([(weight * part).sum() for part in (entropy.detach(), kl, outside)])
        self._policy_entropy = self._statistics[0]
        return loss  # type: ignore[no-any-return]

    def _value_loss(self, values: torch.Tensor, before: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        """Half the squared error of the value, or of the value clipped to a move of `clip`, whichever is larger."""
        kept = before + (values - before).clamp(-self.args.clip, self.args.clip)
        return 0.5 * torch.max((values - returns).square(), (kept - returns).square())


def gae(
    rewards: NDArray[np.float32], values: NDArray[np.float32], terminated: NDArray[np.bool_], done: NDArray[np.bool_],
    *, gamma: float, lambda_: float,
) -> NDArray[np.float32]:  # fmt: skip
    """Advantages [T, N]; the last row of `values` [T + 1, N] belongs to the observation after the last row.

    Worked example: one environment, gamma = lambda = 1, rewards 0, 0, 1, the third terminated, all values 0.5: the deltas
    are 0, 0, 0.5, so all three advantages are 0.5. If the third step is truncated with a final value of 0.5, its delta and
    every advantage are 1.0.
    """
    advantages = np.zeros_like(rewards)
    following = np.zeros_like(rewards[0])
    for row in reversed(range(len(rewards))):
        delta = rewards[row] + gamma * values[row + 1] * ~terminated[row] - values[row]
        following = delta + gamma * lambda_ * ~done[row] * following
        advantages[row] = following
    return advantages
