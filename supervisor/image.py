"""Which installed files this program image uses, and the path that starts the next image.

A service is started through a link, `/opt/extralife/current/.venv/bin/python`. An upgrade points that link at another
release while the daemon and its workers run. A process that was started through the link would then import the other
release's files, one lazy import at a time. So an image settles first: from then on all its own paths name the release
itself, and so do those of the workers that it starts. Only the next image is started through the link again.

Example: started as `/opt/extralife/current/.venv/bin/python`, where `current` is `releases/0.1.0-5f1c`. It starts workers as
`/opt/extralife/releases/0.1.0-5f1c/.venv/bin/python`, and a re-execution starts `/opt/extralife/current/...`.

Why not resolve the interpreter's path completely: `.venv/bin/python` is itself a link that leads out of the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

RELEASE: Final = str(Path(__file__).resolve().parents[1])  # the directory of `supervisor`, `deploy` and `.venv`


def pin_release() -> str:
    """Keep to the current files, even if a link on the way changes later. Returns the path that starts the next image.

    Call it before any import from outside the standard library: modules remember the path that they came from.
    """
    started_as, prefix = sys.executable, sys.prefix
    real = os.path.realpath(prefix)
    if real != prefix:
        sys.executable = moved(sys.executable, prefix, real)
        sys.path[:] = [moved(entry, prefix, real) for entry in sys.path]
    return started_as


def moved(path: str, old: str, new: str) -> str:
    """`path` with a leading directory `old` replaced by `new`; other paths are returned unchanged."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def again(started_as: str, args: tuple[str, ...]) -> list[str]:
    """The command line of another image. -P: it imports nothing from the current directory, which may be another user's."""
    return [started_as, "-P", "-m", "supervisor", *args]
