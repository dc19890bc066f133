"""The volatile memory of the deciding thread: data that it keeps between two inputs, but does not need after a restart.

Newest readings, rates, requests that wait for an answer. Losing all of it costs one more second of sampling. Data that
must survive a restart is a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor.discovery import Extended, extended
from supervisor.model.inputs import Sample
from supervisor.model.state import Program
from supervisor.policy.box.foundations import Answer, Finding
from supervisor.policy.box.prechecks import StandingObjection
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.worker.absence import Absence
from supervisor.policy.worker.divergence import Losses
from supervisor.policy.worker.slowness import Pace
from supervisor.records import Record, replace


class Away(Record):
    """No daemon looked at the workers from `since_s` to `until_s`; `steps` are their known steps before that."""

    since_s: float
    until_s: float
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """Seconds of an attempt by the worker's phase that are not recorded yet (`deciding/time_spent.py`)."""

    from_s: float
    until_s: float  # time of the newest sign of progress
    seen_s: float  # time of the newest look
    doing: str  # the present phase
    default: str  # the default account: time without a record counts as this
    saves: int  # checkpoints counted so far
    sure: dict[str, float] = field(default_factory=dict)  # by phase, up to `until_s`
    open: dict[str, float] = field(default_factory=dict)  # by phase, since the newest sign of progress
    stall_s: float = 0.0  # seconds of the training that checkpoints blocked
    steps: int | None = None  # at the newest look


class IllnessSpell(Record):
    """An illness since `since_s`, recorded or not; `episodes`: games that had ended before it (None: unknown)."""

    since_s: float
    episodes: int | None


@dataclass(frozen=True)
class Observation:
    token: str
    sample: Sample
    progress_at_s: float | None = None  # the newest sign of progress; a failed reading does not reset it
    moves: int = 0  # number of signs of progress: the first few gaps do not count as learned gaps
    continued_at_s: float | None = None  # when it was sent SIGCONT for the present stall
    asked_at_s: float | None = None  # when evidence of the present stall was requested
    rates: tuple[float, ...] = ()
    pace: Pace = field(default_factory=Pace)
    steps_before: int = 0  # the steps that were added to its own count at the newest look
    most: int | None = None  # the furthest step since it resumed
    saves_s: tuple[float, ...] = ()  # when it wrote its newest own checkpoints
    silent: bool = False  # no step came for so long that its rate is not known
    slow_since_s: float | None = None
    slow_recorded: bool = False  # the slowness is recorded
    losses: Losses = field(default_factory=Losses)
    spells: dict[str, IllnessSpell] = field(default_factory=dict)  # by illness
    well_at: dict[str, int] = field(default_factory=dict)  # by illness: the newest step without it
    tally: Tally | None = None
    signal: str = ""  # the newest one by which an operator may have asked it to leave ...
    signal_at_s: float = 0.0
    left_steps: int | None = None  # at the first look after its command had left
    gpu_at_s: float | None = None  # when it was last seen as the only user of a GPU in use
    halts: dict[tuple[int, int, str], tuple[float | None, float]] = field(default_factory=dict)
    # Halted processes of its tree, by pid, start ticks and state: when that was recorded, and the time of the last action.


class Mark(NamedTuple):
    steps: int
    token: str  # of the attempt


class Tenure(Record):
    """Measurements of the level in force that are no fact yet (`deciding/levels.py`)."""

    level: str
    from_s: float
    seen_s: float
    ran_before: int = 0  # number of programs that trained when the level was changed; 0: no change, or unknown
    up_s: float = 0.0  # time with workers training, since the last review
    lost_s: float = 0.0  # training lost by the change: 1 s while none of the `ran_before` programs trains for 1 s
    settled: bool = False
    window_s: float = 0.0  # length of the window in which `gained` steps were made and kept
    gained: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)  # position of each program at the newest look


class Pending(Record):
    """A request that is answered once its programs are down (or up again)."""

    request_id: int
    waiting: tuple[str, ...]
    results: tuple[tuple[str, int, str], ...]
    text: str


class Trouble(Record):
    """The journal has been unwritable since `since_s`. No worker is started. The first commit that succeeds records it."""

    since_s: float
    since_wall_s: float
    error: str


class Standing(Record):
    """A present finding about a file or directory that the daemon relies on (`deciding/foundations.py`)."""

    finding: Finding
    since_s: float
    since_wall_s: float
    answer: Answer
    why: str
    troubled: bool = False  # at least once in this episode the answer was trouble
    recorded: bool = False  # a fact reports it


class Held(Record):
    """Why these programs (None: all) do not start, for whom (a feature), and until when at most.

    `for_good`: only the operator can end it.
    """

    by: str
    why: str
    programs: tuple[str, ...] | None = None
    until_s: float | None = None
    for_good: bool = False


@extended("record", "MEMORY")
@dataclass(frozen=True)
class Memory(Extended):
    """Volatile; replaced as a whole, never changed in place. Features have parts of their own (`memory.of(Delivering)`)."""

    boot_at_s: float | None = None
    looked_at_s: float | None = None
    overslept_s: float | None = None  # set by the loop after an unplanned pause: seconds since the previous input
    absences: tuple[Absence, ...] = ()  # the newest times in which this process did not run
    blind_until_s: float | None = None  # no worker is judged before this time
    away: Away | None = None  # the newest time in which no daemon looked
    watches: dict[str, Observation] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # newest steps/s by program, kept over attempts
    intervals_at_s: dict[str, float] = field(default_factory=dict)  # when each checkpoint interval was last chosen
    pending: tuple[Pending, ...] = ()
    gpus: Gpus | None = None  # at the newest look
    host: Host | None = None
    unread: dict[str, frozenset[str]] = field(default_factory=dict)  # by program: recorded reasons for unknown figures
    xids_recorded: int = 0  # number of the newest recorded Xid
    xids_at_s: dict[tuple[int, int], float] = field(default_factory=dict)  # when each (GPU, code) was last recorded
    needs_at_s: dict[str, float] = field(default_factory=dict)  # when a program's need was last recorded
    objections: dict[str, StandingObjection] = field(default_factory=dict)  # by rule of `policy/box/prechecks.py`
    tenure: Tenure | None = None
    trouble: Trouble | None = None  # set by the loop when a commit failed
    foundations: dict[str, Standing] = field(default_factory=dict)  # by name of the file or directory
    foundations_at_s: dict[str, float] = field(default_factory=dict)  # when each was last recorded
    gone: frozenset[str] = frozenset()  # tokens of live attempts that had no process at the last look
    saves_asked: dict[str, int] = field(default_factory=dict)  # by token: how often it was asked to save at once
    last_copy: str = ""  # why the end waits for a last copy off the box: the host's shutdown, SIGTERM, the operator
    ends_at_s: float | None = None  # after SIGTERM: when the box ends, by `[daemon] stop_within_s`
    held: tuple[Held, ...] = ()  # why programs do not start now
    end_waits_until_s: float | None = None  # the end waits until then for a last copy off the box
    ended: bool = False  # EndDaemon was issued

    def watch(self, name: str, token: str) -> Observation | None:
        found = self.watches.get(name)
        return found if found is not None and found.token == token else None

    def observed(self, program: Program) -> Observation | None:
        """The observation of its present attempt."""
        return None if program.attempt is None else self.watch(program.name, program.attempt.token)

    def showing(self, samples: Mapping[str, Sample]) -> Memory:
        """The memory with new readings for display only: no verdict uses them while the journal cannot be written.

        A reading that needs the rules of `deciding/healing.py` to be understood is left out.
        """
        fresh = {name for name, watch in self.watches.items() if not watch.silent and not watch.steps_before}
        watches = {
            name: replace(watch, sample=samples[name])
            if name in fresh and name in samples and samples[name].token == watch.token
            else watch
            for name, watch in self.watches.items()
        }
        return replace(self, watches=watches)

    def forget(self, name: str) -> Memory:
        """The memory without the program's observations: its attempt is over."""
        return replace(self, watches={k: v for k, v in self.watches.items() if k != name})
