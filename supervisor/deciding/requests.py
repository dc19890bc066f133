"""Requests of the operator, updates of the config, and the orderly end.

Every request is safe in every phase and is answered with Supervisor's fault codes: 80 success, 10 no such program,
60 already started, 70 not running. A program that the operator stopped stays stopped over daemon restarts and reboots.
"""

from __future__ import annotations

from supervisor.deciding import backups, levels, offsite
from supervisor.deciding.attempts import fill_slots, stop
from supervisor.deciding.reconcile import reconcile
from supervisor.deciding.turn import Turn
from supervisor.model import commands, facts
from supervisor.model.codes import ALREADY_STARTED, BAD_NAME, NOT_RUNNING, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, ConfigFaulty, ConfigLoaded, Terminated, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Pending
from supervisor.model.settings import SECTIONS, ProgramSpec, Settings
from supervisor.model.state import Program
from supervisor.records import replace

Result = tuple[str, int, str]
_MOST_ERRORS = 5  # in one sentence


def on_asked(turn: Turn, item: Asked) -> None:
    """One request; it is answered now, or by `Turn.settle` once its programs have reached the requested state."""
    if item.verb in {Verb.PIN, Verb.UNPIN}:
        levels.on_asked(turn, item)
        return
    turn.record(
        facts.OperatorAsked(
            f"{item.by} requested {item.verb.value}",
            item.verb.value,
            (*item.names, *(word for word in (item.signal, item.text) if word)),
            item.uid,
        )
    )
    if item.verb in {Verb.BACKUP, Verb.ROLLBACK}:
        backups.on_asked(turn, item)
        return
    if item.verb is Verb.OFFSITE:
        offsite.on_asked(turn, item)
        return
    if item.verb in {Verb.SHUTDOWN, Verb.RELOAD}:
        turn.command(commands.Reply(item.request_id, ()))
        _end(turn, by=item.by, keep_workers=item.verb is Verb.RELOAD, why=f"{item.by} requested {item.verb.value}")
        return
    if turn.state.stopping:
        results = tuple((name, SHUTDOWN_STATE, "extralife is shutting down") for name in item.names)
        turn.command(commands.Reply(item.request_id, results))
        return
    if item.verb is Verb.CLEAR:
        _clear(turn, item)
        return
    now: list[Result] = []
    waiting: list[str] = []
    for name in item.names:
        program = turn.state.programs.get(name)
        result = (name, BAD_NAME, "no such program") if program is None else _one(turn, program, item)
        if result is None:
            waiting.append(name)
        else:
            now.append(result)
    if waiting:
        text = "started" if item.verb is Verb.RESTART else "stopped"
        pending = Pending(item.request_id, tuple(waiting), tuple(now), text)
        turn.memory = replace(turn.memory, pending=(*turn.memory.pending, pending))
    else:
        turn.command(commands.Reply(item.request_id, tuple(now)))
    fill_slots(turn)


def _one(turn: Turn, program: Program, item: Asked) -> Result | None:
    match item.verb:
        case Verb.START:
            return _start(turn, program, item.by)
        case Verb.STOP:
            return _stop(turn, program, item.by)
        case Verb.RESTART:
            return _restart(turn, program, item.by)
        case _:
            return _signal(turn, program, item.signal)


def _start(turn: Turn, program: Program, by: str) -> Result:
    name = program.name
    if program.phase in {Phase.STARTING, Phase.RUNNING}:
        return (name, ALREADY_STARTED, "already started")
    turn.record(facts.Wanted(f"started by {by}", name, run=True, by=by))
    if program.phase is Phase.STOPPING:
        return (name, SUCCESS, "will be started once it has exited")
    turn.record(facts.Requeued(f"started by {by}", name))
    return (name, SUCCESS, "started")


def _stop(turn: Turn, program: Program, by: str) -> Result | None:
    name = program.name
    if program.phase is Phase.STOPPED:
        return (name, NOT_RUNNING, "not running")
    turn.record(facts.Wanted(f"stopped by {by}", name, run=False, by=by))
    if program.attempt is not None:
        stop(turn, *turn.present(name), reason="operator", by=by, why=f"stopped by {by}")
        return None
    turn.record(facts.StayedDown(f"stopped by {by}", name))
    return (name, SUCCESS, "stopped")


def _restart(turn: Turn, program: Program, by: str) -> Result | None:
    name = program.name
    turn.record(facts.Wanted(f"restarted by {by}", name, run=True, by=by))
    if program.attempt is not None:
        stop(turn, *turn.present(name), reason="restart", by=by, why=f"restarted by {by}")
        return None
    turn.record(facts.Requeued(f"restarted by {by}", name))
    return (name, SUCCESS, "started")


def _signal(turn: Turn, program: Program, signal: str) -> Result:
    if program.attempt is None or program.attempt.pid is None:
        return (program.name, NOT_RUNNING, "not running")
    turn.command(commands.SendSignal(program.name, program.attempt.token, signal))
    return (program.name, SUCCESS, "signalled")


def _clear(turn: Turn, item: Asked) -> None:
    """Empty logs: a thread that may block does it and answers."""
    known = tuple((name, turn.settings.logs(name)) for name in item.names if name in turn.state.programs)
    strangers = tuple((name, BAD_NAME, "no such program") for name in item.names if name not in turn.state.programs)
    turn.command(commands.ClearLogs(item.request_id, known, strangers))


# --- the end ---------------------------------------------------------------------------------------------------------------


def on_terminated(turn: Turn, item: Terminated) -> None:
    """SIGTERM: systemd stops the service, or the host shuts down. All workers save and exit, in parallel.

    Jobs of a cluster stay: they do not run on this host, and the next daemon adopts them. `shutdown` ends them too.
    """
    if turn.settings.launcher.remote:
        _end(turn, by=item.by, keep_workers=True, why=f"{item.by}: the jobs go on", reexec=False)
        return
    turn.memory = replace(turn.memory, host_ends=turn.memory.host_ends or item.host)
    _end(turn, by=item.by, keep_workers=False, why=f"{item.by}: orderly shutdown")


def _end(turn: Turn, *, by: str, keep_workers: bool, why: str, reexec: bool = True) -> None:
    if turn.state.stopping or turn.memory.ended:
        return
    turn.record(facts.DaemonStopping(why, keep_workers, by))
    if keep_workers:
        turn.memory = replace(turn.memory, ended=True)
        turn.command(commands.EndDaemon(reexec=reexec))
        return
    for name in turn.state.live:
        stop(turn, *turn.present(name), reason="shutdown", by=by, why=why)


def end_if_empty(turn: Turn) -> None:
    """When the last worker has exited, record it, then end the daemon."""
    if turn.state.stopping and not turn.state.live and not turn.memory.ended and not offsite.holds_end(turn):
        turn.record(
            facts.DaemonStopped("every worker has stopped in order" if turn.state.programs else "no worker was running")
        )
        turn.memory = replace(turn.memory, ended=True)
        turn.command(commands.EndDaemon(reexec=False))


# --- the config ------------------------------------------------------------------------------------------------------------


def on_config(turn: Turn, item: ConfigLoaded) -> None:
    """Apply a checked configuration. Programs without a change are left alone."""
    turn.record(facts.OperatorAsked(f"{item.by} requested update", "update", item.only, item.uid))
    if item.of_file and turn.state.config is not None:
        turn.record(facts.ConfigMended(f"the configuration is valid again: {item.by} requested update"))
    turn.settings = merged(turn.settings, item.settings, item.only)
    levels.settle_in(turn)
    reconcile(turn, why="the configuration was updated")
    fill_slots(turn)
    if item.request_id:
        turn.command(commands.Reply(item.request_id, (("", SUCCESS, ""),)))


def on_config_fault(turn: Turn, item: ConfigFaulty) -> None:
    """Record why a configuration is refused; this raises an alert. The settings stay."""
    more = len(item.errors) - _MOST_ERRORS
    mistakes = "; ".join(item.errors[:_MOST_ERRORS]) + (f"; and {more} more" if more > 0 else "")
    if item.in_use:
        why = f"started with the last good configuration ({item.in_use}), because the present one cannot be used: {mistakes}"
    else:
        why = f"{item.by} asked to load a configuration that cannot be used, so the present one stays: {mistakes}"
    turn.record(facts.ConfigRefused(why, item.errors, item.in_use, item.by))


def merged(old: Settings, new: Settings, only: tuple[str, ...]) -> Settings:
    """`new` for the programs and sections (`[level]`) that `only` names, `old` for the others; no names: all of `new`."""
    if not only:
        return new
    sections = {section: getattr(new, section) for section in SECTIONS if f"[{section}]" in only}
    base = new if only_load(only) else old
    ladder = tuple(replace(rung, programs=_mixed(old, new, rung.level.name, only)) for rung in base.ladder)
    if only_load(only):  # the three belong together
        sections |= {"level": new.level, "load": new.load}
    programs = _mixed(old, new, base.level.name, only)
    return replace(old, programs=programs, ladder=ladder, **sections)


def only_load(only: tuple[str, ...]) -> bool:
    return not {"[level]", "[levels]", "[load]"}.isdisjoint(only)


def _mixed(old: Settings, new: Settings, level: str, only: tuple[str, ...]) -> tuple[ProgramSpec, ...]:
    """The programs at one level: those in `only` as the new settings have them, as far as these know the level."""
    before = old if old.place(level) is not None else new
    after = new if new.place(level) is not None else old
    kept = tuple(spec for spec in before.at(level).programs if spec.name not in only)
    taken = tuple(spec for spec in after.at(level).programs if spec.name in only)
    return tuple(sorted((*kept, *taken), key=lambda spec: (spec.priority, spec.name)))
