"""Metrics for monitoring: one family per metric, from the state and the newest readings. Pure; docs/alerts.md lists all.

Counters come from the journal's fold alone, so none of them falls when the daemon or the box starts again. An unknown value
is absent, never 0. Labels come from closed sets (programs, levels, GPUs, causes), never from reasons, paths or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

from supervisor.model.fold import RECORDS
from supervisor.model.recording import GPUS, HOST
from supervisor.policy.box.readings import Gpu, Host
from supervisor.reports.climb_view import climb_view
from supervisor.reports.exposition import PREFIX, Family, Labels
from supervisor.reports.offsite_view import offsite_view
from supervisor.reports.program_metrics import program_metrics
from supervisor.reports.sources import Json, Sources
from supervisor.reports.status_view import box_view, troubles_view
from supervisor.reports.when_done_view import when_done_view

_ONE: Final[Labels] = ()
_CAUSES: Final = ("orderly", "operator", "unclean", "preempted")  # of a reboot, from `deciding/startup.py`

Number = float | None


def metrics_view(sources: Sources) -> list[Family]:
    """Every family, some of them without samples. For a dead daemon: `up 0` and the values from the journal."""
    return [
        *_daemon(sources),
        *_record(sources),
        *_offsite(sources),
        *_host(sources),
        *_gpus(sources),
        *_levels(sources),
        *program_metrics(sources),
    ]


def _gauge(name: str, help_: str, value: Number, *, kind: Literal["gauge", "counter"] = "gauge") -> Family:
    return Family(PREFIX + name, kind, help_, samples=[] if value is None else [(_ONE, value)])


def _by(name: str, help_: str, label: str, found: Iterable[tuple[str, Number]]) -> Family:
    samples = [((key,), value) for key, value in found if value is not None]
    return Family(PREFIX + name, "gauge", help_, (label,), samples)


# --- the daemon and its record --------------------------------------------------------------------------------------------


def _daemon(sources: Sources) -> Iterator[Family]:
    state, alive = sources.state, sources.alive
    yield _gauge("up", "1 while the daemon runs; 0 comes from supervisorctl metrics alone, when the daemon is dead", alive)
    version = sources.version
    build = [] if version is None else [((version,), 1.0)]
    yield Family(f"{PREFIX}build", "info", "version of the daemon", ("version",), build)
    started_s = state.daemon_since_wall_s if alive else None
    yield _gauge("daemon_start_time_seconds", "when the daemon started, since the epoch", started_s)
    decided_s = sources.wall_s if alive else None
    yield _gauge("daemon_turn_time_seconds", "when its loop last decided, since the epoch", decided_s)
    yield _gauge(
        "daemon_loop_gap_seconds", "longest time between two turns of the loop, of the last one to two minutes",
        sources.worst_gap_s,
    )  # fmt: skip
    settings = sources.settings
    price = None if settings is None else settings.cost.usd_per_hour
    yield _gauge("price_dollars_per_hour", "price of an hour of the box, in US dollars ([cost] usd_per_hour)", price)
    paid = "time since the first start of extralife here, downtime included"
    yield _gauge("journal_time_seconds", paid, sources.now_s)


def _record(sources: Sources) -> Iterator[Family]:
    state, memory, alive = sources.state, sources.memory, sources.alive
    writable = float(memory.trouble is None) if alive else None
    yield _gauge("journal_writable", "0 while the journal cannot be written: then nothing is started", writable)
    damages = "how often the journal lost facts to damage: after that, counts are lower bounds"
    yield _gauge("journal_damages", damages, state.gaps, kind="counter")
    trouble = float(len(troubles_view(memory))) if alive else None
    yield _gauge("troubles", "files and directories that the daemon relies on and that are in trouble", trouble)
    yield _gauge("configuration_refused", "1 while the configuration cannot be used", float(state.config is not None))
    yield _gauge("level_vetoes", "pre-checks that forbid a level just now", float(len(state.vetoes)))
    for record in (getattr(state, name) for name in sorted(RECORDS) if hasattr(RECORDS[name], "metrics")):
        for name, help_, value, is_count in record.metrics():
            yield _gauge(name, help_, value, kind="counter" if is_count else "gauge")


def _offsite(sources: Sources) -> Iterator[Family]:
    """Metrics of copies off the box; without a repository they have no samples."""
    found = offsite_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s) or {}
    copied, failures = found.get("copied") or {}, found.get("failures")
    late = float(found["late"]) if found else None
    fenced = float(found["fence"] is not None) if found else None
    yield _gauge("offsite_copy_age_seconds", "since the files of the newest copy off the box", found.get("age_s"))
    yield _gauge("offsite_copy_size_bytes", "of the newest copy off the box", copied.get("size_bytes"))
    yield _gauge("offsite_copy_late", "1 while the newest copy off the box is older than [offsite] late_s", late)
    yield _gauge("offsite_failures", "attempts to copy off the box that have failed since the newest copy", failures)
    yield _gauge("offsite_fenced", "1 while another box has taken over: no program runs here", fenced)
    end = when_done_view(sources.state, sources.settings, sources.memory, now_s=sources.now_s, wall_s=sources.wall_s) or {}
    yield _gauge("when_done_seconds", "until this box is stopped, because its work is over", end.get("left_s"))


# --- the box ---------------------------------------------------------------------------------------------------------------


def _host(sources: Sources) -> Iterator[Family]:
    state, memory = sources.state, sources.memory
    box = box_view(state, now_s=sources.now_s, boot_at_s=memory.boot_at_s)
    up_s = box["boot_up_s"] if sources.alive else None
    yield _gauge(
        "host_boot_time_seconds", "when the box booted, since the epoch", None if up_s is None else sources.wall_s - up_s
    )
    causes = {**dict.fromkeys(_CAUSES, 0), **state.reboots_by_cause}
    reboots = [((cause,), float(count)) for cause, count in causes.items()]
    yield Family(f"{PREFIX}host_reboots", "counter", "reboots of the box on record, by cause", ("cause",), reboots)
    yield _gauge("host_mtbf_seconds", "mean time between unclean reboots", box["mtbf_s"])
    last = box["last_reboot"]
    yield _gauge("host_last_down_seconds", "how long the box was down at its newest reboot", last and last["down_s"])
    for series in HOST.series:
        name, scale = _base(series.name, series.unit)
        value = None if memory.host is None else getattr(memory.host, series.name)
        yield _gauge(f"host_{name}", series.help, None if value is None else value * scale)
    for name, help_, of in _MORE_OF_THE_HOST:
        yield _gauge(f"host_{name}", help_, None if memory.host is None else of(memory.host))


_MORE_OF_THE_HOST: Final[tuple[tuple[str, str, Callable[[Host], Number]], ...]] = (
    ("memory_bytes", "memory that this box may use", lambda host: host.memory_bytes),
    ("swap_bytes", "swap", lambda host: host.swap_bytes),
    ("cpu_cores", "processor cores", lambda host: host.cores),
)


def _base(name: str, unit: str) -> tuple[str, float]:
    """(name with its base unit, factor from a series of the recorder to that unit)."""
    if unit == "%":
        return f"{name}_ratio", 0.01
    suffix = {"°C": "celsius", "W": "watts", "bytes": "bytes"}[unit]
    return f"{name.removesuffix('_c').removesuffix('_w').removesuffix('_bytes')}_{suffix}", 1.0


def _gpus(sources: Sources) -> Iterator[Family]:
    found, record = sources.memory.gpus, sources.state.gpus
    gpus = () if found is None else found.gpus or ()
    known = None if found is None else float(found.gpus is not None)
    yield _gauge("gpus_readable", "1 while the GPUs can be read", known)
    yield _gauge("gpus", "GPUs that this boot of the box has", record.count)
    yield _gauge("gpus_most", "the most GPUs that this box ever had", record.most)
    about = [((str(gpu.index), gpu.uuid, gpu.name), 1.0) for gpu in gpus]
    yield Family(f"{PREFIX}gpu", "info", "which GPU it is", ("gpu", "uuid", "name"), about)
    series = {each.name: each for each in GPUS.series}
    for name, of in _OF_A_GPU.items():
        named, scale = _base(name, series[name].unit)
        values = ((str(gpu.index), value * scale) for gpu in gpus if (value := of(gpu)) is not None)
        yield _by(f"gpu_{named}", series[name].help, "gpu", values)
    for name, help_, of in _MORE_OF_A_GPU:
        yield _by(f"gpu_{name}", help_, "gpu", ((str(gpu.index), of(gpu)) for gpu in gpus))


_OF_A_GPU: Final[dict[str, Callable[[Gpu], Number]]] = {
    "used_bytes": lambda gpu: (
        None if gpu.total_bytes is None or gpu.free_bytes is None else gpu.total_bytes - gpu.free_bytes
    ),
    "utilisation": lambda gpu: gpu.utilisation,
    "temperature_c": lambda gpu: gpu.temperature_c,
    "power_w": lambda gpu: gpu.power_w,
}
_MORE_OF_A_GPU: Final[tuple[tuple[str, str, Callable[[Gpu], Number]], ...]] = (
    ("up", "0 when the GPU is lost: it fell off the bus or needs a reset", lambda gpu: float(not gpu.lost)),
    ("memory_bytes", "memory of the GPU", lambda gpu: gpu.total_bytes),
    ("power_limit_watts", "limit of the power drawn", lambda gpu: gpu.power_limit_w),
    ("ecc_errors", "uncorrected memory errors since the driver was loaded", lambda gpu: gpu.ecc_errors),
    (
        "clocks_held",
        "1 while its clocks are held back",
        lambda gpu: None if gpu.reasons is None else float(bool(gpu.reasons)),
    ),
)


# --- levels ----------------------------------------------------------------------------------------------------------------


def _levels(sources: Sources) -> Iterator[Family]:
    state = sources.state
    climb = climb_view(state, sources.settings, now_s=sources.now_s)
    yield _gauge("slots", "programs that may run at once at the level in force", state.slots)
    yield _gauge("level_trial", "1 while the level in force is on trial", float(climb["trial"]))
    yield _gauge("level_pinned", "1 while the operator has pinned a level", float(climb["pin"] is not None))
    for name, help_, of in _OF_A_LEVEL:
        yield _by(f"level_{name}", help_, "level", ((level["name"], of(level)) for level in climb["levels"]))


_OF_A_LEVEL: Final[tuple[tuple[str, str, Callable[[Json], Number]], ...]] = (
    ("in_force", "1 for the level in force", lambda level: float(level["in_force"])),
    ("up_seconds", "time that the box was up at this level", lambda level: level["up_s"]),
    ("reboots", "unclean reboots at this level; a climbing box weighs them, so they need not be whole",
     lambda level: level["reboots"]),
    ("mtbf_seconds", "mean time between unclean reboots at this level", lambda level: level["mtbf_s"]),
    ("mtbf_bound_seconds", "it is at least this long, at 90 %", lambda level: level["mtbf_bound_s"]),
    ("kept_steps_per_second", "environment steps kept a second, of all programs",
     lambda level: None if level["steps_per_min"] is None else level["steps_per_min"] / 60.0),
    ("failed_trials", "trials of this level that failed", lambda level: level["failed_trials"]),
    ("next_trial_seconds", "time until its next trial", lambda level: level["next_trial_s"]),
    ("vetoed", "1 while it is forbidden", lambda level: float(bool(level["veto"]))),
)  # fmt: skip
