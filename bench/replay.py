"""Sampling speed of the replay, compared with a naive gather. Run: python bench/replay.py [directory] [--transitions N]

84x84 frames, stacks of 4, 3-step returns, batch 512. The naive peer does what most implementations do: it stores the whole
observation and the next one of each transition, and gathers a batch of both with numpy's fancy indexing. It handles no
episode ends, sums no returns, and needs four times the memory. "The same bytes, copied in one piece" is an upper bound for
any sampling: eight frames a transition, read in order from a random position of the ring, written into the same buffer.
All are timed in turn, in one process. A second ring has rows of two widths, as after changes of level. It also measures
bytes per transition and the cost of a commit; see also `bench/checkpoint_stall.py`.
Prints tables and writes bench/results/replay.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from workers.replay import FRAMES_FILE, Replay

BATCH, ROUNDS, PER_ROUND = 512, 12, 10
TARGET_PER_S, TARGET_BYTES, TARGET_COMMIT_MS = 300_000, 7_100, 10.0
COMMIT_FRAMES = 10_000


def filled(directory: Path, size: int, widths: tuple[int, ...]) -> Replay:
    """A full ring, opened and filled once for each of these numbers of environments, as by successive processes."""
    rng, memory = np.random.default_rng(0), None
    for width in widths:
        if memory is not None:
            memory.close()
        memory = Replay(size, width, directory=directory, stack=4, n_step=3, gamma=0.99)
        append(memory, size // len(widths), rng)
    assert memory is not None
    return memory


def append(memory: Replay, frames: int, rng: np.random.Generator) -> None:
    width = memory.num_envs
    pixels, off = rng.integers(0, 256, (width, 84, 84), dtype=np.uint8), np.zeros(width, bool)
    over = off
    for _ in range(frames // width):
        starts, over = over, rng.random(width) < 0.002
        memory.append(pixels, rng.integers(0, 6, width), rng.random(width), over, off, starts)


def naive(size: int) -> Callable[[], Any]:
    """The naive peer: two arrays of whole observations. They hold fewer transitions in the same memory, which favours it."""
    rng = np.random.default_rng(0)
    obs, following = (np.zeros((size // 8, 4, 84, 84), np.uint8) for _ in range(2))
    for index in range(len(obs)):
        obs[index] = following[index] = index % 251
    rest = np.zeros((len(obs), 3), np.float32)

    def sample() -> Any:
        picked = rng.integers(len(obs), size=BATCH)
        return obs[picked], following[picked], rest[picked]

    return sample


def copied(frames: Path) -> Callable[[], Any]:
    """Copy the bytes of a batch without any lookup: the speed of the memory itself."""
    rng, ring = np.random.default_rng(0), torch.from_numpy(np.memmap(frames, np.uint8, "r+"))
    into = torch.empty(BATCH * 2 * 4 * 84 * 84, dtype=torch.uint8)

    def sample() -> Any:
        start = int(rng.integers(len(ring) - len(into)))
        return into.copy_(ring[start : start + len(into)])

    return sample


def rates(peers: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """Transitions a second of each, by wall and by CPU time; the median of rounds in turn."""
    wall: dict[str, list[float]] = {name: [] for name in peers}
    cpu: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        for name, sample in peers.items():
            sample()
            begun, begun_cpu = time.perf_counter(), time.process_time()
            for _ in range(PER_ROUND):
                sample()
            wall[name].append(BATCH * PER_ROUND / (time.perf_counter() - begun))
            cpu[name].append(BATCH * PER_ROUND / (time.process_time() - begun_cpu))
    return {
        name: {"per_s": statistics.median(wall[name]), "best_per_s": max(wall[name]),
               "per_cpu_s": statistics.median(cpu[name])}
        for name in peers
    }  # fmt: skip


def commits(memory: Replay) -> dict[str, float]:
    """The cost of a commit of 10,000 new frames, for the caller and for the writing thread."""
    rng, blocked_ms, written_ms = np.random.default_rng(1), [], []
    for _ in range(6):
        append(memory, COMMIT_FRAMES, rng)
        begun = time.perf_counter()
        assert memory.commit()
        blocked_ms.append((time.perf_counter() - begun) * 1e3)
        assert memory.wait()
        written_ms.append((time.perf_counter() - begun) * 1e3)
    return {"blocked_ms": statistics.median(blocked_ms), "blocked_max_ms": max(blocked_ms),
            "written_ms": statistics.median(written_ms)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?", help="where the replay is kept while it is measured; not a tmpfs")
    parser.add_argument("--transitions", type=int, default=100_000)
    options = parser.parse_args()
    where = Path(tempfile.mkdtemp(prefix="replay-", dir=options.directory))
    try:
        one = filled(where / "one", options.transitions, (64,))
        many = filled(where / "many", options.transitions, (32, 256, 32, 256))
        generator = np.random.default_rng(0)
        found = rates({
            "replay, 64 environments": lambda: one.sample(BATCH, generator),
            "replay, 32 and 256 by turns": lambda: many.sample(BATCH, generator),
            "naive gather of whole observations": naive(options.transitions),
            "the same bytes, copied in one piece": copied(where / "one" / FRAMES_FILE),
        })  # fmt: skip
        size_bytes = sum(file.stat().st_size for file in (where / "one").iterdir()) / options.transitions
        commit = commits(many)
        one.close()
        many.close()
    finally:
        shutil.rmtree(where)
    base = found["naive gather of whole observations"]
    print(f"{'batch 512':38s} {'a second':>10s} {'best':>10s} {'x naive':>8s} {'a CPU second':>13s} {'x naive':>8s}")
    for name, row in found.items():
        print(f"{name:38s} {row['per_s']:10,.0f} {row['best_per_s']:10,.0f} {row['per_s'] / base['per_s']:8.2f} "
              f"{row['per_cpu_s']:13,.0f} {row['per_cpu_s'] / base['per_cpu_s']:8.2f}")  # fmt: skip
    print(f"target: {TARGET_PER_S:,} a second")
    print(f"bytes a transition: {size_bytes:,.1f} (target: at most {TARGET_BYTES:,})")
    print(f"a commit of {COMMIT_FRAMES:,} frames blocks its caller for {commit['blocked_ms']:.2f} ms, at most "
          f"{commit['blocked_max_ms']:.2f} (target: {TARGET_COMMIT_MS:g}), and is written in "
          f"{commit['written_ms']:.0f} ms beside it")  # fmt: skip
    out = Path(__file__).parent / "results" / "replay.json"
    out.parent.mkdir(exist_ok=True)
    body = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "transitions": options.transitions, "rates": found,
            "bytes_per_transition": size_bytes, "commit": commit}  # fmt: skip
    out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
