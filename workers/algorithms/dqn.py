"""Double DQN on many environments at once, to be read from top to bottom.

* Mnih et al. 2015: replay, target network, epsilon-greedy, clipped rewards, Huber loss.
* van Hasselt et al. 2016 (`use_double_dqn`): the online network chooses the action that the target network values.
* Wang et al. 2016 (`dueling`): the value of a state and the advantages of its actions, in two streams.
* n-step returns (Sutton 1988; Hessel et al. 2018).
* Stooke & Abbeel 2018 (rlpyt) for many environments and large batches: the *replay ratio*, the number of times that each
  transition is learned from, is fixed, and the number of updates follows from it. Adam's epsilon is 0.01 / batch.

    y = sum_{k<n} gamma^k r_{t+k} + gamma^n (1 - done) Q_target(s_{t+n}, argmax_a Q(s_{t+n}, a))

Conventions: one *vector step* is one action in each of the N environments, and N environment steps. All values that
change over time are functions of environment steps (`schedules.py`); counters and snapshots are in `learner.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from workers import learner as common
from workers import networks, optimizers, schedules
from workers.replay import NothingToSample, Replay
from workers.stopwatch import ACT, COPY, ENV, LEARN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision
    from workers.replay import Batch


class Learner(common.Learner):
    """The networks, their optimizer, and the replay. `train`, at the end, shows how they work together."""

    def __init__(self, args: Args, spec: Spec, precision: Precision, replay: Replay) -> None:
        super().__init__(args, spec, precision)
        self.replay = replay
        self.recovered = f"; replay: {replay.recovered}"
        head = networks.DUELING if args.dueling else networks.Q
        self.online, self.target = (networks.build(spec, args.network, head).to(precision.device) for _ in range(2))
        self.target.requires_grad_(requires_grad=False)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = optimizers.Adam(self.online.parameters(), args.lr, eps=0.01 / args.batch_size, fused=True)
        self.owed = 0.0  # updates, see schedules.owed_updates
        cuda = precision.device.type == "cuda"
        self._copied = [torch.cuda.Event(), torch.cuda.Event()] if cuda else []  # type: ignore[no-untyped-call]
        self.reserve()

    @classmethod
    def make(cls, args: Args, spec: Spec, precision: Precision, directory: Path | None, *, only_tests: bool = False) -> Self:
        size = (spec.stack + args.n_step + 2) * args.num_envs if only_tests else args.replay_size
        replay = Replay(
            size, args.num_envs, spec.frame_shape, stack=spec.stack, n_step=args.n_step, gamma=args.gamma,
            directory=directory, identity={"game": spec.game}, pin_memory=precision.device.type == "cuda",
        )  # fmt: skip
        return cls(args, spec, precision, replay)

    @staticmethod
    def settings_that_matter(args: Args) -> str:
        double = ("double Q, " if args.use_double_dqn else "") + ("dueling, " if args.dueling else "")
        return f"{double}replay ratio {args.replay_ratio:g}, {args.n_step}-step returns"

    @staticmethod
    def identity(args: Args) -> dict[str, Any]:
        return {"dueling": True} if args.dueling else {}  # only then: older checkpoints lack it

    def networks(self) -> tuple[tuple[str, nn.Module], ...]:
        return ("online", self.online), ("target", self.target)

    def describe(self) -> str:
        return f"epsilon {schedules.epsilon(self.args, self.env_steps):.3f}"

    # acting

    def act(self, step: Step) -> NDArray[np.int64]:
        """Epsilon-greedy actions for all environments."""
        count = self.args.num_envs
        exploring = self._explore.random(count) < schedules.epsilon(self.args, self.env_steps)
        actions = self._explore.integers(self.spec.actions, size=count)
        return actions if exploring.all() else np.where(exploring, actions, self.greedy(step))

    def greedy(self, step: Step) -> NDArray[np.int64]:
        return self.seen(step)

    def acting(self, frames: torch.Tensor) -> torch.Tensor:
        return self.online(frames).argmax(1)  # type: ignore[no-any-return]

    # learning

    def improve(self, after_update: Callable[[], object]) -> None:
        """Make the updates that are due after one more vector step; none before `learning_starts` steps are stored.

        The number of *stored* steps counts, not the step counter: a run that resumes with an empty replay refills it first.
        """
        args, replay = self.args, self.replay
        if len(replay) < min(args.learning_starts, replay.capacity):
            return
        self.owed = schedules.owed_updates(
            self.owed, replay_ratio=args.replay_ratio, num_envs=args.num_envs, batch_size=args.batch_size
        )
        self.set_learning_rate()
        while self.owed >= 1.0:
            self.watch.to(COPY)
            try:
                batch = self._sample()
            except NothingToSample:
                self.owed = min(self.owed, 1.0)  # without complete transitions: prevent a burst of updates later
                return
            self.watch.to(LEARN)
            self.update(**batch._asdict())
            self.owed -= 1.0
            after_update()

    def loss(
        self, obs: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor, next_obs: torch.Tensor,
        discounts: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The Huber loss between Q(s, a) and the n-step Double DQN target y."""
        with torch.no_grad(), self.precision.autocast():
            ahead = self.target.to_input(next_obs)
            next_q = self.target(ahead)
            chooser = self.online(ahead) if self.args.use_double_dqn else next_q
            del ahead  # four times the size of the frames: free it, because the gradients need the memory
            next_value = next_q.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
            y = returns + discounts * next_value.float()
        with self.precision.autocast():
            q = self.online(self.online.to_blocks(obs)).gather(1, actions.unsqueeze(1)).squeeze(1)
        self._estimates = q.detach()
        return F.huber_loss(q.float(), y)

    def _sample(self) -> Batch:
        """A batch on the device. The replay alternates between two pinned buffers: wait until the other one is copied."""
        batch = self.replay.sample(self.args.batch_size, self._draw)
        if not self._copied:
            return batch
        device = self.precision.device
        moved = type(batch)(*(part.to(device, non_blocking=True) for part in batch))
        self._copied.reverse()
        self._copied[0].record()
        self._copied[1].synchronize()  # wait for the previous copy: the next sample overwrites its buffer
        return moved

    # counters and snapshots

    def new_games(self) -> None:
        super().new_games()
        self.replay.rewind(self.replay.total)

    def count(self, step: Step) -> int:
        """Update the counters, and copy the online network to the target network when it is due."""
        before = super().count(step)
        if schedules.crossed(self.args.target_period, before, self.env_steps):
            self.target.load_state_dict(self.online.state_dict())
        return before

    def extra_state(self) -> dict[str, Any]:
        return {"owed": self.owed, "replay_total": self.replay.total}

    def restore_extra(self, state: Mapping[str, Any]) -> None:
        """Drop experience newer than the snapshot. Convert `owed` to the new batch: a smaller batch needs more updates."""
        self.owed = state["owed"] * state["batch_size"] / self.args.batch_size
        self.replay.rewind(state["replay_total"])

    def commit(self) -> None:
        self.replay.commit()

    def close(self) -> None:
        self.replay.close()

    # the loop

    def train(self, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], object]) -> None:
        """Act, and learn while the environments step."""
        now = envs.reset()
        self.new_games()
        turn = self.watch.to
        while boundary():
            turn(ACT)
            actions = self.act(now)
            turn(ENV)
            envs.send(actions)
            turn(LEARN)
            self.improve(after_update)
            turn(ENV)
            after = envs.recv()
            turn(COPY)
            self.replay.append(now.obs[:, -1], actions, after.rewards, after.terminated, after.truncated, now.starts)
            self.count(after)
            now = after
