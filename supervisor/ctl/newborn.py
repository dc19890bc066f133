"""A daemon that was started a moment ago has no socket yet: its interpreter still imports. A request waits for it.

Only a process that looks like a daemon and is a few seconds old is waited for, so a client without a daemon fails at once.
"""

from __future__ import annotations

import os
import socket
import time

from supervisor.adapters import procfs
from supervisor.ctl import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_YOUNG_S = 10.0
_LOOK_S = 0.05
_NAMES = {b"supervisord", b"extralife"}


def daemon_comes(path: str) -> bool:
    """Wait while a daemon starts; True once somebody listens on the socket at `path`."""
    while True:
        young = any(_young_daemons())  # before the look: one that has just ended its start has its socket
        if _listens(path):
            return True
        if not young:
            return False
        text.pause(_LOOK_S)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _young_daemons() -> Iterator[int]:
    """Those that do not listen yet, as far as this user may know."""
    now_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    oldest_ticks = now_ticks - _YOUNG_S * os.sysconf("SC_CLK_TCK")
    for entry in os.listdir("/proc"):  # noqa: PTH208  pathlib takes 10 ms to import
        if entry.isdecimal() and _is_daemon(entry):
            stat = procfs.read_stat(entry)
            if stat is not None and stat.alive and stat.start_ticks >= oldest_ticks and not _has_listened(entry):
                yield int(entry)


def _is_daemon(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read(4096).split(b"\0")[:6]
    except OSError:
        return False
    return b"supervisor" in words[1:] or any(word.rpartition(b"/")[2] in _NAMES for word in words[:3])


def _has_listened(pid: str) -> bool:
    """It has a listening socket: of another path than ours, then. Nor is one waited for whose files nobody may see."""
    listening = set()
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            columns = line.split()
            if len(columns) > 6 and columns[3] == "00010000":
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
