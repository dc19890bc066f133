"""The base class of all learners: the counters, and a snapshot for a bit-identical resume.

An algorithm is a module of `workers/algorithms` with a `Learner`, a subclass of this one, and a row of
`options.ALGORITHMS`. All values that change over time are functions of environment steps (`schedules.py`), so a resumed
run continues where it stopped. With `Learner.snapshot` a resumed learner equals, bit for bit, one that was never
interrupted (on the same machine, with the same number of threads, if both begin with new environments at that moment).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from workers import graphs, schedules, stopwatch
from workers.precision import only_if_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision

GAMES_AVERAGED: Final = 100  # the mean return is over this many last games
_MOMENTS: Final = ("step", "exp_avg", "exp_avg_sq")  # the state of Adam and RAdam for each parameter


LOST_UPDATES: Final = 100  # non-finite updates in a row: more than a bad batch or fp16's search for a loss scale explains


class Diverged(Exception):
    """Losses or weights are not finite any more: the learner cannot recover. Everything was finite at `last_finite_step`."""

    def __init__(self, message: str, last_finite_step: int) -> None:
        super().__init__(message)
        self.last_finite_step = last_finite_step


class Learner(ABC):
    """Networks, their optimizer, and every counter. The first of `networks()` is the one that acts and learns."""

    optimizer: torch.optim.Optimizer
    recovered = ""  # describes data that was recovered besides the checkpoint, for the log

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
        self.best_spread: float | None = None  # standard deviation of the 100 games with the best mean return
        self.best_mean_return: float | None = None
        self._running = np.zeros(args.num_envs)  # score so far of each environment's current game
        # These stay on the device and are read rarely: reading them each time would make the CPU wait for the GPU.
        self._loss = torch.full((), math.nan, device=precision.device)
        self._not_finite = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._in_a_row = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._seen_bad = 0  # non-finite updates at the last look
        self._last_finite_step = 0  # step of the last look without new non-finite updates
        # The newest update's batch, by reference: figures are computed only when they are read.
        self._grad_norm, self._policy_entropy = (torch.full((), math.nan, device=precision.device) for _ in range(2))
        self._estimates = torch.full((1,), math.nan, device=precision.device)
        self._aside: dict[str, torch.Tensor] = {}
        recorded = graphs.wanted(args, precision)
        self._graded, self._looked = (graphs.Graphed(precision, wanted=recorded) for _ in range(2))
        self.watch = stopwatch.timed_on(precision.device.type)

    def reserve(self) -> None:
        """Allocate the memory of the snapshots once the networks exist: the first save must not be slower than others."""
        for part, net in self.networks():
            self._aside |= {f"{part}.{name}": p.detach().clone() for name, p in net.named_parameters()}
        for key in ("exp_avg", "exp_avg_sq"):
            named = self.networks()[0][1].named_parameters()
            self._aside |= {f"adam.{key}.{name}": p.detach().clone() for name, p in named}

    # learning

    def set_learning_rate(self) -> None:
        """Set the rate of the next updates, by the training's progress."""
        for group in self.optimizer.param_groups:
            group["lr"] = schedules.learning_rate(self.args, self.env_steps)

    def update(self, **batch: torch.Tensor) -> None:
        """One step of the optimizer on a batch. If the loss or its gradient is not finite, it is skipped and counted."""
        self._loss, self._grad_norm = self._graded(self._gradients, **batch)
        bad = only_if_finite(self.optimizer, self._loss, self._grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.updates += 1
        self._not_finite += bad.long()
        self._in_a_row = (self._in_a_row + 1) * bad.long()

    def _gradients(self, **batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and the norm of its gradient, which is clipped afterwards."""
        loss = self.loss(**batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        parameters = self.networks()[0][1].parameters()
        norm = nn.utils.clip_grad_norm_(parameters, self.args.max_grad_norm or math.inf)
        return loss.detach(), norm.detach()

    def look(self) -> tuple[float, int]:
        """(last loss, number of non-finite, skipped updates). Waits for the device. Raises Diverged if training is lost."""
        loss, not_finite, in_a_row = self._loss.item(), int(self._not_finite.item()), int(self._in_a_row.item())
        if not_finite == self._seen_bad:
            self._last_finite_step = self.env_steps
        self._seen_bad = not_finite
        at = f"diverged at step {self.env_steps}"
        if in_a_row >= LOST_UPDATES:
            message = f"{at}: the last {in_a_row} updates were not finite (loss {loss:g}) and none was applied"
            raise Diverged(message, self._last_finite_step)
        if in_a_row and not all(p.isfinite().all() for p in self.networks()[0][1].parameters()):
            raise Diverged(f"{at}: after {self.updates} updates the weights are not finite", self._last_finite_step)
        return loss, not_finite

    def figures(self) -> dict[str, float]:
        """The figures of the newest update; NaN if unknown or not finite. Waits for the device once.

        `q_mean` and `q_max_abs` are of the network's value estimates for its batch: Q of the actions taken, or V (ppo).
        `entropy` is the policy's entropy in nats, and `entropy_share` its share of the maximum, ln(actions); only ppo has
        them. `grad_norm` is the norm before clipping.
        """
        values = self._estimates.float()
        figures = torch.stack(
            [self._loss.float(), values.mean(), values.abs().max(), self._policy_entropy, self._grad_norm.float()]
        )
        names = ("loss", "q_mean", "q_max_abs", "entropy", "grad_norm")
        found = {name: x if math.isfinite(x) else math.nan for name, x in zip(names, figures.tolist(), strict=True)}
        most = math.log(self.spec.actions) if self.spec.actions > 1 else math.nan
        return {**found, "entropy_share": found["entropy"] / most}

    @property
    def value_bound(self) -> float:
        """The largest possible |Q| or |V|, with rewards clipped to [-1, 1]: 1 / (1 - gamma); NaN: no bound is known.

        Example: gamma 0.99: 100.
        """
        return 1.0 / (1.0 - self.args.gamma) if self.args.gamma < 1.0 else math.nan

    def last_update_not_finite(self) -> bool:
        """Whether the newest update was not finite: then no checkpoint may be saved. Waits for the device."""
        return bool(self._in_a_row.item())

    def require_finite(self) -> None:
        """Call it before the last checkpoint. Raises Diverged when the newest update was not finite."""
        if self.last_update_not_finite():
            raise Diverged(f"diverged at step {self.env_steps}: the newest updates were not finite", self._last_finite_step)

    def seen(self, step: Step) -> NDArray[Any]:
        """`acting` on the newest observations."""
        found: NDArray[Any] = self._looked(self._look, obs=torch.from_numpy(step.obs)).cpu().numpy()
        return found

    @torch.no_grad()
    def _look(self, obs: torch.Tensor) -> torch.Tensor:
        with self.precision.autocast():
            return self.acting(self.networks()[0][1].to_blocks(obs))  # type: ignore[operator]  # every network of ours has it

    # for each algorithm to implement

    @classmethod
    @abstractmethod
    def make(
        cls, args: Args, spec: Spec, precision: Precision, directory: Path | None, *, only_tests: bool = False
    ) -> Learner:
        """A new learner. `directory` holds a replay (None: in memory); `only_tests`: the learner will not learn any more.

        Raises ReplayError or RolloutTooLarge, in one sentence, when this box can't hold the experience.
        """

    @staticmethod
    @abstractmethod
    def settings_that_matter(args: Args) -> str:
        """The algorithm's own settings for the first printed line."""

    @staticmethod
    def identity(args: Args) -> dict[str, Any]:  # noqa: ARG004  most have nothing more
        """More settings that must match between a checkpoint and the run that resumes from it."""
        return {}

    @abstractmethod
    def train(self, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], object]) -> None:
        """Act and learn until `boundary`, called between any two vector steps, returns False.

        `after_update` is called after each update. If it returns a true value, an algorithm that learns from rollouts
        stops learning from the current one.
        """

    @abstractmethod
    def networks(self) -> tuple[tuple[str, nn.Module], ...]:
        """(name in the checkpoint, network) of each network."""

    @abstractmethod
    def loss(self, *args: Any, **batch: Any) -> torch.Tensor:
        """The loss of a batch, under autocast where the networks compute. It waits for nothing (`graphs.py`)."""

    @abstractmethod
    def acting(self, frames: torch.Tensor) -> torch.Tensor:
        """What choosing actions needs to know of observations, one row each; `frames` are the output of `to_blocks`."""

    @abstractmethod
    def greedy(self, step: Step) -> NDArray[np.int64]:
        """The actions with the highest estimates: test games use them."""

    @abstractmethod
    def describe(self) -> str:
        """The algorithm's own figures for the printed line."""

    def extra_state(self) -> dict[str, Any]:
        """More state that a resumed learner needs; JSON."""
        return {}

    def restore_extra(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing more
        """Restore the result of `extra_state`."""

    def can_save_all(self) -> bool:
        """Whether a checkpoint now would lose no experience."""
        return True

    def unlearned(self) -> str:
        """The experience that a checkpoint now would lose, for the log; empty: none."""
        return ""

    def commit(self) -> None:  # noqa: B027  most keep nothing beside it
        """Called while a checkpoint is being written: commit the data stored beside it, such as a replay."""

    def close(self) -> None:  # noqa: B027  the same
        """Called when the last checkpoint is written: commit and close the data stored beside it."""

    # counting

    def count(self, step: Step) -> int:
        """Count one vector step and the games that end in it. Returns the environment steps before it."""
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
        """All environments are new: unfinished games of the old ones do not count, and no transition joins old and new."""
        self._running[:] = 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean score of the last 100 whole games; None before the first."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    @property
    def frames(self) -> int:
        return self.env_steps * self.spec.frames_per_step

    # snapshots

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, JSON) of everything but stored experience, which a replay keeps.

        The tensors are copies that the next snapshot overwrites. New memory for each snapshot would take longer than the
        copying: 27 MB are 6,600 page faults, 20 to 90 ms on a busy machine instead of 2 (measured).
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
            # Copy on this thread alone: torch's own copy waits for all of its threads. That takes 3 times as long on a busy
            # machine (measured), and is hardly faster on a quiet one.
            np.copyto(copy.numpy(), tensor.numpy())
            return copy
        return copy.copy_(tensor)

    def restore(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Restore a snapshot; settings (rates, batch) still come from the config."""
        for part, net in self.networks():
            prefix = f"{part}."
            net.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
        # Only a fused optimizer reads its step counters on the device: any other would wait for the GPU 70 times an update.
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
        if state.get("seed", self.args.seed) == self.args.seed:  # else the new seed must give other random numbers
            torch.set_rng_state(tensors["rng.torch"])
            for stream, name in ((self._explore, "explore"), (self._draw, "draw")):
                stream.bit_generator.state = state["rng"][name]
        self.scaler.load_state_dict(state["scaler"])
        self.env_steps, self.updates, self.episodes = state["env_steps"], state["updates"], state["episodes"]
        self.best_mean_return = state["best_mean_return"]
        # Older checkpoints lack these fields.
        self.first_mean_return, self.best_spread = state.get("first_mean_return"), state.get("best_spread")
        self.trained_s = state.get("trained_s", 0.0)
        self.recent.extend(state["recent_returns"])
        self._not_finite.fill_(state["not_finite"])
        self._seen_bad, self._last_finite_step = state["not_finite"], self.env_steps
        self.restore_extra(state)
