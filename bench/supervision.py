"""extralife compared with PyPI supervisor 4.3.0 and circus, in one run: restart latency, parallel stop, a killed daemon.

    python bench/supervision.py            # about 4 minutes; installs the others into bench/.envs the first time

Ground truth is /proc, never the daemon under test. Each side has the same trivial workers (`sleep` with a unique argument)
and its default restart policy. 40 programs are killed once each, so the figures contain no backoff.
Prints a table and writes bench/results/supervision.json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from sides import Box, Circus, Ours, Supervisor, end, pids_of, table, wait_for, write_json


def restart_latency(side: type[Box], kills: int) -> dict[str, float]:
    """Milliseconds from kill -9 of a trivial worker until its replacement's own program image runs.

    The replacement itself records the time first (bash's EPOCHREALTIME). A harness that polls /proc all the time would
    compete with the measured processes for the two cores.
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
            time.sleep(3.0)  # supervisord regards a program as running only after its startsecs
            taken = [_one_restart(mark) for mark in marks.values()]
        finally:
            box.close()
    ordered = sorted(taken)
    return {
        "n": kills, "median_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], "max_ms": ordered[-1],
    }  # fmt: skip


def _noted(mark: Path) -> tuple[float, int] | None:
    """(time, pid) recorded by the newest start."""
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
    time.sleep(0.05)  # not timed: the new process finishes its start before it is killed too
    return (again[0] - began_s) * 1e3


def parallel_stop(side: type[Box]) -> dict[str, float]:
    """Wall seconds of `stop all` until the last of ten workers is gone; the workers take 0.1 to 1.0 s to leave."""
    tag = f"stop{os.getpid()}"
    programs = {
        f"w{i}": ["sh", "-c", f"trap 'sleep 0.{i}; exit 0' TERM; while :; do sleep 0.02; done # {tag}"] for i in range(1, 10)
    } | {"w10": ["sh", "-c", f"trap 'sleep 1; exit 0' TERM; while :; do sleep 0.02; done # {tag}"]}
    with tempfile.TemporaryDirectory() as directory:
        box = side(programs, Path(directory))
        try:
            wait_for(lambda: len(pids_of(tag)) >= 10, 60, 0.2)
            time.sleep(3.0)  # longer than startsecs
            began = time.perf_counter()
            box.stop_all()
            wait_for(lambda: not pids_of(tag), 60, 0.01)
            taken = time.perf_counter() - began
        finally:
            box.close()
            end(tag)
    return {"stop_all_s": taken, "slowest_worker_s": 1.0}


def killed_daemon(side: type[Box]) -> dict[str, float]:
    """kill -9 of the daemon of ten training workers, then a new daemon: numbers of adopted and of duplicated workers."""
    tag = f"adopt{os.getpid()}"
    programs = {f"t{i}": [sys.executable, "-c", _COUNT, tag, f"t{i}"] for i in range(10)}
    with tempfile.TemporaryDirectory() as directory:
        os.environ["COUNT_DIR"] = directory
        box = side(programs, Path(directory))
        try:
            wait_for(lambda: len(list(Path(directory).glob("count-*"))) >= 10, 60, 0.1)
            time.sleep(3.0)  # longer than startsecs, and every counter is above zero
            before = set(pids_of(tag))
            box.daemon.kill()
            box.daemon.wait()
            time.sleep(1.0)  # the workers continue without a daemon
            steps = {p.name: int(p.read_text()) for p in Path(directory).glob("count-*")}
            box.start()
            time.sleep(5.0)  # long enough for a new daemon to start all of its duplicates
            after = set(pids_of(tag))
            later = {p.name: int(p.read_text() or 0) for p in Path(directory).glob("count-*")}
            lost = sum(1 for name, count in steps.items() if later[name] < count)
        finally:
            box.close()
            end(tag)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=40)
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for side in (Ours, Supervisor, Circus):
        kills = args.kills if side is Ours else min(args.kills, 12)
        rows[side.name] = restart_latency(side, kills) | parallel_stop(side) | killed_daemon(side)
        print(side.name, rows[side.name], flush=True)
    print("\n" + table(rows))
    write_json("supervision", rows)


if __name__ == "__main__":
    main()
