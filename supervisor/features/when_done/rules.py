"""When this box is told to stop, because its work is over: the end of the meter.

The rule. An end is reached when a cause in `when` holds:

* `done`: no wanted program will start again, as each is DONE, FATAL or EXITED, and at least one is DONE. A service is no
  work, and neither is a program that the operator has stopped.
* `stuck`: no wanted program can go on by itself, and one is not DONE: FATAL or EXITED, held for good (another box has taken
  over, or its GPU is lost), or a dead end: even its trial start in slow retry died in the same way, and none got further. A
  trial start, or a worker that looks for its GPU itself, is work only once it trains.
* `budget`: [cost] `budget_usd` is spent in hours in which the box was on, or `until` has passed, although programs train.

Then, in this order:

1. `after_s` passes, or the operator's `delay`, and as long as somebody is logged in if `hold_while_logged_in` is true. An
   unknown reading counts as "nobody": a meter must not run because of it.
2. Every process saves and exits, services too, and none starts. A training that the budget ends has an hour for its save.
3. Where [offsite] names a repository, a last copy is made, and the repository is verified. Until this succeeds the command
   does not run, because it may destroy the disk. One alert reports it, and the copy is tried again. The same holds for a
   program that was killed, or failed, before it had saved, or that SIGKILL does not end.
4. The report is sent, with what is saved of each program, and each target has at most 30 s to accept it.
5. The command runs, once. If it fails, runs longer than `timeout_s`, or the box is still there `timeout_s` after its
   success, an alert reports it, and it runs again after 1, 2, 4 ... 60 min.

An end keeps the cause that began it. It is called off when that cause is over (new work, a GPU that is back, a higher
budget), or by another configuration. The newest word of the operator counts: `cancel` holds it until there is new work (at
once, if the budget had ended it, which then counts no more), `delay` begins its steps anew after that time, `now` skips the
waiting, and after a refusal in step 3 also that. After a restart of daemon or box (not one by which the daemon restores a
lost file) the steps begin anew, and a command that ran before it counts as a failure: a box that is always started again
runs it more and more rarely.

Worked example, after_s = 600: Pong, the last one, is DONE at 1:49. At 1:59 TensorBoard is asked to exit. At 2:00 the copy
is verified, the report is sent, and the command runs: `vastai` cannot reach its service. An alert; at 2:01 it runs again
and succeeds.

Why not give up after some tries: each further hour costs money, and a provider's service that is down comes back. Why is
one FATAL beside nine DONE `done`: it waits for a person, who is asleep, while the box costs the same. Its alert names it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from supervisor.features.when_done.record import EndRecord, Step
from supervisor.features.when_done.settings import BUDGET, CAUSES, DONE, STUCK, WhenDoneSettings
from supervisor.records import Record

_FIRST_RETRY_S: Final = 60.0
_LONGEST_RETRY_S: Final = 3600.0
_REPORT_S: Final = 30.0
SAVE_S: Final = 3600.0
_REMINDS: Final = 8


class Outlook(enum.Enum):
    """Whether a wanted program has reached its target, was given up, cannot go on by itself, or trains, now or later."""

    DONE = enum.auto()
    GIVEN_UP = enum.auto()
    OVER = enum.auto()
    OPEN = enum.auto()


class Seen(Record):
    """The present facts about the box. `causes` hold now; `lacks`: why no copy is verified, or what is not saved."""

    causes: tuple[str, ...]
    works: bool = False  # a program trains, now or later
    live: bool = False  # a process runs, and not in spite of SIGKILL
    logged_in: bool = False  # False also: unknown
    copies: bool = False  # a repository is configured
    copy_asked: bool = False  # a copy is awaited: this one, or a more urgent one that comes first
    lacks: str = ""
    owed: bool = False  # a target has not accepted the report yet


def causes_of(rules: WhenDoneSettings, work: Iterable[Outlook], *, over_budget: bool) -> tuple[str, ...]:
    """The causes in `when` that hold now; the first begins an end. `work`: all wanted programs without services."""
    known = set(work)
    hold = {
        DONE: Outlook.DONE in known and known <= {Outlook.DONE, Outlook.GIVEN_UP},
        STUCK: bool(known) and Outlook.OPEN not in known and known != {Outlook.DONE},
        BUDGET: over_budget,
    }
    return tuple(cause for cause in CAUSES if hold[cause] and cause in rules.when)


def holds_on(record: EndRecord, causes: tuple[str, ...]) -> bool:
    """Whether the cause that began the end holds. `done` and `stuck` are one: a stuck program may be stopped meanwhile."""
    return record.cause in causes or (record.cause != BUDGET and not {DONE, STUCK}.isdisjoint(causes))


def reminds(failures: int) -> bool:
    """Whether a failure in a row is an alert: the first, and then every eighth, which is once a night."""
    return failures == 1 or failures % _REMINDS == 0


def retry_s(failures: int) -> float:
    """Seconds until the next try. Example: 60, 120, 240 ... 3600 s."""
    return float(min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(failures - 1, 20)))


def due_s(rules: WhenDoneSettings, record: EndRecord) -> float:
    """When the waiting of an end is over."""
    if record.now:
        return 0.0
    again_s = 0.0 if record.failed_s is None else record.failed_s + retry_s(record.failures)
    if record.left_s is not None:  # a command has failed
        return again_s
    return max(record.since_s + rules.after_s, record.not_before_s or 0.0, again_s)


def next_step(rules: WhenDoneSettings, record: EndRecord, seen: Seen, now_s: float) -> tuple[Step, float | None]:
    """The next step, and for WAIT the time at which it may change by itself (None: only with new facts)."""
    if record.runs:  # new work waits for its end, so that it never runs twice at once
        return Step.WAIT, None
    if not rules.command or not (holds_on(record, seen.causes) if record.cause else seen.causes):
        return (Step.CALL_OFF if record.begun else Step.WAIT), None
    if not record.cause:
        return Step.BEGIN, None
    if record.cancelled:
        return (Step.CALL_OFF if record.cause == BUDGET and seen.works else Step.WAIT), None
    if record.succeeded_s is not None:
        until_s = record.succeeded_s + (0.0 if record.now else rules.timeout_s)
        return (Step.ENDED, None) if now_s >= until_s else (Step.WAIT, until_s)
    if (until_s := due_s(rules, record)) > now_s:
        return Step.WAIT, until_s
    if seen.logged_in and rules.hold_while_logged_in and not record.now:
        return Step.WAIT, None
    return _past_the_wait(record, seen, now_s)


def _past_the_wait(record: EndRecord, seen: Seen, now_s: float) -> tuple[Step, float | None]:
    if record.left_s is None:
        return Step.LEAVE, None
    if seen.live:
        return Step.WAIT, None
    if seen.copies and record.copied_s is None and not record.waived:
        if seen.lacks and not record.refused:
            return Step.REFUSE, None
        return (Step.WAIT if seen.copy_asked else Step.COPY), None
    if seen.lacks and not record.waived:
        return (Step.WAIT if record.refused else Step.REFUSE), None
    if record.reported_s is None:
        return Step.REPORT, None
    until_s = record.reported_s + _REPORT_S
    return (Step.WAIT, until_s) if seen.owed and now_s < until_s else (Step.RUN, None)
