"""The threads that deliver alerts: one for each target, so that a dead one keeps no other waiting, and the decider least.

At the end of the daemon what is under way is ended at once, hook and all, and nobody waits longer than a second: a target
that does not answer must not hold up a shutdown. What was in hand is still owed by the journal, and the next daemon delivers
it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from supervisor.adapters.alerts import delivery as alert_delivery
from supervisor.model.inputs import AlertTried
from supervisor.policy.upkeep.alerting import AlertSettings, Notice, wanted
from supervisor.ports import Clock, Inbox

log = structlog.get_logger()

_SYSTEMD: Final = ""  # the thread that writes to systemd's journal has no target's name
_MOST_WAITING: Final = 1000
_LEAVE_S: Final = 1.0
_INSIST_S: Final = (0.0, 15.0, 60.0, 240.0)


class AlertCourier:
    """`ports.Courier` over real URLs and commands. `rules` gives the settings in force: an update needs no restart."""

    def __init__(self, rules: Callable[[], AlertSettings], inbox: Inbox, clock: Clock) -> None:
        self._rules, self._inbox, self._clock = rules, inbox, clock
        self._threads: dict[str, queue.Queue[Callable[[], None]]] = {}
        self._over = threading.Event()
        self._over_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # the same, for what waits for a process
        self._workers: list[threading.Thread] = []

    def deliver(self, target: str, notice: Notice) -> None:
        error = self._put(target, lambda: self._to(target, notice))
        if error:
            self._inbox.post(AlertTried(self._clock.now_s(), target, notice.id, error))

    def tell(self, notice: Notice) -> None:
        self._put(_SYSTEMD, lambda: self._to_systemd(notice))

    def alarm(self, notice: Notice) -> None:
        self.tell(notice)
        rules = self._rules()
        for target in rules.targets if wanted(rules, notice.kind, notice.severity) else ():
            self._put(target, lambda target=target: self._insist(target, notice))  # type: ignore[misc]

    def stop(self) -> None:
        self._over.set()
        os.eventfd_write(self._over_fd, 1)
        for waiting in self._threads.values():
            with contextlib.suppress(queue.Full):
                waiting.put_nowait(_nothing)
        deadline_s = time.monotonic() + _LEAVE_S
        for worker in self._workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))

    def _put(self, target: str, task: Callable[[], None]) -> str:
        """Hand a task to the thread of a target; why not, or nothing."""
        try:
            waiting = self._threads.get(target)
            if waiting is None:
                waiting = queue.Queue(_MOST_WAITING)
                worker = threading.Thread(target=self._work, args=(waiting,), name=f"alert-{target}", daemon=True)
                worker.start()
                self._threads[target] = waiting
                self._workers.append(worker)
            waiting.put_nowait(task)
        except queue.Full:
            return "too many alerts wait for it"
        except RuntimeError as error:  # no thread could be begun
            return str(error)
        return ""

    def _work(self, waiting: queue.Queue[Callable[[], None]]) -> None:
        while not self._over.is_set():
            task = waiting.get()
            if not self._over.is_set():
                task()

    def _to(self, target: str, notice: Notice) -> None:
        self._inbox.post(AlertTried(self._clock.now_s(), target, notice.id, self._try(target, notice)))

    def _insist(self, target: str, notice: Notice) -> None:
        """Nothing can be recorded just now, so it is tried for some minutes from here, and then no more."""
        for pause_s in _INSIST_S:
            if self._over.wait(pause_s):
                return
            error = self._try(target, notice)
            if not error:
                return
            log.warning("alarm_not_delivered", target=target, alert=notice.kind, error=error)

    def _try(self, target: str, notice: Notice) -> str:
        try:
            return alert_delivery.deliver(self._rules(), target, notice, over_fd=self._over_fd)
        except Exception as bug:
            log.exception("alert_failed", target=target, alert=notice.id)
            return f"it stopped at a bug ({type(bug).__name__}); see the daemon's log"

    @staticmethod
    def _to_systemd(notice: Notice) -> None:
        try:
            alert_delivery.tell_systemd(notice)
        except (OSError, ValueError) as error:
            log.warning("alert_not_in_the_journal", alert=notice.kind, error=str(error))


def _nothing() -> None:
    """What wakes a thread so that it sees that all is over."""
