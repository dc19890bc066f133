"""Health checks of real servers, sockets that hang, and commands: what is sent, started and remembered, each edge of an answer."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attempts_kit import BootClock, eventually, python, spec
from tools import needs

from supervisor.adapters import leftovers, procfs
from supervisor.adapters.process.health_checks import Failed, HealthChecks, make
from supervisor.formats import span
from supervisor.policy.script.service_health import HealthCheck


def ask(fields: dict[str, object] | None = None, **check: object) -> None:
    make(HealthCheck(**{"timeout_s": 60.0, **check}), spec("Board", ["x"], **(fields or {})))  # type: ignore[arg-type]


@contextmanager
def server(*pieces: bytes, context: ssl.SSLContext | None = None, hangs: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers one request with these pieces and then ends the connection; its port, and what it was sent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        heard: list[bytes] = []
        over = threading.Event()

        def serve() -> None:
            raw, _ = listening.accept()
            with raw:
                try:
                    sock = raw if context is None else context.wrap_socket(raw, server_side=True)
                    with sock:
                        data = b""
                        while not hangs and not data.endswith(b"\r\n\r\n") and (more := sock.recv(4096)):
                            data += more
                        heard.append(data)
                        for piece in pieces:
                            sock.sendall(piece)
                        over.wait(60.0 if hangs else 0.0)
                except OSError:
                    heard.append(b"broken")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], heard
        over.set()
        thread.join(60.0)


# --- pages --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ((b"HTTP/1.1 199 x\n",), "it answered 199"),
        ((b"HTTP/1.0 399 Odd\r\nMore: x\r\n",), ""),
        ((b"HTTP/1.1 400 x\n",), "it answered 400"),
        ((b"HT", b"TP/1.1 2", b"04 Fine\r", b"\n"), ""),
        ((b"HTTP/1.1 200",), ""),
        ((b"HTTP/1.1\n200\n",), "its answer is not HTTP"),
        ((b"XHTTP/1.1 -200 OK\n",), "its answer is not HTTP"),
        ((), "its answer is not HTTP"),
        ((b"HTTP/1.1 200 " + b"x" * 20_000,), ""),
    ],
)
def test_the_first_line_of_the_answer_counts(pieces: tuple[bytes, ...], why: str) -> None:
    with server(*pieces) as (port, _):
        if why:
            with pytest.raises(Failed) as failed:
                ask(http=f"http://127.0.0.1:{port}/")
            assert str(failed.value) == why
        else:
            ask(http=f"http://127.0.0.1:{port}/")


def test_a_page_over_tls_is_believed_only_with_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = (
        f"{needs('openssl')} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with (
        server(context=context) as (port, _),
        pytest.raises(Failed, match="certificate verify failed: self-signed certificate"),
    ):
        ask(http=f"https://localhost:{port}/")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with server(b"HTTP/1.1 204 x\r\n", context=context) as (port, heard):
        ask(http=f"https://localhost:{port}/page")
    assert heard == [f"GET /page HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode()]
    with server(context=context) as (port, _), pytest.raises(Failed, match=r"Hostname mismatch|IP address mismatch"):
        ask(http=f"https://127.0.0.1:{port}/")
    with server(b"HTTP/1.1 200 OK\r\n\r\n", context=context) as (port, _), pytest.raises(Failed):
        ask(http=f"http://localhost:{port}/")


def test_nobody_there_is_a_failure_and_an_unknown_name_is_not() -> None:
    with socket.socket() as bound:  # nobody listens there, and nobody else can meanwhile
        bound.bind(("127.0.0.1", 0))
        free = bound.getsockname()[1]
        with pytest.raises(Failed, match="connection refused"):
            ask(http=f"http://127.0.0.1:{free}/")
        with pytest.raises(Failed, match="connection refused"):
            ask(tcp=f"127.0.0.1:{free}")
        bound.listen()
        ask(tcp=f"127.0.0.1:{free}")
    with pytest.raises(socket.gaierror):
        ask(tcp="no-such-host.invalid:80")


@pytest.mark.parametrize(("scheme", "answer"), [("http", b""), ("http", b"HTTP/1.1 2"), ("http", b"x"), ("https", b"")])
def test_one_that_hangs_is_a_failure_in_time(scheme: str, answer: bytes) -> None:
    with server(answer, hangs=True) as (port, _), pytest.raises(Failed, match=r"^no answer within 200ms$"):
        ask(http=f"{scheme}://127.0.0.1:{port}/", timeout_s=0.2)


# --- commands -----------------------------------------------------------------------------------------------------------


def test_a_command(tmp_path) -> None:
    ask(command=("true",))
    with pytest.raises(Failed, match=r"^exit code 3$"):
        ask(command=("sh", "-c", "exit 3"))
    with pytest.raises(Failed, match=r"^signal 9$"):
        ask(command=("sh", "-c", "kill -9 $$"))
    pid, began_s = tmp_path / "pid", time.monotonic()
    for timeout_s in (0.2, 20.0):  # in the shorter time a busy machine may not have begun all of it
        with pytest.raises(Failed, match=rf"^the command did not end within {span(timeout_s)}$"):
            ask(command=("sh", "-c", f"sleep 1000 & echo $! > {pid}; wait"), timeout_s=timeout_s)
        if pid.exists() and pid.read_text():
            break
    assert time.monotonic() - began_s < 300, "not the 1000 s that it takes"
    child = int(pid.read_text())
    assert eventually(lambda: (stat := procfs.read_stat(child)) is None or not stat.alive), "what it started ends with it"
    with pytest.raises(FileNotFoundError):
        ask(command=("/no/such/check",))


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")  # one that another user may execute
TELLS = """
import json, os, sys
streams = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
ids = [os.getpid(), os.getpgid(0), os.getsid(0), os.getuid(), os.getgid(), sorted(os.getgroups())]
with open(sys.argv[1], "w") as file:
    json.dump([os.getcwd(), dict(os.environ), streams, ids], file)
"""


def told_by(path: Path, fields: dict[str, object]) -> tuple[str, dict[str, str], list[str], list[object]]:
    """Where and as what a command runs for a program with these fields."""
    words = [PYTHON, "-c", TELLS] if "user" in fields else python(TELLS)
    ask(fields, command=(*words, str(path)))
    directory, env, streams, ids = json.loads(path.read_text())
    return directory, env, streams, ids


def test_a_command_is_started_as_its_program_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XL_OWN", "XL_BOTH", "EXTRALIFE_PROGRAM"):
        monkeypatch.setenv(name, "of the daemon")
    fields = {"directory": str(tmp_path), "env": (("XL_BOTH", "of the program"), ("EXTRALIFE_PROGRAM", "another"))}
    directory, env, streams, (pid, group, session, uid, *_) = told_by(tmp_path / "told", fields)
    assert (directory, streams[0]) == (str(tmp_path), "/dev/null")
    assert (group, session, uid) == (pid, os.getsid(0), os.geteuid())
    expected = {"XL_OWN": "of the daemon", "XL_BOTH": "of the program", "EXTRALIFE_PROGRAM": "Board"}
    assert {name: env.get(name) for name in expected} == expected
    assert env[leftovers.ENV] == leftovers.mark(of_user=True)[leftovers.ENV]
    assert told_by(tmp_path / "told", {})[0] == "/"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a command as another user")
def test_a_command_of_another_user_runs_as_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.getpwnam("nobody")
    monkeypatch.setenv("HOME", "/of/the/daemon")
    monkeypatch.setenv("XL_TOKEN", "a secret of the daemon")
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o777)
        fields = {"user": "nobody", "directory": "/", "env": (("SHELL", "/own"),)}
        _, env, _, (*_, uid, gid, groups) = told_by(Path(open_to_all, "told"), fields)
    assert "XL_TOKEN" not in env
    assert (uid, gid, groups) == (entry.pw_uid, entry.pw_gid, sorted(os.getgrouplist("nobody", entry.pw_gid)))
    assert {name: env[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")} == {
        "HOME": entry.pw_dir, "USER": "nobody", "LOGNAME": "nobody", "SHELL": "/own",
    }  # fmt: skip


# --- what is remembered ---------------------------------------------------------------------------------------------------


def test_the_newest_result_is_kept_and_forgotten_with_its_attempt(tmp_path: Path) -> None:
    mark = tmp_path / "well"
    checks = HealthChecks(BootClock())
    checks.watch(spec("Plain", ["x"]), "t0")
    assert checks.newest("t0") is None
    check = HealthCheck(command=("test", "-e", str(mark)), every_s=0.05, timeout_s=30.0)
    board = spec("Board", ["x"], health=check)
    checks.watch(board, "t1")
    checks.watch(board, "t1")
    assert eventually(lambda: checks.newest("t1").failures >= 2)
    found = checks.newest("t1")
    assert (found.error, found.ok_at_s, found.unknown) == ("exit code 1", None, "")
    mark.touch()
    assert eventually(lambda: checks.newest("t1").ok_at_s is not None)
    assert checks.newest("t1").failures == 0
    checks.forget("t1")
    checks.forget("t1")
    assert checks.newest("t1") is None
    checks.watch(spec("Board", ["x"], health=HealthCheck(command=("/no/such/check",), every_s=0.05)), "t2")
    assert eventually(lambda: "FileNotFoundError" in checks.newest("t2").unknown)
    assert checks.newest("t2").failures == 0
    checks.forget("t2")
