"""A box of Supervisor's moves over: six programs without an edit, and superlance's listeners unchanged."""

from __future__ import annotations

import contextlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import ROOT, Box, until

sys.path.insert(0, str(ROOT / "bench"))

from environments import STOCK, NotInstallable, environment

SIX = """
[supervisord]
logfile=/tmp/supervisord.log
[program:web]
command=sh -c 'echo "to stderr" >&2; exec sleep 1000'
process_name=%(program_name)s_%(process_num)02d
numprocs=2
autorestart=true
redirect_stderr=true
[program:worker]
command=sleep 1000
directory=%(here)s
[program:cron]
command=sleep 1000
stopasgroup=true
[program:never]
command=sh -c 'kill -9 $$'
autorestart=false
[program:once]
command=sh -c 'exit 2'
exitcodes=0,2
startsecs=0
[program:manual]
command=sleep 1000
autostart=false
[group:back]
programs=worker,cron
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def move(box: Box, conf: str) -> None:
    """The file as `import` prints it; only the test's own directories are put before it."""
    file = box.directory / "supervisord.conf"
    file.write_text(conf)
    done = box.ctl("import", str(file), "--out", str(box.config_file))
    assert done.returncode == 0, done.stdout + done.stderr
    made = box.config_file.read_text()
    assert "daemon" not in tomllib.loads(made)
    box.config_file.write_text(
        f'[daemon]\nstate_dir = "{box.state}"\nruntime_dir = "{box.runtime}"\nsample_period_s = 0.2\n{made}'
    )


def test_six_programs_without_an_edit(box: Box) -> None:
    move(box, SIX)
    box.start()
    for name in ("web_00", "web_01", "worker", "cron"):
        until(lambda name=name: box.program(name)["phase"] == "RUNNING", 20, f"{name} to run")
    until(lambda: box.program("once")["phase"] == "DONE", 20, "the expected exit code to be the end")
    until(lambda: box.program("never")["phase"] not in {"STARTING", "RUNNING"}, 20, "its end")
    assert box.program("never")["pid"] is None
    assert box.program("manual")["phase"] == "STOPPED"
    until(lambda: "to stderr" in box.ctl("tail", "web_00").stdout, 10, "redirect_stderr")
    assert box.ctl("stop", "back:*").stdout == "cron: stopped\nworker: stopped\n"
    assert box.ctl("status", "web:*").returncode == 0
    assert box.ctl("start", "back:cron").stdout == "cron: started\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_superlance_unchanged(box: Box) -> None:
    """memmon restarts what has grown, crashmail reports a death, both in an environment of their own."""
    try:
        bin_dir = environment("superlance", *STOCK, "superlance==2.0.0")
    except NotInstallable as error:
        pytest.skip(f"superlance cannot be installed here: {error}")
    mail = box.directory / "mail"
    send = box.directory / "sendmail"
    send.write_text(f"#!/bin/sh\ncat >> {mail}\n")
    send.chmod(0o755)
    move(
        box,
        f"""
[program:big]
command={sys.executable} -c "import time; b = bytearray(100 << 20); time.sleep(1000)"
[program:dies]
command=sh -c 'sleep 2; exit 3'
autostart=false
[eventlistener:memmon]
command={bin_dir}/memmon -p big=50MB
events=TICK_5
[eventlistener:crashmail]
command={bin_dir}/crashmail -a -m nobody@localhost -s {send}
events=PROCESS_STATE_EXITED
""",
    )
    box.start()
    until(lambda: box.program("big")["phase"] == "RUNNING", 20, "big to run")
    first = box.program("big")["pid"]
    until(lambda: box.program("big")["pid"] not in {None, first}, 60, "memmon to restart it")
    assert box.ctl("start", "dies").returncode == 0
    until(lambda: mail.exists() and "dies" in mail.read_text(), 60, "the mail")
    assert "Process dies in group dies exited unexpectedly" in mail.read_text()
    with contextlib.suppress(FileNotFoundError):
        assert int((box.state / "programs" / "crashmail" / "listened").read_text()) > 0
