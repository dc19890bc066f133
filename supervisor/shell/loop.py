"""The one deciding thread: input -> decide -> commit facts -> perform -> ping systemd's watchdog.

Only this thread changes the state and pings systemd's watchdog. So systemd restarts a daemon whose loop hangs.
A hanging NVML or disk only makes readings "unknown".

When the journal cannot be written (a full disk, an I/O error), no action starts without a record. Inputs wait in order. The
loop retries every second, in one transaction with the fact that reports the trouble. Workers train on. Requests are refused
at once with the reason: a request that is carried out silently an hour later, after the user has given up on it, is worse
than a refused one. If the journal's file was removed or replaced, it is first written again. Only an orderly end does not
wait for the journal: after 5 s the daemon exits as if killed, and the next one adopts the workers.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import structlog

from supervisor.adapters.journal.sqlite import Journal
from supervisor.deciding import foundations
from supervisor.deciding.alarms import damaged, unwritable
from supervisor.deciding.context import Decision
from supervisor.deciding.decide import decide
from supervisor.lack import is_lack
from supervisor.model.codec import as_text
from supervisor.model.facts import Snapshot
from supervisor.model.fold import fold
from supervisor.model.inputs import (
    Asked,
    ConfigLoaded,
    FoundationsLooked,
    Input,
    Sampled,
    SupervisionLooked,
    Terminated,
    Verb,
    Woke,
)
from supervisor.model.memory import Memory, Trouble
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.worker import absence
from supervisor.ports import Clock, JournalMoved, ahead_s
from supervisor.shell.inbox import Inbox
from supervisor.shell.perform import Performer

log = structlog.get_logger()

_JOURNAL_RETRY_S: Final = 1.0
_LOOK_S: Final = 1.0
_LEAVE_S: Final = 5.0  # how long an orderly end waits for a journal that cannot be written
_FAILED: Final = "extralife failed at this request; see its main log"


def _error_text(error: OSError | sqlite3.Error) -> str:
    """An error for people: the message and the file, without the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


@dataclass(slots=True)
class Loop:
    settings: Settings
    state: State
    clock: Clock
    boot_id: str
    journal: Journal
    inbox: Inbox
    performer: Performer
    publish: Callable[[Loop], None]
    watchdog: Callable[[], None]
    pause: Callable[[float], object]
    look: Callable[[State], SupervisionLooked] = lambda _: SupervisionLooked(0.0)
    longest_wait_s: float = 2.0
    memory: Memory = field(default_factory=Memory)
    wake_at_s: float | None = None
    taken_at_s: float | None = None
    leave_at_s: float | None = None  # when the daemon exits although its end cannot be recorded
    alarmed_at_s: float | None = None  # when the last alarm about a journal that cannot be written was sent
    alarm_due: bool = False  # the present trouble has no alarm yet
    pending: Input | None = None  # the input that is being handled: a lack of memory must not lose it
    looked_at_s: float = -inf  # when this thread last looked at the others
    looked_wrong: bool = False  # that look found something

    def run(self) -> None:
        """Take inputs and handle them until `decide` has ended the daemon."""
        while not self.memory.ended:
            with contextlib.suppress(MemoryError):  # of the answer to an error
                self._next()
                self.watchdog()
                if self.memory.trouble is not None:  # the same input comes again: give the disk time to recover
                    self.pause(_JOURNAL_RETRY_S)

    def _next(self) -> None:
        """Look at the journal's file, the threads and the attempts if that is due, then handle one input."""
        try:
            if self.pending is None:
                self.pending = self._take()
            now_s = max(self.clock.now_s(), self.state.at_s)
            if now_s - self.looked_at_s >= _LOOK_S:  # a dead thread reports nothing, nor does a journal without a commit
                self.looked_at_s = now_s
                if self._is_moved():
                    self._restore(Woke(now_s))
                found = self.look(self.state)
                if found.failing or found.gone or self.looked_wrong:
                    self.looked_wrong = bool(found.failing or found.gone)
                    self.turn(replace(found, now_s=now_s))
            self.turn(Woke(now_s) if self.pending is None else replace(self.pending, now_s=now_s))
            self.pending = None
        except Exception as error:
            self.pause(_JOURNAL_RETRY_S)
            log.exception("turn_failed", input=type(self.pending).__name__)
            if not is_lack(error):
                self.pending = None

    def turn(self, item: Input, *, again: bool = False) -> None:
        """Handle one input completely, or not at all for now if the journal cannot be written."""
        wall_s = item.now_s + ahead_s(self.clock)
        try:
            decision = decide(self.settings, self.state, self.memory, item, wall_s=wall_s, boot_id=self.boot_id)
        except Exception as error:
            if is_lack(error):  # the same decision succeeds later
                raise
            # A bug in a rule must not end every training on the box. So this input is dropped and logged, and no fact of it
            # was committed. If the process ended instead, it would meet the same input again after the restart.
            log.exception("decide_failed", input=type(item).__name__)
            self.performer.refuse(item, _FAILED)
            self.wake_at_s = None  # a deadline that always fails must not make this loop spin; each sample decides again
            return
        try:
            committed = self._commit(decision, item, wall_s)
        except JournalMoved as moved:
            if again:
                self._on_journal_failure(item, wall_s, str(moved))
            elif self._restore(item):
                self.turn(item, again=True)
            return
        if not committed:
            return
        self.settings, self.state, self.memory = decision.settings, decision.state, decision.memory
        self.wake_at_s = decision.wake_at_s
        if not isinstance(item, SupervisionLooked):
            self.pending = None
        try:
            for fact in decision.facts:
                log.info(type(fact).__name__, program=getattr(fact, "program", None), why=fact.why)
            self.publish(self)  # before any reply, so that the caller's next request sees the result
        except Exception:  # the facts are recorded: their commands follow in any case
            log.exception("turn_not_published")
        self.performer.perform(decision)

    def _is_moved(self) -> bool:
        """Whether the journal's file was removed or replaced."""
        with contextlib.suppress(OSError):  # unknown: do nothing
            return bool(self.journal.moved())
        return False

    def _commit(self, decision: Decision, item: Input, wall_s: float) -> bool:
        """Write the facts durably. No command is performed whose fact is not on disk."""
        if not decision.facts:
            return True
        try:
            self.journal.append(decision.facts, at_s=item.now_s, wall_s=wall_s, boot_id=self.boot_id)
        except ValueError:
            # A fact that could not be read back is a bug, not an error of the disk: a retry would fail forever.
            log.exception("fact_refused", input=type(item).__name__)
            self.performer.refuse(item, _FAILED)
            return False
        except JournalMoved:
            raise
        except (OSError, sqlite3.Error) as error:
            self._on_journal_failure(item, wall_s, _error_text(error))
            return False
        self.leave_at_s = None
        return True

    def _restore(self, item: Input) -> bool:
        """The journal's file was removed or replaced: write it again before anything else. Returns whether that worked.

        If some facts are no longer readable, this thread's state follows them, which all facts together produced. So
        acknowledged changes stay valid, and only history is lost.
        """
        wall_s = item.now_s + ahead_s(self.clock)
        try:
            stamped, found = self.journal.restore(at_s=item.now_s, wall_s=wall_s, boot_id=self.boot_id)
            self.state = fold(self.state, stamped)
            if found.lost:
                whole = Snapshot("the state before facts were lost", as_text(self.state))
                self.journal.append([whole], at_s=item.now_s, wall_s=wall_s, boot_id=self.boot_id)
        except (OSError, sqlite3.Error) as error:
            self._on_journal_failure(
                item, wall_s, f"its file was removed or replaced, and cannot be restored: {_error_text(error)}"
            )
            return False
        log.critical("journal_damaged", told=str(found))
        self.performer.alarm(damaged(str(found), item.now_s, wall_s))
        return True

    def _on_journal_failure(self, item: Input, wall_s: float, error: str) -> None:
        """The journal cannot be written: inputs wait, requests are refused, and `status` shows the trouble."""
        if self.memory.trouble is None:
            log.critical("journal_write_failed", error=error, retry_s=_JOURNAL_RETRY_S)
            self.alarm_due = True
        self._alarm(error, item.now_s, wall_s)
        since = self.memory.trouble or Trouble(item.now_s, wall_s, error)
        self.memory = replace(self.memory, trouble=replace(since, error=error))
        seen = item if isinstance(item, Sampled) else self.inbox.newest_look()
        if seen is not None:
            self.memory = self.memory.showing(seen.samples)
        waiting = self.inbox.withdraw(FoundationsLooked)  # they would stay behind the input that is put back below
        if isinstance(item, FoundationsLooked):
            waiting.insert(0, item)
        if waiting:
            self.memory = foundations.showing(self.memory, waiting[-1], item.now_s, wall_s)
            self.inbox.put_back(waiting[-1])  # the newest has all findings
        requests: list[Asked | ConfigLoaded] = [*self.inbox.withdraw(Asked), *self.inbox.withdraw(ConfigLoaded)]
        if isinstance(item, Asked | ConfigLoaded):
            requests.append(item)
        elif not isinstance(item, Woke | FoundationsLooked | SupervisionLooked) and not (
            isinstance(item, Sampled) and not item.reports
        ):
            self.inbox.put_back(item)
        for request in requests:
            text = f"refused, because the journal cannot be written ({error})"
            ends = isinstance(request, Asked) and request.verb is Verb.SHUTDOWN
            self.performer.refuse(
                request, f"{text}; SIGTERM ends the daemon alone, and its workers run on" if ends else text
            )
        self._leave_without_record(item.now_s)
        self.publish(self)

    def _alarm(self, error: str, now_s: float, wall_s: float) -> None:
        """Send the alarm of this trouble, at most once per `[alerts] same_within_s`.

        A disk whose last MB is freed and filled again fails every minute. An alarm that was held is sent if the trouble
        lasts until then.
        """
        ago_s = None if self.alarmed_at_s is None else now_s - self.alarmed_at_s
        if self.alarm_due and self.performer.alarm(unwritable(error, now_s, wall_s), ago_s):
            self.alarm_due, self.alarmed_at_s = False, now_s

    def _leave_without_record(self, now_s: float) -> None:
        """An end is requested or under way while the journal cannot be written: exit as if killed.

        Workers run on, or leave if they were asked to; the next daemon adopts those that it finds.
        """
        ends = self.inbox.withdraw(Terminated)
        for end in reversed(ends):
            self.inbox.put_back(end)  # first in the inbox: an end does not need the other inputs
        if not ends and not self.state.stopping:
            return
        if self.leave_at_s is None:
            self.leave_at_s = now_s + _LEAVE_S
        elif now_s >= self.leave_at_s:
            log.critical("ended_without_record", by=ends[0].by if ends else "shutdown", workers=sorted(self.state.live))
            self.memory = replace(self.memory, ended=True)

    def _take(self) -> Input | None:
        """The next input. If it comes much later than the requested wait allows, this thread did not run meanwhile."""
        before_s, due_in_s = self.taken_at_s, inf if self.wake_at_s is None else self.wake_at_s - self.clock.now_s()
        wait_s = min(self.longest_wait_s, max(0.0, due_in_s))
        item = self.inbox.take(wait_s)
        self.taken_at_s = self.clock.now_s()
        gap_s = 0.0 if before_s is None else self.taken_at_s - before_s
        if absence.was_away(asked_s=wait_s, gap_s=gap_s):
            self.memory = replace(self.memory, overslept_s=gap_s)
        return item
