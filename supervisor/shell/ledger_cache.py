"""The daemon's cached ledger. It is folded once; later requests add only new facts, each in the requesting thread."""

from __future__ import annotations

import threading

from supervisor.adapters.journal.sqlite import JournalReader
from supervisor.reports.ledger import Ledger


class LedgerCache:
    """Folding three weeks of facts takes a second. No request should wait for it twice, and the daemon's start never."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._guard = threading.Lock()
        self._ledger = Ledger()

    def prime(self) -> None:
        """Fold the journal in the background."""
        threading.Thread(target=self.closed, args=(0.0,), name="accounts", daemon=True).start()

    def closed(self, now_s: float) -> Ledger:
        """The ledger up to now."""
        with self._guard:
            with JournalReader(self._journal, may_copy=False) as reader:
                for stamped in reader.read(self._ledger.seq):
                    self._ledger.add(stamped)
            return self._ledger.closed(now_s)
