"""Whose TCP connection it is, as the kernel knows it: /proc/net/tcp (proc(5)).

A TCP port of the loopback device is open to every user of the box. An AF_UNIX socket has SO_PEERCRED; for TCP between two
sockets of one box, the other end has a row of its own in these tables, and with it its owner.

Only a row that is ESTABLISHED and has an inode counts. One whose socket was closed has owner 0, whoever it belonged to:
somebody could connect, send a request, close, and pass for root.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"


def owner(here: tuple[str, int], there: tuple[str, int]) -> int | None:
    """The uid of whoever holds the other end of a connection between two IPv4 addresses of this box.

    None: there is no such connection any more, or it cannot be known. Raises OSError where there is no such table.
    """
    ends = (_hex(there), _hex(here))
    for number, table in enumerate(_TABLES):
        try:
            rows = table.read_text().splitlines()[1:]
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
    """`127.0.0.1`, 8080 as the tables have it: `0100007F:1F90`. The last 13 characters of ::ffff:127.0.0.1 are the same."""
    octets = bytes(int(part) for part in address[0].split("."))
    return f"{int.from_bytes(octets, sys.byteorder):08X}:{address[1]:04X}"
