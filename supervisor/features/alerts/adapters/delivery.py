"""Delivers alerts to Apprise URLs, to a command of the operator, and to systemd's journal.

Each attempt is a separate process in its own process group (`adapters/hooks.py`). When it ends or its time is over, the
daemon kills the whole group. So a hanging URL, or a hook that forks and hangs, blocks nothing else.

The daemon has one thread for each target, so a dead target delays neither the other targets nor the decider. When the daemon
stops, it ends running attempts at once, including hooks, and waits at most a second: a target that does not answer must not
delay a shutdown. The journal still lists undelivered alerts, and the next daemon delivers them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor.adapters import hooks
from supervisor.adapters.durable import json_of
from supervisor.adapters.host import clock, sd_journal
from supervisor.adapters.threads import Lasting, Thread
from supervisor.features.alerts.adapters import child
from supervisor.features.alerts.messages import AlertTried
from supervisor.features.alerts.rules import KINDS, action, body, title, wanted
from supervisor.features.alerts.settings import COMMAND, AlertSettings, target_name
from supervisor.formats import span
from supervisor.policy.upkeep.alarm import Notice
from supervisor.ports import Clock, Inbox
from supervisor.records import Record

log = structlog.get_logger()

_CHILD: Final = str(Path(__file__).with_name("child.py"))
_JOURNAL_SOCKET: Final = sd_journal.SOCKET
_PRIORITIES: Final = {"info": sd_journal.INFO, "warning": sd_journal.WARNING, "critical": sd_journal.CRITICAL}
_MOST_ERROR_CHARS: Final = 300
_ENV: Final = "EXTRALIFE_ALERT_"
_SYSTEMD: Final = ""  # the thread that writes to systemd's journal has no target's name
_MOST_WAITING: Final = 1000
_LEAVE_S: Final = 1.0
_RETRY_PAUSES_S: Final = (0.0, 15.0, 60.0, 240.0)


class DeliveryResult(Record):
    """The result of one delivery attempt. An empty `error`: the target has accepted the alert; Unsure: it may have it."""

    target: str
    error: str
    took_s: float


def deliver(rules: AlertSettings, target: str, notice: Notice, host: str | None = None, stop_fd: int | None = None) -> str:
    """Send the notice to one target, within `timeout_s`. Returns one clause with the error, empty if the target accepted it.

    An error of type Unsure: the target got the alert and did not answer in time.
    It stops early when `stop_fd` becomes readable: the daemon is shutting down.
    """
    host = socket.gethostname() if host is None else host
    if target == COMMAND and rules.command:
        return _run_hook(rules, notice, host, stop_fd)
    url = next((url for url in rules.urls if target_name(url) == target), None)
    if url is None:
        return "it is no longer in the configuration"
    request = {
        "url": url, "title": title(notice, host), "body": body(notice, rules.link), "severity": notice.severity,
        "link": rules.link, "timeout_s": rules.timeout_s,
    }  # fmt: skip
    argv = [sys.executable, "-P", "-Xutf8=1", _CHILD]
    try:
        code, output = hooks.run(argv, child.BEGIN_S + rules.timeout_s, data=json.dumps(request), stop_fd=stop_fd)
    except OSError as error:
        return f"{argv[0]} cannot be started: {error.strerror or error}"
    _, began, answer = output.rpartition(f"{child.SENDING}\n")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json_of(answer)["error"])
    why = f"the sending process ended with status {code} and without an answer"
    if code in {None, -signal.SIGALRM}:
        why = f"no answer within {span(rules.timeout_s)}" if began else f"it did not begin within {span(child.BEGIN_S)}"
    return hooks.Unsure(why) if began else why


def deliver_to_all(rules: AlertSettings, notice: Notice) -> list[DeliveryResult]:
    """Send the notice to every target at the same time, and wait for all of them."""
    results = {name: DeliveryResult(name, "its thread could not be started, or failed", 0.0) for name in rules.targets}

    def one(target: str) -> None:
        began_s = clock.boot_s()
        results[target] = DeliveryResult(target, deliver(rules, target, notice), clock.boot_s() - began_s)

    senders = [Thread("alert", one, target) for target in rules.targets]
    for each in senders:
        with contextlib.suppress(RuntimeError):
            each.start()
    for each in filter(Thread.is_alive, senders):
        each.join()
    return [*results.values()]


def tested(rules: AlertSettings, wall_s: float) -> dict[str, Any]:
    """The answer of `extralifectl alerts test`: one alert to every target, and the result of each."""
    notice = Notice(uuid.uuid4().hex[:16], "test", "info", "a test: extralife's alerts arrive here", wall_s)
    return {"tried": [
        {"target": each.target, "ok": not each.error, "error": each.error, "took_s": round(each.took_s, 3)}
        for each in deliver_to_all(rules, notice)
    ]}  # fmt: skip


def write_to_systemd_journal(notice: Notice) -> None:
    """Write one entry with the MESSAGE_ID of its kind to systemd's journal. Does nothing on a box without that journal."""
    fields = {key: value for key, value in _fields(notice).items() if value}
    sd_journal.send(
        {
            "MESSAGE": notice.text, "MESSAGE_ID": KINDS[notice.kind].message_id,
            "PRIORITY": str(_PRIORITIES[notice.severity]), "SYSLOG_IDENTIFIER": "extralife", **fields,
        },
        _JOURNAL_SOCKET,
    )  # fmt: skip


def _fields(notice: Notice) -> dict[str, str]:
    """The environment variables of a hook, which are also the fields of the entry in systemd's journal."""
    known = {
        "ID": notice.id, "KIND": notice.kind, "SEVERITY": notice.severity, "PROGRAM": notice.program,
        "MORE": str(notice.more or ""), "DROPPED": str(notice.dropped or ""),
    }  # fmt: skip
    return {_ENV + key: value for key, value in known.items()}


def _run_hook(rules: AlertSettings, notice: Notice, host: str, stop_fd: int | None) -> str:
    event = {
        "id": notice.id, "kind": notice.kind, "severity": notice.severity, "program": notice.program or None,
        "text": notice.text, "wall_s": notice.wall_s, "more": notice.more, "dropped": notice.dropped, "host": host,
        "title": title(notice, host), "do": action(notice), "link": rules.link,
    }  # fmt: skip
    env = hooks.environ() | _fields(notice) | {_ENV + "TEXT": notice.text, _ENV + "HOST": host}
    return hooks.attempt(rules.command, json.dumps(event), rules.timeout_s, env=env, stop_fd=stop_fd)[0]


# --- the threads -------------------------------------------------------------------------------------------------------


class AlertCourier:
    """Sends alerts to real URLs and commands. `rules` returns the current settings, so an update needs no restart."""

    def __init__(self, rules: Callable[[], AlertSettings], inbox: Inbox, clock: Clock) -> None:
        self._rules, self._inbox, self._clock = rules, inbox, clock
        self._threads: dict[str, queue.Queue[Callable[[], None]]] = {}
        self._over = threading.Event()
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # the same signal for code that polls a process
        self._workers: list[Lasting] = []

    def deliver(self, target: str, notice: Notice) -> None:
        def tried() -> None:
            error = self._try(target, notice)
            unsure = isinstance(error, hooks.Unsure)
            self._inbox.post(AlertTried(self._clock.now_s(), target, notice.id, str(error), unsure=unsure))

        error = self._put(target, tried)
        if error:
            self._inbox.post(AlertTried(self._clock.now_s(), target, notice.id, error))

    def tell(self, notice: Notice) -> None:
        self._put(_SYSTEMD, lambda: self._to_systemd(notice))

    def alarm(self, notice: Notice) -> None:
        self.tell(notice)
        rules = self._rules()
        for target in rules.targets if wanted(rules, notice.kind, notice.severity) else ():
            self._put(target, lambda target=target: self._retry_without_record(target, notice))  # type: ignore[misc]

    def stop(self) -> None:
        self._over.set()
        os.eventfd_write(self._stop_fd, 1)
        for waiting in self._threads.values():
            with contextlib.suppress(queue.Full):
                waiting.put_nowait(lambda: None)  # it wakes the thread, which sees `_over`
        deadline_s = time.monotonic() + _LEAVE_S
        for worker in self._workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))

    def _put(self, target: str, task: Callable[[], None]) -> str:
        """Queue a task for the thread of a target. Returns the reason when it cannot, else an empty text."""
        try:
            waiting = self._threads.get(target)
            if waiting is None:
                waiting = queue.Queue(_MOST_WAITING)
                worker = Lasting(f"alert-{target}", partial(self._turn, waiting), self._over.is_set)
                worker.start()
                self._threads[target] = waiting
                self._workers.append(worker)
            waiting.put_nowait(task)
        except queue.Full:
            return f"its queue is full ({_MOST_WAITING} alerts)"
        except RuntimeError as error:  # the thread could not be started
            return str(error)
        return ""

    def _turn(self, waiting: queue.Queue[Callable[[], None]]) -> None:
        task = waiting.get()
        if not self._over.is_set():
            task()

    def _retry_without_record(self, target: str, notice: Notice) -> None:
        """Retry for some minutes and then give up: the journal cannot record this alert at the moment."""
        for pause_s in _RETRY_PAUSES_S:
            if self._over.wait(pause_s):
                return
            error = self._try(target, notice)
            if not error or isinstance(error, hooks.Unsure):
                return
            log.warning("alarm_not_delivered", target=target, alert=notice.kind, error=error)

    def _try(self, target: str, notice: Notice) -> str:
        try:
            return deliver(self._rules(), target, notice, stop_fd=self._stop_fd)
        except Exception as bug:
            log.exception("alert_failed", target=target, alert=notice.id)
            return f"it stopped at a bug ({type(bug).__name__}); see the daemon's log"

    @staticmethod
    def _to_systemd(notice: Notice) -> None:
        try:
            write_to_systemd_journal(notice)
        except (OSError, ValueError) as error:
            log.warning("alert_not_in_the_journal", alert=notice.kind, error=str(error))
