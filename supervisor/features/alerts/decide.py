"""Alerts: which facts raise one, and how it reaches each target (`rules.py`).

An alert is a fact in the same transaction as the fact that raised it, so neither is recorded without the other. The alert
stays queued for a target until another fact records that the target accepted it. So a killed daemon, a reboot or a day
without a network loses no alert. Threads deliver it (`Deliver`), at least once; a receiver recognizes a repeated
alert by its id.

Without a target in the config there are no such facts: alerts then go only to systemd's journal (`WriteAlert`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Final

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import AlertRow, Feature
from supervisor.deciding.own_checkpoints import starts_over
from supervisor.features.alerts import rules as rule
from supervisor.features.alerts.messages import AlertTried, Deliver, ReportDue, WriteAlert
from supervisor.features.alerts.record import AlertRecord, Delivering, DeliveryState, Queued
from supervisor.features.alerts.settings import AlertSettings
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.state import Slowness, State
from supervisor.policy.box.prechecks import is_full
from supervisor.policy.script import service_health
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING, Notice
from supervisor.policy.upkeep.calendars import is_due
from supervisor.policy.worker.health import NO_LOSS, OFF_GPU
from supervisor.policy.worker.intervention import STILL, may_repeat
from supervisor.policy.worker.loss import IN_WORDS, Loss
from supervisor.policy.worker.restart import STARTS_BEFORE_ALERT
from supervisor.policy.worker.stall import LEFT_ALONE
from supervisor.printable import printable
from supervisor.records import Record, replace

_MOST_TEXT: Final = 1000
_MOST_REPORT: Final = 4000
_SEVERITY: Final = {"unclean": CRITICAL, "moved": WARNING, "preempted": WARNING}  # of a reboot alert, by cause of the reboot


class Alert(Record):
    """An alert before the rules decide whether to raise it, to hold it back or to ignore it."""

    kind: str
    severity: str
    program: str
    text: str


def pursue(context: DecisionContext) -> None:
    """Raise this turn's alerts and held alerts that are due, drop old alerts, and send each idle target its next alert."""
    raised: list[Alert] = []
    rows = _by_fact(context.alerts) if context.facts else {}  # most turns record nothing
    for fact in context.facts:
        for row in rows.get(type(fact), ()):
            if row.when(context, fact):
                name, text = getattr(fact, "program", ""), row.text(context, fact)
                severity = row.severity if isinstance(row.severity, str) else row.severity(fact)
                raised.append(Alert(row.kind, severity, name, f"{name}: {text}" if name else text))
    if any(isinstance(fact, _OF_GPUS) for fact in context.facts):
        raised += _of_gpus(context, context.before)
    found = [replace(alert, text=_shown(alert)) for alert in raised]
    for number, alert in enumerate(found):
        message = Notice(_id(context, -1 - number), alert.kind, alert.severity, alert.text, context.wall_s, alert.program)
        context.command(WriteAlert(message))
    if context.settings.of(AlertSettings).targets:
        for alert in found:
            _raise_or_hold(context, alert)
        _raise_due_held(context)
    if context.state.of(AlertRecord).queue and not context.memory.ended:
        _drop(context)
        _send(context)


def _shown(alert: Alert) -> str:
    """The alert's text, printable and of limited length. Only the daily report may have more than one line."""
    if alert.kind == rule.REPORT:
        return printable(alert.text, lines=True)[:_MOST_REPORT]
    return printable(alert.text)[:_MOST_TEXT]


def on_report(context: DecisionContext, item: ReportDue) -> None:
    """Record the daily report when its time has passed, once for each due time. A missed report is recorded late."""
    known, began_wall_s = context.state.of(AlertRecord).report_due_wall_s, context.state.daemon_since_wall_s
    due = is_due(item.due_wall_s, newest_due_wall_s=known, began_wall_s=began_wall_s, now_wall_s=context.wall_s)
    if context.settings.of(AlertSettings).report_at and due:
        why = f"the daily report of {context.settings.of(AlertSettings).report_at}"
        context.record(facts.ReportMade(why, item.text, item.due_wall_s))


def on_tried(context: DecisionContext, item: AlertTried) -> None:
    """Handle the result of one delivery: the target accepted the alert, or the delivery failed."""
    was = context.memory.of(Delivering).reaching.get(item.target)
    if was is None or was.sending != item.id:
        return
    if not item.error:
        context.record(facts.AlertDelivered(f"{item.target} accepted alert {item.id}", item.id, item.target))
        _remember(context, item.target, DeliveryState())
        return
    failures, error = was.failures + 1, printable(item.error)[:_MOST_TEXT]
    if item.target not in context.state.of(AlertRecord).failing:
        keeps = "" if item.unsure else "; extralife keeps them and tries again"
        context.record(facts.AlertTargetFailing(f"{item.target} does not accept alerts: {error}{keeps}", item.target, error))
    if item.unsure:
        why = f"{item.target} may have alert {item.id}, so it is not sent again: {error}"
        context.record(facts.AlertsDropped(why, item.target, (item.id,)))
    _remember(context, item.target, DeliveryState("", failures, context.now_s + rule.retry_s(failures)))


def notice(queued: Queued, dropped: int = 0) -> Notice:
    """Convert a queued alert into the `Notice` that a target receives."""
    return Notice(queued.id, queued.kind, queued.severity, queued.text, queued.wall_s, queued.program, queued.more, dropped)


# --- which facts raise an alert ---------------------------------------------------------------------------------------


def _rebooted(context: DecisionContext) -> bool:
    return any(isinstance(fact, facts.HostRebooted) for fact in context.facts)


def _reboot(context: DecisionContext, fact: facts.HostRebooted) -> str:
    """The content of the line in reboot_alerts.log, as one sentence."""
    alert = next(command for command in context.commands if isinstance(command, commands.AlertReboot))
    lost = [f"{name} {_steps(loss)} steps" for name, loss in sorted(alert.losses.items())]
    parts = [
        f"{fact.why}; it was up for {'?' if fact.up_s is None else span(fact.up_s)}, at level {fact.level or '?'}",
        f"lost: {', '.join(lost) or 'nothing'}",
        f"resuming: {', '.join(alert.resuming) or 'nothing'}",
        *([f"pattern: {alert.pattern}"] if alert.pattern else []),
    ]
    return "; ".join(parts)


def _steps(loss: Loss) -> str:
    if loss.steps is None:
        return "?"
    return f"{IN_WORDS[loss.bound]}{loss.steps:,}"


def damage_text(state: State) -> str:
    """Describe the newest damage of the journal and the lost facts; empty if no damage is recorded."""
    damage = state.damage
    if damage is None:
        return ""
    lost = "?" if damage.lost is None else damage.lost
    kept_as = f"it is kept as {damage.kept_as}" if damage.kept_as else "the damaged file is gone"
    return f"the journal was damaged ({damage.error}): {damage.kept} facts kept, {lost} lost; {kept_as}"


def _starts_over(context: DecisionContext, fact: facts.Resumed | facts.StartsFrom) -> bool:
    """Whether an attempt begins at step 0 although there was a checkpoint."""
    program = context.before.programs.get(fact.program)
    return program is not None and (
        starts_over(program, fact) if isinstance(fact, facts.StartsFrom) else fact.step == 0 and bool(program.ckpt.step)
    )


def _lacks_command(context: DecisionContext, fact: facts.SpawnFailed) -> bool:
    """Whether this start without a command is the one that is reported: a disk that is mounted late is there by then."""
    program = context.before.programs.get(fact.program) if fact.permanent else None
    return program is not None and program.starts.has_run and program.starts.failures + 1 == STARTS_BEFORE_ALERT


def _dies_again_and_again(context: DecisionContext, fact: facts.BackedOff) -> bool:
    """The breaker is open, or it never opens, because each attempt takes ten minutes to die: then at every eighth death."""
    streak = context.state.programs[fact.program].deaths.streak if fact.program in context.state.programs else 0
    return fact.slow or (streak > 0 and streak % context.settings.restart.window_deaths == 0)


def _is_new_damage(context: DecisionContext, _: facts.DaemonStarted) -> bool:
    damage, ever_s = context.before.damage, context.before.daemon_since_wall_s
    return damage is not None and (ever_s is None or damage.wall_s > ever_s)


def _left_after_reboot(context: DecisionContext, fact: facts.LevelChosen) -> bool:
    place, was = context.settings.place(fact.level), context.settings.place(fact.before)
    return _rebooted(context) and place is not None and was is not None and place < was


def _is_left_alone(context: DecisionContext, fact: facts.Slowed) -> bool:
    program = context.state.programs.get(fact.program)
    return fact.step is not None and program is not None and not may_repeat(program.interventions, STILL)


def _slowness(context: DecisionContext, fact: facts.Examined) -> Slowness | None:
    program = context.state.programs.get(fact.program)
    return None if program is None or program.attempt is None else program.attempt.slow


def _is_slower_anew(context: DecisionContext, fact: facts.Examined) -> bool:
    return (slow := _slowness(context, fact)) is not None and slow.anew


def _slower(context: DecisionContext, fact: facts.Examined) -> str:
    slow = _slowness(context, fact)
    return "" if slow is None else slow.words


_ROWS: Final = (
    AlertRow(facts.Resumed, "checkpoint", CRITICAL, _starts_over),
    AlertRow(
        facts.StartsFrom, "checkpoint", CRITICAL,
        lambda context, fact: fact.stale or fact.odd or _starts_over(context, fact),
    ),
    AlertRow(facts.CheckpointsOdd, "checkpoint", WARNING),
    AlertRow(
        facts.SpawnFailed, "breaker", CRITICAL, _lacks_command,
        lambda _, fact: f"{fact.why}; it ran before, so it is tried again",
    ),
    AlertRow(facts.GaveUp, "fatal", CRITICAL),
    AlertRow(facts.NotRestarted, "fatal", CRITICAL),
    AlertRow(facts.BackedOff, "breaker", CRITICAL, _dies_again_and_again),
    AlertRow(facts.Stalled, "unhealthy", WARNING, lambda _, fact: fact.stall == service_health.UNHEALTHY),
    AlertRow(facts.Slowed, "still", WARNING, lambda _, fact: fact.step is not None),
    AlertRow(facts.Stalled, "ailing", WARNING, lambda _, fact: fact.stall == LEFT_ALONE),
    AlertRow(facts.Slowed, "ailing", WARNING, _is_left_alone),
    AlertRow(facts.Examined, "ailing", WARNING, _is_slower_anew, _slower),
    AlertRow(facts.Sickened, "ailing", WARNING, lambda _, fact: fact.illness in {NO_LOSS, OFF_GPU}),
    AlertRow(facts.NotEnded, "unended", CRITICAL),
    AlertRow(facts.CommandGone, "background", WARNING, lambda _, fact: fact.background),
    AlertRow(facts.ResumeUnknown, "unproven", INFO),
    AlertRow(facts.CheckpointQuarantined, "quarantine", WARNING),
    AlertRow(facts.CheckpointsPutBack, "checkpoint", CRITICAL),
    AlertRow(facts.CheckpointFailed, "disk", CRITICAL, lambda _, fact: is_full(fact.error)),
    AlertRow(facts.CheckpointFailed, "checkpoint", CRITICAL, lambda _, fact: not is_full(fact.error)),
    AlertRow(facts.Finished, "finished", INFO, lambda _, fact: not fact.doubtful),
    AlertRow(facts.Finished, "fatal", WARNING, lambda _, fact: fact.doubtful),
    AlertRow(facts.ReportMade, rule.REPORT, INFO, text=lambda _, fact: fact.text),
    AlertRow(facts.HostRebooted, "reboot", lambda fact: _SEVERITY.get(fact.cause, INFO), text=_reboot),
    AlertRow(facts.DaemonStarted, "journal", CRITICAL, _is_new_damage, lambda context, _: damage_text(context.before)),
    AlertRow(facts.DaemonStarted, "daemon", WARNING, lambda context, fact: not fact.clean and not _rebooted(context)),
    AlertRow(
        facts.LevelChosen, "level", WARNING, _left_after_reboot,
        lambda _, fact: f"level {fact.before} was left for {fact.level}: {fact.why}",
    ),
    AlertRow(facts.JournalStalled, "disk", CRITICAL, lambda _, fact: is_full(fact.error)),
    AlertRow(facts.JournalStalled, "journal", CRITICAL, lambda _, fact: not is_full(fact.error)),
    AlertRow(facts.FoundationLost, "foundation", lambda fact: CRITICAL if fact.troubled else WARNING),
    AlertRow(facts.FoundationRestored, "foundation", INFO, lambda _, fact: fact.troubled),
    AlertRow(facts.ConfigRefused, "config", CRITICAL),
    AlertRow(facts.Vetoed, "disk", CRITICAL, lambda _, fact: fact.rule == "disk"),
)  # fmt: skip


@functools.cache
def _by_fact(of_features: tuple[AlertRow, ...]) -> dict[type[facts.Fact], list[AlertRow]]:
    rows = (*_ROWS, *of_features)
    return {row.of: [each for each in rows if each.of is row.of] for row in rows}


_OF_GPUS: Final = (facts.Gated, facts.XidReported, facts.GpusFound, facts.GpuLost, facts.GpusUnknown)


def _of_gpus(context: DecisionContext, before: State) -> Iterator[Alert]:
    """One alert for a lost GPU: that of the programs that wait for it, if there are any."""
    waiting = [fact for fact in context.facts if isinstance(fact, facts.Gated) and fact.lost]
    known = {program.name: program.why for program in before.programs.values() if program.gpu_lost}
    new = [fact for fact in waiting if fact.program not in known and fact.why not in known.values()]
    if new:
        yield Alert("gpu", CRITICAL, new[0].program, f"{', '.join(fact.program for fact in new)}: {new[0].why}")
    for fact in context.facts:
        match fact:
            case facts.XidReported(grave=True):
                yield Alert("gpu", CRITICAL, "", fact.why)
            case facts.GpusFound(another=True):
                yield Alert("gpu", WARNING, "", fact.why)
            case facts.GpuLost() if not waiting:
                yield Alert("gpu", CRITICAL, "", fact.why)
            case facts.GpusUnknown(hung_s=hung_s) if not waiting and (hung_s is not None or before.gpus.most):
                yield Alert("gpu", CRITICAL, "", fact.why)
            case facts.GpusFound(count=count) if not waiting and count < (before.gpus.count or 0):
                yield Alert("gpu", WARNING, "", fact.why)
            case _:
                pass


# --- raising and delivery -------------------------------------------------------------------------------------------------


def _id(context: DecisionContext, number: int) -> str:
    """16 hex digits, unique because every daemon has a new random salt."""
    text = f"{context.state.salt}/{context.now_s!r}/{number}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _raise_or_hold(context: DecisionContext, alert: Alert) -> None:
    rules, record = context.settings.of(AlertSettings), context.state.of(AlertRecord)
    if not rule.wanted(rules, alert.kind, alert.severity):
        return
    key = rule.same(alert.kind, alert.program)
    if alert.kind not in rule.ALWAYS and (
        (key in record.held and alert.severity != CRITICAL)
        or rule.due_s(rules, record.gone, key, context.now_s, alert.severity) > context.now_s
    ):
        context.record(facts.AlertHeld(alert.text, alert.kind, alert.severity, alert.program))
    else:
        _raise(context, alert)


def _raise_due_held(context: DecisionContext) -> None:
    """Raise held alerts that are due: one alert for each kind and program, the longest held first."""
    rules = context.settings.of(AlertSettings)
    held = sorted(context.state.of(AlertRecord).held.items(), key=lambda item: (item[1].since_s, item[0]))
    for key, each in held:
        due_s = rule.due_s(rules, context.state.of(AlertRecord).gone, key, context.now_s)
        if due_s <= context.now_s:
            text = rule.summary(each.count, each.newest, context.now_s - each.since_s)
            _raise(context, Alert(each.kind, each.severity, each.program, text), more=each.count)
        else:
            context.wake(due_s)


def _raise(context: DecisionContext, alert: Alert, more: int = 0) -> None:
    rules, record = context.settings.of(AlertSettings), context.state.of(AlertRecord)
    left = rule.tokens(rules, record.gone, context.now_s) - 1.0
    context.record(
        facts.AlertRaised(
            alert.text, _id(context, record.total), alert.kind, alert.severity, alert.program, rules.targets,
            max(0.0, left), more, alert.text if "\n" in alert.text else "",
        )
    )  # fmt: skip


def _drop(context: DecisionContext) -> None:
    """Drop alerts that are too old, too many, or for a target that is no longer in the config."""
    rules = context.settings.of(AlertSettings)
    for target in dict.fromkeys(name for each in context.state.of(AlertRecord).queue for name in each.owed):
        owed = context.state.of(AlertRecord).owed(target)
        if target not in rules.targets:
            ids, cause = tuple(each.id for each in owed), "is no longer in the configuration"
        else:
            ids = rule.overdue(rules, [(each.id, each.at_s) for each in owed], context.now_s)
            cause = "did not accept them in time"
        if ids:
            why = f"{len(ids)} alert{'' if len(ids) == 1 else 's'} dropped: {target} {cause}"
            context.record(facts.AlertsDropped(why, target, ids))


def _send(context: DecisionContext) -> None:
    """Send each idle target the oldest alert that it has not accepted yet."""
    record, rules = context.state.of(AlertRecord), context.settings.of(AlertSettings)
    for target in rules.targets:
        owed, now = record.owed(target), context.memory.of(Delivering).reaching.get(target, DeliveryState())
        if not owed:
            continue
        context.wake(owed[0].at_s + rules.keep_s)
        if now.sending:
            continue
        if now.retry_at_s is not None and now.retry_at_s > context.now_s:
            context.wake(now.retry_at_s)
            continue
        context.command(Deliver(target, notice(owed[0], record.dropped.get(target, 0))))
        _remember(context, target, replace(now, sending=owed[0].id, retry_at_s=None))


def _remember(context: DecisionContext, target: str, reaching: DeliveryState) -> None:
    context.remember(Delivering({**context.memory.of(Delivering).reaching, target: reaching}))


def _waits_for_targets(context: DecisionContext, kind: str) -> bool | None:
    """Whether an alert of this kind waits for a target; None: no alert does, as there is no target."""
    return (
        any(each.kind == kind for each in context.state.of(AlertRecord).queue)
        if context.settings.of(AlertSettings).targets
        else None
    )


FEATURE = Feature(
    turn=100, inputs={AlertTried: on_tried, ReportDue: on_report}, conclude=pursue, waits_for_targets=_waits_for_targets,
)  # fmt: skip
