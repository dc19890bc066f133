"""The daemon's running ledger: folded once, then only what is new, by whoever asks and in the asker's thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.model.facts import Stamped
from supervisor.reports.ledger import Ledger


class LedgerCache:
    """Three weeks of facts are folded in a second; nobody should wait for it twice, and the daemon's start not at all."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._guard = threading.Lock()
        self._ledger = Ledger()

    def prime(self, known: Sequence[Stamped]) -> None:
        """Fold what the daemon has read at its start anyway, beside what it does now."""
        threading.Thread(target=self._fold, args=(known,), name="accounts", daemon=True).start()

    def _fold(self, known: Sequence[Stamped]) -> None:
        with self._guard:
            for stamped in known:
                if stamped.seq > self._ledger.seq:
                    self._ledger.add(stamped)

    def closed(self, now_s: float) -> Ledger:
        """Everything up to now."""
        with self._guard:
            with JournalReader(self._journal, may_copy=False) as reader:
                for stamped in reader.read(self._ledger.seq):
                    self._ledger.add(stamped)
            return self._ledger.closed(now_s)
