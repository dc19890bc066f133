"""Reads the new output of a script since the previous look: its logs, its JSON lines, its CSV files, its event files.

It runs in a child process (`child.py`), and nothing in the daemon waits for it. A regular expression that backtracks for
ever holds the interpreter's lock, a directory of 100,000 files takes its time, and a file system may hang.

Nothing is kept here between looks. The daemon passes the position up to which each file was read (`Cursor`), and gets it
back. A file counts as rotated or rewritten if it became shorter, or if the bytes before that position changed. It is then
read from its beginning. A last line without its end waits for the next look. If a script writes faster than this reads, the
data up to the newest part is skipped.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import functools
import json
import math
import os
import re
import signal
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from supervisor.adapters.figures import owners
from supervisor.adapters.tfrecord import event, is_whole, recovered
from supervisor.as_user import acting_as, as_daemon, log_user, other
from supervisor.files import held, open_regular, read, was_at
from supervisor.policy.script.figures import (
    CSV,
    EVENTS,
    JSON_LINES,
    LOG,
    OTHER_NAMES,
    RESUMED,
    STEP,
    figure_of,
    matched,
    number,
)
from supervisor.policy.script.file_owner import Claim, decide
from supervisor.policy.worker.reason_line import plain_text

PIECE_BYTES: Final = 256 * 1024  # per file and look
BEHIND_BYTES: Final = 1 << 20  # data further behind is skipped
HEAD_BYTES: Final = 64 * 1024  # this much of skipped data is read first: the first step may be there
MOST_FILES: Final = 16  # per pattern: the newest ones
_MOST_CANDIDATES: Final = 256  # of which some may be other programs'
_MOST_ENTRIES: Final = 1000  # of a neighbour's directory, of which some may be links
_MOST_UNKNOWN: Final = 64  # are watched at once ...
_RECENT_NS: Final = 60 * 10**9  # ... if they have grown within this time
MOST_ROWS: Final = 2000
MOST_KEYS: Final = 200  # per JSON line or CSV row
LONGEST_LINE: Final = 64 * 1024
LONGEST_MATCHED: Final = 2000  # characters of a line that regular expressions see
TICK_S: Final = 0.1  # seconds of CPU time
LOOK_TICKS: Final = 10
REGEX_TICKS: Final = 3  # for one regular expression on one line
GLOB_TICKS: Final = 20
MARK_BYTES: Final = 64
_AT_EMPTY_PATH, _STATX_BTIME, _BTIME_AT = 0x1000, 0x800, 80  # statx(2)
_LONGEST_SHOWN: Final = 40
_LARGEST_EVENT: Final = 64 * 1024  # a larger record holds an image
_LONGEST_RECORD: Final = 1 << 30
_LINE_ENDS: Final = re.compile(rb"[\r\n]+")
_TIMES: Final = ("timestamp", "_timestamp", "wall_time", "time")
_CLOCK: Final = (1e9, 1e11)  # range of values that can be seconds of the wall clock


class TooSlow(Exception):
    """An operation has used up its allowed CPU time."""


@dataclass(slots=True)
class Cursor:
    """The position up to which a file was read. `mark` is a checksum of the bytes before `at`."""

    device: int
    inode: int
    at: int
    mark: int = 0
    whole: bool = True  # the whole output of this attempt was read up to there
    fresh: bool = False  # nothing of this attempt was read yet: earlier attempts wrote the data before `at`

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(slots=True)
class Answer:
    """The result of a look. `rows`: (rank of the source, seconds of the wall clock or None, whole, numbers by figure)."""

    cursors: dict[str, Cursor]
    rows: list[tuple[int, float | None, bool, dict[str, float]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slow: list[int] = field(default_factory=list)  # regular expressions that took too long
    matched: set[int] = field(default_factory=set)  # regular expressions that matched a line
    odd: dict[str, tuple[str, str]] = field(default_factory=dict)  # by figure: expression, and text that is no number
    lines: int = 0  # of its logs
    files: dict[str, list[str]] = field(default_factory=dict)
    behind: bool = False  # there is more to read
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)  # by file that several programs may write
    not_own: dict[str, int] = field(default_factory=dict)  # by kind: files whose writer is unknown, or that several write
    waited_s: float = 0.0  # time in which it watched files grow


class _Watchdog:
    """Limits CPU time, in ticks of a tenth of a second. `re` checks for signals now and then, so a tick can end a search."""

    def __init__(self) -> None:
        self.left = 0  # ticks until the current operation is ended; 0: no limit
        self._ticks = 0

    @property
    def over(self) -> bool:
        """Whether the look has used up its time."""
        return self._ticks >= LOOK_TICKS

    def tick(self, _number: int, _frame: object) -> None:
        self._ticks += 1
        if self.left == 1:
            self.left = 0
            raise TooSlow
        self.left = max(0, self.left - 1)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count ticks. Works only in the main thread, because signals arrive there."""
        before = signal.signal(signal.SIGPROF, self.tick)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)


def read_once(request: Mapping[str, Any]) -> Answer:
    """Perform one look, as requested by `thread.py`."""
    answer = Answer({path: Cursor(**given) for path, given in request["cursors"].items()})
    watchdog = _Watchdog()
    with watchdog.watching():
        reader = _Reader(request, answer, watchdog)
        reader.logs()
        with acting_as(request["user"]):
            for rank, kind in ((JSON_LINES, "json"), (CSV, "csv"), (EVENTS, "events")):
                reader.files(rank, kind)
    if watchdog.over:
        answer.notes.append("its log and files grow faster than they can be read: a part is skipped")
    del answer.rows[1:-MOST_ROWS]  # the first row may have the first step
    return answer


def _claim(given: Mapping[str, Any] | None) -> Claim:
    """What earlier looks have found out about a file."""
    known: dict[str, Any] = {
        key: frozenset(value) if isinstance(value, list) else value for key, value in (given or {}).items()
    }
    return Claim(**known)


class _Reader:
    """Reads the files of one program."""

    def __init__(self, request: Mapping[str, Any], answer: Answer, watchdog: _Watchdog) -> None:
        self._request, self._answer, self._watchdog = request, answer, watchdog
        self._off = set(request["off"])
        names = request["names"]
        self._step_curve = names.get(STEP)
        others = {key: figure for figure, key in names.items() if figure != STEP}
        self._named: dict[str, str] = {self._step_curve: STEP} | others if self._step_curve else others

    def logs(self) -> None:
        patterns = [(place, re.compile(text)) for place, text in enumerate(self._request["regex"]) if place not in self._off]
        for path in self._request["logs"] if patterns else ():
            with acting_as(log_user(path, self._request["user"])):
                for data, whole in self._new_data(path, self._opened(path)):
                    for line in _LINE_ENDS.split(data):
                        if line and not self._watchdog.over:
                            self._match(patterns, line, whole=whole)

    def _opened(self, path: str) -> str:
        """The worker's descriptor of a log that was taken away under it, as logrotate does; empty: the log is in place."""
        cursor = self._answer.cursors.get(path)
        if cursor is None:  # an earlier daemon has read it
            if other(self._request["user"]):  # in a mount namespace of its own, that user may give any file this name
                return ""
            return next((each for each in self._request["opened"] if was_at(each, path)), "")
        if _file(path) == cursor.file:
            return ""
        return next((each for each in self._request["opened"] if _file(each) == cursor.file), "")

    def _match(self, patterns: list[tuple[int, re.Pattern[str]]], line: bytes, *, whole: bool) -> None:
        text = plain_text(line[: 4 * LONGEST_MATCHED].decode("utf-8", "replace"))[:LONGEST_MATCHED]
        self._answer.lines += 1
        found: dict[str, float] = {}
        for place, pattern in patterns:
            if place in self._answer.slow:
                continue
            self._watchdog.left = REGEX_TICKS
            try:
                match = pattern.search(text)
            except TooSlow:
                self._answer.slow.append(place)
                continue
            self._watchdog.left = 0
            if match:
                self._answer.matched.add(place)
                found |= self._numbers_of(match)
        if found:
            self._answer.rows.append((LOG, None, whole, found))

    def _numbers_of(self, match: re.Match[str]) -> dict[str, float]:
        found = {}
        for name in match.re.groupindex:
            text, figure = matched(match, name), OTHER_NAMES.get(name, name)
            if text is None:
                continue
            value = number(text)
            if value is not None:
                found[figure] = value
            else:
                self._answer.odd.setdefault(figure, (match.re.pattern, text[:_LONGEST_SHOWN]))
        return found

    def files(self, rank: int, kind: str) -> None:
        """Read the files that match the pattern of a kind. The pattern is searched again when the daemon asks for it."""
        pattern = self._request["globs"].get(kind)
        if not pattern:
            return
        if self._request["search"]:
            self._answer.files[kind] = self._search(kind, pattern)
        for path in self._answer.files.get(kind, self._request["files"].get(kind, ())):
            for data, whole in self._new_data(path, whole_records=rank == EVENTS):
                if rank == JSON_LINES:
                    self._json(data, whole=whole)
                elif rank == CSV:
                    self._csv(path, data, whole=whole)
                else:
                    self._events(path, data, whole=whole)

    def _search(self, kind: str, pattern: str) -> list[str]:
        """The newest own files that match and were written since the attempt began. The first search notes their ends."""
        found: list[tuple[int, str, owners.File]] = []
        base, since_ns = Path(self._request["base"]), self._request["since_wall_s"] * 1e9
        self._watchdog.left = GLOB_TICKS
        try:
            for path in base.glob(pattern):
                with contextlib.suppress(OSError):
                    seen = path.lstat()
                    found.append((seen.st_mtime_ns, str(path), (seen.st_dev, seen.st_ino)))
        except TooSlow:
            self._answer.notes.append(f"looking for {pattern} takes too long: not all of its directories are looked at")
        except OSError as error:
            self._answer.notes.append(f"{error.filename or base} cannot be looked through: {error.strerror}")
        self._watchdog.left = 0
        newest = sorted(found, reverse=True)[:_MOST_CANDIDATES]
        if self._request["first"]:
            for at_ns, name, _ in reversed(newest):
                self._begin_at(name, new=at_ns >= since_ns)
        own = self._own(kind, {name: (at_ns, file) for at_ns, name, file in newest if at_ns >= since_ns})
        return own[:MOST_FILES][::-1]

    def _own(self, kind: str, files: dict[str, tuple[int, owners.File]]) -> list[str]:
        """The files that are not another program's; `policy/script/file_owner.py` decides where another may write them."""
        places = {real for path in self._request["places"] for real in _real_places(path)}
        contested, asked = self._request["contested"], self._request["claims"]
        real = {path: os.path.realpath(path) for path in files} if places or contested else {}
        claims = {
            target: decide(
                _claim(asked.get(target)), self._open_by.get(files[path][1]) or owners.named(target, self._members)
            )
            for path, target in real.items()
            if contested or any(target.startswith(f"{place.rstrip('/')}/") for place in places)
        }  # fmt: skip
        if not claims:
            return list(files)
        own = [path for path in files if real[path] not in claims or claims[real[path]].owner == self._request["name"]]
        unknown = {target for target, claim in claims.items() if claim.is_open_question}
        self._answer.not_own[kind] = len(unknown) + sum(claim.is_shared for claim in claims.values())
        if unknown and self._request["watch"]:
            claims |= self._watched({path: _claim(given) for path, given in asked.items()} | claims, unknown)
        self._answer.claims |= {path: asdict(claim) for path, claim in claims.items()}
        return own

    def _watched(self, claims: Mapping[str, Claim], own: set[str]) -> dict[str, Claim]:
        """Watch its files whose writer is unknown, and those of other programs, if some of its own have grown recently.

        The daemon checks the result, so later looks read them.
        """
        began_s, recent_ns = time.monotonic(), time.time_ns() - _RECENT_NS
        unknown = [path for path, claim in claims.items() if claim.is_open_question and _written_ns(path) >= recent_ns]
        if own.isdisjoint(unknown):
            return {}
        found = owners.growths(unknown[-_MOST_UNKNOWN:], self._request["trees"])
        self._answer.waited_s += time.monotonic() - began_s
        return {path: decide(claims[path], set(), growths) for path, growths in found.items()}

    @functools.cached_property
    def _members(self) -> dict[str, tuple[int, ...]]:
        return owners.trees(self._request["trees"])

    @functools.cached_property
    def _open_by(self) -> dict[owners.File, set[str]]:
        with as_daemon():  # of all users' programs
            return owners.open_files(self._members)

    def _begin_at(self, path: str, *, new: bool) -> None:
        """Set the first position in a file. Content from before the attempt belongs to an earlier attempt.

        A file that was made since then is this attempt's from its first byte. One that has grown since then may hold rows of
        an earlier attempt: only its newest part is read, because it is unknown where in it the attempt began.
        """
        if path in self._answer.cursors:
            return
        with contextlib.suppress(OSError), held(open_regular(path)) as fd:
            seen = os.fstat(fd)
            at = max(0, seen.st_size - PIECE_BYTES) if new else seen.st_size
            whole = not new or (not at and made_s(fd) >= self._request["since_wall_s"])
            self._answer.cursors[path] = Cursor(seen.st_dev, seen.st_ino, at, _mark(fd, at), whole=whole, fresh=True)

    # --- new bytes -------------------------------------------------------------------------------------------------------

    def _new_data(self, path: str, opened: str = "", *, whole_records: bool = False) -> Iterator[tuple[bytes, bool]]:
        """The data written since the previous look, in whole lines (or records), and whether nothing was skipped."""
        try:
            fd = open_regular(opened or path, follow=bool(opened))
        except FileNotFoundError:
            return
        except OSError as error:
            self._answer.notes.append(f"{path} cannot be read: {error.strerror}")
            return
        try:
            seen = os.fstat(fd)
            if os.geteuid() not in (0, seen.st_uid):
                self._answer.notes.append(f"{path} belongs to another user: it is not read")
                return
            yield from self._pieces(fd, seen.st_size, self._placed(path, fd, seen), whole_records=whole_records)
        except OSError as error:
            self._answer.notes.append(f"{path} cannot be read: {error.strerror}")
        finally:
            os.close(fd)

    def _placed(self, path: str, fd: int, seen: os.stat_result) -> Cursor:
        cursors, file = self._answer.cursors, (seen.st_dev, seen.st_ino)
        known = cursors.get(path)
        if known is None:  # its directory may have another name by now; a new file may have the number of a removed one
            known = next(
                (each for each in cursors.values() if each.at and each.file == file and _goes_on(fd, seen, each)), None
            )
            cursors |= {} if known is None else {path: known}
        if known is None and self._request["begin"].get(path, 0) <= seen.st_size:
            at = self._request["begin"].get(path, 0)
            known = cursors[path] = Cursor(*file, at, _mark(fd, at))
        elif known is None or not _goes_on(fd, seen, known):
            # Rotated or rewritten: lines may have been lost, unless the attempt began with this file.
            known = cursors[path] = Cursor(*file, 0, 0, whole=known is not None and known.fresh and known.whole)
        known.device, known.inode = (
            file  # a script that writes all of its rows anew, and renames: they go on where they were
        )
        return known

    def _pieces(self, fd: int, size: int, cursor: Cursor, *, whole_records: bool) -> Iterator[tuple[bytes, bool]]:
        """Read the new data. The position advances first, so that data that takes too long is not read again."""
        if size > cursor.at:
            cursor.fresh = False
        if size - cursor.at > BEHIND_BYTES:
            if not whole_records:
                data = os.pread(fd, HEAD_BYTES, cursor.at)
                yield data[: _lines_end(data)], cursor.whole
            cursor.at, cursor.whole = size - PIECE_BYTES, False
            if not whole_records:
                found = _LINE_ENDS.search(os.pread(fd, LONGEST_LINE, cursor.at))  # the position may be within a line
                cursor.at += found.end() if found else 0
        data = os.pread(fd, PIECE_BYTES, cursor.at)
        end = _records_end(data, size - cursor.at) if whole_records else _lines_end(data)
        cursor.at += end
        cursor.mark = _mark(fd, cursor.at)
        self._answer.behind |= size - cursor.at > PIECE_BYTES
        yield data[:end], cursor.whole

    # --- parsing -------------------------------------------------------------------------------------------------------

    def _json(self, data: bytes, *, whole: bool) -> None:
        for line in data.split(b"\n"):
            body = None
            if not self._watchdog.over and line.lstrip().startswith(b"{"):
                with contextlib.suppress(ValueError, RecursionError):
                    body = json.loads(line)
            if not isinstance(body, dict):
                continue
            found, at_s = self._figures(dict(islice(_numbers(body), MOST_KEYS)))
            if found:
                self._answer.rows.append((JSON_LINES, at_s, whole, found))

    def _csv(self, path: str, data: bytes, *, whole: bool) -> None:
        """Parse rows below the names in the first line, without empty cells: not every figure is logged at every step.

        A row without any number is a new line of names: the script has restarted.
        """
        first = b""
        with contextlib.suppress(OSError):
            first = read(path, LONGEST_LINE, follow=False).partition(b"\n")[0]
        delimiter = max(",;\t", key=lambda each: first.count(each.encode()))
        names = _cells(first, delimiter)
        for line in data.split(b"\n"):
            cells = [] if self._watchdog.over else _cells(line, delimiter)
            numbers = [number(cell) for cell in cells]
            if cells and all(each is None for each in numbers):
                names = cells if all(cells) else names
                continue
            given = {name: each for name, each in zip(names, numbers, strict=False) if each is not None}
            if not given or len(cells) != len(names):
                continue
            found, at_s = self._figures(dict(islice(given.items(), MOST_KEYS)))
            if found:
                self._answer.rows.append((CSV, at_s, whole, found))

    def _figures(self, given: Mapping[str, float]) -> tuple[dict[str, float], float | None]:
        at_s = next((given[key] for key in _TIMES if _CLOCK[0] < given.get(key, 0.0) < _CLOCK[1]), None)
        found = {}
        for key, value in given.items():
            figure = self._figure(key)
            if figure is not None and (key not in _TIMES or key in self._named):
                found[figure] = value
        return found, at_s

    def _figure(self, key: str) -> str | None:
        """The figure of a key: by the configuration, or else by its own name, if no other key is given for that figure."""
        named: str | None = self._named.get(key)
        if named is not None:
            return named
        figure = figure_of(key)
        return None if figure in self._named.values() else figure

    def _events(self, path: str, data: bytes, *, whole: bool) -> None:
        found = recovered(data, _LONGEST_RECORD)
        if found.damaged and whole:
            self._answer.notes.append(f"{path} is damaged: what can be found beyond that place is read")
        for place, end in found.messages:
            if end - place > _LARGEST_EVENT or self._watchdog.over:
                continue
            if not is_whole(data, place, end):
                self._answer.notes.append(f"{path} has a record with a wrong checksum: it is left out")
                continue
            parsed = event(data, place, end)
            if parsed is not None:
                self._scalars(parsed.wall_s, parsed.step, parsed.scalars, whole=whole and not found.damaged)

    def _scalars(self, wall_s: float, step: int, scalars: Mapping[str, float], *, whole: bool) -> None:
        """Add the scalars of one event, with its step. If a curve is named for `step`, only events with it give a step."""
        figures = {
            figure: value for tag, value in scalars.items() if (figure := self._figure(tag)) not in (None, STEP, RESUMED)
        }
        named = self._step_curve in scalars
        found = {str(figure): value for figure, value in figures.items()}
        if named or not self._step_curve:
            found[STEP] = float(step)
        if found:
            at_s = wall_s if _CLOCK[0] < wall_s < _CLOCK[1] else None
            self._answer.rows.append((EVENTS, at_s, whole and named, found))


def _file(path: str) -> tuple[int, int] | None:
    """The file at a path, by device and inode."""
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        return found.st_dev, found.st_ino
    return None


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  a path object each is waste
    except OSError:
        return 0


def _goes_on(fd: int, seen: os.stat_result, cursor: Cursor) -> bool:
    """Whether the file still has the content that was read."""
    return seen.st_size >= cursor.at and _mark(fd, cursor.at) == cursor.mark


def _mark(fd: int, at: int) -> int:
    """A checksum of the bytes before a position."""
    length = min(at, MARK_BYTES)
    return zlib.crc32(os.pread(fd, length, at - length))


def made_s(fd: int) -> float:
    """When a file was made, by the wall clock; minus infinity: its file system does not say."""
    found = ctypes.create_string_buffer(256)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return -math.inf
    (mask,), (second, nanosecond) = struct.unpack_from("=I", found), struct.unpack_from("=qI", found, _BTIME_AT)
    return float(second + nanosecond / 1e9) if mask & _STATX_BTIME else -math.inf


def _lines_end(data: bytes) -> int:
    """The end of the last complete line. A line without end is skipped piece by piece."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return end if end or len(data) < LONGEST_LINE else len(data)


def _records_end(data: bytes, left: int) -> int:
    """The end of the last complete record. `left`: number of bytes in the file from the start of the data on."""
    found = recovered(data, _LONGEST_RECORD)
    return found.more if not found.end and PIECE_BYTES < found.more <= left else found.end  # an image too large for a look


def _cells(line: bytes, delimiter: str) -> list[str]:
    text = line.strip(b"\r\n").decode("utf-8-sig", "replace")
    with contextlib.suppress(csv.Error):
        return next(csv.reader([text], delimiter=delimiter), [])
    return []


def _real_places(path: str) -> Iterator[str]:
    """The directory, and those that links in it lead to: several may have a link `runs` to one directory."""
    yield os.path.realpath(path)
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        yield from (os.path.realpath(each.path) for each in islice(entries, _MOST_ENTRIES) if each.is_symlink())


def _numbers(body: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Numbers by key; a number in a nested object has the key `key/inner`."""
    for key, value in body.items():
        if isinstance(value, dict) and depth < 2:
            yield from _numbers(value, f"{before}{key}/", depth + 1)
        elif isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            with contextlib.suppress(OverflowError):
                yield f"{before}{key}", float(value)


def as_json(answer: Answer) -> str:
    """The answer as the child prints it. Only Python reads it: NaN and infinity stay as they are."""
    return json.dumps(asdict(answer) | {"notes": answer.notes[:8]}, default=sorted)  # of sets
