"""Common code of algorithms that learn from rollouts: the rollout, and the loop.

Between two rollouts a checkpoint loses nothing.

A *rollout* is the last T vector steps of N environments, for algorithms that learn from them once and discard them.

Row t of environment n holds the observation o_t that was acted on, the action a_t, and its result: the reward r_t and
whether the game went on. Observations are stored as single frames (7 kB instead of 28 kB each at 84x84) and stacked on
reading, as in `replay.py`: T + stack frames an environment, on the learner's device. They are stored in the layout that
the network needs (`arrange`), because each is learned from several times.

**The fake step.** envpool resets on the call *after* a done: the row after a done shows the final observation, its action
is ignored and has no reward. The row is kept, because the value of a truncated game comes from its observation. But it is
not `real`: nothing is learned from it, and no sum includes it. (Learning from it is a known flaw of published envpool
scripts: it pushes the policy towards actions that did nothing.)
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from workers import learner as common
from workers.replay import available_memory_bytes
from workers.stopwatch import ACT, COPY, ENV, LEARN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision


class RolloutTooLarge(Exception):
    """The rollout does not fit into memory; the message is one sentence for the user."""


class Rollout:
    """Call `begin`, then `put` until it is `full`, then read it; then `begin` again with the newest observation."""

    def __init__(
        self, steps: int, num_envs: int, spec: Spec, device: torch.device, arrange: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self.steps, self.num_envs, self.spec, self.device = steps, num_envs, spec, device
        self._arrange = arrange
        self._shape = arrange(torch.zeros((1, 1, *spec.frame_shape), dtype=torch.uint8)).shape[2:]  # of a stored frame
        self._by_row = torch.zeros((steps + spec.stack, num_envs, *self._shape), dtype=torch.uint8, device=device)
        self._frames = self._by_row.view((steps + spec.stack) * num_envs, -1)
        self._age = np.zeros((steps + 1, num_envs), np.int64)  # frames since the game began, at most stack - 1
        self.actions = np.zeros((steps, num_envs), np.int64)
        self.rewards = np.zeros((steps, num_envs), np.float32)
        self.terminated = np.zeros((steps, num_envs), bool)
        self.done = np.zeros((steps, num_envs), bool)  # terminated or truncated
        self.real = np.ones((steps + 1, num_envs), bool)
        self.filled = 0

    @property
    def full(self) -> bool:
        return self.filled == self.steps

    def unlearned(self) -> str:
        """The part of the rollout that would be lost if the run ended now, as a clause; empty: nothing."""
        return f", except {self.filled * self.num_envs:,} steps of an unfinished rollout" if self.filled else ""

    def begin(self, now: Step) -> None:
        """Discard all rows; `now` is the first observation to act on."""
        self.filled = 0
        self._by_row[: self.spec.stack] = self._arranged(now.obs).transpose(0, 1)
        self._age[0] = self.spec.stack - 1  # the whole stack is stored, including repeated frames
        self.real[0] = _is_real(now)

    def put(self, actions: NDArray[np.int64], after: Step) -> None:
        """Add one vector step: `actions` on the newest observation led to `after`."""
        row = self.filled
        self.actions[row], self.rewards[row] = actions, after.rewards
        self.terminated[row], self.done[row] = after.terminated, after.terminated | after.truncated
        self._by_row[self.spec.stack + row] = self._arranged(after.obs[:, -1:]).squeeze(1)
        self._age[row + 1] = np.where(after.starts, 0, np.minimum(self._age[row] + 1, self.spec.stack - 1))
        self.real[row + 1] = _is_real(after)
        self.filled = row + 1

    def stacks(self) -> torch.Tensor:
        """int64 [(steps + 1) * N, stack]: the indexes of each observation's frames, for `observations`."""
        stack, count = self.spec.stack, self.num_envs
        rows = np.arange(self.steps + 1)[:, None, None] + stack - 1
        back = np.minimum(np.arange(stack - 1, -1, -1), self._age[:, :, None])
        cells = (rows - back) * count + np.arange(count)[None, :, None]
        return torch.from_numpy(cells.reshape(-1, stack)).to(self.device)

    def observations(self, stacks: torch.Tensor) -> torch.Tensor:
        """The observations for some rows of `stacks()`: uint8 [B, stack, ...], in the network's layout."""
        found = torch.index_select(self._frames, 0, stacks.reshape(-1))
        return found.view(len(stacks), self.spec.stack, *self._shape)

    def _arranged(self, frames: NDArray[np.uint8]) -> torch.Tensor:
        """[N, S, H, W] -> [N, S, ...] on the device. The frames are copied there unchanged: 7 kB each."""
        return self._arrange(torch.from_numpy(frames).to(self.device, non_blocking=True))

    def moved(self, array: NDArray[Any]) -> torch.Tensor:
        """An array with one item per row, flat, on the device."""
        return torch.from_numpy(np.ascontiguousarray(array.reshape(-1))).to(self.device)


def _is_real(now: Step) -> NDArray[np.bool_]:
    """Whether an action on this observation has an effect: not after a done until a new game has begun."""
    return ~(now.terminated | now.truncated) | now.starts


def rollout_bytes(steps: int, num_envs: int, spec: Spec) -> int:
    """Size of a rollout's frames on the device."""
    return (steps + spec.stack) * num_envs * spec.frame_shape[0] * spec.frame_shape[1]


def refuse_too_large(steps: int, num_envs: int, spec: Spec, device: torch.device) -> None:
    """Raise RolloutTooLarge if memory can't hold the rollout, before minutes are spent on building environments."""
    needed = rollout_bytes(steps, num_envs, spec)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory_bytes()
    if free is not None and needed > free:
        fits = max(1, int(steps * free / needed) // 2)
        raise RolloutTooLarge(
            f"a rollout of {num_envs} environments x {steps} steps needs {needed / 1e9:.2f} GB but {free / 1e9:.2f} GB are "
            f"free on {device}: set n_steps to {fits} or less"
        )


class Learner(common.Learner):
    """A learner that stores one rollout and no other experience."""

    rollout: Rollout

    @classmethod
    def make(cls, args: Args, spec: Spec, precision: Precision, directory: Path | None, *, only_tests: bool = False) -> Self:
        del directory  # there is no replay to keep
        if not only_tests:
            refuse_too_large(args.n_steps, args.num_envs, spec, precision.device)
        return cls(args, spec, precision)

    @staticmethod
    def settings_that_matter(args: Args) -> str:
        return f"rollouts of {args.n_steps} steps, {args.epochs} epochs"

    @abstractmethod
    def act(self, step: Step) -> NDArray[np.int64]:
        """The actions [N] of one vector step."""

    @abstractmethod
    def improve(self, last: Step, after_update: Callable[[], object]) -> None:
        """Learn from the rollout, which is now full; `last` is the observation after it."""

    def minibatches(self, columns: dict[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
        """Every row of `columns` once, in random order, `batch_size` at a time."""
        rows = self.args.n_steps * self.args.num_envs
        for chosen in self._draw.permutation(rows).reshape(-1, self.args.batch_size):
            picked = torch.from_numpy(chosen).to(self.precision.device)
            yield {name: column.index_select(0, picked) for name, column in columns.items()}

    def can_save_all(self) -> bool:
        return self.rollout.filled == 0

    def unlearned(self) -> str:
        return self.rollout.unlearned()

    def new_games(self) -> None:
        super().new_games()
        self.rollout.filled = 0

    def train(self, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], object]) -> None:
        """Act until the rollout is full, learn from it, begin the next one."""
        now = envs.reset()
        self.new_games()
        rollout, turn = self.rollout, self.watch.to
        while boundary():
            turn(COPY)
            if rollout.filled == 0:
                rollout.begin(now)
            turn(ACT)
            actions = self.act(now)
            turn(ENV)
            envs.send(actions)
            now = envs.recv()
            turn(COPY)
            rollout.put(actions, now)
            self.count(now)
            if rollout.full:
                turn(LEARN)
                self.improve(now, after_update)
                rollout.filled = 0
