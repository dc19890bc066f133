"""The few seams between the core and the world, as Protocols. Adapters fill them; tests/sim fills them with a fake."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Protocol

from supervisor.model.facts import JournalRestored, JournalSalvaged
from supervisor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from supervisor.model.facts import Fact, Stamped
    from supervisor.model.inputs import Input, Sample, Survivor
    from supervisor.model.settings import ProgramSpec
    from supervisor.policy.box.readings import Gpus
    from supervisor.policy.box.readings import Host as HostReading
    from supervisor.policy.upkeep.alerting import Notice

_TOGETHER_S: Final = 1e-4
_TRIES: Final = 50


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
    """By how much the wall clock is ahead of journal time.

    A thread can lose its processor between two readings, for a tenth of a second on a busy box: an account or a downtime
    would be wrong by as much. So the wall clock is read between two readings of the other clock, until these are close
    together; of all tries the closest one counts.
    """
    closest_s, ahead = _reading(clock)
    for _ in range(_TRIES):
        if closest_s <= _TOGETHER_S:
            break
        closest_s, ahead = min((closest_s, ahead), _reading(clock))
    return ahead


def _reading(clock: Clock) -> tuple[float, float]:
    """(how long the reading took, by how much the wall clock was ahead)."""
    before_s, at_wall_s, after_s = clock.now_s(), clock.wall_s(), clock.now_s()
    return after_s - before_s, at_wall_s - (before_s + after_s) / 2


class Inbox(Protocol):
    """Where adapters' threads post what happened. `post` never blocks and never raises."""

    def post(self, item: Input) -> None: ...


class JournalMoved(OSError):
    """The journal's open file is not the one at its path any more, and `why`: nothing was appended."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.ESTALE, why, path)
        self.why = why

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class Salvage:
    """What became of a damaged journal. `lost` is None when nobody can know how many facts it held.

    `damaged_path`: the name under which the damaged file is kept; empty: no file was left to keep.
    """

    damaged_path: str
    why: str
    saved: int
    lost: int | None

    def fact(self) -> JournalSalvaged:
        """As the rebuilt journal has it."""
        return JournalSalvaged(str(self), self.why, self.damaged_path, self.saved, self.lost)

    def __str__(self) -> str:
        lost = "an unknown number of facts is lost" if self.lost is None else f"{self.lost} facts are lost"
        kept = f"it is kept as {self.damaged_path}" if self.damaged_path else "the damaged file is gone"
        return f"the journal was damaged ({self.why}): {self.saved} facts were saved, {lost}; {kept}"


@dataclass(frozen=True, slots=True)
class Restored:
    """The journal was written anew while the daemon ran. `salvage`: not all of it could be read."""

    why: str
    kept: int
    found_kept_as: str = ""  # the file that had taken its place; empty: there was none
    salvage: Salvage | None = None

    def fact(self) -> JournalRestored:
        """As the restored journal has it, when nothing was lost."""
        found = f"; a file that was in its place is kept as {self.found_kept_as}" if self.found_kept_as else ""
        why = f"{self.why} while extralife ran: all {self.kept} facts were written to a new journal{found}"
        return JournalRestored(why, self.why, self.kept, self.found_kept_as)


class Journal(Protocol):
    """The durable record. `append` returns only once the facts survive a power cut."""

    @property
    def last_seq(self) -> int:
        """The number of the newest fact."""

    def append(self, facts: Sequence[Fact], *, at_s: float, wall_s: float, boot_id: str) -> list[Stamped]:
        """All of them in one transaction, or OSError and none of them."""
        ...

    def moved(self) -> str:
        """Why the open file is not the journal any more; empty: it is. Raises OSError when that cannot be known."""
        ...

    def restore(self, bridge: Callable[[Salvage], Sequence[Fact]], *, at_s: float, wall_s: float, boot_id: str) -> Restored:
        """After JournalMoved: write it anew at its path. Raises OSError. `bridge`: what to add where facts are lost."""
        ...

    def read(self, after_seq: int = 0) -> Iterable[Stamped]: ...

    def close(self) -> None: ...


class Launcher(Protocol):
    """Processes, or jobs of a cluster. All calls return at once; outcomes are posted to the inbox."""

    def spawn(self, spec: ProgramSpec, attempt: int, token: str, avoid: Sequence[str] = ()) -> None:
        """Start one attempt, on none of the nodes in `avoid`. Outcome: SpawnSucceeded, later Ended; or SpawnBroke."""
        ...

    def no_room(self) -> str | None:
        """Why no other program can run now; None when one can."""
        ...

    def refuse(self, program: str, token: str, error: str) -> None:
        """Nothing was started, and why: SpawnBroke."""
        ...

    def signal(self, program: str, token: str, signal: str) -> None: ...

    def continue_child(self, program: str, token: str, pid: int, start_ticks: int) -> None: ...

    def ask_to_leave(self, program: str, token: str) -> None: ...

    def kill_tree(self, program: str, token: str) -> None: ...

    def restore_run_dir(self, program: str, token: str) -> None: ...

    def adopt(self, program: str, survivor: Survivor) -> None:
        """Watch an attempt that an earlier daemon had started."""
        ...

    def survey(self, expected: dict[str, tuple[int, str]]) -> dict[str, Survivor]:
        """What became of the attempts (program -> (attempt, token)) that the journal believes alive. May block."""
        ...

    def unrecorded_workers(self, programs: Iterable[str]) -> dict[str, tuple[int, Survivor]]:
        """(attempt, Survivor) of each of these programs that runs although the journal knows of no start. May block."""
        ...


class Probes(Protocol):
    """Readings of live attempts: beats, sd_notify, logs, /proc."""

    def watch(self, spec: ProgramSpec, attempt: int, token: str, pid: int, *, adopted: bool = False) -> None: ...

    def beat_defect(self, program: str, token: str) -> str: ...

    def forget(self, program: str, token: str) -> None: ...

    def sample(self) -> dict[str, Sample]: ...


class GpuReader(Protocol):
    """Readings of the GPUs, taken by a thread of the adapter's own."""

    def newest(self) -> Gpus | None:
        """The newest ones; None before there are any. Never blocks, whatever the driver does."""
        ...


class HostReader(Protocol):
    """Readings of the host, taken by a thread of the adapter's own."""

    def newest(self) -> HostReading | None:
        """The newest ones; None when there are none, or only old ones. Never blocks."""
        ...


class Courier(Protocol):
    """Delivers alerts, in threads of the adapter's own. All calls return at once, and none of them raises."""

    def deliver(self, target: str, notice: Notice) -> None:
        """Try once; what came of it is posted to the inbox as AlertTried, whatever it is."""
        ...

    def tell(self, notice: Notice) -> None:
        """Put it into systemd's journal, where there is one."""
        ...

    def alarm(self, notice: Notice) -> None:
        """To everybody, now, without a record of it: the journal cannot be written."""
        ...

    def stop(self) -> None:
        """Nothing more is begun; what is under way is ended. Takes a second at the most."""
        ...
