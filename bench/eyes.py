"""The cost of observing: `/api/v1/status`, and dashboards that follow the stream, with 20 and 500 programs.

    python bench/eyes.py                       # about 18 minutes
    python bench/eyes.py --programs 20 --window 20 --settle 10

The programs are `sleep`. `status` is requested on one connection. An answer with a new time stamp was made for this request
(cold); the others repeat the same bytes (cached). CPU is the daemon's CPU time over all threads, so a busy machine does not
matter. Each number of readers has two windows. The readers are another process. The worst gap is the longest time between
two turns of the loop. For facts it measures the time from a request's answer to the event of its fact. Prints a table and
writes bench/results/eyes.json.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from footprint import cpu_s
from sides import Ours, end, pids_of, table, wait_for, write_json

STREAM = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
READERS = """
import selectors, socket, sys
chosen = selectors.DefaultSelector()
for _ in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    sock.sendall(sys.argv[3].encode())
    chosen.register(sock, selectors.EVENT_READ)
print("reading", flush=True)
while True:
    for key, _ in chosen.select():
        if not key.fileobj.recv(1 << 20):
            sys.exit("a stream has ended")
"""


class Connection(http.client.HTTPConnection):
    """An HTTP connection to the control socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))

    def ask(self, target: str, body: Any = None) -> Any:
        head = {"Content-Type": "application/json"}
        self.request("GET" if body is None else "POST", target, None if body is None else json.dumps(body), head)
        return json.loads(self.getresponse().read())


def asked(path: Path, count: int) -> dict[str, float]:
    """Milliseconds of `status`, cold and cached."""
    connection, took_s, before = Connection(path), {"cold": [], "cached": []}, None
    while min(map(len, took_s.values())) < count:
        began_s = time.perf_counter()
        connection.request("GET", "/api/v1/status")
        body = connection.getresponse().read()
        passed_s = time.perf_counter() - began_s
        moment = body[body.rindex(b'"wall_s":') :]
        took_s["cached" if moment == before else "cold"].append(passed_s)
        before = moment
        time.sleep(0.02)  # so that the daemon's loop has new turns
    connection.close()
    found = {"status_kb": len(body) / 1e3}
    for kind, each in took_s.items():
        found[f"{kind}_p50_ms"] = 1e3 * statistics.median(each)
        found[f"{kind}_p99_ms"] = 1e3 * statistics.quantiles(each, n=100)[98]
    return found


@contextlib.contextmanager
def readers(path: Path, count: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", READERS, str(path), str(count), STREAM.decode()], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        yield
        assert process.poll() is None, "a stream has ended"
    finally:
        process.kill()
        process.wait()


def watched(box: Ours, path: Path, count: int, window_s: float) -> dict[str, float]:
    """CPU of the daemon and the loop's worst gap while `count` readers follow the stream."""
    with readers(path, count):
        time.sleep(2.0)  # until the initial complete pages are sent
        spent_s, began_s = cpu_s(box.daemon.pid), time.monotonic()
        time.sleep(window_s)
        percent = 100 * (cpu_s(box.daemon.pid) - spent_s) / (time.monotonic() - began_s)
        gap_s = Connection(path).ask("/api/v1/status")["worst_gap_s"]
    return {"cpu_percent": percent, "worst_gap_ms": 1e3 * gap_s}


def all_watched(box: Ours, path: Path, crowd: list[int], window_s: float) -> dict[str, dict[str, float]]:
    """`watched` for each number of readers, there and back: a steady drift of the daemon's CPU time cancels out."""
    turns = [(number, watched(box, path, number, window_s)) for number in (*crowd, *reversed(crowd))]
    found = {}
    for number in crowd:
        both = [row for each, row in turns if each == number]
        found[f"{number} streams"] = {
            "cpu_percent": statistics.mean(row["cpu_percent"] for row in both),
            "worst_gap_ms": max(row["worst_gap_ms"] for row in both),
        }
    none = found[f"{crowd[0]} streams"]["cpu_percent"]
    for each in found.values():
        each["cpu_percent_more"] = each["cpu_percent"] - none
    return found


def fact_to_stream(path: Path, repetitions: int) -> float:
    """The longest of several delays from answer to event, in milliseconds."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    sock.sendall(STREAM)
    lines = (line for line in sock.makefile("rb"))
    worst_s = 0.0
    for _ in range(repetitions):
        Connection(path).ask("/api/v1/ask", {"verb": "signal", "names": ["p000"], "signal": "CONT"})
        answered_s = time.perf_counter()
        seq = Connection(path).ask("/api/v1/facts?limit=-1")["facts"][-1]["seq"]
        while int(next(line for line in lines if line.startswith(b"id: "))[4:]) < seq:
            pass
        worst_s = max(worst_s, time.perf_counter() - answered_s)
    sock.close()
    return 1e3 * worst_s


def measure(count: int, window_s: float, settle_s: float, crowd: list[int]) -> dict[str, dict[str, float]]:
    tag = f".{os.getpid()}{count:04}"  # the fraction of their sleep times: it marks our processes
    programs = {f"p{i:03}": ["sleep", f"{10**8 + i}{tag}"] for i in range(count)}
    with tempfile.TemporaryDirectory() as name:
        box = Ours(programs, Path(name))
        path = box.runtime / "supervisor.sock"
        try:
            wait_for(lambda: len(pids_of(tag, "sleep\0")) >= count, 300, 0.2)
            time.sleep(settle_s)  # until all are started, and the gaps of that time are no longer reported
            found = all_watched(box, path, crowd, window_s)
            return {"status": asked(path, 30) | {"fact_to_stream_ms": fact_to_stream(path, 10)}} | found
        finally:
            box.close()
            end(tag)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, nargs="+", default=[20, 500])
    parser.add_argument("--window", type=float, default=60.0, help="seconds that CPU is measured over")
    parser.add_argument("--settle", type=float, default=130.0, help="seconds between the last start and the first window")
    parser.add_argument("--streams", type=int, nargs="+", default=[0, 5, 100])
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for count in args.programs:
        results[str(count)] = measure(count, args.window, args.settle, args.streams)
        status = {"status": results[str(count)]["status"]}
        rest = {name: row for name, row in results[str(count)].items() if name != "status"}
        print(f"\n{count} programs\n{table(status)}\n{table(rest)}\n", flush=True)
    write_json("eyes", results)


if __name__ == "__main__":
    main()
