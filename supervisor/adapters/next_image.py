"""Whether the next program image could start, asked of that image itself before the running one gives way to it.

`reload` and an upgrade replace the daemon by exec: from then on there is nobody to go back to. So the next image is started
as a child first, with `--check`: its own interpreter, its own version, the environment and the arguments that it would get.
Why not check in this process: it is of the old version, to which a key of the new one is a mistake, and which would never
notice that the new one cannot be imported.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from supervisor import places

_CHECK_S: Final = 30.0  # importing from a cold disk takes some
_STABLE_S: Final = 0.3
_MOST_S: Final = 5.0
_MOST_LINES: Final = 50
_OURS: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "EXTRALIFE_LISTEN_FD")  # of the service, not of its child
_PREFIX: Final = "supervisord: "


def mistakes(argv: Sequence[str], timeout_s: float = _CHECK_S) -> list[str]:
    """Why the image of this command line would not start, each reason as one sentence; none: it would."""
    environ = {key: value for key, value in os.environ.items() if key not in _OURS}
    try:
        done = subprocess.run(
            [*argv, "--check"], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
            env=environ, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"the check of the configuration did not end within {timeout_s:g} s: {' '.join(argv)} --check"]
    except OSError as error:
        return [f"{argv[0]} cannot be started: {error.strerror or error}"]
    if done.returncode == 0:
        return []
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    said = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX) and " warning: " not in line]
    how = f"ended with {done.returncode}" if done.returncode >= 0 else f"was ended by signal {-done.returncode}"
    return said[:_MOST_LINES] or [f"the check of the configuration {how}: {lines[-1] if lines else 'it said nothing'}"]


def wait_until_written(path: str | None, environ: Mapping[str, str], most_s: float = _MOST_S) -> str | None:
    """Wait while a config file is being written. Half a file may be valid, and lack half of the programs.

    Returns a sentence when it is still being written after `most_s`. A file that cannot be looked at is not waited for.
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
            break
    return None


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
