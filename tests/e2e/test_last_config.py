"""A configuration with a mistake: a reload is refused, and a start goes by the last good one, on real processes."""

from __future__ import annotations

import http.client
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from typing import Any

import pytest
from box import PATIENCE, ROOT, Box, until

GOOD = 2
BAD = "slots = -7\nnonsense = 1"
STARTS = b"STARTS WITH THE LAST GOOD CONFIGURATION"


def write(box: Box, slots: object = GOOD) -> None:
    box.config(box.trainer("a"), slots=slots)  # type: ignore[arg-type]


def spoil(box: Box) -> None:
    text = box.config_file.read_text()
    assert f"slots = {GOOD}" in text
    box.config_file.write_text(text.replace(f"slots = {GOOD}", BAD))


def healthz(box: Box) -> dict[str, Any]:
    class Local(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(f"{box.runtime}/supervisor.sock")

    asked = Local("localhost")
    asked.request("GET", "/healthz")
    told: dict[str, Any] = json.loads(asked.getresponse().read())
    asked.close()
    return told


@pytest.fixture
def running(box: Box) -> Box:
    write(box)
    box.start()
    box.wait_phase("a", "RUNNING")
    return box


def test_a_reload_of_a_bad_file_is_refused_with_all_its_mistakes(running: Box) -> None:
    box, before = running, running.status()["daemon"]
    worker = box.program("a")["pid"]
    spoil(box)
    done = box.ctl("reload")
    assert done.returncode == 1
    assert "level.slots" in done.stdout
    assert "level.nonsense is not a setting" in done.stdout
    assert "Restarted" not in done.stdout
    box.wait_fact("ConfigRefused")  # the answer may be sooner than the page
    after = box.status()["daemon"]
    assert (after["pid"], after["started_wall_s"]) == (before["pid"], before["started_wall_s"])
    assert box.program("a")["pid"] == worker
    assert len(after["config"]["errors"]) == 2


def test_sighup_with_a_bad_file_is_reported_until_the_file_is_good_again(running: Box) -> None:
    box, before = running, running.status()["daemon"]
    spoil(box)
    assert box.daemon is not None
    box.daemon.send_signal(signal.SIGHUP)
    fact = box.wait_fact("ConfigRefused")
    assert fact["by"] == "SIGHUP"
    assert "critical" in next(line for line in box.log.read_text().splitlines() if "reload_refused" in line)
    shown = box.ctl("status").stdout
    assert shown.startswith("the configuration cannot be used: SIGHUP asked to load it")
    assert healthz(box)["config"]["errors"] == fact["errors"]
    assert box.status()["daemon"]["started_wall_s"] == before["started_wall_s"]
    write(box)
    assert box.ctl("update").returncode == 0
    box.wait_fact("ConfigMended")
    assert box.status()["daemon"]["config"] is None
    box.config(box.trainer("a", "none", "--after=9"), slots=GOOD)
    box.daemon.send_signal(signal.SIGHUP)
    until(lambda: (box.status()["daemon"]["started_wall_s"] or 0) > before["started_wall_s"], 30, "the next image")
    told = box.wait_fact("ProgramConfigured", "a", count=2)["why"]
    assert told == "changed in the config: command with --after=9 (extralife started)"


def test_a_bad_variable_is_refused_like_a_bad_line(box: Box) -> None:
    """The variable was good when this daemon started; the next image has the same, and a stricter file around it."""
    write(box)
    box.env = {"EXTRALIFE_SLOTS": "3"}
    box.start()
    box.wait_phase("a", "RUNNING")
    worker = box.program("a")["pid"]
    box.kill_daemon()
    box.env = {"EXTRALIFE_SLOTS": "many"}
    box.start()
    box.wait_fact("ConfigRefused")
    told = box.status()["daemon"]
    assert told["level"]["slots"] == 3, "with the variable of the last good start"
    assert "EXTRALIFE_SLOTS" in told["config"]["errors"][0]
    assert box.program("a")["pid"] == worker, "adopted: the daemon alone was gone"


def no_file(box: Box) -> None:
    box.config_file.unlink()


def a_directory(box: Box) -> None:
    box.config_file.unlink()
    box.config_file.mkdir()


def half_of_it(box: Box) -> None:
    text = box.config_file.read_text()
    box.config_file.write_text(text[: text.index("[program.a]") + 20])


def nobody_may_read_it(box: Box) -> None:
    """Root may read everything: a link into nowhere cannot be read by anybody."""
    box.config_file.unlink()
    box.config_file.symlink_to("/proc/self/nothing/extralife.toml")


def test_a_boot_with_a_bad_file_trains_on_with_the_last_good_one(running: Box) -> None:
    """One box that is rebooted with one mistake after the other, each mended before the next."""
    box, slots = running, GOOD
    box.wait_fact("Checkpointed", "a")
    for damage in (spoil, no_file, a_directory, half_of_it, nobody_may_read_it):
        box.power_cut()
        box.log.write_bytes(b"")
        (box.state / "reboot_alerts.log").unlink(missing_ok=True)
        damage(box)
        box.start()
        box.wait_phase("a", "RUNNING")
        told = box.status()["daemon"]
        assert (told["level"]["slots"], told["state_dir"]) == (slots, str(box.state)), damage
        assert str(box.config_file) in told["config"]["in_use"]
        first = box.ctl("status").stdout.splitlines()[0]
        assert first.startswith("THE CONFIGURATION CANNOT BE USED: the daemon started "), damage
        until((box.state / "reboot_alerts.log").exists, 10, "the alert log")
        until(lambda: "CONFIG refused" in (box.state / "reboot_alerts.log").read_text(), 10, f"{damage.__name__} in it")
        assert "STARTS WITH THE LAST GOOD CONFIGURATION" in box.log.read_text(), damage
        health = healthz(box)
        assert health["ok"] is True
        assert health["config"]["in_use"]
        if not box.config_file.is_dir():
            assert box.ctl("update").returncode != 0, "it still compares with the file"
        shutil.rmtree(box.config_file) if box.config_file.is_dir() else box.config_file.unlink(missing_ok=True)
        slots += 1
        write(box, slots)
        assert box.ctl("update").returncode == 0
        until(lambda: box.status()["daemon"]["config"] is None, 10, "the page to tell no more of it")
        assert box.status()["daemon"]["level"]["slots"] == slots


def test_without_a_good_one_it_refuses_as_ever(running: Box) -> None:
    box = running
    box.kill_daemon()
    spoil(box)
    (box.state / "last-config").unlink()
    assert box.start(wait=False).wait(30 * PATIENCE) == 2
    said = box.log.read_text()
    assert "level.slots" in said
    assert "the last good configuration cannot be used either" not in said


def at_a_terminal(box: Box) -> tuple[int, str]:
    """`supervisord` typed by hand: its exit status and what the terminal shows."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "EXTRALIFE_BOOT_FILES": str(box.boot_files), "PYTHONPATH": str(ROOT), **box.home}
    env.pop("NOTIFY_SOCKET", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor", "-c", str(box.config_file)],
        cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    box.daemons.append(process)
    os.close(theirs)
    said = b""
    while STARTS not in said:  # the whole of it: a terminal may pass a line on in pieces
        try:
            said += os.read(ours, 65536)
        except OSError:  # it has ended
            break
    if process.poll() is None and STARTS in said:
        process.kill()
    code = process.wait(30 * PATIENCE)
    os.close(ours)
    return code, said.decode()


def test_by_hand_it_refuses_and_after_a_reboot_not_even_then(running: Box) -> None:
    box = running
    box.kill_daemon()
    spoil(box)
    code, said = at_a_terminal(box)
    assert code == 2
    assert "level.nonsense" in said
    box.set_boot(uuid.uuid4())  # `tmux new -d supervisord` at boot has a terminal too
    code, said = at_a_terminal(box)
    assert code == -signal.SIGKILL
    assert STARTS.decode() in said
