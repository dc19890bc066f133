"""The life-cycle table: total, closed, drawn; and an edge that it does not allow changes nothing."""

import re

import pytest
from core_kit import Core, settings
from tools import ROOT

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold, replay
from supervisor.model.lifecycle import EDGE_OF, HAS_PROCESS, TABLE, Edge, IllegalTransition, Phase, step


def test_the_table_is_total():
    assert set(TABLE) == set(Phase)
    for phase, row in TABLE.items():
        assert set(row) == set(Edge), f"{phase} forgets {set(Edge) - set(row)}"


def test_every_edge_has_its_fact_and_every_phase_can_be_reached_and_left():
    assert set(EDGE_OF.values()) == set(Edge)
    assert len(set(EDGE_OF.values())) == len(EDGE_OF)
    for phase in Phase:
        assert phase is Phase.QUEUED or any(phase in row.values() for other, row in TABLE.items() if other is not phase)
        assert any(after not in {None, phase} for after in TABLE[phase].values()), f"no way out of {phase}"


def test_only_a_spawn_gives_a_process():
    rows = [(phase, edge, after) for phase, row in TABLE.items() for edge, after in row.items()]
    begins = {(edge, after) for phase, edge, after in rows if after in HAS_PROCESS and phase not in HAS_PROCESS}
    assert begins == {(Edge.SPAWN_INTENDED, Phase.STARTING)}
    second = {after for phase, edge, after in rows if phase in HAS_PROCESS and edge is Edge.SPAWN_INTENDED}
    assert second <= {None}, "a second process beside the first"


def fact_of(edge, name="Pong", token="?"):
    kind = next(kind for kind, found in EDGE_OF.items() if found is edge)
    more = {
        facts.ProgramConfigured: ("Pong-1",),
        facts.Gated: (0, 10, 5),
        facts.SpawnIntended: (token, 9, "Pong-1", "light"),
        facts.BecameReady: (token, 1.0),
        facts.StopIntended: (token, "operator", "alice", 20.0),
        facts.BackedOff: (99.0, 9.0, False),
    }.get(kind, ())
    return kind("because", name, *more)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("edge", list(Edge))
def test_fold_follows_the_table_and_refuses_the_rest_without_a_trace(phase, edge):
    core = Core(settings("Pong", slots=1)).into(phase)
    before, token = core.state, core.program("Pong").attempt and core.token("Pong")
    stamped = Stamped(999, core.now_s + 1.0, 1.0, core.boot_id, fact_of(edge, token=token or "?"))
    after = TABLE[phase][edge]
    if after is None:
        with pytest.raises(IllegalTransition, match=f"^{phase} does not allow {edge!r}$"):
            fold(before, stamped)
        with pytest.raises(IllegalTransition):
            step(phase, edge)
        assert core.state == before
        state, misfits = replay([*core.journal, stamped])
        assert (state, misfits) == (before, 1), "a damaged journal is folded around what does not fit"
    else:
        assert fold(before, stamped).programs["Pong"].phase is after
        assert step(phase, edge) is after


def test_each_edge_of_the_diagram_is_in_the_table_and_each_phase_is_explained():
    guide = (ROOT / "docs" / "concepts.md").read_text()
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", guide, re.MULTILINE)
    assert len(drawn) == 6
    for before, after, edge in drawn:
        assert TABLE[Phase(before)][Edge(edge)] is Phase(after)
    for phase in Phase:
        assert f"| `{phase.value}` |" in guide
