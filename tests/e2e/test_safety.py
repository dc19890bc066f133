"""The control plane under attack, on a real daemon with real workers: it goes on, and so do they.

What holds each row of the table in docs/security.md.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from box import PATIENCE, ROOT, Box, until
from malformed import malformed, request

HOSTILE = ROOT / "tests" / "e2e" / "programs" / "hostile.py"
ATTACK = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\x9b31m"
NOBODY = 65534
LATE_S = 2.0  # between two turns; a look is due every 0.2 s here, and CI's cores are slow


def hostile(name: str, deed: str, keys: str = "") -> str:
    command = json.dumps([sys.executable, str(HOSTILE), deed])
    return f'[program.{name}]\ncommand = {command}\nprogress = "beat"\nstop_grace_s = 1.0\n{keys}\n'


def say(box: Box, data: bytes, timeout_s: float = 20) -> bytes:
    """What comes back for these very bytes until the daemon ends it, or nothing more comes."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{box.runtime}/supervisor.sock")
        sock.settimeout(timeout_s * PATIENCE)
        # A request that does not fit into the socket is given up like an answer that does not come.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            sock.sendall(data)
        got = b""
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while piece := sock.recv(65536):
                got += piece
        return got


def get(box: Box, page: str) -> Any:
    asked = f"GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    head, _, body = say(box, asked).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return json.loads(body)


class Daemon:
    """What the daemon costs, from /proc."""

    def __init__(self, box: Box) -> None:
        assert box.daemon is not None
        self.proc = Path(f"/proc/{box.daemon.pid}")

    def rss_mib(self) -> float:
        return int(re.search(r"VmRSS:\s+(\d+)", (self.proc / "status").read_text())[1]) / 1024  # type: ignore[index]

    def threads(self) -> int:
        return len(list((self.proc / "task").iterdir()))

    def cpu_s(self) -> float:
        fields = (self.proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def training(box: Box) -> Box:
    """Two workers that train, one after the other noted."""
    box.config(box.trainer("a", "none", "--after", "1000000000") + box.trainer("b", "none", "--after", "1000000000"))
    box.start()
    box.wait_phase("a", "RUNNING")
    box.wait_phase("b", "RUNNING")
    return box


def undisturbed(box: Box, before: dict[str, Any]) -> None:
    """The same workers train on, and the daemon has decided in time."""
    for name in ("a", "b"):
        was = next(p for p in before["programs"] if p["name"] == name)
        now = until(
            lambda name=name, was=was: (p := box.program(name))["steps"] > was["steps"] and p, 20, f"{name} to get on"
        )
        assert (now["pid"], now["attempt"]) == (was["pid"], was["attempt"])
    assert box.facts("Stalled") == []
    assert get(box, "/healthz")["worst_gap_s"] < max(LATE_S * PATIENCE, before["worst_gap_s"] + 0.01)


@pytest.mark.long
def test_a_thousand_broken_requests_while_workers_train(training: Box) -> None:
    daemon, before = Daemon(training), training.status()
    with ThreadPoolExecutor(40) as pool:  # a request that lacks its end is waited for, and then the client goes
        # What the first use loads is no growth, nor are the arenas of forty at once: 4 to 7 MiB, and no more after that.
        answers = list(pool.map(lambda data: say(training, data, 0.3), malformed(1000, seed=1)))
        rss_mib, threads = daemon.rss_mib(), daemon.threads()
        answers += pool.map(lambda data: say(training, data, 0.3), malformed(500))
    codes = [int(code) for answer in answers for code in re.findall(rb"HTTP/1.1 (\d+)", answer)]
    assert len(codes) > 750
    assert not [code for code in codes if code >= 500]
    undisturbed(training, before)
    print(f"RSS {daemon.rss_mib() - rss_mib:+.1f} MiB, worst gap {get(training, '/healthz')['worst_gap_s']:.2f} s")
    assert daemon.rss_mib() - rss_mib < 2
    assert daemon.threads() <= threads + 4, "its readers, and nothing more"
    assert not [fact for fact in training.facts("OperatorAsked") if fact["args"]]
    assert "api_request_failed" not in training.log.read_text()


def logged_bytes(run_dir: Path) -> int:
    """Of a log and its copies, one of which may be renamed meanwhile."""
    found = 0
    for file in run_dir.glob("stdout.log*"):
        with contextlib.suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def test_a_hundred_megabytes_of_output_a_second(box: Box) -> None:
    config = hostile("loud", "flood") + box.trainer("a", "none", "--after", "1000000000")
    box.config(config)
    text = box.config_file.read_text().replace("[daemon]", "[daemon]\nlog_max_bytes = 5000000\nlog_backups = 2")
    box.config_file.write_text(text)
    box.start()
    box.wait_phase("a", "RUNNING")
    box.wait_phase("loud", "RUNNING")
    daemon, run_dir = Daemon(box), box.state / "programs" / "loud"
    rss_mib, cpu_s, began, most, total = daemon.rss_mib(), daemon.cpu_s(), time.monotonic(), 0, 0
    while time.monotonic() - began < 4:
        most = max(most, logged_bytes(run_dir))
        time.sleep(0.05)
    took_s = time.monotonic() - began
    total = most / 1e6
    print(
        f"at most {total:.0f} MB of logs; daemon {daemon.rss_mib() - rss_mib:+.1f} MiB, {daemon.cpu_s() - cpu_s:.2f} s of CPU in {took_s:.1f} s"
    )
    assert total < 2 * (2 + 2) * 5 + 100 * 3 * PATIENCE, "twice the bound a copy, and what comes within a look or two"
    assert daemon.rss_mib() - rss_mib < 8
    assert (daemon.cpu_s() - cpu_s) / took_s < 0.5
    tail = b"GET /api/v1/logs/loud/stdout?tail=1048576 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert len(say(box, tail)) < 2**20 + 500
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor.ctl", "-c", str(box.config_file), "tail", "-f", "loud"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None
        assert len(follower.stdout.read(2**20)) == 2**20
        follower.kill()
    os.kill(until(lambda: box.program("loud")["pid"], 20, "the loud one to run"), signal.SIGKILL)
    fact = box.wait_fact("Exited", "loud")
    assert sum(map(len, fact["last_lines"])) < 20_000
    assert box.program("a")["phase"] == "RUNNING"
    assert get(box, "/healthz")["worst_gap_s"] < LATE_S * PATIENCE


@pytest.mark.parametrize("deed", ["reports", "files", "notify"])
def test_a_hostile_worker_neither_hangs_nor_grows_the_daemon(box: Box, deed: str) -> None:
    box.config(hostile("bad", deed) + box.trainer("a", "none", "--after", "1000000000"))
    box.start()
    box.wait_phase("a", "RUNNING")
    box.wait_fact("Progressed" if "Progressed" in {f["kind"] for f in box.facts()} else "Spawned", "bad")
    daemon, steps = Daemon(box), box.program("a")["steps"]
    rss_mib, size = daemon.rss_mib(), (box.state / "journal.sqlite").stat().st_size
    time.sleep(2.5)
    assert daemon.rss_mib() - rss_mib < 24
    assert len(box.facts()) < 2000
    assert (box.state / "journal.sqlite").stat().st_size - size < 8 * 2**20
    until(lambda: box.program("a")["steps"] > steps, 20, "the other worker to get on")
    assert get(box, "/healthz")["worst_gap_s"] < LATE_S * PATIENCE
    assert box.ctl("stop", "bad", timeout_s=60).returncode == 0
    assert box.program("bad")["phase"] == "STOPPED"


def test_words_that_would_steer_a_terminal(box: Box) -> None:
    box.config(hostile("bad", "words"), extra="[restart]\n")
    box.start()
    box.wait_fact("Exited", "bad")
    for command in (["status"], ["explain", "bad"], ["history"], ["history", "--all"], ["tail", "bad", "stderr"]):
        said = box.ctl(*command).stdout
        if command[0] != "tail":  # into a pipe a log goes as it is
            assert not [char for char in said if not char.isprintable() and char != "\n"], (command, said)
    for command in (["status", "--json"], ["explain", "bad", "--json"], ["journal"]):
        said = box.ctl(*command).stdout
        assert said.isascii()
        assert "\x1b" not in said
    fact = box.facts("Exited", "bad")[0]
    assert any(ATTACK in line for line in fact["last_lines"]), "kept exactly as it was"
    assert fact["why"].isprintable()
    assert all(fact["why"].isprintable() for fact in box.facts())
    assert [fact for fact in box.facts() if ATTACK in fact.get("text", "")], "the report too"
    assert "\x1b" not in (box.state / "extralife.log").read_text()
    assert "\x1b" not in box.log.read_text(), "and neither does a daemon in the foreground"


def test_links_lead_nowhere(box: Box) -> None:
    precious = box.directory / "precious"
    (precious / "directory" / ("ckpt-5." + "a" * 32)).mkdir(parents=True)
    (precious / "file").write_text("precious " * 100_000)
    box.config(hostile("bad", "links", f'env = {{ PRECIOUS = "{precious}" }}\n'))
    text = box.config_file.read_text().replace("[daemon]", "[daemon]\nlog_max_bytes = 65536")
    box.config_file.write_text(text)
    box.start()
    box.wait_phase("bad", "RUNNING")
    link = box.state / "programs" / "bad" / "stdout.log"
    until(link.is_symlink, 20, "the link")
    until(lambda: "log_rotation_failed" in box.log.read_text(), 20, "the guard to look at it")
    assert box.ctl("tail", "bad").returncode == 1
    os.kill(until(lambda: box.program("bad")["pid"], 20, "it to run"), signal.SIGKILL)
    box.wait_fact("Exited", "bad")
    box.wait_fact("Spawned", "bad", count=2)
    assert link.with_name("stdout.log.found").is_symlink(), (
        "the link has another name, and the next attempt a log of its own"
    )
    assert (precious / "file").read_text() == "precious " * 100_000
    assert [item.name for item in (precious / "directory").iterdir()] == ["ckpt-5." + "a" * 32]


# --- who ---------------------------------------------------------------------------------------------------------------------


def test_every_change_has_its_uid_in_the_journal(training: Box) -> None:
    for command in (["stop", "a"], ["start", "a"], ["restart", "a"], ["signal", "USR2", "b"], ["update"]):
        training.ctl(*command, timeout_s=60)
    body = b"<methodCall><methodName>supervisor.stopProcess</methodName><params><param><value><string>b</string></value>"
    headers = b"Content-Type: text/xml\r\nConnection: close\r\n"
    assert b"200 OK" in say(training, request(b"/RPC2", body + b"</param></params></methodCall>", headers), 60)
    training.ctl("shutdown", timeout_s=60)
    asked = training.facts("OperatorAsked")
    verbs = [fact["request"] for fact in asked if fact["request"] != "update"]
    assert verbs == ["stop", "start", "restart", "signal", "stop", "shutdown"]
    assert "update" in {fact["request"] for fact in asked}
    assert {fact["uid"] for fact in asked} == {os.geteuid()}


def try_as(box: Box, uid: int, gid: int) -> str:
    code = (
        f"import os, socket, sys; os.setgroups([]); os.setgid({gid}); os.setuid({uid}); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'); print(s.recv(99)[:15])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, f"{box.runtime}/supervisor.sock"],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused_and_the_group_let_in(box: Box) -> None:
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in {0, NOBODY})
    box.config(box.trainer("a"))
    box.start()
    assert "PermissionError" in try_as(box, NOBODY, NOBODY)
    for directory in (box.runtime, box.state, box.runtime / "notify", box.runtime / "beats", box.runtime / "shims"):
        os.access(directory, os.R_OK)
        assert stat.S_IMODE(directory.stat().st_mode) & 0o077 == 0, directory
    assert box.stop_daemon() == 0
    box.config_file.write_text(
        box.config_file.read_text().replace("[daemon]", f'[daemon]\nsocket_group = "{group.gr_name}"')
    )
    box.start()
    assert try_as(box, NOBODY, group.gr_gid) == "b'HTTP/1.1 200 OK'"
    assert "PermissionError" in try_as(box, NOBODY, NOBODY)
    assert stat.S_IMODE((box.runtime / "beats").stat().st_mode) & 0o077 == 0


def test_no_secret_of_the_environment_is_reported(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "WANDB_API_KEY": "s3cr3t-one",
        "DB_PASSWORD": "s3cr3t-two",
        "AUTH_HEADER": "s3cr3t-three",
        "MY_CREDENTIALS": "s3cr3t-four",
    }
    monkeypatch.setenv("HOST_TOKEN", "s3cr3t-of-the-daemon")
    env = ", ".join(f'{name} = "{value}"' for name, value in secrets.items())
    url = ', DATABASE_URL = "postgres://user:s3cr3t-five@host/db"'
    box.config(box.trainer("a", "die", "--after", "5", keys=f"env = {{ {env}{url} }}"))
    box.start()
    box.wait_fact("Exited", "a")
    said = [box.ctl(*command).stdout for command in (
        ["status", "--json"], ["explain", "a", "--json"], ["history", "--all"], ["journal"], ["avail"], ["tail", "a"],
    )]  # fmt: skip
    said.append(json.dumps(get(box, "/api/v1/config")))
    kept = [*box.state.glob("last-config*")]  # the configuration's own text: whoever may read that one knows them
    assert [stat.S_IMODE(file.stat().st_mode) for file in kept] == [0o600]
    for file in kept:
        file.unlink()
    said += [data.decode("latin-1") for data in box.written()]
    for file in box.runtime.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # of an attempt that has just ended: it dies again and again
            said += [file.read_bytes().decode("latin-1")] if file.is_file() else []
    for pid in (*box.pids(), box.daemon.pid if box.daemon else 0):
        with contextlib.suppress(OSError):
            said.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1"))
    assert not [text for text in said if "s3cr3t" in text]


def test_a_program_inherits_the_keys_of_its_training_and_none_of_the_daemon(box: Box, tmp_path: Path) -> None:
    ours = {"AWS_SECRET_ACCESS_KEY": "of the copies", "RUNPOD_API_KEY": "of the meter", "RESTIC_PASSWORD": "x"}
    box.env = {"WANDB_API_KEY": "of the training", **ours}
    (tmp_path / "password").write_text("long-enough\n")
    (tmp_path / "password").chmod(0o600)
    command = ["sh", "-c", f"env > {tmp_path}/env; mv {tmp_path}/env {tmp_path}/seen; sleep 1000"]
    box.config(
        f"[program.it]\ncommand = {json.dumps(command)}\n",
        extra=f'[offsite]\nrepository = "s3:http://127.0.0.1:9/b"\npassword_file = "{tmp_path}/password"',
    )
    box.start()
    until((tmp_path / "seen").exists, 30, "the program to start", box.tail)
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert not ours.keys() & seen.keys()
    assert (seen["WANDB_API_KEY"], seen["EXTRALIFE_PROGRAM"]) == ("of the training", "it")
