"""A calm stretch that is jumped over leaves the story as it is: every event, every decision, to the same moment.

What may differ is what looks alone write down, one after the other: checkpoints seen, sums of training time, the interval
of checkpoints, and the snapshots that are due by the number of all these. Steps differ with the interval, so accounts
agree but for the time that saves took and the work that was lost since a checkpoint.
"""

import os

import pytest
from boxes import DAY_S, climbs, mixed, night
from world import CALM, QUIET, facts

from supervisor.policy.upkeep.accounting import Account
from supervisor.reports import accounts
from supervisor.reports.ledger import fold_accounts

FIRST, SEEDS = int(os.environ.get("SIM_FIRST", "3")), int(os.environ.get("SIM_SEEDS", "2"))
DAYS = 5.0
LEFT_OUT = 0.5  # of the looks of a stepped story, at least, over all seeds
OF_LOOKS = QUIET | facts.Snapshot


def told(seed, *, jumps):
    found = night("mixed", seed, 1 + seed % 4, length_s=DAYS * DAY_S, jumps=jumps)
    assert found.error is None, found.error
    return found.world


def loud(world):
    """What happened and was decided, with its times."""
    rows = [row for row in world.core.journal if not isinstance(row.fact, OF_LOOKS)]
    return [(round(row.at_s, 3), type(row.fact).__name__, getattr(row.fact, "program", "")) for row in rows]


def slots_s(world):
    """Seconds of the slots by account. Trained is trained, whether it was kept, lost or spent in saves."""
    found = accounts.summary(fold_accounts(world.core.journal).closed(world.core.now_s)).slots.seconds
    trained = {Account.TRAINING, Account.LOST, Account.SAVING}
    rest = {account: seconds for account, seconds in found.items() if account not in trained}
    return {"trained": sum(seconds for account, seconds in found.items() if account in trained), **rest}


def test_a_story_with_jumps_is_the_story_without():
    looks, left_out = 0, 0
    for seed in [seed for seed in range(FIRST, FIRST + SEEDS) if not climbs(seed)]:
        jumped, stepped = told(seed, jumps=True), told(seed, jumps=False)
        assert loud(jumped) == loud(stepped), f"seed {seed}"
        assert jumped.struck == stepped.struck, f"seed {seed}"
        assert slots_s(jumped) == pytest.approx(slots_s(stepped), rel=1e-3, abs=60.0), f"seed {seed}"
        assert stepped.jumped == 0
        looks, left_out = looks + stepped.turns, left_out + jumped.jumped
    assert left_out > LEFT_OUT * looks


def test_a_box_that_climbs_is_looked_at_all_the_time():
    assert climbs(7)
    assert not climbs(8)
    found = night("mixed", 7, 4, length_s=DAY_S)
    assert found.error is None, found.error
    assert found.world.jumped == 0
    assert {"LadderLaid", "Reviewed", "LevelChosen"} <= set(found.world.counts)


def test_boxes_are_of_all_kinds():
    """From one fault in hours to one in weeks, all counted."""

    def between_s(seed):
        odds = {name: value for name, value in vars(mixed(seed, 1)).items() if name.endswith("_s") and value}
        return 1.0 / sum(1.0 / seconds for seconds in odds.values())

    found = sorted(between_s(seed) for seed in range(200) if not climbs(seed))
    assert found[0] < 2 * 3600.0
    assert found[-1] > 45 * DAY_S
    assert CALM.crash_s is None
