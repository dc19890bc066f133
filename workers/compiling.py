"""torch.compile, off by default: on a CPU it is 0.85 to 1.0 times as fast, and costs 20 s and more at each start.

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
    from workers.learner import Learner


class CannotCompile(Exception):
    """This machine cannot compile the networks; the message is one sentence for the user."""


def warm_up(learner: Learner) -> None:
    """Compile every network of this learner for every shape of its training; weights and random state do not change.

    Raises CannotCompile, for instance without a C++ compiler on a CPU.
    """
    try:
        for _, net in learner.networks():
            net.compile(dynamic=False)
            _run_once(learner, net)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # each backend has its own exceptions, and compilers fail in many ways
        first = str(error).strip().partition("\n")[0][:200]
        raise CannotCompile(f"the networks can't be compiled here ({first}): set compile to false") from error


def _run_once(learner: Learner, net: nn.Module) -> None:
    """Run the network once with gradients (for learning) and once without (for acting and bootstrapping).

    PyTorch compiles both cases, and each batch size, separately.
    """
    args, spec, precision = learner.args, learner.spec, learner.precision
    for rows in sorted({args.num_envs, args.batch_size}):
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
