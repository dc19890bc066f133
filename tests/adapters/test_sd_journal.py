"""systemd's journal without a library: on a real socket, real streams, and the system's own journal where there is one."""

import os
import re
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from journald_kit import Journald

from supervisor.adapters.host import sd_journal


def stream(fd):
    found = os.fstat(fd)
    return {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}


def test_only_the_stream_that_is_named_is_the_journals(tmp_path):
    with (tmp_path / "out").open("w") as out, (tmp_path / "other").open("w") as other:
        environ = stream(out.fileno())
        assert sd_journal.is_stream(out.fileno(), environ)
        assert not sd_journal.is_stream(other.fileno(), environ), "the variable is inherited, the stream was exchanged"
        for text in ("", ":", "1", "x:y", environ["JOURNAL_STREAM"] + "0"):
            assert not sd_journal.is_stream(out.fileno(), {"JOURNAL_STREAM": text})
        assert not sd_journal.is_stream(out.fileno(), {})
        closed, environ = out.fileno(), stream(out.fileno())
    assert not sd_journal.is_stream(closed, environ)


def test_without_a_journal_nothing_is_sent_and_one_that_hears_nothing_is_an_error(tmp_path, monkeypatch):
    sd_journal.send({"MESSAGE": "x"}, tmp_path / "none")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "left"))
    with pytest.raises(ConnectionRefusedError):
        sd_journal.send({"MESSAGE": "x"}, tmp_path / "left")
    monkeypatch.setattr(sd_journal, "_PATIENCE_S", 0.05)
    with Journald() as journald:
        full = lambda: [sd_journal.send({"MESSAGE": "x"}, journald.path) for _ in range(100_000)]  # noqa: E731
        with pytest.raises(TimeoutError):
            full()
        with pytest.raises(TimeoutError):  # nor for what is too large for a datagram
            sd_journal.send({"MESSAGE": "x" * (8 << 20)}, journald.path)


@pytest.mark.skipif(
    not sd_journal.SOCKET.exists() or not shutil.which("journalctl"), reason="systemd's journal does not run"
)
def test_systemds_own_journal_takes_it():
    marker = uuid.uuid4().hex
    sd_journal.send({"MESSAGE": "extralife's test\nof two lines", "MESSAGE_ID": marker, "PRIORITY": "7"})
    subprocess.run(["journalctl", "--sync"], capture_output=True, check=False)
    ask = ["journalctl", f"MESSAGE_ID={marker}", "-o", "cat"]
    said = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert "extralife's test" in said.stdout


SAYS = """
import sys
from supervisor.__main__ import main
sys.argv = ["supervisord", "-c", "/no/such/file.toml"]
sys.exit(main())
"""


def test_what_keeps_the_daemon_from_starting_is_an_error_in_the_journal(tmp_path):
    with (tmp_path / "err").open("wb") as err:
        environ = {**os.environ, **stream(err.fileno()), "PYTHONPATH": str(Path(__file__).parents[2])}
        assert subprocess.run([sys.executable, "-c", SAYS], stderr=err, env=environ, check=False).returncode == 2
    lines = (tmp_path / "err").read_text().splitlines()
    assert lines
    assert all(line.startswith("<3>supervisord: ") for line in lines), lines


def test_complaints_have_a_severity_for_each_line(tmp_path):
    with (tmp_path / "err").open("w") as err:
        said = sd_journal.SeverityPrefixer(err)
        print("supervisord: warning: x", "tail", file=said)
        said.write("half ")
        said.write("a line\nanother\n")
        said.flush()
        assert said.fileno() == err.fileno()
        assert (tmp_path / "err").read_text() == "<4>supervisord: warning: x tail\n<3>half a line\n<3>another\n"
        assert said.write("four\n") == 5
        assert said.write("") == 0
        print("a warning: in its text", file=said)
        print("a line: warning: of a part", "and its end", sep="\nx: warning: y\n", file=said)
        said.flush()
    assert (tmp_path / "err").read_text().splitlines()[3:] == [
        "<3>four", "<3>a warning: in its text", "<4>a line: warning: of a part", "<4>x: warning: y", "<3>and its end",
    ]  # fmt: skip


LOGS = """
import sys, structlog
from supervisor.model.settings import DaemonSettings
from supervisor.shell import logs
logs.configure(sys.argv[1], DaemonSettings(log_level="debug", log_format=sys.argv[2]), to_stdout=True)
log = structlog.get_logger()
log.debug("looked")
log.info("serving", socket="/run/x", pid=7)
log.warning("said", why="\\x1b[2J of two\\nlines")
log.critical("journal_damaged")
try:
    raise RuntimeError("bug")
except RuntimeError:
    log.exception("failed")
"""


def logged(tmp_path, log_format, of_the_journal=True):
    with (tmp_path / "out").open("wb") as out:
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JOURNAL_STREAM": "1:1"}
        environ |= stream(out.fileno()) if of_the_journal else {}
        argv = [sys.executable, "-c", LOGS, str(tmp_path / "main.log"), log_format]
        subprocess.run(argv, stdout=out, env=environ, check=True)
    return (tmp_path / "out").read_text().splitlines()


def test_the_log_in_the_journal_is_text_with_severities_and_without_a_second_time(tmp_path):
    lines = logged(tmp_path, "text")
    assert lines[:2] == ["<7>looked", "<6>serving pid=7 socket=/run/x"]
    assert lines[2].startswith("<4>said why=")
    assert lines[3:5] == ["<2>journal_damaged", "<3>failed"]
    assert "<3>RuntimeError: bug" in lines
    assert all(line.startswith("<3>") for line in lines[4:]), "each line of a traceback"
    kept = (tmp_path / "main.log").read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", "TIME ", line) for line in kept[:2]] == [
        "TIME DEBUG looked",
        "TIME INFO serving pid=7 socket=/run/x",
    ]
    assert "\x1b" not in "".join(kept)
    assert "RuntimeError: bug" in kept
