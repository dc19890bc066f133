"""What the pages are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from supervisor.model.facts import Stamped
from supervisor.model.memory import Memory
from supervisor.model.recording import Drawn, Row, Sheet, Track
from supervisor.model.settings import Settings
from supervisor.model.state import Attempt, State
from supervisor.policy.upkeep.resolution import Held, Tier
from supervisor.reports.ledger import Ledger
from supervisor.reports.results_view import NewestResult

Json = dict[str, Any]


class Sources(Protocol):
    """Everything that a page may be made of, at one moment. A page asks for what it needs, and only that is read.

    There are two: a running daemon (`shell/backend.py`), and the files that a dead one left (`ctl/offline.py`).
    """

    @property
    def settings(self) -> Settings | None:
        """Those in force, with the present level's programs. None: the daemon is dead and its configuration unreadable."""

    @property
    def state(self) -> State:
        """The fold of the journal."""

    @property
    def memory(self) -> Memory:
        """The newest readings; of a dead daemon there are none."""

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
        """The longest time between two turns of its loop, of the last one to two minutes."""

    @property
    def version(self) -> str | None:
        """The daemon's. None: it is dead."""

    @property
    def release(self) -> str | None:
        """The directory whose code it runs."""

    @property
    def state_dir(self) -> str:
        """Where all of this lies."""

    def zone(self, wall_s: float) -> tuple[str, float]:
        """The box's local time at a moment of the wall clock: its name, and how many seconds it is ahead of UTC."""

    def last_sign(self) -> Json:
        """Of a dead daemon: when it was last there, and the sentence that says so. Empty: it runs."""

    def cgroups(self) -> Json | None:
        """How workers are confined (`adapters.process.cgroups.Cgroups.view`). None: nobody knows."""

    def http(self) -> Json | None:
        """The TCP port: {"listen", "error"}. None: there is none, or nobody knows."""

    def borne_out(self, program: Json, attempt: Attempt | None) -> Json:
        """A program's view, as far as its process bears it out where the record cannot be up to date."""

    def closed(self) -> tuple[Ledger, float]:
        """The ledger, closed at this moment, and the wall clock's time of it in seconds."""

    def facts(self, after_seq: int, kinds: Sequence[str]) -> Iterable[Stamped]:
        """Facts after a position, oldest first. Those of the archive too, if every kind asked for is lasting."""

    def recorded(self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]) -> Iterable[Row]:
        """Rows of the recorder from `since_s` to before `until_s`, oldest first; none while nothing was recorded."""

    def recorded_tracks(
        self, sheet: Sheet, tier: Tier, since_s: float, until_s: float, subjects: Sequence[str]
    ) -> dict[tuple[str, ...], Track]:  # fmt: skip
        """The same rows by subject, in columns."""

    def recorded_held(
        self, sheet: Sheet, since_s: float, until_s: float, subjects: Sequence[str], enough: int
    ) -> Sequence[Held]:  # fmt: skip
        """By tier, its oldest row, and how many of the window, counted up to `enough`. Empty: nothing was recorded."""

    def recorded_names(self) -> Collection[str]:
        """The key `names` of figures of scripts' own names, as far as there are rows of them."""

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterable[Drawn]:
        """The points that a program's workers have drawn for TensorBoard, in a stretch of the wall clock."""

    def results(self) -> Sequence[NewestResult]:
        """The newest whole test of every run."""

    def backups(self) -> list[Json]:
        """The backups on disk, the newest first (`adapters.backups.shown`)."""

    def backup_progress(self) -> Json | None:
        """How far the backup is that is being made. None: none is."""

    def check_backup(self, name: str) -> str:
        """Read every byte of a backup: what is wrong with it, empty if nothing is."""

    def config(self) -> Iterable[tuple[str, object, object]]:
        """Every setting: (key, value, origin)."""
