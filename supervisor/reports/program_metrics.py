"""Metrics of programs: states, counters, and every figure that a worker reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Final, Literal

from supervisor.model.inputs import Sample
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.state import Attempt, Program
from supervisor.records import Record
from supervisor.reports.exposition import PREFIX, Family
from supervisor.reports.sources import Sources
from supervisor.reports.view import eta_s
from workers.contract import FIGURES

_PHASES: Final = tuple(Phase)

Number = float | None


class _ProgramReading(Record):
    """One program at one moment. `sample` is the newest one of its present attempt; None: there is none."""

    program: Program
    sample: Sample | None
    now_s: float
    alive: bool


def program_metrics(sources: Sources) -> Iterator[Family]:
    """A family for each row of the tables below, and the ends of attempts by cause."""
    memory = sources.memory
    readings = [
        ((name,), _ProgramReading(program, _newest(memory, program), sources.now_s, sources.alive))
        for name, program in sorted(sources.state.programs.items())
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


def _newest(memory: Memory, program: Program) -> Sample | None:
    watch = None if program.attempt is None else memory.watch(program.name, program.attempt.token)
    return None if watch is None else watch.sample


def _alive(of: Callable[[Program], float]) -> Callable[[_ProgramReading], Number]:
    """A value that is unknown when the daemon is dead."""
    return lambda reading: float(of(reading.program)) if reading.alive else None


def _seen(of: Callable[[Sample], Number]) -> Callable[[_ProgramReading], Number]:
    return lambda reading: None if reading.sample is None else of(reading.sample)


def _running(of: Callable[[Attempt], float]) -> Callable[[_ProgramReading], Number]:
    """A value that exists only while the program has an attempt."""
    return lambda reading: None if reading.program.attempt is None else of(reading.program.attempt)


def _age_s(reading: _ProgramReading) -> Number:
    """Age of its newest checkpoint."""
    sample, program = reading.sample, reading.program
    at_s = sample.ckpt_at_s if sample is not None and sample.ckpt_count else None
    at_s = program.ckpt_at_s if at_s is None else at_s
    return None if at_s is None else max(0.0, reading.now_s - at_s)


def _idle_s(reading: _ProgramReading) -> Number:
    """Time since its newest sign of progress."""
    at_s = None if reading.sample is None else reading.sample.progress_at_s
    return None if at_s is None else max(0.0, reading.now_s - at_s)


def _retry_s(reading: _ProgramReading) -> Number:
    at_s = reading.program.retry_at_s
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
    ("slow_retry", "1 while it fails again and again and is tried seldom", _alive(lambda program: program.slow)),
    ("next_start_seconds", "time until its next start", _retry_s),
    ("start_time_seconds", "when its attempt started, since the epoch",
     lambda reading: reading.program.started_wall_s if reading.program.attempt is not None else None),
    ("stalled", "1 while its worker makes no progress",
     _running(lambda attempt: attempt.stall is not None)),
    ("unhealthy", "1 while its training is unhealthy: explain says how",
     _running(lambda attempt: bool(attempt.illnesses))),
    ("slow", "1 while it trains at less than half of its usual rate, or stands still",
     _running(lambda attempt: attempt.slow_at_s is not None)),
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
        reading.program.ckpt_step if reading.sample is None or not reading.sample.ckpt_count else reading.sample.ckpt_step
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
