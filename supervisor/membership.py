"""Whether a user can give a file to a group. The configuration's check, the control socket and `doctor` use it.

A user can give files to the user's own groups; root, with CAP_CHOWN, to any group. For users other than the process's own,
the group database decides. For its own user, the groups of this process count too: a systemd unit may add some that the
database does not have (SupplementaryGroups=).
"""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Final

NO_GROUP: Final = "there is no group"
_CAP_CHOWN: Final = 1  # bit 0, capabilities(7)


def outside(group: str, uid: int) -> str:
    """Why the user cannot give a file to the group, as a sentence without its full stop; empty if no reason is known."""
    try:
        gid = grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        return f"{NO_GROUP} {group!r:.60}"
    if uid == os.geteuid() and (_may_chown() or gid in {os.getegid(), *os.getgroups()}):
        return ""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return f"user {uid} is not in the group {group}"
    if gid in os.getgrouplist(user.pw_name, user.pw_gid) or (uid == 0 and uid != os.geteuid()):
        return ""
    return f"the user {user.pw_name} is not in the group {group}"


def _may_chown() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return bool(int(status.partition("\nCapEff:")[2].split()[0], 16) & _CAP_CHOWN)
    except (OSError, ValueError, IndexError):
        return os.geteuid() == 0
