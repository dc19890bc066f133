"""Runs the command that stops this box, looks whether it exists, and reads who is logged in (`decide.py`)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Final

import psutil

from supervisor.adapters import hooks, leftovers, procfs
from supervisor.config.tables import no_command
from supervisor.files import held
from supervisor.formats import span

_KILL_S: Final = 5.0
ENV: Final = "EXTRALIFE_STOPS_BOX"  # its value is the state directory


def stop_box(argv: Sequence[str], timeout_s: float, state_dir: str) -> tuple[str, str]:
    """Run the command: (why it has failed, or empty; its output).

    A command of an earlier daemon, or what it left in the background, may still work: two at once may harm. It is waited for
    in place of a second one. Its result is not known, so it counts as a success, after which this box should end.
    """
    until_s, earlier = time.monotonic() + timeout_s, ""
    while found := procfs.marked(ENV, [state_dir])[state_dir]:  # those that end may have begun others
        earlier = earlier or f"an earlier start of it still ran, as {found[0].name} ({found[0].pid})"
        for each in found:
            if not _gone(each, until_s - time.monotonic()):
                procfs.send_verified(each.pid, each.start_ticks, signal.SIGKILL)
                _gone(each, _KILL_S)
        if time.monotonic() > until_s + _KILL_S:
            break
    if earlier:
        late = time.monotonic() > until_s
        return (f"{earlier}; it did not end within {span(timeout_s)} and was killed", "") if late else ("", earlier)
    env = {name: value for name, value in hooks.environ().items() if name != leftovers.ENV} | {ENV: state_dir}
    with held(os.memfd_create("output")) as output_fd:
        return hooks.attempt(argv, "", timeout_s, env=env, output_fd=output_fd)


def _gone(process: procfs.Stat, timeout_s: float) -> bool:
    fd = procfs.open_verified(process.pid, process.start_ticks)
    if fd is None:
        return True
    with held(fd):
        return procfs.wait_gone(fd, max(0.0, timeout_s))


def cannot_start(command: Sequence[str]) -> str:
    """Why this command cannot be started; empty: it can, or there is none."""
    why = no_command(command[0]) if command else ""
    return f"{command[0]} {why}" if why else ""


def logged_in() -> tuple[str, ...]:
    """Open sessions: terminals in utmp, sessions of sshd where no utmp is kept (containers), and `extralifectl fg`.

    An editor over ssh, rsync and sftp have a session without a terminal; a tunnel (`ssh -N`) is no session. Neither is a
    terminal of tmux or screen: it stays when its user leaves.
    """
    found = {}
    for user in psutil.users():
        if psutil.pid_exists(int(user.pid)) and not (user.host or "").startswith(("tmux(", ":pts/", "screen")):
            since = time.strftime("%H:%M", time.localtime(user.started))
            found[user.terminal or ""] = f"{user.name} on {user.terminal} since {since}"
    for pid in procfs.pids():
        words = (procfs.read_text(pid, "cmdline") or "").split("\0")
        who, at, terminal = words[0].partition("@")
        if (
            at
            and who.startswith(("sshd: ", "sshd-session: "))
            and (terminal := terminal.strip()).startswith(("pts/", "notty"))
        ):
            key, where = (terminal, f"on {terminal}") if terminal != "notty" else (str(pid), f"over ssh ({pid})")
            found.setdefault(key, f"{who.partition(': ')[2]} {where}")
        elif "fg" in words and any(word.endswith(("extralifectl", "supervisorctl")) for word in words):
            found[str(pid)] = f"extralifectl fg ({pid})"
    return tuple(found[key] for key in sorted(found))
