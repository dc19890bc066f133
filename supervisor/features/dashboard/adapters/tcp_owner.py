"""Finds the owner of a TCP connection in the kernel's tables: /proc/net/tcp (proc(5)).

Every user of the box can connect to a TCP port of the loopback device. An AF_UNIX socket has SO_PEERCRED. For TCP between
two sockets of one box, the other end has its own row in these tables, and the row contains its owner.

Only a row that is ESTABLISHED and has an inode counts. A row whose socket was closed shows owner 0, whoever owned it:
somebody could connect, send a request, close, and pass for root.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"


def owner(here: tuple[str, int], there: tuple[str, int]) -> int | None:
    """The uid of the user at the other end of a connection between two IPv4 addresses of this box.

    None: the connection no longer exists, or its owner is unknown. Raises OSError when the kernel has no such table.
    """
    ends = (_hex(there), _hex(here))
    for number, table in enumerate(_TABLES):
        try:
            rows = table.read_text(encoding="utf-8").splitlines()[1:]
        except FileNotFoundError:
            if number == 0:
                raise
            continue  # a kernel without IPv6
        for row in rows:
            fields = row.split()
            if (fields[1][-13:], fields[2][-13:]) == ends and fields[3] == _ESTABLISHED and fields[9] != "0":
                return int(fields[7])
    return None


def _hex(address: tuple[str, int]) -> str:
    """`127.0.0.1`, 8080 as the tables write it: `0100007F:1F90`. The last 13 characters of ::ffff:127.0.0.1 are the same."""
    octets = bytes(int(part) for part in address[0].split("."))
    return f"{int.from_bytes(octets, sys.byteorder):08X}:{address[1]:04X}"
