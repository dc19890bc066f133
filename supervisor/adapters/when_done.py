"""Reads who is logged in (`deciding/when_done.py`)."""

from __future__ import annotations

import time

import psutil

from supervisor.adapters import procfs


def logged_in() -> tuple[str, ...]:
    """Open sessions: terminals in utmp, terminals of sshd where no utmp is kept (containers), and `supervisorctl fg`.

    A terminal of tmux or screen is no session: it stays when its user leaves.
    """
    found = {}
    for user in psutil.users():
        if psutil.pid_exists(int(user.pid)) and not (user.host or "").startswith(("tmux(", ":pts/", "screen")):
            since = time.strftime("%H:%M", time.localtime(user.started))
            found[user.terminal or ""] = f"{user.name} on {user.terminal} since {since}"
    for pid in procfs.pids():
        words = (procfs.read_text(pid, "cmdline") or "").split("\0")
        who, at, terminal = words[0].partition("@")
        if at and who.startswith(("sshd: ", "sshd-session: ")) and terminal.startswith("pts/"):
            found.setdefault(terminal.strip(), f"{who.partition(': ')[2]} on {terminal.strip()}")
        elif "fg" in words and any(word.endswith(("supervisorctl", "extralifectl")) for word in words):
            found[str(pid)] = f"supervisorctl fg ({pid})"
    return tuple(found[key] for key in sorted(found))
