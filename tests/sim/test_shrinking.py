"""A rule that is broken on purpose is found by some night, and what is told of it is short."""

import dataclasses

import pytest
from boxes import night
from shrinking import shrink, told

from supervisor.core import attempts, beginning, healing
from supervisor.core.inputs import Survival


def hunt(box, seeds=range(1, 30), programs=4):
    """The first night of a box that finds something."""
    for seed in seeds:
        found = night(box, seed, programs)
        if found.error is not None:
            return found
    pytest.fail("the broken rule was not found")


def test_a_reboot_that_counts_as_a_death(monkeypatch):
    """`beginning` takes every attempt that a reboot ended for one that died by itself."""
    settle = beginning._settle_attempt

    def broken(turn, program, attempt, survivor, *, rebooted, last_sign_s):
        settle(turn, program, attempt, survivor, rebooted=False, last_sign_s=last_sign_s)

    monkeypatch.setattr(beginning, "_settle_attempt", broken)
    found = shrink(hunt("usual"), most_s=20.0)
    assert found.name == "no reboot is charged to a program" or "reboot" in told(found)
    kinds = [name.split()[0] for _, name in found.world.struck]
    assert kinds == ["reboot"]
    assert len(found.world.names) == 1
