"""A program in the terms of Supervisor's clients: one of Supervisor's eight states, then a description in our own terms.

| ours | theirs | why |
|---|---|---|
| QUEUED, GATED, STOPPED | STOPPED | no process; the description says whether it waits for a slot or for the operator |
| DONE | EXITED | it ended by itself, as it should |
| EXITED | EXITED | it ended by itself with a failure, and is not to be restarted |
| FATAL after a manual start of a missing command | STOPPED | it never ran, and the operator has the error as the answer |
| BACKOFF with an open breaker | FATAL | the next try is half an hour to six hours away; monitoring must see it now |
| STARTING, RUNNING, BACKOFF, STOPPING, FATAL | the same | |

Worked example: Pong trains as process 4242 for 155 s: RUNNING, `pid 4242, uptime 0:02:35, step 12.3M, 1.2k steps/s,
checkpoint 42s old, training`. Clients and plugins parse `pid N, uptime H:MM:SS` with a pattern anchored at the beginning,
so that part comes first and our own text follows. If QUEUED were shown as STARTING, every plugin that waits for the end of
STARTING would wait for hours.
"""

from __future__ import annotations

import time
from typing import Any, Final

from supervisor.api.port import Json, StatusPage
from supervisor.formats import clock, duration, number, signed
from supervisor.model.names import group_of

STATES: Final = {
    "STOPPED": 0, "STARTING": 10, "RUNNING": 20, "BACKOFF": 30, "STOPPING": 40, "EXITED": 100, "FATAL": 200,
    "UNKNOWN": 1000,
}  # fmt: skip
_STATE_OF: Final = {
    "QUEUED": "STOPPED", "GATED": "STOPPED", "STOPPED": "STOPPED", "DONE": "EXITED", "EXITED": "EXITED",
    "STARTING": "STARTING", "RUNNING": "RUNNING", "BACKOFF": "BACKOFF", "STOPPING": "STOPPING", "FATAL": "FATAL",
}  # fmt: skip


def state_of(view: Json) -> str:
    """Supervisor's state for a program's phase."""
    if view["phase"] == "BACKOFF" and view["slow_retry"]:
        return "FATAL"
    if view["phase"] == "FATAL" and view["spawn_error"] and not view["autostart"] and view["ended_wall_s"] is None:
        return "STOPPED"
    return _STATE_OF.get(view["phase"], "UNKNOWN")


def info(view: Json, snapshot: StatusPage) -> dict[str, Any]:
    """The struct of getProcessInfo. As in Supervisor, a moment that is unknown or never happened is 0."""
    state = state_of(view)
    failed = state in {"BACKOFF", "FATAL"}
    stdout = view["stdout_log"] or ""
    return {
        "name": view["name"],
        "group": group_of(view),
        "start": int(view["started_wall_s"] or 0),
        "stop": int(view["ended_wall_s"] or 0),
        "now": int(snapshot.wall_s),
        "state": STATES[state],
        "statename": state,
        "spawnerr": (view["spawn_error"] or view["why"]) if failed else "",
        "exitstatus": _exit_status(view),
        "logfile": stdout,
        "stdout_logfile": stdout,
        "stderr_logfile": view["stderr_log"] or "",
        "pid": view["pid"] or 0,
        "description": describe(view, state),
    }


def _exit_status(view: Json) -> int:
    """Exit status of the last process: -1 for a signal, as in Supervisor; 0 while it runs, and before its first end."""
    if view["pid"] is not None or view["ended_wall_s"] is None:
        return 0
    return -1 if view["exit_code"] is None else view["exit_code"]


def describe(view: Json, state: str) -> str:
    """The third column of `status`."""
    why = view["why"]
    match state:
        case "RUNNING":
            process = f"pid {view['pid'] or 0}, uptime {clock(view['uptime_s'] or 0.0)}"
            return ", ".join([process, *_training(view), *_why(view)])
        case "STOPPED" | "EXITED":
            since = "Not started" if not view["attempt"] or view["ended_wall_s"] is None else _moment(view["ended_wall_s"])
            status = f"exit status {_exit_status(view)}; not expected" if view["phase"] == "EXITED" else view["phase"]
            return f"{since}, {status}" + (f": {why}" if why else "")
        case "BACKOFF" | "FATAL":
            word = [] if view["phase"] == state else [view["phase"]]  # our own phase, where Supervisor's state differs
            error = view["spawn_error"] or why or f'unknown error (try "tail {view["name"]}")'
            slow, retry_in_s = "slow " * view["slow_retry"], view["retry_in_s"]
            return ", ".join([*word, error, *([] if retry_in_s is None else [f"{slow}retry in {duration(retry_in_s)}"])])
        case _:
            words = _why(view) or [view["phase"].lower()]
            return ", ".join(words if view["pid"] is None else [*words, f"pid {view['pid']}"])


def _training(view: Json) -> list[str]:
    parts = []
    if view["steps"] is not None:
        parts.append(f"step {number(view['steps'])}")
    if view["steps_per_s"] is not None:
        parts.append(f"{number(view['steps_per_s'])} steps/s")
    if view["mean_return"] is not None:
        parts.append(f"return {signed(view['mean_return'])}")
    if view["ckpt_age_s"] is not None:
        parts.append(f"checkpoint {duration(view['ckpt_age_s'])} old")
    return parts


def _why(view: Json) -> list[str]:
    """The phase that the worker reports, then the newest reason."""
    return [word for word in dict.fromkeys((view["worker_phase"] or "", view["why"])) if word]


def _moment(wall_s: float) -> str:
    """`Nov 21 03:06 AM`, local time."""
    return time.strftime("%b %d %I:%M %p", time.localtime(wall_s))
