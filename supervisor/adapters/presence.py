"""Checks whether a worker that the record calls alive still runs, for pages made while no daemon can write the record.

A daemon that is dead, or cannot write its journal, records no end. Its record still says RUNNING of a worker that was
killed, or that ended with the previous boot. So each worker is checked by its identity (pid and start time, in this boot)
before a page says that it runs.

Example: the box lost power at RUNNING, pid 4242, and no daemon has run since. The page says GONE, "the box was started
again; the next start resumes it", and shows no uptime of pid 4242.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor.adapters import procfs
from supervisor.adapters.host import boot, clock
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.model.settings import Paths
from supervisor.model.state import Attempt, State

GONE = "GONE"  # the record says that it runs, but it does not
UNKNOWN = "UNKNOWN"
_WAITING = {Phase.QUEUED, Phase.BACKOFF, Phase.GATED}
_OF_A_PROCESS = (
    "pid", "uptime_s", "worker_phase", "steps_per_s", "eta_s", "proc_state", "rss_bytes", "memory_bytes", "pressure",
)  # fmt: skip


def corrected(view: Mapping[str, Any], attempt: Attempt | None, *, rebooted: bool | None) -> dict[str, Any]:
    """The view of one program, corrected by its process. `rebooted`: since the newest fact; None: unknown."""
    if attempt is None or view["phase"] not in HAS_PROCESS:
        return dict(view)
    if rebooted:
        return _without_process(view, GONE, "the box was started again; the next start resumes it")
    if attempt.pid is None or attempt.start_ticks is None:
        return _without_process(view, UNKNOWN, "it was starting; whether it runs is unknown")
    if procfs.is_alive(attempt.pid, attempt.start_ticks):
        return dict(view)
    if _exists(attempt.pid) and procfs.read_stat(attempt.pid) is None:  # /proc is mounted with hidepid
        return _without_process(
            view, UNKNOWN, f"pid {attempt.pid} belongs to another user and cannot be checked; ask as root"
        )
    return _without_process(view, GONE, f"its process {attempt.pid} is gone; its end is not recorded yet")


def without_daemon(view: Mapping[str, Any]) -> dict[str, Any]:
    """A page's view of one program while no daemon runs: nothing starts, whatever the record says it waits for."""
    if view["phase"] not in _WAITING:
        return dict(view)
    return {**view, "phase": Phase.QUEUED, "retry_in_s": None, "why": "waits for a daemon to start it"}


def has_rebooted(state: State, state_dir: str, environ: Mapping[str, str]) -> bool | None:
    """Whether the box has restarted since the newest fact; None: unknown."""
    paths = Paths(state_dir, "")
    mark = boot.read_mark(Path(paths.alive))
    try:
        this_boot = boot.read_boot(boot.BootFiles.of(environ))
    except OSError:
        return None
    boot_now_s, wall_now_s = clock.moment()
    evidence = boot.examine(
        this_boot, mark, marker=Path("/"), clean=state.clean, wall_now_s=wall_now_s, boot_now_s=boot_now_s,
        journal_boot_id=state.boot_id, journal_at_s=state.at_s,
    )  # fmt: skip
    return bool(evidence.rebooted)


def _without_process(view: Mapping[str, Any], phase: str, why: str) -> dict[str, Any]:
    return {**view, **{key: None for key in _OF_A_PROCESS if key in view}, "phase": phase, "why": why}


def _exists(pid: int) -> bool:
    try:
        os.close(procfs.pidfd(pid))
    except OSError:
        return False
    return True
