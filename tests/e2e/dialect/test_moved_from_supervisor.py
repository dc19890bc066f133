"""A box of Supervisor's moves over: six programs without an edit, and superlance's listeners unchanged."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import tomllib
from collections.abc import Iterator
from typing import BinaryIO

import pytest
from box import Box, until
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
startsecs=30
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
    until(lambda: box.program("never")["phase"] == "FATAL", 60, "its four starts to fail: startsecs and startretries")
    assert "start 4 in a row failed, and start_retries = 3" in box.program("never")["why"]
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
command="{sys.executable}" -c "import time; b = bytearray(100 << 20); time.sleep(1000)"
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
    told = "Process dies in group dies exited unexpectedly"
    until(lambda: mail.exists() and told in mail.read_text(), 60, "the mail")
    with contextlib.suppress(FileNotFoundError):
        assert int((box.state / "programs" / "crashmail" / "listened").read_text()) > 0


class Post:
    """A mail server of a few lines: it keeps what comes after DATA."""

    def __init__(self) -> None:
        self.mails = ""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            with sock, sock.makefile("rwb") as talk:
                self._one(talk)

    def _one(self, talk: BinaryIO) -> None:
        talk.write(b"220 post\r\n")
        talk.flush()
        while line := talk.readline():
            is_data = line.strip().upper() == b"DATA"
            talk.write(b"354 go on\r\n" if is_data else b"221 bye\r\n" if line[:4].upper() == b"QUIT" else b"250 ok\r\n")
            talk.flush()
            while is_data and (line := talk.readline()).strip() != b".":
                self.mails += line.decode()
            if is_data:
                talk.write(b"250 ok\r\n")
                talk.flush()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def post() -> Iterator[Post]:
    made = Post()
    yield made
    made.close()


SICK_PAGE = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_more_listeners_unchanged(box: Box, post: Post) -> None:
    """httpok and supervisor-checks restart what does not answer; crashmailbatch and fatalmailbatch collect and mail."""
    try:
        bin_dir = environment("listeners", *STOCK, "superlance==2.0.0", "supervisor_checks==0.8.1")
    except NotInstallable as error:
        pytest.skip(f"the listeners cannot be installed here: {error}")
    page = box.directory / "page.py"
    page.write_text(SICK_PAGE)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        sick, closed = one.getsockname()[1], other.getsockname()[1]
    batch = f"--toEmail=ops@localhost --fromEmail=box@localhost --smtpHost=127.0.0.1:{post.port} --interval=0.5"
    move(
        box,
        f"""
[program:sick]
command="{sys.executable}" {page} {sick}
[program:deaf]
command=sleep 1000
[program:dies]
command=sh -c 'sleep 2; exit 3'
autostart=false
[program:never]
command=false
startretries=0
autostart=false
[eventlistener:httpok]
command={bin_dir}/httpok -p sick -t 5 http://127.0.0.1:{sick}/
events=TICK_5
[eventlistener:tcp]
command={bin_dir}/supervisor_tcp_check -n tcp -N deaf -p {closed} -t 1 -r 1
events=TICK_60
[eventlistener:crashes]
command={bin_dir}/crashmailbatch {batch}
events=PROCESS_STATE,TICK_60
[eventlistener:fatals]
command={bin_dir}/fatalmailbatch {batch}
events=PROCESS_STATE,TICK_60
""",
    )
    box.start()
    for name in ("sick", "deaf", "httpok", "tcp", "crashes", "fatals"):
        until(lambda name=name: box.program(name)["phase"] == "RUNNING", 60, f"{name} to run")
    first = {name: box.program(name)["pid"] for name in ("sick", "deaf")}
    box.ctl("start", "dies", "never")
    until(lambda: box.program("never")["phase"] == "FATAL", 60, "never to be given up")
    until(lambda: box.program("sick")["pid"] not in {None, first["sick"]}, 90, "httpok to restart it")
    until(lambda: "Process dies:dies (pid " in post.mails, 150, "the mail of crashes")
    until(lambda: "Process never:never failed to start too many times" in post.mails, 150, "the mail of what was given up")
    until(lambda: box.program("deaf")["pid"] not in {None, first["deaf"]}, 150, "supervisor_tcp_check to restart it")
