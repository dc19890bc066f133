"""The gate: a program starts only once its GPU has the memory that the program needs.

A program whose GPU is lost does not come here: it waits by [another rule](lost_gpu.py).

The need is the larger of two values: the configured `min_free_mb` (the program's own, else [gate]'s), and the most memory
that it was measured to hold on a GPU at this level before. A program with neither has no need: it starts at once.

First match wins:

| observation | verdict |
|---|---|
| it needs no GPU, or none that can be watched (`policy/box/visible.py`) | start |
| the daemon has just started and has not looked at the GPUs yet | wait, without a record |
| its GPU is lost, and `when_no_gpu` is `cpu` | start |
| it is pinned to a GPU that this box never had, or `min_free_mb` is more than that GPU has in all | refuse: FATAL |
| a program with a higher claim waits for the same GPU | wait |
| for all of the last `poll_s` seconds the GPU had the memory, less what other starting programs will take | start |
| it has waited for `timeout_s` | with a `fallback_batch`: start with that; else by `on_timeout`: start, wait, give up |
| otherwise | wait |

Worked example, min_free_mb = 12000, poll_s = 5: another training holds all but 3,000 MiB, so Pong is GATED. That training
ends: five seconds later Pong starts. Breakout, with the same need, comes next: Pong is STARTING and has taken 4,000 of its
12,000 MB so far, so 8,000 MB of the free memory are reserved for Pong.

Why the least of some seconds and not the newest reading: a learner takes most of its memory in bursts, and a look between
two bursts sees memory that is gone a moment later. Unknown free memory is not free: with `min_free_mb` a program waits for
it until `timeout_s`. Why a program with a lower claim waits too: small programs that start first would keep the large one
out for ever.
"""

from __future__ import annotations

import enum
import math
from typing import Final

from supervisor.formats import span
from supervisor.keys import key
from supervisor.policy.box.lost_gpu import WAIT, WHEN_NO_GPU
from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.records import Record

MB: Final = 2**20
ON_TIMEOUT: Final = ("start", "wait", "give_up")


class GateSettings(Record):
    """`[gate]` in the config; a program may have its own (`min_free_mb`, `gate_poll_s`, `gate_timeout_s`)."""

    min_free_mb: int = key(
        0, "MiB that must be free on its GPU before a program starts; 0: as much as it used before", low=0, high=10_000_000
    )
    poll_s: float = key(
        5.0, "time for which the memory must have been free, because other trainings allocate in bursts", low=0, high=60
    )
    timeout_s: float = key(600.0, "longest time that a program waits for the memory", low=0)
    on_timeout: str = key("start", "action after `timeout_s`, for programs without a fallback batch", choices=ON_TIMEOUT)
    fallback_batch: int | None = key(
        None, "smaller batch to start with after `timeout_s`, for programs without their own", unset="none"
    )
    when_no_gpu: str = key(
        WAIT,
        "a program that ran on a GPU or asks for one, while there is none: it waits for the GPU, or uses the CPU "
        "([the rule](../supervisor/policy/box/lost_gpu.py))",
        choices=WHEN_NO_GPU,
    )


class Answer(enum.Enum):
    START = "start"
    WAIT = "wait"
    SOON = "soon"  # the GPUs were not read yet: wait, and record no fact
    GIVE_UP = "give up"


class Wish(Record):
    """The need of one program that could start. `behind`: a program with a higher claim that waits for the same GPU."""

    gpu: int | None  # None: there is none that can be watched
    pinned: bool
    claimed: bool  # it needs a GPU by `lost_gpu.py`
    configured_bytes: int
    learned_bytes: int | None
    poll_s: float
    timeout_s: float
    on_timeout: str
    fallback_batch: int | None
    waited_s: float | None  # None: it does not wait yet
    behind: str = ""

    @property
    def need_bytes(self) -> int:
        return max(self.configured_bytes, self.learned_bytes or 0)


class Verdict(Record):
    """The gate's answer. `batch_size`: the batch to start with, if not the configured one. `free_bytes`: memory for it."""

    answer: Answer
    why: str = ""
    batch_size: int | None = None
    free_bytes: int | None = None


def check(wish: Wish, gpus: Gpus | None, *, reserved_bytes: int) -> Verdict:
    """Whether a program may start. `gpus` is None before the first look.

    `reserved_bytes` of the free memory are reserved for programs that are starting on that GPU.
    """
    if not (wish.need_bytes or wish.pinned or wish.claimed):
        return Verdict(Answer.START)
    if gpus is None:
        return Verdict(Answer.SOON)
    if not gpus.gpus or wish.gpu is None:
        return Verdict(Answer.START)
    gpu = gpus.of(wish.gpu)
    if gpu is None and wish.pinned and wish.claimed:
        count = len(gpus.gpus)
        here = f"{count} GPU{'' if count == 1 else 's'}, 0 to {count - 1}"
        return Verdict(Answer.GIVE_UP, f"gpu = {wish.gpu}, but this box has {here}: correct `gpu`")
    if gpu is None or (gpu.lost and not wish.claimed):
        return Verdict(Answer.START)
    if gpu.lost:  # only for `wait-gpu`: programs wait by `lost_gpu.py`
        return Verdict(Answer.WAIT, f"GPU {wish.gpu} does not answer ({gpu.lost}): waits until that GPU is back")
    if gpu.total_bytes is not None and wish.configured_bytes > gpu.total_bytes:
        told = f"GPU {wish.gpu} has {_mb(gpu.total_bytes)} in all, but min_free_mb asks for {_mb(wish.configured_bytes)}"
        return Verdict(Answer.GIVE_UP, f"{told}: lower min_free_mb, or pin it to a larger GPU")
    return _by_memory(wish, gpu, reserved_bytes)


def _by_memory(wish: Wish, gpu: Gpu, reserved_bytes: int) -> Verdict:
    window = gpu.free_by_second[-max(1, math.ceil(wish.poll_s)) :]
    if not wish.need_bytes or (not window and not wish.configured_bytes):
        return Verdict(Answer.START)
    free_bytes = max(0, min(window) - reserved_bytes) if window else None
    fits = free_bytes is not None and free_bytes >= wish.need_bytes
    if fits and not wish.behind:
        return Verdict(Answer.START, free_bytes=free_bytes)
    source = "as configured" if wish.need_bytes == wish.configured_bytes else "as used before"
    known = "how much is free is not known" if free_bytes is None else f"{_mb(free_bytes)} are free"
    needs = f"{_mb(wish.need_bytes)} on GPU {wish.gpu} ({source}); {known}"
    if wish.waited_s is not None and wish.waited_s >= wish.timeout_s:
        late = _after_timeout(wish, needs, free_bytes)
        if late is not None:
            return late
    waits = f"waits behind {wish.behind}: needs" if wish.behind and fits else "waits for"
    return Verdict(Answer.WAIT, f"{waits} {needs}", None, free_bytes)


def _after_timeout(wish: Wish, needs: str, free_bytes: int | None) -> Verdict | None:
    """The verdict after `timeout_s`; None: it continues to wait."""
    waited = f"waited {span(wish.timeout_s)} for {needs}"
    if wish.fallback_batch is not None:
        return Verdict(Answer.START, f"{waited}: starts with batch {wish.fallback_batch}", wish.fallback_batch, free_bytes)
    if wish.on_timeout == "start":
        return Verdict(Answer.START, f"{waited}: starts anyway", None, free_bytes)
    return Verdict(Answer.GIVE_UP, waited, None, free_bytes) if wish.on_timeout == "give_up" else None


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / MB:,.0f} MiB"
