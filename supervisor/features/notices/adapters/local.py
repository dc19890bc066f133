"""Notices that this box will end: the output of a command (deploy/notices/ has some), or a file that appears.

Both have the same first line: `[risk] [WHEN] [WHY ...]`. WHEN is the number of seconds left, seconds since the epoch, or a
time such as 2026-11-23T08:22:00Z. Without WHEN the time of the end is unknown. Examples: `30`, `120 evicted`, `risk the
price rises`, `2026-11-23T08:22:00Z maintenance`, `maintenance`.

The command: status 0 without output means that no end is announced. Status 0 with a line announces that line's end or risk.
Any other status means that the command cannot tell.

The file: if it does not exist, no end is announced. An empty file announces an end without a time. Seconds count from the
file's last change.

There is one thread for the command and one for the file. Each waits for its own source only, at most `timeout_s`. No thread
waits for another one, and the deciding thread waits for none of them. They post an input when the notices of both sources
together have changed.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from supervisor import wall_clock
from supervisor.adapters import hooks
from supervisor.adapters.threads import Lasting
from supervisor.features.notices.rules import COMMAND, END, FILE, RISK, is_same
from supervisor.features.notices.settings import NoticeSettings
from supervisor.files import open_regular
from supervisor.formats import span
from supervisor.model.inputs import EndNotice, EndNoticesRead
from supervisor.model.settings import Settings
from supervisor.ports import Clock, Inbox
from supervisor.printable import printable
from supervisor.records import Record

log = structlog.get_logger()

_SOURCES: Final = (COMMAND, FILE)
_MOST_BYTES: Final = 4096
_SHOWN: Final = 200
_EPOCH_S: Final = 1e9  # a larger number is a time since the epoch, not a number of seconds left
_MOST_S: Final = 30 * 86_400.0
_NUMBER: Final = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\S+", re.ASCII)


class Unreadable(Exception):
    """A source gave no answer that can be parsed; the message is one clause."""


def notice(line: str, source: str, clock: Clock, *, from_wall_s: float | None = None) -> EndNotice:
    """Parse one line. The seconds left count from `from_wall_s`, or from now if that is None. Raises Unreadable."""
    first, _, rest = line.strip().partition(" ")
    kind = RISK if first.lower() == RISK else END
    when, _, why = (rest.strip() if kind == RISK else line.strip()).partition(" ")
    until_s = None
    if _NUMBER.fullmatch(when) or _DATE.fullmatch(when):
        until_s = _until_s(when, clock, from_wall_s)
    else:
        why = f"{when} {why}"
    reason = printable(why.strip())[:_SHOWN] or ("an end may come" if kind == RISK else "an end")
    return EndNotice(f"{source} {kind}", source, kind, reason, None if kind == RISK else until_s)


def _until_s(when: str, clock: Clock, from_wall_s: float | None) -> float | None:
    now_s, wall_s = clock.now_s(), clock.wall_s()
    if _NUMBER.fullmatch(when) and float(when) < _EPOCH_S:
        if float(when) > _MOST_S:
            raise Unreadable(f"{when} s are more than 30 days")
        began_s = now_s if from_wall_s is None else now_s + min(0.0, from_wall_s - wall_s)
        return began_s + float(when)
    try:
        at = None if _NUMBER.fullmatch(when) else datetime.fromisoformat(when)
    except ValueError:
        raise Unreadable(f"{when!r:.40} is no time such as 2026-11-23T08:22:00Z") from None
    if at is not None and at.tzinfo is None:
        raise Unreadable(f"{when!r:.40} has no zone: append Z, or an offset such as +01:00")
    at_wall_s = float(when) if at is None else at.timestamp()
    return now_s + at_wall_s - wall_s if wall_clock.is_set(wall_s) else None


class File:
    """A file that exists when the box is about to end."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path, self._clock = Path(path), clock

    def read(self) -> tuple[EndNotice, ...]:
        try:
            fd = open_regular(self._path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unreadable(f"{self._path} cannot be read ({error.strerror})") from error
        with os.fdopen(fd, "rb") as file:
            changed_s = os.fstat(fd).st_mtime
            line = file.read(_MOST_BYTES).decode("utf-8", "replace").partition("\n")[0]
        return (notice(line, FILE, self._clock, from_wall_s=changed_s),)


class Command:
    """A program that is run periodically."""

    def __init__(self, command: str, timeout_s: float, clock: Clock) -> None:
        self._argv, self._timeout_s, self._clock = shlex.split(command), timeout_s, clock
        self._before: tuple[str, EndNotice] | None = None

    def read(self) -> tuple[EndNotice, ...]:
        try:
            code, output = hooks.run(self._argv, self._timeout_s, errors=False)
        except OSError as error:
            raise Unreadable(f"{self._argv[0]} cannot be started ({error.strerror or error})") from error
        if code is None:
            raise Unreadable(f"it took longer than {span(self._timeout_s)}")
        if code:
            raise Unreadable(f"it ended with status {code}")
        line = output[:_MOST_BYTES].strip().partition("\n")[0].strip()
        if not line:
            self._before = None
            return ()
        if self._before is None or self._before[0] != line:  # a repeated line announces the same moment
            self._before = line, notice(line, COMMAND, self._clock)
        return (self._before[1],)


# --- the threads --------------------------------------------------------------------------------------------------------


class _SourceResult(Record):
    found: tuple[EndNotice, ...] = ()
    source: str = ""  # empty: there is none
    error: str = ""  # if it is set, `found` is unknown


class NoticeWatch:
    """Reads every configured source once per `every_s`."""

    def __init__(self, settings: Callable[[], Settings], inbox: Inbox, clock: Clock) -> None:
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
        rules, made = self._settings().of(NoticeSettings), self._made.get(name)
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
