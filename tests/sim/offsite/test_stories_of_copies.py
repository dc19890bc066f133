"""Stories about boxes that are lost and regained: who goes on, what is lost, and that never two of them train for long."""

import pytest
from copies import LEAVES_S, RULES, box, come_back, regained, run_together, vanish
from test_stories import worker
from world import Verb

from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.rules import END
from supervisor.model import facts

MOST_DOUBLE_S = RULES.every_s + LEAVES_S


def told(world, kind):
    return [row.fact for row in world.core.journal if isinstance(row.fact, kind)]


@pytest.mark.parametrize("off_s", [20.0, 900.0])
def test_a_lost_box_is_regained_and_the_first_one_comes_back_fenced(off_s):
    first = box().begin()
    first.run(1000.0)
    was_at = int(worker(first).steps)
    vanish(first)
    other, copy = regained(first, first.now_s + 60.0)
    other.run(120.0)
    resumed = told(other, facts.Resumed)[-1]
    assert resumed.step == copy.disks[resumed.program].newest()
    assert worker(other).steps > 0
    assert was_at - copy.disks["P0"].newest() <= (RULES.every_s + 60.0) * 130.0, "one interval of training, and a minute"
    other.run(off_s)
    come_back(first, other.now_s)
    run_together([first, other], 600.0, most_double_s=0.0)
    assert first.alive() == []
    assert len(other.alive()) == 2
    first.ask(Verb.OFFSITE, text="take-over")
    run_together([first, other], 600.0, most_double_s=MOST_DOUBLE_S)
    assert (len(first.alive()), other.alive()) == (2, []), "by hand it goes back"


def test_what_a_notice_has_saved_is_all_that_there_was():
    first = box().begin()
    first.run(1000.0)
    until_s = first.core.now_s + 120.0
    first.post(EndNoticesRead(0.0, (EndNotice("aws terminate", "aws", END, "spot terminate", until_s),)))
    first.run(119.0)
    assert first.alive() == [], "everybody has left in time"
    vanish(first)
    other, copy = regained(first, first.now_s + 60.0)
    other.run(60.0)
    (reboot,) = told(other, facts.HostRebooted)
    assert reboot.cause == "preempted"
    assert {name: disk.newest() for name, disk in copy.disks.items()} == {
        name: disk.newest() for name, disk in first.disks.items()
    }, "nothing that was saved is lost"
    assert [each.lost_steps for each in told(other, facts.Resumed)[-2:]] == [0, 0]
