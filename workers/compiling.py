"""torch.compile and CUDA graphs, both off by default: their gain, and their cost at each start.

| setting | what it does | measured |
|---|---|---|
| `compile` | each network is compiled for the shapes that training uses | CPU: 0.85-1.0x at 20 s and more a start: off |
| `cuda_graphs` | compiles too; launches are recorded once and replayed (`reduce-overhead`) | no figure of ours: off |

Networks are compiled before training, in a separate phase, on dummy frames. Otherwise the first update would look like a
stall, and the accounts would count its minutes as training. A network is compiled in place, so that names in checkpoints
do not change, and a run may switch either way between two attempts. It then computes the same function with different
rounding: results are bit-identical only between attempts with the same setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from workers.args import Args
    from workers.learner import Learner


class CannotCompile(Exception):
    """This machine cannot compile the networks; the message is one sentence for the user."""


def wanted(args: Args) -> bool:
    """Whether the networks are to be compiled before the training."""
    return args.compile or args.cuda_graphs


def warm_up(learner: Learner) -> None:
    """Compile every network of this learner for every shape of its training; weights and random state do not change.

    Raises CannotCompile, for instance without a C++ compiler on a CPU.
    """
    args = learner.args
    mode = "reduce-overhead" if args.cuda_graphs else None
    try:
        for _, net in learner.networks():
            net.compile(mode=mode, dynamic=False)
            _run_once(learner, net)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # each backend has its own exceptions, and compilers fail in many ways
        setting = "cuda_graphs" if args.cuda_graphs else "compile"
        first = str(error).strip().partition("\n")[0][:200]
        raise CannotCompile(f"the networks can't be compiled here ({first}): set {setting} to false") from error


def _run_once(learner: Learner, net: nn.Module) -> None:
    """Run the network once with gradients (for learning) and once without (for acting and bootstrapping).

    PyTorch compiles both cases, and each batch size, separately.
    """
    args, spec, precision = learner.args, learner.spec, learner.precision
    for rows in sorted({args.num_envs, args.batch_size}):
        learner.begin_step()
        empty = torch.zeros((rows, spec.stack, *spec.frame_shape), dtype=torch.uint8, device=precision.device)
        frames = net.to_blocks(empty)  # type: ignore[operator]  # every network of ours has it
        with torch.no_grad(), precision.autocast():
            net(frames)
        if rows == args.batch_size and any(parameter.requires_grad for parameter in net.parameters()):
            with precision.autocast():
                out = net(frames)
            parts = out if isinstance(out, tuple) else (out,)
            torch.stack([part.float().mean() for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
            net.zero_grad(set_to_none=True)
