"""What play that learns nothing earns in each game, and what a step of it costs: where a learning test has a chance.

    python bench/habits.py [Krull RoadRunner ...] [--steps 700] [--coins]

A game is a proof of learning only where no habit scores: a network whose weights never move, or move at random, ends as
one action for ever, or nearly so. So, as clipped rewards a thousand steps of one environment: play at random, each action
for ever (the best one, and which), and the greedy play of freshly initialised networks (the best of 8), 42x42 pixels, lives
as games. The last column is CPU time a thousand steps, the games alone. Results also in bench/results/habits.json.

`--coins`: what a coin thrown between two actions earns at each step, the best habit with chance in it. All pairs are tried
in two environments each, and the best four then in 32: the best of many short tries is mostly luck.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from workers import envs, networks

ROOT = Path(__file__).resolve().parents[1]
RANDOM = 8  # environments with random actions
FEW_STEPS, WINDOW_STEPS = 300, 256  # of each environment; the second makes 8,192 steps, bench/learning.py's window
FRESH = 8  # networks, half of them with LayerNorm, an environment each
GAMES = """
    AirRaid Alien Amidar Assault Asterix Atlantis BankHeist BattleZone BeamRider Boxing Breakout Carnival Centipede
    ChopperCommand CrazyClimber DemonAttack Enduro FishingDerby Freeway Frostbite Galaxian Gopher Hero IceHockey Jamesbond
    Kaboom Kangaroo KeystoneKapers Krull KungFuMaster MsPacman NameThisGame Phoenix Pong Pooyan Qbert Riverraid RoadRunner
    Seaquest SpaceInvaders StarGunner Tennis TimePilot Tutankham UpNDown VideoPinball WizardOfWor
""".split()  # rich in early reward, by what is published after 100,000 steps


def earned(game: str, steps: int) -> dict[str, float | int]:
    """Clipped rewards a thousand steps of each kind of play, all side by side in one set of environments."""
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


def thrown(game: str, pairs: list[tuple[int, int]], each: int, steps: int, seed: int) -> list[float]:
    """Clipped rewards a thousand steps of a coin between the two actions of each pair, over `each` environments."""
    spec = envs.spec_of(game, 42)
    games = envs.make(spec, envs.env_seeds(seed, 1, 0, each * len(pairs)), 1)
    drawn, of_env, total = np.random.default_rng(seed), np.repeat(np.array(pairs), each, axis=0), np.zeros(each * len(pairs))
    games.reset()
    for _ in range(steps):
        games.send(of_env[np.arange(len(of_env)), drawn.integers(2, size=len(of_env))])
        total += games.recv().rewards
    games.close()
    return [float(rate) for rate in 1_000.0 * total.reshape(len(pairs), each).mean(1) / steps]


def coins(game: str) -> None:
    """Says the best four coins of all."""
    pairs = list(itertools.combinations(range(envs.spec_of(game, 42).actions), 2))
    first = dict(zip(pairs, thrown(game, pairs, 2, FEW_STEPS, 1), strict=True))
    best = sorted(pairs, key=lambda pair: -first[pair])[:4]
    for pair, rate in zip(best, thrown(game, best, 32, WINDOW_STEPS, 2), strict=True):
        print(
            f"{game:14s} actions {pair}: {first[pair]:5.1f} in 2 environments over {FEW_STEPS} steps, "
            f"{rate:5.1f} in 32 over {WINDOW_STEPS}",
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
        row = found[game] = earned(game, options.steps)
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
