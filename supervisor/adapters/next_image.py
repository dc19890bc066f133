"""Checks whether the next program image can start, by running that image before it replaces the current one.

`reload` and an upgrade replace the daemon by exec: after that there is no way back. So the daemon first starts the next
image as a child with `--check`: with its own interpreter and version, and the environment and arguments that it would get.
A check in this process is not enough. This process runs the old version: it rejects a key of the new version, and it cannot
notice that the new version cannot be imported.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from supervisor import lack, places
from supervisor.adapters import leftovers
from supervisor.formats import span

_CHECK_S: Final = 30.0  # an import from a cold disk takes several seconds
_STABLE_S: Final = 0.3
_MOST_S: Final = 5.0
_MOST_LINES: Final = 50
_OURS: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "EXTRALIFE_LISTEN_FD")  # for the service, not its child
_PREFIX: Final = "supervisord: "


def mistakes(argv: Sequence[str], timeout_s: float = _CHECK_S, *, fine: Collection[int] = (0,)) -> list[str]:
    """The reasons why the image of this command line would not start, one sentence each; empty: it would start.

    `fine`: the exit codes of a check that found nothing. Raises OSError if the check itself lacks descriptors, memory or
    threads: it may succeed later.
    """
    environ = {key: value for key, value in os.environ.items() if key not in _OURS} | leftovers.mark()
    try:
        # It stays in the daemon's session: a child in another one is taken for an orphan of a worker, and killed with it.
        done = subprocess.run(
            [*argv, "--check"], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
            env=environ, process_group=0,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"the check of the configuration did not end within {span(timeout_s)}: {' '.join(argv)} --check"]
    except OSError as error:
        lack.check(error)
        return [f"{argv[0]} cannot be started: {error.strerror or error}"]
    if done.returncode in fine:
        return []
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if lines and lack.is_named(lines[-1]):
        raise OSError(errno.EAGAIN, lines[-1].removeprefix(_PREFIX))
    messages = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX) and " warning: " not in line]
    how = f"ended with {done.returncode}" if done.returncode >= 0 else f"was ended by signal {-done.returncode}"
    return messages[:_MOST_LINES] or [
        f"the check of the configuration {how}: {lines[-1] if lines else 'it printed nothing'}"
    ]


def wait_until_written(path: str | None, environ: Mapping[str, str], most_s: float = _MOST_S) -> str | None:
    """Wait while a config file is being written. A half-written file may be valid, and lack half of the programs.

    Returns a sentence when it is still being written after `most_s`. Does not wait for a file that stat(2) cannot read.
    """
    found = path or places.find_config(environ)
    if found is None:
        return None
    waited_s, seen = 0.0, _look(found)
    while seen is not None and abs(time.time() - seen[0] / 1e9) < _STABLE_S:
        if waited_s >= most_s:
            return f"{found}: is still being written; try again once it is whole"
        time.sleep(_STABLE_S)
        waited_s += _STABLE_S
        before, seen = seen, _look(found)
        if seen == before:
            return None
    return None


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
