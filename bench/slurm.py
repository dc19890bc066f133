"""One poll of Slurm with many jobs in its queue: seconds and calls, as text and as JSON; and the same tasks as one array.

    .venv/bin/python bench/slurm.py [--jobs 1000] [--polls 20]

As root, with Debian's slurmctld, slurmd and slurm-client (`tests/run slurm` installs them). It brings a Slurm of its own up
on this machine (tests/slurm/cluster.py), fills the queue with held jobs and an array that runs, and asks as the daemon
does: `adapters.slurm.client.Slurm.jobs`, with one wanted job that nobody knows. Writes bench/results/slurm.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "slurm")]

from cluster import Cluster, unfit  # noqa: E402

from supervisor.adapters.slurm.client import Jobs, Slurm, Unknown  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--polls", type=int, default=20)
    args = parser.parse_args()
    if why := unfit():
        raise SystemExit(f"bench/slurm.py: {why}")
    with one_machine() as made:
        submit_s = fill(made, args.jobs)
        rows = [measure(form, args.polls, args.jobs) for form in ("text", "json")]
    with one_machine() as made:
        array_s = fill_with_an_array(made, args.jobs)
        rows.append({**measure("text", args.polls, args.jobs), "form": "text, one array"})
    print(f"{args.jobs} jobs in the queue, {args.polls} polls of each form, Slurm {rows[0]['version']}\n")
    print("| form | calls a poll | median s | worst s | CPU s of the daemon | jobs read |\n|---|---|---|---|---|---|")
    for row in rows:
        print("| {form} | {calls} | {median_s:.3f} | {worst_s:.3f} | {daemon_cpu_s:.3f} | {jobs} |".format(**row))
    print(f"\nsubmitting: {submit_s:.1f} s for {args.jobs - 20} jobs, {array_s:.2f} s for one array of {args.jobs}")
    out = ROOT / "bench" / "results" / "slurm.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(
        json.dumps(
            {"jobs": args.jobs, "polls": args.polls, "submit_s": submit_s, "array_s": array_s, "rows": rows}, indent=2
        )
        + "\n"
    )


@contextlib.contextmanager
def one_machine() -> Iterator[Cluster]:
    """A Slurm with an empty queue."""
    with tempfile.TemporaryDirectory(prefix="s") as where:
        made = Cluster(Path(where))
        try:
            made.up()
            os.environ["SLURM_CONF"] = made.environ["SLURM_CONF"]
            yield made
        finally:
            made.down()


SCRIPT = "#!/bin/sh\nsleep 3600\n"


def fill(made: Cluster, jobs: int) -> float:
    """Returns the seconds that the single jobs took."""
    began = time.perf_counter()
    for number in range(jobs - 20):
        made.run(
            "sbatch", "--parsable", "--hold", "--output=/dev/null", "--job-name=extralife-Pong",
            f"--comment=extralife 0123abcd {number:032x}", given=SCRIPT,
        )  # fmt: skip
    took_s = time.perf_counter() - began
    made.run("sbatch", "--parsable", "--array=0-19", "--output=/dev/null", "--comment=extralife seeds", given=SCRIPT)
    return took_s


def fill_with_an_array(made: Cluster, tasks: int) -> float:
    """Held, as the jobs: what is measured is what the queue costs."""
    began = time.perf_counter()
    made.run(
        "sbatch", "--parsable", "--hold", f"--array=0-{tasks - 1}", "--output=/dev/null", "--comment=extralife seeds",
        given=SCRIPT,
    )  # fmt: skip
    return time.perf_counter() - began


def measure(form: str, polls: int, jobs: int) -> dict[str, object]:
    slurm = Slurm()
    slurm._by_json = form == "json"
    slurm.jobs([999_999_999])  # learns that there is no accounting
    seconds, calls, cpu, seen = [], set(), [], 0
    for _ in range(polls):
        before, began, used = slurm.calls, time.perf_counter(), time.process_time()
        answer = slurm.jobs([999_999_999])
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        calls.add(slurm.calls - before)
        assert isinstance(answer, Jobs), answer
        assert answer.absent == {999_999_999}
        seen = len(answer.found)
    assert seen == jobs, seen
    version = slurm.version()
    assert not isinstance(version, Unknown)
    return {
        "form": form, "version": f"{version[0]}.{version[1]:02d}", "calls": max(calls), "jobs": seen,
        "median_s": statistics.median(seconds), "worst_s": max(seconds), "daemon_cpu_s": statistics.median(cpu),
    }  # fmt: skip


if __name__ == "__main__":
    main()
