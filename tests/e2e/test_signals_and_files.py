"""The daemon's signals and files, as an operator of Supervisor knows them."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import Box, until


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    made.config('[program.a]\ncommand = ["sleep", "1000"]\nprogress = "none"\n')
    yield made
    made.close()


def test_from_the_first_moment_to_a_removed_socket(box: Box) -> None:
    daemon = box.start(wait=False)
    first = box.ctl("status")
    assert "no such file" not in first.stdout, "its interpreter still imports: the client waits for it"
    assert re.search(r"^a\s+(QUEUED|STARTING|RUNNING)", first.stdout, re.MULTILINE)
    until(lambda: box.program("a")["phase"] == "RUNNING", 20, "it to run")

    daemon.send_signal(signal.SIGUSR1)
    main_log = box.state / "extralife.log"
    main_log.rename(box.state / "rotated.log")
    daemon.send_signal(signal.SIGUSR2)
    until(lambda: main_log.exists() and "log_opened_anew" in main_log.read_text(), 10, "a log at the path")
    assert daemon.poll() is None
    log = (box.state / "rotated.log").read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO ", log, re.MULTILINE)

    pid = box.program("a")["pid"]
    (box.runtime / "supervisor.sock").unlink()
    daemon.send_signal(signal.SIGHUP)
    until((box.runtime / "supervisor.sock").exists, 20, "the socket to be back")
    until(lambda: box.ctl("pid", "a").stdout == f"{pid}\n", 20, "the program to be the same one")


def checks(daemon: int) -> int:
    """The checks of the next image that run now."""
    found = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else ["", "0"]
            found += int(stat[1]) == daemon and b"\0--check\0" in (entry / "cmdline").read_bytes()
    return found


def test_signals_in_a_row_restart_one_daemon_that_takes_up_the_newest_configuration(box: Box) -> None:
    daemon = box.start()
    box.wait_phase("a", "RUNNING")
    most, before = 0, box.program("a")["pid"]

    def send() -> bool:
        nonlocal most
        for each in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            daemon.send_signal(each)
        most = max(most, checks(daemon.pid))
        assert daemon.poll() is None, "a signal during the restart ended it"
        return len(box.facts("DaemonStarted")) > 1

    until(send, 60, "it to begin again")
    text = box.config_file.read_text()
    box.config_file.write_text(text + '[program.b]\ncommand = ["sleep", "1000"]\nprogress = "none"\n')
    send()
    box.wait_phase("b", "RUNNING", 60)
    until(lambda: not checks(daemon.pid), 30, "the checks to end")
    assert most == 1, "one check at a time"
    assert daemon.poll() is None
    assert box.program("a")["pid"] == before
    assert len(box.facts("DaemonStarted")) <= 5


def test_a_request_to_end_during_a_restart_is_an_orderly_end(box: Box) -> None:
    daemon = box.start()
    box.wait_phase("a", "RUNNING")
    daemon.send_signal(signal.SIGHUP)
    until(lambda: "[info     ] reexec" in box.log.read_text(), 30, "the next image to begin")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0
    assert box.facts("DaemonStopped")
    assert not box.pids()
