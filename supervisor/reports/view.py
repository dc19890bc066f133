"""The programs on the page `status`: plain dicts made from the state, the newest readings and the settings.

A dead daemon has no readings, so live values are then unknown. None is "not known" and is shown as such, never as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.formats import span
from supervisor.model.inputs import Sample
from supervisor.model.settings import ProgramSpec, Progress, Settings
from supervisor.model.state import Attempt, Program, State
from supervisor.policy.script.finish import BACKGROUND, REMEDY
from supervisor.policy.script.service_health import Checked
from supervisor.policy.worker.health import WORDS
from supervisor.policy.worker.loss import furthest
from supervisor.policy.worker.restart import recent_deaths
from supervisor.policy.worker.stall import NOT_HEALED
from supervisor.policy.worker.witness import WORDS as WITNESSES
from workers.contract import FIGURES

Json = dict[str, Any]
_SHARE = "share_"  # prefix of figures that show how a training spends its time
_SHOWN = tuple(name for name, figure in FIGURES.items() if figure.title)


def program_views(
    state: State, samples: Mapping[str, Sample], settings: Settings | None, *, now_s: float
) -> tuple[Json, ...]:
    views = list[Json]()
    for name, program in sorted(state.programs.items()):
        sample, attempt = samples.get(name), program.attempt
        if sample is not None and (attempt is None or sample.token != attempt.token):
            sample = None
        views.append(program_view(program, sample, settings, state, now_s=now_s))
    return tuple(views)


def program_view(program: Program, sample: Sample | None, settings: Settings | None, state: State, *, now_s: float) -> Json:
    attempt = program.attempt
    spec = settings.program(program.name) if settings is not None else None
    figures: Mapping[str, float] = sample.figures if sample else {}
    deaths = () if settings is None else recent_deaths(settings.restart, now_s, program.deaths.at_s)
    ckpt_step, ckpt_at_s, ckpt_bytes, ckpt_path = _newest_checkpoint(program, sample)
    steps = _known(sample.steps if sample else None, furthest(program.steps, ckpt_step))
    return {
        "name": program.name,
        "game": (spec.game or None) if spec else None,
        "phase": program.phase.value,
        "service": program.service,
        "wanted": "run" if program.wanted else "stop",
        "pid": attempt.pid if attempt else None,
        "attempt": program.attempts,
        "since_wall_s": program.since_wall_s,
        "uptime_s": now_s - attempt.intended_at_s if attempt else None,
        "worker_phase": sample.phase if sample else None,
        "level": state.level,
        "steps": steps,
        "frames": sample.frames if sample else None,
        "updates": figures.get("updates"),
        "episodes": sample.episodes if sample else None,
        "mean_return": figures.get("mean_return", program.mean_return) if sample or not attempt else None,
        **{name: figures.get(name) for name in _SHOWN},
        "steps_per_s": sample.steps_per_s if sample else None,
        "target": sample.target if sample else None,
        "target_kind": sample.target_kind if sample else None,
        "ckpt_step": ckpt_step,
        "ckpt_age_s": None if ckpt_at_s is None else max(0.0, now_s - ckpt_at_s),
        "ckpt_bytes": ckpt_bytes,
        "ckpt_path": ckpt_path,
        "ckpt_note": _own_trouble(sample),
        "interval_s": program.interval_s,
        "restarts": program.restarts,
        "deaths_in_window": len(deaths),
        "retry_in_s": None if program.retry.at_s is None else max(0.0, program.retry.at_s - now_s),
        "slow_retry": program.retry.slow,
        "eta_s": eta_s(sample),
        "why": _why(program, sample, now_s),
        "trouble": "no_gpu" if program.waits_for_gpu else _trouble(program.attempt, sample),
        "proc_state": sample.proc_state if sample else None,
        "num_envs": sample.num_envs if sample else None,
        "batch_size": sample.batch_size if sample else None,
        "lowered_batch": program.at(state.level).batch_size,
        "rollbacks": program.rollbacks,
        "rss_bytes": sample.rss_bytes if sample else None,
        "pressure": dict(sample.pressure) if sample and sample.pressure else None,
        "memory_bytes": sample.memory_bytes if sample else None,
        "stdout_log": _log(settings, program.name, spec, "stdout"),
        "stderr_log": _log(settings, program.name, spec, "stderr"),
        "group": (spec.group if spec else "") or program.name,
        "priority": spec.priority if spec else None,
        "autostart": spec.autostart if spec else None,
        "spawn_error": program.starts.error,
        "exit_code": program.exit.code,
        "started_wall_s": program.started_wall_s,
        "ended_wall_s": program.exit.wall_s,
        "time_shares": {name.removeprefix(_SHARE): figures[name] for name in figures if name.startswith(_SHARE)} or None,
        "test_return": figures.get("test_return"),
        "progress_source": _source(spec, sample),
        "quiet_s": _quiet_s(program, sample, now_s),
        "health": None if spec is None or spec.health is None else _health(sample, now_s),
        "figures": (sample.own_figures() or None) if sample else None,
    }


def _log(settings: Settings | None, name: str, spec: ProgramSpec | None, channel: str) -> str | None:
    """The path of a channel's log; None: there is no log, or it is not known."""
    if settings is None:
        return None
    return settings.paths.log(name, channel) if spec is None else settings.paths.log_of(spec, channel)


def _newest_checkpoint(program: Program, sample: Sample | None) -> tuple[int | None, float | None, int | None, str | None]:
    """(step, time, bytes, path) of the newest checkpoint: from the worker's report, its own files, or the record."""
    if sample is not None and sample.ckpt_count:
        return _known(sample.ckpt_step, program.ckpt.step), _known(sample.ckpt_at_s, program.ckpt.at_s), None, None
    own = sample.own if sample else None
    if own is not None and own.path:
        return own.step, own.saved_at_s, own.size_bytes, own.path
    return program.ckpt.step, program.ckpt.at_s, program.ckpt.size_bytes, program.ckpt.path or None


def _source(spec: ProgramSpec | None, sample: Sample | None) -> str | None:
    """The source of its signs of progress. If the configuration leaves it open, this is the source in use now."""
    if spec is None or spec.progress is not Progress.AUTO:
        return None if spec is None else spec.progress.value
    return sample.source or None if sample else None


def _health(sample: Sample | None, now_s: float) -> Json:
    """The results of the health checks of a service. `ok` is None while it is not known."""
    found = sample.health if sample is not None and sample.health is not None else Checked()
    known = not found.unknown and (found.failures > 0 or found.ok_at_s is not None)
    return {
        "ok": found.failures == 0 if known else None,
        "failures": found.failures,
        "error": found.unknown or found.error,
        "ok_age_s": None if found.ok_at_s is None else max(0.0, now_s - found.ok_at_s),
    }


def _quiet_s(program: Program, sample: Sample | None, now_s: float) -> float | None:
    """Seconds since the last sign of progress of a program that works without showing any; None: it is not quiet."""
    attempt = program.attempt
    if attempt is None or attempt.quiet_at_s is None or sample is None:
        return None
    since_s = attempt.intended_at_s if sample.progress_at_s is None else sample.progress_at_s
    return now_s - since_s if since_s < attempt.quiet_at_s else None


def spec_view(spec: ProgramSpec, settings: Settings, *, in_use: bool) -> Json:
    """The configuration of one program; `in_use`: it is supervised now."""
    return {
        "name": spec.name,
        "group": spec.group or spec.name,
        "in_use": in_use,
        "argv": list(spec.argv),
        "directory": spec.directory,
        "priority": spec.priority,
        "autostart": spec.autostart,
        "done_codes": list(spec.done_codes),
        "stop_grace_s": spec.stop_grace_s,
        "start_timeout_s": spec.start_timeout_s,
        "window_deaths": settings.restart.window_deaths,
        "stdout_log": settings.paths.log_of(spec, "stdout"),
        "stderr_log": settings.paths.log_of(spec, "stderr"),
        "log_max_bytes": settings.log_max_bytes(spec),
        "log_backups": settings.log_backups(spec),
        "start_s": spec.start_s,
        "start_retries": spec.start_retries,
        "stop_signal": spec.stop_signal,
        "redirect_stderr": spec.redirect_stderr,
        "user": spec.user,
        "socket": settings.paths.socket,
    }


def eta_s(sample: Sample | None) -> float | None:
    """Seconds to the target at the present rate; None while target or rate are unknown.

    Example: 40,000 of 100,000 steps, 500 steps/s: 120 s.
    """
    if sample is None or sample.target is None:
        return None
    if sample.target_kind == "seconds_left":
        return float(sample.target)
    left = steps_left(sample) if sample.steps else None
    return left / sample.steps_per_s if left is not None and sample.steps_per_s else None


def steps_left(sample: Sample) -> float | None:
    """Steps to the target; None while it is unknown. Episodes are converted with the steps per episode so far."""
    if sample.target is None or sample.steps is None:
        return None
    if sample.target_kind == "env_steps":
        return max(0.0, float(sample.target) - sample.steps)
    if sample.target_kind == "episodes" and sample.episodes and sample.steps:
        return max(0.0, float(sample.target) - sample.episodes) * sample.steps / sample.episodes
    return None


def _known(newest: Any, recorded: Any) -> Any:
    return recorded if newest is None else newest


def _trouble(attempt: Attempt | None, sample: Sample | None) -> str | None:
    """The trouble of a live attempt in one word; None: no trouble."""
    if attempt is None:
        return None
    unended = ("unended", attempt.stop is not None and attempt.stop.not_ended)
    stalled, unsaved = ("stalled", attempt.stall), ("unsaved", attempt.save_error)
    background = ("background", attempt.rest == BACKGROUND)
    untouchable = ("untouchable", sample is not None and sample.untouchable)
    ill, slow = ("ill", attempt.illnesses), ("slow", attempt.slow)
    found = (unended, stalled, unsaved, background, ill, slow, untouchable)
    return next((word for word, seen in found if seen), None)


def _own_trouble(sample: Sample | None) -> str:
    """The trouble with checkpoints that the program writes itself; empty: none, or they are not checked."""
    return "" if sample is None or sample.own is None else sample.own.error or sample.own.note


def _why(program: Program, sample: Sample | None, now_s: float) -> str:
    """The reason that matters most right now."""
    quiet_s = _quiet_s(program, sample, now_s)
    trouble = "" if program.attempt is None else _words_of_trouble(program.attempt)
    if trouble:
        return trouble
    if sample is not None and sample.untouchable:
        return f"extralife may not signal {', '.join(sample.untouchable)}: it cannot end it"
    if sample is not None and sample.halted:
        return (
            f"a process of its tree does not run: {', '.join(f'{each} (state {each.proc_state})' for each in sample.halted)}"
        )
    own = _own_trouble(sample)
    if own:
        return f"its checkpoints: {own}"
    if sample is not None and sample.status and sample.status != sample.phase:
        return sample.status
    if sample is not None and sample.health is not None and sample.health.failures:
        times = "" if sample.health.failures == 1 else f", {sample.health.failures} times in a row"
        return f"its health check failed{times}: {sample.health.error}"
    if quiet_s is not None and sample is not None:
        return f"quiet for {span(quiet_s)}, but {WITNESSES.get(sample.witness, 'it works')}"
    if sample is not None and sample.unread:
        return f"its figures are not known: {sample.unread}"
    return program.why


def _words_of_trouble(attempt: Attempt) -> str:
    """The recorded trouble of a live attempt, as a clause; empty: no trouble."""
    if attempt.stop is not None and attempt.stop.not_ended:
        return attempt.stop.not_ended
    if attempt.stall is not None:
        return f"stalled ({attempt.stall}), {NOT_HEALED.get(attempt.stall, 'being healed')}"
    if attempt.save_error:
        return f"training, but cannot save: {attempt.save_error}"
    if attempt.illnesses:
        return f"training, but {' and '.join(WORDS.get(ill, ill) for ill in attempt.illnesses)}: see explain"
    slow = attempt.slow
    if slow is not None and slow.step is not None:
        return f"no step beyond {slow.step:,} for long, although it works: see explain"
    if slow is not None:
        return slow.words if slow.anew else "training, but at less than half of its usual rate"
    return f"its command has left, and its work goes on in the background: {REMEDY}" if attempt.rest == BACKGROUND else ""
