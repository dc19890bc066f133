"""`level` as people run it: the page, why, a pin and its end, over a fake daemon."""

import json

import pytest
from running import Terminal, ctl, too_wide


def rung(name, **more):
    known = {
        "name": name, "in_force": False, "slots": 2, "num_envs": 32, "batch_size": 512, "up_s": 0.0, "reboots": 0.0,
        "failed_trials": 0, "mtbf_s": None, "mtbf_bound_s": None, "steps_per_min": None, "speed": None, "speed_error": None,
        "readings": 0, "worth": None, "next_trial_s": None, "shortest_s": None, "veto": "",
    }  # fmt: skip
    return {**known, **more}


LEVELS = [
    rung("light", up_s=7200.0, mtbf_bound_s=3127.0, steps_per_min=60_000.0, speed=0.5, speed_error=0.03, readings=9),
    rung("medium", in_force=True, up_s=98_280.0, mtbf_bound_s=42_680.0, steps_per_min=120_000.0, speed=1.0, speed_error=0.0),
    rung("hea\x1b[2Jvy", up_s=1020.0, reboots=1.0, mtbf_s=1020.0, failed_trials=2, shortest_s=1020.0, next_trial_s=1200.0),
    rung("top", slots=None, veto="8 programs at once on 4 cores"),
]
VIEW = {
    "mode": "climb", "level": "medium", "trial": True, "since_wall_s": 1_763_700_000.0, "why": "trying medium",
    "said": "medium on trial for 20m, 30m are needed", "pin": None, "reboot_penalty_min": 10.0,
    "change_cost_s": 41.0, "levels": LEVELS, "line": "medium: fine",
}  # fmt: skip


@pytest.fixture
def shown(backend):
    backend.ladder = VIEW
    return backend


def test_the_page_has_a_row_for_each_level_the_highest_first(api, shown):
    done = ctl("level", socket=api)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("level medium (on trial) since 2025-11-21")
    assert lines[1] == "now: medium on trial for 20m, 30m are needed"
    top, heavy, medium, light = lines[4:8]
    assert "vetoed: 8 programs at once on 4 cores" in top
    assert "hea\\x1b[2Jvy" in heavy
    assert "failed trials: 2 (shortest 17m); trial in 20m at the earliest" in heavy
    assert medium.startswith("*")
    assert "2 x 32, batch 512" in light
    assert "50 +-3 %" in light
    assert "10m of lost training" in lines[-1]
    assert "41s of training" in lines[-1]
    assert json.loads(ctl("level", "show", "--json", socket=api).stdout)["levels"][3]["veto"]


def test_a_narrow_terminal(api, shown):
    assert too_wide("level", socket=api) == too_wide("level", "why", socket=api) == []
    with Terminal("level", socket=api, columns=100) as terminal:
        assert "MTBF" in terminal.end()[0]


def test_a_fixed_level_and_a_pin_on_a_terminal(api, shown):
    pin = {"level": "medium", "by": "alice", "wall_s": 1_763_700_000.0, "left_s": None}
    shown.ladder = {**VIEW, "mode": "fixed", "trial": False, "said": "", "pin": pin, "since_wall_s": None}
    with Terminal("level", socket=api) as terminal:
        told, code = terminal.end()
    assert code == 0
    assert "pinned by alice" in told
    assert "until further notice" in told
    assert "one fixed level is in force" in told
    shown.ladder = {**VIEW, "pin": {**pin, "left_s": 7200.0}}
    assert "for another 2h" in ctl("level", socket=api).stdout


def test_an_answer_as_json(api, shown):
    assert json.loads(ctl("level", "unpin", "--json", socket=api).stdout)["text"] == "done"
    refused = ctl("level", "pin", "hevy", "--json", socket=api)
    assert json.loads(refused.stdout) == {
        "version": 1, "error": "ERROR: no such level: hevy; there are light, heavy", "exit_code": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("show", "x"), "level show accepts no names"),
        (("why", "x"), "level why accepts no names"),
        (("unpin", "x"), "level unpin accepts no names"),
    ],
)
def test_what_is_no_request(api, args, told):
    done = ctl("level", *args, socket=api)
    assert told in done.stdout
    assert done.returncode == 2
