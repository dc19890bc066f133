"""The daemon's own log file: bounded, opened anew when somebody rotates it away, and never a reason for a traceback.

`logging` prints "--- Logging error ---" and a stack to stderr for every line that cannot be written. A disk that is
read-only would fill systemd's journal with that. Here a failed line is remembered as the log's trouble instead
(`adapters/foundations.py` looks at it, `status` shows it), and standard output still has the line.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import logging.handlers
import sys

from supervisor.adapters.foundations import Identity, of_fd


class MainLog(logging.handlers.RotatingFileHandler):
    """A rotating log file. It is opened by its first line: a file that cannot be opened is no reason not to start."""

    def __init__(self, path: str, *, max_bytes: int, backups: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8", delay=True)
        self._error = ""  # of the newest line; empty: it was written
        self._failed = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = ""
        super().emit(record)
        self._error = self._failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  logging's own name
        """Called in place of raising, with the exception being handled."""
        error = sys.exc_info()[1]
        self._failed = (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)

    def identity(self) -> Identity | None:
        """Of the open file; None while there is none."""
        try:
            return None if self.stream is None else of_fd(self.stream.fileno())
        except ValueError:  # closed just now, by a rotation in another thread
            return None

    def trouble(self) -> str:
        """Why lines do not reach the file, as a clause; empty: they do."""
        return f"it cannot be written: {self._error}" if self._error else ""

    def reopen(self) -> None:
        """Open the file at the path, and write a line that says so. Raises OSError."""
        self.acquire()
        try:
            old, self.stream = self.stream, self._open()
            if old is not None:
                with contextlib.suppress(OSError):  # of a line that never reached the disk
                    old.close()
        finally:
            self.release()
        self.handle(logging.makeLogRecord({"msg": "log_opened_anew", "levelno": logging.INFO, "levelname": "INFO"}))
        if self._error:
            raise OSError(errno.EIO, self._error)
