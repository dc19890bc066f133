"""Whether a user can give a file to a group: asked by the configuration's check, by the control socket and by `doctor`.

A user gives files to groups that the user is in; root, as long as it has CAP_CHOWN, to any. For another user than our
own the group database counts. For our own, the groups of this process count too: a unit may add some that the database
does not know (SupplementaryGroups=).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NO_GROUP: Final = "there is no group"
_CAP_CHOWN: Final = 1  # bit 0, capabilities(7)


def outside(group: str, uid: int) -> str:
    """Why the user cannot give a file to the group, as a sentence without its end; empty when nothing speaks against it."""
    import grp
    import pwd

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
        status = Path("/proc/self/status").read_text()
        return bool(int(status.partition("\nCapEff:")[2].split()[0], 16) & _CAP_CHOWN)
    except (OSError, ValueError, IndexError):
        return os.geteuid() == 0
