"""Memory leaks of training: the slope of its memory over minutes, over 20 tests, and over 20 restarts of its environments.

    python bench/leak.py [--minutes 30] [--tests 20] [--restarts 20] [--algo dqn] [--game Breakout] [--num-envs 16]

One process trains (42x42, the small network, a replay in memory that is filled before the clock starts), and its resident
memory is read once a second. Then its test games are played 20 times, as between two stretches of training, in environments
that are built once. Then its environments are closed and rebuilt 20 times, with a few steps each time. A slope is
printed with its 95 % confidence interval. Neighbouring readings depend on each other, so they are averaged in 20 blocks
first. A slope passes if its interval contains 0, or if its growth in a day is less than 1 % of the memory.

The second figure is the memory that the allocator has handed out and not got back, over all arenas (malloc_info(3)). A leak
shows in both figures; reusable gaps show only in the resident memory. The gaps grow in steps over about forty restarts,
until each arena has reached its maximum use. The exit code is 1 if any resident memory does not pass. Results also in
bench/results/leak.json.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads it when it is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from workers import algorithms, args, envs, precision
from workers.evaluate import EvaluationGames

ROOT = Path(__file__).resolve().parents[1]

BLOCKS = 20
T95 = {18: 2.101}  # Student's t for BLOCKS - 2 degrees of freedom
STEPS_OF_A_RESTART = 50
SETTLING_TESTS, SETTLING_RESTARTS = 20, 40
LIBC = ctypes.CDLL(None)
LIBC.open_memstream.restype = ctypes.c_void_p

RESIDENT, GIVEN_OUT = 1, 2


class Readings:
    """Rows of (time or count, resident bytes, bytes that the allocator has handed out).

    The memory is allocated at the beginning: a list would grow by 0.15 KiB per reading, which is most of a typical leak.
    """

    def __init__(self, most: int) -> None:
        self._rows = np.ones((most, 3))  # ones: zeros would get no physical memory before they are written
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def read(self, at: float) -> None:
        self._rows[self._count] = at, rss_bytes(), given_out_bytes()
        self._count += 1

    def of(self, place: int) -> list[tuple[float, float]]:
        """(time or count, bytes) of each reading; `place` is RESIDENT or GIVEN_OUT."""
        return [(row[0], row[place]) for row in self._rows[: self._count].tolist()]


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def given_out_bytes() -> int:
    """Size of all arenas and mappings of glibc's allocator, minus the free memory in them (malloc_info(3))."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(LIBC.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    LIBC.malloc_info(0, stream)
    LIBC.fclose(stream)
    report = ET.fromstring(ctypes.string_at(text, size.value))
    LIBC.free(text)
    totals = {part.get("type"): int(part.get("size", 0)) for part in [*report.findall("total"), *report.findall("system")]}
    return totals["current"] + totals["mmap"] - totals["fast"] - totals["rest"]


def slope(readings: list[tuple[float, float]]) -> tuple[float, float]:
    """(slope, half of its 95 % interval) by least squares through the means of 20 blocks.

    Worked example: readings that rise by 1 a second give (1.0, 0.0); equal readings give (0.0, 0.0).
    """
    size = len(readings) // BLOCKS
    if size == 0:
        raise SystemExit(f"{len(readings)} readings are too few: at least {BLOCKS} are needed")
    blocks = [readings[at * size : (at + 1) * size] for at in range(BLOCKS)]
    xs, ys = ([sum(row[place] for row in block) / size for block in blocks] for place in (0, 1))
    middle_x, middle_y = sum(xs) / BLOCKS, sum(ys) / BLOCKS
    spread = sum((x - middle_x) ** 2 for x in xs)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / spread
    left = sum((y - middle_y - rise * (x - middle_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return rise, T95[BLOCKS - 2] * math.sqrt(left / (BLOCKS - 2) / spread)


def trained(made: algorithms.Learner, games: envs.Envs, minutes: float) -> Readings:
    readings = Readings(int(minutes * 60) + 2)
    until_s, next_s = [math.inf], [0.0]
    begun_s = time.monotonic()

    def boundary() -> bool:
        now_s = time.monotonic()
        settled = now_s - begun_s >= min(60.0, minutes * 60 / 4) and made.updates >= 50
        if math.isinf(until_s[0]) and settled and (made.args.algo != "dqn" or len(made.replay) >= made.replay.capacity):
            until_s[0] = now_s + minutes * 60.0
            print(f"warm after {now_s - begun_s:.0f} s and {made.env_steps:,} steps", flush=True)
        if not math.isinf(until_s[0]) and now_s >= next_s[0]:
            next_s[0] = now_s + 1.0
            readings.read(now_s)
        return now_s < until_s[0]

    made.train(games, boundary, lambda: None)
    return readings


def restarted(made: algorithms.Learner, count: int) -> Readings:
    """Readings by number of the restart. The first restarts do not count: the allocator's arenas still grow to full size."""
    readings = Readings(count)
    for number in range(count + SETTLING_RESTARTS):
        games = envs.make(made.spec, envs.env_seeds(1, number + 2, made.env_steps, made.args.num_envs), made.args.threads)
        until = made.env_steps + STEPS_OF_A_RESTART * made.args.num_envs
        made.train(games, lambda until=until: made.env_steps < until, lambda: None)
        games.close()
        del games
        gc.collect()
        if number >= SETTLING_RESTARTS:
            readings.read(float(number))
    return readings


def tested(made: algorithms.Learner, count: int) -> Readings:
    """Readings by number of the test; the first tests do not count, as above. Games are cut after 100 steps."""
    readings = Readings(count)
    envs.MOST_GAME_FRAMES = 400  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as directory:
        before = rss_bytes()
        tests = EvaluationGames(made, Path(directory))
        for number in range(count + SETTLING_TESTS):
            made.env_steps += made.args.num_envs  # else it would be the same test again
            if tests.play(lambda: True) is None:
                raise SystemExit("a test was not played to its end")
            if number == 0:
                print(f"environments for tests and their first games: {(rss_bytes() - before) / 2**20:+.1f} MiB", flush=True)
            if number >= SETTLING_TESTS:
                readings.read(float(number))
        tests.close()
    return readings


def print_slopes(name: str, readings: Readings, a_day: float, unit: str) -> tuple[bool, dict[str, float]]:
    fine, body = _print_slope(name, readings.of(RESIDENT), a_day, unit)
    _, beside = _print_slope("  given out", readings.of(GIVEN_OUT), a_day, unit)
    return fine, {**body, **{f"given_out_{key}": value for key, value in beside.items()}, "readings": len(readings)}


def _print_slope(name: str, readings: list[tuple[float, float]], a_day: float, unit: str) -> tuple[bool, dict[str, float]]:
    rise, half = slope(readings)
    memory = readings[-1][1]
    daily = rise * a_day
    fine = abs(rise) <= half or abs(daily) < 0.01 * memory
    print(
        f"{name:36s} {rise / 1024:+10.3f} +- {half / 1024:.3f} KiB a {unit}, {daily / 2**20:+.1f} MiB a day, "
        f"of {memory / 2**20:.0f} MiB: {'passes' if fine else 'LEAKS'}",
        flush=True,
    )
    return fine, {"bytes_per_" + unit: rise, "half_interval": half, "memory_bytes": memory}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--algo", default="dqn", choices=["dqn", "ppo", "pqn"])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--num-envs", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = args.make(
        options.game, algo=options.algo, num_envs=options.num_envs, threads=1, resolution=42, batch_size=64, n_steps=32,
        replay_size=5_000, learning_starts=1_000, replay_ratio=1.0, num_test_episodes=options.num_envs,
    )  # fmt: skip
    spec = envs.spec_of(settings.game, settings.resolution)
    made = algorithms.kind(settings.algo).make(settings, spec, precision.choose("cpu", "auto"), None)
    games = envs.make(spec, envs.env_seeds(1, 1, 0, settings.num_envs), settings.threads)
    minutes = trained(made, games, options.minutes)
    games.close()
    trains, body = print_slopes(f"{options.minutes:g} minutes of {options.algo}", minutes, 86_400.0, "second")
    # Assumed: a test every quarter of an hour, as often as the restarts below.
    fine, tests = print_slopes(f"{options.tests} tests", tested(made, options.tests), 96.0, "test")
    fine = fine and trains
    # Assumed: a worker restarts every quarter of an hour, 96 times a day.
    name = f"{options.restarts} restarts of {options.num_envs} games"
    also, restarts = print_slopes(name, restarted(made, options.restarts), 96.0, "restart")
    out = ROOT / "bench" / "results" / "leak.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"training": body, "tests": tests, "restarts": restarts}, indent=1) + "\n")
    return 0 if fine and also else 1


if __name__ == "__main__":
    raise SystemExit(main())
