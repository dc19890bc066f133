"""Double DQN on many environments at once, to be read from top to bottom.

* Mnih et al. 2015: replay, target network, epsilon-greedy, clipped rewards, Huber loss.
* van Hasselt et al. 2016 (`use_double_dqn`): the online network chooses the action that the target network values.
* n-step returns (Sutton 1988; Hessel et al. 2018).
* Stooke & Abbeel 2018 (rlpyt) for many environments and large batches: what is fixed is the *replay ratio*, how often
  each transition is learned from; updates follow from it. Adam's epsilon is 0.01 / batch.

    y = sum_{k<n} gamma^k r_{t+k} + gamma^n (1 - done) Q_target(s_{t+n}, argmax_a Q(s_{t+n}, a))

Conventions: one *vector step* is one action in each of the N environments, and N environment steps. Everything that
changes over time is a function of environment steps (`schedules.py`), so a resumed run goes on where it stood.
`Learner.snapshot` is all that a resumed learner needs to be equal, bit for bit, to one that was never interrupted
(on the same machine, with the same number of threads, from a moment at which both begin with new environments).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from workers import networks, schedules
from workers.precision import only_if_finite
from workers.replay import NothingToSample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from workers.args import Args
    from workers.envs import Envs, Spec, Step
    from workers.precision import Precision
    from workers.replay import Batch, Replay

GAMES_AVERAGED: Final = 100  # the mean return is that of the last so many games


LOST_UPDATES: Final = 100  # in a row not finite: no bad batch, and no fp16 scale that is being found


class Diverged(Exception):
    """Losses or weights are not finite any more: nothing can be learned from here on."""


class Learner:
    """The networks, what trains them, and every counter. `train` below is how it is used."""

    def __init__(self, args: Args, spec: Spec, precision: Precision, replay: Replay) -> None:
        torch.manual_seed(args.seed)
        streams = np.random.SeedSequence(args.seed).spawn(2)
        self._explore, self._draw = (np.random.Generator(np.random.PCG64(stream)) for stream in streams)
        self.args, self.spec, self.precision, self.replay = args, spec, precision, replay
        self.online = networks.build(spec).to(precision.device)
        self.target = networks.build(spec).to(precision.device).requires_grad_(requires_grad=False)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), args.lr, eps=0.01 / args.batch_size, fused=True)
        self.scaler = precision.scaler()
        self.env_steps = self.updates = self.episodes = 0
        self.owed = 0.0  # updates, see schedules.owed_updates
        self.recent: deque[float] = deque(maxlen=GAMES_AVERAGED)
        self.best_mean_return: float | None = None
        self._running = np.zeros(args.num_envs)  # score of the game that each environment is in
        # On the device, and looked at seldom: reading them each time would make the CPU wait for the GPU.
        self._loss = torch.full((), math.nan, device=precision.device)
        self._not_finite = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._in_a_row = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._aside = {f"{part}.{name}": p.detach().clone() for part, net in self._networks()
                       for name, p in net.named_parameters()}  # fmt: skip
        self._aside |= {f"adam.{key}.{name}": p.detach().clone() for key in ("exp_avg", "exp_avg_sq")
                        for name, p in self.online.named_parameters()}  # fmt: skip
        cuda = precision.device.type == "cuda"
        self._copied = [torch.cuda.Event(), torch.cuda.Event()] if cuda else []  # type: ignore[no-untyped-call]

    # acting

    def act(self, step: Step) -> NDArray[np.int64]:
        """Epsilon-greedy actions for all environments."""
        count = self.args.num_envs
        exploring = self._explore.random(count) < schedules.epsilon(self.args, self.env_steps)
        actions = self._explore.integers(self.spec.actions, size=count)
        return actions if exploring.all() else np.where(exploring, actions, self.greedy(step))

    def greedy(self, step: Step) -> NDArray[np.int64]:
        obs = torch.from_numpy(step.obs).to(self.precision.device, non_blocking=True)
        with torch.no_grad(), self.precision.autocast():
            best: NDArray[np.int64] = self.online(obs).argmax(1).cpu().numpy()
        return best

    # learning

    def improve(self, after_update: Callable[[], None]) -> None:
        """The updates that one more vector step has made due; none before `learning_starts` steps are stored.

        By what is *stored*, not by the step counter: a run that comes back with an empty replay fills it first again.
        """
        args, replay = self.args, self.replay
        if len(replay) < min(args.learning_starts, replay.capacity):
            return
        self.owed = schedules.owed_updates(
            self.owed, replay_ratio=args.replay_ratio, num_envs=args.num_envs, batch_size=args.batch_size
        )
        for group in self.optimizer.param_groups:
            group["lr"] = schedules.learning_rate(args, self.env_steps)
        while self.owed >= 1.0:
            try:
                batch = self._sample()
            except NothingToSample:
                return
            self.update(batch)
            self.owed -= 1.0
            after_update()

    def update(self, batch: Batch) -> None:
        """One step of Adam on the Huber loss between Q(s, a) and the n-step Double DQN target y."""
        with torch.no_grad(), self.precision.autocast():
            next_q = self.target(batch.next_obs)
            chooser = self.online(batch.next_obs) if self.args.use_double_dqn else next_q
            next_value = next_q.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
            y = batch.returns + batch.discounts * next_value.float()
        with self.precision.autocast():
            q = self.online(batch.obs).gather(1, batch.actions.unsqueeze(1)).squeeze(1)
        loss = F.huber_loss(q.float(), y)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.online.parameters(), self.args.max_grad_norm or math.inf)
        bad = only_if_finite(self.optimizer, loss, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.updates += 1
        self._loss = loss.detach()
        self._not_finite += bad.long()
        self._in_a_row = (self._in_a_row + 1) * bad.long()

    def _sample(self) -> Batch:
        """A batch on the device. The replay's pinned buffers are used in turn: wait until this one has been copied."""
        batch = self.replay.sample(self.args.batch_size, self._draw)
        if not self._copied:
            return batch
        device = self.precision.device
        moved = type(batch)(
            *(getattr(batch, name).to(device, non_blocking=True)
              for name in ("obs", "actions", "returns", "next_obs", "discounts"))
        )  # fmt: skip
        self._copied.reverse()
        self._copied[0].record()
        self._copied[1].synchronize()  # the copy before this one: the next sample writes into its buffer
        return moved

    # counting

    def new_games(self) -> None:
        """All environments are new: what was running in the old ones is neither counted nor learned across the seam."""
        self._running[:] = 0.0
        self.replay.rewind(self.replay.total)

    def count(self, step: Step) -> None:
        """One vector step is done: counters, whole games, and a new target network when its time has come."""
        args, before = self.args, self.env_steps
        self.env_steps += args.num_envs
        self._running += step.scores
        if step.game_over.any():
            for env in np.flatnonzero(step.game_over):
                self.episodes += 1
                self.recent.append(float(self._running[env]))
            self._running[step.game_over] = 0.0
            if len(self.recent) == GAMES_AVERAGED:
                mean = sum(self.recent) / GAMES_AVERAGED
                best = self.best_mean_return
                self.best_mean_return = mean if best is None else max(mean, best)
        if schedules.crossed(args.target_period, before, self.env_steps):
            self.target.load_state_dict(self.online.state_dict())

    @property
    def mean_return(self) -> float | None:
        """Mean score of the last 100 whole games; None before the first."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    @property
    def frames(self) -> int:
        return self.env_steps * self.spec.frames_per_step

    def look(self) -> tuple[float, int]:
        """(last loss, updates that were not finite, so not applied). Waits for the device. Raises Diverged when lost."""
        loss, not_finite, in_a_row = self._loss.item(), int(self._not_finite.item()), int(self._in_a_row.item())
        at = f"diverged at step {self.env_steps}"
        if in_a_row >= LOST_UPDATES:
            raise Diverged(f"{at}: the last {in_a_row} updates were not finite (loss {loss:g}) and none was applied")
        if in_a_row and not all(p.isfinite().all() for p in self.online.parameters()):
            raise Diverged(f"{at}: after {self.updates} updates the weights are not finite")
        return loss, not_finite

    def suspect(self) -> bool:
        """Whether the newest update was not finite: no moment for a checkpoint. Waits for the device."""
        return bool(self._in_a_row.item())

    # keeping

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, JSON) of everything but the stored experience, which the replay keeps.

        The tensors are copies that the next snapshot writes over. New memory for each would take longer than the copying:
        27 MB are 6,600 page faults, 20 to 90 ms on a busy machine instead of 2 (measured).
        """
        tensors = {f"{part}.{name}": tensor for part, net in self._networks() for name, tensor in net.state_dict().items()}
        for name, parameter in self.online.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = value
        tensors["rng.torch"] = torch.get_rng_state()
        state = {
            "env_steps": self.env_steps, "updates": self.updates, "episodes": self.episodes, "owed": self.owed,
            "not_finite": int(self._not_finite.item()), "recent_returns": list(self.recent),
            "best_mean_return": self.best_mean_return, "batch_size": self.args.batch_size, "seed": self.args.seed,
            "replay_total": self.replay.total, "scaler": self.scaler.state_dict(),
            "rng": {"explore": self._explore.bit_generator.state, "draw": self._draw.bit_generator.state},
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
        """The inverse. Experience newer than the snapshot is dropped; settings (rates, batch) stay those of the config."""
        for part, net in self._networks():
            prefix = f"{part}."
            net.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
        for name, parameter in self.online.named_parameters():
            kept = {key: tensors.get(f"adam.{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
            self.optimizer.state[parameter] = {
                key: (torch.empty_like(parameter) if tensor.dim() else torch.empty_like(tensor, device=parameter.device))
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
        self.owed, self.best_mean_return = state["owed"], state["best_mean_return"]
        self.recent.extend(state["recent_returns"])
        self._not_finite.fill_(state["not_finite"])
        self.replay.rewind(state["replay_total"])

    def _networks(self) -> tuple[tuple[str, nn.Module], tuple[str, nn.Module]]:
        return ("online", self.online), ("target", self.target)


def train(learner: Learner, envs: Envs, boundary: Callable[[], bool], after_update: Callable[[], None]) -> None:
    """Act, and learn while the environments step, until `boundary`, asked between any two vector steps, says stop.

    `after_update` is called after each update, so that a slow one on a large batch still shows as progress.
    """
    now = envs.reset()
    learner.new_games()
    while boundary():
        actions = learner.act(now)
        envs.send(actions)
        learner.improve(after_update)
        after = envs.recv()
        learner.replay.append(now.obs[:, -1], actions, after.rewards, after.terminated, after.truncated, now.starts)
        learner.count(after)
        now = after
