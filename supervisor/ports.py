"""The few interfaces between the core and the outside world, as Protocols. Adapters implement them; tests/sim fakes them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Protocol

from supervisor.model.facts import JournalSalvaged
from supervisor.model.inputs import Input, OwnCheckpoint, Report, Sample, Survivor
from supervisor.model.settings import ProgramSpec
from supervisor.records import Record

_TOGETHER_S: Final = 1e-4
_TRIES: Final = 51

# A program's newest checkpoint of its own, by its name, its processes here and the time of its newest sign of progress
NewestOwn = Callable[[str, Iterable[int], float | None], OwnCheckpoint | None]


class Clock(Protocol):
    """Time. `now_s` is journal time (see model/inputs.py), `wall_s` is for people and calendars only."""

    def now_s(self) -> float: ...

    def wall_s(self) -> float: ...

    def from_boot_ns(self, at_ns: int) -> float:
        """A CLOCK_BOOTTIME stamp of this boot as journal time."""
        ...

    def to_boot_ns(self, at_s: float) -> int:
        """The inverse."""
        ...


def ahead_s(clock: Clock) -> float:
    """The seconds that the wall clock is ahead of journal time.

    A thread can lose its processor between two readings, for a tenth of a second on a busy box. An account or a downtime
    would be wrong by as much. So the wall clock is read between two readings of the other clock, until these two are close
    together. If they never are, the closest attempt counts.
    """
    closest_s, ahead = inf, 0.0
    for _ in range(_TRIES):
        before_s, at_wall_s, after_s = clock.now_s(), clock.wall_s(), clock.now_s()
        closest_s, ahead = min((closest_s, ahead), (after_s - before_s, at_wall_s - (before_s + after_s) / 2))
        if closest_s <= _TOGETHER_S:
            break
    return ahead


class Inbox(Protocol):
    """The queue for the inputs of adapters' threads. `post` never blocks and never raises."""

    def post(self, item: Input) -> None: ...


class JournalMoved(OSError):
    """The journal's path no longer leads to its open file; `why` has the reason. Nothing was appended."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.ESTALE, why, path)
        self.why = why

    def __str__(self) -> str:
        return self.why


class Salvage(Record):
    """The result of salvaging a damaged journal. `lost` is None if the number of lost facts is unknown.

    `damaged_path`: the name that the damaged file is kept under; empty if no file was left to keep.
    """

    damaged_path: str
    why: str
    saved: int
    lost: int | None

    def fact(self) -> JournalSalvaged:
        """The fact that the rebuilt journal records."""
        return JournalSalvaged(str(self), self.why, self.damaged_path, self.saved, self.lost)

    def __str__(self) -> str:
        lost = "1 fact is lost" if self.lost == 1 else f"{self.lost} facts are lost"
        lost = "an unknown number of facts is lost" if self.lost is None else lost
        kept = f"it is kept as {self.damaged_path}" if self.damaged_path else "the damaged file is gone"
        return f"the journal was damaged ({self.why}): {self.saved} facts were saved, {lost}; {kept}"


class Launcher(Protocol):
    """Starts programs. All calls except those marked "May block" return at once.

    Results are posted to the inbox. The defaults below are of a launcher that starts no process on this host.
    """

    def spawn(self, spec: ProgramSpec, attempt: int, token: str) -> None:
        """Start one attempt. Result: SpawnSucceeded, later Ended; or SpawnBroke."""
        ...

    def no_room(self) -> str | None:
        """Why no further program can run now; None if one can."""
        return None

    def refuse(self, program: str, token: str, error: str) -> None:
        """Report that nothing was started, and why: posts SpawnBroke."""
        ...

    def signal(self, program: str, token: str, signal: str) -> str:
        """Why the attempt's worker was not signalled, as a clause; empty: it was."""
        ...

    def continue_child(self, program: str, token: str, pid: int, start_ticks: int) -> None:
        return

    def ask_to_leave(self, program: str, token: str) -> None: ...

    def kill_tree(self, program: str, token: str) -> None: ...

    def start(self) -> None:
        """Begin to post ends. Call this once, before the first turn."""
        ...

    def close(self) -> None: ...

    def gone(self, tokens: Iterable[str]) -> frozenset[str]:
        """Which of these attempts have no process, while no thread reports their end. Needs no descriptor and no thread."""
        return frozenset()

    def report_end(self, program: str, number: int, token: str) -> None:
        """Report the end of an attempt that `gone` has named. Outcome: Ended."""
        return

    def adopt(self, program: str, number: int, survivor: Survivor) -> None:
        """Watch an attempt that an earlier daemon started. Its files that were removed are made again."""
        ...

    def survey(self, expected: dict[str, tuple[int, str]], *, reads: bool = True) -> dict[str, Survivor]:
        """The condition of attempts (program -> (attempt, token)) that run by the journal; `reads` all output. May block."""
        ...

    def unrecorded_workers(self, programs: Iterable[str]) -> dict[str, tuple[int, Survivor]]:
        """(attempt, Survivor) of each of these programs that runs without a recorded start in the journal. May block."""
        ...


class Probes(Protocol):
    """Readings of live attempts: beats, sd_notify, logs, /proc. The defaults are for programs on other hosts."""

    def watch(self, spec: ProgramSpec, attempt: int, token: str, pid: int, *, adopted: bool = False) -> None: ...

    def beat_defect(self, program: str, token: str) -> str:
        """The defect of an attempt's beat file, as a clause; empty: none that this host could repair."""
        return ""

    def log_taken(self, program: str, token: str, channel: str) -> tuple[int, int] | None:
        return None

    def forget(self, program: str, token: str) -> None: ...

    def sample(self) -> dict[str, Sample]: ...

    def reports(self) -> tuple[tuple[str, str, Report], ...]:
        """(program, token, report) of each new report."""
        ...

    def doing(self) -> dict[int, tuple[str, int]]:
        """The current activity of each worker that beats: process id -> (phase, environment steps so far)."""
        ...


class CalendarWork(Record):
    """Work that is due by a calendar; `input` makes the input for a due time, from now and that time."""

    name: str
    calendar: str
    input: Callable[[float, float], Input]
