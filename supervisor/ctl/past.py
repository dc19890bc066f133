"""The history of levels in a journal: the evidence from which `simulate --journal` draws boxes.

This fold reads facts, not the state: the state keeps the evidence of the rule, but not the time of each change of level. It
also reads the archive beside a journal. A new ladder starts a new history, because a level with another load is another
level. Its records start with the evidence that the rule kept at that moment, for levels that the old ladder had too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from supervisor.model import facts
from supervisor.model.codec import MalformedFact
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold
from supervisor.model.snapshot import decoded
from supervisor.model.state import State
from supervisor.policy.level import speeds as pace
from supervisor.policy.level.load import LoadState
from supervisor.policy.level.speeds import Speeds
from supervisor.records import dataclass
from supervisor.simulation.past import Past, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_HELD = 0.5  # a reboot of at least this weight ends a run
_NOT_ITS_OWN = frozenset({"moved", "preempted"})  # causes of reboots whose downtime is not typical of the box


class NoPast(ValueError):
    """The journal has no usable history of levels."""


@dataclass(slots=True)
class _Fold:
    """The state of the fold. It is mutable, and lives for one reading of a journal."""

    names: tuple[str, ...] = ()
    level: int | None = None
    records: list[Record] = field(default_factory=list)
    speeds: Speeds = field(default_factory=lambda: pace.unread(1))
    read_at_s: float = 0.0
    from_s: float = 0.0
    path: list[tuple[float, int]] = field(default_factory=list)
    deaths: list[tuple[float, int]] = field(default_factory=list)
    ran_s: list[float] = field(default_factory=list)
    run_s: float = 0.0  # training since the last reboot or change of level
    meant: int = 0
    reviews_s: list[float] = field(default_factory=list)
    downtimes_s: list[float] = field(default_factory=list)
    intervals_s: list[float] = field(default_factory=list)
    changes_s: list[float] = field(default_factory=list)

    def take(self, row: Stamped) -> None:
        match row.fact:
            case facts.Snapshot() if not self.names:
                state = fold(State(), row)
                if state.climb.ladder:
                    self._begin(row.at_s, tuple(name for name, _ in state.climb.ladder), state.climb.load, state.level)
            case facts.LadderLaid(levels=levels, load=load):
                self._begin(row.at_s, levels, load, self.names[self.level] if self.level is not None else "")
            case facts.IntervalChosen(interval_s=interval_s):
                self.intervals_s.append(interval_s)
            case facts.HostRebooted(down_s=down_s, cause=cause) if down_s is not None and cause not in _NOT_ITS_OWN:
                self.downtimes_s.append(down_s)
            case _ if self.names:
                self._take(row.at_s, row.fact)

    def _begin(self, at_s: float, names: tuple[str, ...], load: str, level: str) -> None:
        known = _remembered(load, len(names))
        self.names, self.from_s, self.read_at_s = names, at_s, at_s
        self.level = names.index(level) if level in names else None if known is None else known.level
        self.records = _records(known) if known else [Record()] * len(names)
        self.speeds = known.speeds if known is not None else pace.unread(len(names))
        self.ran_s, self.run_s, self.deaths, self.meant = [0.0] * len(names), 0.0, [], 0
        self.path = [] if self.level is None else [(0.0, self.level)]

    def _take(self, at_s: float, fact: facts.Fact) -> None:
        match fact:
            case facts.LevelChosen(level=name) if name in self.names:
                self._moved(at_s - self.from_s, self.names.index(name))
            case facts.Reviewed(level=name, up_s=up_s, reading=reading) if name in self.names:
                self.reviews_s.append(up_s)
                self._ran(self.names.index(name), up_s)
                self._read(at_s, self.names.index(name), reading)
            case (
                facts.RebootJudged(level=name, weight=weight, up_s=up_s)
                | facts.NodeFaultJudged(level=name, weight=weight, up_s=up_s)
            ) if name in self.names:  # fmt: skip
                self._rebooted(at_s - self.from_s, self.names.index(name), weight, up_s)
            case facts.LevelSettled(cost_s=cost_s):
                self.changes_s.append(cost_s)

    def _moved(self, at_s: float, level: int) -> None:
        if level != self.level:
            self.level, self.run_s = level, 0.0
            self.path.append((at_s, level))

    def _ran(self, level: int, up_s: float) -> None:
        self.run_s += up_s
        self.ran_s[level] += up_s
        self.records[level] = replace(self.records[level], up_s=self.records[level].up_s + up_s)

    def _read(self, at_s: float, level: int, reading: float | None) -> None:
        if reading is not None and reading > 0.0:
            self.speeds = pace.read(self.speeds, level, reading, max(0.0, at_s - self.read_at_s))
            self.read_at_s = at_s

    def _rebooted(self, at_s: float, charged: int, weight: float, up_s: float) -> None:
        level = charged if self.level is None else self.level
        self._ran(level, up_s)
        if weight <= 0.0:
            self.meant += 1
        else:
            self.deaths.append((at_s, level))
            record = self.records[charged]
            died_s = (*record.died_s, self.run_s) if weight >= _HELD and charged == level else record.died_s
            self.records[charged] = replace(record, reboots=record.reboots + weight, died_s=died_s)
        self.run_s = 0.0


def _records(known: LoadState) -> list[Record]:
    """The record of each level, summed over bad hours and other hours."""
    each_hours = [known.known] if known.other is None else [known.known, known.other.known]
    return [
        Record(sum(one.up_s for one in level), sum(one.reboots for one in level)) for level in zip(*each_hours, strict=True)
    ]


def _remembered(text: str, levels: int) -> LoadState | None:
    try:
        known = decoded(LoadState, text) if text else None
    except MalformedFact:  # written by a version with other fields; the facts that follow are enough
        return None
    return known if known is not None and len(known.known) == levels else None


def past_of(rows: Iterable[Stamped]) -> Past:
    """The past from facts, oldest first. Raises NoPast."""
    folded = _Fold()
    at_s = 0.0
    for row in rows:
        folded.take(row)
        at_s = row.at_s
    if not folded.names or not folded.path:
        raise NoPast('it has no trials of levels ([load] mode = "climb" makes them)')
    if not sum(folded.ran_s) or at_s <= folded.from_s:
        raise NoPast("nothing was trained since its ladder was set up, so there is nothing to replay")
    return Past(
        names=folded.names, records=tuple(folded.records), speeds=folded.speeds, for_s=at_s - folded.from_s,
        path=tuple(folded.path), deaths=tuple(folded.deaths), ran_s=tuple(folded.ran_s), meant=folded.meant,
        reviews_s=tuple(folded.reviews_s), downtimes_s=tuple(folded.downtimes_s), intervals_s=tuple(folded.intervals_s),
        changes_s=tuple(folded.changes_s),
    )  # fmt: skip


def rows_of(journal: Path) -> Iterator[Stamped]:
    """Every fact of a journal, its archive's first. It never writes. Raises OSError or MalformedFact, one sentence each."""
    from supervisor.adapters.journal.archive import folder, read_archive
    from supervisor.adapters.journal.sqlite import JournalReader

    with JournalReader(journal) as reader:  # first: report an unreadable journal before hours of archive are read
        after_seq = 0
        for row in read_archive(folder(journal)):
            after_seq = row.seq
            yield row
        yield from reader.read(after_seq)
