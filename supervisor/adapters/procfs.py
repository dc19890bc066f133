"""Reads processes from /proc: identity, state, marks in their environment, parents and descendants.

A pid identifies a process only until it is reaped; (boot id, pid, start ticks) identifies it for good. So every function
here that sends a signal uses the one safe order: open the pidfd first, verify the start ticks second, signal through the
pidfd last (`open_verified`). Checking first and calling kill(2) afterwards leaves a gap, in which the kernel can give the
number to another process.

Example: the journal says that Pong is pid 812, started at tick 5,000. While no daemon ran, Pong died, and pid 812 is now an
editor, started at tick 90,000. So Pong is gone, no process is adopted, and pid 812 gets no signal.

A zombie (state Z) is a dead process that has not been reaped; PID 1 of some containers reaps late. This module treats a
zombie as dead.

A process that cannot be read for lack of a descriptor or of memory is not gone: that error is raised (`lack.py`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import signal
import threading
import time
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from supervisor import lack, users
from supervisor.files import held

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_FIRST_NAMESPACE: Final = 0xEFFFFFFC  # inode of the PID namespace of the whole machine (proc_ns.h)
_DEAD: Final = frozenset("ZXx")
_STAT_BYTES: Final = 4096
_TEXT_BYTES: Final = 64 * 1024  # no file of /proc that is read here is longer, but /proc/PID/environ can be


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that matter here (proc(5)). `ended_ticks`: CPU time of its children that have ended."""

    pid: int
    parent: int
    name: str
    state: str
    start_ticks: int
    ticks: int = 0
    ended_ticks: int = 0
    group: int = 0
    session: int = 0
    threads: int = 1

    @property
    def alive(self) -> bool:
        """A zombie is dead, unless only its main thread has ended: a thread stuck in a driver keeps the rest alive."""
        return self.state not in _DEAD or self.threads > 1


def parse_stat(data: bytes) -> Stat:
    """Parse a stat file. The name may hold spaces and parentheses: fields count from the last `)`. Raises ValueError."""
    opened, closed = data.index(b"("), data.rindex(b")")
    f = data[closed + 2 :].split(None, 20)
    return Stat(
        int(data[:opened]), int(f[1]), data[opened + 1 : closed].decode("utf-8", "replace"), f[0].decode("ascii"),
        int(f[19]), int(f[11]) + int(f[12]), int(f[13]) + int(f[14]), int(f[2]), int(f[3]), int(f[17]),
    )  # fmt: skip


def read_stat(pid: int | str) -> Stat | None:
    """None when there is no such process."""
    data = _read(f"/proc/{pid}/stat")
    try:
        return None if data is None else parse_stat(data)
    except (ValueError, IndexError):
        return None


class StateFile:
    """The state letter of one process, read once a second for weeks.

    The descriptor of /proc/PID/stat belongs to the process, not to its number. When the process is gone a read fails
    (ESRCH), even if another process has the number by then. Reading the file again takes a third of the time of opening it.
    The descriptor is closed with the last reference to this object.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError when there is no such process, or no descriptor left."""
        self._fd = -1
        self._fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def state(self) -> str | None:
        """None when the process is gone."""
        try:
            data = os.pread(self._fd, _STAT_BYTES, 0)
            at = data.rindex(b")") + 2
        except (OSError, ValueError):
            return None
        return data[at : at + 1].decode("ascii")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _read(path: str) -> bytes | None:
    """Read a small file; None when it cannot be read. A file object or a path object would take twice as long.

    Raises OSError for a lack.
    """
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.read(fd, _STAT_BYTES)
    except OSError as error:  # there is no such process, or it has ended meanwhile
        lack.check(error)
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def is_alive(pid: int, start_ticks: int) -> bool:
    """True while exactly this process lives: same start ticks, and not a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.alive


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  a path object each is waste


def pid_namespace() -> int:
    """The inode of this process's PID namespace: process 7 of a container is not process 7 of the host. 0: unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def mount_namespace(pid: int) -> str:
    """The name of a process's mount namespace; empty if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115  it is no path
    except OSError:
        return ""


def contained() -> bool:
    """Whether this process runs in a PID namespace of its own, as in a container."""
    return pid_namespace() not in {0, _FIRST_NAMESPACE}


class ProcessTable(NamedTuple):
    """Every living process, by its pid and by its parent's pid."""

    processes: dict[int, Stat]
    children: dict[int, list[Stat]]
    changed: frozenset[int] | None = None  # pids that differ from the previous scan; None: any may

    def below(self, root: int) -> list[Stat]:
        """The descendants of this process, parents before children, without the process itself."""
        found = list(self.children.get(root, ()))
        for process in found:  # the list grows during this loop
            found.extend(self.children.get(process.pid, ()))
        return found


def scan(before: ProcessTable | None = None, again: Container[int] = ()) -> ProcessTable:
    """Scan all current processes; this reads one file per process.

    With the previous scan `before`, only new processes and those in `again` are read. A pid that another process has taken
    since then still shows the old process. If nothing has changed, `before` itself is returned.
    """
    known = {} if before is None else before.processes
    processes: dict[int, Stat] = {}
    for pid in pids():
        found = known.get(pid)
        if found is None or pid in again:
            found = read_stat(pid)
            if found is None or not found.alive:
                continue
        processes[pid] = found
    changed = None
    if before is not None:
        changed = frozenset(pid for pid, _ in processes.items() ^ known.items())
        if not changed:
            return before
    children: dict[int, list[Stat]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    return ProcessTable(processes, children, changed)


def io_bytes(pid: int, *, written: bool = False) -> int | None:
    """The bytes that a process and its ended children have read and written (`written`: only those); None: unreadable."""
    data = _read(f"/proc/{pid}/io") or b""
    try:
        counts = dict(line.split(b":") for line in data.splitlines())
        return int(counts[b"wchar"]) + (0 if written else int(counts[b"rchar"]))
    except (ValueError, KeyError):
        return None


# --- marks ---------------------------------------------------------------------------------------------------------------


def marked(name: str, values: Iterable[str]) -> dict[str, list[Stat]]:
    """Living processes whose environment holds `name=value`, by value. One scan of /proc, whatever the number of values.

    The environment is the one at exec: a process can't lose the mark, only its children can (`env -i`), and those are
    found as descendants. Other users' processes can't be read and are not ours.
    """
    found: dict[str, list[Stat]] = {value: [] for value in values}
    for pid in pids() if found else ():
        value = environment(pid).get(name, "")
        stat = read_stat(pid) if value in found else None
        if stat is not None and stat.alive:
            found[value].append(stat)
    return found


def environment(pid: int) -> dict[str, str]:
    """The variables of a process; empty when they cannot be read: it has ended, is in its exec, or is another user's."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    except OSError as error:
        lack.check(error)
        return {}
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def descendants(roots: Iterable[int]) -> list[Stat]:
    """Living processes below `roots` (not the roots themselves), parents before children."""
    table, above = scan(), dict.fromkeys(roots)
    found = {stat.pid: stat for root in above for stat in table.below(root)}
    return [stat for stat in found.values() if stat.pid not in above]


# --- pidfds --------------------------------------------------------------------------------------------------------------


class _StandIns:
    """Pidfds for a container whose kernel refuses the real ones: pipes that this side closes when the process has ended.

    A thread looks at the processes 50 times a second. A pipe is known by its inode: descriptors are closed and used again.
    """

    def __init__(self) -> None:
        self._guard, self._runs = threading.Lock(), False
        self._processes: dict[int, tuple[int, int, int]] = {}  # by inode: pid, start ticks, our end of the pipe

    def open(self, pid: int) -> int:
        stat = read_stat(pid)
        if stat is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        with self._guard:
            if not self._runs:
                from supervisor.adapters.threads import Lasting

                Lasting("processes-without-pidfds", self._look, lambda: False, vital=True).start()
                self._runs = True
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            self._processes[os.fstat(theirs).st_ino] = pid, stat.start_ticks, ours
        return theirs

    def send(self, fd: int, number: int) -> None:
        with self._guard:
            pid, start_ticks, _ = self._processes.get(os.fstat(fd).st_ino, (0, 0, -1))
            if not is_alive(pid, start_ticks):
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            os.kill(pid, number)

    def _look(self) -> None:
        time.sleep(_LOOK_S)
        with self._guard:
            for inode, (pid, start_ticks, ours) in list(self._processes.items()):
                poller = select.poll()
                poller.register(ours, 0)
                if poller.poll(0) or not is_alive(pid, start_ticks):  # nobody reads the pipe, or the process has ended
                    os.close(ours)
                    del self._processes[inode]


_LOOK_S: Final = 0.02
_stand_ins: Final = _StandIns()


@functools.cache
def _has_pidfds() -> bool:
    """False where a container's seccomp profile refuses one of the calls (EPERM of an old Docker, ENOSYS of gVisor)."""
    try:
        fd = os.pidfd_open(os.getpid())
        with os.fdopen(fd, "rb"):
            signal.pidfd_send_signal(fd, 0)
    except OSError as error:
        lack.check(error)
        return False
    return True


def pidfd(pid: int) -> int:
    """A descriptor that is readable once this process has ended. Raises OSError, ESRCH if there is no such process."""
    return os.pidfd_open(pid) if _has_pidfds() else _stand_ins.open(pid)


def open_verified(pid: int, start_ticks: int) -> int | None:
    """A pidfd of exactly the process with these start ticks, or None when that process is gone."""
    try:
        fd = pidfd(pid)
    except OSError as error:
        lack.check(error)
        return None
    alive = False
    try:
        alive = is_alive(pid, start_ticks)
    finally:
        if not alive:
            os.close(fd)
    return fd if alive else None


def wait_gone(fd: int, timeout_s: float) -> bool:
    """True once the process behind the pidfd has ended; a zombie has ended."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def send(fd: int, number: int) -> bool:
    """Send a signal through a pidfd; False when the process is gone (or when we may not signal it, after a setuid exec)."""
    with contextlib.suppress(OSError):
        (signal.pidfd_send_signal if _has_pidfds() else _stand_ins.send)(fd, number)
        return True
    return False


def owner_if_untouchable(pid: int, start_ticks: int) -> str:
    """The user of this process if we may send it no signal (EPERM), as after sudo; empty: we may, or it is gone.

    The kernel answers signal 0 as it answers the others. Most processes are our own: one call settles that.
    """
    with contextlib.suppress(OSError):
        if os.stat(f"/proc/{pid}").st_uid == os.geteuid():  # noqa: PTH116
            return ""
    fd = open_verified(pid, start_ticks)
    if fd is None:
        return ""
    with held(fd):
        try:
            (signal.pidfd_send_signal if _has_pidfds() else _stand_ins.send)(fd, 0)
        except PermissionError:
            uid = _status(pid, "Uid:")
            return users.name_of(int(uid)) if uid else "another user"
        except OSError as error:
            lack.check(error)
    return ""


def send_verified(pid: int, start_ticks: int, number: int) -> bool:
    """Send a signal to exactly this process or to none; False: it was not sent."""
    fd = open_verified(pid, start_ticks)
    if fd is None:
        return False
    with held(fd):
        return send(fd, number)


# --- looking closer ------------------------------------------------------------------------------------------------------


def read_text(pid: int, name: str) -> str | None:
    """A small file of /proc/PID (`wchan`, `stack`, `syscall`, `status` ...), or None when it can't be read."""
    try:
        with Path(f"/proc/{pid}/{name}").open("rb") as file:
            return file.read(_TEXT_BYTES).decode("utf-8", "replace").strip("\0\n ")
    except OSError as error:
        lack.check(error)
        return None


def holds(pid: int, path: str) -> bool:
    """Whether the process has this file open. A process that cannot be looked into counts as no."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(str(Path(entry).readlink()) == path for entry in entries)
    except OSError:
        return False


def is_detached(pid: int, session: int) -> bool:
    """Whether the process is to outlive its parent: it has left the parent's session, or ignores SIGHUP as nohup(1) does."""
    stat = read_stat(pid)
    return stat is not None and (stat.session != session or ignores(pid, signal.SIGHUP))


def catches(pid: int, number: int) -> bool:
    """True when the process has a handler of its own for the signal (SigCgt of /proc/PID/status).

    Sending SIGUSR1 to a process that neither handles nor ignores it would kill it.
    """
    return bool(int(_status(pid, "SigCgt:") or "0", 16) >> (number - 1) & 1)


def ignores(pid: int, number: int) -> bool:
    """True when the process ignores the signal (SigIgn of /proc/PID/status)."""
    return bool(int(_status(pid, "SigIgn:") or "0", 16) >> (number - 1) & 1)


def user(pid: int) -> str:
    """The number of the real user of a process; empty when it cannot be read."""
    return _status(pid, "Uid:")


def _status(pid: int, key: str) -> str:
    """A value of /proc/PID/status; empty when it cannot be read."""
    lines = (read_text(pid, "status") or "").splitlines()
    return next((line.split()[1] for line in lines if line.startswith(key)), "")


def threads(pid: int) -> list[tuple[int, str, str]]:
    """(thread id, name, state) of every thread that could be read."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    stats = (read_stat(f"{pid}/task/{tid}") for tid in tids)
    return [(stat.pid, stat.name, stat.state) for stat in stats if stat is not None]


def open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    except OSError:
        return None


def umask() -> int:
    """The mask for new files of this process, from /proc: the system call reads it only by changing it, for all threads."""
    return int(_status(os.getpid(), "Umask:") or "022", 8)
