"""The compiled shim, in memory: it is never a file that another process could replace between its compilation and its start.

Earlier it was a file in the runtime directory. Anybody who could write there could put their own code in its place, and a
damaged file made every start fail. A check of the file's owner, mode and content would leave a moment between the check and
the start of the interpreter. The bytes in a sealed memfd belong to this daemon alone, nobody can change them, and a start
reads them through an inherited descriptor.

The shim is compiled once, because compiling it at each start costs 4 ms and 1.5 MiB of RSS. The source is read when the
daemon starts: an upgrade that replaces the installation later cannot make an old daemon start a new shim.
"""

from __future__ import annotations

import fcntl
import importlib.util
import marshal
import os
import struct
import weakref
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).parents[2] / "shim.py"
_UNCHECKED: Final = struct.pack("<I8x", 1)  # PEP 552: a .pyc with a hash that is not compared with the source
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class ShimCode:
    """The compiled shim behind a descriptor. `path` works in a process that inherits `fd`."""

    def __init__(self) -> None:
        """Raises OSError when the source is missing or no memory file can be made."""
        code = compile(_SOURCE.read_bytes(), str(_SOURCE), "exec", dont_inherit=True)
        self.fd: Final = os.memfd_create("shim.pyc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.path: Final = f"/proc/self/fd/{self.fd}"
        with open(self.fd, "wb", closefd=False) as whole:
            whole.write(importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code))
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)

        # Not closed explicitly: a start in another thread may still need it, and its number must not go to another file.
        weakref.finalize(self, os.close, self.fd).atexit = False
