"""Rewards of play without learning in each game, and CPU cost of a step: to choose a game for learning tests.

    python bench/habits.py [Krull RoadRunner ...] [--steps 700] [--coins]

A game can prove learning only if no habit scores: a network whose weights never change, or change at random, repeats
almost always one action. So this prints the clipped rewards per thousand steps of one environment for random play, for each
single action forever (the best reward, and its action), and for the greedy play of freshly initialised networks (the best
of 8). Frames have 42x42 pixels, and a lost life ends a game. The last column is the CPU time of a thousand steps, for the
games alone. Results also in bench/results/habits.json.

`--coins` tests random habits: a coin toss between two actions at each step, and one action with 30 % random actions. Each
is tried in two environments. The best three are repeated in 32 environments, where the best 256 consecutive steps count,
as in bench/learning.py (8,192 steps of one environment): the best of many short tries is mostly luck.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from workers import envs, networks

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
RANDOM = 8  # environments with random actions
FEW_STEPS, MANY_STEPS, WINDOW = 300, 640, 256  # steps of each environment, for `--coins`
FRESH = 8  # networks, half of them with LayerNorm; one environment each
GAMES = """
    AirRaid Alien Amidar Assault Asterix Atlantis BankHeist BattleZone BeamRider Boxing Breakout Carnival Centipede
    ChopperCommand CrazyClimber DemonAttack Enduro FishingDerby Freeway Frostbite Galaxian Gopher Hero IceHockey Jamesbond
    Kaboom Kangaroo KeystoneKapers Krull KungFuMaster MsPacman NameThisGame Phoenix Pong Pooyan Qbert Riverraid RoadRunner
    Seaquest SpaceInvaders StarGunner Tennis TimePilot Tutankham UpNDown VideoPinball WizardOfWor
""".split()  # games with much early reward, by published results after 100,000 steps


def measure_play(game: str, steps: int) -> dict[str, float | int]:
    """Clipped rewards per thousand steps for each kind of play; all kinds run together in one set of environments."""
    spec = envs.spec_of(game, 42)
    count = spec.actions + RANDOM + FRESH
    games = envs.make(spec, envs.env_seeds(1, 1, 0, count), 1)
    torch.manual_seed(1)
    nets = [networks.build(spec, "small", normed=bool(number % 2)) for number in range(FRESH)]
    drawn, total = np.random.default_rng(1), np.zeros(count)
    actions = np.concatenate([np.arange(spec.actions), np.zeros(RANDOM + FRESH, int)])
    now, spent_s = games.reset(), 0.0
    for _ in range(steps):
        actions[spec.actions : -FRESH] = drawn.integers(spec.actions, size=RANDOM)
        with torch.no_grad():
            seen = torch.from_numpy(now.obs[-FRESH:])
            actions[-FRESH:] = [int(net(seen[i : i + 1]).argmax()) for i, net in enumerate(nets)]
        began_s = time.process_time()
        games.send(actions)
        now = games.recv()
        spent_s += time.process_time() - began_s
        total += now.rewards
    games.close()
    rate = total * 1_000.0 / steps
    constant = rate[: spec.actions]
    return {
        "actions": spec.actions, "random": rate[spec.actions : -FRESH].mean(), "constant": constant.max(),
        "which": int(constant.argmax()), "fresh": rate[-FRESH:].max(), "ms": 1_000.0 * spent_s / steps / count,
    }  # fmt: skip


def play_habits(game: str, habits: list[NDArray[np.float64]], each: int, steps: int, seed: int) -> NDArray[np.float64]:
    """Clipped rewards [steps, habits], summed over `each` environments per habit. A habit is a probability per action."""
    spec = envs.spec_of(game, 42)
    games = envs.make(spec, envs.env_seeds(seed, 1, 0, each * len(habits)), 1)
    drawn, rows = np.random.default_rng(seed), []
    up_to = np.repeat(np.cumsum(np.array(habits), axis=1), each, axis=0)
    games.reset()
    for _ in range(steps):
        draw = drawn.random((len(up_to), 1)) * (1.0 - 1e-9)
        games.send((draw > up_to[:, :-1]).sum(1))
        rows.append(games.recv().rewards.reshape(len(habits), each).sum(1))
    games.close()
    return np.array(rows, dtype=np.float64)


def coins(game: str) -> None:
    """Print the rewards of the best three random habits."""
    one = np.eye(envs.spec_of(game, 42).actions)
    named = {f"a coin between {a} and {b}": (one[a] + one[b]) / 2 for a, b in itertools.combinations(range(len(one)), 2)}
    named |= {f"{a}, three in ten at random": 0.7 * one[a] + 0.3 / len(one) for a in range(len(one))}
    names = list(named)
    first = play_habits(game, list(named.values()), 2, FEW_STEPS, 1).sum(0) * 1_000.0 / (2 * FEW_STEPS)
    best = [int(at) for at in np.argsort(-first)[:3]]
    rows = play_habits(game, [named[names[at]] for at in best], 32, MANY_STEPS, 2)
    for column, at in enumerate(best):
        windows = np.convolve(rows[:, column], np.ones(WINDOW), "valid") * 1_000.0 / (32 * WINDOW)
        print(
            f"{game:14s} {names[at]:30s} {first[at]:5.1f} in 2 environments; in 32 {windows.max():5.1f} at best, "
            f"{rows[:, column].mean() * 1_000.0 / 32:5.1f} over all {MANY_STEPS} steps",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("games", nargs="*", default=GAMES)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--coins", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.coins:
        for game in options.games:
            coins(game)
        return
    found = {}
    print(f"{'':14s} {'actions':>7s} {'random':>8s} {'best action':>16s} {'best network':>13s} {'CPU s':>7s}")
    for game in options.games:
        row = found[game] = measure_play(game, options.steps)
        print(
            f"{game:14s} {row['actions']:7d} {row['random']:8.1f} {row['constant']:10.1f} ({row['which']:3d}) "
            f"{row['fresh']:13.1f} {row['ms']:7.2f}",
            flush=True,
        )
    out = ROOT / "bench" / "results" / "habits.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"steps": options.steps, "games": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
