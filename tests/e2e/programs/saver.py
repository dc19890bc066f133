"""A trainer as people write them: on SIGTERM it saves for three seconds, prints while it does, and leaves.

A second SIGTERM, or a pipe that nobody reads any more, breaks the save off. `saver.py NAME...`: one process a name.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

SAVES_S = 3.0


def leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def main(name: str) -> None:
    signal.signal(signal.SIGTERM, leave)
    try:
        Path(f"{name}.up").touch()
        while True:
            time.sleep(0.1)  # pause() would miss a signal that comes just before it
    finally:
        Path(f"{name}.saving").touch()
        for part in range(10):
            time.sleep(SAVES_S / 10)
            print(f"saves {part}", flush=True)
        Path(f"{name}.saved").touch()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        for rank in [subprocess.Popen([sys.executable, __file__, name]) for name in sys.argv[1:]]:
            rank.wait()
