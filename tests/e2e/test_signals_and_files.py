"""The daemon's signals and files, as an operator of Supervisor knows them."""

from __future__ import annotations

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
