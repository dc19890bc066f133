"""The gate: a program starts only once its GPU has the memory that the program needs.

The need is the larger of two values: the configured `min_free_mb` (the program's own, else [gate]'s), and the most memory
that it was measured to hold on a GPU at this level before. A program with neither has no need: it starts at once.

First match wins:

| observation | verdict |
|---|---|
| no need; or the GPUs are not known (no driver, a driver that hangs), or which it sees (`policy/box/visible.py`) | start |
| the daemon has just started and has not looked at the GPUs yet | wait, without a record |
| it is pinned to a GPU that this box never had, or `min_free_mb` is more than that GPU has in all | refuse: FATAL |
| that GPU has fallen off the bus, or is missing now | wait |
| a program with a higher claim waits for the same GPU | wait |
| for all of the last `poll_s` seconds the GPU had the memory, less what other starting programs will take | start |
| it has waited for `timeout_s` | with a `fallback_batch`: start with that; else by `on_timeout`: start, wait, give up |
| otherwise | wait |

Worked example, min_free_mb = 12000, poll_s = 5: another training holds all but 3,000 MiB, so Pong is GATED. That training
ends: five seconds later Pong starts. If it had not ended: after timeout_s, 600 s, Pong starts with its fallback_batch
256, or unchanged. Breakout, with the same need, comes next: Pong is STARTING and has taken 4,000 of its 12,000 MB so far,
so 8,000 MB of the free memory are reserved for Pong.

Why the least of some seconds and not the newest reading: a learner takes most of its memory in bursts, and a look between
two bursts sees memory that is gone a moment later. Why start where nothing is known: the gate saves an out-of-memory
death, which is healed anyway; waiting for a reading that never comes would cost the night. Why a program with a lower
claim waits too: small programs that start first would keep the large one out for ever.
"""

from __future__ import annotations

import enum
import math
from typing import Final

from supervisor.keys import key
from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.records import dataclass

MB: Final = 2**20
ON_TIMEOUT: Final = ("start", "wait", "give_up")


@dataclass(frozen=True, slots=True)
class GateSettings:
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


class Answer(enum.Enum):
    START = "start"
    WAIT = "wait"
    SOON = "soon"  # the GPUs were not read yet: wait, and record no fact
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Wish:
    """The need of one program that could start. `behind`: a program with a higher claim that waits for the same GPU."""

    gpu: int | None  # None: there is none that can be watched
    pinned: bool
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer. `batch_size`: the batch to start with, if not the configured one. `free_bytes`: memory for it."""

    answer: Answer
    why: str = ""
    batch_size: int | None = None
    free_bytes: int | None = None


def check(wish: Wish, gpus: Gpus | None, *, reserved_bytes: int, most_gpus: int) -> Verdict:
    """Whether a program may start. `gpus` is None before the first look; `most_gpus` is the most this box ever had.

    `reserved_bytes` of the free memory are reserved for programs that are starting on that GPU.
    """
    if not wish.need_bytes and not wish.pinned:
        return Verdict(Answer.START)
    if gpus is None:
        return Verdict(Answer.SOON)
    if gpus.gpus is None or gpus.absent:
        return Verdict(Answer.START)
    if wish.gpu is None:
        return Verdict(Answer.START)
    gpu = gpus.of(wish.gpu)
    if gpu is None:
        return _missing(wish, wish.gpu, len(gpus.gpus), most_gpus)
    if gpu.lost:
        return Verdict(Answer.WAIT, f"GPU {wish.gpu} does not answer ({gpu.lost}): waits until that GPU is back")
    if gpu.total_bytes is not None and wish.configured_bytes > gpu.total_bytes:
        told = f"GPU {wish.gpu} has {_mb(gpu.total_bytes)} in all, but min_free_mb asks for {_mb(wish.configured_bytes)}"
        return Verdict(Answer.GIVE_UP, f"{told}: lower min_free_mb, or pin it to a larger GPU")
    return _by_memory(wish, gpu, reserved_bytes)


def _missing(wish: Wish, index: int, count: int, most_gpus: int) -> Verdict:
    """The verdict when the GPU is not in the list. If the box had it before, wait: a reboot may bring it back."""
    if not wish.pinned:
        return Verdict(Answer.START)
    here = "no GPU" if not count else f"{count} GPU{'' if count == 1 else 's'}, 0 to {count - 1}"
    if index < most_gpus:
        return Verdict(Answer.WAIT, f"GPU {index} is gone (this box has {here}): waits until it is back")
    return Verdict(Answer.GIVE_UP, f"gpu = {index}, but this box has {here}: correct `gpu`")


def _by_memory(wish: Wish, gpu: Gpu, reserved_bytes: int) -> Verdict:
    window = gpu.free_by_second[-max(1, math.ceil(wish.poll_s)) :]
    if not wish.need_bytes or not window:
        return Verdict(Answer.START)
    free_bytes = max(0, min(window) - reserved_bytes)
    if free_bytes >= wish.need_bytes and not wish.behind:
        return Verdict(Answer.START, free_bytes=free_bytes)
    source = "as configured" if wish.need_bytes == wish.configured_bytes else "as used before"
    needs = f"{_mb(wish.need_bytes)} on GPU {wish.gpu} ({source}); {_mb(free_bytes)} are free"
    if wish.waited_s is not None and wish.waited_s >= wish.timeout_s:
        late = _after_timeout(wish, needs, free_bytes)
        if late is not None:
            return late
    waits = f"waits behind {wish.behind}: needs" if wish.behind and free_bytes >= wish.need_bytes else "waits for"
    return Verdict(Answer.WAIT, f"{waits} {needs}", None, free_bytes)


def _after_timeout(wish: Wish, needs: str, free_bytes: int) -> Verdict | None:
    """The verdict after `timeout_s`; None: it continues to wait."""
    waited = f"waited {wish.timeout_s:g} s for {needs}"
    if wish.fallback_batch is not None:
        return Verdict(Answer.START, f"{waited}: starts with batch {wish.fallback_batch}", wish.fallback_batch, free_bytes)
    if wish.on_timeout == "start":
        return Verdict(Answer.START, f"{waited}: starts anyway", None, free_bytes)
    return Verdict(Answer.GIVE_UP, waited, None, free_bytes) if wish.on_timeout == "give_up" else None


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / MB:,.0f} MiB"
