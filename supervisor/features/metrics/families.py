"""Metrics for monitoring: one family per metric, from the state and the newest readings. Pure; docs/alerts.md lists all.

Counters come from the journal's fold alone, so none of them falls when the daemon or the box starts again. An unknown value
is absent, never 0. Labels come from closed sets (programs, levels, GPUs, causes), never from reasons, paths or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final, Literal

from supervisor.features.metrics.exposition import PREFIX, Family, Labels
from supervisor.model.fold import RECORDS
from supervisor.model.inputs import Sample
from supervisor.model.lifecycle import Phase
from supervisor.model.state import Attempt, Program
from supervisor.policy.box.readings import OF_A_GPU, OF_THE_HOST, Gpu, Host
from supervisor.records import Record
from supervisor.reports import climb_view
from supervisor.reports.added import added
from supervisor.reports.sources import Json, Sources
from supervisor.reports.status_view import box_view, troubles_view
from supervisor.reports.view import eta_s
from workers.contract import FIGURES

_ONE: Final[Labels] = ()
_CAUSES: Final = ("orderly", "operator", "unclean", "preempted")  # of a reboot, from `deciding/startup.py`

Number = float | None


def metrics_view(sources: Sources) -> list[Family]:
    """Every family, some of them without samples. For a dead daemon: `up 0` and the values from the journal."""
    return [
        *_daemon(sources),
        *_record(sources),
        *(_gauge(*each) for feature in added() for each in feature.gauges(sources)),
        *_host(sources),
        *_gpus(sources),
        *_levels(sources),
        *_programs(sources),
    ]


def _gauge(name: str, help_: str, value: Number, *, kind: Literal["gauge", "counter"] = "gauge") -> Family:
    return Family(PREFIX + name, kind, help_, samples=[] if value is None else [(_ONE, value)])


def _by(name: str, help_: str, label: str, found: Iterable[tuple[str, Number]]) -> Family:
    samples = [((key,), value) for key, value in found if value is not None]
    return Family(PREFIX + name, "gauge", help_, (label,), samples)


# --- the daemon and its record --------------------------------------------------------------------------------------------


def _daemon(sources: Sources) -> Iterator[Family]:
    state, alive = sources.state, sources.alive
    yield _gauge("up", "1 while the daemon runs; 0 comes from extralifectl metrics alone, when the daemon is dead", alive)
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
    for reading, (unit, help_) in OF_THE_HOST.items():
        name, scale = _base(reading, unit)
        value = None if memory.host is None else getattr(memory.host, reading)
        yield _gauge(f"host_{name}", help_, None if value is None else value * scale)
    for name, help_, of in _MORE_OF_THE_HOST:
        yield _gauge(f"host_{name}", help_, None if memory.host is None else of(memory.host))


_MORE_OF_THE_HOST: Final[tuple[tuple[str, str, Callable[[Host], Number]], ...]] = (
    ("memory_bytes", "memory that this box may use", lambda host: host.memory_bytes),
    ("swap_bytes", "swap", lambda host: host.swap_bytes), ("cpu_cores", "processor cores", lambda host: host.cores),
)  # fmt: skip


def _base(name: str, unit: str) -> tuple[str, float]:
    """(name with its base unit, factor from the unit of a reading to that unit)."""
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
    for name, of in _OF_A_GPU.items():
        unit, help_ = OF_A_GPU[name]
        named, scale = _base(name, unit)
        values = ((str(gpu.index), value * scale) for gpu in gpus if (value := of(gpu)) is not None)
        yield _by(f"gpu_{named}", help_, "gpu", values)
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
    climb = climb_view.level(sources)
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


# --- programs: states, counters, and every figure that a worker reports ----------------------------------------------------


_PHASES: Final = tuple(Phase)


class _ProgramReading(Record):
    """One program at one moment. `sample` is the newest one of its present attempt; None: there is none."""

    program: Program
    sample: Sample | None
    now_s: float
    alive: bool


def _programs(sources: Sources) -> Iterator[Family]:
    """A family for each row of the tables below, and the ends of attempts by cause."""
    memory = sources.memory
    readings = [
        ((name,), _ProgramReading(program, None if watch is None else watch.sample, sources.now_s, sources.alive))
        for name, program in sorted(sources.state.programs.items())
        for watch in [memory.observed(program)]
    ]
    tables: tuple[tuple[Literal["gauge", "counter"], Rows], ...]
    tables = ("gauge", _GAUGES), ("counter", _COUNTERS), ("gauge", _FIGURES)
    for kind, rows in tables:
        for name, help_, of in rows:
            samples = [(key, value) for key, reading in readings if (value := of(reading)) is not None]
            yield Family(f"{PREFIX}program_{name}", kind, help_, ("program",), samples)
    ends = [
        ((key[0], cause), float(count)) for key, reading in readings for cause, count in reading.program.counts.ends.items()
    ]
    yield Family(f"{PREFIX}program_attempt_ends", "counter", "ended attempts, by cause", ("program", "cause"), ends)


def _alive(of: Callable[[Program], float]) -> Callable[[_ProgramReading], Number]:
    """A value that is unknown when the daemon is dead."""
    return lambda reading: float(of(reading.program)) if reading.alive else None


def _seen(of: Callable[[Sample], Number]) -> Callable[[_ProgramReading], Number]:
    return lambda reading: None if reading.sample is None else of(reading.sample)


def _running(of: Callable[[Attempt], float]) -> Callable[[_ProgramReading], Number]:
    """A value that exists only while the program has an attempt."""
    return lambda reading: None if reading.program.attempt is None else of(reading.program.attempt)


def _age_s(reading: _ProgramReading) -> Number:
    sample, program = reading.sample, reading.program
    at_s = sample.ckpt_at_s if sample is not None and sample.ckpt_count else None
    at_s = program.ckpt.at_s if at_s is None else at_s
    return None if at_s is None else max(0.0, reading.now_s - at_s)


def _idle_s(reading: _ProgramReading) -> Number:
    """Time since its newest sign of progress."""
    at_s = None if reading.sample is None else reading.sample.progress_at_s
    return None if at_s is None else max(0.0, reading.now_s - at_s)


def _retry_s(reading: _ProgramReading) -> Number:
    at_s = reading.program.retry.at_s
    return None if at_s is None else max(0.0, at_s - reading.now_s)


_STATES: Final = ", ".join(f"{number} {phase.value}" for number, phase in enumerate(_PHASES))
Rows = Sequence[tuple[str, str, Callable[[_ProgramReading], Number]]]
_GAUGES: Final[Rows] = (
    ("up", "1 while it trains; for a service, while it runs", _alive(lambda program: program.phase is Phase.RUNNING)),
    ("service", "1 for a service, which trains nothing; absent for a training",
     lambda reading: 1.0 if reading.program.service else None),
    ("wanted", "1 when it should run; 0 when the operator has stopped it", _alive(lambda program: program.wanted)),
    ("fatal", "1 when it was given up: it needs a person", _alive(lambda program: program.phase is Phase.FATAL)),
    ("done", "1 when it has reached its target", _alive(lambda program: program.phase is Phase.DONE)),
    ("state", f"its state as a number: {_STATES}", _alive(lambda program: _PHASES.index(program.phase))),
    ("slow_retry", "1 while it fails again and again and is tried seldom", _alive(lambda program: program.retry.slow)),
    ("next_start_seconds", "time until its next start", _retry_s),
    ("start_time_seconds", "when its attempt started, since the epoch",
     lambda reading: reading.program.started_wall_s if reading.program.attempt is not None else None),
    ("stalled", "1 while its worker makes no progress",
     _running(lambda attempt: attempt.stall is not None)),
    ("unhealthy", "1 while its training is unhealthy: explain says how",
     _running(lambda attempt: bool(attempt.illnesses))),
    ("slow", "1 while it trains at less than half of its usual rate, or stands still",
     _running(lambda attempt: attempt.slow is not None)),
    ("save_failing", "1 while its checkpoints cannot be written",
     _running(lambda attempt: attempt.save_error != "")),
    ("progress_age_seconds", "time since its worker's newest sign of progress", _idle_s),
    ("checkpoint_age_seconds", "age of its newest durable checkpoint", _age_s),
    ("checkpoint_interval_seconds", "how often it is asked to save", lambda reading: reading.program.interval_s),
    ("remaining_seconds", "time to its target at the present speed", lambda reading: eta_s(reading.sample)),
    ("memory_bytes", "memory of its cgroup, page cache included", _seen(lambda sample: sample.memory_bytes)),
)  # fmt: skip
_COUNTERS: Final[Rows] = (
    ("attempts", "starts of its worker", lambda reading: reading.program.attempts),
    ("restarts", "restarts after a death that counts against it", lambda reading: reading.program.restarts),
    ("rollbacks", "rollbacks to an older checkpoint, after a divergence or an illness",
     lambda reading: reading.program.rollbacks),
    ("environment_steps", "environment steps on record, lost ones included; a record comes every ten minutes or sooner",
     lambda reading: reading.program.counts.computed_steps),
    ("lost_environment_steps", "environment steps that a resume took back",
     lambda reading: reading.program.counts.lost_steps),
    ("resumes_of_unknown_loss", "resumes with an unknown number of lost steps",
     lambda reading: reading.program.counts.lost_unknown),
)  # fmt: skip


# --- figures that a worker reports ---------------------------------------------------------------------------------------


# Names of metrics that differ from the name in the table of figures, because Prometheus' users expect another name or unit.
_NAMES: Final = {
    "env_steps": "position_steps", "nan_count": "nonfinite_updates", "ckpt_step": "checkpoint_position_steps",
    "ckpt_count": "attempt_checkpoints", "ckpt_bad_count": "attempt_bad_checkpoints",
    "resumed_step": "resumed_position_steps", "batch_size": "batch_transitions", "num_envs": "environments",
    "rss_bytes": "resident_memory_bytes", "cuda_bytes": "gpu_reserved_memory_bytes", "steps_per_s": "steps_per_second",
    "entropy": "entropy_nats", "entropy_share": "entropy_ratio", "ckpt_stall_us": "checkpoint_stall_seconds",
    "ckpt_write_ms": "checkpoint_write_seconds",
}  # fmt: skip
# Figures with another unit in a sample, or also on record.
_OTHERWISE: Final[dict[str, Callable[[_ProgramReading], Number]]] = {
    "env_steps": lambda reading: (
        reading.program.steps if reading.sample is None or reading.sample.steps is None else reading.sample.steps
    ),
    "ckpt_step": lambda reading: (
        reading.program.ckpt.step if reading.sample is None or not reading.sample.ckpt_count else reading.sample.ckpt_step
    ),
    "ckpt_stall_us": _seen(lambda sample: sample.ckpt_stall_s),
    "ckpt_write_ms": _seen(lambda sample: sample.ckpt_write_s),
}
_ELSEWHERE: Final = {"ckpt_ns"}  # the metric of the checkpoint's age replaces it


def _named(figure: str) -> str:
    share = f"time_{figure.removeprefix('share_')}_ratio" if figure.startswith("share_") else figure
    return _NAMES.get(figure, share)


def _of_sample(figure: str) -> Callable[[_ProgramReading], Number]:
    if figure in {each.name for each in fields(Sample)}:
        return _seen(lambda sample: getattr(sample, figure))
    return _seen(lambda sample: sample.figures.get(figure))


_FIGURES: Final[Rows] = tuple(
    (_named(name), figure.help, _OTHERWISE.get(name) or _of_sample(name))
    for name, figure in FIGURES.items() if name not in _ELSEWHERE
)  # fmt: skip
