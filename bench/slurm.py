"""Seeds on Slurm, each a job: seconds to submit them, and seconds and calls of one poll.

    .venv/bin/python bench/slurm.py [--seeds 1000] [--polls 20]

Run it as root, with Debian's slurmctld, slurmd and slurm-client (`tests/run slurm` installs them). It starts a new Slurm on
this machine (tests/slurm/cluster.py) and lets the launcher of Slurm submit the seeds of one game. The jobs are held,
so that only the cost of the queue is measured. A poll is the launcher's own. Writes bench/results/slurm.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "slurm")]

from cluster import Cluster, unfit  # noqa: E402

from supervisor.adapters.host.clock import SystemClock  # noqa: E402
from supervisor.features.slurm.adapters.client import Slurm, Submitted  # noqa: E402
from supervisor.features.slurm.adapters.launcher import SlurmLauncher, remote_paths  # noqa: E402
from supervisor.features.slurm.messages import JobsSeen  # noqa: E402
from supervisor.features.slurm.settings import LauncherSettings  # noqa: E402
from supervisor.model.settings import Paths, ProgramSpec  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--polls", type=int, default=20)
    args = parser.parse_args()
    if why := unfit():
        raise SystemExit(f"bench/slurm.py: {why}")
    rows = [submitted(args.seeds, args.polls)]
    print(f"{args.seeds} seeds in the queue, {args.polls} polls of each kind\n")
    titles = ("submitted in s", "sbatch", "calls a poll", "a poll: median s", "worst s", "CPU s")
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for row in rows:
        print(f"| {' | '.join(f'{each:.3f}' if isinstance(each, float) else str(each) for each in row.values())} |")
    out = ROOT / "bench" / "results" / "slurm.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"seeds": args.seeds, "polls": args.polls, "rows": rows}, indent=2) + "\n")


class Calls(Slurm):
    """Counts the calls of sbatch."""

    submissions = 0

    def submit(self, *args: Any, **more: Any) -> Any:
        self.submissions += 1
        answer = super().submit(*args, **more)
        assert isinstance(answer, Submitted), answer
        return answer


class Newest:
    """An inbox that stores the number of jobs in the newest poll."""

    jobs: int = 0

    def post(self, item: object) -> None:
        assert isinstance(item, JobsSeen), item
        self.jobs = len(item.jobs)


def submitted(seeds: int, polls: int) -> dict[str, object]:
    """Submit the seeds; the figures of that, and of polls."""
    with one_machine() as where:
        slurm, inbox = Calls(), Newest()
        settings = LauncherSettings(
            kind="slurm", cpus=1, memory_mb=50, time_limit_s=3600.0, options="--hold", poll_s=3600.0
        )  # fmt: skip
        paths = remote_paths(Paths(f"{where}/extralife", f"{where}/extralife"))
        launcher = SlurmLauncher(paths, lambda: settings, slurm, inbox, SystemClock(0.0))
        began = time.perf_counter()
        for seed in range(seeds):
            Path(paths.run_dir(f"Pong-s{seed}")).mkdir(parents=True)
            launcher.spawn(
                ProgramSpec(f"Pong-s{seed}", ("sleep", "3600"), "d", group="Pong"), 1, secrets.token_hex(16)
            )  # fmt: skip
        while inbox.jobs < seeds:
            launcher.step()
            time.sleep(0.01)
        took = {
            "submit_s": time.perf_counter() - began, "submissions": slurm.submissions,
        }  # fmt: skip
        figures = took | measured(slurm, launcher.poll, polls)
        assert inbox.jobs == seeds, inbox.jobs
        return figures


@contextlib.contextmanager
def one_machine() -> Iterator[str]:
    """Start a Slurm with an empty queue; yields its directory."""
    with tempfile.TemporaryDirectory(prefix="s") as where:
        made = Cluster(Path(where))
        try:
            made.up()
            os.environ["SLURM_CONF"] = made.environ["SLURM_CONF"]
            yield where
        finally:
            made.down()


def measured(slurm: Slurm, poll: Callable[[], None], polls: int) -> dict[str, object]:
    seconds, calls, cpu = [], set(), []
    for _ in range(polls):
        before, began, used = slurm.calls, time.perf_counter(), time.process_time()
        poll()
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        calls.add(slurm.calls - before)
    return {
        "calls": max(calls), "median_s": statistics.median(seconds), "worst_s": max(seconds), "cpu_s": statistics.median(cpu)
    }  # fmt: skip


if __name__ == "__main__":
    main()
