"""The user of a program that does not run as the daemon's user, and whether the daemon may start such a program."""

from __future__ import annotations

import os
import pwd

from supervisor.records import Record


class UnknownUser(PermissionError):
    """This box has no such user at present: a directory service may not be up yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this box has no user {name!r}")


class User(Record):
    """The data that a process needs to become this user."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def env(self) -> dict[str, str]:
        """The variables that a login sets. With the daemon's variables, a script would write to root's home."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def name_of(uid: int, otherwise: str = "user {}") -> str:
    """The user's name for people; `otherwise` with the number if this box knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return otherwise.format(uid)


def find(name: str) -> User:
    """The user by this name or number. Raises UnknownUser."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isascii() and name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise UnknownUser(name) from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")


def is_another(name: str) -> bool:
    """Whether a process of that user may not enter the daemon's directories. Raises UnknownUser."""
    return find(name).uid != os.geteuid()


def refusal(name: str) -> str:
    """Why this process cannot start a program of that user; empty if it can. Raises UnknownUser."""
    user, mine = find(name), os.geteuid()
    if mine in (0, user.uid):
        return ""
    return f"only a daemon that runs as root can start a program as {user.name}; this one has user id {mine}"
