"""A journal's side of the native protocol: a real datagram socket, and a parser that follows the published format."""

import contextlib
import fcntl
import os
import shutil
import socket
import struct
import tempfile
from pathlib import Path


class Journald:
    """Takes entries as systemd-journald does: a datagram, or a sealed memfd beside an empty one."""

    def __init__(self):
        self._directory = Path(tempfile.mkdtemp(prefix="xl-journald-"))
        self.path = self._directory / "socket"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(self.path))
        self.sock.settimeout(10.0)
        self.sealed = 0  # entries that came as a memfd

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.sock.close()
        shutil.rmtree(self._directory)

    def entry(self):
        data, fds, _flags, _address = socket.recv_fds(self.sock, 1 << 20, 1)
        if fds:
            assert data == b"", "either the datagram or the memfd holds the entry"
            self.sealed += 1
            wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            assert fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) == wanted, "systemd refuses one that can still change"
            data = os.pread(fds[0], os.fstat(fds[0]).st_size, 0)
            os.close(fds[0])
        return parsed(data)

    def empty(self):
        self.sock.settimeout(0.0)
        with contextlib.suppress(BlockingIOError):
            self.sock.recv(1)
            return False
        return True


def parsed(data):
    """The fields of one entry."""
    fields = {}
    while data:
        head, _, data = data.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", data)
            value, data = data[8 : 8 + size], data[8 + size :]
            assert data[:1] == b"\n", "a value of a given length ends with a newline"
            data = data[1:]
        fields[name.decode()] = value.decode()
    return fields
