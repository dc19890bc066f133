"""Two hundred programs at once: start them, kill and restart the daemon, stop all.

    python bench/crowd.py                     # about a minute
    python bench/crowd.py --programs 500 --files 1024

Prints the duration and cost of each part, and writes bench/results/crowd.json. `--files` is the soft limit of open
files for the daemon.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from footprint import cpu_s, memory_mib
from sides import Ours, end, pids_of, wait_for, write_json


def timed(act: Callable[[], object], until: Callable[[], object], timeout_s: float = 300.0) -> float:
    began = time.perf_counter()
    act()
    wait_for(until, timeout_s, 0.05)
    return time.perf_counter() - began


def crowd(count: int) -> dict[str, Any]:
    tag = f".{os.getpid()}"  # the fraction of their sleep times: it marks our processes
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        box = Ours({f"p{i:03}": ["sleep", f"{10**8 + i}{tag}"] for i in range(count)}, Path(name))
        try:
            wait_for(lambda: len(pids_of(tag, "sleep\0")) >= count, 300, 0.05)
            result: dict[str, Any] = {"programs": count, "all_run_after_s": time.perf_counter() - began}
            wait_for(lambda: _all_run(box, count), 300, 0.2)
            result |= {"start_cpu_s": cpu_s(box.daemon.pid), "start_rss_mib": memory_mib(box.daemon.pid)["rss"]}
            before = set(pids_of(tag, "sleep\0"))
            box.daemon.kill()
            box.daemon.wait()
            result["serves_again_after_s"] = timed(box.start, lambda: _all_run(box, count))
            result |= {
                "adopted": len(before & set(pids_of(tag, "sleep\0"))),
                "doubled": len(pids_of(tag, "sleep\0")) - count,
            }
            result |= {"adopt_cpu_s": cpu_s(box.daemon.pid), "fds": len(os.listdir(f"/proc/{box.daemon.pid}/fd"))}
            victims = sorted(before)
            result["all_crashed_run_again_after_s"] = timed(
                lambda: [os.kill(pid, 9) for pid in victims], lambda: len(set(pids_of(tag, "sleep\0")) - before) >= count
            )
            wait_for(lambda: _all_run(box, count), 300, 0.2)
            result["stop_all_s"] = timed(box.stop_all, lambda: not pids_of(tag, "sleep\0"))
            result["left_after_stop"] = len(box.helpers()) + len(pids_of(tag, "sleep\0"))
            result["daemon_ends_after_s"] = timed(box.daemon.terminate, lambda: box.daemon.poll() is not None)
        finally:
            box.close()
            end(tag)
    return result


def _all_run(box: Ours, count: int) -> bool:
    """Whether the daemon itself reports that all run. Without a daemon `status` would read the journal: check the pid."""
    output = box.ctl("status").stdout
    return f"daemon pid {box.daemon.pid} " in output and output.count("RUNNING") >= count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--files", type=int, default=1024)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (args.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    result = crowd(args.programs)
    print("\n".join(f"{key:34}{value:>12.4g}" for key, value in result.items()))
    write_json("crowd", result)


if __name__ == "__main__":
    main()
