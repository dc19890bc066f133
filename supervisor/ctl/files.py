"""Output files of extralifectl: each is written completely or not at all, because a process may be reading the old one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, Failed


def write(file: str, pieces: Iterable[str], *, secret: bool = False) -> None:
    """Write text to a file or, for `-`, to standard output. A secret file is for its owner only. Raises Failed."""
    if file == "-":
        sys.stdout.writelines(pieces)
        return
    with aside(file) as path, open(path, "w", encoding="utf-8", newline="") as out:  # noqa: PTH123  pathlib: 5 ms to import
        if secret:
            os.fchmod(out.fileno(), 0o600)
        out.writelines(pieces)


@contextmanager
def aside(file: str) -> Iterator[str]:
    """Yield a temporary path. At the end of the block, sync it and rename it to `file`. Raises Failed if that fails.

    A link stays: the file that it names is replaced. A device or a pipe (/dev/stdout, /dev/null) gets the bytes instead: a
    rename would put a regular file in its place, for every process of the box.
    """
    special = os.path.exists(file) and not os.path.isfile(file)  # noqa: PTH110, PTH113
    target = os.path.realpath(file)
    directory = tempfile.gettempdir() if special else os.path.dirname(target)  # noqa: PTH120
    try:
        fd, path = tempfile.mkstemp(dir=directory, prefix=".extralife-")
        try:
            os.fchmod(fd, 0o644)
            yield path
            os.fsync(fd)
            if special:
                with open(path, "rb") as source, open(file, "wb") as out:  # noqa: PTH123
                    shutil.copyfileobj(source, out)
                os.unlink(path)  # noqa: PTH108
            else:
                os.replace(path, target)  # noqa: PTH105
        except BaseException:
            os.unlink(path)  # noqa: PTH108
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise Failed(f"Error: {text.printable(file)} cannot be written: {error.strerror or error}", GENERIC) from None
