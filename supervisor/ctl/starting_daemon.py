"""Wait for a daemon that started a moment ago and has no socket yet, because its interpreter still imports modules.

A request waits only for processes that look like a daemon and are a few seconds old at its first look. So a client without a
daemon fails at once, also while systemd starts a daemon that fails again and again. Time in which a process waited for a
processor does not count: on a busy machine its imports take minutes.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

from supervisor.adapters import procfs
from supervisor.ctl import text

_YOUNG_S = 10.0
_LOOK_S = 0.05
_NAMES = {b"supervisord", b"extralife"}
_SINGLETON = "@extralife/"  # how /proc/net/unix shows the name that only one daemon has


def daemon_comes(path: str) -> bool:
    """Wait while a daemon starts. True once a process listens on the socket at `path`; False if no daemon starts."""
    awaited: set[int] | None = None
    while True:
        young = set(_young_daemons(path))  # before the probe: a daemon that finishes its start in between has its socket
        awaited = young if awaited is None else awaited & young
        if _listens(path):
            return True
        if not awaited:
            return False
        text.pause(_LOOK_S)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _young_daemons(path: str) -> Iterator[int]:
    """Pids of young daemons that do not listen yet, as far as this user can see."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    oldest_ticks = (time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNG_S) * ticks_per_s
    for entry in os.listdir("/proc"):  # noqa: PTH208  pathlib takes 10 ms to import
        if entry.isdecimal() and _is_daemon(entry):
            stat = procfs.read_stat(entry)
            if stat is None or not stat.alive or stat.start_ticks + _waited_s(entry) * ticks_per_s < oldest_ticks:
                continue
            if not _has_listened(entry, path):
                yield int(entry)


def _waited_s(pid: str) -> float:
    """Seconds in which the process was ready to run and no processor was free; 0 if the kernel does not report it."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:  # noqa: PTH123
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _is_daemon(pid: str) -> bool:
    """Its command line is a daemon's; or it has none yet, because the kernel is about to execute a program in it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read(4096).split(b"\0")[:6]
    except OSError:
        return False
    if words == [b""]:
        return bool(_target(f"/proc/{pid}/exe"))  # kernel threads and zombies have no executable
    return b"supervisor" in words[1:] or any(word.rpartition(b"/")[2] in _NAMES for word in words[:3])


def _has_listened(pid: str, path: str) -> bool:
    """Whether it listens on another socket than ours. Also True if this user may not see its files: do not wait for it.

    Our own socket listens under a name beside `path` before it is renamed: a busy machine may stop a daemon in between.
    Before that, the name in the kernel listens that keeps a second daemon away (`adapters/singleton.py`).
    """
    listening, beside = set(), os.path.dirname(path) + "/"  # noqa: PTH120
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            columns = line.split()
            ours = len(columns) > 7 and columns[7].startswith((beside, _SINGLETON))
            if len(columns) > 6 and columns[3] == "00010000" and not ours:
                listening.add(f"socket:[{columns[6]}]")
    directory = f"/proc/{pid}/fd"
    try:
        return any(_target(f"{directory}/{fd}") in listening for fd in os.listdir(directory))  # noqa: PTH208
    except OSError:
        return True


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""
