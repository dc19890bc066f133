"""The table of what the daemon relies on: one row a file or directory (`adapters/foundations.py`, docs/foundations.md).

To watch another thing, add its row here, or call `Foundations.watch` where the thing is made.
"""

from __future__ import annotations

import os

from supervisor.adapters.foundations import Remembered, Watched
from supervisor.adapters.journal_sqlite import Journal
from supervisor.core.settings import Paths
from supervisor.policy.foundations import JOURNAL


def rows(paths: Paths, journal: Journal) -> tuple[Watched, ...]:
    """What every daemon relies on, from its start to its end."""
    state_dir, journal_file = os.path.realpath(paths.state_dir), os.path.realpath(paths.journal)
    whole_state = Remembered(state_dir)
    whole_state.renew()  # now: at the first look it may be another one already
    return (
        Watched(
            "state directory", state_dir, whole_state, holds_starts=True,
            consequence="no worker is started and nothing can be recorded; workers that run train on",
            remedy="put it back, or mount its file system again",
        ),
        # The deciding thread restores it, before it deals with any other input: only there the connection may be used.
        Watched(JOURNAL, journal_file, journal.identity, check=journal.moved, restore=_by_the_loop),
    )  # fmt: skip


def _by_the_loop() -> None:
    """`Loop.turn` has done it when this is called, or it has failed and is tried again there."""
