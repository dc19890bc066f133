"""Does work on the files of another user's program as that user: reads, writes, renames, and commands.

A daemon of root may supervise a program with `user = "nobody"`. That user may put a link in place of any of its own files or
directories, at any moment. Root would follow it: it would read, rename or overwrite a foreign file. So such work is done
with the rights of that user, and the kernel checks each call. On Linux each thread has its own rights: `acting_as` changes
those of the calling thread only. Without root, and for a program of root's own, it changes nothing.

Example: nobody replaces runs/ by a link to /etc. To set aside `runs/*.pt`, a thread acts as nobody: rename(2) in /etc fails.

Checks before each call would be the obvious alternative, but the link may come between the check and the call. A helper
process for each user would need all of this code once more, with messages and a life of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from supervisor import trust, users
from supervisor.records import Record
from supervisor.users import User

# glibc's own setgroups changes all threads, so this is the only one by number; the kernel's answer is checked in any case.
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
_CAPABILITIES_V3: Final = 0x20080522  # capset(2)
_FRESH_S: Final = 60.0  # a directory service may be slow, and the logs of each program are looked at every second
_COPY: Final = re.compile(r"\.\d+$")
_libc: Final = ctypes.CDLL(None)
_libc.setfsuid.restype = _libc.setfsgid.restype = ctypes.c_uint32
_logs: dict[str, str] = {}  # path -> user


class _Rights(Record):
    """The rights of a thread. Capabilities: effective, permitted and inheritable ones, the lower 32 bits and the upper."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[int, ...]


class _OfThread(threading.local):
    user: User | None = None  # None: the daemon's own
    own: _Rights | None = None  # the daemon's rights, while it acts as another user


_now: Final = _OfThread()


def other(name: str) -> User | None:
    """The user of this name, if only root can act as that user and this process is root's. Raises UnknownUser."""
    if not name or os.geteuid() != 0:
        return None
    found = _found(name, int(time.clock_gettime(time.CLOCK_BOOTTIME) // _FRESH_S))
    return None if found.uid == 0 else found


@functools.lru_cache(maxsize=64)
def _found(name: str, _period: int) -> User:
    return users.find(name)


@contextlib.contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Do all that follows with the rights of this user; empty: the daemon's. Raises OSError if the kernel refuses.

    A process that is started meanwhile would have root's rights again: `hooks.run` takes a user.
    """
    before = _now.user
    _become(other(name))
    try:
        yield
    finally:
        _become(before)


def as_daemon() -> contextlib.AbstractContextManager[None]:
    """Within `acting_as`: do this as the daemon, because it concerns the daemon's own files only."""
    return acting_as("")


def _become(user: User | None) -> None:
    if user == _now.user:
        return
    if _now.own is not None:
        _set(_now.own)
        _now.user = _now.own = None
    if user is not None:
        _now.user, _now.own = user, _rights()  # before the change: after an error half of it may be done
        capabilities = 0, *_now.own.capabilities[1:3], 0, *_now.own.capabilities[4:]
        try:
            _set(_Rights(user.uid, user.gid, tuple(sorted(user.groups)), capabilities))
        except OSError:
            _become(None)
            raise


def _rights() -> _Rights:
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    _libc.capget(header, data)
    return _Rights(_libc.setfsuid(-1), _libc.setfsgid(-1), tuple(sorted(os.getgroups())), tuple(data))


def _set(wanted: _Rights) -> None:
    """Give the calling thread these rights, or raise OSError. The capabilities, which allow it, come first or go last."""
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)(*wanted.capabilities)
    is_own = wanted == _now.own
    if is_own:
        _libc.capset(header, data)
    groups = (ctypes.c_uint32 * len(wanted.groups))(*wanted.groups)
    _libc.syscall(_SETGROUPS.get(os.uname().machine, -1) if sys.maxsize > 2**32 else -1, len(wanted.groups), groups)
    _libc.setfsgid(wanted.gid)
    _libc.setfsuid(wanted.uid)
    if not is_own:
        _libc.capset(header, data)
    if _rights() != wanted:
        raise OSError(errno.EPERM, f"the kernel does not let this thread act as user id {wanted.uid}")


def popen_as(name: str) -> dict[str, Any]:
    """Arguments of Popen for a command of this user; none for the daemon's own. Raises UnknownUser."""
    user = other(name)
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": user.groups}


# --- logs -----------------------------------------------------------------------------------------------------------------


def note_logs(users_of_logs: Mapping[str, str], *, former: bool = False) -> None:
    """Note whose program writes a log, by its path; empty: the daemon's. Earlier ones stay known.

    `former`: of an earlier configuration.
    """
    _logs.update({**users_of_logs, **_logs} if former else users_of_logs)


def log_user(path: str, name: str) -> str:
    """As whom the log of this user's program is opened: as that user, if others than root decide where its path leads."""
    return name if other(name) is not None and trust.why_movable(Path(path).parent, must_exist=True) else ""


def log_at(path: str) -> contextlib.AbstractContextManager[None]:
    """Open, rotate or empty the log at this path, or a copy `.N` of it, with the rights of `log_user`."""
    name = _logs.get(path) or _logs.get(_COPY.sub("", path))
    return acting_as(log_user(path, name) if name else "")
