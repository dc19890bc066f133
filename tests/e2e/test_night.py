"""The user's night with a compressed clock: light, climbs, heavy takes the box down, back to what holds, tried again.

Three trainers, real processes; a level has one slot more than the one before, so that it really is faster. Minutes of the
rule are tenths of seconds here ([load] has them as settings), and a reboot is a power cut of the box and another boot id.
What is waited for is in the journal: a trial may be over between two looks at `status`. The box dies two seconds into a
trial of six.
"""

from __future__ import annotations

import json
import shutil

import pytest
from box import Box, until

NIGHT = """
[daemon]
state_dir = "{box.state}"
runtime_dir = "{box.runtime}"
sample_period_s = 0.2
alive_period_s = 0.2
[load]
review_s = 1.0
dwell_s = 1.5
climb_s = {climb_s}
trial_s = 2.0
cool_s = {cool_s}
stagger_s = 0.2
rest_s = 1.0
[levels.light]
slots = 1
[levels.medium]
slots = 2
[levels.heavy]
slots = 3
"""


def begin(box: Box, cool_s: float = 8.0, climb_s: float = 6.0) -> None:
    box.config_file.write_text(
        NIGHT.format(box=box, cool_s=cool_s, climb_s=climb_s)
        + "".join(box.trainer(name, keys='level_values = ["num_envs"]') for name in "abc")
    )
    box.start()


def wait_chosen(box: Box, level: str, *, count: int = 1) -> None:
    """Until so many changes to this level are on record."""
    until(lambda: chosen(box).count(level) >= count, 60, f"level {level} (x{count}): {box.tail()}")


def chosen(box: Box) -> list[str]:
    """The levels that were put in force, in order; the end of a trial is no change."""
    return [fact["level"] for fact in box.facts("LevelChosen") if fact["level"] != fact["before"]]


def wait_workers(box: Box, count: int) -> None:
    until(lambda: sum(box.program(name).get("phase") == "RUNNING" for name in "abc") == count, 60, f"{count} to train")


def climbs_to_a_power_cut(box: Box, climb_s: float) -> bool:
    """Whether it was no straight climb, or the trial of heavy was over before, where others take the processors.

    Then workers begin late, and a level may be measured as no faster than the one before.
    """
    begin(box, climb_s=climb_s)
    wait_chosen(box, "heavy")
    until(lambda: {fact["program"] for fact in box.facts("BecameReady")} == {"a", "b", "c"}, 30, "heavy on every slot")
    box.power_cut()
    settled = any(fact["before"] == fact["level"] == "heavy" for fact in box.facts("LevelChosen"))
    return settled or chosen(box) != ["light", "medium", "heavy"]


def test_the_night_climbs_falls_and_tries_again(box: Box) -> None:
    for climb_s in (6.0, 24.0, 60.0):
        if not climbs_to_a_power_cut(box, climb_s):
            break
        shutil.rmtree(box.state)
    else:
        pytest.fail("it never climbed straight to heavy, or never on every slot within its trial")
    assert chosen(box) == ["light", "medium", "heavy"]
    box.start()
    judged = box.wait_fact("RebootJudged")
    assert (judged["level"], judged["weight"]) == ("heavy", 1.0)
    assert chosen(box)[3:4] == ["medium"]
    assert box.wait_fact("HostRebooted")["level"] == "heavy"
    box.kill_daemon()  # what it has judged is looked at before heavy is tried again, and has perhaps passed
    told = box.ctl("level", "why").stdout
    assert "back to medium: heavy failed its trial after" in told
    assert "counts against the level" in told
    shown = json.loads(box.ctl("level", "show", "--json").stdout)
    heavy = shown["levels"][2]
    assert (heavy["reboots"], heavy["failed_trials"]) == (1.0, 1)
    box.start()
    wait_chosen(box, "heavy", count=2)  # after its rest
    assert all(program["restarts"] == 0 for program in box.status()["programs"]), "the box's fault, nobody else's"


def test_a_pin_holds_over_a_reboot_until_it_runs_out(box: Box) -> None:
    begin(box, cool_s=60.0)
    pinned = box.ctl("level", "pin", "medium", "--for", "1h")
    assert pinned.stdout == "medium: pinned for 1h\n"
    assert box.status()["daemon"]["level"]["pinned"]
    wait_workers(box, 2)
    before = {name: box.program(name)["pid"] for name in "abc"}
    box.power_cut()
    box.start()
    level = box.status()["daemon"]["level"]
    assert (level["name"], level["pinned"]) == ("medium", True), "a pin is a fact"
    assert before != {name: box.program(name)["pid"] for name in "abc"}
    box.kill_daemon()
    told = box.ctl("level")
    assert "medium" in told.stdout
    assert "pinned by" in told.stdout
    assert "daemon is not running" in told.stdout
    box.start()
    assert box.ctl("level", "unpin").stdout == "medium: the pin on medium is ended\n"
    wait_chosen(box, "heavy")
