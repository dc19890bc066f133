"""extralife beside PyPI supervisor 4.3.0, in one run: restart latency, parallel stop, a killed daemon.

    python bench/supervision.py            # installs supervisor 4.3.0 into bench/.envs/supervisor the first time

Ground truth is /proc, never the daemon under test. Each side gets the same trivial workers (`sleep` with an argument of
its own) and its default restart policy: 40 programs are killed once each, so no backoff is in the figures.
Prints a table and writes bench/results/supervision.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ENVS = ROOT / "bench" / ".envs"
RESULTS = ROOT / "bench" / "results"


def wait_for(look: Callable[[], Any], timeout_s: float, period_s: float = 0.005) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(period_s)
    return found


def pids_of(mark: str) -> list[int]:
    """Live processes one of whose arguments contains the mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and state(int(name)) not in "ZX":
                    found.append(int(name))
    return found


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Ours:
    name = "extralife"

    def __init__(self, programs: dict[str, list[str]], directory: Path) -> None:
        self.directory = directory
        self.runtime = Path(tempfile.mkdtemp(prefix="xlb-", dir="/dev/shm"))
        lines = [
            f'[daemon]\nstate_dir = "{directory}/state"\nruntime_dir = "{self.runtime}"',
            f"[level]\nslots = {len(programs)}",
        ]
        lines += [f'[program.{n}]\ncommand = {json.dumps(c)}\nprogress = "none"' for n, c in programs.items()]
        (directory / "x.toml").write_text("\n".join(lines))
        self.start()

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "supervisor", "-c", str(self.directory / "x.toml")],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "supervisor.ctl", "-c", str(self.directory / "x.toml"), *args],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def close(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(60)
        shutil.rmtree(self.runtime, ignore_errors=True)


class Theirs:
    name = "supervisor 4.3.0"

    def __init__(self, programs: dict[str, list[str]], directory: Path) -> None:
        self.bin = ENVS / "supervisor" / "bin"
        if not (self.bin / "supervisord").exists():
            subprocess.run([sys.executable, "-m", "venv", str(ENVS / "supervisor")], check=True)
            subprocess.run([str(self.bin / "pip"), "install", "-q", "supervisor==4.3.0", "setuptools<81"], check=True)
        self.directory = directory
        self.socket = Path(tempfile.mkdtemp(prefix="svb-", dir="/dev/shm"))
        text = (
            f"[supervisord]\nnodaemon=true\nlogfile={directory}/s.log\npidfile={directory}/s.pid\nchildlogdir={directory}\n"
            f"minfds=4096\n[unix_http_server]\nfile={self.socket}/s.sock\n[supervisorctl]\nserverurl=unix://{self.socket}/s.sock\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        )
        for number, (name, command) in enumerate(programs.items()):
            script = directory / f"{name}.sh"
            script.write_text("#!/bin/sh\nexec " + " ".join(_quote(part) for part in command) + "\n")
            script.chmod(0o755)
            text += f"[program:{name}]\ncommand={script}\npriority={number}\nautorestart=true\n"
        (directory / "s.conf").write_text(text)
        self.start()

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.socket / "s.sock").unlink()
        self.daemon = subprocess.Popen(
            [str(self.bin / "supervisord"), "-c", str(self.directory / "s.conf")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.directory,
        )  # fmt: skip

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "supervisorctl"), "-c", str(self.directory / "s.conf"), *args],
            capture_output=True, text=True, check=False, cwd=self.directory,
        )  # fmt: skip

    def close(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(60)
        shutil.rmtree(self.socket, ignore_errors=True)


def _quote(part: str) -> str:
    return "'" + part.replace("'", "'\\''") + "'"


Side = type[Ours] | type[Theirs]


def restart_latency(side: Side, kills: int) -> dict[str, float]:
    """kill -9 of a trivial worker -> its replacement's own program image runs, in ms.

    The replacement itself notes the moment (bash's EPOCHREALTIME, its first act): a harness that searches /proc all the
    time would compete with what it measures for the two cores.
    """
    tag = f"restart{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        marks = {f"p{i}": Path(directory) / f"began-{i}" for i in range(kills)}
        box = side(
            {
                name: ["bash", "-c", f"echo $EPOCHREALTIME $$ > {mark}; exec sleep 86400 # {tag}"]
                for name, mark in marks.items()
            },
            Path(directory),
        )
        try:
            wait_for(lambda: all(_noted(mark) for mark in marks.values()), 60, 0.2)
            time.sleep(3.0)  # supervisord calls a program running only after its startsecs
            taken = [_one_restart(mark) for mark in marks.values()]
        finally:
            box.close()
    ordered = sorted(taken)
    return {
        "n": kills, "median_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], "max_ms": ordered[-1],
    }  # fmt: skip


def _noted(mark: Path) -> tuple[float, int] | None:
    """(moment, pid) that the newest start has noted."""
    with contextlib.suppress(OSError, ValueError):
        at_s, pid = mark.read_text().split()
        return float(at_s), int(pid)
    return None


def _one_restart(mark: Path) -> float:
    noted = _noted(mark)
    assert noted is not None
    began_s = time.time()
    os.kill(noted[1], signal.SIGKILL)
    again = wait_for(lambda: (found := _noted(mark)) and found[1] != noted[1] and found, 30, 0.002)
    time.sleep(0.05)
    return (again[0] - began_s) * 1e3


def parallel_stop(side: Side) -> dict[str, float]:
    """`stop all` of ten workers that take 0.1 to 1.0 s to leave: wall seconds until the last is gone."""
    tag = f"stop{os.getpid()}"
    programs = {
        f"w{i}": ["sh", "-c", f"trap 'sleep 0.{i}; exit 0' TERM; while :; do sleep 0.02; done # {tag}"] for i in range(1, 10)
    } | {"w10": ["sh", "-c", f"trap 'sleep 1; exit 0' TERM; while :; do sleep 0.02; done # {tag}"]}
    with tempfile.TemporaryDirectory() as directory:
        box = side(programs, Path(directory))
        try:
            wait_for(lambda: len(pids_of(tag)) >= 10, 60, 0.2)
            time.sleep(3.0)  # past startsecs
            began = time.perf_counter()
            box.ctl("stop", "all")
            wait_for(lambda: not pids_of(tag), 60, 0.01)
            taken = time.perf_counter() - began
        finally:
            box.close()
            _end(tag)
    return {"stop_all_s": taken, "slowest_worker_s": 1.0}


def killed_daemon(side: Side) -> dict[str, float]:
    """kill -9 of the daemon under ten training workers, then a new daemon: who was adopted, who was doubled."""
    tag = f"adopt{os.getpid()}"
    programs = {f"t{i}": [sys.executable, "-c", _COUNT, tag, f"t{i}"] for i in range(10)}
    with tempfile.TemporaryDirectory() as directory:
        os.environ["COUNT_DIR"] = directory
        box = side(programs, Path(directory))
        try:
            wait_for(lambda: len(list(Path(directory).glob("count-*"))) >= 10, 60, 0.1)
            time.sleep(3.0)  # past startsecs, and every counter has something to lose
            before = set(pids_of(tag))
            box.daemon.kill()
            box.daemon.wait()
            time.sleep(1.0)  # the workers train on without a daemon
            steps = {p.name: int(p.read_text()) for p in Path(directory).glob("count-*")}
            box.start()
            time.sleep(5.0)  # long enough for a new daemon to start every duplicate that it is going to start
            after = set(pids_of(tag))
            later = {p.name: int(p.read_text() or 0) for p in Path(directory).glob("count-*")}
            lost = sum(1 for name, count in steps.items() if later[name] < count)
        finally:
            box.close()
            _end(tag)
    kept = len(before & after)
    return {
        "workers": len(before),
        "same_pids": kept,
        "duplicates": max(0, len(after) - len(before)),
        "counters_set_back": lost,
    }


# Counts updates in memory and shows the total: a second copy starts again from zero and sets the file back.
_COUNT = """
import os, sys, time
path = os.path.join(os.environ["COUNT_DIR"], "count-" + sys.argv[2]); n = 0
while True:
    n += 1
    aside = path.replace("count-", "aside-") + str(os.getpid())
    with open(aside, "w") as file: file.write(str(n))
    os.rename(aside, path)
    time.sleep(0.01)
"""


def _end(mark: str) -> None:
    for _ in range(5):
        for pid in pids_of(mark):
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=40)
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for side in (Ours, Theirs):
        kills = args.kills if side is Ours else min(args.kills, 12)
        rows[side.name] = restart_latency(side, kills) | parallel_stop(side) | killed_daemon(side)
        print(side.name, rows[side.name], flush=True)
    print(f"\n{'':34}" + "".join(f"{name:>20}" for name in rows))
    for key in (
        "n",
        "median_ms",
        "p99_ms",
        "max_ms",
        "stop_all_s",
        "slowest_worker_s",
        "workers",
        "same_pids",
        "duplicates",
        "counters_set_back",
    ):
        print(f"{key:34}" + "".join(f"{rows[name][key]:>20.4g}" for name in rows))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "supervision.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
