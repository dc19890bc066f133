"""A trainer behind a shell, a pipe or a launcher: it is asked to leave like any other, and has the whole grace to save."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from box import FLOOR_S, LONG_S, ROOT, Box, until

PROGRAMS = ROOT / "tests" / "e2e" / "programs"
SAVER = shlex.join([sys.executable, str(PROGRAMS / "saver.py")])
# It saves for hours. A shorter save would end within a grace that leaves a busy machine the time to begin it.
CODE = "import saver, sys; saver.SAVES_S = 36_000.0; saver.main(sys.argv[1])"
ENDLESS = f"PYTHONPATH={shlex.quote(str(PROGRAMS))} {shlex.join([sys.executable, '-c', CODE])}"
WRAPPED = {
    "then": (["bash", "-c", f"{SAVER} a; echo done"], "a"),
    "tee": (["bash", "-c", f"{SAVER} a | tee log"], "a"),
    "job": (["sh", "-c", f"setsid {SAVER} a & wait"], "a"),
    "ranks": (shlex.split(f"{SAVER} a b"), "ab"),
}


def configure(box: Box, *names: str, grace_s: float = LONG_S) -> None:
    programs = ""
    for name in names:
        directory = box.directory / name
        directory.mkdir(exist_ok=True)
        programs += f'[program.{name}]\ncommand = {json.dumps(WRAPPED[name][0])}\ndirectory = "{directory}"\n'
        programs += f'progress = "none"\nstop_grace_s = {grace_s}\n'
    box.config(programs)


def there(box: Box, name: str, suffix: str) -> bool:
    return all((box.directory / name / f"{rank}.{suffix}").exists() for rank in WRAPPED[name][1])


def wait_for(box: Box, name: str, suffix: str) -> None:
    until(lambda: there(box, name, suffix), 20, f"{name} to be {suffix}: {box.tail()}")


def test_wrapped_trainers_save_before_they_leave(box: Box) -> None:
    configure(box, *WRAPPED)
    box.start()
    for name in WRAPPED:
        wait_for(box, name, "up")
    assert sorted(box.ctl("stop", "all").stdout.splitlines()) == sorted(f"{name}: stopped" for name in WRAPPED)
    assert [name for name in WRAPPED if not there(box, name, "saved")] == []
    assert not box.facts("KillIntended"), "nobody had to be killed"
    assert {fact["cause"] for fact in box.facts("Exited")} == {"stopped"}
    assert (box.directory / "tee" / "log").read_text().splitlines()[-1] == "saves 9", "tee lived as long as its trainer"
    assert not box.pids()


@pytest.mark.parametrize("how", ["restart", "orderly end"])
def test_other_ways_to_leave_give_the_same_time(box: Box, how: str) -> None:
    configure(box, "tee")
    box.start()
    wait_for(box, "tee", "up")
    if how == "restart":
        box.ctl("restart", "tee", check=True)
    else:
        assert box.stop_daemon() == 0
    assert there(box, "tee", "saved")
    assert not box.facts("KillIntended")


def test_the_next_daemon_goes_on_with_a_stop_that_the_one_before_began(box: Box) -> None:
    configure(box, "then")
    box.start()
    wait_for(box, "then", "up")
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor.ctl", "-c", str(box.config_file), "stop", "then"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ):  # fmt: skip
        wait_for(box, "then", "saving")
        box.kill_daemon()
    box.start()
    box.wait_phase("then", "STOPPED")
    assert there(box, "then", "saved"), "the second asking did not break the save off"
    assert not box.facts("KillIntended")


def test_what_is_left_after_the_grace_is_killed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRAPPED, "then", (["bash", "-c", f"{ENDLESS} a; echo done"], "a"))
    configure(box, "then", grace_s=FLOOR_S)
    box.start()
    wait_for(box, "then", "up")
    began_s = time.monotonic()
    assert box.ctl("stop", "then").stdout == "then: stopped\n"
    assert time.monotonic() - began_s >= FLOOR_S
    assert there(box, "then", "saving")
    assert not there(box, "then", "saved")
    assert box.facts("KillIntended")
    assert not box.pids()


def test_a_shell_that_is_killed_leaves_its_trainer_the_time_to_save(box: Box) -> None:
    configure(box, "then")
    box.start()
    wait_for(box, "then", "up")
    pid = until(lambda: box.program("then").get("pid"), 20, "its pid")  # the script may be up before the daemon knows
    os.kill(pid, signal.SIGKILL)
    exited = box.wait_fact("Exited", "then")
    assert there(box, "then", "saved")
    assert len(exited["leftovers"]) == 1
