"""decide: one input in, facts and commands out. Pure: it uses no clock, disk, process, log or random number.

The shell calls it for every input, commits the facts in one transaction, and only then performs the commands. After a kill
in between, the next daemon finds its started workers by their run tokens.
"""

from __future__ import annotations

from typing import Any

from supervisor.deciding import levels
from supervisor.deciding.attempts import fill_slots, on_ended, on_spawn_broke, on_spawned
from supervisor.deciding.clocks import notice
from supervisor.deciding.context import Decision, DecisionContext
from supervisor.deciding.features import FEATURES
from supervisor.deciding.healing import notice_own_absence, on_deadlines, on_evidence, on_sampled
from supervisor.deciding.requests import end_if_empty, on_asked, on_config, on_config_fault, on_terminated
from supervisor.deciding.startup import on_began
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.codec import as_text
from supervisor.model.inputs import (  # fmt: skip
    Asked,
    Began,
    ConfigFaulty,
    ConfigLoaded,
    Ended,
    EvidenceTaken,
    Input,
    Sampled,
    SnapshotDue,
    SpawnBroke,
    SpawnSucceeded,
    Terminated,
    Woke,
)
from supervisor.model.memory import Memory, Trouble
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.records import replace


def decide(settings: Settings, state: State, memory: Memory, item: Input, *, wall_s: float, boot_id: str) -> Decision:
    """The decision on `item`, given the durable state (`state`) and recent observations (`memory`)."""
    context = DecisionContext(settings, state, memory, item.now_s, wall_s, boot_id, FEATURES)
    if memory.trouble is not None:
        _record_journal_trouble(context, memory.trouble)
    if not isinstance(item, Began):  # `on_began` first finds out whether this is the same boot
        notice(context)
    if memory.overslept_s is not None:
        notice_own_absence(context, memory.overslept_s)
    _HANDLERS[type(item)](context, item)
    if isinstance(item, Sampled) and context.settings.climbs:
        levels.on_sample(context)
    on_deadlines(context)
    for pursue in context.hooks("pursue"):
        pursue(context)
    if context.settings.climbs or context.state.climb.pin is not None:
        levels.on_deadlines(context)
    fill_slots(context)
    if context.state.stopping:
        end_if_empty(context)
    for conclude in context.hooks("conclude"):
        conclude(context)
    return context.decision()


def _on_snapshot(context: DecisionContext, item: SnapshotDue) -> None:
    context.record(facts.Snapshot(f"state after {item.facts:,} more facts", as_text(context.state)))


_HANDLERS: dict[type[Input], Any] = {
    Asked: on_asked, Began: on_began, ConfigFaulty: on_config_fault, ConfigLoaded: on_config, Ended: on_ended,
    EvidenceTaken: on_evidence, Sampled: on_sampled, SnapshotDue: _on_snapshot, SpawnBroke: on_spawn_broke,
    SpawnSucceeded: on_spawned, Terminated: on_terminated,
    Woke: lambda *_: None,  # every input checks the deadlines; this one does nothing else
}  # fmt: skip
for _feature in FEATURES:
    _HANDLERS |= _feature.inputs


def _record_journal_trouble(context: DecisionContext, trouble: Trouble) -> None:
    """Record that the journal could not be written, as the first fact of the next turn that succeeds.

    While the journal cannot be written, every turn tries to record this fact. So every sample (once a second) tests whether
    the disk has room again.
    """
    context.memory = replace(context.memory, trouble=None)
    for_s = max(0.0, context.now_s - trouble.since_s)
    why = f"the journal could not be written for {span(for_s)} ({trouble.error}): extralife started nothing meanwhile"
    context.record(facts.JournalStalled(why, trouble.error, for_s, trouble.since_wall_s))
