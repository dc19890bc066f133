"""Alerts on their way: to Apprise URLs, to a command of the operator's, to systemd's journal.

Each try is a process of its own, in a session of its own, which is ended with everything that it has started as soon as the
time is over, or it is: a hanging URL, a hook that forks and hangs cost nothing but themselves. What goes to it lies in
files without a name, so that nobody waits for a pipe.

The daemon has a thread for each target, so that a dead one keeps no other waiting, and the decider least. At its end what is
under way is ended at once, hook and all, and nobody waits longer than a second: a target that does not answer must not
hold up a shutdown. What was in hand is still owed by the journal, and the next daemon delivers it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor.adapters import leftovers
from supervisor.adapters.host import clock, sd_journal
from supervisor.model.inputs import AlertTried
from supervisor.policy.upkeep.alerting import COMMAND, KINDS, AlertSettings, Notice, body, target_name, title, wanted
from supervisor.ports import Clock, Inbox
from supervisor.records import dataclass
from workers import contract

log = structlog.get_logger()

_CHILD: Final = str(Path(__file__).with_name("child.py"))
_JOURNAL_SOCKET: Final = sd_journal.SOCKET
_PRIORITIES: Final = {"info": sd_journal.INFO, "warning": sd_journal.WARNING, "critical": sd_journal.CRITICAL}
_MOST_SAID: Final = 300
_MOST_AT_ONCE: Final = 16
_ENV: Final = "EXTRALIFE_ALERT_"
_SYSTEMD: Final = ""  # the thread that writes to systemd's journal has no target's name
_MOST_WAITING: Final = 1000
_LEAVE_S: Final = 1.0
_INSIST_S: Final = (0.0, 15.0, 60.0, 240.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one try; empty `error`: the target has taken it."""

    target: str
    error: str
    took_s: float


def deliver(rules: AlertSettings, target: str, notice: Notice, host: str | None = None, over_fd: int | None = None) -> str:
    """Send it to one target; empty when that has taken it, else why not, in one clause. Takes at most `timeout_s`.

    It takes no longer than until `over_fd` can be read: somebody who asked for this has no time left.
    """
    host = socket.gethostname() if host is None else host
    if target == COMMAND and rules.command:
        return _run_hook(rules, notice, host, over_fd)
    url = next((url for url in rules.urls if target_name(url) == target), None)
    if url is None:
        return "it is no longer in the configuration"
    asked = {
        "url": url, "title": title(notice, host), "body": body(notice), "severity": notice.severity,
        "timeout_s": rules.timeout_s,
    }  # fmt: skip
    code, said = _run([sys.executable, "-P", _CHILD], json.dumps(asked), _environ(), rules.timeout_s, over_fd)
    if code is None:
        return f"no answer within {rules.timeout_s:g} s"
    try:
        return str(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the sending process ended with status {code} and without an answer"


def deliver_to_all(rules: AlertSettings, notice: Notice) -> list[Tried]:
    """Send it to every target at the same time, and wait for all of them."""

    def one(target: str) -> Tried:
        began_s = clock.boot_s()
        error = deliver(rules, target, notice)
        return Tried(target, error, clock.boot_s() - began_s)

    if not rules.targets:
        return []
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(rules.targets)), "alert") as pool:
        return list(pool.map(one, rules.targets))


def test_notice(wall_s: float) -> Notice:
    """What `supervisorctl alerts test` sends."""
    return Notice(uuid.uuid4().hex[:16], "test", "info", "a test: extralife's alerts arrive here", wall_s)


def tell_systemd(notice: Notice) -> None:
    """One entry in systemd's journal with the MESSAGE_ID of its kind; nothing where there is no such journal."""
    fields = {key: value for key, value in _fields(notice).items() if value}
    sd_journal.send(
        {
            "MESSAGE": notice.text, "MESSAGE_ID": KINDS[notice.kind][0], "PRIORITY": str(_PRIORITIES[notice.severity]),
            "SYSLOG_IDENTIFIER": "extralife", **fields,
        },
        _JOURNAL_SOCKET,
    )  # fmt: skip


def _fields(notice: Notice) -> dict[str, str]:
    """What a hook finds in its environment, and a reader of systemd's journal in the fields of the entry."""
    known = {
        "ID": notice.id, "KIND": notice.kind, "SEVERITY": notice.severity, "PROGRAM": notice.program,
        "MORE": str(notice.more or ""), "DROPPED": str(notice.dropped or ""),
    }  # fmt: skip
    return {_ENV + key: value for key, value in known.items()}


def _environ() -> dict[str, str]:
    """The daemon's, without what systemd told the daemon alone: a hook that inherits it could confuse the service."""
    kept = {key: value for key, value in os.environ.items() if key not in contract.STRIPPED_ENV}
    return kept | leftovers.mark(of_user=True)


def _run_hook(rules: AlertSettings, notice: Notice, host: str, over_fd: int | None) -> str:
    told = {
        "id": notice.id, "kind": notice.kind, "severity": notice.severity, "program": notice.program or None,
        "text": notice.text, "wall_s": notice.wall_s, "more": notice.more, "dropped": notice.dropped, "host": host,
        "title": title(notice, host),
    }  # fmt: skip
    env = _environ() | _fields(notice) | {_ENV + "TEXT": notice.text, _ENV + "HOST": host}
    code, said = _run(list(rules.command), json.dumps(told), env, rules.timeout_s, over_fd)
    if code is None:
        return said or f"it did not end within {rules.timeout_s:g} s and was killed"
    if code == 0:
        return ""
    last = said.strip().rpartition("\n")[2][-_MOST_SAID:]
    how = f"it ended with status {code}" if code > 0 else f"it was ended by signal {-code}"
    return f"{how}: {last}" if last else how


def _run(
    argv: Sequence[str], data: str, env: Mapping[str, str], timeout_s: float, over_fd: int | None
) -> tuple[int | None, str]:
    """(exit status, what it said); None and why, or nothing, when it could not be started or its time was over."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(data.encode("utf-8", "replace"))
        given.seek(0)
        try:
            # A group to be killed as one, in the daemon's session: children in other sessions are orphans of workers.
            process = subprocess.Popen(
                argv, stdin=given, stdout=said, stderr=subprocess.STDOUT, env=dict(env), process_group=0, cwd="/"
            )
        except OSError as error:
            return None, f"{argv[0]} cannot be started: {error.strerror or error}"
        ended = _await_end(process, timeout_s, over_fd)
        code = process.wait()
        said.seek(max(0, said.seek(0, os.SEEK_END) - 64 * 1024))
        text = said.read().decode("utf-8", "replace")
        return (code, text) if ended else (None, "")


def _await_end(process: subprocess.Popen[bytes], timeout_s: float, over_fd: int | None) -> bool:
    """Wait for its end, at most so long, then kill all of its group: before it is reaped, while the number is its own."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if over_fd is not None:
            poller.register(over_fd, select.POLLIN)
        ended = pidfd in {fd for fd, _ in poller.poll(timeout_s * 1000.0)}
    finally:
        os.close(pidfd)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return ended


def as_json(tried: Tried) -> dict[str, Any]:
    return {"target": tried.target, "ok": not tried.error, "error": tried.error, "took_s": round(tried.took_s, 3)}


# --- the threads -------------------------------------------------------------------------------------------------------


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
            return deliver(self._rules(), target, notice, over_fd=self._over_fd)
        except Exception as bug:
            log.exception("alert_failed", target=target, alert=notice.id)
            return f"it stopped at a bug ({type(bug).__name__}); see the daemon's log"

    @staticmethod
    def _to_systemd(notice: Notice) -> None:
        try:
            tell_systemd(notice)
        except (OSError, ValueError) as error:
            log.warning("alert_not_in_the_journal", alert=notice.kind, error=str(error))


def _nothing() -> None:
    """What wakes a thread so that it sees that all is over."""
