"""The life of a program: one total table, phase x edge -> phase. All transitions live here and nowhere else.

Theory of operation. A program is always in exactly one phase. Some facts are *edges*, which move it to another phase. Any
other fact (a checkpoint, a stall, evidence) leaves the phase unchanged. `fold` calls `step` for every edge. So an edge that
a phase does not allow is an error before it is committed, not a wrong state afterwards.

A phase either has a process (STARTING, RUNNING, STOPPING), or a deadline (BACKOFF), or waits for an outside event: a slot
(QUEUED), a GPU or its memory (GATED), the operator (STOPPED), the operator or the config (FATAL, EXITED), nothing (DONE).

The end of an attempt is not an edge of its own. The same transaction that holds `Exited` also holds the fact that follows
from it (BACKED_OFF, REQUEUED, FINISHED, GAVE_UP, STAYED_DOWN), and that fact is the edge. Only older journals stop DONE.

The table has every pair, also the impossible ones (None): a missing pair fails the totality test, not a run in the night.
"""

from __future__ import annotations

import enum
from typing import Final

from supervisor.model import facts


class Phase(enum.StrEnum):
    QUEUED = "QUEUED"  # wants to run, has no slot
    GATED = "GATED"  # waits for its GPU, or has a slot and waits for memory of its GPU
    STARTING = "STARTING"  # spawned, no sign of training yet
    RUNNING = "RUNNING"  # training
    STOPPING = "STOPPING"  # asked to checkpoint and leave
    BACKOFF = "BACKOFF"  # died; the next start has a time
    DONE = "DONE"  # reached its target
    STOPPED = "STOPPED"  # stopped by the operator
    FATAL = "FATAL"  # can never work as configured
    EXITED = "EXITED"  # ended with a failure, and its `restart` is never


class Edge(enum.StrEnum):
    CONFIGURED = "configured"  # new, or changed, in the config
    GATED = "gated"
    SPAWN_INTENDED = "spawn intended"
    BECAME_READY = "became ready"
    STOP_INTENDED = "stop intended"
    BACKED_OFF = "backed off"
    REQUEUED = "requeued"
    FINISHED = "finished"
    NOT_RESTARTED = "not restarted"
    GAVE_UP = "gave up"
    STAYED_DOWN = "stayed down"


class IllegalTransition(Exception):
    """An edge that the table does not allow: a bug in `decide`, found before anything was committed."""


HAS_PROCESS: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})

_Q, _S, _R, _X = Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING
_B, _D, _O, _F = Phase.BACKOFF, Phase.DONE, Phase.STOPPED, Phase.FATAL
_G, _E = Phase.GATED, Phase.EXITED

# fmt: off
TABLE: Final[dict[Phase, dict[Edge, Phase | None]]] = {
    #              from:             edge -> to (None: cannot happen)
    _Q: {Edge.CONFIGURED: _Q, Edge.GATED: _G, Edge.SPAWN_INTENDED: _S, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _G: {Edge.CONFIGURED: _G, Edge.GATED: _G, Edge.SPAWN_INTENDED: _S, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _S: {Edge.CONFIGURED: _S, Edge.GATED: _G, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: _R, Edge.STOP_INTENDED: _X,
         Edge.BACKED_OFF: _B, Edge.REQUEUED: _Q, Edge.FINISHED: _D, Edge.NOT_RESTARTED: _E,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _R: {Edge.CONFIGURED: _R, Edge.GATED: _G, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: _X,
         Edge.BACKED_OFF: _B, Edge.REQUEUED: _Q, Edge.FINISHED: _D, Edge.NOT_RESTARTED: _E,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _X: {Edge.CONFIGURED: _X, Edge.GATED: _G, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: _X,
         Edge.BACKED_OFF: _B, Edge.REQUEUED: _Q, Edge.FINISHED: _D, Edge.NOT_RESTARTED: _E,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _B: {Edge.CONFIGURED: _B, Edge.GATED: _G, Edge.SPAWN_INTENDED: _S, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: _B, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _D: {Edge.CONFIGURED: _D, Edge.GATED: None, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: None, Edge.STAYED_DOWN: _O},
    _O: {Edge.CONFIGURED: _O, Edge.GATED: None, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: None, Edge.STAYED_DOWN: _O},
    _F: {Edge.CONFIGURED: _F, Edge.GATED: None, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: _F, Edge.STAYED_DOWN: _O},
    _E: {Edge.CONFIGURED: _E, Edge.GATED: None, Edge.SPAWN_INTENDED: None, Edge.BECAME_READY: None, Edge.STOP_INTENDED: None,
         Edge.BACKED_OFF: None, Edge.REQUEUED: _Q, Edge.FINISHED: None, Edge.NOT_RESTARTED: None,
         Edge.GAVE_UP: None, Edge.STAYED_DOWN: _O},
}
# fmt: on

EDGE_OF: Final[dict[type[facts.Fact], Edge]] = {
    facts.ProgramConfigured: Edge.CONFIGURED,
    facts.Gated: Edge.GATED,
    facts.SpawnIntended: Edge.SPAWN_INTENDED,
    facts.BecameReady: Edge.BECAME_READY,
    facts.StopIntended: Edge.STOP_INTENDED,
    facts.BackedOff: Edge.BACKED_OFF,
    facts.Requeued: Edge.REQUEUED,
    facts.Finished: Edge.FINISHED,
    facts.NotRestarted: Edge.NOT_RESTARTED,
    facts.GaveUp: Edge.GAVE_UP,
    facts.StayedDown: Edge.STAYED_DOWN,
}


def step(phase: Phase, edge: Edge) -> Phase:
    """The phase after `edge`, or IllegalTransition."""
    after = TABLE[phase][edge]
    if after is None:
        raise IllegalTransition(f"{phase} does not allow {edge!r}")
    return after
