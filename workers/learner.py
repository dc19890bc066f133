"""What every algorithm's learner has in common: the counters, and a snapshot from which it goes on to the bit.

An algorithm is a module of `workers/algorithms` with a `Learner`, a subclass of this one, and a row of
`options.ALGORITHMS`.
Everything that changes over time is a function of environment steps (`schedules.py`), so a resumed run goes on where it
stood. `Learner.snapshot` is all that a resumed learner needs to be equal, bit for bit, to one that was never interrupted
(on the same machine, with the same number of threads, from a moment at which both begin with new environments).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from workers import schedules, stopwatch
from workers.precision import only_if_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision

GAMES_AVERAGED: Final = 100  # the mean return is over this many last games
_MOMENTS: Final = ("step", "exp_avg", "exp_avg_sq")  # what Adam and RAdam keep of each parameter


LOST_UPDATES: Final = 100  # in a row not finite: no bad batch, and no fp16 scale that is being found


class Diverged(Exception):
    """Losses or weights are not finite any more: nothing can be learned from here on. All was well at `fine_step`."""

    def __init__(self, message: str, fine_step: int) -> None:
        super().__init__(message)
        self.fine_step = fine_step


class Learner(ABC):
    """Networks, what trains them, and every counter. The first of `networks()` is the one that acts and learns."""

    optimizer: torch.optim.Optimizer
    recovered = ""  # what came back beside the checkpoint, for the log

    def __init__(self, args: Args, spec: Spec, precision: Precision) -> None:
        torch.manual_seed(args.seed)
        streams = np.random.SeedSequence(args.seed).spawn(2)
        self._explore, self._draw = (np.random.Generator(np.random.PCG64(stream)) for stream in streams)
        self.args, self.spec, self.precision = args, spec, precision
        self.scaler = precision.scaler()
        self.env_steps = self.updates = self.episodes = 0
        self.trained_s = 0.0  # wall clock in the training loop, over all attempts; counted by the loop
        self.recent: deque[float] = deque(maxlen=GAMES_AVERAGED)
        self.first_mean_return: float | None = None
        self.best_spread: float | None = None  # standard deviation of the games of the best mean return
        self.best_mean_return: float | None = None
        self._running = np.zeros(args.num_envs)  # score of the game that each environment is in
        # On the device, and looked at seldom: reading them each time would make the CPU wait for the GPU.
        self._loss = torch.full((), math.nan, device=precision.device)
        self._not_finite = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._in_a_row = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._seen_bad = self._fine_step = 0  # at the last look, and at the last one before which nothing was bad
        # The newest update's batch, by reference: figures are computed only when they are read.
        self._grad_norm, self._policy_entropy = (torch.full((), math.nan, device=precision.device) for _ in range(2))
        self._estimates = torch.full((1,), math.nan, device=precision.device)
        self._aside: dict[str, torch.Tensor] = {}
        self.watch = stopwatch.timed_on(precision.device.type)

    def reserve(self) -> None:
        """Memory for the snapshots, as soon as the networks are there: the first save must not be slower than the rest."""
        for part, net in self.networks():
            self._aside |= {f"{part}.{name}": p.detach().clone() for name, p in net.named_parameters()}
        for key in ("exp_avg", "exp_avg_sq"):
            named = self.networks()[0][1].named_parameters()
            self._aside |= {f"adam.{key}.{name}": p.detach().clone() for name, p in named}

    # learning

    def set_learning_rate(self) -> None:
        """The rate of the next updates, by how far the training is."""
        for group in self.optimizer.param_groups:
            group["lr"] = schedules.learning_rate(self.args, self.env_steps)

    def descend(self, loss: torch.Tensor) -> None:
        """One step of the optimizer; none where the loss or its gradient is not finite, and that is counted."""
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        parameters = self.networks()[0][1].parameters()
        norm = nn.utils.clip_grad_norm_(parameters, self.args.max_grad_norm or math.inf)
        bad = only_if_finite(self.optimizer, loss, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.updates += 1
        self._loss, self._grad_norm = loss.detach(), norm.detach()
        self._not_finite += bad.long()
        self._in_a_row = (self._in_a_row + 1) * bad.long()

    def look(self) -> tuple[float, int]:
        """(last loss, updates that were not finite, so not applied). Waits for the device. Raises Diverged when lost."""
        loss, not_finite, in_a_row = self._loss.item(), int(self._not_finite.item()), int(self._in_a_row.item())
        if not_finite == self._seen_bad:
            self._fine_step = self.env_steps
        self._seen_bad = not_finite
        at = f"diverged at step {self.env_steps}"
        if in_a_row >= LOST_UPDATES:
            told = f"{at}: the last {in_a_row} updates were not finite (loss {loss:g}) and none was applied"
            raise Diverged(told, self._fine_step)
        if in_a_row and not all(p.isfinite().all() for p in self.networks()[0][1].parameters()):
            raise Diverged(f"{at}: after {self.updates} updates the weights are not finite", self._fine_step)
        return loss, not_finite

    def figures(self) -> dict[str, float]:
        """The newest update in numbers, NaN where one is not known or not finite. Waits for the device, once.

        `q_mean` and `q_max_abs` are of what the network thought its batch to be worth: Q of the actions taken, or V (ppo).
        `entropy` is the policy's in nats and `entropy_share` its share of the most it can be, ln(actions): ppo alone has
        one. `grad_norm` is that before clipping.
        """
        values = self._estimates.float()
        told = torch.stack(
            [self._loss.float(), values.mean(), values.abs().max(), self._policy_entropy, self._grad_norm.float()]
        )
        names = ("loss", "q_mean", "q_max_abs", "entropy", "grad_norm")
        found = {name: x if math.isfinite(x) else math.nan for name, x in zip(names, told.tolist(), strict=True)}
        most = math.log(self.spec.actions) if self.spec.actions > 1 else math.nan
        return {**found, "entropy_share": found["entropy"] / most}

    @property
    def value_bound(self) -> float:
        """The most that |Q| or |V| can truly be, with rewards clipped to [-1, 1]: 1 / (1 - gamma); NaN: no bound is known.

        Example: gamma 0.99: 100.
        """
        return 1.0 / (1.0 - self.args.gamma) if self.args.gamma < 1.0 else math.nan

    def suspect(self) -> bool:
        """Whether the newest update was not finite: no moment for a checkpoint. Waits for the device."""
        return bool(self._in_a_row.item())

    def must_be_fine(self) -> None:
        """Before a last checkpoint: raises Diverged when the newest update was not finite."""
        if self.suspect():
            raise Diverged(f"diverged at step {self.env_steps}: the newest updates were not finite", self._fine_step)

    # what an algorithm brings

    @classmethod
    @abstractmethod
    def make(
        cls, args: Args, spec: Spec, precision: Precision, directory: Path | None, *, only_tests: bool = False
    ) -> Learner:
        """A new learner. `directory` is where a replay is kept (None: in memory); `only_tests`: it will learn no more.

        Raises ReplayError or RolloutTooLarge, in one sentence, when this box can't hold the experience.
        """

    @staticmethod
    @abstractmethod
    def settings_that_matter(args: Args) -> str:
        """What the first printed line says beyond what all algorithms have."""

    @staticmethod
    def identity(args: Args) -> dict[str, Any]:  # noqa: ARG004  most have nothing more
        """More settings that must match between a checkpoint and the run that resumes from it."""
        return {}

    @abstractmethod
    def train(self, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], object]) -> None:
        """Act and learn until `boundary`, asked between any two vector steps, says stop.

        `after_update` is called after each update. What it answers, if anything true, tells an algorithm that learns from
        rollouts to learn no more from this one.
        """

    @abstractmethod
    def networks(self) -> tuple[tuple[str, nn.Module], ...]:
        """(name in the checkpoint, network)."""

    @abstractmethod
    def greedy(self, step: Step) -> NDArray[np.int64]:
        """The actions that it thinks best: what a test game is played with."""

    @abstractmethod
    def describe(self) -> str:
        """What the printed line says beyond what all algorithms have."""

    def extra_state(self) -> dict[str, Any]:
        """More that a resumed learner needs; JSON."""
        return {}

    def restore_extra(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing more
        """The inverse."""

    def at_rest(self) -> bool:
        """Whether a checkpoint now would lose nothing that was computed and not yet learned from."""
        return True

    def unlearned(self) -> str:
        """What a checkpoint now would forget, for the log; empty: nothing."""
        return ""

    def commit(self) -> None:  # noqa: B027  most keep nothing beside it
        """A checkpoint is being written: whatever is kept beside it may follow."""

    def close(self) -> None:  # noqa: B027  the same
        """The last checkpoint is written."""

    # counting

    def count(self, step: Step) -> int:
        """One vector step is done: counters and whole games. Returns the environment steps before it."""
        before = self.env_steps
        self.env_steps += self.args.num_envs
        self._running += step.scores
        if step.game_over.any():
            for env in np.flatnonzero(step.game_over):
                self.episodes += 1
                self.recent.append(float(self._running[env]))
            self._running[step.game_over] = 0.0
            if len(self.recent) == GAMES_AVERAGED:
                mean = sum(self.recent) / GAMES_AVERAGED
                best = self.best_mean_return
                if best is None:
                    self.first_mean_return = mean
                if best is None or mean > best:
                    self.best_mean_return, self.best_spread = mean, float(np.std(self.recent))
        return before

    def new_games(self) -> None:
        """All environments are new: what was running in the old ones is neither counted nor learned across the seam."""
        self._running[:] = 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean score of the last 100 whole games; None before the first."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    @property
    def frames(self) -> int:
        return self.env_steps * self.spec.frames_per_step

    # keeping

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, JSON) of everything but stored experience, which a replay keeps.

        The tensors are copies that the next snapshot writes over. New memory for each would take longer than the copying:
        27 MB are 6,600 page faults, 20 to 90 ms on a busy machine instead of 2 (measured).
        """
        tensors = {f"{part}.{name}": tensor for part, net in self.networks() for name, tensor in net.state_dict().items()}
        for name, parameter in self.networks()[0][1].named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = value
        tensors["rng.torch"] = torch.get_rng_state()
        state = {
            "env_steps": self.env_steps, "updates": self.updates, "episodes": self.episodes,
            "not_finite": int(self._not_finite.item()), "recent_returns": list(self.recent),
            "best_mean_return": self.best_mean_return, "first_mean_return": self.first_mean_return,
            "best_spread": self.best_spread,
            "trained_s": self.trained_s, "batch_size": self.args.batch_size, "seed": self.args.seed,
            "scaler": self.scaler.state_dict(),
            "rng": {"explore": self._explore.bit_generator.state, "draw": self._draw.bit_generator.state},
            **self.extra_state(),
        }  # fmt: skip
        return {name: self._copied_aside(name, tensor.detach()) for name, tensor in tensors.items()}, state

    def _copied_aside(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name not in self._aside:
            self._aside[name] = tensor.clone()
        copy = self._aside[name]
        if tensor.device.type == "cpu":
            # On this thread alone: torch's own copy waits for all of its threads, which on a busy machine takes 3 times as
            # long (measured), and is hardly faster on a quiet one.
            np.copyto(copy.numpy(), tensor.numpy())
            return copy
        return copy.copy_(tensor)

    def restore(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """The inverse; settings (rates, batch) stay those of the config."""
        for part, net in self.networks():
            prefix = f"{part}."
            net.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
        # Only a fused optimizer reads its count of steps on the device: another would wait for a GPU 70 times an update.
        counts_on = self.precision.device if self.optimizer.defaults.get("fused") else torch.device("cpu")
        for name, parameter in self.networks()[0][1].named_parameters():
            kept = {key: tensors.get(f"adam.{key}.{name}") for key in _MOMENTS}
            self.optimizer.state[parameter] = {
                key: (torch.empty_like(parameter) if tensor.dim() else torch.empty_like(tensor, device=counts_on))
                .copy_(tensor).detach()
                for key, tensor in kept.items() if tensor is not None
            }  # fmt: skip
            if not self.optimizer.state[parameter]:
                del self.optimizer.state[parameter]
        if state.get("seed", self.args.seed) == self.args.seed:  # else other chance is wanted: that of the new seed
            torch.set_rng_state(tensors["rng.torch"])
            for stream, name in ((self._explore, "explore"), (self._draw, "draw")):
                stream.bit_generator.state = state["rng"][name]
        self.scaler.load_state_dict(state["scaler"])
        self.env_steps, self.updates, self.episodes = state["env_steps"], state["updates"], state["episodes"]
        self.best_mean_return = state["best_mean_return"]
        # A checkpoint from before they were kept has none.
        self.first_mean_return, self.best_spread = state.get("first_mean_return"), state.get("best_spread")
        self.trained_s = state.get("trained_s", 0.0)
        self.recent.extend(state["recent_returns"])
        self._not_finite.fill_(state["not_finite"])
        self._seen_bad, self._fine_step = state["not_finite"], self.env_steps
        self.restore_extra(state)
