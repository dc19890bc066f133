"""Readings of the box's GPUs and of the host at one moment. None is "not known", never zero."""

from __future__ import annotations

from typing import Final, NamedTuple

from supervisor.records import Record


class Spread(NamedTuple):
    """Least, mean and most of a minute of readings. A tuple, because one query of the recording makes ten thousand."""

    least: float
    mean: float
    most: float


class InPhase(Record):
    """The looks of a minute at which a worker on the GPU was in this phase. With several phases, a look counts for each.

    Training is divided: `acting` if environment steps came since the previous look, `updating` if none came.
    """

    phase: str
    looks: int
    used: Spread | None = None  # bytes
    utilisation: Spread | None = None  # per cent


class Gpu(Record):
    """One GPU. `free_by_second` is the least free memory of each of the newest seconds, the newest last.

    `reasons` are NVML's names of the reasons that limit its clocks (`hw_slowdown`, `sw_power_cap` ...). `lost` is the reason
    why it does not answer (it fell off the bus, it needs a reset); empty: it answers.
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
    by_phase: tuple[InPhase, ...] = ()  # of the newest minute; empty: none of our workers is known to use it


class Xid(Record):
    """An error that the driver has reported. `number` counts them, so that each is recorded once."""

    number: int
    gpu: int
    code: int


class Gpus(Record):
    """All GPUs. `gpus` None: unknown, because NVML has not answered for `hung_s`, or failed with `error`.

    A box without NVIDIA's library has `absent` and no GPU: this is known, and no trouble.
    """

    gpus: tuple[Gpu, ...] | None
    error: str = ""
    hung_s: float | None = None
    absent: bool = False
    xids: tuple[Xid, ...] = ()

    def of(self, index: int) -> Gpu | None:
        """The GPU of this index, if it is known."""
        return next((gpu for gpu in self.gpus or () if gpu.index == index), None)


class Host(Record):
    """The memory that this box may use (its cgroup's limit counts), swap, pressure (PSI), cores, and the disk."""

    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None
    memory_full: float | None = None  # per cent of the newest minute in which all processes waited for memory (PSI full)
    io_full: float | None = None  # the same for the disk
    cores: int | None = None
    disk_free_bytes: int | None = None  # where the state is kept
    logged_in: tuple[str, ...] | None = None  # open sessions, such as `ada on pts/0`; None also: not read
    cpu_busy: float | None = None  # per cent of the time since the reading before in which the cores worked
    cannot_stop: str = ""  # why the command of [when_done] cannot be started; empty also: not read


# Readings that are recorded over time and are metrics: (unit, meaning) by name.
OF_THE_HOST: Final = {
    "available_bytes": ("bytes", "memory that is free for programs"),
    "swap_free_bytes": ("bytes", "free swap"),
    "memory_full": ("%", "share of a minute in which nothing ran for want of memory"),
    "io_full": ("%", "share of a minute in which nothing ran for want of the disk"),
    "disk_free_bytes": ("bytes", "free space where the state is kept"),
    "cpu_busy": ("%", "share of the time in which the cores worked"),
}
OF_A_GPU: Final = {
    "used_bytes": ("bytes", "used memory"),
    "utilisation": ("%", "share of the time in which a kernel ran"),
    "temperature_c": ("°C", "temperature"),
    "power_w": ("W", "power drawn"),
}
