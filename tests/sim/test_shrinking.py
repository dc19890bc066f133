"""A rule that is broken on purpose is found by some night, and what is told of it is short: the misfortunes that it takes."""

import dataclasses
import time

import pytest
from boxes import night
from shrinking import shrink, told

from supervisor.deciding import context, decide, startup
from supervisor.model.inputs import Ended, Survival
from supervisor.shell.loop import Loop


def shortest(box="usual", seeds=range(1, 20)):
    """The shortest story of the first night of a box that finds something, and how many misfortunes it had before."""
    for seed in seeds:
        found = night(box, seed)
        if found.error is not None:
            return shrink(found, most_s=20.0, clock=time.process_time), len(found.world.struck)
    pytest.fail("the broken rule was not found")


def kinds(found):
    return sorted(name.split()[0] for _, name in found.world.struck)


def test_a_reboot_that_counts_as_a_death(monkeypatch):
    settle = startup._settle_attempt

    def broken(context, name, item, *, rebooted, last_sign_s):
        settle(context, name, item, rebooted=False, last_sign_s=last_sign_s)

    monkeypatch.setattr(startup, "_settle_attempt", broken)
    found, _ = shortest()
    assert found.name == "no reboot is charged to a program"
    assert kinds(found) == ["reboot"]
    assert len(found.world.names) == 1


def test_a_worker_that_is_not_adopted(monkeypatch):
    """It takes two: a daemon that is killed, and (here) that the attempt's fate is looked at."""
    settle = startup._settle_attempt

    def broken(context, name, item, **more):
        never = {who: dataclasses.replace(found, survival=Survival.NEVER) for who, found in item.survivors.items()}
        settle(context, name, dataclasses.replace(item, survivors=never), **more)

    monkeypatch.setattr(startup, "_settle_attempt", broken)
    found, before = shortest()
    assert found.name == "every process is known"
    assert "kill" in kinds(found)
    assert len(kinds(found)) <= 2 < before


def test_a_command_without_its_fact(monkeypatch):
    """The loop goes on although the journal has not taken the facts."""
    commit = Loop._commit

    def broken(self, decision, item, wall_s):
        commit(self, decision, item, wall_s)
        return True

    monkeypatch.setattr(Loop, "_commit", broken)
    found, before = shortest()
    assert found.name == "the journal gives the state"
    assert kinds(found)[:1] == ["journal"]
    assert len(kinds(found)) <= 2 < before


def test_a_kill_that_nothing_wakes_the_loop_for(monkeypatch):
    monkeypatch.setattr(context, "kill_due_s", lambda _: float("inf"))
    found, _ = shortest()
    assert found.name == "nothing waits for ever"
    assert len(kinds(found)) == 1


@pytest.mark.slow  # half a minute, most of it to make the story short
def test_an_end_that_is_not_heard(monkeypatch):
    """An exit is ignored once SIGKILL was sent: its program would wait for ever."""
    on_ended = decide.on_ended

    def broken(context, item):
        found = context.live(item.program, item.token)
        if found is None or found[1].stop is None or found[1].stop.killed_at_s is None:
            on_ended(context, item)

    monkeypatch.setitem(decide._HANDLERS, Ended, broken)
    found, _ = shortest()
    assert found.name == "nothing waits for ever"
    assert len(kinds(found)) <= 2
    story = told(found)
    assert "STOPPING, but it has no process, and no news of it is on its way" in story
    assert "python tests/sim/soak.py --box usual" in story
    assert f"--only '{','.join(sorted(found.only))}'" in story


def test_what_is_reported_again_is_the_same(monkeypatch):
    """A shrunk story is told by its programs and misfortunes alone, to the same end."""
    monkeypatch.setattr(context, "kill_due_s", lambda _: float("inf"))
    found, _ = shortest()
    again = night(found.box, found.seed, found.programs, only=found.only, without=found.without)
    assert str(again.error) == str(found.error)
    assert again.world.story == found.world.story
