"""Learning speed of each algorithm on a real Atari game, compared with deliberately broken learners.

    python bench/learning.py [ppo] [pqn] [dqn] [--game CrazyClimber] [--steps 24576] [--seeds 1 2 3]
                             [--broken none lr shuffled sign blind] [--threads N] [--set gamma=0.95]

42x42 pixels, the small network, 32 environments. It prints a row for each 4,096 steps: the rewards, clipped to their sign,
per thousand steps of one environment, and the best rate of any 8,192 consecutive steps so far. The threshold of a test must
be above the results of all broken learners, on every seed:

* `lr` has a learning rate of 0;
* `shuffled` puts each reward into a pool of 2,048 and draws another one from it (if rewards were only exchanged among the
  environments of one step, they would still show what most environments did);
* `sign` inverts the rewards;
* `blind` shows black frames, so that only habits can be learned.

`bench/habits.py` selected Crazy Climber. There any single action forever earns nothing, because the climber's arms must
move up and down in turn. Random play earns 28. The best random habit, a coin toss between two actions, earns 49 in the
best 8,192 steps of 20,480 (`--coins`). In other games a habit earns more than a learner in its first minutes. In Road
Runner always moving left earns 14 per thousand steps; DQN reached the same in 40,000 steps, even with shuffled rewards. In
Breakout a network that learns nothing has reached a mean return of 2.2. Results also in bench/results/learning.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from workers import algorithms, args, envs, precision

ROOT = Path(__file__).resolve().parents[1]
ROW = 4_096  # environment steps
WINDOW = 8_192  # environment steps whose rewards are averaged; thresholds refer to this average
DEALT = 2_048  # rewards in the pool of `shuffled`
GAME = "CrazyClimber"
COMMON: dict[str, Any] = {"num_envs": 32, "resolution": 42}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 32, "batch_size": 256, "epochs": 4, "lr": 1e-3, "gamma": 0.97, "clip": 0.2},
    "pqn": {"n_steps": 32, "batch_size": 64, "epochs": 4, "lr": 1e-3, "gamma": 0.95, "q_lambda": 0.9,
            "epsilon_steps": 14_000, "epsilon_final": 0.2},
    "dqn": {"batch_size": 64, "replay_ratio": 6.0, "learning_starts": 2_000, "lr": 5e-4, "target_period": 1_000,
            "gamma": 0.98, "n_step": 8, "epsilon_steps": 14_000, "epsilon_final": 0.2, "replay_size": 50_000},
}  # fmt: skip
BROKEN = ("none", "lr", "shuffled", "sign", "blind")


class CountingEnvs:
    """Environments that count the true rewards, while the learner may get changed rewards or frames."""

    def __init__(self, inner: envs.Envs, broken: str) -> None:
        self._inner, self._broken, self._drawn = inner, broken, np.random.default_rng(1)
        self._recent: deque[float] = deque(maxlen=WINDOW // inner.num_envs)
        self._dealt = np.zeros(DEALT, np.float32)
        self.send = inner.send
        self.best = 0.0  # the highest rate of any window so far

    @property
    def rate(self) -> float:
        """Clipped rewards per thousand steps over the last WINDOW steps; 0 before that many steps."""
        full = len(self._recent) == self._recent.maxlen
        return 1_000.0 * sum(self._recent) / WINDOW if full else 0.0

    def reset(self) -> envs.Step:
        return self._shown(self._inner.reset())

    def recv(self) -> envs.Step:
        step = self._inner.recv()
        self._recent.append(float(step.rewards.sum()))
        self.best = max(self.best, self.rate)
        if self._broken == "shuffled":
            at = self._drawn.permutation(len(self._dealt))[: len(step.rewards)]
            dealt = self._dealt[at]
            self._dealt[at] = step.rewards
            step = dataclasses.replace(step, rewards=dealt)
        if self._broken == "sign":
            step = dataclasses.replace(step, rewards=-step.rewards)
        return self._shown(step)

    def _shown(self, step: envs.Step) -> envs.Step:
        return dataclasses.replace(step, obs=np.zeros_like(step.obs)) if self._broken == "blind" else step


def made_for(
    game: str, algo: str, seed: int, broken: str, threads: int, **changes: Any
) -> tuple[algorithms.Learner, CountingEnvs, envs.Envs]:
    """(learner, environments for its `train`, the underlying environments, to be closed)."""
    chosen = COMMON | SETTINGS[algo] | ({"lr": 0.0} if broken == "lr" else {}) | changes
    settings = args.make(game, algo=algo, seed=seed, threads=threads, **chosen)
    spec = envs.spec_of(settings.game, settings.resolution)
    made = algorithms.kind(settings.algo).make(settings, spec, precision.choose("cpu", "fp32"), None)
    games = envs.make(spec, envs.env_seeds(seed, 1, 0, settings.num_envs), settings.threads)
    return made, CountingEnvs(games, broken), games


def curve(options: argparse.Namespace, algo: str, seed: int, broken: str) -> list[dict[str, float]]:
    changes = dict(options.set)
    made, tracked, games = made_for(options.game, algo, seed, broken, options.threads, **changes)
    rows: list[dict[str, float]] = []
    used_s = time.process_time()

    def boundary() -> bool:
        if made.env_steps >= ROW * (len(rows) + 1):
            spent_s = time.process_time() - used_s
            rows.append({"steps": made.env_steps, "rewards": tracked.rate, "best": tracked.best, "cpu_s": spent_s})
            print(
                f"{algo} seed {seed} broken: {broken:9s} {made.env_steps:9,} steps {spent_s:6.0f} CPU s  "
                f"rewards a thousand steps {tracked.rate:6.1f}  best {tracked.best:6.1f}",
                flush=True,
            )
        return made.env_steps < options.steps

    made.train(tracked, boundary, lambda: None)  # type: ignore[arg-type]
    games.close()
    return rows


def setting(text: str) -> tuple[str, int | float | str]:
    """Parse `gamma=0.95`: an option that replaces the one in SETTINGS."""
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithms", nargs="*", choices=list(SETTINGS), default=[])
    parser.add_argument("--game", default=GAME)
    parser.add_argument("--steps", type=int, default=24_576)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--broken", nargs="+", choices=BROKEN, default=["none"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=VALUE", help="another setting")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {
        f"{algo}, seed {seed}, broken: {broken}": curve(options, algo, seed, broken)
        for broken in options.broken
        for seed in options.seeds
        for algo in options.algorithms or SETTINGS
    }
    out = ROOT / "bench" / "results" / "learning.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"game": options.game, "curves": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
