"""A real training is recorded: its curve goes on over a crash, and is there when the daemon is dead."""

from __future__ import annotations

import csv
import io
import os
import signal
from typing import Any

from box import Box, until

CATCH = Box.catch(4.0, 5.0)


def rows(box: Box) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(box.ctl("export", check=True).stdout)))


def test_a_curve_over_a_crash_and_without_a_daemon(box: Box) -> None:
    box.config(CATCH)
    box.calm()
    box.start()
    running = box.wait_phase("Catch", "RUNNING", 90)
    box.wait_fact("Checkpointed", "Catch", timeout_s=60)
    until(lambda: any(row["env_steps"] for row in rows(box)), 40, "a row of the first attempt")
    os.kill(running["pid"], signal.SIGKILL)
    box.wait_fact("BecameReady", "Catch", count=2, timeout_s=90)
    until(
        lambda: any(row["attempt"] == "2.0" and row["resumed_step"] and row["env_steps"] for row in rows(box)), 40,
        "a row of the second that trains: its first rows may be of its start",
    )  # fmt: skip
    assert box.stop_daemon() == 0
    told = rows(box)
    assert {row["program"] for row in told} == {"Catch"}
    trained = [row for row in told if row["env_steps"]]
    assert [row["attempt"] for row in trained] == sorted(row["attempt"] for row in trained)
    assert float(trained[-1]["resumed_step"]) > 0
    # Never below: a crash takes steps back. It may be 0 in a row of a busy machine, on which the worker stood still.
    assert all(float(row["steps_per_s"] or 1) >= 0 for row in trained)
    (curve,) = drawn(box)["subjects"]
    assert curve["program"] == "Catch"
    assert curve["kept"][-1]
    first = [kept for kept, attempt in zip(curve["kept"], curve["attempt"], strict=True) if attempt == 1.0]
    resumed = float(trained[-1]["resumed_step"])
    steps = [step for step, attempt in zip(curve["env_steps"], curve["attempt"], strict=True) if attempt == 1.0]
    assert first == [step is None or step <= resumed for step in steps]


def drawn(box: Box) -> Any:
    """The page of curves, of the dead daemon's files."""
    from supervisor.ctl.offline import DeadDaemon
    from supervisor.ctl.outcome import Options, Unreachable

    dead = DeadDaemon(Options(), str(box.state), Unreachable("no daemon"))
    return dead.page("curves", {"series": "mean_return,loss"})
