"""What a feature adds to the decisions: the row `FEATURE` of its module `decide`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from supervisor.model.commands import Spawn
from supervisor.model.facts import Fact
from supervisor.model.inputs import Asked, Ending, Input, Terminated, Verb
from supervisor.model.memory import Held, Memory
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.worker.diagnosis import Diagnosis
from supervisor.records import Record

if TYPE_CHECKING:
    from supervisor.deciding.context import DecisionContext


class Copies(Record):
    """The copies off the box, for features that need one. None in its place: none are made.

    `asked`: the cause of an awaited copy; `error`: of the newest try, if that failed; `fenced`: why this box makes none now;
    the rest is about the newest copy: when its files were collected (journal time), for how long it was made, its name.
    """

    asked: str = ""
    error: str = ""
    fenced: str = ""
    at_s: float | None = None
    took_s: float | None = None
    snapshot: str = ""


class BoxEnd(Record):
    """An announced end of this box: by whom, in the source's own words, and when (journal time; None: not said)."""

    source: str
    what: str
    until_s: float | None = None


class AlertRow(Record):
    """An alert that a kind of fact raises. `when`: only these facts; `text`: in place of the fact's reason."""

    of: type[Fact]
    kind: str
    severity: str | Callable[[Any], str]
    when: Callable[[DecisionContext, Any], object] = lambda _, __: True
    text: Callable[[DecisionContext, Any], str] = lambda _, fact: fact.why


class Feature(Record):
    """What a feature adds to the decisions: `FEATURE` of its module. No other module of the decisions names it.

    While its section, its record and its part of the memory are as by default, no hook of every turn is called.
    """

    turn: int  # its place in a turn: kernel and features use 10, 20, 30 ... in docs/architecture.md
    section: str = ""
    record: str = ""
    memory: str = ""
    inputs: Mapping[type[Input], Callable[[DecisionContext, Any], None]] = field(default_factory=dict)
    requests: Mapping[Verb, Callable[[DecisionContext, Asked], None]] = field(default_factory=dict)
    held: Callable[[DecisionContext], Held | None] | None = None  # why programs do not start
    order: Callable[[DecisionContext, Spawn], Spawn] | None = None  # changes the order to start an attempt
    verdict: Callable[[Ending, tuple[int, ...], Diagnosis], Diagnosis] | None = None  # why an attempt has ended
    ended: Callable[[DecisionContext, str, Ending, State], None] | None = None  # with the state before the end
    follows: Callable[[DecisionContext, str, Diagnosis], bool] | None = None  # whether it has handled this end
    pursue: Callable[[DecisionContext], None] | None = None  # at the end of every turn, before programs are started ...
    conclude: Callable[[DecisionContext], None] | None = None  # ... and after that
    brings_work: Callable[[DecisionContext], bool] | None = None  # programs will train again
    waits_for_targets: Callable[[DecisionContext, str], bool | None] | None = None  # whether an alert of this kind does
    holds_end: Callable[[DecisionContext], bool] | None = None  # whether the daemon's end waits for it
    copies: Callable[[DecisionContext], Copies | None] | None = None  # the copies off the box that it makes
    begun: Callable[[DecisionContext, str], float | None] | None = None  # since when another host runs this attempt
    refused: Callable[[DecisionContext, str], str | None] | None = None  # why its launcher cannot end it; "": it can
    box_ends: Callable[[DecisionContext], BoxEnd | None] | None = None  # the announced end of this box
    alerts: tuple[AlertRow, ...] = ()  # the facts that raise an alert
    # Also called while it takes no part:
    began: Callable[[DecisionContext, bool], None] | None = None  # a daemon's first turn; whether the box has rebooted
    announced: Callable[[DecisionContext, float], BoxEnd | None] | None = None  # the end after this last sign of life
    configured: Callable[[DecisionContext], None] | None = None  # other settings are in use
    before_level: Callable[[DecisionContext, str, bool], object] | None = None  # the level, and whether it is a trial
    refuses: Callable[[DecisionContext], str] | None = None  # why a request to start a program is refused
    terminated: Callable[[DecisionContext, Terminated], bool] | None = None  # whether it has handled this signal

    def takes_part(self, context: DecisionContext) -> bool:
        named = ((context.settings, self.section), (context.memory, self.memory))
        parts = [(of, name) for of, name in (*named, (context.state, self.record), (context.before, self.record)) if name]
        return not parts or any(getattr(of, name) != _DEFAULTS[type(of), name] for of, name in parts)


SELDOM = frozenset({"began", "announced", "configured", "before_level", "refuses", "terminated"})

_DEFAULTS: dict[tuple[type, str], Any] = {
    (of, each.name): each.default_factory()
    for of in (Settings, State, Memory) for each in dataclasses.fields(of) if each.default_factory is not dataclasses.MISSING
}  # fmt: skip
