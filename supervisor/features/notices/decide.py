"""Notices that this box ends: which programs save, when a copy off the box is made, and when the programs exit.

The rule is `rules.py`. A notice is a fact, so that a later daemon, here or on another box, knows why the
box ended. The steps that it causes are only in memory: if the daemon is killed meanwhile, the next one begins them again.
"""

from __future__ import annotations

from typing import Final

from supervisor.deciding.attempts import send_away, set_control
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import AlertRow, BoxEnd, Copies, Feature
from supervisor.deciding.requests import savings
from supervisor.features.notices import rules as rule
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.record import Announced, Leaving, NoticeRecord, Rescue
from supervisor.features.notices.rules import Plan
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.memory import Held
from supervisor.policy.upkeep import copies
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING
from supervisor.records import replace

_LEAST_GRACE_S: Final = 2.0
_MOST_COPY_S: Final = 300.0
_LEAST_COPY_S: Final = 3.0
_SLOWER: Final = 1.5  # expected duration of a copy while all programs save, relative to the newest copy


def on_read(context: DecisionContext, item: EndNoticesRead) -> None:
    """Handle a change of the notices. If a source cannot be read, its last notices stay valid."""
    context.remember(replace(context.memory.of(Leaving), errors=item.errors))
    found = {each.id: each for each in item.found}
    record = context.state.of(NoticeRecord)
    for known in (*(each.notice for each in record.standing.values()), *record.spent.values()):
        if known.id not in found and known.source not in item.errors:
            context.record(
                facts.EndCalledOff(f"{known.source} no longer announces it: {known.what}", known.id, known.source)
            )
    for each in found.values():
        record = context.state.of(NoticeRecord)
        standing, spent = record.standing.get(each.id), record.spent.get(each.id)
        before = spent if standing is None else standing.notice
        if before is None or not rule.is_same(before, each):
            _announce(context, each)


def _announce(context: DecisionContext, notice: EndNotice) -> None:
    if rule.is_over(notice, context.now_s):
        return
    leave_at_s = _plan(context, notice).leave_at_s
    when = "" if notice.until_s is None else f" in {span(max(0.0, notice.until_s - context.now_s))}"
    may = "may end" if notice.kind == rule.RISK else f"ends{when}"
    why = f"{notice.source} announces that this box {may}: {notice.what}"
    context.record(
        facts.EndAnnounced(why, notice.id, notice.source, notice.kind == rule.END, notice.what, notice.until_s, leave_at_s)
    )  # fmt: skip
    _keep_rescues(context, {k: v for k, v in _rescues(context).items() if k != notice.id})


# --- at the end of every turn ---------------------------------------------------------------------------------------------


def pursue(context: DecisionContext) -> None:
    """Close notices that are over, save and copy, and ask the programs to exit in time."""
    for each in tuple(context.state.of(NoticeRecord).standing.values()):
        if rule.is_over(each.notice, context.now_s):
            why = f"the end that {each.notice.source} announced did not happen, and this box still runs: {each.notice.what}"
            context.record(facts.EndCalledOff(why, each.notice.id, each.notice.source, passed=True))
        elif each.notice.until_s is not None:
            context.wake(rule.over_at_s(each.notice.until_s))
    standing = context.state.of(NoticeRecord).standing
    _keep_rescues(context, {k: v for k, v in _rescues(context).items() if k in standing})
    if context.settings.remote:
        return  # the end of this host ends no job: the next daemon adopts the jobs
    _update_end_files(context)
    if context.state.stopping or context.memory.ended:
        return
    for each in standing.values():
        _rescue(context, each)
    _leave(context)


def _update_end_files(context: DecisionContext) -> None:
    """Keep the files that EXTRALIFE_LEAVE_BY names up to date: scripts without beats read there when the box ends."""
    end, leaving = context.state.of(NoticeRecord).end(), context.memory.of(Leaving)
    sent = leaving.end_sent
    live = {p.attempt.token: p.name for p in context.state.live.values() if p.attempt is not None}
    if end is None:
        if any(isinstance(fact, facts.EndCalledOff) for fact in context.facts):
            for token, name in live.items():
                context.command(commands.TellEnd(name, token, None, ""))
        if sent:
            context.remember(replace(leaving, end_sent={}))
        return
    until_s = end.notice.until_s
    wall_s = None if until_s is None else context.wall_s + until_s - context.now_s
    for token, name in live.items():
        if token not in sent or sent[token] != until_s:
            context.command(commands.TellEnd(name, token, wall_s, f"{end.notice.source}: {end.notice.what}"))
    if sent.keys() != live.keys() or any(each != until_s for each in sent.values()):
        context.remember(replace(leaving, end_sent=dict.fromkeys(live, until_s)))


# --- saving and copying ----------------------------------------------------------------------------------------------------


def _rescue(context: DecisionContext, announced: Announced) -> None:
    """Ask programs to save, first those with the most unsaved work per second of saving; then request a copy off the box."""
    id_, rescue = announced.notice.id, _rescues(context).get(announced.notice.id)
    if rescue is None:
        found = _plan(context, announced.notice)
        left = announced.leave_at_s is not None and announced.leave_at_s <= context.now_s
        names, then = ((), ()) if left else (found.first, found.then)
        rescue = Rescue(
            context.now_s, _ask(context, names), then, None if left or _copies(context) is None else found.copy_by_s
        )
    waiting = [(name, token) for name, token in rescue.saving if not _has_saved(context, name, token, rescue.since_s)]
    if not waiting and rescue.then:
        rescue = replace(rescue, since_s=context.now_s, saving=_ask(context, rescue.then), then=())
        waiting = list(rescue.saving)
    if (by_s := rescue.copy_by_s) is not None:
        if waiting and by_s > context.now_s:
            context.wake(by_s)
        else:
            _ask_for_copy(context, announced)
            rescue = replace(rescue, copy_by_s=None)
    _keep_rescues(context, {**_rescues(context), id_: rescue})


def _rescues(context: DecisionContext) -> dict[str, Rescue]:
    return context.memory.of(Leaving).rescues


def _keep_rescues(context: DecisionContext, rescues: dict[str, Rescue]) -> None:
    context.remember(replace(context.memory.of(Leaving), rescues=rescues))


def _plan(context: DecisionContext, notice: EndNotice) -> Plan:
    return rule.plan(notice, savings(context), copy_s=_copy_s(context), now_s=context.now_s)


def _ask(context: DecisionContext, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Ask these programs to save now. Returns (name, token) of each program asked."""
    asked = []
    for name in names:
        program = context.state.programs.get(name)
        if program is None or program.attempt is None or program.attempt.stop is not None:
            continue
        token = program.attempt.token
        counts = context.memory.saves_asked
        live = {p.attempt.token for p in context.state.live.values() if p.attempt is not None}
        counts = {each: count for each, count in counts.items() if each in live}
        context.memory = replace(context.memory, saves_asked={**counts, token: counts.get(token, 0) + 1})
        set_control(context, name, token)
        asked.append((name, token))
    return tuple(asked)


def _has_saved(context: DecisionContext, name: str, token: str, since_s: float) -> bool:
    """Whether the wait for this attempt is over: it has saved since then, its save failed, or it has ended."""
    found, watch = context.live(name, token), context.memory.watch(name, token)
    if found is None or found[1].save_error or watch is None:
        return True
    return watch.sample.ckpt_at_s is not None and watch.sample.ckpt_at_s >= since_s


def _copies(context: DecisionContext) -> Copies | None:
    found = context.copies
    return None if found is None or found.fenced else found


def _copy_s(context: DecisionContext) -> float:
    """Estimated seconds that one copy takes, by the newest one; 0 if no copies are made."""
    found = _copies(context)
    if found is None:
        return 0.0
    return rule.COPIES_S if found.took_s is None else min(_MOST_COPY_S, max(_LEAST_COPY_S, found.took_s * _SLOWER))


def _ask_for_copy(context: DecisionContext, announced: Announced) -> None:
    notice = announced.notice
    context.record(facts.OffsiteAsked(f"a copy is made, because {notice.source} announced: {notice.what}", copies.NOTICE))


# --- leaving ---------------------------------------------------------------------------------------------------------------


def _leave(context: DecisionContext) -> None:
    """Once it is time, ask all programs to save and exit; then request one last copy."""
    due = [each for each in context.state.of(NoticeRecord).standing.values() if each.leave_at_s is not None]
    first = min(due, key=lambda each: each.leave_at_s or 0.0, default=None)
    if first is None or first.leave_at_s is None:
        return
    if first.leave_at_s > context.now_s:
        context.wake(first.leave_at_s)
        return
    until_s = first.notice.until_s if first.notice.until_s is not None else context.now_s
    why = f"this box ends: {first.notice.source} announced {first.notice.what}"

    def grace_s(name: str) -> float:
        spec = context.settings.program(name)
        patience_s = _LEAST_GRACE_S if spec is None else spec.stop_grace_s
        return max(_LEAST_GRACE_S, min(patience_s, until_s - context.now_s - _copy_s(context)))

    send_away(context, "notice", why, by=first.notice.source, grace_s=grace_s)
    found = _copies(context)
    newest_s = None if found is None else found.at_s
    changed = [
        each for each in context.state.programs.values() if each.attempts and (newest_s is None or each.since_s >= newest_s)
    ]
    if found is not None and changed and not context.state.live and found.asked != copies.NOTICE:
        _ask_for_copy(context, first)


def _held(context: DecisionContext) -> Held | None:
    """The box ends before a program could save and be copied again."""
    down = context.state.of(NoticeRecord).keeps_down(context.now_s)
    return Held("notice", "the end of this box was announced") if down else None


def _box_ends(context: DecisionContext) -> BoxEnd | None:
    end = context.state.of(NoticeRecord).end()
    return None if end is None else BoxEnd(end.notice.source, end.notice.what, end.notice.until_s)


def _announced(context: DecisionContext, last_sign_s: float) -> BoxEnd | None:
    found = context.state.of(NoticeRecord).explanation(last_sign_s)
    return None if found is None else BoxEnd(found.source, found.what, found.until_s)


FEATURE = Feature(
    turn=60, section="notice", record="notices", inputs={EndNoticesRead: on_read}, pursue=pursue, held=_held,
    box_ends=_box_ends, announced=_announced,
    alerts=(
        AlertRow(facts.EndAnnounced, "notice", lambda fact: CRITICAL if fact.sure else WARNING),
        AlertRow(
            facts.EndCalledOff, "notice", INFO, lambda context, fact: fact.id in context.before.of(NoticeRecord).standing
        ),
    ),
)  # fmt: skip
