"""`alerts` and `alerts test` as people run them."""

import json

from fake_backend import WALL_S
from running import ctl


def target(name="ntfy-1f3a92", **more):
    known = {
        "name": name, "configured": True, "state": "idle", "waiting": 0, "error": "", "failing_since_wall_s": None,
        "retry_in_s": None, "last_wall_s": None, "dropped": 0,
    }  # fmt: skip
    return {**known, **more}


def test_without_a_target_nobody_gets_an_alert(api, backend):
    done = ctl("alerts", socket=api)
    assert done.returncode == 0
    assert done.stdout == ("alerts go nowhere: [alerts] has neither urls nor a command; history shows what happened\n")
    failed = ctl("alerts", "test", socket=api)
    assert (failed.returncode, failed.stdout) == (
        1,
        "alerts go nowhere: [alerts] has neither urls nor a command (docs/alerts.md)\n",
    )


def test_the_page(api, backend):
    failing = {
        "state": "failing",
        "error": "no an\x1bswer",
        "failing_since_wall_s": WALL_S,
        "retry_in_s": 30.0,
        "waiting": 2,
    }
    queued = {
        "id": "00ff", "kind": "fatal", "severity": "critical", "program": "Pong", "text": "Pong: no such\x1b[2J game",
        "wall_s": WALL_S, "more": 0, "owed": ["ntfy-1f3a92"],
    }  # fmt: skip
    delivery = {"id": "00fe", "kind": "reboot", "program": None, "target": "command", "wall_s": WALL_S, "after_s": 2.0}
    backend.alerted = {
        "targets": [target(**failing), target("command", dropped=3, configured=False)], "queue": [queued],
        "held": [{"kind": "disk", "program": "Pong", "count": 12, "since_s": 60.0}], "deliveries": [delivery], "total": 9,
    }  # fmt: skip
    done = ctl("alerts", socket=api)
    assert done.returncode == 1, "somebody cannot be reached"
    assert "\x1b" not in done.stdout
    for wanted in (
        "ntfy-1f3a92: 2 waiting, FAILING for ", r"(no an\x1bswer), next try in 30s",
        "command: nothing waiting, 3 dropped, not in the configuration", "critical  fatal: Pong: no such",
        "  12 x disk of Pong in 1m", "reboot to command, after 2s",
    ):  # fmt: skip
        assert wanted in done.stdout, done.stdout
    assert json.loads(ctl("alerts", "--json", socket=api).stdout) == {"version": 1, **backend.alerted}
    assert ctl("alerts", "now", socket=api).returncode == 2


def test_a_test_says_for_each_how_it_went(api, backend):
    backend.tried = [{"target": "command", "ok": True, "error": "", "took_s": 0.21}]
    done = ctl("alerts", "test", socket=api)
    assert (done.returncode, done.stdout) == (0, "command: accepted in 210ms\n")
    backend.tried.append({"target": "ntfy-1f3a92", "ok": False, "error": "no answer within 15s", "took_s": 15.0})
    done = ctl("alerts", "test", socket=api)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1] == "ntfy-1f3a92: ERROR (no answer within 15s)"
    done = ctl("alerts", "test", "--json", socket=api)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"version": 1, "tried": backend.tried})


def test_without_a_daemon_the_test_is_made_from_here(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal.sqlite").touch()
    config = tmp_path / "x.toml"
    text = f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{tmp_path}/run"\n[program.Pong]\n[alerts]\ncommand = ["/bin/true"]\n'
    config.write_text(text)
    done = ctl("-c", str(config), "alerts", "test")
    assert (done.returncode, done.stdout[:20]) == (0, "command: accepted in"), done
    config.write_text(text.replace("true", "false"))
    assert ctl("-c", str(config), "alerts", "test").stdout == "command: ERROR (it ended with status 1)\n"
