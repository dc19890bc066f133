"""Where an update's time goes: each operation of Nature's network on a minibatch, forward and both gradients.

    python bench/layers.py [--rows 256] [--threads N] [--repeat 11]

fp32 on the CPU, channels last. CPU milliseconds of all threads, the least of the repetitions, taken in turns: on a machine
that others use, they hardly change where wall clock does. What a row loses from one thread to two is what sharing out the
operation costs; run it with GOMP_SPINCOUNT=0, else threads that wait are counted as working.
Also in bench/results/layers.json.
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
CONVOLUTIONS = {  # as a CPU computes them at 84x84: channels in, size, channels out, kernel, stride; conv1 has frames too
    "conv1": (16, (4, 21, 21), 32, (4, 2, 2), 1), "conv2": (32, (20, 20), 64, (4, 4), 2),
    "conv3": (64, (9, 9), 64, (3, 3), 1),
}  # fmt: skip

Operations = dict[str, tuple[float, Callable[[], Any]]]  # by name: floating point operations, and what does it


def operations(rows: int) -> Operations:
    import torch
    import torch.nn.functional as F  # noqa: N812  its usual name

    found: Operations = {}
    for name, (channels, size, units, kernel, stride) in CONVOLUTIONS.items():
        flat = len(size) == 2
        last = torch.channels_last if flat else torch.channels_last_3d
        forward = F.conv2d if flat else F.conv3d
        x = torch.randn(rows, channels, *size).contiguous(memory_format=last)
        weight = torch.randn(units, channels, *kernel).contiguous(memory_format=last)
        bias = torch.zeros(units)
        above = torch.randn_like(forward(x, weight, bias, stride))
        flop = 2.0 * above.numel() * weight[0].numel()

        def gradients(which: list[bool], g: Any = above, x: Any = x, w: Any = weight, step: int = stride) -> Any:
            each = x.dim() - 2
            sides = [len(w)], [step] * each, [0] * each, [1] * each
            return torch.ops.aten.convolution_backward(g, x, w, *sides, False, [0] * each, 1, which)

        found[f"{name} forward"] = flop, lambda f=forward, x=x, w=weight, b=bias, s=stride: f(x, w, b, s)  # type: ignore[misc]
        found[f"{name} weights"] = flop, lambda g=gradients: g([False, True, True])  # type: ignore[misc]
        if name != "conv1":  # nobody asks for the gradient of the frames
            found[f"{name} input"] = flop, lambda g=gradients: g([True, False, False])  # type: ignore[misc]
    x, weight, above = torch.randn(rows, 3136), torch.randn(512, 3136), torch.randn(rows, 512)
    flop = 2.0 * rows * weight.numel()
    found["linear forward"] = flop, lambda: x @ weight.t()
    found["linear weights"] = flop, lambda: above.t() @ x
    found["linear input"] = flop, lambda: above @ weight
    square = torch.ones(2048, 2048)
    found["matrix product of 2048"] = 2.0 * 2048**3, lambda: square @ square
    return found | _whole(rows)


def _whole(rows: int) -> Operations:
    """The network around them; `ppo` has no LayerNorm, `pqn` has."""
    import torch

    from workers import networks
    from workers.envs import Spec

    spec = Spec("Pong", 6, 4, (84, 84), 4)
    policy, normed = networks.build_policy(spec, "nature"), networks.build(spec, "nature", normed=True)
    adam, radam = torch.optim.Adam(policy.parameters(), fused=True), torch.optim.RAdam(normed.parameters(), foreach=True)
    frames = torch.randint(0, 256, (rows, 4, 84, 84), dtype=torch.uint8)

    def learn(net: Any) -> None:
        net.zero_grad(set_to_none=True)
        net.features(frames).square().mean().backward()

    def act() -> None:
        with torch.no_grad():
            policy(frames[:8])

    learn(policy)
    learn(normed)
    return {
        "frames to numbers": (0.0, lambda: policy.seen(frames)), "Adam": (0.0, adam.step), "RAdam": (0.0, radam.step),
        "acting, 8 rows": (0.0, act), "forward and backward": (0.0, lambda: learn(policy)),
        "the same with LayerNorm": (0.0, lambda: learn(normed)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=11)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    import torch

    torch.set_num_threads(options.threads)
    todo = operations(options.rows)
    least_s = dict.fromkeys(todo, float("inf"))
    for turn in range(options.repeat + 1):
        for name, (_, do) in todo.items():
            begun = time.process_time()
            do()
            if turn:  # the first is a rehearsal
                least_s[name] = min(least_s[name], time.process_time() - begun)
    table = {name: {"cpu_ms": 1e3 * s, "gflops": todo[name][0] / s / 1e9} for name, s in least_s.items()}
    print(f"{options.rows} rows, {options.threads} threads: CPU ms, GFLOP a CPU second")
    for name, row in table.items():
        print(f"{name:26s} {row['cpu_ms']:8.1f}" + (f" {row['gflops']:6.0f}" if row["gflops"] else ""))
    out = ROOT / "bench" / "results" / "layers.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"rows": options.rows, "threads": options.threads, "operations": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
