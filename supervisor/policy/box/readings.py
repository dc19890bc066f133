"""What is known of the box's GPUs and of the host at one moment. None is "not known", never zero."""

from __future__ import annotations

from typing import NamedTuple

from supervisor.records import dataclass


class Spread(NamedTuple):
    """Least, mean and most of a minute of readings. A tuple, because a look at the recorder's file makes ten thousand."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class InPhase:
    """The looks of a minute at which a worker on the GPU was in this phase. A look counts for each phase that one was in.

    Training is told apart: `acting` where environment steps came since the look before, `updating` where none did.
    """

    phase: str
    looks: int
    used: Spread | None = None  # bytes
    utilisation: Spread | None = None  # per cent


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `free_by_second` is the least free memory of each of the newest seconds, the newest last.

    `reasons` are why its clocks are held back, in NVML's words (`hw_slowdown`, `sw_power_cap` ...); `lost` says why it
    does not answer (it fell off the bus, it needs a reset); empty: it does.
    """

    index: int
    uuid: str = ""
    name: str = ""
    lost: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    free_by_second: tuple[int, ...] = ()
    used_minute: Spread | None = None  # bytes
    utilisation: float | None = None  # per cent
    utilisation_minute: Spread | None = None
    temperature_c: float | None = None
    temperature_minute: Spread | None = None
    slowdown_c: float | None = None
    reasons: tuple[str, ...] | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    processes: tuple[tuple[int, int | None], ...] | None = None  # (pid, bytes)
    by_phase: tuple[InPhase, ...] = ()  # of the newest minute; empty: no worker of ours is known to be on it


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that the driver has reported. `number` counts them, so that each is told once."""

    number: int
    gpu: int
    code: int


@dataclass(frozen=True, slots=True)
class Gpus:
    """All of them. `gpus` is None when nobody knows: `hung` is how long NVML has not answered, `error` why it cannot.

    A box without NVIDIA's library has `absent` and no GPU: that is known, and no trouble.
    """

    gpus: tuple[Gpu, ...] | None
    error: str = ""
    hung_s: float | None = None
    absent: bool = False
    xids: tuple[Xid, ...] = ()

    def of(self, index: int) -> Gpu | None:
        """The GPU of this index, if it is known."""
        return next((gpu for gpu in self.gpus or () if gpu.index == index), None)


@dataclass(frozen=True, slots=True)
class Host:
    """Memory as far as this box may use it (its cgroup's limit counts), swap, pressure (PSI), cores, and the disk."""

    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None
    memory_full: float | None = None  # per cent of the newest minute in which nothing ran for want of memory
    io_full: float | None = None  # the same for the disk
    cores: int | None = None
    disk_free_bytes: int | None = None  # where the state is kept
