"""The cost of supervision while nothing happens: memory and CPU of an idle daemon, and `status`; 10 and 200 programs.

    python bench/footprint.py                  # about 9 minutes: three daemons in turn, 10 and 200 programs, 60 s idle each
    python bench/footprint.py --idle 20 --sides extralife --programs 200

The programs are `sleep`. CPU is the process's CPU clock (all threads, nanoseconds), so a busy machine does not matter;
memory is /proc/PID/smaps_rollup. `status` is the wall time of each side's own client, and of Supervisor's client 4.3.0
(stock) where it works. Wall time needs a quiet machine; the CPU time of client and daemon together is less sensitive.
Prints a table and writes bench/results/footprint.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from sides import ROOT, Box, Circus, Ours, Supervisor, end, pids_of, table, wait_for, write_json

SIDES = {"extralife": Ours, "supervisor": Supervisor, "circus": Circus}


def cpu_s(pid: int) -> float:
    """CPU time of a whole process, including its ended threads (by the kernel's numbers for process clocks)."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_mib(pid: int) -> dict[str, float]:
    """RSS, PSS (each shared page divided by its number of users) and private memory, in MiB."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, size = line.partition(":")
        found[name] = int(size.split()[0]) / 1024
    return {"rss": found["Rss"], "pss": found["Pss"], "private": found["Private_Clean"] + found["Private_Dirty"]}


def ask(command: list[str], daemon: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Wall seconds of a client's `status`, and CPU seconds of client and daemon together, each sorted."""
    wall, cpu = [], []
    for _ in range(repetitions):
        began, spent = time.perf_counter(), cpu_s(daemon)
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        wall.append(time.perf_counter() - began)
        cpu.append(usage.ru_utime + usage.ru_stime + cpu_s(daemon) - spent)
    return sorted(wall), sorted(cpu)


def measure(side: type[Box], count: int, idle_s: float, settle_s: float, repetitions: int) -> dict[str, Any]:
    """One daemon with `count` programs: start it, leave it idle, request its status, stop it."""
    tag = f".{os.getpid()}{count:04}"  # the fraction of their sleep times: it marks our processes
    programs = {f"p{i:03}": ["sleep", f"{10**8 + i}{tag}"] for i in range(count)}
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        box = side(programs, Path(name))
        try:
            wait_for(lambda: len(pids_of(tag, "sleep\0")) >= count, 120, 0.1)
            started_s = time.perf_counter() - began
            time.sleep(settle_s)  # until the start is over: only the idle daemon is measured
            return {"started_s": started_s} | idle(box, idle_s) | _status(box, repetitions, count)
        finally:
            box.close()
            end(tag)


def idle(box: Box, idle_s: float) -> dict[str, Any]:
    """CPU and memory while there are no requests."""
    daemon, helpers = box.daemon.pid, box.helpers()
    before, helpers_before, began = cpu_s(daemon), [cpu_s(pid) for pid in helpers], time.monotonic()
    time.sleep(idle_s)  # the window of the CPU measurement
    passed = time.monotonic() - began
    spent, helpers_spent = cpu_s(daemon) - before, sum(cpu_s(pid) for pid in helpers) - sum(helpers_before)
    memory = memory_mib(daemon)
    shims = [memory_mib(pid) for pid in helpers]
    fds = len(os.listdir(f"/proc/{daemon}/fd"))
    result: dict[str, Any] = {
        "daemon_cpu_percent": 100 * spent / passed,
        "daemon_rss_mib": memory["rss"], "daemon_pss_mib": memory["pss"], "daemon_private_mib": memory["private"],
        "daemon_fds": fds, "daemon_threads": len(os.listdir(f"/proc/{daemon}/task")), "helpers": len(helpers),
    }  # fmt: skip
    if shims:
        result |= {
            "helpers_cpu_percent": 100 * helpers_spent / passed,
            "helper_rss_mib_max": max(m["rss"] for m in shims),
            "helper_pss_mib_mean": statistics.mean(m["pss"] for m in shims),
            "helper_private_mib_mean": statistics.mean(m["private"] for m in shims),
        }
    return result


def _status(box: Box, repetitions: int, count: int) -> dict[str, float]:
    """The times of `status`, by each side's own client, and by Supervisor's where it works."""
    found = {}
    for kind, command in (("status", box.client("status")), ("stock_status", box.stock_client("status"))):
        if command is None:
            continue
        shown = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
        if sum(f"p{i:03}" in shown for i in range(count)) != count:
            raise AssertionError(f"{box.name}: {kind} does not show all {count} programs:\n{shown[:2000]}")
        wall, cpu = ask(command, box.daemon.pid, repetitions)
        found |= {f"{kind}_min_s": wall[0], f"{kind}_median_s": statistics.median(wall), f"{kind}_max_s": wall[-1]}
        found[f"{kind}_cpu_median_s"] = statistics.median(cpu)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, nargs="+", default=[10, 200])
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of idling that CPU is measured over")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds between the last start and the idling")
    parser.add_argument("--repeat", type=int, default=20, help="calls of status")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for count in args.programs:
        rows = {}
        for name in args.sides:
            side = SIDES[name]
            rows[side.name] = measure(side, count, args.idle, args.settle, args.repeat)
            print(f"{side.name}, {count} programs: done", flush=True)
        results[str(count)] = rows
        print(f"\n{count} programs, idle for {args.idle:g} s\n{table(rows)}\n", flush=True)
    write_json("footprint", results)


if __name__ == "__main__":
    main()
