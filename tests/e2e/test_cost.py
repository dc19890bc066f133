"""What a program costs the daemon, counted and not timed."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from box import Box, until

PROGRAMS = 30
GIVEN = 64  # open files, fewer than so many programs need


def test_thirty_programs_run_where_few_files_may_be_open(box: Box) -> None:
    sleepers = "".join(
        f'[program.p{i:02}]\ncommand = ["sh", "-c", "ulimit -S -n; exec sleep 1000"]\nprogress = "none"\n'
        for i in range(PROGRAMS)
    )
    box.config(sleepers, slots=PROGRAMS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (GIVEN, hard))
    try:
        daemon = box.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: all(p["phase"] == "RUNNING" for p in box.status()["programs"]), 60, "all to run")
    assert (box.state / "programs" / "p07" / "stdout.log").read_text() == f"{GIVEN}\n", (
        "a worker has what the daemon was given"
    )
    files = os.listdir(f"/proc/{daemon.pid}/fd")
    assert GIVEN < len(files) <= 30 + 4 * PROGRAMS, "a pidfd, a notify socket, a control record and a state file each"
    assert box.ctl("reload").returncode == 0
    until(lambda: box.facts("DaemonStarted")[1:], 30, "the next image")
    until(lambda: all(p["phase"] == "RUNNING" for p in box.status()["programs"]), 60, "all to run on")
    limits = Path(f"/proc/{daemon.pid}/limits").read_text()
    assert int(re.search(r"Max open files +(\d+)", limits)[1]) == min(hard, 65_536)
    assert len(box.facts("SpawnIntended")) == PROGRAMS, "nobody was started twice"
