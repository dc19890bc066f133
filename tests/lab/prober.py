"""Asks the control socket without a pause until a file appears, in a box: who is refused, who waits, what goes back.

    prober.py SOCKET STOP

One thread knocks every 20 ms and is gone again, as one more client would; the other asks how everything is, one question
after the other. Prints what it saw as JSON.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from pathlib import Path

EVERY_S = 0.02
ANSWER_S = 30.0


class Prober:
    def __init__(self, path: str, stop: Path) -> None:
        self.path, self.stop = path, stop
        self.knocks, self.refused, self.refused_since_s, self.longest_refused_s = 0, 0, None, 0.0
        self.why: list[str] = []
        self.answers, self.unanswered, self.longest_wait_s = 0, 0, 0.0
        self.steps: dict[str, int] = {}
        self.backwards: list[str] = []
        self.pids: dict[str, list[int]] = {}
        self.daemons: list[float] = []

    def connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        sock.connect(self.path)
        return sock

    def knock(self) -> None:
        while not self.stop.exists():
            began_s = time.monotonic()
            self.knocks += 1
            try:
                self.connect(1.0).close()
                self.refused_since_s = None
            except OSError as error:
                self.refused += 1
                self.why.append(f"after {self.knocks} knocks and {self.answers} answers: {error!r}")
                self.refused_since_s = began_s if self.refused_since_s is None else self.refused_since_s
                self.longest_refused_s = max(self.longest_refused_s, time.monotonic() - self.refused_since_s)
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))

    def ask(self) -> None:
        while not self.stop.exists():
            began_s = time.monotonic()
            try:
                control = http.client.HTTPConnection("localhost")
                control.sock = self.connect(ANSWER_S)
                control.request("GET", "/api/v1/status")
                found = json.loads(control.getresponse().read())
                control.close()
            except (OSError, http.client.HTTPException):
                self.unanswered += 1
                continue
            finally:
                self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began_s)
            self.answers += 1
            self.look(found)
            time.sleep(EVERY_S)

    def look(self, found: dict) -> None:
        since_s = found["daemon"]["started_wall_s"]
        if since_s not in self.daemons:
            self.daemons.append(since_s)
        for program in found["programs"]:
            name, steps, pid = program["name"], program["steps"], program["pid"]
            if (
                steps is not None and program["worker_phase"]
            ):  # before its first look a daemon shows the last checkpoint's step
                if steps < self.steps.get(name, 0):
                    self.backwards.append(f"{name}: {self.steps[name]} -> {steps}")
                self.steps[name] = steps
            if pid not in self.pids.setdefault(name, []):
                self.pids[name].append(pid)


prober = Prober(sys.argv[1], Path(sys.argv[2]))
threads = [threading.Thread(target=each) for each in (prober.knock, prober.ask)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(json.dumps({name: value for name, value in vars(prober).items() if name not in ("path", "stop")}))
