"""systemd's journal without a library: severities on a stream that it reads, and entries with their own fields.

Stream: systemd connects standard output and error to the journal. It names that stream in JOURNAL_STREAM, as device and
inode (systemd.exec(5)). A line that begins with `<N>` gets that severity, and the journal removes the prefix (sd-daemon(3)).
The variable alone proves nothing: a child inherits it even if its output goes elsewhere.

Entry: one datagram of fields (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/). An entry that is too large for a datagram goes
into a sealed memfd, whose descriptor is sent instead.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TextIO

SOCKET: Final = Path("/run/systemd/journal/socket")
CRITICAL, ERROR, WARNING, INFO, DEBUG = 2, 3, 4, 6, 7  # syslog's severities
_FIELD: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_SIZE: Final = struct.Struct("<Q")
_TOO_LARGE: Final = {errno.EMSGSIZE, errno.ENOBUFS}
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_PATIENCE_S: Final = 2.0  # a journal that does not read must not block the sender


def is_stream(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether systemd has connected this descriptor to the journal."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def prefixed(text: str, severity: int) -> str:
    """Prefix each line with the severity: a traceback has many lines."""
    return "\n".join(f"<{severity}>{line}" for line in text.split("\n"))


class SeverityPrefixer(io.TextIOBase):
    """Standard error of a service: output before the log is set up, and Python's messages when it dies."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._at_start = out, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            severity = WARNING if ": warning: " in line else ERROR
            self._out.write(f"<{severity}>{line}" if self._at_start else line)
            self._at_start = line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        if not self._out.closed:  # at an interpreter's end, `close` flushes again
            self._out.flush()

    def fileno(self) -> int:
        return self._out.fileno()


def encoded(fields: Mapping[str, str]) -> bytes:
    """The entry's bytes. A value with a newline needs its length. Raises ValueError for a field name that is not allowed."""
    out = bytearray()
    for name, text in fields.items():
        if not _FIELD.fullmatch(name):
            raise ValueError(f"no field of systemd's journal can be called {name!r}")
        value = text.encode("utf-8", "replace")
        out += name.encode()
        out += b"\n" + _SIZE.pack(len(value)) + value + b"\n" if b"\n" in value else b"=" + value + b"\n"
    return bytes(out)


def send(fields: Mapping[str, str], path: Path = SOCKET) -> None:
    """Send one entry. Does nothing without such a journal. Raises OSError if the journal refuses it, ValueError as above."""
    data = encoded(fields)
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(_PATIENCE_S)
        sock.connect(str(path))
        try:
            sock.send(data)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            with os.fdopen(os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:
                file.write(data)
                file.flush()
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
                socket.send_fds(sock, [b""], [file.fileno()])
