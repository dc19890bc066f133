"""Which installed files this program image runs from, and what the next image will be started as.

A service is started through a link, `/opt/extralife/current/.venv/bin/python`, and an upgrade points that link at another
release while the daemon and its workers run. Whoever was started through the link would from then on import the other
release's files, one lazy import at a time. So an image settles first: from here on every path of its own, and with them
those of the workers that it starts, name the release itself. Only the next image is started through the link again.

Example: started as `/opt/extralife/current/.venv/bin/python`, where `current` is `releases/0.1.0-5f1c`: workers are
started as `/opt/extralife/releases/0.1.0-5f1c/.venv/bin/python`, and a re-execution is of `/opt/extralife/current/...`.

Why not resolve the interpreter's path to its end: `.venv/bin/python` is itself a link, out of the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

RELEASE: Final = str(Path(__file__).resolve().parents[1])  # where `supervisor`, `deploy` and `.venv` lie


def settle() -> str:
    """Stay with the files of this moment, whatever the links on the way become; returns what the next image is started as.

    Called before anything outside the standard library is imported: modules remember where they came from.
    """
    started_as, prefix = sys.executable, sys.prefix
    real = os.path.realpath(prefix)
    if real != prefix:
        sys.executable = moved(sys.executable, prefix, real)
        sys.path[:] = [moved(entry, prefix, real) for entry in sys.path]
    return started_as


def moved(path: str, old: str, new: str) -> str:
    """`path` with the directory `old` at its beginning replaced by `new`; another path as it is."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def again(started_as: str, args: tuple[str, ...]) -> list[str]:
    """The command line of the next image, as safe from the current directory as this one."""
    return [started_as, *(["-P"] if sys.flags.safe_path else []), "-m", "supervisor", *args]
