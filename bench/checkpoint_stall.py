"""The cost of checkpoints and replay commits for the training thread. Run: python bench/checkpoint_stall.py [directory]

It uses a state of the real size (Nature CNN online, target and Adam: 27 MB), a replay of 84x84 frames with 64 environments,
and a real disk (not tmpfs, which does not sync). Prints a table and writes bench/results/checkpoint_stall.json.

Blocked = clone + `save` on the training thread. Worst gap = the longest single turn of a busy training thread (small matrix
products) while another thread writes the checkpoint or the commit; compare with the gap without a writer.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import nn

from workers.checkpoint import Checkpointer
from workers.contract import Client
from workers.replay import Replay

SAVES = 25
ENVS = 64
FRAMES = 10_000
BATCH = 512
INTERVALS_S = (10, 60)


def nature_state() -> dict[str, torch.Tensor]:
    """Online and target network and Adam's moments after one step, as the worker saves them."""
    torch.manual_seed(0)

    def network() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18),
        )  # fmt: skip

    online, target = network(), network()
    optimiser = torch.optim.Adam(online.parameters())
    online(torch.rand(2, 4, 84, 84)).sum().backward()
    optimiser.step()
    tensors = {f"{part}.{name}": tensor for part, net in (("online", online), ("target", target))
               for name, tensor in net.state_dict().items()}  # fmt: skip
    for place, entry in enumerate(optimiser.state_dict()["state"].values()):
        tensors |= {f"adam.{place}.{name}": tensor for name, tensor in entry.items()}
    return tensors


class BusyLoop:
    """A simplified busy training thread: turns of about a millisecond, of which it measures the longest."""

    def __init__(self) -> None:
        self.a, self.b = torch.rand(64, 512), torch.rand(512, 512)

    def until(self, done: Callable[[], bool], least: int = 20) -> float:
        longest, turns = 0.0, 0
        while turns < least or not done():
            begun = time.perf_counter()
            for _ in range(10):
                torch.tanh(self.a @ self.b)
            longest, turns = max(longest, time.perf_counter() - begun), turns + 1
        return longest


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median_ms": statistics.median(ordered) * 1e3,
        "p95_ms": ordered[int(len(ordered) * 0.95)] * 1e3,
        "max_ms": ordered[-1] * 1e3,
    }


class RecordingClient(Client):
    """A client without a supervisor that stores the reported write times."""

    def __init__(self) -> None:
        super().__init__(environ={})
        self.write_s: list[float] = []

    def committed(self, step: int, *, stall_s: float, write_s: float) -> None:  # noqa: ARG002  the client's signature
        self.write_s.append(write_s)


def checkpoints(directory: Path, busy_loop: BusyLoop) -> dict[str, object]:
    state, client = nature_state(), RecordingClient()
    saver = Checkpointer(directory, client, {"game": "Pong"})
    blocked, gaps = [], []
    for step in range(SAVES):
        begun = time.perf_counter()
        clones = {name: tensor.detach().clone() for name, tensor in state.items()}
        assert saver.save(step, clones, {"rng": list(range(624))}, mean_return=None, stall_s=0.0)
        blocked.append(time.perf_counter() - begun)
        gaps.append(busy_loop.until(lambda: saver.wait(0)))
        assert saver.failure is None, saver.failure
    begun = time.perf_counter()
    assert saver.load_newest() is not None
    load_s = time.perf_counter() - begun
    return {
        "size_mb": sum(tensor.numel() * tensor.element_size() for tensor in state.values()) / 1e6,
        "blocked": summary(blocked),
        "write": summary(client.write_s),
        "worst_gap": summary(gaps),
        "load_ms": load_s * 1e3,
    }


def replay(directory: Path, busy_loop: BusyLoop) -> dict[str, object]:
    memory = Replay(100_000, ENVS, directory=directory, stack=4, n_step=3, gamma=0.99)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (ENVS, 84, 84), dtype=np.uint8)
    off = np.zeros(ENVS, bool)

    def append() -> float:
        done = rng.random(ENVS) < 0.001
        begun = time.perf_counter()
        memory.append(frames, rng.integers(0, 6, ENVS), rng.random(ENVS), done, off, off)
        return time.perf_counter() - begun

    appends, blocked, gaps, writes, beside = [], [], [], [], []
    for _ in range(8):
        appends += [append() for _ in range(FRAMES // ENVS)]
        begun = time.perf_counter()
        assert memory.commit()
        blocked.append(time.perf_counter() - begun)

        def committed() -> bool:
            beside.append(append())
            return memory.wait(0)

        gaps.append(busy_loop.until(committed))
        writes.append(time.perf_counter() - begun)
    rates, generator = {}, torch.Generator().manual_seed(0)
    for batch in (32, BATCH, 2048):
        times = []
        for _ in range(60):
            begun = time.perf_counter()
            memory.sample(batch, generator)
            times.append(time.perf_counter() - begun)
        rates[str(batch)] = {"median": batch / statistics.median(times), "best": batch / min(times)}
    memory.close()
    begun = time.perf_counter()
    again = Replay(100_000, ENVS, directory=directory, stack=4, n_step=3, gamma=0.99, boot_id="11" * 16)
    verify_s = time.perf_counter() - begun
    size = len(again)
    again.close()
    return {
        "frames_per_commit": FRAMES,
        "commit_blocked": summary(blocked),
        "commit": summary(writes),
        "worst_gap": summary(gaps),
        "append_64": summary(appends),
        "append_64_during_commit": summary(beside),
        "samples_per_s": rates,
        "reopen_after_reboot_ms_per_gb": verify_s * 1e3 / (size * 7056 / 1e9),
    }


def main() -> None:
    torch.set_num_threads(2)
    where = Path(tempfile.mkdtemp(prefix="checkpoint-stall-", dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        busy_loop = BusyLoop()
        quiet = summary([busy_loop.until(lambda: True, least=40) for _ in range(10)])
        result = {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "torch": torch.__version__,
            "gap_without_writer": quiet,
            "checkpoint": checkpoints(where / "run", busy_loop),
            "replay": replay(where / "replay", busy_loop),
        }
    finally:
        shutil.rmtree(where)
    saved, stored = result["checkpoint"], result["replay"]
    rows = [
        ("worst turn, nothing written beside it", quiet, ""),
        (f"checkpoint of {saved['size_mb']:.1f} MB: training blocked", saved["blocked"], "target: median <= 10"),
        ("  written (own thread)", saved["write"], ""),
        ("  worst turn meanwhile", saved["worst_gap"], ""),
        (f"replay commit of {FRAMES:,} frames: training blocked", stored["commit_blocked"], "target: <= 10"),
        ("  written (own thread)", stored["commit"], ""),
        ("  worst turn meanwhile", stored["worst_gap"], ""),
        (f"append of {ENVS} frames", stored["append_64"], ""),
        ("  while a commit is written", stored["append_64_during_commit"], ""),
    ]
    print(f"{'ms':52s} {'median':>8s} {'p95':>8s} {'max':>8s}")
    for name, values, note in rows:
        print(f"{name:52s} {values['median_ms']:8.2f} {values['p95_ms']:8.2f} {values['max_ms']:8.2f}  {note}")
    for interval_s in INTERVALS_S:
        blocked_ms = 3600 / interval_s * (saved["blocked"]["median_ms"] + stored["commit_blocked"]["median_ms"])
        print(f"an hour with a save every {interval_s} s: training blocked for {blocked_ms / 1e3:.2f} s, "
              f"{blocked_ms / 3.6e6:.3%} (target < 0.5 %)")  # fmt: skip
    for batch, rate in stored["samples_per_s"].items():
        target = "(target >= 300,000)" if batch == str(BATCH) else ""
        print(f"sampling at batch {batch:>4s}: {rate['median']:>8,.0f} transitions/s, best {rate['best']:>8,.0f} {target}")
    print(f"load and verify a checkpoint: {saved['load_ms']:.0f} ms; reopen the replay after a reboot: "
          f"{stored['reopen_after_reboot_ms_per_gb']:.0f} ms/GB")  # fmt: skip
    out = Path(__file__).parent / "results" / "checkpoint_stall.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
