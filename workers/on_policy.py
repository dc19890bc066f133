"""Common code of algorithms that learn from rollouts: the loop. Between two rollouts a checkpoint loses nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

import torch

from workers import learner as common
from workers.rollout import minibatches, refuse_too_large
from workers.stopwatch import ACT, COPY, ENV, LEARN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision
    from workers.rollout import Rollout


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
        for chosen in minibatches(self._draw, rows, self.args.batch_size):
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
