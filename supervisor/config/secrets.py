"""Reads files with secrets that the configuration names. Only their owner may read them, and no message quotes them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from supervisor import lack
from supervisor.config.validation import Validation

_LARGEST_BYTES: Final = 1 << 16
# The name of a variable or an option whose value looks like a secret.
NAME: Final = re.compile(r"key|token|secret|passw|pwd|credential|auth|cookie|private|signature", re.IGNORECASE)


def text(report: Callable[[str], None], path: str, content: str) -> str:
    """The text of the file. If it cannot be used: `report` is called, and it is empty."""
    try:
        # O_NONBLOCK: otherwise a FIFO at this path would block. It has no effect on a regular file.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123  of a descriptor
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        lack.check(error)
        report(f"{path} cannot be read: {error.strerror}; correct the path, or its owner")
        return ""
    if not stat.S_ISREG(mode) or len(data) > _LARGEST_BYTES:
        report(f"{path} is not a text file with {content}; name another one")
        return ""
    if mode & 0o077:
        report(f"other users may read {path}, which holds secrets; chmod 600 {path}")
        return ""
    return data.decode("utf-8", "replace")


def lines_in(text: str) -> list[tuple[int, str]]:
    """(line number, line) of each line, valid or not. Empty lines and lines that begin with # are left out."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def lines_of(report: Callable[[str], None], path: str, content: str, form: re.Pattern[str], example: str) -> list[str]:
    """The lines of the file that have the form. `report` is called for each other one, without its text."""
    found = []
    for number, line in lines_in(text(report, path, content)):
        if form.fullmatch(line):
            found.append(line)
        else:
            report(f"line {number} of {path} is not {example} (not shown)")
    return found


def beside(validation: Validation, path: str) -> str:
    """The absolute path. A relative one is relative to the configuration file."""
    base = Path(validation.source.path).parent if validation.source.path else Path.cwd()
    return os.path.normpath(base / os.path.expanduser(path))  # noqa: PTH111  Path's raises for ~nobody
