"""Copies off the box: when a copy begins, and the consequences of its outcome and of another box's lease.

A thread makes the copies (`adapters/thread.py`), so neither a decision nor a training waits for a copy. The request
for a copy is in the journal (`record.py`): after a kill of the daemon, the next daemon begins the copy again.

If another box has taken over, this box stops its programs and starts none until `extralifectl offsite take-over`. The
fence is a fact: the programs stay stopped over reboots, even while the box cannot reach the repository.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from supervisor.deciding.attempts import send_away
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import AlertRow, BoxEnd, Copies, Feature
from supervisor.features.offsite import rules as rule
from supervisor.features.offsite.messages import (
    Claim,
    LeaseFound,
    OffsiteCopy,
    OffsiteDone,
    OffsiteDue,
    OffsiteTakeOver,
    OffsiteTend,
)
from supervisor.features.offsite.record import Copying, OffsiteRecord
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.codes import FAILED, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Held
from supervisor.policy.upkeep import copies as cause_of
from supervisor.policy.upkeep.alarm import CRITICAL, WARNING
from supervisor.policy.upkeep.calendars import is_due
from supervisor.policy.upkeep.leaving import KILL_S
from supervisor.records import replace

NOW, CHECK, FORGET, TAKE_OVER, COPY, LOOK = "now", "check", "forget", "take-over", "copy", "look"
CODE = "code"  # that a program needs and this box lacks
_MOST_CHARS: Final = 1000
_LEAST_S: Final = 10.0
_LOOK_AGAIN_S: Final = 60.0


def on_asked(context: DecisionContext, item: Asked) -> None:
    """Handle `offsite now`, `check` and `take-over`. The reply comes at once; the page `offsite` shows the outcome."""
    if context.state.stopping:
        answer = (SHUTDOWN_STATE, "extralife is shutting down")
    elif not context.settings.of(OffsiteSettings).on:
        answer = (FAILED, "no repository is configured: set [offsite] repository (docs/offsite.md)")
    elif item.text == NOW and context.state.of(OffsiteRecord).fence is not None:
        answer = (FAILED, fenced(context))
    elif item.text == NOW:
        context.record(facts.OffsiteAsked(f"{item.by} requested a copy", cause_of.OPERATOR))
        answer = (SUCCESS, "started")
    else:
        _want(context, item.text)
        answer = (SUCCESS, "started")
    context.command(commands.Reply(item.request_id, ((item.text, *answer),)))


def on_due(context: DecisionContext, item: OffsiteDue) -> None:
    """Queue the check or the removal of old copies whose time in the calendar has passed."""
    known = context.state.of(OffsiteRecord).tended.get(item.what)
    newest = None if known is None else known.due_wall_s
    began_wall_s = context.state.daemon_since_wall_s
    due = is_due(item.due_wall_s, newest_due_wall_s=newest, began_wall_s=began_wall_s, now_wall_s=context.wall_s)
    if context.settings.of(OffsiteSettings).on and due:
        _want(context, item.what, item.due_wall_s)


def _want(context: DecisionContext, what: str, due_wall_s: float | None = None) -> None:
    wanted = f"{what} {due_wall_s!r}" if due_wall_s is not None else what
    if wanted not in context.memory.of(Copying).asked:
        _keep(context, asked=(*context.memory.of(Copying).asked, wanted))


# --- outcomes ----------------------------------------------------------------------------------------------------------


def on_lease(context: DecisionContext, item: LeaseFound) -> None:
    """Handle the repository's lease, which is read before each copy and says which box owns the repository."""
    lacks = [why for name, why in item.missing.items() if name not in context.memory.of(Copying).missing]
    _keep(context, first_look_s=None, missing=item.missing)
    if lacks:
        context.record(facts.OffsiteFailed("; ".join(lacks), CODE, lacks[0]))
    record, lease = context.state.of(OffsiteRecord), item.lease
    if item.claim is Claim.HELD:
        known = (record.token, record.generation, record.place)
        if record.fence is not None or known != (lease.token, lease.generation, lease.place):
            why, origin = f"this box holds the repository of copies (generation {lease.generation})", item.origin
            after: tuple[str, float | None] = ("", None)
            if origin is not None and record.token in {"", origin.token}:  # else it has continued them already
                when = "at an unknown time" if origin.at_s is None else f"{span(context.now_s - origin.at_s)} ago"
                why += f" and continues the trainings of box {origin.box}, whose last known sign of life came {when}"
                after = (origin.box, origin.at_s)
            context.record(facts.OffsiteHeld(why, lease.token, lease.generation, lease.place, *after))
    elif item.claim is Claim.LOST and record.fence is None:
        why = (
            f"box {lease.box} has taken over these trainings, so no program runs here; `extralifectl offsite take-over` "
            f"brings them back"
        )
        context.record(facts.OffsiteFenced(why, lease.box, lease.since_s, lease.token, lease.place))
    elif (
        item.claim is Claim.FOREIGN
        and record.fence is not None
        and record.fence.place not in {"", lease.place}
        and record.fence.token != lease.token
    ):
        why = f"this repository is box {lease.box}'s and has no record of these trainings, so the programs run here"
        context.record(facts.OffsiteReleased(why))


def on_done(context: DecisionContext, item: OffsiteDone) -> None:
    """Handle the end of the thread's work: of a copy, a check, a removal of old copies, a take-over or a look."""
    _keep(context, doing="", first_look_s=None)
    if item.missing is not None:
        _keep(context, missing=item.missing)
    if item.what == LOOK or (item.what == COPY and context.state.of(OffsiteRecord).fence is not None):
        return  # after a failed look, the next copy reads the lease again
    if item.error:
        error = item.error[:_MOST_CHARS]
        context.record(
            facts.OffsiteFailed(f"{_IN_WORDS[item.what]} failed: {error}", item.what, error, item.cause, item.due_wall_s)
        )
    elif item.what == COPY:
        context.record(_copied(item, context.settings.of(OffsiteSettings).also))
    elif item.what in {FORGET, CHECK}:
        checked = f"the repository was checked: {rule.verified(item.read_percent)}"
        why = checked if item.what == CHECK else "old copies were removed from the repository"
        context.record(facts.OffsiteTended(why, item.what, item.due_wall_s, item.read_percent))


_IN_WORDS: Final = {
    COPY: "the copy off the box", FORGET: "the removal of old copies", CHECK: "the check of the repository",
    TAKE_OVER: "the take-over of the repository",
}  # fmt: skip


def _copied(item: OffsiteDone, also: Sequence[str]) -> facts.OffsiteCopied:
    count = f"checkpoints of {len(item.steps)} program{'' if len(item.steps) == 1 else 's'}"
    missed = "".join(f"; not copied: {name}: {why}" for name, why in sorted(item.missed.items()))
    size = f"{item.size_bytes / 1e6:,.1f} MB, {item.sent_bytes / 1e6:,.1f} MB new"
    why = f"copied off the box as {item.snapshot}: {count}, {size}, in {span(item.took_s)}{missed}"
    verified = item.cause == cause_of.DONE and item.missed.keys() <= set(also)  # what is trained is there
    return facts.OffsiteCopied(
        why, item.cause, item.snapshot, item.as_of_s, item.as_of_wall_s, item.steps, item.size_bytes, item.sent_bytes,
        item.took_s, item.missed, verified=verified, then=item.then,
    )  # fmt: skip


# --- at the end of every turn ---------------------------------------------------------------------------------------------


def pursue(context: DecisionContext) -> None:
    """Begin what is due, report a copy that is too old, keep programs down on a fenced box."""
    if not context.settings.of(OffsiteSettings).on or context.memory.ended:
        return
    if context.state.of(OffsiteRecord).fence is not None:
        send_away(context, "offsite", fenced(context))
    if context.state.stopping:
        _copy_before_the_end(context)
        return
    copies = _copies(context)
    _report_late(context, copies)
    if context.memory.of(Copying).doing:
        _preempt_for_urgent(context)
    else:
        _begin(context, copies)


def holds_end(context: DecisionContext) -> bool:
    """Whether the daemon's end waits for a last copy."""
    until_s = context.memory.end_waits_until_s
    return until_s is not None and context.now_s < until_s and context.memory.of(Copying).doing != ""


def _begin(context: DecisionContext, copies: rule.Copies) -> None:
    """Give the idle thread its next task: a request of operator or calendar, else a look at the lease, else a due copy."""
    asked, *rest = context.memory.of(Copying).asked or ("",)
    if asked:
        _keep(context, asked=tuple(rest))
        what, _, due = asked.partition(" ")
        if what == TAKE_OVER:
            _start_work(context, what, OffsiteTakeOver())
        else:
            _start_work(context, what, OffsiteTend(what, float(due) if due else None))
    elif _looks(context):
        _keep(context, looked=context.settings.of(OffsiteSettings).place, looked_s=context.now_s)
        _start_work(
            context,
            LOOK,
            replace(_copy(context, cause_of.START, context.settings.of(OffsiteSettings).timeout_s), look_only=True),
        )
    elif (
        context.state.of(OffsiteRecord).fence is None
        and (due_s := rule.due_s(context.settings.of(OffsiteSettings), copies)) is not None
    ):
        if due_s <= context.now_s:
            cause = context.state.of(OffsiteRecord).asked or cause_of.PERIOD
            _start_work(context, COPY, _copy(context, cause, _limit_s(context)))
        else:
            context.wake(due_s)


def _looks(context: DecisionContext) -> bool:
    """Whether to look now: once for each repository; again and again if that may end a fence or the lack of a script."""
    fence, place = context.state.of(OffsiteRecord).fence, context.settings.of(OffsiteSettings).place
    if context.memory.of(Copying).looked != place:
        return True
    if (fence is None or fence.place in {"", place}) and not context.memory.of(Copying).missing:
        return False
    again_s = context.memory.of(Copying).looked_s + _LOOK_AGAIN_S
    if context.now_s < again_s:
        context.wake(again_s)
    return context.now_s >= again_s


def _preempt_for_urgent(context: DecisionContext) -> None:
    """Let an urgent copy interrupt the running work: a check of the whole repository takes too long."""
    asked, doing = context.state.of(OffsiteRecord).asked, context.memory.of(Copying).doing
    if context.state.of(OffsiteRecord).fence is not None or asked not in cause_of.PREEMPTING:
        return
    if doing in {CHECK, FORGET}:
        _keep(context, asked=(doing, *context.memory.of(Copying).asked))
    elif doing != COPY or asked != cause_of.NOTICE or context.memory.of(Copying).cause == cause_of.NOTICE:
        return  # else the notice interrupts an older copy; the new one does not send the same data again
    _start_work(context, COPY, _copy(context, asked, _limit_s(context), urgent=True))


def _limit_s(context: DecisionContext) -> float:
    """Time limit of a copy in seconds. A copy is useless after the end of the box."""
    end_s, limit_s = _box_ends_s(context), context.settings.of(OffsiteSettings).timeout_s
    return limit_s if end_s is None else min(limit_s, max(_LEAST_S, end_s - context.now_s))


def _box_ends_s(context: DecisionContext) -> float | None:
    """When this box ends, as announced; None: no end is, or at no known time."""
    end: BoxEnd | None = context.first("box_ends")
    return None if end is None else end.until_s


def _copy_before_the_end(context: DecisionContext) -> None:
    """At an orderly shutdown of the host and at SIGTERM, make one last copy, once all programs have exited."""
    end_s, cause = _box_ends_s(context), context.memory.last_copy
    ends_s = [] if end_s is None else [end_s]
    ends_s += [context.memory.ends_at_s - KILL_S] if context.memory.ends_at_s is not None else []
    left_s = min(ends_s) - context.now_s if ends_s else None
    limit_s = rule.last_copy_s(context.settings.of(OffsiteSettings), left_s)
    copies = _copies(context)
    needed = copies.trained or copies.promised_s is not None
    waits = cause and context.memory.end_waits_until_s is None and not context.state.live
    if waits and limit_s > 0 and context.state.of(OffsiteRecord).fence is None and needed:
        context.memory = replace(context.memory, end_waits_until_s=context.now_s + limit_s)
        _start_work(context, COPY, _copy(context, cause, limit_s, urgent=True))
    if holds_end(context) and context.memory.end_waits_until_s is not None:
        context.wake(context.memory.end_waits_until_s)


def _start_work(context: DecisionContext, what: str, command: commands.Command) -> None:
    cause = command.cause if isinstance(command, OffsiteCopy) else ""
    _keep(context, doing=what, cause=cause)
    context.command(command)


def _copy(context: DecisionContext, cause: str, limit_s: float, *, urgent: bool = False) -> OffsiteCopy:
    record = context.state.of(OffsiteRecord)
    return OffsiteCopy(
        cause, tuple(sorted(context.state.programs)), limit_s, record.token, record.generation, record.place, urgent,
        moved_with=(record.copied.snapshot if record.copied else "") if record.moved else None, then=_then(context, cause),
    )  # fmt: skip


def _then(context: DecisionContext, cause: str) -> str:
    """What a copy made now says of the next one: seconds until it, or why none follows."""
    work = {each.phase for each in context.state.programs.values() if each.wanted and not each.service}
    ends = context.first("box_ends") is not None and not context.state.live
    if cause == cause_of.DONE or work == {Phase.DONE}:
        return cause_of.DONE
    if context.memory.last_copy == cause_of.OPERATOR or work <= {Phase.DONE, Phase.FATAL, Phase.EXITED}:
        return cause_of.IDLE
    if context.memory.last_copy == cause_of.STOP or ends:
        return cause_of.LEFT
    return f"{math.ceil(context.settings.of(OffsiteSettings).every_s)}"


def _copies(context: DecisionContext) -> rule.Copies:
    record = context.state.of(OffsiteRecord)
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
    record = context.state.of(OffsiteRecord)
    late_s = rule.late_at_s(context.settings.of(OffsiteSettings), copies)
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
    fence = context.state.of(OffsiteRecord).fence
    return f"box {fence.box if fence else '?'} has taken over; `extralifectl offsite take-over` brings the programs back"


def _keeps_down(context: DecisionContext) -> bool:
    return context.state.of(OffsiteRecord).keeps_down(on=context.settings.of(OffsiteSettings).on)


def _keep(context: DecisionContext, **changes: Any) -> None:
    context.remember(replace(context.memory.of(Copying), **changes))


def _held(context: DecisionContext) -> Held | None:
    """Another box has taken over, it is not known yet whether one has, or this box lacks a program's code."""
    if _keeps_down(context):
        return Held("offsite", fenced(context), for_good=True)
    until_s = context.memory.of(Copying).first_look_s
    waits = until_s is not None and context.now_s < until_s
    if waits:
        return Held("offsite", "another box may have taken over", until_s=until_s)
    missing = context.memory.of(Copying).missing
    return Held("offsite", "; ".join(missing.values()), tuple(missing)) if missing else None


def _refuses(context: DecisionContext) -> str:
    return f"cannot start here: {fenced(context)}" if _keeps_down(context) else ""


def _await_lease(context: DecisionContext, rebooted: bool) -> None:
    """After a reboot, delay the starts until the daemon knows whether another box took over (`rules.py`)."""
    record, rules = context.state.of(OffsiteRecord), context.settings.of(OffsiteSettings)
    held = record.token != "" and record.place in {"", rules.place}
    until_s = rule.first_look_until_s(rules, rebooted=rebooted, held=held, now_s=context.now_s)
    _keep(context, first_look_s=until_s)


def _seen_by_others(context: DecisionContext) -> Copies | None:
    record = context.state.of(OffsiteRecord)
    if not context.settings.of(OffsiteSettings).on:
        return None
    error, fence = record.error if record.failures else "", "" if record.fence is None else fenced(context)
    newest = record.copied
    return Copies(record.asked, error, fence, *(() if newest is None else (newest.at_s, newest.took_s, newest.snapshot)))


def _new_gaps(context: DecisionContext, fact: facts.OffsiteCopied) -> object:
    copied = context.before.of(OffsiteRecord).copied
    return fact.missed.keys() - (copied.missed if copied else {})


FEATURE = Feature(
    turn=80, section="offsite", record="offsite", inputs={LeaseFound: on_lease, OffsiteDone: on_done, OffsiteDue: on_due},
    requests={Verb.OFFSITE: on_asked}, began=_await_lease, held=_held, refuses=_refuses, pursue=pursue, holds_end=holds_end,
    copies=_seen_by_others,
    alerts=(
        AlertRow(facts.OffsiteCopied, "offsite", WARNING, _new_gaps),
        AlertRow(facts.OffsiteLate, "offsite", CRITICAL),
        AlertRow(facts.OffsiteFenced, "offsite", CRITICAL),
        AlertRow(facts.OffsiteFailed, "offsite", CRITICAL, lambda _, fact: fact.what in {CHECK, CODE}),
    ),
)  # fmt: skip
