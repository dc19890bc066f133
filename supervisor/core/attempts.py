"""Starting attempts and drawing the consequences of their end."""

from __future__ import annotations

from dataclasses import replace

from supervisor.core import commands, facts
from supervisor.core.inputs import Ended, Ending, Report, SpawnBroke, SpawnSucceeded
from supervisor.core.lifecycle import HAS_PROCESS, Phase
from supervisor.core.settings import Progress
from supervisor.core.state import Attempt, Program
from supervisor.core.turn import Turn
from supervisor.policy import restart
from supervisor.policy.diagnosis import Diagnosis, diagnose

_HOLDS_SLOT_S = 30.0  # a restart due within this keeps its slot; a longer wait hands it on
_GRACE_S = 20.0  # for a program that has left the config, and its own setting with it
_TERM = "SIGTERM"


# --- slots -------------------------------------------------------------------------------------------------------------


def fill_slots(turn: Turn) -> None:
    """Give free slots away. Those running stay; then what is due or queued, by priority, then by how long it waited.

    Example, two slots: Pong runs, Breakout died and is due in 4 s (it keeps its slot), Qbert is queued: nothing starts.
    Had Breakout's breaker opened (next trial in 30 min), Qbert would start now.
    """
    if turn.state.stopping or turn.memory.ended:
        return
    _shed(turn)
    free = turn.settings.level.slots - sum(1 for program in turn.state.programs.values() if _holds_slot(turn, program))
    ready = [program for program in turn.state.programs.values() if _wants_start(turn, program)]
    for program in sorted(ready, key=lambda p: (_priority(turn, p), p.since_s, p.name)):
        if _holds_slot(turn, program):
            _spawn(turn, program)  # due, and its slot was kept for it
        elif free > 0:
            free -= 1
            _spawn(turn, program)
        elif program.phase is Phase.BACKOFF:
            turn.record(facts.Requeued("its restart is due, but no slot is free", program.name))


def _shed(turn: Turn) -> None:
    """Fewer slots than running programs (the level was lowered): ask the least important to save and leave."""
    holders = [p for p in turn.state.programs.values() if p.attempt is not None and p.attempt.stop is None]
    over = len(holders) - turn.settings.level.slots
    for program in sorted(holders, key=lambda p: (-_priority(turn, p), -p.since_s, p.name))[: max(0, over)]:
        stop(turn, program, reason="slot", by="extralife", why=f"level {turn.settings.level.name} has fewer slots")


def _holds_slot(turn: Turn, program: Program) -> bool:
    if program.phase in HAS_PROCESS:
        return True
    if program.phase is not Phase.BACKOFF or program.slow or program.retry_at_s is None:
        return False
    return program.retry_at_s - turn.now_s <= _HOLDS_SLOT_S and program.retry_at_s - program.since_s <= _HOLDS_SLOT_S


def _wants_start(turn: Turn, program: Program) -> bool:
    if not program.wanted or turn.spec(program.name) is None:
        return False
    if program.phase is Phase.BACKOFF:
        return program.retry_at_s is not None and program.retry_at_s <= turn.now_s
    return program.phase is Phase.QUEUED


def _priority(turn: Turn, program: Program) -> int:
    spec = turn.spec(program.name)
    return spec.priority if spec is not None else 0


def _spawn(turn: Turn, program: Program) -> None:
    spec = turn.spec(program.name)
    if spec is None:
        return
    number = program.attempts + 1
    token = turn.token(program.name, number)
    why = program.why if program.phase is Phase.BACKOFF else f"a slot of level {turn.settings.level.name} is free"
    turn.record(facts.SpawnIntended(why, program.name, token, number, spec.digest, turn.settings.level.name))
    turn.command(commands.Spawn(spec, number, token))
    set_control(turn, program.name, token)


def set_control(turn: Turn, name: str, token: str, *, leave_by_s: float | None = None) -> None:
    """Write the attempt's control record from what is known now. The programs' saves are staggered evenly."""
    interval_s = turn.state.programs[name].interval_s or turn.settings.checkpoint.first_s
    names = sorted(turn.state.programs)
    offset_s = interval_s * names.index(name) / len(names)
    saves = turn.memory.saves.get(name, 0)
    turn.command(commands.SetControl(name, token, interval_s, offset_s, saves, leave_by_s))


def on_spawned(turn: Turn, item: SpawnSucceeded) -> None:
    found = turn.live(item.program, item.token)
    if found is None:
        return
    why = f"attempt {found[1].number} runs as pid {item.pid}"
    turn.record(
        facts.Spawned(why, item.program, item.token, item.pid, item.start_ticks, item.shim_pid, item.shim_start_ticks)
    )
    spec = turn.spec(item.program) or commands.orphan_spec(item.program)
    turn.command(commands.Watch(spec, found[1].number, item.token, item.pid, item.start_ticks))
    if found[1].stop is not None:  # asked to stop while it was being started
        turn.command(commands.SendSignal(item.program, item.token, _TERM))


def on_spawn_broke(turn: Turn, item: SpawnBroke) -> None:
    """No process came of it. What can never work is given up; anything else is a death like any other."""
    found = turn.live(item.program, item.token)
    if found is None:
        return
    program, attempt = found
    turn.record(facts.SpawnFailed(item.error, item.program, item.token, item.error, item.permanent))
    if attempt.stop is not None:
        _after_stop(turn, program, attempt.stop.reason)
    elif item.permanent:
        turn.record(facts.GaveUp(f"{item.error}; it is tried again when the config changes or on `start`", item.program))
        turn.settle(item.program, 50, item.error)
    else:
        _back_off_unstarted(turn, item.program, item.error)
    fill_slots(turn)


def _back_off_unstarted(turn: Turn, name: str, error: str) -> None:
    """Fork or disk trouble is the box's, not the program's: wait a little longer each time, hold nothing against it."""
    doublings = min(turn.state.programs[name].spawn_failures - 1, 16)
    delay_s = min(turn.settings.restart.max_delay_s, turn.settings.restart.base_delay_s * 2.0**doublings)
    why = f"could not be started: {error}; next try in {delay_s:g} s"
    turn.record(facts.BackedOff(why, name, turn.now_s + delay_s, delay_s, slow=False))


# --- stopping ------------------------------------------------------------------------------------------------------------


def stop(turn: Turn, program: Program, *, reason: str, by: str, why: str, grace_s: float | None = None) -> None:
    """Ask an attempt to checkpoint and leave; the kill follows by itself when the grace is over."""
    attempt = program.attempt
    if attempt is None:
        return
    if attempt.stop is not None and attempt.stop.reason == reason:
        return
    spec = turn.spec(program.name)
    if grace_s is None:
        grace_s = _GRACE_S if spec is None else spec.stop_grace_s
    turn.record(facts.StopIntended(why, program.name, attempt.token, reason, by, grace_s))
    set_control(turn, program.name, attempt.token, leave_by_s=turn.now_s + grace_s)
    turn.command(commands.SendSignal(program.name, attempt.token, "SIGCONT"))
    turn.command(commands.SendSignal(program.name, attempt.token, _TERM))


# --- the end -------------------------------------------------------------------------------------------------------------


def on_ended(turn: Turn, item: Ended) -> None:
    found = turn.live(item.program, item.token)
    if found is None:
        return
    finish(turn, found[0], found[1], item.ending)
    fill_slots(turn)


def finish(turn: Turn, program: Program, attempt: Attempt, ending: Ending) -> None:
    """Record the end of an attempt, and what follows from it."""
    name = program.name
    for report in ending.reports:
        on_report(turn, name, attempt.token, report)
    spec = turn.spec(name)
    verdict = diagnose(
        code=ending.code,
        signal=ending.signal,
        stop_reason=attempt.stop.reason if attempt.stop is not None else None,
        stall=attempt.stall,
        done_codes=spec.done_codes if spec is not None else (0,),
        contract=spec is None or spec.builtin or spec.progress is Progress.BEAT,
        last_lines=ending.last_lines,
        fate=ending.fate,
    )
    why = verdict.why + (f"; {len(ending.leftovers)} left-over processes ended" if ending.leftovers else "")
    turn.record(
        facts.Exited(
            why, name, attempt.token, verdict.cause, ending.code, ending.signal, ending.steps, ending.ckpt_step,
            ending.leftovers, ending.last_lines if verdict.counted or verdict.cause == "config" else (),
            verdict.counted, ending.max_rss_bytes,
        )
    )  # fmt: skip
    turn.memory = turn.memory.forget(name, attempt.token)
    turn.command(commands.Forget(name, attempt.token))
    _follow(turn, turn.state.programs[name], attempt, verdict)


def _follow(turn: Turn, program: Program, attempt: Attempt, verdict: Diagnosis) -> None:
    name = program.name
    if turn.spec(name) is None:
        turn.record(facts.ProgramRemoved("it is no longer in the config", name))
        turn.settle(name)
    elif attempt.stop is not None and attempt.stop.reason != "stall":
        _after_stop(turn, program, attempt.stop.reason)
    elif not program.wanted:
        turn.record(facts.StayedDown("the operator wants it down", name))
        turn.settle(name)
    elif verdict.cause == "done":
        turn.record(facts.Finished(verdict.why, name))
        turn.settle(name, 40, "finished")
    elif verdict.cause == "config":
        turn.record(facts.GaveUp(f"{verdict.why}; it is tried again when the config changes or on `start`", name))
        turn.settle(name, 50, verdict.why)
    elif verdict.counted:
        _after_death(turn, program, verdict)
    else:
        turn.record(facts.Requeued(verdict.why, name))


def _after_stop(turn: Turn, program: Program, reason: str) -> None:
    if reason == "operator" or not program.wanted:
        turn.record(facts.StayedDown("stopped by the operator", program.name))
    else:
        turn.record(facts.Requeued(_AFTER_STOP.get(reason, f"left as asked ({reason})"), program.name))
    turn.settle(program.name)


_AFTER_STOP = {
    "restart": "restarted by the operator",
    "config": "restarted with its changed configuration",
    "shutdown": "goes on when extralife does",
    "slot": "handed its slot on",
}


def _after_death(turn: Turn, program: Program, verdict: Diagnosis) -> None:
    """Quarantine a poisonous checkpoint, then ask the restart policy when to try again."""
    name, settings = program.name, turn.settings.restart
    if not program.quarantined_since_ckpt and restart.is_poison(settings, program.death_resumes, program.ckpt_step):
        why = (
            f"{settings.poison_deaths} deaths in a row after resuming from step {program.ckpt_step}: the one before is tried"
        )
        turn.record(facts.CheckpointQuarantined(why, name, "", program.ckpt_step))
        turn.command(commands.QuarantineCheckpoint(name, program.ckpt_step))
    after = restart.after_death(
        settings, now_s=turn.now_s, deaths_s=program.deaths_s, streak=program.streak, openings=program.openings
    )
    why = f"{verdict.why}; {after.why}"
    turn.record(facts.BackedOff(why, name, turn.now_s + after.delay_s, after.delay_s, after.slow))
    turn.settle(name, 40, verdict.why)


# --- what workers report ---------------------------------------------------------------------------------------------------

_REPORTS_KEPT = 50  # an attempt that reports in a loop must not fill the journal


def on_report(turn: Turn, name: str, token: str, report: Report) -> None:
    """Reports are read again when an attempt ends and after a daemon's restart: each must count once."""
    found = turn.live(name, token)
    if found is None:
        return
    program, attempt = found
    if report.kind in {"resumed", "from_scratch"}:
        if attempt.resumed_step is None:
            step = report.fields.get("step", 0)
            _resumed(turn, program, token, step if isinstance(step, int) and step >= 0 else 0)
        if report.kind == "resumed":
            return
    if report.kind == "checkpoint_bad":
        path, error = str(report.fields.get("path", "?")), str(report.fields.get("error", "?"))
        if path not in program.bad_checkpoints:
            turn.record(facts.CheckpointBad(f"{path} was set aside: {error}", name, token, path, error))
        return
    _other_report(turn, name, token, report)


def _resumed(turn: Turn, program: Program, token: str, step: int) -> None:
    lost = None if program.steps is None else max(0, program.steps - step)
    rate = turn.memory.rates.get(program.name)
    lost_s = lost / rate if lost is not None and rate else None
    after = f" after {program.exit_cause}" if program.exit_cause else ""
    if lost is None:
        why = f"resumed at step {step:,}{after}" if step else "begins at step 0"
    else:
        why = f"resumed at step {step:,}{after}, {lost:,} steps lost"
    turn.record(facts.Resumed(why, program.name, token, step, lost, lost_s, program.exit_cause))


def _other_report(turn: Turn, name: str, token: str, report: Report) -> None:
    told = turn.memory.told.get(token, ())
    seen = f"{report.kind} {report.fields.get('at_ns')}"
    if len(told) >= _REPORTS_KEPT or seen in told:
        return
    turn.memory = replace(turn.memory, told={**turn.memory.told, token: (*told, seen)})
    text = ", ".join(f"{key}: {value}" for key, value in sorted(report.fields.items()) if key != "at_ns")[:500]
    turn.record(facts.Reported(f"the worker reports {report.kind}: {text}", name, token, report.kind, text))
