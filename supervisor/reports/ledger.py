"""The ledger: a fold over the journal that books every second of every program and slot (`policy/upkeep/accounting.py`).

    ledger = Ledger()
    for stamped in journal:
        ledger.add(stamped)
    at_now = ledger.closed(now_s)        # a copy, booked up to this moment
    reports/accounts.py                     # totals, windows and figures drawn from it

Used by the daemon's API, by `extralifectl accounts` on the journal of a dead daemon, and by the simulator, which checks
whether everything adds up (`tests/adding_up.py`).

How it works. A program's timeline is a sequence of *slices*, end to end from the moment of its configuration. Each has a
start, an end and the seconds by account that add up to its length. A fact closes the open slice and opens the next one. Some
facts report about the past (`Stalled`: no progress for 31 s; `Tallied`: seconds in each phase; `Resumed`: back at step 900;
`HostRebooted`: off since then). They change closed slices, which are cut where necessary. A cut divides the seconds of a
slice in proportion, because their order inside the slice is unknown.

LOST is computed from steps, not from the clock. `marks` are moments at which the step is known. Work beyond the step from
which a worker resumes was computed in vain. Between two marks, steps are taken as even over the computing time.

The ledger is changed in place, for speed: a journal of three weeks is folded in well under a second. It reads no clock, and
the same facts give the same ledger, in one call or in several.

The table by day. Older slices and marks are merged by local day and level (`merge`), so a record of years stays small. A
window that begins or ends within such a day has its share of it. Facts change older days only by LOST and UNKNOWN.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, pairwise
from math import fsum, inf
from typing import Any, Final, NamedTuple, TypeVar

from supervisor import wall_clock
from supervisor.model import facts
from supervisor.model.codec import of_text
from supervisor.model.facts import Stamped
from supervisor.model.fold import RECORDS
from supervisor.model.lifecycle import Phase
from supervisor.model.state import State
from supervisor.policy.upkeep.accounting import Account, booked_as

ROUNDING_S: Final = 1e-6
R = TypeVar("R", "Interruption", "ResumeCost", "RebootEntry", "TakeOver")


class Slice(NamedTuple):
    """A stretch of a program's time. `holds`: the program has an attempt, and so a slot."""

    start_s: float
    end_s: float
    seconds: Mapping[Account, float]
    holds: bool

    def cut(self, at_s: float) -> tuple[Slice, Slice]:
        """Cut the slice in two, at a moment inside it."""
        share = (at_s - self.start_s) / (self.end_s - self.start_s)
        left = {account: seconds * share for account, seconds in self.seconds.items()}
        right = {account: seconds - left[account] for account, seconds in self.seconds.items()}
        return Slice(self.start_s, at_s, left, self.holds), Slice(at_s, self.end_s, right, self.holds)


class Interruption(NamedTuple):
    """One interruption of a program: it stalled, died, or ended with the host. None: not yet."""

    kind: str  # stall, death, reboot
    failed_at_s: float
    at_s: float  # when it was detected
    trains_at_s: float | None = None


class ResumeCost(NamedTuple):
    """The work lost by a resume. None: unknown. `seconds` is the time booked as LOST."""

    at_s: float
    steps: int | None
    seconds: float | None
    again: bool  # the program had trained before
    cause: str = ""  # cause of the previous attempt's end


@dataclass(slots=True)
class ProgramTimeline:
    """One program from `ProgramConfigured` to `ProgramRemoved`."""

    name: str
    from_s: float  # when it came into the config
    since_s: float  # slices are closed up to here; later time belongs to `account`
    account: Account
    service: bool = False  # it takes no slot
    slices: list[Slice] = field(default_factory=list)
    token: str | None = None  # of the attempt that runs
    began_s: float = 0.0  # begin of that attempt
    ready: bool = False
    stalled: bool = False
    settled_s: float = 0.0  # time of this attempt up to here is known: by a `Tallied`, a stall or the request to exit
    marks: list[tuple[float, float]] = field(default_factory=list)  # (moment, step), both rising
    incidents: list[Interruption] = field(default_factory=list)
    ended_incidents: int = 0  # number of incidents that are over
    losses: list[ResumeCost] = field(default_factory=list)
    unproven_s: float = -1.0  # up to here, training without proof is booked as UNKNOWN
    merged_s: float = -1.0  # slices and marks up to here are merged by day

    def copy(self) -> ProgramTimeline:
        return replace(
            self, slices=[*self.slices], marks=[*self.marks], incidents=[*self.incidents], losses=[*self.losses],
        )  # fmt: skip

    # --- the table by day --------------------------------------------------------------------------------------------

    def merge(self, bounds: Sequence[float]) -> None:
        """Have one slice and one mark for each stretch between two neighbouring bounds, which rise."""
        count = max(0, bisect_right(self.marks, bounds[-1], key=_moment) - 2)  # the next fact needs the two newest
        if count:
            first, begins_s = max(1, bisect_right(self.marks[:count], bounds[0], key=_moment)), self.marks[count][0]
            moments = [at_s for at_s in bounds if self.marks[first - 1][0] < at_s < begins_s]
            self.marks[first:count] = [(at_s, step_at(self.marks, at_s)) for at_s in moments]
        known_s = self.marks[-2:][0][0] if self.marks else inf  # a loss is computed from the slices since then
        done = [at_s for at_s in bounds if at_s <= known_s]
        if len(done) > 1:
            merged = (_as_one(list(self.within(*each))) for each in pairwise(done))
            self.slices = [*self.within(-1.0, done[0]), *filter(None, merged), *self.within(done[-1], inf)]
        self.merged_s = bounds[-1]

    def within(self, since_s: float, until_s: float) -> Iterator[Slice]:
        return within(self.slices, since_s, until_s)

    # --- booking -----------------------------------------------------------------------------------------------------

    def switch(self, at_s: float, account: Account) -> None:
        """Close the account in use at `at_s`, and book later time to `account`."""
        self.close(at_s)
        self.account = account

    def close(self, at_s: float) -> None:
        """Book the time up to this moment."""
        start_s, holds = self.since_s, self.token is not None
        if at_s <= start_s:
            return
        self.since_s = at_s
        if self.slices:
            last = self.slices[-1]
            if last.end_s == start_s and last.holds == holds and last.seconds.keys() == {self.account}:
                self.slices[-1] = Slice(last.start_s, at_s, {self.account: at_s - last.start_s}, holds)
                return
        self.slices.append(Slice(start_s, at_s, {self.account: at_s - start_s}, holds))

    def rebook(self, from_s: float, to_s: float, change: Callable[[Slice], Slice]) -> None:
        """Change the slices between two moments; slices that cross a moment are cut there. Merged ones stay as they are."""
        self._change(max(from_s, self.merged_s), to_s, change)

    def _change(self, from_s: float, to_s: float, change: Callable[[Slice], Slice]) -> None:
        behind: list[Slice] = []
        while to_s > from_s and self.slices and self.slices[-1].end_s > from_s:
            piece = self.slices.pop()
            if piece.start_s >= to_s:
                behind.append(piece)
                continue
            if piece.end_s > to_s:
                piece, right = piece.cut(to_s)
                behind.append(right)
            if piece.start_s < from_s:
                left, piece = piece.cut(from_s)
                self.slices.append(left)
            behind.append(change(piece))
        self.slices.extend(reversed(behind))

    def computed_s(self, from_s: float, to_s: float) -> float:
        """Seconds of training between two moments that are not lost."""
        found = 0.0
        for piece in reversed(self.slices):
            if piece.end_s <= from_s:
                break
            if piece.start_s >= to_s:
                continue
            inside = (min(piece.end_s, to_s) - max(piece.start_s, from_s)) / (piece.end_s - piece.start_s)
            found += inside * piece.seconds.get(Account.TRAINING, 0.0)
        return found

    def lose_proof(self) -> None:
        """Book as UNKNOWN the training before this attempt."""
        self._change(self.unproven_s, self.began_s, _unproven)
        self.unproven_s = self.began_s

    # --- steps -------------------------------------------------------------------------------------------------------

    def mark(self, at_s: float, step: int | None) -> None:
        """Note that the step is known at this moment. If the step was reached before, the earlier moment counts."""
        if step is None:
            return
        if self.marks:
            last_s, last_step = self.marks[-1]
            if step <= last_step:
                return
            at_s = max(at_s, last_s)
        self.marks.append((at_s, step))

    def roll_back(self, at_s: float, step: int, reported_s: float | None) -> float | None:
        """Book as LOST the work beyond `step` from before this attempt. Returns its seconds; None: unknown."""
        ahead: tuple[float, float] | None = None
        while self.marks and self.marks[-1][1] > step:
            ahead = self.marks.pop()
        known = self.marks[-1] if self.marks else None
        lost_s = self._behind(step, known, ahead, reported_s)
        left_s = 0.0 if lost_s is None else self._lose(lost_s)
        if known is not None and known[1] == step:
            self.marks.pop()
        self.marks.append((at_s, step))
        return None if lost_s is None else lost_s - left_s

    def _behind(
        self, step: int, known: tuple[float, float] | None, ahead: tuple[float, float] | None, reported_s: float | None
    ) -> float | None:
        """Seconds of training beyond a step: all since the next mark, and a share of the time between its two marks."""
        if known is None and ahead is None:
            return reported_s if reported_s is not None or self.computed_s(-1.0, self.began_s) > 0 else 0.0
        from_s, low = (-1.0, 0) if known is None else known
        if ahead is not None:
            between_s = self.computed_s(from_s, ahead[0])
            share = 1.0 if known is None else (ahead[1] - step) / (ahead[1] - low)
            return self.computed_s(ahead[0], self.began_s) + between_s * share
        since_s = self.computed_s(from_s, self.began_s)
        rate = self._rate()
        if step == low:
            return since_s
        if rate is None:
            return min(since_s, reported_s) if reported_s is not None else None if since_s > 0 else 0.0
        return max(0.0, since_s - (step - low) / rate)

    def _rate(self) -> float | None:
        """Steps per second of training between the two newest marks."""
        if len(self.marks) < 2:
            return None
        (from_s, low), (to_s, high) = self.marks[-2:]
        took_s = self.computed_s(from_s, to_s)
        return (high - low) / took_s if took_s > 0 else None

    def _lose(self, lost_s: float) -> float:
        """Book the newest `lost_s` seconds of training before this attempt as LOST. Returns the seconds not found."""
        behind: list[Slice] = []
        while lost_s > 0 and self.slices:
            piece = self.slices.pop()
            if piece.start_s < self.began_s < piece.end_s:  # this attempt trained at once: the slice covers both
                piece, own = piece.cut(self.began_s)
                behind.append(own)
            had_s = piece.seconds.get(Account.TRAINING, 0.0)
            if had_s > 0 and piece.start_s < self.began_s:
                if len(piece.seconds) == 1 and had_s > lost_s:
                    # The whole slice is training, so its end is the lost part.
                    from_s = piece.end_s - lost_s
                    if from_s >= piece.end_s:  # less than the precision of a float
                        self.slices.append(piece)
                        break
                    if from_s > piece.start_s:  # what would be left may be less than that precision, too
                        left, piece = piece.cut(from_s)
                        self.slices.append(left)
                        had_s = lost_s
                taken = min(1.0, lost_s / had_s)
                lost_s -= had_s * taken
                piece = _moved(piece, Account.LOST, taken)
            behind.append(piece)
        self.slices.extend(reversed(behind))
        return max(0.0, lost_s)


def _moment(mark: tuple[float, float]) -> float:
    return mark[0]


def step_at(marks: Sequence[tuple[float, float]], at_s: float) -> float:
    """The step at a moment, interpolated between marks; before the first or after the last mark, the step of that mark."""
    place = bisect_right(marks, at_s, key=_moment)
    if place == 0:
        return marks[0][1]
    if place == len(marks):
        return marks[-1][1]
    (from_s, low), (to_s, high) = marks[place - 1], marks[place]
    return low + (high - low) * (at_s - from_s) / (to_s - from_s)


def recorded(items: Sequence[R], since_s: float, until_s: float) -> Iterator[R]:
    """The items that were recorded in a window, also at its end. They are in the order of time."""
    first, last = (bisect_right(items, at_s, key=lambda each: each.at_s) for at_s in (since_s, until_s))
    return islice(items, first, last)


def within(slices: Sequence[Slice], since_s: float, until_s: float) -> Iterator[Slice]:
    """The slices of a window, cut at its ends. They are in the order of time."""
    for place in range(bisect_right(slices, since_s, key=lambda each: each.end_s), len(slices)):
        piece = slices[place]
        if piece.start_s >= until_s:
            return
        piece = piece.cut(since_s)[1] if piece.start_s < since_s else piece
        yield piece.cut(until_s)[0] if piece.end_s > until_s else piece


def _as_one(pieces: Sequence[Slice]) -> Slice | None:
    """One slice in place of neighbours; None: there are none."""
    if not pieces:
        return None
    seconds: dict[Account, float] = {}
    for piece in pieces:
        for account, each_s in piece.seconds.items():
            seconds[account] = seconds.get(account, 0.0) + each_s
    return Slice(pieces[0].start_s, pieces[-1].end_s, seconds, holds=False)


def _moved(piece: Slice, account: Account, share: float = 1.0) -> Slice:
    """The slice with a share of its training booked to this account."""
    out = dict(piece.seconds)
    trained_s = out.pop(Account.TRAINING, 0.0)
    if share < 1.0:
        out[Account.TRAINING] = trained_s * (1.0 - share)
    return piece._replace(seconds={**out, account: out.get(account, 0.0) + trained_s * share}) if trained_s else piece


def _unproven(piece: Slice) -> Slice:
    return _moved(piece, Account.UNKNOWN)


def _all(account: Account, *, holds: bool | None = None) -> Callable[[Slice], Slice]:
    """A change that books a whole slice to `account`."""
    return lambda piece: Slice(
        piece.start_s, piece.end_s, {account: piece.end_s - piece.start_s}, piece.holds if holds is None else holds
    )


def _away(account: Account) -> Callable[[Slice], Slice]:
    """Book a slice to this account, except if the program was idle or down already: it lost nothing then."""
    return lambda piece: piece if piece.seconds.keys() <= _GONE else _all(account)(piece)


def _off(piece: Slice) -> Slice:
    """Book a slice to DOWN, except if the program was idle."""
    return piece if piece.seconds.keys() <= {Account.IDLE} else _all(Account.DOWN, holds=False)(piece)


_BEGINS: Final = {
    **dict.fromkeys((Phase.QUEUED, Phase.GATED), Account.WAITING),
    **dict.fromkeys((Phase.STARTING, Phase.STOPPING, Phase.BACKOFF), Account.RESTARTING),
    **dict.fromkeys((Phase.DONE, Phase.STOPPED, Phase.FATAL, Phase.EXITED), Account.IDLE),
    Phase.RUNNING: Account.TRAINING,
}
_GONE: Final = frozenset({Account.IDLE, Account.DOWN})


class JobTime(NamedTuple):
    """A job of a cluster, from the time at which it was first seen on a node. `gpus` None: not known."""

    begin_s: float
    end_s: float
    account: str
    partition: str
    gpus: int | None


class RebootEntry(NamedTuple):
    at_s: float  # the boot
    moved: bool  # it was the start of another box


class TakeOver(NamedTuple):
    """This box continues the trainings of another one. None: not known, or not yet."""

    at_s: float  # when it knew that it holds their copies
    box: str
    since_s: float | None  # last known sign of life of that box
    trains_s: float | None = None  # since when a program trains here


@dataclass(slots=True)
class Ledger:
    """The timelines of all programs, and the levels with their slots."""

    first_s: float | None = None
    counted_s: float = 0.0  # time before this moment is not counted yet
    at_s: float = 0.0
    wall_s: float = 0.0
    timelines: dict[str, ProgramTimeline] = field(default_factory=dict)
    ended: list[ProgramTimeline] = field(default_factory=list)  # of programs that left the config
    levels: list[tuple[float, str, int]] = field(default_factory=list)  # (from when, name, slots)
    reboots: list[RebootEntry] = field(default_factory=list)
    take_overs: list[TakeOver] = field(default_factory=list)
    jobs: list[JobTime] = field(default_factory=list)  # jobs that are over
    running: dict[str, JobTime] = field(default_factory=dict)  # by program
    stopped_at_s: float | None = None  # when the daemon ended in order; None: it did not
    clocks: list[tuple[float, float]] = field(default_factory=list)  # (journal time, wall clock) whenever it may have moved
    merged: list[Slice] = field(default_factory=list)  # slot-seconds of merged time, without what `of_program` counts
    seq: int = 0

    @property
    def merged_s(self) -> float:
        """Time up to here is merged by day."""
        return self.merged[-1].end_s if self.merged else -1.0

    def as_json(self) -> dict[str, Any]:
        """The ledger as values for `json.dumps`."""
        return _values(self) | {
            "timelines": {name: _values(timeline) for name, timeline in self.timelines.items()},
            "ended": [_values(timeline) for timeline in self.ended],
        }  # fmt: skip

    @staticmethod
    def of_json(values: dict[str, Any]) -> Ledger:
        more = {
            "timelines": {name: _timeline(each) for name, each in values["timelines"].items()},
            "ended": [_timeline(each) for each in values["ended"]], "merged": list(map(_slice, values["merged"])),
            "levels": [tuple(each) for each in values["levels"]], "clocks": [tuple(each) for each in values["clocks"]],
            "reboots": [RebootEntry(*each) for each in values["reboots"]],
            "take_overs": [TakeOver(*each) for each in values["take_overs"]],
            "jobs": [JobTime(*each) for each in values["jobs"]],
            "running": {name: JobTime(*each) for name, each in values["running"].items()},
        }  # fmt: skip
        return Ledger(**(values | more))

    def _begin_timeline(self, name: str, at_s: float, account: Account, *, service: bool) -> ProgramTimeline:
        timeline = self.timelines[name] = ProgramTimeline(name, at_s, at_s, account, service)
        return timeline

    def copy(self) -> Ledger:
        """A copy that can be changed independently."""
        return replace(
            self, timelines={name: timeline.copy() for name, timeline in self.timelines.items()},
            ended=[timeline.copy() for timeline in self.ended],
            levels=[*self.levels], reboots=[*self.reboots], clocks=[*self.clocks], jobs=[*self.jobs], merged=[*self.merged],
            running=dict(self.running), take_overs=[*self.take_overs],
        )  # fmt: skip

    def closed(self, now_s: float, last_sign_s: float | None = None) -> Ledger:
        """A copy that is booked up to now. `last_sign_s`: the daemon is dead, and this was its last sign of life."""
        out = self.copy()
        now_s = max(now_s, out.at_s)
        if out.first_s is None:
            out.first_s = now_s
        if out.stopped_at_s is not None or last_sign_s is not None:
            out._book_daemon_down(max(out.at_s, min(last_sign_s or 0.0, now_s)), now_s, out._without_daemon)
        for timeline in out.timelines.values():
            timeline.close(now_s)
        out.at_s = now_s
        return out

    def all_timelines(self) -> list[ProgramTimeline]:
        """The timelines of all programs, also of those that left the config; these come first."""
        return [*self.ended, *self.timelines.values()]

    def all_jobs(self) -> list[JobTime]:
        """All jobs of a cluster; the end of a running job is now."""
        return [*self.jobs, *(job._replace(end_s=max(job.begin_s, self.at_s)) for job in self.running.values())]

    def trainings(self) -> list[ProgramTimeline]:
        return [timeline for timeline in self.all_timelines() if not timeline.service]

    # --- the box -----------------------------------------------------------------------------------------------------

    def add(self, stamped: Stamped) -> None:
        fact, at_s = stamped.fact, stamped.at_s
        if self.first_s is None:
            self.first_s = self.at_s = at_s
        self.seq, self.wall_s = stamped.seq, stamped.wall_s
        if isinstance(fact, facts.ProgramFact):
            self._program(at_s, fact)
        else:
            self._box(stamped, fact)
        self.at_s = at_s

    def _box(self, stamped: Stamped, fact: facts.Fact) -> None:
        at_s = stamped.at_s
        match fact:
            case facts.LevelChosen(level=level, slots=slots):
                self.levels.append((at_s, level, slots))
            case facts.HostRebooted():
                self._rebooted(stamped, fact)
            case facts.ClockSet(step_s=step_s):
                self.clocks = [(then_s, wall_clock.mended(wall_s, step_s)) for then_s, wall_s in self.clocks]
                self.clocks.append((at_s, stamped.wall_s))
            case facts.ClockStepped():
                self.clocks.append((at_s, stamped.wall_s))
            case facts.DaemonStarted(last_sign_s=last_sign_s):
                self.clocks.append((at_s, stamped.wall_s))
                self._book_daemon_down(self._since(last_sign_s, at_s), at_s, self._without_daemon)
                self.stopped_at_s = None
            case facts.OffsiteHeld(after=box, since_s=since_s) if box:
                ready = any(each.ready and each.token for each in self.trainings())  # it did not wait for the lease
                self.take_overs.append(TakeOver(at_s, box, since_s, at_s if ready else None))
            case facts.DaemonSuspended(gap_s=gap_s):
                self._book_daemon_down(max(self.first_s or 0.0, at_s - gap_s), at_s, Account.DOWN)
            case facts.DaemonStopped():
                self.stopped_at_s = at_s
            case facts.Snapshot(state=text) if not self.timelines:
                self._opened(of_text(State, text), stamped)
            case _:
                pass

    def _opened(self, state: State, stamped: Stamped) -> None:
        """Begin all timelines with the state of a snapshot: earlier facts are no longer in the journal."""
        self.levels.append((stamped.at_s, state.level, state.slots))
        self.clocks.append((stamped.at_s, stamped.wall_s))
        for name, program in state.programs.items():
            begins = Account.DOWN if program.waits_for_gpu else _BEGINS[program.phase]
            timeline = self._begin_timeline(name, stamped.at_s, begins, service=program.service)
            timeline.mark(stamped.at_s, program.steps)
            if program.attempt is not None:
                timeline.token, timeline.began_s = program.attempt.token, program.attempt.intended_at_s
                timeline.ready, timeline.stalled = program.attempt.ready_at_s is not None, program.attempt.stall is not None
                timeline.account = Account.RESTARTING if timeline.stalled else timeline.account
        for record in (getattr(state, name) for name, of in RECORDS.items() if hasattr(of, "running")):
            for name, used in record.running().items():
                self.running[name] = JobTime(stamped.at_s, stamped.at_s, *used)

    def _since(self, last_sign_s: float | None, at_s: float) -> float:
        """The previous daemon's last sign of life, at the earliest its last fact."""
        if self.stopped_at_s is not None or last_sign_s is None:
            return self.at_s
        return min(at_s, max(self.at_s, last_sign_s))

    @property
    def _without_daemon(self) -> Account:
        """The account of a time without a daemon: nobody loses anything while the operator wants none."""
        return Account.DOWN if self.stopped_at_s is None else Account.IDLE

    def _book_daemon_down(self, from_s: float, to_s: float, account: Account) -> None:
        for timeline in self.timelines.values():
            timeline.close(to_s)
            timeline.rebook(max(from_s, timeline.settled_s), to_s, _away(account))

    def _rebooted(self, stamped: Stamped, fact: facts.HostRebooted) -> None:
        """Book a reboot: the box was off from the last sign of life to the boot, and had no daemon from the boot to now."""
        at_s = stamped.at_s
        off_s = self.at_s if fact.last_sign_s is None else min(at_s, max(self.at_s, fact.last_sign_s))
        boot_s = at_s if fact.boot_wall_s is None else at_s - (stamped.wall_s - fact.boot_wall_s)
        boot_s = min(at_s, max(off_s, boot_s))
        self._book_daemon_down(self.at_s if self.stopped_at_s is not None else off_s, at_s, Account.DOWN)
        for timeline in self.timelines.values():
            timeline.rebook(off_s, boot_s, _off)
            timeline.rebook(boot_s, at_s, lambda piece: piece._replace(holds=False))
            if timeline.token is not None:
                self._fail(timeline, "reboot", off_s, at_s)
        self.reboots.append(RebootEntry(boot_s, fact.cause == "moved"))
        self.stopped_at_s = None

    # --- programs ----------------------------------------------------------------------------------------------------

    def _program(self, at_s: float, fact: facts.ProgramFact) -> None:
        timeline = self.timelines.get(fact.program)
        if timeline is None:
            if isinstance(fact, facts.ProgramConfigured):
                account = Account.WAITING if fact.autostart else Account.IDLE
                self._begin_timeline(fact.program, at_s, account, service=fact.service)
            return
        match fact:
            case facts.SpawnIntended(token=token):
                timeline.switch(at_s, Account.RESTARTING)
                timeline.token, timeline.began_s = token, at_s
                timeline.ready = timeline.stalled = False
            case facts.BackedOff():
                self._left(timeline, at_s, Account.RESTARTING)
            case facts.Gated(lost=lost):
                self._left(timeline, at_s, Account.DOWN if lost else Account.WAITING)
            case facts.Requeued():
                self._left(timeline, at_s, Account.WAITING)
            case facts.Finished() | facts.NotRestarted() | facts.GaveUp() | facts.StayedDown():
                self._left(timeline, at_s, Account.IDLE)
                timeline.ended_incidents = len(timeline.incidents)  # it is not expected to train any more
            case facts.ProgramRemoved():
                self._job_over(timeline.name, at_s)
                timeline.close(at_s)
                self.ended.append(self.timelines.pop(fact.program))
            case facts.JobStarted(token=token) if token == timeline.token:
                self.running[timeline.name] = JobTime(at_s, at_s, fact.account, fact.partition, fact.gpus)
            case facts.AttemptFact(token=token) if token == timeline.token:
                self._attempt(timeline, at_s, fact)
            case _:
                pass

    def _job_over(self, name: str, at_s: float) -> None:
        job = self.running.pop(name, None)
        if job is not None:
            self.jobs.append(job._replace(end_s=max(job.begin_s, at_s)))

    def _left(self, timeline: ProgramTimeline, at_s: float, account: Account) -> None:
        self._job_over(timeline.name, at_s)
        timeline.switch(at_s, account)
        timeline.token = None

    def _attempt(self, timeline: ProgramTimeline, at_s: float, fact: facts.AttemptFact) -> None:
        match fact:
            case facts.BecameReady():
                timeline.switch(at_s, Account.TRAINING)
                timeline.ready = True
                self._end_outages(timeline, at_s)
                if self.take_overs and self.take_overs[-1].trains_s is None and not timeline.service:
                    self.take_overs[-1] = self.take_overs[-1]._replace(trains_s=at_s)
            case facts.Resumption() | facts.ResumeUnknown():
                self._resumed(timeline, at_s, fact)
            case facts.Checkpointed() | facts.StartsFrom() | facts.CheckpointSeen():
                # A program's own checkpoint has the time at which it was saved; any other one is reported at once.
                saved_s = None if isinstance(fact, facts.Checkpointed) else fact.saved_at_s
                timeline.mark(at_s if saved_s is None else min(at_s, saved_s), fact.step)
            case facts.Tallied():
                self._tallied(timeline, at_s, fact)
            case facts.Stalled(age_s=age_s):
                self._stalled(timeline, at_s, age_s)
            case facts.Revived():
                timeline.switch(at_s, Account.TRAINING if timeline.ready else Account.RESTARTING)
                timeline.stalled = False
                self._end_outages(timeline, at_s)
            case facts.StopIntended():
                timeline.switch(at_s, Account.RESTARTING)
                timeline.settled_s = at_s
            case facts.SpawnFailed():
                self._left(timeline, at_s, Account.UNKNOWN)
            case facts.Exited():
                self._exited(timeline, at_s, fact)
            case _:
                pass

    @staticmethod
    def _resumed(timeline: ProgramTimeline, at_s: float, fact: facts.Resumption | facts.ResumeUnknown) -> None:
        timeline.close(at_s)
        if isinstance(fact, facts.ResumeUnknown):
            timeline.lose_proof()  # whether this attempt continues it is unknown
            timeline.losses.append(ResumeCost(at_s, None, None, again=True))
        else:
            again = bool(timeline.marks)
            lost_s = timeline.roll_back(at_s, fact.step, fact.lost_s)
            timeline.losses.append(ResumeCost(at_s, fact.lost_steps, lost_s, again, fact.cause))

    @staticmethod
    def _tallied(timeline: ProgramTimeline, at_s: float, fact: facts.Tallied) -> None:
        """Rebook a stretch of this attempt's time by its tally, also a stretch in which no daemon ran."""
        timeline.close(at_s)
        booked: dict[Account, float] = {}
        for seen, seconds in fact.seconds.items():
            account = booked_as(seen, ready=timeline.ready)
            booked[account] = booked.get(account, 0.0) + seconds
        stall_s = min(fact.ckpt_stall_s, booked.get(Account.TRAINING, 0.0))
        if stall_s > 0:
            booked[Account.TRAINING] -= stall_s
            booked[Account.SAVING] = booked.get(Account.SAVING, 0.0) + stall_s
        booked = {account: seconds for account, seconds in booked.items() if seconds > 0}
        whole_s = fsum(booked.values())
        if whole_s > 0:
            share = {account: seconds / whole_s for account, seconds in booked.items()}

            def as_tallied(piece: Slice) -> Slice:
                if not piece.holds:
                    return piece
                length_s = piece.end_s - piece.start_s
                return piece._replace(seconds={account: part * length_s for account, part in share.items()})

            timeline.rebook(max(timeline.began_s, timeline.settled_s, fact.from_s), min(at_s, fact.until_s), as_tallied)
        timeline.settled_s = max(timeline.settled_s, min(at_s, fact.until_s))
        timeline.mark(fact.until_s, fact.steps)
        timeline.account = booked_as(fact.doing, ready=timeline.ready)

    def _stalled(self, timeline: ProgramTimeline, at_s: float, age_s: float) -> None:
        """Book RESTARTING from the last sign of progress."""
        if not timeline.stalled:
            timeline.close(at_s)
            failed_s = max(timeline.began_s, at_s - age_s)
            timeline.rebook(failed_s, at_s, _away(Account.RESTARTING))
            self._fail(timeline, "stall", failed_s, at_s)
        timeline.switch(at_s, Account.RESTARTING)
        timeline.stalled, timeline.settled_s = True, at_s

    def _exited(self, timeline: ProgramTimeline, at_s: float, fact: facts.Exited) -> None:
        timeline.close(at_s)
        ended_s = at_s if fact.ended_at_s is None else max(timeline.began_s, min(at_s, fact.ended_at_s))
        self._job_over(timeline.name, ended_s)
        timeline.rebook(ended_s, at_s, _away(Account.RESTARTING))
        timeline.mark(at_s, fact.steps)
        if fact.counted and not timeline.stalled:
            self._fail(timeline, "death", ended_s, at_s)
        self._left(timeline, at_s, Account.UNKNOWN)  # a later fact of the same transaction sets the next account

    @staticmethod
    def _fail(timeline: ProgramTimeline, kind: str, failed_s: float, at_s: float) -> None:
        timeline.incidents.append(Interruption(kind, failed_s, at_s))

    @staticmethod
    def _end_outages(timeline: ProgramTimeline, at_s: float) -> None:
        """The program trains again: end all its open outages."""
        for place in range(timeline.ended_incidents, len(timeline.incidents)):
            timeline.incidents[place] = timeline.incidents[place]._replace(trains_at_s=at_s)
        timeline.ended_incidents = len(timeline.incidents)


def _values(record: ProgramTimeline | Ledger) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


def _slice(item: Sequence[Any]) -> Slice:
    start_s, end_s, seconds, holds = item
    return Slice(start_s, end_s, {Account(name): each_s for name, each_s in seconds.items()}, holds)


def _timeline(values: dict[str, Any]) -> ProgramTimeline:
    lists = {
        "slices": list(map(_slice, values["slices"])), "marks": [tuple(each) for each in values["marks"]],
        "incidents": [Interruption(*each) for each in values["incidents"]],
        "losses": [ResumeCost(*each) for each in values["losses"]],
    }  # fmt: skip
    return ProgramTimeline(**(values | lists | {"account": Account(values["account"])}))


def fold_accounts(stamped: Iterable[Stamped], ledger: Ledger | None = None) -> Ledger:
    """Add all of these facts to the given ledger, else to a new one."""
    ledger = Ledger() if ledger is None else ledger
    for item in stamped:
        ledger.add(item)
    return ledger
