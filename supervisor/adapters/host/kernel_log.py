"""Reads the messages of the kernel's OOM killer from its log (/dev/kmsg), if this process has the right to read it.

It is asked once for a worker that died of a SIGKILL. The message has the pid and the memory of the process, which no
counter has:
`Memory cgroup out of memory: Killed process 24007 (python3) total-vm:221356kB, anon-rss:61184kB, ...`. Reading never
blocks and is bounded. Without the right to read (CAP_SYSLOG, `kernel.dmesg_restrict`) it finds nothing; then the cgroup's
counter must suffice (`policy/worker/out_of_memory.py`). A container with its own pid numbers must not ask: the log has those
of the host, so the line could be about a neighbour.

Each record needs a separate read, and all these reads come between a death and the next start. So it first checks the
kernel's count of such kills (`oom_kill` in /proc/vmstat, since Linux 4.13), and it reads each record once: after months of
uptime there are tens of thousands.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

KMSG: Final = "/dev/kmsg"
VMSTAT: Final = "/proc/vmstat"
_RECORD_BYTES: Final = 8192  # each read returns one complete record, or EINVAL
_MOST_RECORDS: Final = 20_000
_MOST_KILLS: Final = 1000
_KILLED: Final = b"Killed process "
_FRESH_S: Final = 120.0  # pids are reused: an older line is about another process


class KernelLog:
    """The log, read up to a moment. It stays open, so that the next question reads only newer records."""

    def __init__(self, path: str = KMSG, vmstat: str = VMSTAT) -> None:
        self._path, self._vmstat, self._guard, self._fd = path, vmstat, threading.Lock(), -1
        self._kills: deque[tuple[float, bytes]] = deque(maxlen=_MOST_KILLS)  # (when, in the log's own microseconds; message)

    def oom_kill_of(self, pid: int) -> str:
        """The kernel's message about this process in the last two minutes. Empty if there is none, or it cannot be read."""
        try:
            kills = re.search(r"^oom_kill (\d+)$", Path(self._vmstat).read_text(encoding="ascii"), re.MULTILINE)
        except (OSError, ValueError):
            kills = None
        if kills is not None and int(kills[1]) == 0:  # None: this kernel does not count them
            return ""
        since_us, mark = (time.monotonic() - _FRESH_S) * 1e6, b"%b%d (" % (_KILLED, pid)
        with self._guard:
            for _ in range(_MOST_RECORDS):
                try:
                    if self._fd < 0:
                        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                    record = os.read(self._fd, _RECORD_BYTES)
                except BrokenPipeError:  # this record was overwritten meanwhile: read the next one
                    continue
                except OSError:  # EAGAIN: no more records
                    break
                if not record:
                    break
                if _KILLED in record:
                    head, _, text = record.partition(b";")  # `6,1234,15165906183,-`; without a time it counts as the oldest
                    stamp_us = b"".join(head.split(b",")[2:3])
                    self._kills.append((float(stamp_us) if stamp_us.isdigit() else 0.0, text.split(b"\n", 1)[0]))
            found = next((text for at_us, text in reversed(self._kills) if at_us >= since_us and mark in text), b"")
        return found.decode("utf-8", "replace").strip()
