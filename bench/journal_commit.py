"""The cost of one durable commit on this disk: `python bench/journal_commit.py [DIRECTORY] [COMMITS]`.

One fact per transaction, WAL with synchronous=FULL, like the daemon. The directory determines the disk.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from supervisor.adapters.journal.sqlite import Journal
from supervisor.model.facts import Finished


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    commits = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with tempfile.TemporaryDirectory(dir=folder, prefix="journal-commit-") as scratch:
        journal = Journal(Path(scratch) / "journal.sqlite")
        took_ms = []
        for number in range(commits):
            fact = Finished(why=f"commit {number} of {commits}", program="Pong")
            began = time.perf_counter()
            journal.append([fact], at_s=float(number), wall_s=time.time(), boot_id="0" * 32)
            took_ms.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        count = len(list(journal.read()))
        read_s = time.perf_counter() - began
        journal.close()
    cuts = statistics.quantiles(took_ms, n=100)
    print(f"commit: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, worst {max(took_ms):.2f} ms over {commits} commits")
    print(f"read back: {count / read_s:,.0f} facts/s")
    print(json.dumps({"p50_ms": cuts[49], "p99_ms": cuts[98], "worst_ms": max(took_ms), "facts_per_s": count / read_s}))


main()
