"""The thread that asks a child process for the new output of scripts, and keeps the known figures of each attempt.

One child serves all programs. It starts when the first program names a source, and it has no state. If a file system does
not answer within `HANGS_S`, the child is killed, and its program is not read for ten minutes. The child itself limits the
CPU time of a look (`reading.py`), so a busy machine does no harm. After a look that took long, the next one comes later.

The deciding thread never waits for any of this: it takes the newest known figures.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor.adapters import leftovers
from supervisor.adapters.threads import Lasting
from supervisor.config.overlaps import may_meet
from supervisor.formats import span
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.model.state import State
from supervisor.policy.script.figures import LOG, FigureRow, Figures, Sources, after
from supervisor.ports import Clock, ahead_s
from supervisor.records import Record
from workers import contract

log = structlog.get_logger()

LOOK_S: Final = 1.0
HANGS_S: Final = 30.0
AWAY_S: Final = 600.0  # a program whose files hang is not read for so long
LOOK_SHARE: Final = 0.05  # the part of the time that looks at one program may take
_SEARCH_S: Final = 10.0
_SEARCH_SHARE: Final = 0.02
_STALE_S: Final = 60.0  # figures from an older look no longer count as progress
_MOST_STRIKES: Final = 3  # a regular expression is disabled after it took too long this often
_UNMATCHED_LINES: Final = 200
_MISSING_S: Final = 300.0
_ONE_UNMATCHED_S: Final = 1800.0  # where another expression matches: a loss may be logged rarely
_WATCH_PAUSE_S: Final = 2.0  # a watch sees the files of all programs
_SETTLES_S: Final = 60.0  # after its start a program that has no files yet is searched for them at each look
_MOST_CURSORS: Final = 64
_MOST_CLAIMS: Final = 1000
_LAST_LOOK_S: Final = 3.0
_LAST_STEP_S: Final = 9.0  # over all looks: files that hang, on a network disk, must not hold up a restart for half a minute
_MOST_LAST_LOOKS: Final = 8
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_CHILD: Final = str(Path(__file__).with_name("child.py"))


class FigureReading(Record):
    """The known figures of one attempt, from its own output. `fault`: why they are incomplete, as a clause."""

    figures: Figures
    looked_at_s: float
    fault: str = ""

    def shows_progress(self, now_s: float) -> bool:
        """Whether its steps or lines currently show progress."""
        return self.figures.moves > 1 and now_s - self.looked_at_s < _STALE_S


@dataclass(slots=True)
class _Watched:
    """The reading state of one attempt."""

    name: str
    token: str
    since_wall_s: float
    sources: Sources
    begin: dict[str, int]
    base: str
    watched_s: float
    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    reading: FigureReading | None = None
    strikes: dict[int, int] = field(default_factory=dict)  # by regular expression
    lines: int = 0  # of its logs
    matched: set[int] = field(default_factory=set)  # regular expressions that have matched a line
    known: set[str] = field(default_factory=set)  # figures that its log has given
    odd: dict[str, list[str]] = field(default_factory=dict)  # by figure: expression, and text that is no number
    searched: bool = False
    search_due_s: float = 0.0
    due_s: float = 0.0
    behind: bool = False
    roots: tuple[int, ...] = ()  # of its process tree; empty: on another machine
    user: str = ""  # of the program: its files are read as this user
    not_own: dict[str, int] = field(default_factory=dict)  # by kind: files that may be another program's
    waited_s: float = 0.0  # in the newest look


class FigureReader:
    """Reads until `stop`. `watch`, `forget` and `newest` return at once."""

    def __init__(
        self, paths: Paths, clock: Clock, spec_of: Callable[[str], ProgramSpec | None],
        specs: Callable[[], Iterable[ProgramSpec]] = tuple, state: Callable[[], State] = State,
    ) -> None:  # fmt: skip
        """`spec_of` returns a program's current settings, so sources from an update are read without a restart.

        `specs`: all programs, because they may write files in the same directory. `state`: the current one.
        """
        self._paths, self._clock, self._spec_of, self._specs, self._state = paths, clock, spec_of, specs, state
        self._guard = threading.Lock()
        self._looking = threading.Lock()  # protects the state that a look changes
        self._watched: dict[str, _Watched] = {}
        self._past: dict[str, dict[str, dict[str, Any]]] = {}  # by program: the previous attempt's last positions
        self._claims: dict[str, dict[str, Any]] = {}  # by file: which program writes it (`policy/script/file_owner.py`)
        self._watch_due_s = 0.0
        self._wake, self._over = threading.Event(), threading.Event()
        self._child = _Child()
        self._thread: Lasting | None = None

    def watch(
        self, spec: ProgramSpec, token: str, since_wall_s: float, logs_from: tuple[int, int] | None,
        roots: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Start to read an attempt that began at `since_wall_s`.

        `logs_from`: the sizes of its logs at that time, if known. `roots`: its worker and its shim, on this machine.
        """
        begin = {}
        for place, channel in enumerate(("stdout", "stderr")):
            path = self._paths.log_of(spec, channel)
            if path is not None:
                begin[path] = _size(path) if logs_from is None else logs_from[place]
        item = _Watched(
            spec.name, token, since_wall_s, self._sources_of(spec), begin, self._base(spec), self._clock.now_s(),
            self._past.get(spec.name, {}), roots=roots, user=spec.user,
        )  # fmt: skip
        with self._guard:
            self._watched[spec.name] = item
            if self._thread is None and spec.figures.read and not self._over.is_set():
                self._begin()
        self._wake.set()

    def _begin(self) -> None:
        thread = Lasting("figures", self._turn, self._over.is_set)
        with contextlib.suppress(RuntimeError):  # no thread can be started now; the next attempt tries again
            thread.start()
            self._thread = thread

    def forget(self, program: str, token: str) -> None:
        with self._guard:
            item = self._watched.get(program)
            if item is not None and item.token == token:
                del self._watched[program]
                files = {path: cursor for path, cursor in item.cursors.items() if path not in item.begin}
                self._past[program] = {path: {**cursor, "whole": True, "fresh": True} for path, cursor in files.items()}

    def newest(self, program: str, token: str) -> FigureReading | None:
        """The newest known figures; None: nothing is known, or the program has no source."""
        item = self._watches(program, token)
        return None if item is None else item.reading

    def shown(self, program: str) -> Figures | None:
        """The newest known figures of the program's newest attempt; None: nothing is known."""
        with self._guard:
            item = self._watched.get(program)
        return None if item is None or item.reading is None else item.reading.figures

    def _watches(self, program: str, token: str) -> _Watched | None:
        with self._guard:
            item = self._watched.get(program)
        return item if item is not None and item.token == token else None

    def last(self, program: str, token: str, since_wall_s: float, logs_from: tuple[int, int] | None) -> Figures:
        """The figures of an attempt that has ended, after a last look. One that nobody watches is read as in `watch`.

        This takes at most `_LAST_STEP_S`, so the deciding thread must not call it. The program's next start waits for it.
        """
        until_s, spec = time.monotonic() + _LAST_STEP_S, self._spec_of(program)
        if spec is not None and not spec.builtin and not self._watches(program, token):  # no daemon saw its end
            self.watch(spec, token, since_wall_s, logs_from)
        item = self._watches(program, token)
        if item is None or not self._sources(item).read:
            return Figures()
        if self._looking.acquire(timeout=_LAST_LOOK_S):
            try:
                for _ in range(_MOST_LAST_LOOKS):
                    left_s = until_s - time.monotonic()
                    if left_s <= 0.0:
                        break
                    item.search_due_s = 0.0
                    self._look(item, min(_LAST_LOOK_S, left_s), watch=False)
                    if not item.behind:
                        break
            finally:
                self._looking.release()
        return item.figures

    def stop(self) -> None:
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self._child.end()

    def _turn(self) -> None:
        with self._guard:
            items = list(self._watched.values())
        for item in items:
            if self._over.is_set():
                return
            now_s = time.monotonic()
            if now_s >= item.due_s and self._sources(item).read:
                with self._looking:
                    self._look(item, HANGS_S)
                took_s = time.monotonic() - now_s - item.waited_s
                item.due_s = max(item.due_s, now_s + max(LOOK_S, took_s / LOOK_SHARE))
        self._wake.wait(LOOK_S / 4)
        self._wake.clear()

    def _sources(self, item: _Watched) -> Sources:
        """The current sources. After a change, each file is read from its position at that moment."""
        spec = self._spec_of(item.name)
        sources = item.sources if spec is None else self._sources_of(spec)
        if sources != item.sources:
            item.sources, item.files, item.searched, item.search_due_s = sources, {}, False, 0.0
            item.strikes, item.lines, item.matched, item.known, item.odd = {}, 0, set(), set(), {}
            item.watched_s = self._clock.now_s()
        return item.sources

    def _sources_of(self, spec: ProgramSpec) -> Sources:
        program = self._state().programs.get(spec.name)
        return spec.sources_at(0 if program is None else program.rollbacks)

    def _base(self, spec: ProgramSpec) -> str:
        return spec.directory or self._paths.run_dir(spec.name)

    # --- one look --------------------------------------------------------------------------------------------------------

    def _look(self, item: _Watched, patience_s: float, *, watch: bool = True) -> None:
        """Look at one attempt's files. Never raises: figures that cannot be read are unknown.

        `watch`: whether files whose writer is unknown may be watched for a while.
        """
        now_s, began_s = self._clock.now_s(), time.monotonic()
        search = began_s >= item.search_due_s
        try:
            crowd = self._crowd(item) if search and watch and began_s >= self._watch_due_s else None
            request = _request(item, search=search) | self._neighbours(item, search=search, watch=crowd is not None)
            answer = self._child.ask(request, patience_s)
            if "error" in answer:
                raise ValueError(answer["error"])
            if crowd is None or self._crowd(item) != crowd:  # a growth may be of a process that is not known
                answer["claims"] = {path: each for path, each in answer["claims"].items() if each["spared"] is None}
            self._take(item, answer, now_s, search=search)
        except TimeoutError:
            item.due_s = began_s + AWAY_S
            _record_fault(item, f"its files did not answer within {span(patience_s)}: they are read again in 10m")
        except (OSError, ValueError, KeyError, TypeError) as error:
            _record_fault(item, f"its figures cannot be read: {error}")
        if search:
            # A neighbour's file, or its own that is written now and then: only more looks can tell.
            missing = [kind for kind in item.sources.globs if not item.files.get(kind)]
            settles = now_s - item.watched_s < _SETTLES_S or any(item.not_own.get(kind) for kind in missing)
            took_s = time.monotonic() - began_s - item.waited_s
            item.search_due_s = time.monotonic() + max(LOOK_S if missing and settles else _SEARCH_S, took_s / _SEARCH_SHARE)

    def _crowd(self, item: _Watched) -> frozenset[str] | None:
        """The tokens of all attempts; None: one has just begun, and its processes are not known here."""
        if not item.sources.globs:
            return None
        tokens = {name: live.attempt.token for name, live in self._state().live.items() if live.attempt is not None}
        own = {spec.name for spec in self._specs() if not spec.builtin}
        with self._guard:
            known = {
                name for name, each in self._watched.items() if each.roots and each.token == tokens.get(name, each.token)
            }
        return frozenset(tokens.values()) if (own & tokens.keys()) | {item.name} <= known else None

    def _neighbours(self, item: _Watched, *, search: bool, watch: bool) -> dict[str, Any]:
        """Which other programs may write the files of this one, and what is known of these files."""
        if not search or not item.sources.globs:
            return {"name": item.name, "places": [], "contested": False, "trees": {}, "watch": False, "claims": {}}
        others = [spec for spec in self._specs() if spec.name != item.name and not spec.builtin]
        with self._guard:
            trees = {name: each.roots for name, each in self._watched.items() if each.roots}
        patterns = [f"{item.base}/{pattern}" for pattern in item.sources.globs.values()]
        contested = not item.roots and any(
            may_meet(mine, f"{self._base(spec)}/{pattern}")
            for spec in others for pattern in self._sources_of(spec).globs.values() for mine in patterns
        )  # fmt: skip
        places = sorted({self._base(spec) for spec in others}) if item.roots else []
        return {
            "name": item.name, "places": places, "contested": contested, "trees": trees, "watch": watch,
            "claims": self._claims if places or contested else {},
        }  # fmt: skip

    def _take(self, item: _Watched, answer: Mapping[str, Any], now_s: float, *, search: bool) -> None:
        cursors, item.behind = answer["cursors"], answer["behind"]
        # Those of the attempt's logs, and of the files that were found last.
        kept = [*item.begin, *[path for path in cursors if path not in item.begin][-_MOST_CURSORS:]]
        item.cursors = {path: cursors[path] for path in kept if path in cursors}
        item.searched = item.searched or search
        item.waited_s = answer["waited_s"]
        if item.waited_s:
            self._watch_due_s = time.monotonic() + _WATCH_PAUSE_S
        if search:
            item.files, item.not_own = answer["files"], answer["not_own"]
            self._claims = dict([*self._claims.items(), *answer["claims"].items()][-_MOST_CLAIMS:])
        for place in answer["slow"]:
            item.strikes[place] = item.strikes.get(place, 0) + 1
        item.lines += answer["lines"]
        item.matched.update(answer["matched"])
        item.odd = answer["odd"] | item.odd
        ahead = ahead_s(self._clock)
        rows = [_row(given, now_s, ahead) for given in answer["rows"]]
        if rows:
            item.figures = after(item.figures, rows)
            item.known.update(name for row in rows if row.rank == LOG for name in row.values)
        item.reading = FigureReading(item.figures, now_s, _fault(item, answer["notes"], now_s))


def _request(item: _Watched, *, search: bool) -> dict[str, Any]:
    sources = item.sources
    return {
        "logs": list(item.begin), "opened": [f"/proc/{pid}/fd/{fd}" for pid in item.roots[:1] for fd in (1, 2)],
        "regex": list(sources.log_regex), "begin": item.begin,
        "off": [place for place, strikes in item.strikes.items() if strikes >= _MOST_STRIKES],
        "globs": sources.globs, "names": dict(sources.names),
        "base": item.base, "since_wall_s": item.since_wall_s, "search": search, "first": not item.searched,
        "files": item.files, "cursors": item.cursors, "user": item.user,
    }  # fmt: skip


def _row(given: list[Any], now_s: float, ahead_s: float) -> FigureRow:
    rank, wall_s, whole, values = given
    at_s = now_s if wall_s is None else min(now_s, wall_s - ahead_s)
    return FigureRow(rank, at_s, {name: float(value) for name, value in values.items()}, whole)


def _record_fault(item: _Watched, fault: str) -> None:
    """Record a fault. Earlier figures stay known, with their old time."""
    item.reading = (
        replace(item.reading, fault=fault) if item.reading is not None else FigureReading(item.figures, -math.inf, fault)
    )


def _fault(item: _Watched, notes: list[str], now_s: float) -> str:
    """Why the figures are incomplete; empty: there is no fault."""
    patterns = item.sources.log_regex
    off = [patterns[place] for place, strikes in item.strikes.items() if strikes >= _MOST_STRIKES and place < len(patterns)]
    if off:
        return f"log_regex '{off[0]}' takes too long for a line of its log: it is not used any more"
    for_s = now_s - item.watched_s
    if item.lines >= (_UNMATCHED_LINES if for_s < _MISSING_S else 1):
        limit_s = _ONE_UNMATCHED_S if item.matched else 0.0
        unmatched = [pattern for place, pattern in enumerate(patterns) if place not in item.matched and for_s >= limit_s]
        if unmatched:
            return f"log_regex '{unmatched[0]}' matches no line of its log"
    for figure, (pattern, text) in item.odd.items():
        if figure not in item.known:
            return f"log_regex '{pattern}' finds '{text}' as {figure}, which is no number"
    for kind, pattern in item.sources.globs.items():
        if item.not_own.get(kind) and not item.files.get(kind) and for_s >= _SETTLES_S:
            return (
                f"the files that match {pattern} may be another program's, which has the same directory: they are not read; "
                "put {name} or {seed} into the pattern, or give each program a directory"
            )
    missing = [pattern for kind, pattern in item.sources.globs.items() if item.searched and not item.files.get(kind)]
    if missing and item.figures == Figures() and for_s >= _MISSING_S:
        return f"no file below {item.base} matches {missing[0]}, or none was written since its start"
    return next(iter(notes), "")


def began_wall_s(start_ticks: int | None) -> float:
    """When a process of this machine began, by the current wall clock. If that is unknown, `LOOK_S` ago."""
    if start_ticks is None:
        return time.time() - LOOK_S
    return time.time() - (contract.now_ns() / 1e9 - start_ticks / _TICKS_PER_S) - 1.0 / _TICKS_PER_S


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


class _Child:
    """The child process, started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def ask(self, request: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
        """The child's answer to a request. Raises TimeoutError, OSError or ValueError, and then ends the child."""
        try:
            connection = self._connected()
            connection.settimeout(patience_s)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
            if not line.endswith(b"\n"):
                raise OSError("the reading process has ended")
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("no answer")
        except BaseException:
            self.end()
            raise
        return answer

    def _connected(self) -> socket.socket:
        if self._socket is None or self._process is None or self._process.poll() is not None:
            self.end()
            self._socket, theirs = socket.socketpair()
            # Its own process group, but in the daemon's session: children in other sessions count as orphans of workers.
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-Xutf8=1", _CHILD], stdin=theirs.fileno(), stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL, cwd="/", process_group=0, env={**os.environ, **leftovers.mark()},
                )  # fmt: skip
        return self._socket

    def end(self) -> None:
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # a child that is blocked inside the kernel is left to the search for orphans
