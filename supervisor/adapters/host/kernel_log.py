"""What the kernel says of its OOM killer, read from its log (/dev/kmsg), where we may.

Called once for a worker that died of a SIGKILL. The line names the pid and what the process held, which no counter does:
`Memory cgroup out of memory: Killed process 24007 (python3) total-vm:221356kB, anon-rss:61184kB, ...`. Reading never
waits and is bounded. Without the right to read (CAP_SYSLOG, `kernel.dmesg_restrict`), or in a container with pids of its
own, nothing is found: then the counter of the cgroup has to do (`policy/worker/out_of_memory.py`).

Each record is a read of its own, and a box that was up for months has tens of thousands of them, all between a death and
the next start. So first the kernel's count of such kills is asked (`oom_kill` in /proc/vmstat, since Linux 4.13).
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Final

KMSG: Final = "/dev/kmsg"
VMSTAT: Final = "/proc/vmstat"
_RECORD_BYTES: Final = 8192  # the kernel gives one whole record a read, or EINVAL
_MOST_RECORDS: Final = 20_000
_FRESH_S: Final = 120.0  # pids are used again: an older line is about somebody else


def oom_kill_of(pid: int, path: str = KMSG, vmstat: str = VMSTAT) -> str:
    """The kernel's sentence about this process, of the last two minutes; empty when there is none, or none to be read."""
    if _none_since_boot(vmstat):
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return _search(fd, f"Killed process {pid} (".encode())
    finally:
        os.close(fd)


def _none_since_boot(vmstat: str) -> bool:
    """Whether the kernel says that it killed nobody for memory; a kernel that does not count leaves that open."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path(vmstat).read_text(encoding="ascii"), re.MULTILINE)
    except (OSError, ValueError):
        return False
    return found is not None and int(found[1]) == 0


def _search(fd: int, mark: bytes) -> str:
    since_us = (time.monotonic() - _FRESH_S) * 1e6  # the log's own clock
    found = ""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(fd, _RECORD_BYTES)
        except BrokenPipeError:  # overwritten while we read: the next is there
            continue
        except OSError:  # EAGAIN: that was all
            break
        if not record:
            break
        head, _, text = record.partition(b";")
        if mark in text and _stamp_us(head) >= since_us:
            found = text.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return found


def _stamp_us(head: bytes) -> float:
    """`6,1234,15165906183,-` -> 15165906183; what is no record of the kernel's is as old as can be."""
    fields = head.split(b",")
    return float(fields[2]) if len(fields) > 2 and fields[2].isdigit() else 0.0
