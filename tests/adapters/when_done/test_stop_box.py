"""The command that stops this box: never twice at once, what it leaves in the background goes on, and who is logged in."""

import errno
import os
import queue
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from attempts_kit import eventually

from supervisor.adapters import procfs
from supervisor.features.when_done.adapters.stopping import ENV, logged_in, stop_box
from supervisor.features.when_done.messages import StopBox, WhenDoneEnded
from supervisor.features.when_done.part import part

SH = shutil.which("sh") or "sh"


def as_sh(script):
    return [SH, "-c", script]


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A FIFO that lets an earlier command end once the next one has seen it."""
    os.mkfifo(tmp_path / "go")
    look = procfs.marked

    def marked(*args):
        found = look(*args)
        if found[str(tmp_path)] and not (tmp_path / "late").exists():
            (tmp_path / "late").touch()
            (tmp_path / "go").write_text("go")
        return found

    monkeypatch.setattr(procfs, "marked", marked)
    return tmp_path / "go"


def test_the_result_is_that_of_the_command(tmp_path):
    assert stop_box(as_sh("echo bye"), 30.0, str(tmp_path)) == ("", "bye\n")
    error, output = stop_box(as_sh("echo no such instance >&2; exit 3"), 30.0, str(tmp_path))
    assert (error, output) == ("it ended with status 3: no such instance", "no such instance\n")
    error, output = stop_box(as_sh("head -c 200000 /dev/zero | tr '\\0' x; echo end; exit 1"), 30.0, str(tmp_path))
    assert (error[:25], len(output), output[-4:]) == ("it ended with status 1: x", 65536, "end\n")


def test_a_lack_of_descriptors_is_a_failure_after_which_it_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "memfd_create", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    found = queue.SimpleQueue()
    world = Mock(paths=Mock(state_dir=str(tmp_path)), inbox=Mock(post=found.put), clock=Mock(now_s=lambda: 5.0))
    part(world).performs[StopBox](StopBox(("true",), 30.0))
    error = "true cannot be started: [Errno 24] Too many open files"
    assert found.get(timeout=30) == WhenDoneEnded(5.0, error, "")


def test_what_it_leaves_in_the_background_goes_on_and_is_waited_for_in_place_of_a_second_start(tmp_path, go):
    leaves = f"(cat {go}; echo printed; echo done >> {tmp_path}/log) & echo begun"
    assert stop_box(as_sh(leaves), 30.0, str(tmp_path)) == ("", "begun\n")
    (tmp_path / "late").touch()
    late, _ = stop_box(as_sh(f"echo second >> {tmp_path}/log"), 0.2, str(tmp_path))
    assert late.startswith("an earlier start of it still ran, as ")
    assert late.endswith("; it did not end within 200ms and was killed")
    assert not (tmp_path / "log").exists()
    assert stop_box(as_sh(leaves), 30.0, str(tmp_path)) == ("", "begun\n"), "nothing of the first one is left"
    (tmp_path / "late").unlink()
    error, output = stop_box(as_sh(f"echo second >> {tmp_path}/log"), 30.0, str(tmp_path))
    assert (error, output.partition(", as ")[0]) == ("", "an earlier start of it still ran")
    assert (tmp_path / "log").read_text() == "done\n"


def test_it_outlives_the_daemon_also_if_it_prints_and_the_next_daemon_finds_it(tmp_path, go):
    os.mkfifo(tmp_path / "begun")
    script = f"echo begun > {tmp_path}/begun; cat {go}; echo printed; echo still there >> {tmp_path}/log"
    call = f"from supervisor.features.when_done.adapters.stopping import stop_box; stop_box({as_sh(script)!r}, 60.0, {str(tmp_path)!r})"
    with subprocess.Popen([sys.executable, "-c", call]) as daemon:
        (tmp_path / "begun").read_text()
        daemon.kill()
    assert stop_box(as_sh("false"), 30.0, str(tmp_path))[0] == ""
    assert (tmp_path / "log").read_text() == "still there\n"


@pytest.mark.parametrize(
    ("title", "seen"),
    [("sshd: ada@pts/77", "ada on pts/77"), ("sshd-session: ada@notty", "ada over ssh (PID)"), ("sshd: ada", "")],
)
def test_sessions_of_sshd(title, seen):
    with subprocess.Popen([title, "1000"], executable=shutil.which("sleep"), env={ENV: "elsewhere"}) as session:
        try:
            assert eventually(lambda: title.encode() in Path(f"/proc/{session.pid}/cmdline").read_bytes()), "it has begun"
            found = [each for each in logged_in() if each.startswith("ada ")]
        finally:
            session.kill()
    assert found == ([seen.replace("PID", str(session.pid))] if seen else [])
