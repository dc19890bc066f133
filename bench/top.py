"""The cost of `extralifectl top`: time to the first frame, CPU while it runs, memory; with 20 and 500 programs.

Usage: .venv/bin/python bench/top.py [--programs 20 500] [--watch 60] [--starts 10]. It runs a real process on a real
pseudo-terminal of 160x50, and a separate server whose programs change with each request. The first frame is timed from the
start of the process until the terminal has its last line; "bare" is a Python that does nothing. Prints a table and writes
bench/results/top.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / each) for each in ("", "core", "api", "ctl"))]

from fake_backend import FakeBackend, program  # noqa: E402
from running import Terminal  # noqa: E402
from serving import served  # noqa: E402

_FOOT = "q ends"
_SETTLE_S = 3.0


def backend(count: int) -> FakeBackend:
    """A backend whose speeds change with each request, as in reality."""

    class Night(FakeBackend):
        looks = 0

        def page_status(self) -> Any:
            self.looks += 1
            for name, view in self.programs.items():
                self.programs[name] = {**view, "steps_per_s": 400.0 + hash((name, self.looks)) % 1000 / 10}
            return super().page_status()

    made = Night()
    progress = {"steps": 4_000_000, "target": 10**7, "target_kind": "env_steps", "mean_return": 21.5, "ckpt_age_s": 33.0}
    made.add(*(program(f"Game{n:03}", **progress, memory_bytes=2**31, eta_s=7200.0) for n in range(count)))
    return made


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measured(count: int, starts: int, watch_s: float) -> dict[str, Any]:
    first_ms, bare_ms = [], []
    with tempfile.TemporaryDirectory() as name, served(backend(count), Path(name) / "s"):
        path = Path(name) / "s"
        for _ in range(starts):
            began_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare_ms.append((time.perf_counter() - began_s) * 1e3)
            began_s = time.perf_counter()
            with Terminal("top", socket=path, columns=160, rows=50) as terminal:
                terminal.until(_FOOT)
                first_ms.append((time.perf_counter() - began_s) * 1e3)
        with Terminal("top", socket=path, columns=160, rows=50) as terminal:
            terminal.until(_FOOT)
            read_for(terminal, _SETTLE_S)
            before_s, began_s, size_before = cpu_s(terminal.process.pid), time.monotonic(), len(terminal.seen)
            read_for(terminal, watch_s)
            passed_s = time.monotonic() - began_s
            return {
                "first_frame_least_ms": min(first_ms), "first_frame_median_ms": statistics.median(first_ms),
                "first_frame_most_ms": max(first_ms), "bare_median_ms": statistics.median(bare_ms),
                "cpu_percent": 100 * (cpu_s(terminal.process.pid) - before_s) / passed_s,
                "rss_mib": rss_mib(terminal.process.pid),
                "bytes_per_s": (len(terminal.seen) - size_before) / passed_s,
            }  # fmt: skip


def read_for(terminal: Terminal, seconds: float) -> None:
    try:
        terminal.until("\0", timeout_s=seconds)
    except TimeoutError:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, nargs="+", default=[20, 500])
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--watch", type=float, default=60.0, help="seconds that CPU is measured over")
    given = parser.parse_args()
    found = {count: measured(count, given.starts, given.watch) for count in given.programs}
    for count, each in found.items():
        frames = (
            f"{each['first_frame_least_ms']:.0f} / {each['first_frame_median_ms']:.0f} / {each['first_frame_most_ms']:.0f}"
        )
        cost = f"{each['cpu_percent']:.2f} % of a core, {each['rss_mib']:.1f} MiB, {each['bytes_per_s']:,.0f} bytes/s"
        print(f"{count} programs: first frame {frames} ms (bare {each['bare_median_ms']:.0f}), {cost}")
    out = ROOT / "bench" / "results"
    out.mkdir(exist_ok=True)
    about = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    (out / "top.json").write_text(json.dumps(about | {"programs": found}, indent=1))


if __name__ == "__main__":
    main()
