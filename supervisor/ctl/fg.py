"""`fg`: show a program's output on this terminal and send typed lines to its standard input, until Ctrl-C."""

from __future__ import annotations

import sys
import threading

from supervisor.ctl import tail
from supervisor.ctl.client import DaemonRefused, Unreachable, quote
from supervisor.ctl.outcome import GENERIC, OK, Failed
from supervisor.ctl.session import Session

_LAST_S = 1.0  # after the last line of a script, wait this long to show the program's answer


def fg(session: Session, args: list[str]) -> int:
    """`fg NAME`.

    Connect to a program with stdin = true: its output is shown, and each line typed goes to its standard input. Ctrl-C
    ends the connection; the program goes on.
    """
    if not args:
        raise Failed("ERROR: no process name supplied")
    if len(args) > 1:
        raise Failed("ERROR: too many process names supplied")
    name = session.program(args[0])
    try:
        view = session.client.get(f"/api/v1/programs/{quote(name)}")
    except DaemonRefused:
        raise Failed("ERROR: bad process name supplied") from None
    if view["phase"] not in {"STARTING", "RUNNING"} or view["pid"] is None:
        raise Failed("ERROR: process not running")
    _send(session, name, "")  # the daemon refuses a program without standard input, before the user types
    over, left = threading.Event(), threading.Event()
    shown = threading.Thread(target=_show, args=(session, name, over, left), daemon=True)
    shown.start()
    try:
        for line in sys.stdin:
            _send(session, name, line)
        over.wait(_LAST_S)
    except KeyboardInterrupt:
        pass
    finally:
        left.set()  # in the shell, the output would otherwise go on between the user's next commands
        shown.join(_LAST_S)
    return OK


def _send(session: Session, name: str, line: str) -> None:
    try:
        session.client.post("/api/v1/stdin", {"name": name, "text": line})
    except DaemonRefused as refused:
        raise Failed(f"ERROR: {refused}", GENERIC) from None


def _show(session: Session, name: str, over: threading.Event, left: threading.Event) -> None:
    """Show the output until `left` is set; set `over` if it cannot be shown any longer."""
    try:
        tail.show(session, name, "stdout", follow=True, ended=left.is_set)
    except (Failed, DaemonRefused, Unreachable, OSError) as gone:
        session.warn(f"==> {gone} <==")
    over.set()
