"""The child process that reads the files of scripts.

Each line of standard input is a request, each line of output its answer.

It has no state, so the daemon may end it at any moment and start another one. It ends when its input does.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

_MOST_BYTES = 1 << 30
_ROOT = str(Path(__file__).resolve().parents[3])


def main() -> int:
    sys.path.insert(0, _ROOT)  # the daemon's source tree: this process has no site-packages
    from supervisor.adapters.figures.reading import as_json, read_once

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    for line in sys.stdin.buffer:
        try:
            answer = as_json(read_once(json.loads(line)))
        except Exception as error:  # noqa: BLE001  every error is reported to the daemon
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
