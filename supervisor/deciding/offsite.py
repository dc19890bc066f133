"""Copies off the box: when a copy begins, and the consequences of its outcome and of another box's lease.

A thread makes the copies (`adapters/offsite/thread.py`), so neither a decision nor a training waits for a copy. The request
for a copy is in the journal (`model/offsite_record.py`): after a kill of the daemon, the next daemon begins the copy again.

If another box has taken over, this box stops its programs and starts none until `supervisorctl offsite take-over`. The
fence is a fact: the programs stay stopped over reboots, even while the box cannot reach the repository.
"""

from __future__ import annotations

import math
from typing import Final

from supervisor.deciding.attempts import send_away
from supervisor.deciding.context import DecisionContext, Feature
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.codes import FAILED, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, LeaseFound, OffsiteDone, OffsiteDue, Verb
from supervisor.model.memory import Held
from supervisor.model.work import outlooks
from supervisor.policy.upkeep import offsite as rule
from supervisor.policy.upkeep.calendars import is_due
from supervisor.policy.upkeep.notices import KILL_S
from supervisor.policy.upkeep.when_done import Outlook
from supervisor.records import replace

NOW, CHECK, FORGET, TAKE_OVER, COPY, LOOK = "now", "check", "forget", "take-over", "copy", "look"
_MOST_CHARS: Final = 1000
_LEAST_S: Final = 10.0
_LOOK_AGAIN_S: Final = 60.0


def on_asked(context: DecisionContext, item: Asked) -> None:
    """Handle `offsite now`, `check` and `take-over`. The reply comes at once; the page `offsite` shows the outcome."""
    if context.state.stopping:
        answer = (SHUTDOWN_STATE, "extralife is shutting down")
    elif not context.settings.offsite.on:
        answer = (FAILED, "no repository is configured: set [offsite] repository (docs/offsite.md)")
    elif item.text == NOW and context.state.offsite.fence is not None:
        answer = (FAILED, fenced(context))
    elif item.text == NOW:
        context.record(facts.OffsiteAsked(f"{item.by} requested a copy", rule.OPERATOR))
        answer = (SUCCESS, "started")
    else:
        _want(context, item.text)
        answer = (SUCCESS, "started")
    context.command(commands.Reply(item.request_id, ((item.text, *answer),)))


def on_due(context: DecisionContext, item: OffsiteDue) -> None:
    """Queue the check or the removal of old copies whose time in the calendar has passed."""
    known = context.state.offsite.tended.get(item.what)
    newest = None if known is None else known.due_wall_s
    began_wall_s = context.state.daemon_since_wall_s
    due = is_due(item.due_wall_s, newest_due_wall_s=newest, began_wall_s=began_wall_s, now_wall_s=context.wall_s)
    if context.settings.offsite.on and due:
        _want(context, item.what, item.due_wall_s)


def _want(context: DecisionContext, what: str, due_wall_s: float | None = None) -> None:
    wanted = f"{what} {due_wall_s!r}" if due_wall_s is not None else what
    if wanted not in context.memory.offsite_asked:
        context.memory = replace(context.memory, offsite_asked=(*context.memory.offsite_asked, wanted))


# --- outcomes ----------------------------------------------------------------------------------------------------------


def on_lease(context: DecisionContext, item: LeaseFound) -> None:
    """Handle the repository's lease, which is read before each copy and says which box owns the repository."""
    context.memory = replace(context.memory, offsite_first_look_s=None)
    record, lease = context.state.offsite, item.lease
    if item.claim is rule.Claim.HELD:
        known = (record.token, record.generation, record.place)
        if record.fence is not None or known != (lease.token, lease.generation, lease.place):
            why = f"this box holds the repository of copies (generation {lease.generation})"
            context.record(facts.OffsiteHeld(why, lease.token, lease.generation, lease.place))
    elif item.claim is rule.Claim.LOST and record.fence is None:
        why = (
            f"box {lease.box} has taken over these trainings, so no program runs here; `supervisorctl offsite take-over` "
            f"brings them back"
        )
        context.record(facts.OffsiteFenced(why, lease.box, lease.since_s, lease.token, lease.place))
    elif (
        item.claim is rule.Claim.FOREIGN
        and record.fence is not None
        and record.fence.place not in {"", lease.place}
        and record.fence.token != lease.token
    ):
        why = f"this repository is box {lease.box}'s and has no record of these trainings, so the programs run here"
        context.record(facts.OffsiteReleased(why))


def on_done(context: DecisionContext, item: OffsiteDone) -> None:
    """Handle the end of the thread's work: of a copy, a check, a removal of old copies, a take-over or a look."""
    context.memory = replace(context.memory, offsite="", offsite_first_look_s=None)
    if item.what == LOOK or (item.what == COPY and context.state.offsite.fence is not None):
        return  # after a failed look, the next copy reads the lease again
    if item.error:
        error = item.error[:_MOST_CHARS]
        context.record(
            facts.OffsiteFailed(f"{_IN_WORDS[item.what]} failed: {error}", item.what, error, item.cause, item.due_wall_s)
        )
    elif item.what == COPY:
        context.record(_copied(item))
    elif item.what in {FORGET, CHECK}:
        checked = f"the repository was checked: {rule.verified(item.read_percent)}"
        why = checked if item.what == CHECK else "old copies were removed from the repository"
        context.record(facts.OffsiteTended(why, item.what, item.due_wall_s, item.read_percent))


_IN_WORDS: Final = {
    COPY: "the copy off the box", FORGET: "the removal of old copies", CHECK: "the check of the repository",
    TAKE_OVER: "the take-over of the repository",
}  # fmt: skip


def _copied(item: OffsiteDone) -> facts.OffsiteCopied:
    count = f"checkpoints of {len(item.steps)} program{'' if len(item.steps) == 1 else 's'}"
    missed = "".join(f"; not copied: {name}: {why}" for name, why in sorted(item.missed.items()))
    size = f"{item.size_bytes / 1e6:,.1f} MB, {item.sent_bytes / 1e6:,.1f} MB new"
    why = f"copied off the box as {item.snapshot}: {count}, {size}, in {span(item.took_s)}{missed}"
    return facts.OffsiteCopied(
        why, item.cause, item.snapshot, item.as_of_s, item.as_of_wall_s, item.steps, item.size_bytes, item.sent_bytes,
        item.took_s, item.missed, verified=item.cause == rule.DONE and not item.missed, then=item.then,
    )  # fmt: skip


# --- at the end of every turn ---------------------------------------------------------------------------------------------


def pursue(context: DecisionContext) -> None:
    """Begin what is due, report a copy that is too old, keep programs down on a fenced box."""
    if not context.settings.offsite.on or context.memory.ended:
        return
    if context.state.offsite.fence is not None:
        send_away(context, "offsite", fenced(context))
    if context.state.stopping:
        _copy_before_the_end(context)
        return
    copies = _copies(context)
    _report_late(context, copies)
    if context.memory.offsite:
        _preempt_for_urgent(context)
    else:
        _begin(context, copies)


def holds_end(context: DecisionContext) -> bool:
    """Whether the daemon's end waits for a last copy."""
    until_s = context.memory.offsite_until_s
    return until_s is not None and context.now_s < until_s and context.memory.offsite != ""


def _begin(context: DecisionContext, copies: rule.Copies) -> None:
    """Give the idle thread its next task: a request of operator or calendar, else a look at the lease, else a due copy."""
    asked, *rest = context.memory.offsite_asked or ("",)
    if asked:
        context.memory = replace(context.memory, offsite_asked=tuple(rest))
        what, _, due = asked.partition(" ")
        if what == TAKE_OVER:
            _start_work(context, what, commands.OffsiteTakeOver())
        else:
            _start_work(context, what, commands.OffsiteTend(what, float(due) if due else None))
    elif _looks(context):
        context.memory = replace(
            context.memory, offsite_looked=context.settings.offsite.place, offsite_looked_s=context.now_s
        )
        _start_work(context, LOOK, replace(_copy(context, rule.START, context.settings.offsite.timeout_s), look_only=True))
    elif context.state.offsite.fence is None and (due_s := rule.due_s(context.settings.offsite, copies)) is not None:
        if due_s <= context.now_s:
            cause = context.state.offsite.asked or rule.PERIOD
            _start_work(context, COPY, _copy(context, cause, _limit_s(context)))
        else:
            context.wake(due_s)


def _looks(context: DecisionContext) -> bool:
    """Whether to read the lease now: once for each repository, and again and again for one that may end a fence."""
    fence, place = context.state.offsite.fence, context.settings.offsite.place
    if context.memory.offsite_looked != place:
        return True
    if fence is None or fence.place in {"", place}:
        return False
    again_s = context.memory.offsite_looked_s + _LOOK_AGAIN_S
    if context.now_s < again_s:
        context.wake(again_s)
    return context.now_s >= again_s


def _preempt_for_urgent(context: DecisionContext) -> None:
    """Let an urgent copy interrupt the running work: a check of the whole repository takes too long."""
    asked, doing = context.state.offsite.asked, context.memory.offsite
    if context.state.offsite.fence is not None or asked not in rule.PREEMPTING:
        return
    if doing in {CHECK, FORGET}:
        context.memory = replace(context.memory, offsite_asked=(doing, *context.memory.offsite_asked))
    elif doing != COPY or asked != rule.NOTICE or context.memory.offsite_cause == rule.NOTICE:
        return  # else the notice interrupts an older copy; the new one does not send the same data again
    _start_work(context, COPY, _copy(context, asked, _limit_s(context), urgent=True))


def _limit_s(context: DecisionContext) -> float:
    """Time limit of a copy in seconds. A copy is useless after the end of the box."""
    end, limit_s = context.state.notices.end(), context.settings.offsite.timeout_s
    if end is None or end.notice.until_s is None:
        return limit_s
    return min(limit_s, max(_LEAST_S, end.notice.until_s - context.now_s))


def _copy_before_the_end(context: DecisionContext) -> None:
    """At an orderly shutdown of the host and at SIGTERM, make one last copy, once all programs have exited."""
    end, cause = context.state.notices.end(), context.memory.last_copy
    ends_s = [end.notice.until_s] if end is not None and end.notice.until_s is not None else []
    ends_s += [context.memory.ends_at_s - KILL_S] if context.memory.ends_at_s is not None else []
    left_s = min(ends_s) - context.now_s if ends_s else None
    limit_s = rule.last_copy_s(context.settings.offsite, left_s)
    waits = cause and context.memory.offsite_until_s is None and not context.state.live
    copies = _copies(context)
    needed = copies.trained or copies.promised_s is not None
    if waits and limit_s > 0 and context.state.offsite.fence is None and needed:
        context.memory = replace(context.memory, offsite_until_s=context.now_s + limit_s)
        _start_work(context, COPY, _copy(context, cause, limit_s, urgent=True))
    if holds_end(context) and context.memory.offsite_until_s is not None:
        context.wake(context.memory.offsite_until_s)


def _start_work(context: DecisionContext, what: str, command: commands.Command) -> None:
    cause = command.cause if isinstance(command, commands.OffsiteCopy) else ""
    context.memory = replace(context.memory, offsite=what, offsite_cause=cause)
    context.command(command)


def _copy(context: DecisionContext, cause: str, limit_s: float, *, urgent: bool = False) -> commands.OffsiteCopy:
    record = context.state.offsite
    return commands.OffsiteCopy(
        cause, tuple(sorted(context.state.programs)), limit_s, record.token, record.generation, record.place, urgent,
        copied="" if record.copied is None else record.copied.snapshot, then=_then(context, cause),
    )  # fmt: skip


def _then(context: DecisionContext, cause: str) -> str:
    """What a copy made now says of the next one: seconds until it, or why none follows."""
    work = outlooks(context.state, context.settings)
    ends = context.state.notices.end() is not None and not context.state.live
    if cause == rule.DONE or (work and all(each is Outlook.DONE for each in work.values())):
        return rule.DONE
    if context.memory.last_copy == rule.OPERATOR or not {Outlook.OPEN, Outlook.OVER}.intersection(work.values()):
        return rule.IDLE
    if context.memory.last_copy == rule.STOP or ends:
        return rule.LEFT
    return f"{math.ceil(context.settings.offsite.every_s)}"


def _copies(context: DecisionContext) -> rule.Copies:
    record = context.state.offsite
    newest_s = None if record.copied is None else record.copied.at_s
    trained = any(
        each.attempts > 0 if newest_s is None else each.attempt is not None or each.since_s >= newest_s
        for each in context.state.programs.values()
    )
    said, promised_s = "" if record.copied is None else record.copied.then, None
    if said.isdecimal():
        promised_s = float(said)
    elif said and _then(context, "").isdecimal():
        promised_s = 0.0
    return rule.Copies(
        context.state.daemon_since_s, newest_s, record.asked, trained, record.failures, record.failed_s, promised_s
    )  # fmt: skip


def _report_late(context: DecisionContext, copies: rule.Copies) -> None:
    record = context.state.offsite
    late_s = rule.late_at_s(context.settings.offsite, copies)
    if late_s is None or record.late or record.fence is not None:
        return
    if context.now_s < late_s:
        context.wake(late_s)
        return
    if copies.newest_s is None:
        age_s = context.now_s - (copies.began_s or 0.0)
        old = f"nothing was copied off the box in {span(age_s)}"
    else:
        age_s = context.now_s - copies.newest_s
        old = f"the newest copy off the box is {span(age_s)} old"
    why = f"{old}: {record.error}" if record.error else f"{old}, and no copy has finished since"
    context.record(facts.OffsiteLate(why, age_s))


def fenced(context: DecisionContext) -> str:
    fence = context.state.offsite.fence
    return f"box {fence.box if fence else '?'} has taken over; `supervisorctl offsite take-over` brings the programs back"


def _keeps_down(context: DecisionContext) -> bool:
    return context.state.offsite.keeps_down(on=context.settings.offsite.on)


def _held(context: DecisionContext) -> Held | None:
    """Another box has taken over, or after a reboot it is not known yet whether one has."""
    if _keeps_down(context):
        return Held("offsite", fenced(context))
    until_s = context.memory.lease_awaited_until_s(context.now_s)
    return None if until_s is None else Held("offsite", "another box may have taken over", until_s=until_s)


def _refuses(context: DecisionContext) -> str:
    return f"cannot start here: {fenced(context)}" if _keeps_down(context) else ""


def _await_lease(context: DecisionContext, rebooted: bool) -> None:
    """After a reboot, delay the starts until the daemon knows whether another box took over (`policy/upkeep/offsite.py`)."""
    record, rules = context.state.offsite, context.settings.offsite
    held = record.token != "" and record.place in {"", rules.place}
    until_s = rule.first_look_until_s(rules, rebooted=rebooted, held=held, now_s=context.now_s)
    context.memory = replace(context.memory, offsite_first_look_s=until_s)


FEATURE = Feature(
    turn=80, section="offsite", record="offsite", inputs={LeaseFound: on_lease, OffsiteDone: on_done, OffsiteDue: on_due},
    requests={Verb.OFFSITE: on_asked}, began=_await_lease, held=_held, refuses=_refuses, pursue=pursue, holds_end=holds_end,
)  # fmt: skip
