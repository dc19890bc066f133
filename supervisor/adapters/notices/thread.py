"""The threads that wait for notices that this box will end: one for the provider, one for the command, one for the file.

Each thread waits for its own source only, at most `timeout_s`. No thread waits for another one, and the deciding thread
waits for none of them. They post an input when the notices of all sources together have changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from supervisor.adapters.notices.local import Command, File
from supervisor.adapters.notices.metadata import PROVIDERS, Source
from supervisor.adapters.notices.web import Unreadable, Web
from supervisor.adapters.threads import Lasting
from supervisor.model.inputs import EndNoticesRead
from supervisor.model.settings import Settings
from supervisor.policy.upkeep.notices import AUTO, COMMAND, FILE, OFF, EndNotice, NoticeSettings, is_same
from supervisor.ports import Clock, Inbox
from supervisor.printable import printable
from supervisor.records import dataclass

log = structlog.get_logger()

PROVIDER: Final = "provider"


@dataclass(frozen=True, slots=True)
class _SourceResult:
    found: tuple[EndNotice, ...] = ()
    source: str = ""  # empty: there is none
    error: str = ""  # if it is set, `found` is unknown


class NoticeWatch:
    """Reads every configured source once per `every_s`."""

    def __init__(self, settings: Callable[[], Settings], inbox: Inbox, clock: Clock, detect: Callable[[], str]) -> None:
        """`settings` returns the current settings. `detect` returns the provider of this box, or an empty string."""
        self._settings, self._inbox, self._clock, self._detect = settings, inbox, clock, detect
        self._over, self._guard = threading.Event(), threading.Lock()
        self._made: dict[str, tuple[NoticeSettings, str, Source | None]] = {}  # by part
        self._results: dict[str, _SourceResult] = {}
        self._posted: tuple[tuple[EndNotice, ...], dict[str, str]] | None = None
        self._detected: str | None = None

    def start(self) -> None:
        for part in (PROVIDER, COMMAND, FILE):
            Lasting(f"notices-{part}", partial(self._turn, part), self._over.is_set).start()

    def stop(self) -> None:
        self._over.set()

    def _turn(self, part: str) -> None:
        rules, made = self._settings().notice, self._made.get(part)
        if made is None or made[0] != rules:
            name = self._name(part, rules)
            made = self._made[part] = rules, name, self._source(name, rules)
        self._take(part, self._read(made[1], made[2]))
        self._over.wait(rules.every_s)

    def _name(self, part: str, rules: NoticeSettings) -> str:
        """The name of the part's source; empty: there is none."""
        if part == COMMAND:
            return COMMAND if rules.command else ""
        if part == FILE:
            return FILE if rules.file else ""
        if rules.provider != AUTO:
            return "" if rules.provider == OFF else rules.provider
        if self._detected is None:
            self._detected = self._detect()
            log.info("notices", provider=self._detected or "none detected")
        return self._detected

    def _source(self, name: str, rules: NoticeSettings) -> Source | None:
        if name in PROVIDERS:
            return PROVIDERS[name](Web(rules.endpoint, rules.timeout_s), self._clock)
        if name == COMMAND:
            return Command(rules.command, rules.timeout_s, self._clock)
        return File(rules.file, self._clock) if name == FILE else None

    def _read(self, name: str, source: Source | None) -> _SourceResult:
        if source is None:
            return _SourceResult()
        try:
            return _SourceResult(source.read(), name)
        except Unreadable as error:
            return _SourceResult((), name, printable(str(error)))
        except Exception as error:
            log.exception("notices_not_read", source=name)
            return _SourceResult((), name, f"it stopped at a bug ({type(error).__name__}); see the daemon's log")

    def _take(self, part: str, result: _SourceResult) -> None:
        with self._guard:
            before = self._results.get(part)
            self._results[part] = result
            if len(self._results) < 3:
                return  # the other sources were not read yet: their notices to an earlier daemon may still hold
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
