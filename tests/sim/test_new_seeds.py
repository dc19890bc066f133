"""New nights with every run of the slow suite: seeds that nobody has seen, for some minutes, and the command that tells one again.

`SIM_MINUTES=60 pytest -m slow tests/sim/test_new_seeds.py` goes on for an hour; `SIM_FIRST=N` begins at a seed of before.
What it finds becomes a line of known_seeds.py, together with its repair.
"""

import itertools
import os
import time

import pytest
from boxes import BOXES, DAY_S, night
from years import BOX, DAYS, programs_of

MINUTES = float(os.environ.get("SIM_MINUTES", "5"))
YEAR_DAYS = 30.0  # of one story in the box that is looked at for years
LEAST_DAYS = 20.0
EVERY_S = 300.0  # between two lines of progress: a run that is ended early has told what it did


def stories(first):
    """Box, seed, programs and days: weeks of one or more programs, years of mixed boxes, and a night of each other box."""
    others = itertools.cycle([box for box in BOXES if box not in {"year", BOX}])
    for seed in itertools.count(first):
        if seed % 4 == 0:
            yield next(others), seed, 4, None
        elif seed % 4 == 1:
            yield "year", seed, (1, 1, 2, 4)[seed // 4 % 4], YEAR_DAYS
        else:
            yield BOX, seed, programs_of(seed), DAYS


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
def test_seeds_that_nobody_has_seen(capsys):
    first = int(os.environ.get("SIM_FIRST", int(time.time())))
    over_s, days, nights = time.monotonic() + 60 * MINUTES, 0.0, 0
    told_s = time.monotonic()
    for box, seed, programs, length_days in stories(first):
        if time.monotonic() > over_s and days > LEAST_DAYS:
            break
        found = night(box, seed, programs, length_s=None if length_days is None else length_days * DAY_S)
        nights, days = nights + 1, days + found.world.now_s / DAY_S
        if found.error is not None:
            pytest.fail(f"{found.error}\n{again(box, seed, programs, length_days)}", pytrace=False)
        if time.monotonic() - told_s > EVERY_S:
            told_s = time.monotonic()
            tell(capsys, nights, days, first)
    tell(capsys, nights, days, first)
    assert days > LEAST_DAYS


def tell(capsys, nights, days, first):
    with capsys.disabled():
        print(f"\n{nights} nights, {days / 365:.2f} simulated years, no finding, from SIM_FIRST={first}", flush=True)


def again(box, seed, programs, days):
    """The command that tells this night again, and shrinks it."""
    length = "" if days is None else f" --days {days:g}"
    return f"python tests/sim/soak.py --box {box} --first {seed} --seeds 1 --programs {programs}{length}"
