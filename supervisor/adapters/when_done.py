"""Reads who is logged in, and whether the command that stops the box exists (`deciding/when_done.py`)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

import psutil

from supervisor.adapters import procfs


def cannot_start(command: Sequence[str]) -> str:
    """Why this command cannot be started; empty: it can, or there is none."""
    found = not command or shutil.which(command[0]) is not None
    return "" if found else f"{command[0]} is not found, or not executable"


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
