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
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from supervisor.lack import is_lack

_WAIT_S: Final = 120  # then the start fails, as for any other error; a service manager repeats it
_FILES: Final = 24  # a start has about as many open at once
_MEMORY_BYTES: Final = 64 << 20
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_IGNORED: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

early: set[int] = set()  # signals that came before their handlers were set

ENV_LISTEN_FD: Final = "EXTRALIFE_LISTEN_FD"  # the control socket, from the previous program image
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


def keep_signals(*, of_daemon: bool) -> None:
    """Note signals until their handlers are set: by default they would kill a daemon that has just begun.

    `of_daemon`: it goes on where another image has ended, so a request to stop is an orderly end of its workers.
    """
    for number in (*_ENDS, signal.SIGHUP) if of_daemon else (signal.SIGHUP,):
        signal.signal(number, lambda number, _: early.add(number))
    for number in _IGNORED[1:]:
        signal.signal(number, lambda *_: None)  # workers would inherit SIG_IGN
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def begin_again(argv: list[str]) -> None:
    """Replace this image by another one as soon as the machine has what a start needs. Returns if it lacks that for long.

    The next image reads its configuration and opens its log anyway, so requests for that are ignored until it handles them.
    A request to end that comes during exec waits for it: blocked and pending signals survive exec, and so does SIG_IGN.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for number in _ENDS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_ENDS, signal.SIGHUP})
    for _ in range(_WAIT_S):
        if _has_room():
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
                os.execv(argv[0], argv)  # noqa: S606  no shell, on purpose
            except OSError as error:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
                if not is_lack(error):
                    raise
        time.sleep(1.0)  # noqa: TID251  nothing tells when the lack is over


def _has_room() -> bool:
    opened: list[int] = []
    try:
        opened.extend(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(_FILES))
        bytes(_MEMORY_BYTES)
        threading.Thread(target=int).start()
    except (OSError, RuntimeError, MemoryError):
        return False
    finally:
        for fd in opened:
            os.close(fd)
    return True
