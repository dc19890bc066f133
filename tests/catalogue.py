"""What happens when something fails: the rows of docs/faults.md, and which of them are the faults of the catalogue.

A row names the fault, the answer, the file that states the rule first, and the test. Tests of a fault carry its id
(`@pytest.mark.fault("killed")`): at least one on real processes and one story in the simulator. `tests/test_catalogue.py` and
`tests/test_docs.py` compare page, rules, README and tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
_LINE = re.compile(r'\| (.+?) \| (.+?) \| \[\S+\]\(\.\./(\S+)\) \| \[test\]\(\.\./tests/(\S+) "(\w+)"\) \|')

FAULTS = {  # by the first cell of their rows
    "killed": "a worker is killed",
    "stopped": "a worker is suspended (SIGSTOP)",
    "gil": "a worker's loop holds the GIL",
    "envpool-hang": "an envpool call never returns",
    "no-progress": "a worker sends beats without progress",
    "segfault": "a worker segfaults",
    "dies-at-once": "a worker dies at once every time, and saves nothing",
    "dies-soon": "a worker dies every two seconds",
    "orphans": "a worker leaves children behind, in a session of their own",
    "ignores-sigterm": "a worker ignores SIGTERM",
    "silent-works": "a script prints nothing for hours while it computes",
    "silent-hangs": "a script that reports nothing hangs",
    "child-stopped": "a child process of a worker is suspended (SIGSTOP)",
    "state-d": "a worker hangs in the kernel (state D)",
    "late-worker": "a worker comes back after its successor started",
    "torn-own-checkpoint": "a script's newest checkpoint is torn, and the script dies of it",
    "slow": "a worker becomes very slow",
    "beat-damaged": "a worker's beat file is removed or overwritten",
    "nan": "the loss becomes NaN",
    "exploding-q": "Q explodes",
    "collapsed-entropy": "a policy collapses",
    "falling-return": "the return falls far below its best",
    "memory-error": "a worker runs out of memory (MemoryError)",
    "oom-kill": "the kernel's OOM killer takes a worker",
    "gpu-memory": "other processes fill the GPU's memory",
    "gpu-hangs": "the GPU's driver hangs",
    "gpu-lost": "a GPU falls off the bus, runs hot, or reports an Xid",
    "disk-full-checkpoint": "the disk fills up during a checkpoint",
    "checkpoint-flipped": "the newest checkpoint has a flipped bit",
    "checkpoint-truncated": "the newest checkpoint is cut short",
    "checkpoint-empty": "a file of the newest checkpoint is empty",
    "checkpoint-missing": "a file of the newest checkpoint is missing",
    "checkpoint-poison": "three deaths follow a resume from the same checkpoint",
    "clock-forward": "the wall clock jumps ahead by an hour",
    "clock-back": "the wall clock jumps back by an hour",
    "pid-reuse": "a dead worker's pid belongs to another process",
    "fork-fails": "no process can be started (EAGAIN)",
    "daemon-stopped": "the daemon itself is suspended for a minute",
    "two-daemons": "a second daemon is started",
    "disk-full-journal": "the disk under the journal is full",
    "state-away": "the state directory is removed, unmounted or covered while extralife runs",
    "journal-removed": "the journal is removed or replaced while extralife runs",
    "runtime-removed": "the runtime directory or the control socket is removed",
}  # fmt: skip


class Row(NamedTuple):
    """One row of the page. `test` is FILE::FUNCTION below tests/."""

    when: str
    then: str
    rule: str
    test: str
    fault: str | None


def _row(line: str) -> Row:
    found = _LINE.fullmatch(line)
    assert found is not None, f"docs/faults.md: this is no row: {line}"
    when, then, rule, file, function = found.groups()
    return Row(when, then, rule, f"{file}::{function}", next((id_ for id_, fault in FAULTS.items() if fault == when), None))


_TABLES = PAGE.read_text().partition("\n## When is a script ")[0]
ROWS = tuple(_row(line) for line in _TABLES.splitlines() if re.match(r"\| (?!when \|)", line))
