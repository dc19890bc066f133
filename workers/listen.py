"""Signal handlers of a worker, active from its first moment. Standard library only: it is imported before torch.

| signal | answer |
|---|---|
| SIGTERM, SIGINT | save at the next step boundary and leave with code 75; a second SIGINT ends it at once |
| SIGUSR2 | save at the next step boundary |
| SIGUSR1 | the Python stacks of all threads, into the file named by EXTRALIFE_STACKS; works inside a C call that hangs |

The handlers only set a flag: a checkpoint in the middle of an update would hold an inconsistent state.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from workers.contract import ENV_STACKS, SAVE_SIGNAL, STACKS_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from workers.contract import Client


@dataclass(slots=True)
class PendingRequests:
    """Requests that are not fulfilled yet."""

    save: bool = False


def listen(client: Client) -> PendingRequests:
    """Install the handlers; a request to leave sets `client.leave_wanted`."""
    pending = PendingRequests()

    def leave(number: int, _frame: FrameType | None) -> None:
        client.leave_wanted = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def save(_number: int, _frame: FrameType | None) -> None:
        pending.save = True

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.Signals[SAVE_SIGNAL], save)
    faulthandler.register(signal.Signals[STACKS_SIGNAL], file=_stacks_file(os.environ), all_threads=True)
    faulthandler.enable(file=sys.stderr, all_threads=True)
    return pending


def _stacks_file(environ: Mapping[str, str]) -> TextIO:
    """The file for stacks. It stays open: the signal handler writes the dump, and a handler cannot open files.

    Standard error if it can't be opened: a disk that is missing or read-only for a moment must not fail the start.
    """
    if path := environ.get(ENV_STACKS):
        try:
            return Path(path).open("a", encoding="utf-8")
        except OSError as error:
            print(f"workers: stacks are written to standard error: {error}", file=sys.stderr, flush=True)
    return sys.stderr
