"""Backups: when one is made, and how a rollback works.

A backup is made on request (`extralifectl backup`), when it is due by the calendar, before the first trial of a level, and
before a change of the configured level (`before_level`). The intent is a fact; a thread that may block makes the backup;
the outcome is another fact. After a kill of the daemon, the next daemon begins the backup again.

The steps of a rollback: intended -> the backup is verified (a damaged one is refused, nothing changes) -> begun: its
programs save and exit, and none of them starts -> their present state becomes a backup, and the files of the chosen backup
take its place -> they resume. The journal records each step, so the next daemon continues after any crash; the steps of the
thread can be repeated without harm (`adapters/copies/store.py`).
"""

from __future__ import annotations

from typing import Final

from supervisor.deciding.attempts import send_away
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import AlertRow, Feature
from supervisor.features.backups import rules as rule
from supervisor.features.backups.messages import (
    Backup,
    BackupChecked,
    BackupDue,
    BackupMade,
    BackupRestored,
    CheckBackup,
    RestoreBackup,
)
from supervisor.features.backups.record import BackupRecord, Begun, Rollback
from supervisor.features.backups.settings import BackupSettings
from supervisor.model import commands, facts
from supervisor.model.codes import FAILED, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Held
from supervisor.policy.upkeep.alarm import WARNING
from supervisor.policy.upkeep.calendars import is_due

_CHARS_KEPT = 500


def on_asked(context: DecisionContext, item: Asked) -> None:
    """Handle `backup` and `rollback`. The reply comes at once, with the name under which the outcome is recorded."""
    if context.state.stopping:
        result = (item.text or item.verb.value, SHUTDOWN_STATE, "extralife is shutting down")
    elif item.verb is Verb.BACKUP:
        names = item.names or tuple(sorted(context.state.programs))
        result = (begin(context, rule.OPERATOR, item.text, names, why=f"{item.by} requested it"), SUCCESS, "started")
    elif (rollback := context.state.of(BackupRecord).rollback) is not None:
        under_way = rollback.backup
        result = (item.text, FAILED, f"a rollback to {under_way} is under way; wait for its end")
    else:
        kept_as = rule.name_of(context.wall_s, "before rollback", context.state.of(BackupRecord).names)
        who = ", ".join(item.names) or "every program in it"
        why = f"{item.by} requested a rollback of {who} to backup {item.text}; extralife verifies it first"
        context.record(facts.RollbackIntended(why, item.text, item.names, kept_as, item.by))
        result = (item.text, SUCCESS, kept_as)
    context.command(commands.Reply(item.request_id, (result,)))


def on_due(context: DecisionContext, item: BackupDue) -> None:
    """A time of the calendar has passed: make its backup unless there is one already."""
    known = context.state.of(BackupRecord).due_wall_s
    began_wall_s = context.state.daemon_since_wall_s
    due = is_due(item.due_wall_s, newest_due_wall_s=known, began_wall_s=began_wall_s, now_wall_s=context.wall_s)
    if due and context.state.programs:
        names = tuple(sorted(context.state.programs))
        begin(context, rule.CALENDAR, "", names, why="due by the calendar", due_wall_s=item.due_wall_s)


def before_level(context: DecisionContext, level: str, trial: bool) -> str | None:
    """Begin the backup before a level's first trial or before a change of the configured level.

    Returns the backup's name; None: not due. A trial counts as the level's first until one of its backups is complete: after
    a failed backup, the next trial makes another. Later trials need none: twenty in a night would read every checkpoint
    twenty times, and their backups would displace the first one.
    Nothing waits for the backup: the copied checkpoints are complete, and those of the new level come later.
    """
    names = tuple(sorted(name for name, program in context.state.programs.items() if program.attempts))
    label, record = f"before {level}", context.state.of(BackupRecord)
    known = trial and (label in record.tried or any(each.label == label for each in record.making))
    if not context.settings.of(BackupSettings).before_level or not names or known:
        return None
    why = f"{level} is tried for the first time" if trial else f"the level becomes {level}"
    return begin(context, rule.LEVEL, label, names, why=why)


def begin(
    context: DecisionContext, cause: str, label: str, programs: tuple[str, ...], *, why: str, due_wall_s: float | None = None
) -> str:
    """Record the intent of a backup. Returns its name."""
    taken = context.state.of(BackupRecord).names
    name = rule.name_of(context.wall_s, label or ("" if cause == rule.OPERATOR else cause), taken)
    context.record(facts.BackupIntended(f"backup {name}: {why}", name, label, cause, programs, due_wall_s))
    return name


# --- outcomes -------------------------------------------------------------------------------------------------------


def on_made(context: DecisionContext, item: BackupMade) -> None:
    making = next((each for each in context.state.of(BackupRecord).making if each.name == item.name), None)
    if making is None:
        return
    _forget(context, item.name)
    if item.error:
        context.record(facts.BackupFailed(f"backup {item.name} failed: {item.error}", item.name, item.error))
        return
    size = f"{item.size_bytes / 1e6:,.1f} MB"
    gone = f"; older ones removed: {', '.join(item.removed)}" if item.removed else ""
    count = f"{len(item.steps)} program{'' if len(item.steps) == 1 else 's'}"
    without = [name for name in making.programs if name not in item.steps and name not in item.missed]
    none_yet = f"; no checkpoint yet of {', '.join(without)}" if without else ""
    is_whole = f"lacks {', '.join(item.missed)}" if item.missed else "is complete"
    missed = "".join(f"; {name} could not be saved: {why[:_CHARS_KEPT]}" for name, why in item.missed.items())
    why = f"backup {item.name} {is_whole}: {count}, {size} ({item.method}){missed}{none_yet}{gone}"
    context.record(facts.BackedUp(why, item.name, item.steps, item.size_bytes, item.method, item.removed, item.missed))


def on_checked(context: DecisionContext, item: BackupChecked) -> None:
    """The backup was verified: begin the rollback, or refuse it. Nothing has been changed so far."""
    rollback = _present(context, item.kept_as)
    if rollback is None or rollback.begun:
        return
    programs = tuple(name for name in item.programs if name in context.state.programs)
    _forget(context, item.kept_as)
    error = item.error or ("" if programs else "it contains none of the configured programs")
    if error:
        why = f"refused the rollback to {rollback.backup}: {error}; nothing was changed"
        context.record(facts.RollbackFailed(why, rollback.backup, error, {}))
        return
    message = f"backup {rollback.backup} is complete: rolling back {', '.join(programs)}"
    context.record(facts.RollbackBegun(message, rollback.backup, programs))


_WAIT_FOR_IT: Final = (Phase.BACKOFF, Phase.DONE, Phase.FATAL, Phase.EXITED)


def on_restored(context: DecisionContext, item: BackupRestored) -> None:
    """The rollback has ended: its programs may start again, also those that were DONE or FATAL and were rolled back."""
    rollback = _present(context, item.kept_as)
    if rollback is None or not rollback.begun:
        return
    _forget(context, item.kept_as)
    if item.error:
        so_far = f"; already rolled back: {', '.join(sorted(item.steps))}" if item.steps else "; nothing was changed"
        why = f"the rollback to {rollback.backup} failed: {item.error}{so_far}"
        context.record(facts.RollbackFailed(why, rollback.backup, item.error, item.steps))
    else:
        steps = {name: "" if step is None else f" at step {step:,}" for name, step in sorted(item.steps.items())}
        where = ", ".join(f"{name}{step}" for name, step in steps.items())
        kept = f"; the state before it is backup {item.kept_as}" if item.kept else ""
        why = f"rolled back to {rollback.backup}: {where}{kept}"
        context.record(facts.RolledBackTo(why, rollback.backup, item.steps, item.kept_as if item.kept else ""))
    for name in sorted(item.steps):
        program = context.state.programs.get(name)
        if program is not None and program.wanted and program.phase in _WAIT_FOR_IT:
            context.record(facts.Requeued(f"resumes from backup {rollback.backup}", name))


def _present(context: DecisionContext, kept_as: str) -> Rollback | None:
    """The rollback under way, if it has this name."""
    rollback = context.state.of(BackupRecord).rollback
    return rollback if rollback is not None and rollback.kept_as == kept_as else None


# --- commands ----------------------------------------------------------------------------------------------------


def pursue(context: DecisionContext) -> None:
    """At the end of every turn: give each command that the state requires and this daemon has not given yet."""
    if context.state.stopping or context.memory.ended:
        return
    rollback = context.state.of(BackupRecord).rollback
    spare = () if rollback is None else (rollback.backup,)
    for each in context.state.of(BackupRecord).making:
        _once(context, each.name, Backup(each.name, each.label, each.cause, each.programs, spare))
    if rollback is None:
        return
    if not rollback.begun:
        check = CheckBackup(rollback.backup, rollback.programs, rollback.kept_as)
        _once(context, f"check {rollback.kept_as}", check)
        return
    why = f"waits for the rollback to backup {rollback.backup}"
    send_away(context, "rollback", why, by=rollback.by, names=rollback.programs)
    if context.state.live.keys().isdisjoint(rollback.programs):
        _once(context, rollback.kept_as, RestoreBackup(rollback.backup, rollback.programs, rollback.kept_as))


def _once(context: DecisionContext, key: str, command: commands.Command) -> None:
    begun = context.memory.of(Begun).names
    if key not in begun:
        context.remember(Begun(begun | {key}))
        context.command(command)


def _forget(context: DecisionContext, key: str) -> None:
    context.remember(Begun(context.memory.of(Begun).names - {key, f"check {key}"}))


def _held(context: DecisionContext) -> Held | None:
    """The checkpoints of programs are being replaced."""
    rollback = context.state.of(BackupRecord).rollback
    if rollback is None or not rollback.begun:
        return None
    return Held("backups", f"waits for the rollback to backup {rollback.backup}", rollback.programs)


FEATURE = Feature(
    turn=50, section="backup", record="backups", pursue=pursue, held=_held, before_level=before_level,
    brings_work=lambda context: context.state.of(BackupRecord).rollback is not None,  # its programs train again afterwards
    alerts=(
        AlertRow(facts.BackupFailed, "backup", WARNING),
        AlertRow(facts.BackedUp, "backup", WARNING, lambda _, fact: fact.missed),
    ),
    requests={Verb.BACKUP: on_asked, Verb.ROLLBACK: on_asked},
    inputs={BackupChecked: on_checked, BackupDue: on_due, BackupMade: on_made, BackupRestored: on_restored},
)  # fmt: skip
