"""The box goes away without notice, or with too little: nothing that a program had stored is lost."""

from __future__ import annotations

import random
import re
import time

import pytest


@pytest.mark.slow
def test_ten_kills_at_random_moments_lose_no_stored_step(box):
    """In the same container, started again, and in a new one, with another host name, another /run and another pid 1."""
    seed = random.randrange(2**32)
    print("seed", seed)
    moments = random.Random(seed)
    box.run()
    stored = box.trains()["steps"] and box.acknowledged()
    for number in range(10):
        time.sleep(moments.uniform(0, 4))
        box.kill()
        assert box.acknowledged() >= stored
        stored = box.acknowledged()
        if number % 2:
            box.start()
        else:
            box.run()
    until_trains = box.trains()
    assert until_trains["steps"] >= stored
    began = [int(step) for step in re.findall(r"begins at step (\d+)", box.ctl("tail", "-1000000", "one"))]
    assert began == sorted(began)
    assert began[-1] >= stored
