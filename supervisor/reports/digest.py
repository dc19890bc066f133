"""All folds over the journal that pages need: accounts, incidents and lanes. Items that are over may leave the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from supervisor.model.facts import Stamped
from supervisor.reports.incidents import Facts, Grouping, Incident
from supervisor.reports.kept import Chunk, Kept
from supervisor.reports.lanes import LaneReading, Lanes
from supervisor.reports.ledger import Ledger

T = TypeVar("T")
Later = Callable[[], T]

_KEEP_S: Final = 86_400.0  # later facts seldom change older slices, and open pages ask for newer incidents all the time


class Digest:
    """The folds after the fact `seq`. With `kept`, that is where the items that are over go.

    An answer has two steps. The first needs the folds as they are now. It returns a function for the rest, which takes
    longer, and during which more facts may be added.

    `late`: they begin at a snapshot in the middle of the journal. They raise NotCovered for a window before it.
    """

    def __init__(self, kept: Kept | None = None, *, late: bool = False) -> None:
        self._kept = kept
        self.ledger, self._grouping, self._lanes = Ledger(store=kept, late=late), Grouping(), LaneReading()

    @property
    def seq(self) -> int:
        return self.ledger.seq

    def add(self, stamped: Stamped) -> None:
        self.ledger.add(stamped)
        self._grouping.add(stamped)
        self._lanes.add(stamped)

    def incidents(self, since_s: float, until_s: float, program: str | None, facts_of: Facts) -> Later[Iterator[Incident]]:
        """The incidents that begin, or whose cause was recorded, between two moments; with a program, only its own."""
        self.ledger.must_cover(since_s)
        return self._grouping.between(self._kept, since_s, until_s, facts_of, program)

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Later[Lanes]:
        """The lanes of the page `timeline` between two moments, and more."""
        self.ledger.must_cover(since_s)
        return self._lanes.lanes(now_s, self._kept, since_s, until_s)

    def seal(self) -> list[Chunk]:
        """Give away what is over. The caller keeps it."""
        before_s = self.ledger.at_s - _KEEP_S
        return [*self.ledger.seal(before_s), *self._grouping.seal(before_s), *self._lanes.seal()]

    def as_json(self) -> dict[str, Any]:
        """The folds as values for `json.dumps`, after `seal`."""
        return {"ledger": self.ledger.as_json(), "incidents": self._grouping.as_json(), "lanes": self._lanes.as_json()}

    @staticmethod
    def of_json(values: Mapping[str, Any], kept: Kept, facts_of: Facts) -> Digest:
        out = Digest(kept)
        out.ledger = Ledger.of_json(values["ledger"], kept)
        out._grouping = Grouping.of_json(values["incidents"], facts_of)
        out._lanes = LaneReading.of_json(values["lanes"])
        return out
