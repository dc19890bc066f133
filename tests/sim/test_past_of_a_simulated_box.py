"""The journal of a simulated box tells `simulate --journal` what the box was like; its policy goes the way that it went."""

from test_stories_of_levels import box, live

from supervisor.ctl.past import _records, past_of
from supervisor.policy.level import load
from supervisor.policy.level.load import LevelKnown, LoadSettings, Other
from supervisor.simulation.compare import OURS, replay
from supervisor.simulation.past import Record


def test_the_past_of_a_box_that_dies_at_heavy():
    world = live(box(), 8)
    past = past_of(world.core.journal)
    assert past.names == ("light", "medium", "heavy")
    light, medium, heavy = past.records
    assert light.reboots == medium.reboots == 0.0
    assert heavy.reboots == len(past.deaths) == len(world.core.state.reboots)
    assert 900.0 < heavy.wear_s < 1200.0
    assert past.path[0] == (0.0, 0)
    assert sum(past.ran_s) < past.for_s
    found = replay(past, LoadSettings(names=past.names), days=None, seed=1, draws=3, start=None)
    was, would = found.ways[0], found.ways[1]
    assert would.name == OURS
    assert abs(was.reboots - would.reboots) <= 1.0
    assert abs(was.share - would.share) < 0.08, "the rule that ran is the rule that is replayed"


def test_what_was_seen_in_bad_hours_counts_too():
    state = load.begin(2)
    good = (LevelKnown(100.0, 0.0), LevelKnown(50.0, 1.0))
    bad = (LevelKnown(30.0, 0.0), LevelKnown(20.0, 4.0))
    assert _records(state._replace(known=good)) == [Record(100.0, 0.0), Record(50.0, 1.0)]
    both = state._replace(known=bad, bad=True, other=Other(good, 1))
    assert _records(both) == [Record(130.0, 0.0), Record(70.0, 5.0)]
