"""The journal of a simulated box tells `simulate --journal` what the box was like; its policy goes the way that it went."""

from test_stories_of_levels import box, live

from supervisor.ctl.past import past_of
from supervisor.policy.load import LoadSettings
from supervisor.whatif.compare import OURS, replay


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
