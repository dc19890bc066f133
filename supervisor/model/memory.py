"""What the deciding thread remembers between two inputs without needing it after a restart.

Newest readings, rates, requests that wait for an answer. Losing all of it costs a second of looking, nothing else;
whatever must survive is a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from supervisor.model.facts import JournalRestored
from supervisor.model.inputs import JobSight, Sample
from supervisor.model.settings import Settings
from supervisor.model.state import Program
from supervisor.policy.box.foundations import Finding
from supervisor.policy.box.prechecks import StandingObjection
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.worker.absence import Absence
from supervisor.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Settled:
    """A look at a live attempt that nothing followed from.

    Until `until_s` another look at the very same reading, with nothing changed in what is known of the program and in
    what was asked of it, can say nothing else.
    """

    sample: Sample
    program: Program
    settings: Settings
    until_s: float


@dataclass(frozen=True, slots=True)
class Away:
    """Nobody looked at the workers from `since_s` to `until_s`; `steps` is where they were before, where known."""

    since_s: float
    until_s: float
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """Seconds of an attempt by the worker's phase that are not recorded yet (`deciding/time_spent.py`)."""

    from_s: float
    until_s: float  # to the newest sign of progress
    seen_s: float  # to the newest look
    doing: str
    told: str  # the account of time that is not recorded otherwise
    saves: int  # checkpoints counted so far
    sure: dict[str, float] = field(default_factory=dict)
    open: dict[str, float] = field(default_factory=dict)  # since the newest sign of progress
    stall_s: float = 0.0  # of the training, for checkpoints
    steps: int | None = None  # at the newest look


@dataclass(frozen=True, slots=True)
class IllnessSpell:
    """An illness that has shown since `since_s`, recorded or not; `episodes` had ended before it (None: unknown)."""

    since_s: float
    episodes: int | None


@dataclass(frozen=True)
class Observation:
    """What was lately seen of one attempt."""

    token: str
    sample: Sample
    progress_at_s: float | None = None  # the newest sign of progress; a reading that fails does not undo it
    moves: int = 0  # how often progress was seen to move: the first few gaps are not learned from
    continued_at_s: float | None = None
    asked_at_s: float | None = None  # evidence of the present stall was asked for then
    rates: tuple[float, ...] = ()
    slow_since_s: float | None = None
    slow_told: bool = False
    fine_step: int | None = None  # at the last look before those
    nan_since_s: float | None = None  # every sample with progress since then reported additional non-finite updates
    spells: dict[str, IllnessSpell] = field(default_factory=dict)  # by illness
    well_at: dict[str, int] = field(default_factory=dict)  # the newest step at which it did not have it
    tally: Tally | None = None
    gpu_at_s: float | None = None  # when its GPU was last seen in use by it alone
    halts: dict[tuple[int, int, str], tuple[float | None, float]] = field(default_factory=dict)
    # of its tree, by pid, start ticks and state: when that was put on record, and when something was last done about it


class Mark(NamedTuple):
    """Where a program was."""

    steps: int
    token: str  # of the attempt


@dataclass(frozen=True, slots=True)
class Tenure:
    """What was lately seen of the level in force and is no fact yet (`levels.py`)."""

    level: str
    from_s: float
    seen_s: float
    ran_before: int = 0  # how many trained when the level was changed; 0: it was not, or nobody knows
    up_s: float = 0.0  # with workers training, since the last review
    lost_s: float = 0.0  # of the training that went on before the change, as a share of all that trained
    settled: bool = False
    window_s: float = 0.0  # in which `gained` steps were made and kept
    gained: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)  # where each program was at the newest look


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that is answered once its programs are down (or up again)."""

    request_id: int
    waiting: tuple[str, ...]
    results: tuple[tuple[str, int, str], ...]
    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The journal has been unwritable since then. Nothing is started. The first turn that can write records this first."""

    since_s: float
    since_wall_s: float
    error: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A finding about something that the daemon relies on, and since when it stands (`foundations.py`)."""

    finding: Finding
    since_s: float
    since_wall_s: float
    why: str
    troubled: bool = False  # at some time of this episode it could not be restored
    recorded: bool = False  # a fact reports it


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """How a target of alerts is just now: an alert is on its way to it, or it is left alone until `retry_at_s`."""

    sending: str = ""  # the alert's id
    failures: int = 0
    retry_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was begun because of a notice that this box ends (`deciding/notices.py`)."""

    since_s: float
    saving: tuple[tuple[str, str], ...] = ()  # (program, token) of those that were asked to save
    then: tuple[str, ...] = ()  # programs that are asked when those have saved
    copy_by_s: float | None = None  # None: a copy was requested already, or none is wanted


@dataclass(frozen=True)
class Memory:
    """Volatile; replaced as a whole, never changed in place."""

    boot_at_s: float | None = None
    looked_at_s: float | None = None
    overslept_s: float | None = (
        None  # set by the loop: so long it took from the turn before to this one, which was not asked for
    )
    absences: tuple[Absence, ...] = ()  # the newest times in which this process did not run
    blind_until_s: float | None = None
    away: Away | None = None  # the newest time in which nobody looked
    watches: dict[str, Observation] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # newest steps/s by program, kept over attempts
    intervals_at_s: dict[str, float] = field(default_factory=dict)  # when each checkpoint interval was last chosen
    pending: tuple[Pending, ...] = ()
    settled: dict[str, Settled] = field(default_factory=dict)  # by program
    gpus: Gpus | None = None  # at the newest look
    host: Host | None = None
    unread: dict[str, str] = field(default_factory=dict)  # why a program's own output is not read, as it was last recorded
    xids_told: int = 0  # number of the newest one that was recorded
    xids_at_s: dict[tuple[int, int], float] = field(default_factory=dict)  # when each (GPU, code) was last put on record
    needs_at_s: dict[str, float] = field(default_factory=dict)  # when a program's need was last put on record
    objections: dict[str, StandingObjection] = field(default_factory=dict)  # by rule of `policy/box/prechecks.py`
    tenure: Tenure | None = None
    trouble: Trouble | None = None  # set by the loop when a commit failed
    restored: JournalRestored | None = None  # set by the loop: the first fact of the next turn
    foundations: dict[str, Standing] = field(default_factory=dict)  # by name of the watched thing
    foundations_at_s: dict[str, float] = field(default_factory=dict)  # when each was last put on record
    backups_begun: frozenset[str] = frozenset()  # what this daemon has asked its thread of backups to do
    reaching: dict[str, DeliveryState] = field(default_factory=dict)  # by target of alerts
    offsite: str = ""  # what the thread of copies off the box is doing for this daemon; empty: nothing
    offsite_looked: str = ""  # the repository (`OffsiteSettings.place`) whose lease this daemon has asked for, and when
    offsite_looked_s: float = 0.0
    offsite_asked: tuple[str, ...] = ()  # what the operator or the calendar asked for and is not begun yet
    offsite_first_look_s: float | None = None  # no program starts before the lease is read, or before this moment
    offsite_until_s: float | None = None  # the end waits for a last copy until then
    offsite_cause: str = ""  # of the copy that it makes
    rescues: dict[str, Rescue] = field(default_factory=dict)  # by the id of a notice
    end_told: dict[str, float | None] = field(default_factory=dict)  # who was told of the end, by token: and of which moment
    saves_asked: dict[str, int] = field(default_factory=dict)  # by token: how often it was asked to save at once
    notice_errors: dict[str, str] = field(default_factory=dict)  # sources of notices that cannot be read
    jobs: dict[str, JobSight] = field(default_factory=dict)  # by program, at the newest look at the cluster's queue
    host_ends: bool = False  # the host goes down in order
    ended: bool = False  # EndDaemon was given

    @property
    def holds_starts(self) -> bool:
        """Whether no worker may be started now: something that a start relies on is not in place."""
        return any(each.finding.holds_starts for each in self.foundations.values())

    def lease_awaited_until_s(self, now_s: float) -> float | None:
        """No worker is started before this moment: another box may have taken over, and the repository has not answered."""
        until_s = self.offsite_first_look_s
        return until_s if until_s is not None and now_s < until_s else None

    def watch(self, name: str, token: str) -> Observation | None:
        found = self.watches.get(name)
        return found if found is not None and found.token == token else None

    def showing(self, samples: Mapping[str, Sample]) -> Memory:
        """The newest readings for people alone: nothing is judged by them while the journal cannot be written."""
        watches = {
            name: replace(watch, sample=samples[name]) if name in samples and samples[name].token == watch.token else watch
            for name, watch in self.watches.items()
        }
        return replace(self, watches=watches)

    def forget(self, name: str) -> Memory:
        """The program's attempt is over."""
        return replace(self, watches={k: v for k, v in self.watches.items() if k != name})
