"""The daemon's own log file: limited in size, reopened after somebody rotates it away, and never a reason for a traceback.

`logging` prints "--- Logging error ---" and a stack to stderr for every line that cannot be written. On a read-only disk
that would fill systemd's journal. This class stores the error of the last failed line instead: `adapters/foundations.py`
checks it, and `status` shows it. Standard output still gets the line.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import logging.handlers
import os
import sys
from typing import Any

from supervisor import files
from supervisor.adapters.foundations import of_path, of_stat
from supervisor.as_user import as_daemon


class MainLog(logging.handlers.RotatingFileHandler):
    """A rotating log file. The first line opens it: a file that cannot be opened must not prevent a start.

    A link at `path` stays: the file that it leads to is written and rotated.
    """

    def __init__(self, path: str, *, max_bytes: int, backups: int) -> None:
        super().__init__(os.path.realpath(path), maxBytes=max_bytes, backupCount=backups, encoding="utf-8", delay=True)
        self._error = ""  # why the newest line failed; empty: it was written
        self._failed: str  # the same of the line that is being written

    def _open(self) -> Any:
        """`logging` calls this. Its own version would wait for the reader of a FIFO, and every thread that logs with it."""
        fd = files.open_own(self.baseFilename, os.O_WRONLY | os.O_APPEND, 0o666, follow=True)
        return open(fd, self.mode, encoding=self.encoding, errors=self.errors)  # noqa: PTH123  of a descriptor

    def doRollover(self) -> None:  # noqa: N802  logging's own name
        for number in range(1, self.backupCount + 1):
            files.make_room(f"{self.baseFilename}.{number}")
        super().doRollover()

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = ""
        with as_daemon():
            with contextlib.suppress(OSError):  # unknown: it stays
                # Another program, such as logrotate, may have renamed the open file.
                if self.stream is not None and of_path(self.baseFilename) != of_stat(os.fstat(self.stream.fileno())):
                    self._close()
            super().emit(record)
        self._error = self._failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  logging's own name
        """`logging` calls this inside its exception handler, instead of raising."""
        error = sys.exc_info()[1]
        self._failed = (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)

    def _close(self) -> None:
        old, self.stream = self.stream, None
        if old is not None:
            with contextlib.suppress(OSError):  # closing may fail for a line that never reached the disk
                old.close()

    def trouble(self) -> str:
        """Why lines do not reach the file, as a clause; empty: they do."""
        if self._error:  # a quiet daemon writes no other line that would end the trouble
            with contextlib.suppress(OSError):
                self.reopen()
        return f"it cannot be written: {self._error}" if self._error else ""

    def reopen(self) -> None:
        """Open the file at the path, and write a line that says so. Raises OSError."""
        self.acquire()
        try:
            new = self._open()
            self._close()
            self.stream = new
        finally:
            self.release()
        self.handle(logging.makeLogRecord({"msg": "log_opened_anew", "levelno": logging.INFO, "levelname": "INFO"}))
        if self._error:
            raise OSError(errno.EIO, self._error)
