"""The folds over the journal that pages need: accounts, incidents and lanes. Time older than a week is merged by day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from supervisor.model.facts import Stamped
from supervisor.reports.accounts import merge
from supervisor.reports.accounts_view import journal_s, wall_clock_of
from supervisor.reports.days import Zone, local_days
from supervisor.reports.incidents import Facts, Grouping
from supervisor.reports.lanes import LaneReading
from supervisor.reports.ledger import Ledger

_KEEP_S: Final = 8 * 86_400.0  # windows of a week are exact to the second


class Digest:
    """The folds after the fact `seq`."""

    def __init__(self) -> None:
        self.ledger, self.incidents, self.lanes = Ledger(), Grouping(), LaneReading()
        self._looked_s = 0.0  # when `by_day` was last called: later facts change the time since then

    @property
    def seq(self) -> int:
        return self.ledger.seq

    def add(self, stamped: Stamped) -> None:
        self.ledger.add(stamped)
        self.incidents.add(stamped)
        self.lanes.add(stamped)

    def by_day(self, zone: Zone) -> None:
        """Merge what is older than a week and can only change by LOST and UNKNOWN, by local day and level."""
        ledger, before_s = self.ledger, min(self._looked_s, self.ledger.at_s - _KEEP_S)
        self._looked_s = ledger.at_s
        first_s, wall = max(ledger.first_s or 0.0, ledger.merged_s), wall_clock_of(ledger, ledger.wall_s)
        if before_s <= first_s:
            return
        midnights = [journal_s(ledger, at) for _, at in local_days(wall(first_s), wall(before_s), zone)]
        midnights = [at_s for at_s in midnights if first_s < at_s <= before_s]
        if midnights:
            changes = {at_s for at_s, _, _ in ledger.levels if first_s < at_s < midnights[-1]}
            bounds = [first_s, *sorted({*midnights, *changes})]
            merge(ledger, bounds)
            self.incidents.merge(bounds)
            self.lanes.merge(bounds[-1])

    def as_json(self) -> dict[str, Any]:
        """The folds as values for `json.dumps`."""
        return {
            "ledger": self.ledger.as_json(), "incidents": self.incidents.as_json(), "lanes": self.lanes.as_json(),
            "looked_s": self._looked_s,
        }  # fmt: skip

    @staticmethod
    def of_json(values: Mapping[str, Any], facts_of: Facts) -> Digest:
        out = Digest()
        out.ledger, out.lanes = Ledger.of_json(values["ledger"]), LaneReading.of_json(values["lanes"])
        out.incidents = Grouping.of_json(values["incidents"], facts_of)
        out._looked_s = values["looked_s"]
        return out
