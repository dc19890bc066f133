"""The server on the control socket: its start, another image of the process, its end."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import RemoteDisconnected
from pathlib import Path

from fake_backend import FakeBackend
from serving import call, served
from tools import ROOT


def asked_again(path: Path) -> int:
    """As extralifectl does: a reading that was cut off before its answer is asked again."""
    try:
        return call(path, "/healthz")[0]
    except ConnectionError:  # also a broken pipe: the server had closed it before the request was sent
        return call(path, "/healthz")[0]


def test_over_a_real_exec(socket_path: Path) -> None:
    """The next image of the process takes the descriptor and serves the client that has been waiting."""
    program = f"""
import os, sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}, {str(ROOT / "tests" / "api")!r}]
from fake_backend import FakeBackend

from supervisor.api.listener import listen, take_over
from supervisor.api.server import Server
path = {str(socket_path)!r}
if len(sys.argv) == 1:
    listener = listen(path)
    server = Server(FakeBackend(), listener, lambda: 1000.0)
    server.start()
    print("serving", flush=True)
    sys.stdin.readline()
    server.stop()
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(listener.hand_on())])
listener = take_over(int(sys.argv[1]), path)
server = Server(FakeBackend(), listener, lambda: 1000.0)
server.start()
print("serving again", flush=True)
sys.stdin.readline()
server.stop()
listener.close()
"""
    script = socket_path.parent / "daemon.py"
    script.write_text(program)
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "serving\n"
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        for _ in range(20):  # whenever they come: before, in between or after, they are answered
            assert asked_again(socket_path) == 200
        assert daemon.stdout.readline() == "serving again\n"
        assert call(socket_path, "/api/v1/status")[0] == 200
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        assert daemon.wait(30) == 0
    assert not socket_path.exists()


def test_nobody_is_left_hanging_when_it_stops(backend: FakeBackend, socket_path: Path) -> None:
    """Whoever connects while the server stops is answered or turned away, never forgotten with an open connection."""
    over = threading.Event()
    answered = threading.Semaphore(0)

    def hammer() -> int:
        count = 0
        while not over.is_set():
            with contextlib.suppress(ConnectionError, FileNotFoundError, RemoteDisconnected):
                assert call(socket_path, "/healthz")[0] == 200  # a forgotten one meets its timeout here
                answered.release()
                count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        hammers = [pool.submit(hammer) for _ in range(4)]
        try:
            for _ in range(6):
                with served(backend, socket_path):
                    for _ in range(10):
                        assert answered.acquire(timeout=20)
        finally:
            over.set()
        assert sum(one.result(40) for one in hammers) > 0
    gc.collect()  # a connection that was lost is found, and pytest told of it, here
