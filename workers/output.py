"""Standard output and error for a training that must not end because a line of its log cannot be written.

The log and the checkpoints lie on the same disk. When that disk is full, a save fails and is tried again, and training
goes on; an unhandled error of `print` would end it. So a line that cannot be written is dropped.

`sys.stdout.write` in a `try` is not enough: the text stays in the buffer, and each later flush fails because of it.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO

_CLOSED = BrokenPipeError  # the reader is gone: `python -m workers | head` must end, like any command


class _Dropping(io.FileIO):
    """A file that does not report write errors: it drops the data that it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except _CLOSED:
            raise
        except OSError:
            return len(data)


def drop_unwritable() -> None:
    """From now on `print` never raises for a full disk. Call it only when the process starts: it replaces `sys.stdout`."""
    sys.stdout, sys.stderr = _dropping(sys.stdout), _dropping(sys.stderr)


def _dropping(stream: TextIO) -> TextIO:
    stream.flush()
    file = io.BufferedWriter(_Dropping(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stream.encoding, errors="backslashreplace", line_buffering=True)
