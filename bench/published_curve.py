"""Learning speed of PPO, compared with a published run of PPO with the same settings, from the first step on.

    python bench/published_curve.py [RoadRunner] [Breakout] [--steps 500000] [--seed 1] [--threads N] [--anew]

The published runs are SB3's trained agents (github.com/DLR-RM/rl-trained-agents, commit cd35bde610f4). They include the
score and the length of every training game, ppo/<game>NoFrameskip-v4_1/{0...7}.monitor.csv: RL Zoo's settings, one seed
per game, trained in March 2021 for 10 million steps. `PUBLISHED` is computed from those files: the mean score and the
number of the games that ended within each 25,000 steps (a step is four frames of one of the 8 environments; `l` counts
frames).

Our run has the same settings: 84x84, 8 environments x 128 steps, 4 epochs of minibatches of 256, learning rate 2.5e-4
falling to 0 at 10 million steps, entropy 0.01, gamma 0.99, lambda 0.95, no sticky actions, a life as an episode, clipped
rewards. The differences are: their clip of 0.1 also falls (to 0.095 at 500,000 steps), only ours clips the value loss, and
the emulator's version. Scores are those of whole games.

It prints a row after each 25,000 steps. It may be interrupted at any moment and then resumes from its last checkpoint under
bench/results/published_curve/, one every 6,144 steps; the games that were running are lost. `--anew` begins again.
The exit code is 1 if our gain is less than half of the published gain, both measured above the published first row and
summed over all later rows: two seeds may well differ by up to this much. Results also in
bench/results/published_curve.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from workers import algorithms, args, envs, precision
from workers.checkpoint import Checkpointer
from workers.contract import Client

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
ROW: Final = 25_000  # environment steps
SAVED_EVERY: Final = 6_144  # environment steps: six rollouts
SETTINGS: Final[dict[str, Any]] = {
    "algo": "ppo", "num_envs": 8, "n_steps": 128, "batch_size": 256, "epochs": 4, "lr": 2.5e-4, "lr_scheduler": "linear",
    "scheduler_tmax": 10_000_000, "gamma": 0.99, "gae_lambda": 0.95, "clip": 0.1, "ent_coef": 0.01, "vf_coef": 0.5,
    "max_grad_norm": 0.5, "resolution": 84,
}  # fmt: skip
PUBLISHED: Final[dict[str, list[tuple[float, int]]]] = {  # (mean score, games) of each ROW
    "RoadRunner": [
        (33.9, 124), (997.4, 39), (1516.7, 36), (1580.4, 51), (1780.0, 50), (2075.6, 45), (2024.3, 37), (2220.6, 34),
        (2414.3, 35), (2219.1, 47), (2109.8, 41), (2065.1, 43), (2221.4, 42), (2551.2, 41), (2161.5, 39), (2891.9, 37),
        (2675.0, 44), (1924.4, 41), (2651.4, 37), (2969.2, 39),
    ],
    "Breakout": [
        (1.5, 124), (2.1, 119), (2.5, 109), (3.2, 99), (5.2, 77), (5.7, 77), (8.3, 63), (9.1, 58), (9.1, 61), (9.7, 54),
        (11.5, 51), (10.9, 51), (13.4, 47), (12.8, 46), (13.5, 49), (13.1, 44), (12.9, 44), (14.3, 46), (15.1, 45),
        (14.0, 45),
    ],
}  # fmt: skip


class Recorded:
    """Environments that record every whole game: (environment steps at its end, score)."""

    def __init__(self, inner: envs.Envs, begun_at: int, games: list[tuple[int, float]]) -> None:
        self._inner, self._steps, self.games = inner, begun_at, games
        self._running = [0.0] * inner.num_envs
        self.send, self.reset = inner.send, inner.reset

    def recv(self) -> envs.Step:
        step = self._inner.recv()
        self._steps += self._inner.num_envs
        for env, (score, over) in enumerate(zip(step.scores.tolist(), step.game_over.tolist(), strict=True)):
            self._running[env] += score
            if over:
                self.games.append((self._steps, self._running[env]))
                self._running[env] = 0.0
        return step


def rows_of(games: list[tuple[int, float]], steps: int) -> list[dict[str, float | None]]:
    """Mean score and number of the games that ended within each complete ROW; None: none ended."""
    found: list[dict[str, float | None]] = []
    for end in range(ROW, steps + 1, ROW):
        scores = [score for at, score in games if end - ROW < at <= end]
        found.append({
            "steps": end, "mean": statistics.fmean(scores) if scores else None, "games": len(scores),
            "error": statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None,
        })  # fmt: skip
    return found


def share_of_gain(game: str, rows: list[dict[str, float | None]]) -> float | None:
    """Our gain over the rows, as a share of the published gain; both are measured above the published first row.

    Worked example: published 1, 3, 5 and ours 1, 2, 3: the gains are 6 and 3, so the share is 0.5. None: too few rows.
    """
    pairs = [
        (row["mean"], mean) for row, (mean, _) in zip(rows, PUBLISHED[game], strict=False) if row["mean"] is not None
    ][1:]  # fmt: skip
    base = PUBLISHED[game][0][0]
    published = sum(theirs - base for _, theirs in pairs)
    return sum(ours - base for ours, _ in pairs) / published if published > 0 else None


def format_row(game: str, row: dict[str, float | None], spent_s: float | None) -> str:
    number = int((row["steps"] or 0) // ROW) - 1
    theirs = f"{PUBLISHED[game][number][0]:9.1f}" if number < len(PUBLISHED[game]) else "        -"
    ours = "        -" if row["mean"] is None else f"{row['mean']:9.1f} +- {row['error'] or 0.0:5.1f}"
    spent = "      earlier" if spent_s is None else f"{spent_s:7.0f} CPU s"
    return f"{game:12s} {row['steps']:9,} steps {spent}  published {theirs}  ours {ours} ({row['games']} games)"


def curve(game: str, options: argparse.Namespace) -> list[dict[str, float | None]]:
    """Train until `--steps`, resuming where the last call ended, and print each row."""
    directory = RESULTS / "published_curve" / f"{game}-s{options.seed}"
    if options.anew:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    settings = args.make(game, seed=options.seed, threads=options.threads, **SETTINGS)
    spec = envs.spec_of(game, settings.resolution)
    made = algorithms.kind(settings.algo).make(settings, spec, precision.choose("cpu", "auto"), None)
    saver = Checkpointer(directory, Client({}), {"game": game})
    games: list[tuple[int, float]] = []
    spent_before_s, attempt = 0.0, 1
    loaded = saver.load_newest()
    if loaded is not None:
        made.restore(loaded.tensors, loaded.state)
        games = [(int(at), float(score)) for at, score in loaded.state["bench_games"]]
        spent_before_s, attempt = loaded.state["bench_cpu_s"], loaded.state["bench_attempt"] + 1
        print(f"{game} goes on at step {made.env_steps:,}", flush=True)
    pool = envs.make(spec, envs.env_seeds(options.seed, attempt, made.env_steps, settings.num_envs), settings.threads)
    played, begun_s = Recorded(pool, made.env_steps, games), time.process_time()
    seen = {"rows": len(rows_of(games, made.env_steps)), "saved": made.env_steps}
    for row in rows_of(games, made.env_steps):
        print(format_row(game, row, None), flush=True)

    def spent_s() -> float:
        return spent_before_s + time.process_time() - begun_s

    def save() -> None:
        tensors, state = made.snapshot()
        state |= {"bench_games": list(games), "bench_cpu_s": spent_s(), "bench_attempt": attempt}
        saver.save(made.env_steps, tensors, state, mean_return=made.mean_return, stall_s=0.0)
        if not saver.wait(600) or saver.failure is not None:
            raise SystemExit(f"{directory} could not be written: {saver.failure}")
        seen["saved"] = made.env_steps

    def boundary() -> bool:
        if made.env_steps // ROW > seen["rows"]:
            seen["rows"] += 1
            print(format_row(game, rows_of(games, made.env_steps)[-1], spent_s()), flush=True)
        if made.can_save_all() and made.env_steps >= min(seen["saved"] + SAVED_EVERY, options.steps):
            if made.env_steps > seen["saved"]:
                save()
            return made.env_steps < options.steps
        return True

    made.train(played, boundary, lambda: None)  # type: ignore[arg-type]
    pool.close()
    saver.close()
    return rows_of(games, made.env_steps)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("games", nargs="*", choices=list(PUBLISHED), default=[])
    parser.add_argument("--steps", type=int, default=ROW * len(PUBLISHED["Breakout"]))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--anew", action="store_true", help="forget what an earlier call has reached")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fine, out = True, RESULTS / "published_curve.json"
    found = json.loads(out.read_text()) if out.exists() else {}
    for game in options.games or list(PUBLISHED):
        rows = curve(game, options)
        share = share_of_gain(game, rows)
        found[f"{game}, seed {options.seed}"] = {"rows": rows, "published": PUBLISHED[game], "share_of_gain": share}
        out.write_text(json.dumps(found, indent=1) + "\n")
        if share is not None:
            fine = fine and share >= 0.5
            print(f"{game:12s} has gained {share:.2f} of what the published run has, over {len(rows)} rows", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
