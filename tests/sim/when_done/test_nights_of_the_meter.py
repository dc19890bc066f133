"""Nights of the meter on the simulator. `METER_NIGHTS=100 pytest tests/sim/when_done/test_nights_of_the_meter.py` plays more of them."""

import os

from meter import night

FIRST, NIGHTS = int(os.environ.get("METER_FIRST", "1")), int(os.environ.get("METER_NIGHTS", "8"))


def test_the_command_never_runs_too_early_nor_twice_and_always_in_the_end():
    stopped = 0
    for seed in range(FIRST, FIRST + NIGHTS):
        try:
            stopped += night(seed).stopped_s is not None
        except Exception as error:
            raise AssertionError(f"METER_FIRST={seed} METER_NIGHTS=1: {error}") from error
    assert stopped >= NIGHTS // 3, "most nights end"
