"""Standard output and error for a training that must not end because a line of its log cannot be written.

The log lies on the disk that the checkpoints lie on. When that disk is full, a save fails and is tried again, and training
goes on; an unhandled error of `print` would end it. So a line that cannot be written is dropped.

`sys.stdout.write` in a `try` would not do: the text stays in the buffer, and each later flush fails for it.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO

_CLOSED = BrokenPipeError  # nobody reads any more: `python -m workers | head` ends, as every command does


class _Dropping(io.FileIO):
    """A file whose errors of writing are not reported: what cannot be written is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except _CLOSED:
            raise
        except OSError:
            return len(data)


def drop_unwritable() -> None:
    """From now on `print` never raises for a full disk. For the process's own start only: it replaces `sys.stdout`."""
    sys.stdout, sys.stderr = _dropping(sys.stdout), _dropping(sys.stderr)


def _dropping(stream: TextIO) -> TextIO:
    stream.flush()
    file = io.BufferedWriter(_Dropping(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stream.encoding, errors="backslashreplace", line_buffering=True)
