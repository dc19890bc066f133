"""How fast each algorithm learns a real Atari game on small frames, and what a broken one reaches in its place.

    python bench/learning.py [ppo] [pqn] [dqn] [--game Breakout] [--steps 300000] [--seeds 1 2 3]
                             [--broken none lr shuffled sign] [--threads N]

42x42 pixels, the small network, 32 environments. A row for each eighth of the run: the mean return of the last 100 games,
and rewards, clipped to their sign, a thousand steps. A threshold for a test has to lie above all that the broken ones
reach, on every seed: `lr` takes no step, `shuffled` deals each step's rewards out to other environments, `sign` punishes
what it should praise. In many games a habit scores, so rewards rise there whatever is learned (one seed each, other
settings than below): Road Runner (40,000 steps of DQN: 13.8 a thousand steps, with shuffled rewards 14.2, random play
0.3), Tutankham (28,000 steps of PQN: 11, with a learning rate of 0 the same), Up'n Down. In Breakout a habit is worth
little: a network that learns nothing has reached a mean return of 2.2.
Results also in bench/results/learning.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from workers import algorithms, args, envs, precision

ROOT = Path(__file__).resolve().parents[1]
PARTS = 8
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 32, "batch_size": 256, "epochs": 4, "lr": 1e-3},
    "pqn": {"n_steps": 32, "batch_size": 128, "epochs": 3, "lr": 1e-3, "gamma": 0.98, "q_lambda": 0.9,
            "epsilon_steps": 40_000},
    "dqn": {"batch_size": 64, "replay_ratio": 2.0, "learning_starts": 2_000, "lr": 5e-4, "target_period": 1_000,
            "epsilon_steps": 30_000, "replay_size": 50_000},
}  # fmt: skip
BROKEN: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    "none": lambda _, rewards: rewards,
    "lr": lambda _, rewards: rewards,
    "shuffled": lambda drawn, rewards: drawn.permutation(rewards),
    "sign": lambda _, rewards: -rewards,
}


class Told:
    """Environments whose true rewards are added up; what the learner is told of them may be something else."""

    def __init__(self, inner: envs.Envs, change: Callable[[np.random.Generator, Any], Any]) -> None:
        self._inner, self._change, self._drawn, self.total = inner, change, np.random.default_rng(1), 0.0
        self.send, self.reset = inner.send, inner.reset

    def recv(self) -> envs.Step:
        step = self._inner.recv()
        self.total += float(step.rewards.sum())
        return dataclasses.replace(step, rewards=self._change(self._drawn, step.rewards))


def curve(options: argparse.Namespace, algo: str, seed: int, broken: str) -> list[dict[str, float | None]]:
    more = {"lr": 0.0} if broken == "lr" else {}
    settings = args.make(
        options.game, algo=algo, seed=seed, resolution=42, num_envs=32, threads=options.threads, **SETTINGS[algo] | more
    )
    spec = envs.spec_of(settings.game, settings.resolution)
    made = algorithms.make(settings, spec, precision.choose("cpu", "fp32"), None)
    games = envs.make(spec, envs.env_seeds(seed, 1, 0, settings.num_envs), settings.threads)
    told = Told(games, BROKEN[broken])
    rows: list[dict[str, float | None]] = []
    before = [0, 0.0]
    used_s = time.process_time()

    def boundary() -> bool:
        if made.env_steps >= options.steps * (len(rows) + 1) // PARTS:
            rate = 1_000.0 * (told.total - before[1]) / (made.env_steps - before[0])
            before[:] = made.env_steps, told.total
            spent_s = time.process_time() - used_s
            rows.append({"steps": made.env_steps, "return": made.mean_return, "rewards": rate, "cpu_s": spent_s})
            mean = "-" if made.mean_return is None else f"{made.mean_return:.2f}"
            print(
                f"{algo} seed {seed} broken: {broken:9s} {made.env_steps:9,} steps {spent_s:6.0f} CPU s  games "
                f"{made.episodes:5d}  mean return {mean:>8s}  rewards a thousand steps {rate:7.2f}",
                flush=True,
            )
        return made.env_steps < options.steps

    algorithms.train(made, told, boundary, lambda: None)  # type: ignore[arg-type]
    games.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithms", nargs="*", choices=list(SETTINGS), default=[])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--broken", nargs="+", choices=list(BROKEN), default=["none"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
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
