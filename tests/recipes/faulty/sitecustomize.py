"""Faults on demand in anybody's training: when the file FAULT_FILE says `hang` or `memory`, the training process does so.

Python imports this at its start. A thread waits for the file; the fault happens in the main thread, in a signal's handler.
With the client, it happens once the run has made a step. With FAULT_WITHOUT_CLIENT, it happens at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path


def _happens(*_):
    if Path(os.environ["FAULT_FILE"] + ".now").read_text() == "hang":
        time.sleep(10_000)
    raise MemoryError("as a test asked for it")


def _watch() -> None:
    fault = Path(os.environ["FAULT_FILE"])
    while True:
        time.sleep(0.1)
        client = sys.modules.get("extralife.run")
        run = getattr(client, "_the_run", None)  # the module may be half imported
        trains = "FAULT_WITHOUT_CLIENT" in os.environ or (run and run.is_reporter and run.at > 0)
        if trains and fault.exists():
            fault.rename(f"{fault}.now")
            signal.pthread_kill(threading.main_thread().ident, signal.SIGPROF)


if "FAULT_FILE" in os.environ:
    signal.signal(signal.SIGPROF, _happens)
    threading.Thread(target=_watch, daemon=True).start()
