"""A lost GPU is never a slow CPU: a program that needs a GPU waits while its GPU is missing.

A program *needs* a GPU if it asks for one (`gpu`, `min_free_mb`, `device = "cuda"`, GPUs in its own CUDA_VISIBLE_DEVICES),
if an earlier attempt of it used one, or if it takes any device (`device = "auto"`) and another program of this box used
one. It does not need one after an explicit word: `device = "cpu"`, `when_no_gpu = "cpu"`, no GPU in its own
CUDA_VISIBLE_DEVICES. First match wins:

| observation | it waits, because |
|---|---|
| it needs none | it does not wait |
| NVML hangs, or answers with an error | the driver does not answer |
| no driver library; but an attempt used a GPU without it | it does not wait: the worker looks for itself |
| no driver library, or no GPU | the box has none |
| CUDA_VISIBLE_DEVICES shows CUDA no GPU of this box | every GPU is hidden from it |
| a GPU that it uses is not in the list, or does not answer | that GPU is lost |
| otherwise | it does not wait |

It uses the GPU that CUDA shows it first, or its pinned one; without a pin or a list also those of its newest attempt on a
GPU. The wait ends when NVML shows the GPU again.

Worked example: Pong trained on GPU 0 and Breakout on GPU 1. The box is stopped and comes back with one GPU: Pong goes on,
and Breakout waits: "GPU 1 is gone (this box has 1 GPU)".

A GPU may also vanish between this look and the worker's start. So the worker gets the same word, and refuses the CPU itself:
then it waits for `RETRY_S` and is started again.

Why not train on the CPU meanwhile: it is 20 to 100 times slower, the box costs the same, and nobody notices before morning.
"""

from __future__ import annotations

from typing import Final

from supervisor.policy.box.readings import Gpus
from supervisor.records import Record

WAIT, CPU = "wait", "cpu"
WHEN_NO_GPU: Final = (WAIT, CPU)
BY_BOX, BY_WORKER = "box", "worker"  # who found that the GPU is lost
RETRY_S: Final = 120.0
_OTHERWISE: Final = 'it waits for its GPU (when_no_gpu = "cpu" lets it use the CPU)'


class Claim(Record):
    """Why a program needs a GPU, and which. `asks`: the settings that ask for one. Empty and None: it does not need one."""

    asks: str = ""
    used: tuple[int, ...] | None = None  # GPUs of its newest attempt on one; empty: one that NVML did not show
    as_others: bool = False  # it takes any device, and another program used a GPU
    gpu: int | None = None  # the GPU that CUDA shows it first, or its pinned one; None: not known
    free_choice: bool = True  # neither a pin nor CUDA_VISIBLE_DEVICES decides which GPUs it sees
    hides: str | None = None  # the CUDA_VISIBLE_DEVICES that shows it no GPU of this box

    @property
    def why(self) -> str:
        """Why it needs a GPU, as a clause; empty: it needs none."""
        if self.asks:
            return f"it asks for a GPU ({self.asks})"
        if self.used is not None:
            return "it ran on a GPU before"
        return "programs of this box ran on a GPU before" if self.as_others else ""


def lost(claim: Claim, gpus: Gpus, *, most_gpus: int) -> str:
    """Why the program waits, in one sentence; empty: it does not. `most_gpus`: the most that this box ever had."""
    what = _missing(claim, gpus, most_gpus) if claim.why else ""
    return f"{claim.why}, but {what}: {_OTHERWISE}" if what else ""


def refused(error: str) -> str:
    """The same after a worker has found no GPU, with its own words."""
    return f"its worker found no GPU ({error}): {_OTHERWISE}"


def _missing(claim: Claim, gpus: Gpus, most_gpus: int) -> str:
    if gpus.gpus is None:
        return "the GPU's driver hangs" if gpus.hung_s is not None else f"the GPUs cannot be read ({gpus.error})"
    if gpus.absent and claim.used == () and not claim.asks:
        return ""
    if not gpus.gpus:
        return gpus.error if gpus.absent else "this box has no GPU now"
    if claim.hides is not None:
        return f"CUDA_VISIBLE_DEVICES = {claim.hides!r} shows it no GPU of this box"
    used = claim.used or ()
    for index in sorted({each for each in (claim.gpu, *(used if claim.free_choice else ())) if each is not None}):
        gpu = gpus.of(index)
        if gpu is None and (index < most_gpus or index in used):  # an index that never was is a mistake (`gate.py`)
            here = len(gpus.gpus)
            return f"GPU {index} is gone (this box has {here} GPU{'' if here == 1 else 's'})"
        if gpu is not None and gpu.lost:
            return f"GPU {index} does not answer ({gpu.lost})"
    return ""
