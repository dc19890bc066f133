"""Time from the kill of a trivial worker until its replacement runs, with the launcher alone; and ten parallel stops.

    python bench/restart_latency.py [--rounds 200] [--json FILE]

Each round kills the worker with SIGKILL, waits for `Ended` (its whole tree is gone), makes two durable commits like the
journal (the exit, the intent to start), starts the next attempt and stops the clock when the new program's image runs.
The state directory is a temporary directory on disk, the runtime directory is on tmpfs if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import secrets
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from supervisor.adapters.process.processes import LocalLauncher
from supervisor.model.inputs import Ended, Input, SpawnSucceeded
from supervisor.model.settings import Paths, ProgramSpec
from workers.contract import read_boot_id


class Inbox(queue.Queue):
    def post(self, item: Input) -> None:
        self.put(item)

    def expect(self, kind: type[Input]) -> Input:
        item = self.get(timeout=60)
        if not isinstance(item, kind):
            raise SystemExit(f"expected {kind.__name__}, got {item}")
        return item


class Clock:
    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self) -> float:
        return time.time()

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9

    def to_boot_ns(self, at_s: float) -> int:
        return int(at_s * 1e9)


def spread_ms(values_s: list[float]) -> dict[str, float]:
    ordered = sorted(values_s)
    at = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 2) for name, share in at.items()}


class Durable:
    """Commits like the journal's: SQLite, WAL, synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        self.db.execute("create table fact (body text)")

    def commit(self) -> None:
        self.db.execute("begin immediate")
        self.db.execute("insert into fact values (?)", ("x" * 300,))
        self.db.execute("commit")


def restarts(launcher: LocalLauncher, inbox: Inbox, journal: Durable, rounds: int) -> dict[str, dict[str, float]]:
    spec = ProgramSpec("bench", ("/bin/sleep", "1000"), digest="bench")
    ended_s, commits_s, start_s, whole_s = [], [], [], []
    launcher.spawn(spec, 1, secrets.token_hex(16))
    running = inbox.expect(SpawnSucceeded)
    for number in range(rounds):
        killed = time.perf_counter()
        os.kill(running.pid, signal.SIGKILL)
        inbox.expect(Ended)
        ended = time.perf_counter()
        journal.commit()
        journal.commit()
        committed = time.perf_counter()
        launcher.spawn(spec, number + 2, secrets.token_hex(16))
        running = inbox.expect(SpawnSucceeded)
        replaced = time.perf_counter()
        ended_s.append(ended - killed)
        commits_s.append(committed - ended)
        start_s.append(replaced - committed)
        whole_s.append(replaced - killed)
    launcher.kill_tree("bench", running.token)
    inbox.expect(Ended)
    return {
        "kill -> tree gone, recorded, known": spread_ms(ended_s),
        "two durable commits": spread_ms(commits_s),
        "start -> program image runs": spread_ms(start_s),
        "kill -> replacement runs": spread_ms(whole_s),
    }


def shim_memory(launcher: LocalLauncher, inbox: Inbox) -> dict[str, float]:
    launcher.spawn(ProgramSpec("memory", ("/bin/sleep", "1000"), digest="bench"), 1, secrets.token_hex(16))
    running = inbox.expect(SpawnSucceeded)
    fields = {}
    for line in Path(f"/proc/{running.shim_pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = round(int(rest.split()[0]) / 1024, 2)
    launcher.kill_tree("memory", running.token)
    inbox.expect(Ended)
    return {"rss_mib": fields["Rss"], "pss_mib": fields["Pss"], "anonymous_mib": fields["Anonymous"]}


def stop_ten(launcher: LocalLauncher, inbox: Inbox) -> float:
    running = []
    for number in range(10):
        launcher.spawn(ProgramSpec(f"w{number}", ("/bin/sleep", "1000"), digest="bench"), 1, secrets.token_hex(16))
    running = [inbox.expect(SpawnSucceeded) for _ in range(10)]
    began = time.perf_counter()
    for item in running:
        launcher.signal(item.program, item.token, "SIGTERM")
    for _ in running:
        inbox.expect(Ended)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    tmpfs = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory(dir=tmpfs) as runtime:
        inbox = Inbox()
        launcher = LocalLauncher(Paths(state, runtime), read_boot_id(), inbox, Clock())
        figures = {
            "rounds": args.rounds,
            "ms": restarts(launcher, inbox, Durable(Path(state, "journal.sqlite")), args.rounds),
            "shim": shim_memory(launcher, inbox),
            "stop_ten_s": round(statistics.median(stop_ten(launcher, inbox) for _ in range(5)), 4),
        }
        launcher.close()
    print(f"{'ms':38s}" + "".join(f"{name:>9s}" for name in ("min", "median", "p90", "p99", "max")))
    for name, spread in figures["ms"].items():
        print(f"{name:38s}" + "".join(f"{value:9.2f}" for value in spread.values()))
    print("a shim:", ", ".join(f"{name} {value}" for name, value in figures["shim"].items()))
    print(f"ten workers stopped in parallel: {figures['stop_ten_s'] * 1e3:.1f} ms (median of 5)")
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
