"""The end of the work: everything is saved and copied, the report is sent, then the command stops this box.

The rule is `rules.py`. Each step is a fact before it is performed, so a daemon that is killed between two
steps never repeats the command unseen.
"""

from __future__ import annotations

from typing import Final

from supervisor.deciding.attempts import send_away
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import AlertRow, Feature
from supervisor.deciding.gating import gpu_is_back, knows_gpus
from supervisor.features.when_done import record as words
from supervisor.features.when_done import rules as rule
from supervisor.features.when_done.messages import StopBox, WhenDoneEnded
from supervisor.features.when_done.record import EndRecord, Step
from supervisor.features.when_done.rules import Outlook, Seen
from supervisor.features.when_done.settings import BUDGET, DONE, WhenDoneSettings
from supervisor.features.when_done.work import limit, outlooks, reason, saves, unsaved
from supervisor.formats import span, usd
from supervisor.model import commands, facts
from supervisor.model.codes import FAILED, SHUTDOWN_STATE, SUCCESS
from supervisor.model.inputs import Asked, Verb
from supervisor.model.memory import Held
from supervisor.policy.upkeep import copies, cost
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING
from supervisor.policy.upkeep.alarm import DONE as REPORT
from supervisor.records import replace

_MOST_OUTPUT: Final = 2000
_LEAVES: Final = "this box is about to be stopped"
_OVERRULE: Final = "`extralifectl when-done now` stops the box all the same"
_NO_LIMIT: Final = "the limit in [cost] does not stop this box any more"
_ANSWERS: Final = {
    words.CANCEL: "this box is not stopped until there is new work",
    words.DELAY: "this box is not stopped",
    words.NOW: "this box is stopped without further waiting",
}


def on_ended(context: DecisionContext, item: WhenDoneEnded) -> None:
    output = item.output[-_MOST_OUTPUT:]
    outcome = f"failed: {item.error}" if item.error else "has succeeded: this box should end now"
    why = f"{_name(context)} {outcome}{'' if outcome.endswith(output) else f'; it printed: {output}'}"
    context.record(facts.WhenDoneStep(why, Step.ENDED.value, error=item.error, output=output))


def on_config(context: DecisionContext) -> None:
    """Another configuration: an end that is still there counts anew."""
    record = context.state.of(EndRecord)
    if (record.begun or record.over_budget) and not record.runs:
        context.record(facts.WhenDoneStep("the configuration was updated", Step.CALL_OFF.value))


def on_asked(context: DecisionContext, item: Asked) -> None:
    """Handle `when-done cancel`, `delay` and `now`."""
    rules, record, do = context.settings.of(WhenDoneSettings), context.state.of(EndRecord), item.text
    code, answer = FAILED, ""
    if context.state.stopping:
        code, answer = SHUTDOWN_STATE, "extralife is shutting down"
    elif not rules.command:
        answer = "no command is configured: set [when_done] command (docs/accounts.md)"
    elif record.runs:
        answer = "the command runs already"
    elif do != words.DELAY and not record.cause:
        answer = f"no end is near: it comes with {' or '.join(rules.when)}"
    else:
        limited = (do, record.cause) == (words.CANCEL, BUDGET)
        code, answer = SUCCESS, _NO_LIMIT if limited else _ANSWERS[do] + (f" for {span(item.for_s)}" if item.for_s else "")
        until_s = None if item.for_s is None else context.now_s + item.for_s
        if record.succeeded_s is not None and do != words.NOW:
            answer += "; but its command has succeeded already, so it may end all the same"
        context.record(facts.WhenDoneStep(f"{item.by}: {answer}", do, until_s=until_s))
    context.command(commands.Reply(item.request_id, ((do, code, answer),)))


def refuses_starts(context: DecisionContext) -> str:
    """Why no program may be started; empty: one may, and calls an end off. Only a spent budget stays spent."""
    held = context.state.of(EndRecord).keeps_down and context.state.of(EndRecord).cause == BUDGET
    return f"cannot start: {_LEAVES}; `extralifectl when-done cancel` keeps it" if held else ""


# --- at the end of every turn ---------------------------------------------------------------------------------------------


def pursue(context: DecisionContext) -> None:
    """Perform all steps that are due. Each step is recorded, so the next one sees it."""
    rules = context.settings.of(WhenDoneSettings)
    if context.state.stopping or context.memory.ended or not (rules.command or context.state.of(EndRecord).begun):
        return
    if not knows_gpus(context) and any(each.gpu_lost for each in context.state.programs.values()):
        return  # for seconds after a start: the GPU may be back
    while True:
        seen = _seen(context)
        step, until_s = rule.next_step(rules, context.state.of(EndRecord), seen, context.now_s)
        if step is Step.WAIT:
            break
        context.record(_fact(context, step, seen))
        if step is Step.RUN:
            context.command(StopBox(rules.command, rules.timeout_s))
    if until_s is not None:
        context.wake(until_s)
    if context.state.of(EndRecord).keeps_down:
        send_away(context, "when_done", _LEAVES, grace_s=lambda name: _grace_s(context, name))


def _grace_s(context: DecisionContext, name: str) -> float | None:
    """The time for a training's save. Only a budget ends one that trains, and nobody hurries then."""
    spec = context.settings.program(name)
    patient = context.state.of(EndRecord).cause == BUDGET and spec is not None and not spec.service
    return max(rule.SAVE_S, spec.stop_grace_s) if patient and spec is not None else None


def _causes(context: DecisionContext) -> tuple[tuple[str, ...], bool]:
    """The causes that hold now, and whether there is work: also a program whose GPU is back while nothing may start."""
    state, settings = context.state, context.settings
    if any(brings(context) for brings in context.hooks("brings_work")):
        return (), True
    reached = limit(state, settings, now_s=context.now_s, wall_s=context.wall_s)
    over_budget, work = reached != "" and not state.of(EndRecord).over_budget, outlooks(state, context.memory)
    known = work | {name: Outlook.OPEN for name in work if gpu_is_back(context, state.programs[name])}
    causes = rule.causes_of(settings.of(WhenDoneSettings), known.values(), over_budget=over_budget)
    return causes, Outlook.OPEN in known.values()


def _seen(context: DecisionContext) -> Seen:
    record, host, made = context.state.of(EndRecord), context.memory.host, context.copies
    asked = "" if made is None else made.asked
    own = asked == copies.DONE and record.asked_s is not None
    stops = [each.attempt.stop for each in context.state.live.values() if each.attempt is not None]
    sent = [waits(context, REPORT) for waits in context.hooks("waits_for_targets")]
    owed = any(waits or record.reported_s == context.now_s for waits in sent if waits is not None)
    if made is not None and record.copied_s is None:
        lacks = made.fenced or (made.error if own else "")
        lacks = f"no copy off the box is verified: {lacks}; it is tried again" if lacks else ""
    else:
        lacks = _unsaved(context)
    return Seen(
        *_causes(context), any(stop is None or not stop.not_ended for stop in stops), bool(host and host.logged_in),
        made is not None, own or asked in copies.URGENT, lacks, owed,
    )  # fmt: skip


def _unsaved(context: DecisionContext) -> str:
    """The programs whose newest work is lost with their attempt, as a clause; empty: none."""
    since_s = context.state.of(EndRecord).left_s
    found = [] if since_s is None else [
        f"{name} is not saved: {why}" for name, program in sorted(context.state.programs.items())
        if not program.service and (why := unsaved(program, context.settings.program(name), since_s))
    ]  # fmt: skip
    return "; ".join(found)


def _name(context: DecisionContext) -> str:
    return next(iter(context.settings.of(WhenDoneSettings).command), "the command")


def _fact(context: DecisionContext, step: Step, seen: Seen) -> facts.Fact:
    if step is Step.COPY:
        return facts.OffsiteAsked("a copy is made and verified before this box is stopped", copies.DONE)
    name, error = _name(context), {Step.BEGIN: context.state.of(EndRecord).error, Step.REFUSE: seen.lacks}.get(step, "")
    cause = context.state.of(EndRecord).cause or next(iter(seen.causes), "")
    because = reason(context.state, context.settings, context.memory, cause, now_s=context.now_s, wall_s=context.wall_s)
    if step is Step.ENDED:
        since_s = context.state.of(EndRecord).succeeded_s
        error = f"this box is still there {span(context.now_s - (since_s or 0.0))} after its success"
    why = {
        Step.BEGIN: _begun(context, because),
        Step.CALL_OFF: "this box is not stopped: a program can go on again, or a limit was raised",
        Step.LEAVE: f"every program saves and exits before this box is stopped{_patience(context, cause)}",
        Step.REFUSE: f"this box is NOT stopped, as {error}; {_OVERRULE}",
        Step.REPORT: _report(context, because),
        Step.RUN: f"{name} is run to stop this box",
        Step.ENDED: f"{name} did not stop this box: {error}",
    }[step]
    return facts.WhenDoneStep(why, step.value, cause, error=error)


def _patience(context: DecisionContext, cause: str) -> str:
    if cause != BUDGET or not context.state.live:
        return ""
    price = cost.usd_of(rule.SAVE_S / 3600.0, context.settings.cost.usd_per_hour)
    return f"; a save may take {span(rule.SAVE_S)}" + ("" if price is None else f", which costs at most {usd(price)}")


def _begun(context: DecisionContext, because: str) -> str:
    record = replace(context.state.of(EndRecord), since_s=context.now_s)
    left_s = rule.due_s(context.settings.of(WhenDoneSettings), record) - context.now_s
    when = f"in {span(left_s)} (`extralifectl when-done cancel` keeps it)" if left_s > 0 else "now"
    again = f"; {_name(context)} has run, and {record.error}" if record.failures else ""
    return f"{because}{again}: this box is stopped {when}"


def _report(context: DecisionContext, because: str) -> str:
    record, made = context.state.of(EndRecord), context.copies
    paid_s = context.now_s - record.off_s
    spent = cost.usd_of(paid_s / 3600.0, context.settings.cost.usd_per_hour)
    so_far = span(paid_s) if spent is None else usd(spent)
    off_box = record.copied_s is not None and made is not None and made.snapshot
    where = f"here and off the box as {made.snapshot}" if off_box and made else "on this box only"
    kept = saves(context.state, context.settings, context.now_s)
    return f"{because}; {so_far} so far; saved {where}: {kept}; this box is now told to stop"


FEATURE = Feature(
    turn=70, section="when_done", record="when_done", inputs={WhenDoneEnded: on_ended}, requests={Verb.WHEN_DONE: on_asked},
    configured=on_config, refuses=refuses_starts, pursue=pursue,
    held=lambda context: Held("when_done", _LEAVES) if context.state.of(EndRecord).keeps_down else None,
    alerts=(
        AlertRow(facts.WhenDoneStep, REPORT, INFO, lambda _, fact: fact.step == Step.REPORT),
        AlertRow(
            facts.WhenDoneStep, REPORT, WARNING,
            lambda context, fact: fact.step == Step.BEGIN
            and (fact.error or fact.cause not in {DONE, context.before.of(EndRecord).announced}),
        ),
        AlertRow(
            facts.WhenDoneStep, "meter", CRITICAL,
            lambda context, fact: fact.error and fact.step not in {Step.REPORT, Step.BEGIN}
            and (fact.step != Step.ENDED or rule.reminds(context.state.of(EndRecord).failures)),
        ),
    ),
)  # fmt: skip
