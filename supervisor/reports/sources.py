"""The interface through which the pages read their data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from supervisor.model.facts import Stamped
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import Attempt, State
from supervisor.records import Record
from supervisor.reports.incidents import Incident
from supervisor.reports.lanes import Lanes
from supervisor.reports.ledger import Ledger

Json = dict[str, Any]
T = TypeVar("T")


class NewestResult(Record):
    """The newest whole test of one run. None is "not known"."""

    program: str
    game: str
    algo: str
    resolution: int | None
    seed: int | None
    env_steps: int
    games: int
    mean_return: float
    hns: float | None = None
    hours_trained: float | None = None


class Sources(Protocol):
    """All data that a page may use, at one moment. Only the data that a page requests is read.

    There are two implementations: a running daemon (`shell/backend.py`), and the files of a dead one (`ctl/offline.py`).
    """

    @property
    def settings(self) -> Settings | None:
        """Settings in force, with the present level's programs. None: the daemon is dead, its configuration unreadable."""

    @property
    def state(self) -> State:
        """The fold of the journal."""

    @property
    def memory(self) -> Memory:
        """The newest readings; a dead daemon has none."""

    @property
    def now_s(self) -> float:
        """Journal time of this moment."""

    @property
    def wall_s(self) -> float:
        """The wall clock's time of this moment."""

    @property
    def alive(self) -> bool:
        """Whether the daemon runs."""

    @property
    def worst_gap_s(self) -> float | None:
        """The longest time between two turns of the daemon's loop, in the last one to two minutes."""

    @property
    def version(self) -> str | None:
        """The daemon's version. None: the daemon is dead."""

    @property
    def release(self) -> str | None:
        """The directory of the release that the daemon runs."""

    @property
    def state_dir(self) -> str:
        """The state directory."""

    def zone(self, wall_s: float) -> tuple[str, float]:
        """The box's local time at a moment of the wall clock: its name, and how many seconds it is ahead of UTC."""

    def last_sign(self) -> Json:
        """For a dead daemon: the time of its last sign of life, and a sentence about it. Empty: the daemon runs."""

    def cgroups(self) -> Json | None:
        """How workers are confined (`adapters.process.cgroups.Cgroups.view`). None: not known."""

    def http(self) -> Json | None:
        """The TCP port: {"listen", "error"}. None: there is none, or it is not known."""

    def corrected(self, program: Json, attempt: Attempt | None) -> Json:
        """A program's view, corrected by its processes while the record cannot be up to date."""

    def closed(self) -> tuple[Ledger, float]:
        """A copy of the ledger, closed at this moment, and the wall clock's time of this moment."""

    def incidents(
        self, since_s: float, until_s: float, program: str | None, view: Callable[[Iterable[Incident]], T]
    ) -> T:  # fmt: skip
        """What `view` makes of the incidents that begin, or whose cause was recorded, between two moments.

        With a program, only its own. They are read while `view` runs, in any order.
        """

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Lanes:
        """The lanes of the page `timeline` between two moments, and more. What goes on ends at `now_s`."""

    def facts(self, after_seq: int, kinds: Sequence[str], program: str | None, limit: int) -> Iterable[Stamped]:
        """The first `limit` facts after a position, or the newest -`limit`, of these kinds and this program, oldest first.

        Includes all archived facts of these kinds if every requested kind is lasting.
        """

    def of(self, kind: type[T]) -> T:
        """What a feature reads from its own files (`SOURCES` of its module `sources`), by the class that its pages know."""

    def results(self) -> Sequence[NewestResult]:
        """The newest whole test of every run."""

    def backups(self) -> list[Json]:
        """The backups on disk, the newest first."""

    def backup_progress(self) -> Json | None:
        """Progress of the backup that is being made. None: none is being made."""

    def check_backup(self, name: str) -> str:
        """Read every byte of a backup. Returns what is wrong with it; empty: nothing."""

    def config(self) -> Json:
        """Every setting: (key, value, origin)."""
