"""The user's night with a compressed clock: light, climbs, heavy takes the box down, back to what holds, tried again.

Three trainers, real processes; a level has one slot more than the one before, so that it really is faster. Minutes of the
rule are tenths of seconds here ([load] has them as settings), and a reboot is a power cut of the box and another boot id.
"""

from __future__ import annotations

import json

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
climb_s = 1.5
trial_s = 2.0
cool_s = {cool_s}
stagger_s = 0.2
[levels.light]
slots = 1
[levels.medium]
slots = 2
[levels.heavy]
slots = 3
"""


def begin(box: Box, cool_s: float = 6.0) -> None:
    box.config_file.write_text(NIGHT.format(box=box, cool_s=cool_s) + "".join(box.trainer(name) for name in "abc"))
    box.start()


def wait_level(box: Box, level: str, *, trial: bool | None = None, timeout_s: float = 60) -> dict[str, object]:
    def look() -> dict[str, object] | None:
        found = box.status()["daemon"]["level"]
        return found if found["name"] == level and trial in {None, found["trial"]} else None

    return until(look, timeout_s, f"level {level}: {box.ctl('level', 'why').stdout}")


def test_the_night_climbs_falls_and_tries_again(box: Box) -> None:
    begin(box)
    wait_level(box, "light")
    wait_level(box, "medium", trial=True)
    wait_level(box, "heavy", trial=True)
    until(lambda: all(box.program(name).get("phase") == "RUNNING" for name in "abc"), 30, "heavy to train on every slot")
    box.power_cut()
    box.start()
    judged = box.wait_fact("RebootJudged")
    assert (judged["level"], judged["weight"]) == ("heavy", 1.0)
    assert wait_level(box, "medium", trial=False)["slots"] == 2
    assert box.wait_fact("HostRebooted")["level"] == "heavy"
    until(lambda: sum(box.program(name).get("phase") == "RUNNING" for name in "abc") == 2, 30, "two to train again")
    told = box.ctl("level", "why").stdout
    assert "back to medium: heavy failed its trial after" in told
    assert "held against the level" in told
    shown = json.loads(box.ctl("level", "show", "--json").stdout)
    heavy = shown["levels"][2]
    assert (heavy["reboots"], heavy["failed_trials"]) == (1.0, 1)
    wait_level(box, "heavy", trial=True)  # after its rest
    tried = [fact for fact in box.facts("LevelChosen") if fact["level"] == "heavy"]
    assert len(tried) == 2
    assert all(program["restarts"] == 0 for program in box.status()["programs"]), "the box's fault, nobody else's"


def test_a_pin_holds_over_a_reboot_until_it_runs_out(box: Box) -> None:
    begin(box, cool_s=60.0)
    wait_level(box, "light")
    assert "no such level: hevy; did you mean heavy?" in box.ctl("level", "pin", "hevy").stdout
    pinned = box.ctl("level", "pin", "medium", "--for", "1h")
    assert pinned.stdout == "medium: pinned for 1 h\n"
    assert wait_level(box, "medium")["pinned"]
    until(lambda: sum(box.program(name).get("phase") == "RUNNING" for name in "abc") == 2, 30, "two to train")
    before = {name: box.program(name)["pid"] for name in "abc"}
    box.power_cut()
    box.start()
    assert wait_level(box, "medium")["pinned"], "a pin is a fact"
    assert before != {name: box.program(name)["pid"] for name in "abc"}
    box.kill_daemon()
    told = box.ctl("level")
    assert "medium" in told.stdout
    assert "pinned by" in told.stdout
    assert "daemon is not running" in told.stdout
    box.start()
    assert box.ctl("level", "unpin").stdout == "medium: the pin on medium is ended\n"
    wait_level(box, "heavy", trial=True)
