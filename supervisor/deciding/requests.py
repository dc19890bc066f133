"""Requests of the operator, updates of the config, and the orderly end.

Every request is safe in every phase and is answered with Supervisor's fault codes: 80 success, 10 no such program,
60 already started, 70 not running. A program that the operator stopped stays stopped over daemon restarts and reboots.
"""

from __future__ import annotations

from supervisor.deciding import levels
from supervisor.deciding.attempts import fill_slots, stop
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.reconcile import beside_programs, reconcile
from supervisor.model import commands, facts
from supervisor.model.codes import ALREADY_STARTED, BAD_NAME, FAILED, NOT_RUNNING, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, ConfigFaulty, ConfigLoaded, Terminated, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Pending
from supervisor.model.settings import SECTIONS, ProgramSpec, Settings
from supervisor.model.state import Program
from supervisor.policy.script.finish import LEAVE_SIGNALS
from supervisor.policy.upkeep import copies
from supervisor.policy.upkeep.leaving import KILL_S, SAVES_S, Saving, leave_later
from supervisor.records import replace

Result = tuple[str, int, str]
_MOST_ERRORS = 5  # at most so many errors in one message


def on_asked(context: DecisionContext, item: Asked) -> None:
    """Handle one request: answer now, or by `DecisionContext.answer_waiting` once its programs have the requested state."""
    if item.verb in {Verb.PIN, Verb.UNPIN}:
        levels.on_asked(context, item)
        return
    context.record(
        facts.OperatorAsked(
            f"{item.by} requested {item.verb.value}",
            item.verb.value,
            (*item.names, *(word for word in (item.signal, item.text) if word)),
            item.uid,
        )
    )
    if (answer := context.requests.get(item.verb)) is not None:
        answer(context, item)
        return
    if item.verb in {Verb.SHUTDOWN, Verb.RELOAD}:
        context.command(commands.Reply(item.request_id, ()))
        if item.verb is Verb.SHUTDOWN:
            context.memory = replace(context.memory, last_copy=context.memory.last_copy or copies.OPERATOR)
        end(context, by=item.by, keep_workers=item.verb is Verb.RELOAD, why=f"{item.by} requested {item.verb.value}")
        return
    if context.state.stopping:
        results = tuple((name, SHUTDOWN_STATE, "extralife is shutting down") for name in item.names)
        context.command(commands.Reply(item.request_id, results))
        return
    if item.verb is Verb.CLEAR:
        # A thread empties the logs, which may block, and replies.
        known = tuple((name, context.settings.logs(name)) for name in item.names if name in context.state.programs)
        unknown = tuple((name, BAD_NAME, "no such program") for name in item.names if name not in context.state.programs)
        context.command(commands.ClearLogs(item.request_id, known, unknown))
        return
    if item.verb is Verb.SIGNAL:
        _signal(context, item)
        return
    now: list[Result] = []
    waiting: list[str] = []
    for name in item.names:
        program = context.state.programs.get(name)
        result = (name, BAD_NAME, "no such program") if program is None else _one(context, program, item)
        if result is None:
            waiting.append(name)
        else:
            now.append(result)
    if waiting:
        text = "started" if item.verb is Verb.RESTART else "stopped"
        pending = Pending(item.request_id, tuple(waiting), tuple(now), text)
        context.memory = replace(context.memory, pending=(*context.memory.pending, pending))
    else:
        context.command(commands.Reply(item.request_id, tuple(now)))
    fill_slots(context)


def _one(context: DecisionContext, program: Program, item: Asked) -> Result | None:
    if item.verb in {Verb.START, Verb.RESTART}:
        for refusal in context.hooks("refuses"):
            if why := refusal(context):
                return (program.name, FAILED, why)
    match item.verb:
        case Verb.START:
            return _start(context, program, item.by)
        case Verb.STOP:
            return _stop(context, program, item.by)
        case _:
            return _restart(context, program, item.by)


def _start(context: DecisionContext, program: Program, by: str) -> Result:
    name = program.name
    if program.phase in {Phase.STARTING, Phase.RUNNING}:
        return (name, ALREADY_STARTED, "already started")
    context.record(facts.Wanted(f"started by {by}", name, run=True, by=by))
    if program.phase is Phase.STOPPING:
        return (name, SUCCESS, "will be started once it has exited")
    context.record(facts.Requeued(f"started by {by}", name))
    return (name, SUCCESS, "started")


def _stop(context: DecisionContext, program: Program, by: str) -> Result | None:
    name = program.name
    if program.phase in {Phase.STOPPED, Phase.DONE}:
        return (name, NOT_RUNNING, "not running")
    context.record(facts.Wanted(f"stopped by {by}", name, run=False, by=by))
    if program.attempt is not None:
        return _leave(context, name, reason="operator", by=by, why=f"stopped by {by}")
    context.record(facts.StayedDown(f"stopped by {by}", name))
    return (name, SUCCESS, "stopped")


def _restart(context: DecisionContext, program: Program, by: str) -> Result | None:
    name = program.name
    context.record(facts.Wanted(f"restarted by {by}", name, run=True, by=by))
    if program.attempt is not None:
        return _leave(context, name, reason="restart", by=by, why=f"restarted by {by}")
    context.record(facts.Requeued(f"restarted by {by}", name))
    return (name, SUCCESS, "started")


def _leave(context: DecisionContext, name: str, *, reason: str, by: str, why: str) -> Result | None:
    """Ask its attempt to leave. One that SIGKILL has not ended gets another one, and the request its answer at once."""
    program, attempt = context.present(name)
    if attempt.stop is None or not attempt.stop.not_ended:
        stop(context, program, attempt, reason=reason, by=by, why=why)
        return None
    context.command(commands.KillTree(name, attempt.token))
    return name, FAILED, attempt.stop.not_ended


def _signal(context: DecisionContext, item: Asked) -> None:
    known: list[Result] = []
    sent: list[tuple[str, str]] = []
    for name in item.names:
        program = context.state.programs.get(name)
        if program is None or program.attempt is None or program.attempt.pid is None:
            known.append((name, BAD_NAME, "no such program") if program is None else (name, NOT_RUNNING, "not running"))
            continue
        watch = context.memory.watch(name, program.attempt.token)
        if watch is not None and item.signal in LEAVE_SIGNALS:
            context.keep_observation(name, replace(watch, signal=item.signal, signal_at_s=context.now_s))
        sent.append((name, program.attempt.token))
    if sent:
        context.command(commands.SendSignal(tuple(sent), item.signal, item.request_id, tuple(known)))
    else:
        context.command(commands.Reply(item.request_id, tuple(known)))


# --- the end ---------------------------------------------------------------------------------------------------------------


def on_terminated(context: DecisionContext, item: Terminated) -> None:
    """SIGTERM: systemd stops the service, or the host shuts down. All workers save and exit, in parallel."""
    if any(handled(context, item) for handled in context.hooks("terminated")):
        return
    cause = copies.REBOOT if item.host or context.memory.last_copy == copies.REBOOT else copies.STOP
    context.memory = replace(context.memory, last_copy=cause)
    if context.settings.daemon.stop_within_s and context.memory.ends_at_s is None:
        context.memory = replace(context.memory, ends_at_s=context.now_s + context.settings.daemon.stop_within_s)
    end(context, by=item.by, keep_workers=False, why=f"{item.by}: orderly shutdown")


def end(context: DecisionContext, *, by: str, keep_workers: bool, why: str, reexec: bool = True) -> None:
    if context.state.stopping or context.memory.ended:
        return
    context.record(facts.DaemonStopping(why, keep_workers, by))
    if keep_workers:
        context.memory = replace(context.memory, ended=True)
        context.command(commands.EndDaemon(reexec=reexec))
        return
    _ask_to_leave(context, by, why)


def _ask_to_leave(context: DecisionContext, by: str, why: str) -> None:
    """Ask the workers to leave: all, or if the box ends too soon for all saves, first those that lose most.

    The others are asked when these have left, at the latest at half of the time.
    """
    stops = {name: program.attempt.stop for name, program in context.state.live.items() if program.attempt is not None}
    ends_at_s, grace_s = context.memory.ends_at_s, None
    if ends_at_s is not None:
        left_s, half_s = ends_at_s - context.now_s, context.settings.daemon.stop_within_s / 2.0
        if left_s > half_s:
            if any(each is not None and each.reason == "shutdown" for each in stops.values()):
                return
            for name in leave_later(savings(context), ends_in_s=left_s):
                del stops[name]
                context.wake(ends_at_s - half_s)
        grace_s = max(0.0, left_s - KILL_S)
    for name in stops:
        spec = context.settings.program(name)
        most_s = grace_s if grace_s is None or spec is None else min(grace_s, spec.stop_grace_s)
        stop(context, *context.present(name), reason="shutdown", by=by, why=why, grace_s=most_s)


def end_if_empty(context: DecisionContext) -> None:
    """While the daemon stops: when the last worker has exited, or cannot be reached any more, record it and end."""
    attempts = [program.attempt for program in context.state.live.values()] if context.memory.ends_at_s is not None else []
    if any(attempt is not None and attempt.stop is None for attempt in attempts):
        _ask_to_leave(context, "extralife", "orderly shutdown: the workers that lose most have left first")
    waits = any(holds(context) for holds in context.hooks("holds_end"))
    stops = {name: each.attempt.stop for name, each in sorted(context.state.live.items()) if each.attempt is not None}
    if waits or not all(each is not None and each.not_ended for each in stops.values()):
        return
    left = "; ".join(f"{name}: {each.not_ended}" for name, each in stops.items() if each is not None)
    in_order = "every worker has stopped in order" if context.state.programs else "no worker was running"
    stopped(context, f"left running: {left}" if left else in_order)


def stopped(context: DecisionContext, why: str) -> None:
    context.record(facts.DaemonStopped(why))
    context.memory = replace(context.memory, ended=True)
    context.command(commands.EndDaemon(reexec=False))


def savings(context: DecisionContext) -> list[Saving]:
    """The programs that save on request (those with beats), with the time since the last save and the duration of one."""
    found = []
    for name, program in context.state.live.items():
        attempt, watch = program.attempt, context.memory.observed(program)
        if attempt is None or attempt.stop is not None or program.phase is not Phase.RUNNING or watch is None:
            continue
        sample = watch.sample
        if not context.beats(name, sample):
            continue
        saved_s = sample.ckpt_at_s if sample.ckpt_at_s is not None else attempt.intended_at_s
        known = [each for each in (sample.ckpt_stall_s, sample.ckpt_write_s) if each is not None]
        found.append(Saving(name, max(0.0, context.now_s - saved_s), sum(known) if known else SAVES_S))
    return found


# --- the config ------------------------------------------------------------------------------------------------------------


def on_config(context: DecisionContext, item: ConfigLoaded) -> None:
    """Apply a checked configuration. Programs without a change are left alone."""
    changed = [each for each in item.changed if not item.only or f"[{each[0].partition('.')[0]}]" in item.only]
    context.record(
        facts.OperatorAsked(f"{item.by} requested update{beside_programs(changed)}", "update", item.only, item.uid)
    )
    if item.of_file and context.state.config is not None:
        context.record(facts.ConfigMended(f"the configuration is valid again: {item.by} requested update"))
    before, context.settings = context.settings, merged(context.settings, item.settings, item.only)
    for configured in context.hooks("configured"):
        configured(context)
    levels.apply_level(context)
    reconcile(context, why="the configuration was updated", before=before, changed=item.changed)
    fill_slots(context)
    if item.request_id:
        context.command(commands.Reply(item.request_id, (("", SUCCESS, ""),)))


def on_config_fault(context: DecisionContext, item: ConfigFaulty) -> None:
    """Record why a configuration is refused; this raises an alert. The settings stay."""
    more = len(item.errors) - _MOST_ERRORS
    mistakes = "; ".join(item.errors[:_MOST_ERRORS]) + (f"; and {more} more" if more > 0 else "")
    if item.in_use:
        why = f"started with the last good configuration ({item.in_use}), because the present one cannot be used: {mistakes}"
    else:
        why = f"{item.by} asked to load a configuration that cannot be used, so the present one stays: {mistakes}"
    context.record(facts.ConfigRefused(why, item.errors, item.in_use, item.by))


def merged(old: Settings, new: Settings, only: tuple[str, ...]) -> Settings:
    """`new` for the programs and sections (`[level]`) that `only` names, `old` for the others; no names: all of `new`."""
    if not only:
        return new
    sections = {section: getattr(new, section) for section in SECTIONS if f"[{section}]" in only}
    base = new if only_load(only) else old
    ladder = tuple(replace(rung, programs=_mixed(old, new, rung.level.name, only)) for rung in base.ladder)
    if only_load(only):  # level, levels and load belong together
        sections |= {"level": new.level, "load": new.load}
    programs = _mixed(old, new, base.level.name, only)
    return replace(old, programs=programs, ladder=ladder, **sections)


def only_load(only: tuple[str, ...]) -> bool:
    return not {"[level]", "[levels]", "[load]"}.isdisjoint(only)


def _mixed(old: Settings, new: Settings, level: str, only: tuple[str, ...]) -> tuple[ProgramSpec, ...]:
    """The programs at one level: those in `only` from the new settings, if these have the level, the others from the old."""
    before = old if old.place(level) is not None else new
    after = new if new.place(level) is not None else old
    kept = tuple(spec for spec in before.at(level).programs if spec.name not in only)
    taken = tuple(spec for spec in after.at(level).programs if spec.name in only)
    return tuple(sorted((*kept, *taken), key=lambda spec: (spec.priority, spec.name)))
