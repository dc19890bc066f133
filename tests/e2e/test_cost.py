"""What a program costs the daemon, counted and not timed."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from box import FLOOR_S, Box, await_ping, service_manager, until
from tools import no_descriptors

PROGRAMS = 30
GIVEN = 64  # open files, fewer than so many programs need


def test_thirty_programs_run_where_few_files_may_be_open(box: Box) -> None:
    commands = "".join(
        f'[program.p{i:02}]\ncommand = ["sh", "-c", "ulimit -S -n; exec sleep 1000"]\nprogress = "none"\n'
        for i in range(PROGRAMS)
    )
    box.config(commands, slots=PROGRAMS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    box.under = ["sh", "-c", f'ulimit -S -n {GIVEN}; exec "$@"', "sh"]  # the test's own process may have more open
    daemon = box.start()
    until(lambda: all(p["phase"] == "RUNNING" for p in box.status()["programs"]), 60, "all to run")
    said = box.state / "programs" / "p07" / "stdout.log"
    assert until(said.read_text, 20, "it to begin") == f"{GIVEN}\n", "a worker has what the daemon was given"
    files = lambda: len(os.listdir(f"/proc/{daemon.pid}/fd"))  # noqa: E731
    until(lambda: files() <= 40 + 5 * PROGRAMS, 20, "a pidfd, two sockets or records, a state file, a directory")
    assert files() > GIVEN
    assert box.ctl("reload").returncode == 0
    until(lambda: box.facts("DaemonStarted")[1:], 30, "the next image")
    until(lambda: all(p["phase"] == "RUNNING" for p in box.status()["programs"]), 60, "all to run on")
    limits = Path(f"/proc/{daemon.pid}/limits").read_text()
    assert int(re.search(r"Max open files +(\d+)", limits)[1]) == min(hard, 65_536)
    assert len(box.facts("SpawnIntended")) == PROGRAMS, "nobody was started twice"


def sleeper(name: str) -> str:
    return f'[program.{name}]\ncommand = ["sleep", "1000"]\nprogress = "none"\n'


@pytest.mark.fault("fork-fails")
def test_programs_that_too_few_files_are_left_for_wait_and_say_so(box: Box) -> None:
    """The daemon keeps for itself what it needs to answer, to write its journal and to hear of every end."""
    box.config(sleeper("first"), slots=14)
    daemon = box.start()
    box.wait_phase("first", "RUNNING")
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (120, 120))  # half of them are kept free: room for ten programs
    box.config(sleeper("first") + "".join(sleeper(f"p{i:02}") for i in range(13)), slots=14)
    box.ctl("update", check=True)

    def phases() -> list[str]:
        """With the reason of those that wait, of one page: each is tried again from time to time."""
        enough = "10 programs need all of the 120 open files that are allowed: raise LimitNOFILE="
        programs = box.status()["programs"]
        return sorted("waits" if p["phase"] == "BACKOFF" and enough in p["why"] else p["phase"] for p in programs)

    until(lambda: phases() == ["RUNNING"] * 10 + ["waits"] * 4, 30, "ten to run and four to wait and to say why")
    box.ctl("stop", "first", check=True)
    until(lambda: phases().count("RUNNING") == 10, 40, "the next of them to start once there is room")
    assert daemon.poll() is None


def health(box: Box) -> bytes:
    """The status of /healthz; empty if nothing answers."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2.0)
        probe.connect(str(box.runtime / "supervisor.sock"))
        probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return probe.recv(64).split()[1]
    return b""


LACKS = """
import resource, sys
from supervisor.__main__ import main
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.exit(main(sys.argv[4:]))
"""


def test_a_start_that_lacks_descriptors_waits_for_them(box: Box) -> None:
    box.config(sleeper("first"))
    box.under = [sys.executable, "-c", LACKS]
    daemon = box.start(wait=False)
    until(lambda: "starts once the machine has" in box.log.read_text(), 30, "the lack to be reported")
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    until(box._serves, 30, "the same process to serve")
    box.wait_phase("first", "RUNNING")


def test_a_reload_that_lacks_descriptors_waits_for_them(box: Box) -> None:
    box.config(sleeper("first"))
    daemon = box.start()
    with no_descriptors(daemon.pid):
        daemon.send_signal(signal.SIGHUP)
        until(lambda: "reload_waits" in box.log.read_text(), 20, "the check of the next image to fail")
    until(lambda: box.facts("DaemonStarted")[1:], 30, "the next image")
    assert not box.facts("ConfigRefused"), "the configuration is as good as before"


def test_after_a_lack_of_descriptors_every_end_is_noticed_and_healthz_is_not_200_meanwhile(box: Box) -> None:
    """A worker ends while the daemon can open no file, not even /proc; another one after that."""
    box.config(sleeper("during") + sleeper("after"), slots=2)
    systemd = service_manager(box)
    daemon = box.start()
    pids = {name: box.wait_phase(name, "RUNNING")["pid"] for name in ("during", "after")}
    with no_descriptors(daemon.pid):
        until(lambda: "the thread sampler fails" in box.log.read_text(), 20, "the lack to be noticed")
        os.kill(pids["during"], signal.SIGKILL)
        until(lambda: "thread=end-during" in box.log.read_text(), 20, "its end to be read in vain")
        assert health(box) != b"200"
        with systemd:
            await_ping(systemd)
    until(lambda: box.program("during")["pid"] not in {None, pids["during"]}, 10, "the end during the lack to be noticed")
    assert box.facts("Exited", "during")[0]["signal"] == signal.SIGKILL
    os.kill(pids["after"], signal.SIGKILL)
    until(lambda: box.program("after")["pid"] not in {None, pids["after"]}, 10, "the end after the lack to be noticed")
    until(lambda: health(box) == b"200", 10, "the trouble to be over")
    assert box.facts("FoundationRestored"), "the trouble of the threads is on record"
    assert "Traceback" not in box.log.read_text(), "asyncio has one for each try to accept a connection"
    assert len(box.facts("DaemonStarted")) == 1


def test_a_log_on_a_file_system_that_hangs_is_reported_and_hides_no_other_program(box: Box, tmp_path: Path) -> None:
    lower, upper, work, place = (tmp_path / name for name in ("lower", "upper", "work", "place"))
    for directory in (lower, upper, work, place):
        directory.mkdir()
    layers = f"lowerdir={lower},upperdir={upper},workdir={work},timeout=0"
    try:
        server = subprocess.Popen(["fuse-overlayfs", "-f", "-o", layers, str(place)], stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("fuse-overlayfs is not installed")
    try:
        until(lambda: place.is_mount() or server.poll() is not None, 10, "the file system")
        if server.poll() is not None:
            pytest.skip("no file system in user space can be mounted here")
        slow = f'[program.slow]\ncommand = ["sh", "-c", "while echo x; do sleep 0.2; done"]\nstdout_log = "{place}/log"\n'
        box.config(slow + box.trainer("other"), floor_s=FLOOR_S)
        box.start()
        box.wait_phase("slow", "RUNNING")
        other = box.wait_phase("other", "RUNNING")["pid"]
        server.send_signal(signal.SIGSTOP)
        until(lambda: health(box) == b"503", 30, "the hang to be reported")
        assert "readings-slow" in str(box.status()["daemon"]["foundations"])
        os.kill(other, signal.SIGSTOP)
        box.wait_fact("Stalled", "other")
        server.send_signal(signal.SIGCONT)
        until(lambda: health(box) == b"200", 30, "the trouble to be over")
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)
