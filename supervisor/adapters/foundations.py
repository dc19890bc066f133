"""Checks every two seconds the files and directories that the daemon relies on.

One row (`Watched`) describes one watched file or directory: its name, its path, its expected identity, and who restores it.
`policy/box/foundations.py` decides how to react to a finding; a row describes only its own file.

The rules:

* Identity is device, inode and kind. It is read from the daemon's open descriptor, if there is one, else from
  a descriptor that was opened at the first check (`Remembered`). `lstat` of the path must give the same identity.
* Only ENOENT and ENOTDIR mean that something is missing. After any other error its state is unknown.
* A check can hang, on a network file system or FUSE (`threads.Rounds`). A path that has not answered for `hang_s` is
  reported as unknown.
* The checking thread posts the findings of each check that has any, and once that there are none any more.
* Before the daemon restarts itself, the next image is started for a check: its interpreter or a module may be missing, and
  after an exec there is no way back. Such a check takes a second, and counts for half a minute.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import structlog

from supervisor import files
from supervisor.adapters.threads import Repeated, Rounds
from supervisor.formats import span
from supervisor.model.inputs import FoundationsLooked
from supervisor.policy.box.foundations import Answer, Finding, Look, judge
from supervisor.ports import Clock, Inbox
from supervisor.records import Record

log = structlog.get_logger()

_PERIOD_S: Final = 2.0
_HANG_S: Final = 5.0
_CHECKED_S: Final = 30.0


class Identity(Record):
    """Identifies a file independently of its name. `links` is 0 for an open file without a name; it is not compared."""

    device: int
    inode: int
    kind: str
    links: int = field(default=1, compare=False)


def of_stat(found: os.stat_result) -> Identity:
    return Identity(found.st_dev, found.st_ino, files.kind_of(found.st_mode), found.st_nlink)


def of_path(path: str | os.PathLike[str]) -> Identity | None:
    """The identity of the file at a path (of a link: its own); None when there is none. Raises OSError when unknown."""
    try:
        return of_stat(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


class Remembered:
    """The file that a path led to when it was first seen, or at the last `renew`.

    It holds an O_PATH descriptor, which can't read or write the file and needs no permission. Without a descriptor the
    kernel may give the inode number of a removed file to the next new file at once. A replaced file would then look like the
    old one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._fd = -1

    def __call__(self) -> Identity | None:
        if self._fd < 0:
            self.renew()
        return None if self._fd < 0 else of_stat(os.fstat(self._fd))

    def renew(self) -> None:
        """Accept the file that is at the path now as the right one. Raises OSError."""
        try:
            fd = os.open(self._path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            fd = -1
        old, self._fd = self._fd, fd
        if old >= 0:
            os.close(old)

    def close(self) -> None:
        """Close the descriptor: the file is no longer watched, or its row is forgotten and the last round over."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


class Seen:
    """Any file at a path that had one before: its owner may replace it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._seen = path, False

    def __call__(self) -> Identity | None:
        found = of_path(self._path)
        self._seen |= found is not None
        return found or (NO_FILE if self._seen else None)


NO_FILE: Final = Identity(0, 0, "file")


class Watched(Record):
    """A watched file or directory. `expected` returns its identity; None: unknown or not created yet.

    `check` returns a defect of a file whose identity is right or unknown, as a clause ("it cannot be written"; empty: none).
    It may raise OSError.
    `by_others`: its worker restores it, at the latest until the next look. A file that replaced it is
    reported, and is the right one from then on.
    `restarts`: a start of the daemon restores it. `prepare` makes way for that start, and raises OSError if it would fail.
    """

    name: str
    path: str
    expected: Callable[[], Identity | None]
    check: Callable[[], str] | None = None
    by_others: bool = False
    restarts: bool = False
    prepare: Callable[[], object] | None = None
    consequence: str = ""  # what stops working without the file
    remedy: str = ""  # what the operator can do
    holds_starts: bool = False


def check_row(row: Watched) -> Finding | None:
    """Check one row once; None: it is as it should be. Never raises."""
    try:
        expected = row.expected()
        wrong = row.check() if row.check is not None else ""
        found = None if expected is None else of_path(row.path)
    except OSError as error:
        return _finding(row, Look.UNKNOWN, error.strerror or str(error))
    if expected is not None and found != expected:
        if found is None:
            return _finding(row, Look.MISSING)
        how = "it is on another file system" if found.device != expected.device else f"by another {found.kind}"
        return _finding(row, Look.REPLACED, how if found.kind == expected.kind else f"by a {found.kind}")
    return _finding(row, Look.DAMAGED, wrong) if wrong else None


class Foundations(Repeated):
    """The checking thread, and the table of rows that it checks."""

    def __init__(
        self, inbox: Inbox, clock: Clock, mistakes: Callable[[], Sequence[str]], *, period_s: float = _PERIOD_S,
        hang_s: float = _HANG_S,
    ) -> None:  # fmt: skip
        """`mistakes` returns the reasons why the next image could not start. It may raise OSError."""
        super().__init__("foundations")
        self._mistakes, self._mistake, self._checked_s = mistakes, "", -inf
        self._inbox, self._clock, self._period_s = inbox, clock, period_s
        self._rounds: Rounds[Finding | None] = Rounds("foundations-look", hang_s)
        self._guard = threading.Lock()
        self._rows: dict[str, dict[str, Watched]] = {}  # by program, then by name
        self._any = False
        self._newest: dict[str, Finding | None] = {}

    def watch(self, *rows: Watched, program: str = "") -> None:
        """Watch these rows too, of a running attempt of `program` or the daemon's own. Any thread may call this."""
        with self._guard:
            known = self._rows.get(program, {})
            self._rows = {**self._rows, program: {**known, **{row.name: row for row in rows}}}

    def forget(self, program: str) -> None:
        with self._guard:
            self._rows = {name: rows for name, rows in self._rows.items() if name != program}

    def _all_rows(self) -> dict[str, Watched]:
        with self._guard:
            return {name: row for rows in self._rows.values() for name, row in rows.items()}

    def check_all(self) -> None:
        """Run one round of checks; post the findings."""
        rows = self._all_rows()
        found, hung = self._rounds.of({name: partial(_look_at, row) for name, row in rows.items()})
        found |= {
            name: _finding(rows[name], Look.UNKNOWN, f"its file system has not answered for {span(self._rounds.hang_s)}")
            for name in hung & rows.keys()
        }
        now = self._all_rows()  # without those of an attempt that has ended meanwhile: its files are removed
        rows = {name: row for name, row in rows.items() if now.get(name) is row}
        self._newest = {name: each for name, each in {**self._newest, **found}.items() if name in rows}
        aside = {each.name: each for each in _put_aside(rows)}
        present = self._startable([each for each in self._newest.values() if each is not None])
        findings = (
            *(replace(each, detail=aside.pop(each.name).detail) if each.name in aside else each for each in present),
            *aside.values(),
        )
        if findings or self._any:
            self._any = bool(findings)
            self._inbox.post(FoundationsLooked(self._clock.now_s(), findings))

    def _startable(self, found: list[Finding]) -> list[Finding]:
        """The same findings; those that need a restart have an error as long as the next image could not start."""
        restart = {each.name for each in found if judge(each, may_restart=True)[0] is Answer.RESTART}
        if not restart:
            return found
        if self._clock.now_s() - self._checked_s >= _CHECKED_S:
            try:
                self._mistake = next(iter(self._mistakes()), "")
            except OSError as error:
                self._mistake = error.strerror or str(error)
            self._checked_s = self._clock.now_s()
        return [replace(each, error=self._mistake) if each.name in restart else each for each in found]

    def _turn(self) -> None:
        self.check_all()
        self._over.wait(self._period_s)


def _put_aside(rows: dict[str, Watched]) -> Iterator[Finding]:
    """One finding, in this round alone, for each thing that was put aside for a file or directory of the daemon's."""
    names = {row.path: row.name for row in rows.values()}
    while files.put_aside:
        path, kind, kept = files.put_aside.pop(0)
        log.error("put_aside", path=path, kind=kind, kept=kept)
        name = names.get(path, f"file {Path(path).name}")
        yield Finding(name, path, Look.REPLACED, f"by a {kind}, which is now {Path(kept).name}", restorable=True)


def _finding(row: Watched, look: Look, detail: str = "") -> Finding:
    return Finding(
        row.name, row.path, look, detail, row.consequence, row.remedy, row.by_others, row.restarts,
        holds_starts=row.holds_starts,
    )  # fmt: skip


def _look_at(row: Watched) -> Finding | None:
    """Check one row, and see whether its file can be restored."""
    found = check_row(row)
    if found is None or found.look is Look.UNKNOWN:
        return found
    try:
        if row.by_others and isinstance(row.expected, Remembered) and found.look is Look.REPLACED:
            row.expected.renew()
        elif row.prepare is not None:
            row.prepare()
    except OSError as error:
        return replace(found, error=error.strerror or str(error))
    return found


def directory(path: str | os.PathLike[str]) -> int:
    """Open a descriptor of a directory that stays valid whatever happens to its name. Raises OSError."""
    return os.open(Path(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
