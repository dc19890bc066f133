"""Time per operation of an update: each operation of Nature's network on a minibatch, forward and both gradients.

    python bench/layers.py [--rows 256] [--threads N] [--repeat 11] [--dtype auto|bf16|fp32]

It runs on the CPU, channels last, in the format that our workers choose there. It prints CPU milliseconds of all threads
and wall milliseconds, each the minimum of the repetitions, which take turns: on a shared machine CPU time changes much less
than wall time. The increase of a row from one thread to two is the cost of splitting the operation. Use GOMP_SPINCOUNT=0
for CPU time; otherwise waiting threads count as working.

The last lines are upper bounds of the steps a second of `ppo` and `pqn` (8 environments x 128 steps, 4 epochs). They assume
the library's operations at their best speed and no other cost, not even for games. For `ppo` the layers are added one by
one, for `pqn` a whole pass with its norms is measured. Also in bench/results/layers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONVOLUTIONS = {  # as computed on a CPU at 84x84: input channels (conv2: of pairs), size, output channels, kernel, stride
    "conv1": (16, (4, 21, 21), 32, (4, 2, 2), (1, 1, 1)), "conv2": (64, (20, 10), 64, (4, 2), (2, 1)),
    "conv3": (64, (9, 9), 64, (3, 3), (1, 1)),
}  # fmt: skip

ENOUGH_S = 0.06  # CPU time is counted in ticks of 4 ms

Operations = dict[str, tuple[float, Callable[[], Any]]]  # name -> (floating point operations, function)


def operations(rows: int, dtype: Any) -> Operations:
    import torch
    import torch.nn.functional as F  # noqa: N812  its usual name

    found: Operations = {}
    for name, (channels, size, units, kernel, stride) in CONVOLUTIONS.items():
        flat = len(size) == 2
        last = torch.channels_last if flat else torch.channels_last_3d
        forward = F.conv2d if flat else F.conv3d
        x = torch.randn(rows, channels, *size, dtype=dtype).contiguous(memory_format=last)
        weight = torch.randn(units, channels, *kernel, dtype=dtype).contiguous(memory_format=last)
        bias = torch.zeros(units, dtype=dtype)
        above = torch.randn_like(forward(x, weight, bias, stride))
        flop = 2.0 * above.numel() * weight[0].numel()

        def gradients(which: list[bool], g: Any = above, x: Any = x, w: Any = weight, step: Any = stride) -> Any:
            each = x.dim() - 2
            sides = [len(w)], step, [0] * each, [1] * each
            return torch.ops.aten.convolution_backward(g, x, w, *sides, False, [0] * each, 1, which)

        found[f"{name} forward"] = flop, lambda f=forward, x=x, w=weight, b=bias, s=stride: f(x, w, b, s)  # type: ignore[misc]
        found[f"{name} weights"] = flop, lambda g=gradients: g([False, True, True])  # type: ignore[misc]
        if name != "conv1":  # the gradient of the frames is not needed
            found[f"{name} input"] = flop, lambda g=gradients: g([True, False, False])  # type: ignore[misc]
    x, weight, above = (torch.randn(*shape, dtype=dtype) for shape in ((rows, 3136), (512, 3136), (rows, 512)))
    flop = 2.0 * rows * weight.numel()
    found["linear forward"] = flop, lambda: x @ weight.t()
    found["linear weights"] = flop, lambda: above.t() @ x
    found["linear input"] = flop, lambda: above @ weight
    square = torch.ones(2048, 2048, dtype=dtype)
    found["matrix product of 2048"] = 2.0 * 2048**3, lambda: square @ square
    return found | _whole(rows, dtype)


def _whole(rows: int, dtype: Any) -> Operations:
    """The rest of the network, and whole passes; `ppo` has no LayerNorm, `pqn` has."""
    import torch

    from workers import networks
    from workers.acting import Actor
    from workers.envs import Spec
    from workers.precision import Precision

    precision, spec = Precision(torch.device("cpu"), dtype), Spec("Pong", 6, 4, (84, 84), 4)
    policy, normed = networks.build(spec, "nature", networks.POLICY), networks.build(spec, "nature", normed=True)
    adam, radam = torch.optim.Adam(policy.parameters(), fused=True), torch.optim.RAdam(normed.parameters(), foreach=True)
    frames = policy.to_blocks(torch.randint(0, 256, (rows, 4, 84, 84), dtype=torch.uint8))
    actor = Actor(policy, precision, adam)

    def see() -> None:
        with precision.autocast():
            policy.to_input(frames)

    def learn(net: Any) -> None:
        net.zero_grad(set_to_none=True)
        with precision.autocast():
            out = net.features(frames)
        out.float().square().mean().backward()

    def act() -> None:
        with torch.no_grad(), precision.autocast():
            actor(frames[:8])

    learn(policy)
    learn(normed)
    return {
        "frames to numbers": (0.0, see), "Adam": (0.0, adam.step), "RAdam": (0.0, radam.step),
        "acting, 8 rows": (0.0, act), "forward and backward": (0.0, lambda: learn(policy)),
        "the same with LayerNorm": (0.0, lambda: learn(normed)),
    }  # fmt: skip


def most_steps_per_s(wall_s: dict[str, float], rows: int) -> dict[str, float]:
    """Upper bounds from layers, frames and optimizer only: each step is acted on once, in rows of 8, and learned 4 times."""
    layers_s = sum(s for name, s in wall_s.items() if name.startswith(("conv", "linear")))
    update_s = {
        "ppo": layers_s + wall_s["frames to numbers"] + wall_s["Adam"],
        "pqn": wall_s["the same with LayerNorm"] + wall_s["RAdam"],
    }
    return {algo: 1.0 / (wall_s["acting, 8 rows"] / 8 + 4 * s / rows) for algo, s in update_s.items()}


def timed(do: Callable[[], Any]) -> tuple[float, float]:
    """(wall, CPU) seconds of one call, averaged over many: the kernel counts a second thread's CPU time only at ticks."""
    begun, begun_cpu, calls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begun < ENOUGH_S:
        do()
        calls += 1
    return (time.perf_counter() - begun) / calls, (time.process_time() - begun_cpu) / calls


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--dtype", choices=["auto", "bf16", "fp32"], default="auto")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    import torch

    from workers import precision

    torch.set_num_threads(options.threads)
    chosen = precision.choose("cpu", options.dtype)
    todo = operations(options.rows, chosen.dtype)
    cpu_s, wall_s = dict.fromkeys(todo, float("inf")), dict.fromkeys(todo, float("inf"))
    for turn in range(options.repeat + 1):
        for name, (_, do) in todo.items():
            took_wall_s, took_cpu_s = timed(do)
            if turn:  # the first turn is a warm-up
                cpu_s[name], wall_s[name] = min(cpu_s[name], took_cpu_s), min(wall_s[name], took_wall_s)
    table = {
        name: {"cpu_ms": 1e3 * cpu_s[name], "wall_ms": 1e3 * wall_s[name], "gflops": flop / cpu_s[name] / 1e9}
        for name, (flop, _) in todo.items()
    }
    print(f"{options.rows} rows, {options.threads} threads, {chosen}: CPU ms, wall ms, GFLOP a CPU second")
    for name, row in table.items():
        flops = f" {row['gflops']:6.0f}" if row["gflops"] else ""
        print(f"{name:26s} {row['cpu_ms']:8.1f} {row['wall_ms']:8.1f}{flops}")
    most = most_steps_per_s(wall_s, options.rows)
    for algo, steps_per_s in most.items():
        print(f"nothing but these: at most {steps_per_s:,.0f} steps/s of {algo}")
    out = ROOT / "bench" / "results" / "layers.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(
        json.dumps(
            {"rows": options.rows, "threads": options.threads, "dtype": str(chosen), "operations": table, "most": most},
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
