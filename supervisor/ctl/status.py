"""`status`: one line per program, aligned, with a header on the box; `top.py` shows it live.

The third column keeps Supervisor's `pid N, uptime H:MM:SS`, which scripts read with a pattern. On a terminal the lines must
fit: the numbers of a training stay longest. Elsewhere, and with --wide, it shows all.
"""

from __future__ import annotations

import sys
from typing import Any

from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, OK, STATUS_NOT_RUNNING, STATUS_UNKNOWN, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session, parse_int, parse_options
from supervisor.ctl.status_page import add_cost, choose, page

_DOWN = {"STOPPED", "DONE", "EXITED", "FATAL", "GONE"}  # do not start by themselves; Supervisor: STOPPED, EXITED, FATAL
_WATCH_S = 2


def status(session: Session, args: list[str]) -> int:
    """`status [NAME ..] [--json] [--wide] [--watch [SECONDS]]`.

    The state of daemon, box and programs; of named programs alone in a line each, which labels every value. Exit code
    0, 3 when a program is STOPPED, DONE, EXITED, FATAL or in slow retry, 4 when the daemon is dead.
    """
    period_s = _WATCH_S
    if "--watch" in args:
        at = args.index("--watch")
        if args[at + 1 : at + 2] and args[at + 1].isdecimal():
            period_s = parse_int(args.pop(at + 1), "--watch", least=1)
    names, options = parse_options(args, "--json", "--wide", "--watch")
    if "--watch" in options:
        return _watch(session, names, options, period_s)
    status, failed = _look(session)
    if status is None:
        if "--json" in options:
            session.say_json({"error": failed.split("\n", maxsplit=1)[0], "exit_code": STATUS_UNKNOWN})
        else:
            session.say(failed)
        return STATUS_UNKNOWN
    if "--json" in options:
        chosen, _ = choose(status["programs"], names)
        session.say_json({**status, "programs": chosen})
    else:
        add_cost(session, status)
        columns, paint = None if "--wide" in options else text.columns(), text.Paint(on=sys.stdout.isatty())
        for line in page(status, names, columns, paint=paint):
            session.say(line)
        for name in choose(status["programs"], names)[1]:
            session.suggest(name, [view["name"] for view in status["programs"]])
    return code(status, names)


def _look(session: Session) -> tuple[dict[str, Any] | None, str]:
    try:
        return session.page("status"), ""
    except Failed as failed:
        return None, f"{failed}\n{_HINT}"
    except (Unreachable, DaemonRefused) as gone:
        return None, str(gone)


_HINT = (
    "extralife is not running here, or its socket is elsewhere: "
    "start it with extralife, or name it with -c, -s or --state-dir"
)


def code(status: dict[str, Any], names: list[str]) -> int:
    """Supervisor's exit code: 3 if a shown program is down for good or its breaker is open, 4 for an unknown name, else 0.

    Always 4 when the daemon is dead.
    """
    if status["daemon"]["state"] == "dead":
        return STATUS_UNKNOWN
    chosen, bad = choose(status["programs"], names)
    # With an open breaker the next trial start may be hours away, so an operator has to look now.
    if any(view["phase"] in _DOWN or (view["phase"] == "BACKOFF" and view["slow_retry"]) for view in chosen):
        return STATUS_NOT_RUNNING
    return STATUS_UNKNOWN if bad else OK


def _watch(session: Session, names: list[str], options: dict[str, str], period_s: int) -> int:
    if "--json" in options:
        session.warn("Error: --watch and --json exclude each other")
        return GENERIC
    if text.is_screen():
        from supervisor.ctl.top import live

        return live(session, names, period_s, wide="--wide" in options)
    try:
        while True:
            status, failed = _look(session)
            if status is not None:
                add_cost(session, status)
            lines = failed.splitlines() if status is None else page(status, names, None, text.Paint(on=False))
            session.say("\n".join([*lines, ""]))
            sys.stdout.flush()
            text.pause_while_read(period_s)
    except KeyboardInterrupt:
        return OK
