"""Finds directories and files that another user could change. The configuration's check, the daemon and `doctor` use it.

The daemon trusts the files in its runtime directory: control records, beats, records of shims, sockets. So no other user
may be able to write there, or to put another directory in its place. This depends on the directory and on every directory
above it, including symbolic links on the way.

Example: /srv/run is root's with mode 0755, but /srv has mode 0777. Any user can rename /srv/run and create another one. A
sticky directory such as /tmp or /dev/shm allows no such rename, so it may be above, but it cannot be the directory itself.

The obvious alternative, a check of the directory's own mode alone, misses the parent and every link on the way.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40  # the kernel's own limit
_ALL_USERS: Final = "4294967295"  # length of the user map outside of any user namespace


def why_untrusted(path: str | os.PathLike[str], uid: int | None = None) -> str:
    """Why another user could change the files in the directory `path`, or the file `path`, as a clause.

    Empty if no other user can. `uid` is the user who relies on it, by default the user of this process. If it does not exist
    yet, the nearest directory above it is checked. Raises OSError if a directory on the way is unreadable.
    """
    uid = os.geteuid() if uid is None else uid
    trusted = _trusted(uid)
    target = Path(os.path.abspath(path))  # noqa: PTH100  resolving would skip the links, and they count
    for directory, found in _way(target):
        own = directory == Path(os.path.realpath(target))
        if found.st_uid not in trusted:
            what = "its files" if stat.S_ISDIR(found.st_mode) else "it"
            return f"{directory} belongs to {_user(found.st_uid)}, who can change {what}"
        if stat.S_ISLNK(found.st_mode):
            continue  # the directory that holds the link decides who may change it
        if own or not found.st_mode & stat.S_ISVTX:
            who = _writers(found, uid)
            if who:
                return f"{who} may write to {directory} (mode {stat.S_IMODE(found.st_mode):04o})"
    return _planted(target, uid)


def _way(target: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every existing directory and link on the way from / to the target."""
    at, left, links = Path("/"), list(target.parts[1:]), 0
    yield at, at.lstat()
    while left:
        name = left.pop(0)
        if name == "..":
            at = at.parent
            continue
        try:
            found = (at / name).lstat()
        except FileNotFoundError:
            return
        yield at / name, found
        if not stat.S_ISLNK(found.st_mode):
            at /= name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
        goal = (at / name).readlink()
        left[:0] = goal.parts[1:] if goal.is_absolute() else goal.parts
        at = Path("/") if goal.is_absolute() else at


def _planted(target: Path, uid: int) -> str:
    """Files of other users that are already in it: the directory was open to others before."""
    try:
        entries = [(each.name, each.stat(follow_symlinks=False)) for each in os.scandir(target)]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    trusted = _trusted(uid)
    for name, found in sorted(entries, key=lambda entry: entry[0]):
        if found.st_uid not in trusted:
            return f"{target / name} belongs to {_user(found.st_uid)}; remove it"
        if stat.S_ISDIR(found.st_mode) and (who := _writers(found, uid)):
            return f"{who} may write to {target / name} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _trusted(uid: int) -> set[int]:
    """Root and the user. In a user namespace also the number that represents all users outside of it.

    A process inside cannot distinguish those users, and / itself belongs to one of them.
    """
    trusted = {0, uid}
    try:
        outside = Path("/proc/self/uid_map").read_text(encoding="utf-8").split()[2:3] != [_ALL_USERS]
        if outside:
            trusted.add(int(Path("/proc/sys/fs/overflowuid").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass
    return trusted


def _writers(found: os.stat_result, uid: int) -> str:
    """Other users that may write there, as the subject of a sentence; empty if there are none."""
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if found.st_mode & stat.S_IWGRP and not _only_ours(found.st_gid, uid):
        return f"the group {_group(found.st_gid)}"
    return ""


def _only_ours(gid: int, uid: int) -> bool:
    """Whether only this user is in the group: root's group, or the group that many systems make for each user."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return gid == 0
    ours = gid == 0 or (gid == user.pw_gid and group.gr_name == user.pw_name)
    return ours and not set(group.gr_mem) - {user.pw_name, "root"}


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
