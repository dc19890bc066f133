"""Speed of the accounts for three weeks: 100,000 facts of ten programs, read from a real journal and folded.

    python bench/accounts_speed.py [FACTS]

Prints one JSON object: seconds to read the rows, to fold them, to compute the figures of the whole time and of the last
hour, and the number of facts and bytes in the journal. Times are the best of three.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from supervisor.adapters.journal.sqlite import Journal, JournalReader
from supervisor.model import facts
from supervisor.reports import accounts
from supervisor.reports.ledger import Ledger, fold_accounts

PROGRAMS = 10
PERIOD_S = 600.0


def written(count: int) -> Iterator[tuple[float, list[facts.Fact]]]:
    """(journal time, facts): each program saves and has a time record every ten minutes, and dies every six hours."""
    yield 0.0, [facts.DaemonStarted("first start", 1, "1", clean=True, salt="s"), facts.LevelChosen("set", "light", 8)]
    names = [f"P{number}" for number in range(PROGRAMS)]
    yield 0.0, [facts.ProgramConfigured("new", name, "d") for name in names]
    steps = dict.fromkeys(names, 0)
    tokens = {name: f"{name}-0" for name in names}
    yield 0.0, [facts.SpawnIntended("start", name, tokens[name], 1, "d", "light") for name in names]
    yield 12.0, [facts.BecameReady("trains", name, tokens[name], 12.0) for name in names]
    made, at_s, turn = 40, 12.0, 0
    while made < count:
        turn += 1
        at_s += PERIOD_S
        batch: list[facts.Fact] = []
        for number, name in enumerate(names):
            steps[name] += int(PERIOD_S * 500)
            token = tokens[name]
            batch.append(facts.Checkpointed("durable", name, token, steps[name], 0.004, 0.2))
            seconds = {"training": PERIOD_S - 12.0, "evaluating": 12.0}
            batch.append(
                facts.Tallied("told", name, token, at_s - PERIOD_S, at_s, seconds, 0.1, "training", steps[name], 500.0)
            )
            if (turn + number) % 36 == 0:
                batch.append(facts.Exited("killed", name, token, "killed", None, 9, steps[name] + 9000, None, counted=True))
                batch.append(facts.BackedOff("at once", name, at_s, 0.0, slow=False))
                tokens[name] = f"{name}-{turn}"
                batch.append(facts.SpawnIntended("start", name, tokens[name], turn, "d", "light"))
                batch.append(facts.Resumed("resumed", name, tokens[name], steps[name], 9000, 18.0, "killed", 0.01))
                batch.append(facts.BecameReady("trains", name, tokens[name], 5.0))
        made += len(batch)
        yield at_s, batch


def best(call) -> tuple[float, object]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    taken, out = [], None
    for _ in range(3):
        began = time.perf_counter()
        out = call()
        taken.append(time.perf_counter() - began)
    return min(taken), out


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.sqlite"
        journal = Journal(path)
        last_s = 0.0
        for at_s, batch in written(count):
            journal.append(batch, at_s=at_s, wall_s=1.8e9 + at_s, boot_id="b" * 32)
            last_s = at_s
        journal.close()

        def read() -> list[facts.Stamped]:
            with JournalReader(path) as reader:
                return list(reader.read())

        read_s, rows = best(read)
        fold_s, ledger = best(lambda: fold_accounts(rows))
        assert isinstance(ledger, Ledger)
        close_s, closed = best(lambda: ledger.closed(last_s))
        all_s, whole = best(lambda: accounts.summary(closed))
        hour_s, _ = best(lambda: accounts.summary(closed, since_s=last_s - 3600.0))
        print(
            json.dumps(
                {
                    "facts": len(rows), "days": round(last_s / 86400, 1), "journal_bytes": path.stat().st_size,
                    "read_s": round(read_s, 3), "fold_s": round(fold_s, 3), "close_s": round(close_s, 4),
                    "figures_s": round(all_s, 3),
                    "figures_last_hour_s": round(hour_s, 4), "ettr": round(whole.slots.ettr, 4),
                },
                indent=2,
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
