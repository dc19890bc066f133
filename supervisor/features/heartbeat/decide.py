"""The heartbeat: the deciding loop orders each ping, so no ping outlives it."""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.features.heartbeat.record import Beating
from supervisor.features.heartbeat.rules import DONE, FAIL, START, UP, Ping
from supervisor.features.heartbeat.settings import HeartbeatSettings
from supervisor.model import facts
from supervisor.policy.box.foundations import Answer
from supervisor.records import replace

_ORDERED, _CALLED_OFF = "run", "call off"  # steps of an end of the work


def pursue(context: DecisionContext) -> None:
    """Ping at once if there is news, else every `every_s`."""
    every_s, beating = context.settings.of(HeartbeatSettings).every_s, context.memory.of(Beating)
    if context.memory.ended:
        return
    for fact in context.facts:
        if isinstance(fact, facts.WhenDoneStep) and fact.step in {_ORDERED, _CALLED_OFF}:
            beating = replace(beating, ends=fact.why if fact.step == _ORDERED else "")
            context.remember(beating)
    word, text = _word(context) if beating.word else (START, "")
    due_s = beating.at_s + every_s
    if word == beating.word and context.now_s < due_s:
        context.wake(due_s)
        return
    context.remember(replace(beating, at_s=context.now_s, word=word))
    context.command(Ping(word, text))
    context.wake(context.now_s + (1.0 if word == START else every_s))


def _word(context: DecisionContext) -> tuple[str, str]:
    ends = context.memory.of(Beating).ends
    if context.state.stopping:
        return DONE, "extralife is shutting down"
    if ends:
        return DONE, ends
    if (end := context.first("box_ends")) is not None:
        return DONE, f"this box ends, as {end.source} has announced"
    vital = (each for each in context.memory.foundations.values() if each.answer is Answer.TROUBLE)
    blind = next((each.why for each in vital if each.finding.name.startswith("thread ") and each.finding.consequence), "")
    return (FAIL, blind) if blind else (UP, "")


FEATURE = Feature(turn=95, section="heartbeat", pursue=pursue)
