"""The threads that wait for notices that this box will end: one for the command, one for the file.

Each thread waits for its own source only, at most `timeout_s`. No thread waits for another one, and the deciding thread
waits for none of them. They post an input when the notices of all sources together have changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from supervisor.adapters.notices.local import Command, File, Unreadable
from supervisor.adapters.threads import Lasting
from supervisor.model.inputs import EndNoticesRead
from supervisor.model.settings import Settings
from supervisor.policy.upkeep.notices import COMMAND, FILE, EndNotice, NoticeSettings, is_same
from supervisor.ports import Clock, Inbox
from supervisor.printable import printable
from supervisor.records import Record

log = structlog.get_logger()

_SOURCES: Final = (COMMAND, FILE)


class _SourceResult(Record):
    found: tuple[EndNotice, ...] = ()
    source: str = ""  # empty: there is none
    error: str = ""  # if it is set, `found` is unknown


class NoticeWatch:
    """Reads every configured source once per `every_s`."""

    def __init__(self, settings: Callable[[], Settings], inbox: Inbox, clock: Clock) -> None:
        """`settings` returns the current settings."""
        self._settings, self._inbox, self._clock = settings, inbox, clock
        self._over, self._guard = threading.Event(), threading.Lock()
        self._made: dict[str, tuple[NoticeSettings, Command | File | None]] = {}
        self._results: dict[str, _SourceResult] = {}
        self._posted: tuple[tuple[EndNotice, ...], dict[str, str]] | None = None

    def start(self) -> None:
        for name in _SOURCES:
            Lasting(f"notices-{name}", partial(self._turn, name), self._over.is_set).start()

    def stop(self) -> None:
        self._over.set()

    def _turn(self, name: str) -> None:
        rules, made = self._settings().notice, self._made.get(name)
        if made is None or made[0] != rules:
            made = self._made[name] = rules, source(name, rules, self._clock)
        self._take(name, _read(name, made[1]))
        self._over.wait(rules.every_s)

    def _take(self, name: str, result: _SourceResult) -> None:
        with self._guard:
            before = self._results.get(name)
            self._results[name] = result
            if len(self._results) < len(_SOURCES):
                return  # the other source was not read yet: its notice to an earlier daemon may still hold
            notices = (each for key in sorted(self._results) for each in self._results[key].found)
            found = tuple(self._settled(each) for each in notices)
            errors = {each.source: each.error for each in self._results.values() if each.error}
            if (found, errors) == self._posted:
                return
            self._posted = found, errors
            self._inbox.post(EndNoticesRead(self._clock.now_s(), found, errors))
        if result.error and (before is None or before.error != result.error):
            log.warning("notices_not_read", source=result.source, error=result.error)

    def _settled(self, notice: EndNotice) -> EndNotice:
        """The earlier notice, if this one says the same.

        A service's clock has whole seconds, so the times of equal notices may differ.
        """
        before = next((each for each in (self._posted or ((), {}))[0] if each.id == notice.id), None)
        return notice if before is None or not is_same(before, notice) else before


def source(name: str, rules: NoticeSettings, clock: Clock) -> Command | File | None:
    """The source of this name, if it is configured."""
    if name == COMMAND:
        return Command(rules.command, rules.timeout_s, clock) if rules.command else None
    return File(rules.file, clock) if rules.file else None


def _read(name: str, source: Command | File | None) -> _SourceResult:
    if source is None:
        return _SourceResult()
    try:
        return _SourceResult(source.read(), name)
    except Unreadable as error:
        return _SourceResult((), name, printable(str(error)))
    except Exception as error:
        log.exception("notices_not_read", source=name)
        return _SourceResult((), name, f"it stopped at a bug ({type(error).__name__}); see the daemon's log")
