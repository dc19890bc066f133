"""Days of faults in seconds, by seed: whatever happens, what must hold holds, and in the end everything trains again.

`SIM_SEEDS=500 pytest tests/sim/test_many_nights.py` looks at more of them; `SIM_FIRST=123 SIM_SEEDS=1` at a single one;
`python tests/sim/soak.py` goes on for as long as one likes, test_new_seeds.py takes other seeds with every slow run.
"""

import os

import pytest
from boxes import BOXES, HOUR_S, ROUGH, night
from removable import PRESENT
from world import World

FIRST, SEEDS = int(os.environ.get("SIM_FIRST", "1")), int(os.environ.get("SIM_SEEDS", "2"))
EVENTFUL = {  # a world in which nothing goes wrong would prove nothing
    "usual": (
        "Exited Stalled Examined BackedOff Recovered Requeued StayedDown HostRebooted DaemonSuspended Resumed "
        "Checkpointed ProgramConfigured Wanted IntervalChosen"
    ),
    "rough": "SpawnFailed Revived KillIntended GaveUp LevelChosen ProgramRemoved HostRebooted DaemonSuspended ClockStepped",
    "crashing": "GaveUp BackedOff Exited",
    "poisoned": "CheckpointQuarantined Recovered",
    "reboots": "HostRebooted DaemonStopped Resumed",
    "scripts": "ChildHalted Stalled Exited Recovered HostRebooted DaemonSuspended",
    "year": "HostRebooted Stalled Recovered",
    "mixed": "Resumed" + " BackedUp" * ("backups" in PRESENT) + " ReportMade AlertDelivered" * ("alerts" in PRESENT),
}
LENGTH_S = {
    "year": 2 * 24 * HOUR_S,
    "mixed": 2 * 24 * HOUR_S,
    "reboots": 12 * HOUR_S,
}  # `soak.py` looks at whole weeks and years
STRIKES = {
    "usual": "crash stall kill reboot journal operator late twice",
    "rough": "crash stall kill pause reboot journal clock suspend operator late twice deaf dies",
}


@pytest.mark.parametrize("box", BOXES)
def test_the_nights_of_a_box(box):
    told, struck, failed_writes = set(), set(), 0
    for seed in range(FIRST, FIRST + SEEDS):
        found = night(box, seed, length_s=LENGTH_S.get(box))
        if found.error is not None:
            pytest.fail(report(found), pytrace=False)
        told |= set(found.world.counts)
        struck |= {name.split()[0] for _, name in found.world.struck}
        failed_writes += found.world.writes_failed
    assert set(EVENTFUL[box].split()) <= told
    assert set(STRIKES.get(box, "").split()) <= struck
    assert failed_writes or box not in STRIKES


def test_a_seed_is_a_story():
    """The same seed gives the same journal, to the last fact: a failure can be looked at again."""
    one, other = (World(FIRST, odds=ROUGH, look_s=20.0).begin() for _ in range(2))
    for world in (one, other):
        world.run(2 * HOUR_S)
    assert one.core.journal == other.core.journal
    assert one.core.state == other.core.state
    assert one.struck == other.struck
    assert len(one.core.journal) > 100


def report(found):
    return f"box {found.box}, seed {found.seed}: {found.error}\n" + "\n".join(found.world.story)
