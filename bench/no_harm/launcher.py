"""Starts two ranks of a training and, as torchrun does, restarts both when one fails: launcher.py RESTARTS COMMAND..."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import FrameType

RANK = "import time, sys\nwhile True: time.sleep(0.5)"  # of the second rank, which saves nothing


def main() -> int:
    restarts, ranks = int(sys.argv[1]), list[subprocess.Popen[bytes]]()

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for rank in ranks:
            rank.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        ranks[:] = [subprocess.Popen(sys.argv[2:]), subprocess.Popen([sys.executable, "-c", RANK])]
        while ranks[0].poll() is None and ranks[1].poll() is None:
            time.sleep(0.1)
        ended = ranks[0].poll()
        if ended is None:  # the second rank has died: the first one cannot go on
            ranks[0].terminate()
            ended = ranks[0].wait()
        ranks[1].kill()
        ranks[1].wait()
        if ended == 0 or restarts == 0:
            return 0 if ended == 0 else 1
        restarts -= 1
        print(f"rank 0 failed with {ended}; restarting the group", file=sys.stderr, flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
