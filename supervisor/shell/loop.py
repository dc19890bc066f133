"""The one deciding thread: input -> decide -> commit facts -> perform -> tell systemd that we live.

Only this thread changes what is true, and only it pings systemd's watchdog: a wedged loop is restarted by systemd, a
wedged NVML or disk is merely "unknown".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from supervisor.core.decide import AnyInput, decide
from supervisor.core.inputs import Sampled, Woke
from supervisor.core.memory import Memory
from supervisor.core.settings import Settings
from supervisor.core.state import State
from supervisor.core.turn import Decision
from supervisor.ports import Clock, Journal
from supervisor.shell.inbox import Inbox

log = structlog.get_logger()

_JOURNAL_RETRY_S: Final = 1.0


class Performer(Protocol):
    """What does the commands (`shell/perform.py`)."""

    def perform(self, decision: Decision) -> None: ...

    def refuse(self, item: AnyInput) -> None:
        """The input was dropped: whoever waits for its answer is told."""
        ...


@dataclass(slots=True)
class Loop:
    """The state of the deciding thread between two turns."""

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
    longest_wait_s: float = 5.0
    memory: Memory = field(default_factory=Memory)
    wake_at_s: float | None = None
    journal_error: str = ""

    def run(self) -> None:
        """Turn until `decide` has ended the daemon."""
        while not self.memory.ended:
            item = self.inbox.take(self._wait_s())
            now_s = max(self.clock.now_s(), self.state.at_s)
            self.turn(Woke(now_s) if item is None else replace(item, now_s=now_s))
            self.watchdog()
            if self.journal_error:  # the same input comes again: not faster than the disk may recover
                self.pause(_JOURNAL_RETRY_S)

    def turn(self, item: AnyInput) -> None:
        """Deal with one input: all of it, or (when the journal cannot be written) none of it for now."""
        wall_s = self.clock.wall_s()
        try:
            decision = decide(self.settings, self.state, self.memory, item, wall_s=wall_s, boot_id=self.boot_id)
        except Exception:
            # A bug in a rule must not end every training on the box: this input is dropped, loudly, and nothing of it
            # was committed. Ending the process instead would meet the same input again after the restart.
            log.exception("decide_failed", input=type(item).__name__)
            self.performer.refuse(item)
            self.wake_at_s = None  # a deadline that always fails must not make this loop spin; every look asks again
            return
        if not self._commit(decision, item, wall_s):
            return
        self.settings, self.state, self.memory = decision.settings, decision.state, decision.memory
        self.wake_at_s = decision.wake_at_s
        self.performer.perform(decision)
        self.publish(self)

    def _commit(self, decision: Decision, item: AnyInput, wall_s: float) -> bool:
        """Facts first, durably; no command is performed whose fact is not on disk."""
        if not decision.facts:
            return True
        try:
            self.journal.append(decision.facts, at_s=item.now_s, wall_s=wall_s, boot_id=self.boot_id)
        except ValueError:
            # A fact that could not be read back is a bug, not the disk's fault: retrying would never end.
            log.exception("fact_refused", input=type(item).__name__)
            self.performer.refuse(item)
            return False
        except (OSError, sqlite3.Error) as error:
            if not self.journal_error:
                log.critical("journal_write_failed", error=str(error), retry_s=_JOURNAL_RETRY_S)
            self.journal_error = str(error)
            if not isinstance(item, Sampled | Woke):
                self.inbox.put_back(item)
            return False
        if self.journal_error:
            log.info("journal_writes_again", after=self.journal_error)
            self.journal_error = ""
        for fact in decision.facts:
            log.info(type(fact).__name__, program=getattr(fact, "program", None), why=fact.why)
        return True

    def _wait_s(self) -> float:
        if self.wake_at_s is None:
            return self.longest_wait_s
        return min(self.longest_wait_s, max(0.0, self.wake_at_s - self.clock.now_s()))
