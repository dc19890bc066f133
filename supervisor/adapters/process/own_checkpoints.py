"""Finds, examines and sets aside the checkpoints that a script writes by itself, by its `checkpoint_glob`.

Whatever is in the directory, nothing here raises and no other thread has to wait: each scan runs in its own thread, with a
time limit. A wildcard matches no link, because a link may lead to foreign files, or back to the directory itself. The part
of the pattern without a wildcard was written by hand, so links in it are followed. Scans cost at most a fiftieth of a core.
A `[` in a pattern begins a set of characters, and it also matches itself: names such as `run[1]` exist.

A checkpoint that is set aside becomes `.NAME.bad` in its directory: scripts look for `*.pt` or `checkpoint-*`, and neither
finds that name.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from supervisor import lack
from supervisor.adapters import durable, hooks, leftovers
from supervisor.adapters.process import checkpoints, whole_files
from supervisor.adapters.process.processes import inherited, make_dir
from supervisor.adapters.threads import Tasks
from supervisor.files import held, text
from supervisor.formats import span
from supervisor.model.commands import Spawn
from supervisor.model.inputs import CheckpointsFound, Ending, OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.policy.worker import newest_whole
from supervisor.policy.worker.diagnosis import SENT
from supervisor.policy.worker.figures import Figures
from supervisor.policy.worker.finish import in_save
from supervisor.policy.worker.newest_whole import TORN, UNKNOWN, WHOLE, Candidate
from supervisor.policy.worker.step_in_name import StepRule, parsed
from supervisor.policy.worker.whose_checkpoint import Shown
from supervisor.ports import Clock, Inbox, ahead_s
from supervisor.records import Record
from workers import contract

log = structlog.get_logger()

_LOOK_S: Final = 10.0
_SOON_S: Final = 1.0
_STIRS: Final = 2
_LOOK_SHARE: Final = 0.02
_MOST_S: Final = 60.0  # of one scan, without the program's own check
_MOST_ENTRIES: Final = 300_000
_MOST_LOOKED_AT: Final = 20  # examined checkpoints, the newest ones
_MOST_STARTS: Final = 64
_STARTS_FILE: Final = "starts.json"
KEPT: Final = "kept"  # the copy in a run directory
_COPY_SHARE: Final = 0.05  # of the time: the next copy comes twenty times as long after the one before as that took
_MOST_PUT_BACK_S: Final = 600.0
_MOST_LAST_S: Final = 5.0
_START_WAIT_S: Final = 10.0  # how long a start waits for a scan
_MOST_DEEP: Final = 16
_SAME_S: Final = 0.5
_SAVING_S: Final = 60.0
_MOST_SAID: Final = 200
_MAY_BE_CUT: Final = "it may be cut, and its format does not show that"
_ASIDE: Final = (contract.BAD_SUFFIX, contract.TMP_SUFFIX)
_ASIDE_NAME: Final = re.compile(rf"\.(.+?)(\.\d+)?{re.escape(contract.BAD_SUFFIX)}")
_OF_NEWEST: Final = re.compile("latest|last|newest|checkpoint|ckpt|iter|step", re.IGNORECASE)
_MOST_NAMING_BYTES: Final = 4096
_OF_TENSORFLOW: Final = re.compile(r'model_checkpoint_path: "(?:.*/)?(.+)"')
_PART: Final = re.compile(r"\.(index|data-\d+-of-\d+)$")  # of one checkpoint, which TensorFlow's file names without it
_WILD: Final = re.compile(r"[*?\[]")


class Unanswered(Exception):
    """The checkpoints cannot be examined; the message is one clause."""


class Place(Record):
    """Where the checkpoints of one program are, and how they are read."""

    base: str  # wildcards match below this directory
    parts: tuple[str, ...]
    rule: StepRule
    check: tuple[str, ...] = ()
    check_timeout_s: float = 60.0
    env: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    run_dir: str = ""
    shared: bool = False  # other machines write there


def place_of(spec: ProgramSpec, run_dir: str, *, shared: bool = False) -> Place | None:
    """The place of a program's checkpoints; None: it has no `checkpoint_glob`."""
    if not spec.checkpoint_glob:
        return None
    directory = spec.directory or run_dir
    parts = [part for part in spec.checkpoint_glob.split("/") if part not in ("", ".")]
    base = "/" if spec.checkpoint_glob.startswith("/") else directory
    while len(parts) > 1 and not _WILD.search(parts[0]):
        base = os.path.join(base, parts.pop(0))  # noqa: PTH118
    return Place(
        base, tuple(parts), parsed(spec.checkpoint_step), spec.checkpoint_check, spec.checkpoint_check_timeout_s,
        spec.env, directory, run_dir, shared,
    )  # fmt: skip


def places_of(settings: Settings, paths: Paths, programs: Iterable[str]) -> dict[str, Place]:
    specs = [spec for name in programs if (spec := settings.program(name)) is not None]
    found = {spec.name: place_of(spec, paths.run_dir(spec.name), shared=settings.remote) for spec in specs}
    return {name: place for name, place in found.items() if place is not None}


@dataclass(slots=True)
class Budget:
    """The time and directory entries that are left for one scan."""

    until_s: float = field(default_factory=lambda: time.monotonic() + _MOST_S)
    entries: int = _MOST_ENTRIES

    def spend(self) -> None:
        self.entries -= 1
        if self.entries < 0:
            raise Unanswered(f"its directory has more than {_MOST_ENTRIES:,} entries: use a narrower checkpoint_glob")
        if self.entries % 256 == 0 and time.monotonic() > self.until_s:
            raise Unanswered(f"its directory could not be read within {span(_MOST_S)}")


# --- finding ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Matches:
    """The matching paths, relative to the base, and the number of links that were skipped."""

    paths: list[str] = field(default_factory=list)
    links: int = 0
    unread: str = ""  # the first directory below the base that may not be read


def _find(place: Place, budget: Budget) -> _Matches:
    found = _Matches()
    patterns = (f"{fnmatch.translate(part)}|{fnmatch.translate(part.replace('[', '[[]'))}" for part in place.parts)
    wanted = [None if part == "**" else re.compile(each) for part, each in zip(place.parts, patterns, strict=True)]
    hidden = [part.startswith(".") for part in place.parts]

    def walk(directory: str, below: str, at: int, depth: int) -> None:
        if wanted[at] is None:
            walk(directory, below, at + 1, depth)
        for entry in _entries(directory, budget, found if below else None):
            # With one of these endings, it is a checkpoint that was set aside here, or that is being put into place.
            if entry.name.startswith(".") and (not hidden[at] or entry.name.endswith(_ASIDE)):
                continue
            pattern = wanted[at]
            if pattern is None:
                if depth < _MOST_DEEP and entry.is_dir(follow_symlinks=False):
                    walk(entry.path, f"{below}{entry.name}/", at, depth + 1)
            elif pattern.match(entry.name):
                if entry.is_symlink():
                    found.links += 1
                elif at + 1 < len(wanted):
                    if entry.is_dir(follow_symlinks=False):
                        walk(entry.path, f"{below}{entry.name}/", at + 1, depth + 1)
                elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                    found.paths.append(f"{below}{entry.name}")

    walk(place.base, "", 0, 0)
    return found


def _entries(directory: str, budget: Budget, below: _Matches | None) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory; none if it vanished, or if it is below the base and may not be read: others count."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                budget.spend()
                yield entry
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        if below is None:
            raise
        below.unread = below.unread or directory


_Files = tuple[whole_files.File, ...]
_Row = tuple[str, int | None, float]  # path, step and time of writing


def _newest_first(place: Place, paths: list[str], budget: Budget, noted: Noted) -> list[_Row]:
    """The paths with their steps, if these are in the paths, and their times of writing. Adds to `noted.ahead`."""
    rows: list[_Row] = []
    for path in paths:
        budget.spend()
        with contextlib.suppress(OSError):  # it vanished meanwhile
            rows.append((path, place.rule.of_path(path, place.base), _written_s(f"{place.base}/{path}")))
    now_s, newest_s = time.time(), max((at_s for _, _, at_s in rows), default=0.0)
    for path, _, at_s in rows:
        if noted.ahead.get(path, (at_s, 0.0))[0] != at_s:
            del noted.ahead[path]
        if at_s > now_s and path not in noted.ahead:
            noted.ahead[path] = (at_s, now_s - (newest_s - at_s))
    real = [(path, step, noted.ahead.get(path, (at_s, at_s))[1]) for path, step, at_s in rows]
    return _ordered(place, real, noted.starts)


class _Ours(Record):
    """The checkpoints without those of others: a sentence about the newest of these, and those of an older experiment."""

    rows: list[_Row]
    odd: str = ""
    older: tuple[str, ...] = ()


def _ours(rows: list[_Row], noted: Noted, shown: Shown | None) -> _Ours:
    if shown is None:
        return _Ours(rows)
    limit, first_s = shown.limit([step for _, step, _ in rows if step is not None]), (*noted.starts, time.time())[0]
    why = [shown.foreign(step, limit, first_s - at_s) if step is not None else "" for _, step, at_s in rows]
    said = next((f"{row[0]} is not of this training: {clause}" for row, clause in zip(rows, why, strict=True) if clause), "")
    return _Ours(
        [row for row, clause in zip(rows, why, strict=True) if not clause],
        said and f"{said}; it is left where it is, and no start gets it",
        tuple(path for path, step, at_s in rows if shown.is_older(step, first_s - at_s)),
    )


def _other_name(
    place: Place, paths: list[str], newest: list[_Row], starts: Sequence[float], now_wall_s: float | None
) -> str:
    """A sentence if the attempt writes beside the newest checkpoint, and no longer to a name that the pattern matches.

    `now_wall_s`: it still runs; then it has some time for its first checkpoint.
    """
    if not newest or not starts or (now_wall_s is not None and now_wall_s - starts[-1] < _MOST_S):
        return ""
    path = Path(place.base, newest[0][0])
    matched = {f"{place.base}/{each}" for each in paths}
    with contextlib.suppress(OSError):
        since_s, least_bytes = max(_written_s(str(path)), starts[-1]), path.stat().st_size / 2
        if since_s > starts[-1]:
            return ""
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if entry.path in matched or entry.name.startswith(".") or Path(entry.name).suffix != path.suffix:
                    continue
                found = entry.stat(follow_symlinks=False)
                if found.st_mtime > since_s and found.st_size >= least_bytes:
                    beside = f"{path} is not written any more, and {entry.name} beside it is newer"
                    return f"{beside}: set checkpoint_glob so that it matches both"
    return ""


def _written_s(path: str) -> float:
    """When a file, or an entry of a directory, was last written. Raises OSError if it is gone."""
    found, times = os.lstat(path), list[int]()
    if stat.S_ISDIR(found.st_mode):  # its own time also changes when something in it is removed
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            times = [each.stat(follow_symlinks=False).st_mtime_ns for each in entries]
    return max(times, default=found.st_mtime_ns) / 1e9


def _ordered(place: Place, rows: list[_Row], starts: Sequence[float]) -> list[_Row]:
    steps = newest_whole.with_stand_ins(rows) if place.rule.file else [row[1] for row in rows]
    keyed = [(newest_whole.order(step, row[2], row[0], starts), row) for step, row in zip(steps, rows, strict=True)]
    return [row for _, row in sorted(keyed, key=lambda each: each[0], reverse=True)]


class Noted(Record):
    """`starts` of a program's newest attempts, by the clock of its file system.

    `doubts`: the checkpoints that an end may have cut, each with the inodes and times of its files when an attempt began.
    `ahead`: those with a time in the future, from before the clock was set back: that time, and a likely one in the past.
    `shown`: what the output of earlier attempts has shown.
    """

    starts: tuple[float, ...] = ()
    doubts: dict[str, Any] = field(default_factory=dict)
    ahead: dict[str, tuple[float, float]] = field(default_factory=dict)
    shown: Shown = field(default_factory=Shown)


def noted_of(place: Place) -> Noted:
    """The record of the starts; it is empty if it cannot be read. Then the steps decide which checkpoint is the newest.

    A start in the future was noted before the clock was set right: it is left out. Otherwise none of its files were copied.
    """
    with contextlib.suppress(OSError, TypeError, ValueError, AttributeError):
        body, now_wall_s = whole_files.read_json(f"{place.run_dir}/{_STARTS_FILE}"), time.time()
        body = body if isinstance(body, dict) else {"starts": body or ()}  # an earlier version wrote the starts alone
        past = tuple(at_s for each in body["starts"] if (at_s := float(each)) <= now_wall_s)
        ahead = {path: (float(at_s), float(real_s)) for path, (at_s, real_s) in body.get("ahead", {}).items()}
        return Noted(past, dict(body.get("doubts", {})), ahead, Shown(**body.get("shown", {})))
    return Noted()


def _state_of(files: _Files) -> list[list[int]]:
    return [[each.inode, each.written_ns] for each in files]


def _note_start(place: Place, doubtful: dict[str, Any], ahead: dict[str, tuple[float, float]], shown: Shown) -> None:
    """Record that an attempt begins now."""
    path, noted = Path(place.run_dir, _STARTS_FILE), noted_of(place)
    doubts = [*(noted.doubts | doubtful).items()][-_MOST_STARTS:]  # also one that is set aside, and may come back
    newest = sorted(ahead.items(), key=lambda each: each[1])[-_MOST_STARTS:]
    try:
        make_dir(path.parent)  # the first start comes before its run directory
        os.utime(path.parent)
        starts = [*noted.starts, path.parent.stat().st_mtime][-_MOST_STARTS:]
        kept = {"before": shown.before, "target": shown.target, "counts_steps": shown.counts_steps}
        body = json.dumps({"starts": starts, "doubts": dict(doubts), "ahead": dict(newest), "shown": kept}).encode()
        durable.replace(path, body, aside=path.with_suffix(contract.TMP_SUFFIX))
    except OSError as error:
        log.warning("start_not_noted", path=str(path), error=str(error))


def _all_newest_first(place: Place, budget: Budget) -> list[_Row]:
    """All checkpoints of the place: a script may keep thousands, and a rollback may go back behind all but one."""
    noted = noted_of(place)
    return _with_steps(place, _newest_first(place, _find(place, budget).paths, budget, noted), noted.starts)


def _with_steps(place: Place, newest: list[_Row], starts: Sequence[float]) -> list[_Row]:
    """Add the steps that are stored in files, and sort by them."""
    if not place.rule.file:
        return newest
    with_steps: list[_Row] = []
    for path, _, written_s in newest:
        step = None
        try:
            os.close(contract.open_below(place.base, f"{path}/{place.rule.file}"))
            step = place.rule.of_json(whole_files.read_json(f"{place.base}/{path}/{place.rule.file}"))
        except (OSError, ValueError) as error:
            lack.check(error)
        with_steps.append((path, step, written_s))
    return _ordered(place, with_steps, starts)


# --- looking ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """The findings about one path, valid as long as its files stay the same. `before`: its former files."""

    files: _Files
    before: _Files | None = None
    defect: str | None = None
    unreadable: str = ""
    looks: int = 0
    seen_s: float = field(default_factory=time.monotonic)  # its time of writing may be in the future
    settled: bool = False

    @property
    def is_alone(self) -> bool:
        return [each.path for each in self.files] == [""]

    @property
    def replaced(self) -> bool:
        """Whether its script has put other files in place of the former ones, and has not written over them."""
        before = {each.inode for each in self.before or ()}
        return bool(before) and before.isdisjoint(each.inode for each in self.files)


@dataclass(slots=True)
class Scanner:
    """Repeated scans of one place: files that have not changed since an earlier scan are not read again."""

    known: dict[str, _Known] = field(default_factory=dict)
    ahead: dict[str, tuple[float, float]] = field(default_factory=dict)  # as in `Noted`

    def cut(self, found: Result) -> dict[str, Any]:
        return {each.path: _state_of(self.known[each.path].files) for each in found.looked if each.why == _MAY_BE_CUT}

    def scan(
        self, place: Place, budget: Budget, *, now_wall_s: float, running: bool, doubt_from_wall_s: float | None = None,
        spare: bool = False, without: Collection[str] = (), shown: Shown | None = None,
    ) -> Result:  # fmt: skip
        """Scan the place once, `without` these paths, and look for a `spare` one too. Raises Unanswered.

        By what the output has `shown`, the checkpoints of others are left out.
        """
        try:
            found = _find(place, budget)
            paths = [path for path in found.paths if f"{place.base}/{path}" not in without]
            whole, looked, noted = 0, list[Candidate](), noted_of(place)
            noted.ahead.update(self.ahead)
            newest, self.ahead = _newest_first(place, paths, budget, noted), noted.ahead
            ours = _ours(newest, noted, shown)
            newest = ours.rows[:_MOST_LOOKED_AT]
            if place.rule.file:
                ours = _ours(_with_steps(place, newest, noted.starts), noted, shown)
                newest = ours.rows
            for path, step, written_s in newest:
                known = self._of(place, path, budget)
                if known is None:
                    continue
                self.known[path] = known
                at_s = max((each.written_ns / 1e9 for each in known.files if path not in self.ahead), default=written_s)
                known.settled = known.settled or newest_whole.is_settled(
                    at_s, running=running, quiet_s=max(now_wall_s - at_s, time.monotonic() - known.seen_s),
                    stable=known.looks > 1, alone=known.is_alone, replaced=known.replaced,
                    doubt_from_wall_s=doubt_from_wall_s,
                    closed=running and not place.shared and whole_files.are_closed(f"{place.base}/{path}", known.files),
                )  # fmt: skip
                verdict = _verdict(known, doubted=noted.doubts.get(path) == _state_of(known.files))
                looked.append(Candidate(path, step, at_s, sum(each.size_bytes for each in known.files), *verdict))
                whole += looked[-1].verdict == WHOLE
                if whole > spare:
                    break
        except OSError as error:
            lack.check(error)
            raise Unanswered(f"its directory cannot be read: {error.strerror or error}") from error
        self.known = {path: known for path, known in self.known.items() if path in {row[0] for row in newest}}
        gap_s = newest_whole.usual_gap_s([each[2] for each in newest])
        saving_since_s = now_wall_s - _SAVING_S if running else None
        odd = ours.odd or _other_name(place, found.paths, newest, noted.starts, now_wall_s if running else None)
        return Result(
            place, tuple(looked), len(found.paths), found.links, found.unread, gap_s, saving_since_s, noted.starts, odd,
            shown is None or shown.counts_steps is not False, tuple(newest), ours.older,
        )  # fmt: skip

    def _of(self, place: Place, path: str, budget: Budget) -> _Known | None:
        full = f"{place.base}/{path}"
        try:
            files = whole_files.files_of(full, budget.spend)
            known = self.known.get(path)
            if known is None or known.files != files:
                wrong = whole_files.defect(full, files, place.rule.file) if files else "it is an empty directory"
                if not wrong and place.check:
                    wrong = _own_check(place, full)
                known = _Known(files, None if known is None else known.files, wrong)
        except FileNotFoundError:
            return None
        except whole_files.TooMany as error:
            known = _Known((), None, unreadable=str(error))
        except OSError as error:
            lack.check(error)
            known = _Known((), unreadable=f"it cannot be read: {error.strerror or error}")
        except _NoAnswer as error:
            known = _Known(files, None, unreadable=str(error))
        known.looks += 1
        return known


def _verdict(known: _Known, *, doubted: bool) -> tuple[str, str]:
    if known.unreadable:
        return UNKNOWN, known.unreadable
    if known.defect:
        return TORN, known.defect
    return (UNKNOWN, _MAY_BE_CUT) if known.defect is None and (doubted or not known.settled) else (WHOLE, "")


class _NoAnswer(Exception):
    """The program's own check gave no answer."""


def _own_check(place: Place, path: str) -> str:
    """Run `checkpoint_check`: empty for exit code 0, else its last line. Raises _NoAnswer when it gives no answer."""
    try:
        env = inherited() | leftovers.mark(of_user=True) | dict(place.env)
        code, output = hooks.run([*place.check, path], place.check_timeout_s, env=env, cwd=place.directory)
    except (OSError, ValueError) as error:
        raise _NoAnswer(f"checkpoint_check cannot be started: {error}") from error
    if code is None:
        raise _NoAnswer(f"checkpoint_check did not answer within {span(place.check_timeout_s)}")
    if code < 0 or code in (126, 127):
        raise _NoAnswer(f"checkpoint_check ended with {code}")
    lines = output.strip().splitlines()
    if code == 0:
        return ""
    return (lines[-1][:_MOST_SAID] if lines else "") or f"checkpoint_check ended with {code}"


class Result(Record):
    place: Place
    looked: tuple[Candidate, ...] = ()  # the newest first, up to the newest whole one, or to the spare one
    matches: int = 0
    links: int = 0
    unread: str = ""
    gap_s: float | None = None
    saving_since_wall_s: float | None = None  # a later file may be a save in progress; None: no program saves
    starts: tuple[float, ...] = ()
    odd: str = ""
    has_steps: bool = True  # the numbers of the checkpoints are steps
    rows: tuple[_Row, ...] = ()  # the newest ones, also those that were not looked at
    older: tuple[str, ...] = ()  # of an older experiment

    def age(self, each: Candidate) -> Any:
        return newest_whole.order(each.step, each.written_wall_s, each.path, self.starts)

    @property
    def choice(self) -> newest_whole.Choice:
        """The choice; while the program runs, a checkpoint that was written just now is not reported as torn."""
        choice, since_s = newest_whole.choose(self.looked), self.saving_since_wall_s
        if since_s is not None and choice.torn is not None and choice.torn.written_wall_s >= since_s:
            return replace(choice, torn=None)
        return choice

    def as_input(self, clock: Clock, *, start: bool = False) -> OwnCheckpoint:
        """The result in the form that the core accepts; `start`: with the one that a start resumes from."""
        choice, base = self.choice, self.place.base
        found, torn = choice.start if start else choice.newest, choice.torn
        sure = choice.start is choice.newest and not self.unread
        odd = self.odd
        if found is not None and found.step is not None and not self.has_steps:
            numbers = f"the numbers of its checkpoints, as in {found.path}, are not the steps that its output shows"
            odd, found = odd or f"{numbers}: set checkpoint_step", replace(found, step=None)
        out = OwnCheckpoint(sure=sure, note=self._note(choice, start=start), interval_s=self.gap_s, odd=odd)
        if torn is not None:
            out = replace(out, torn=f"{base}/{torn.path}")
        if found is None:
            return out
        return replace(
            out, path=f"{base}/{found.path}", step=found.step, saved_at_s=found.written_wall_s - ahead_s(clock),
            size_bytes=found.size_bytes, spare=f"{base}/{choice.spare.path}" if choice.spare else "",
        )  # fmt: skip

    def _note(self, choice: newest_whole.Choice, *, start: bool) -> str:
        if self.unread:
            return f"{self.unread} may not be read"
        if not self.matches:
            linked = f" but {self.links} links, which are not followed" if self.links else ""
            return f"nothing matches checkpoint_glob {self.place.base}/{'/'.join(self.place.parts)}{linked}"
        if choice.torn is not None:
            return f"{choice.torn.path} is torn: {choice.torn.why}"
        newer = None if choice.start is choice.newest else choice.start
        if newer is not None and (start or choice.newest is None or newer.why != _MAY_BE_CUT):
            return f"{newer.path}: {newer.why}"
        if choice.newest is not None and choice.newest.step is None and (self.place.rule.pattern or self.place.rule.file):
            return f"checkpoint_step finds no number for {choice.newest.path}"
        return ""


# --- setting aside ----------------------------------------------------------------------------------------------------


def parent_below(base: str, path: str, *, make: bool = False) -> tuple[int, str]:
    """The descriptor of the directory below `base` that holds `path`, and the name there. Follows no links in `path`.

    `make`: create missing ones. Raises ValueError for a path that leads out of `base`; OSError, also for a link on the way.
    """
    *parents, name = contract.checked_path(path).split("/")
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for parent in parents:
        with held(fd):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=fd)
            fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    return fd, name


def set_aside(base: str, path: str) -> str:
    """Rename it, durably, so that no script finds it; return its new path below `base`. Raises OSError or ValueError."""
    fd, name = parent_below(base, path)
    with held(fd):
        return str(Path(path).with_name(checkpoints.rename_aside(fd, name, f".{name}")))


def put_back(copy: KeptCopy | None, base: str, path: str) -> None:
    """Undo `set_aside`, unless a new one has that name; the `copy` that was put there goes. Raises OSError, ValueError."""
    fd, name = parent_below(base, path)
    with held(fd):
        asides = asides_of(fd, name)
        is_copy = copy is not None and copy.is_of(f"{base}/{path}")
        if not asides or (os.path.lexists(f"{base}/{path}") and not is_copy):
            return
        if is_copy and stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
            shutil.rmtree(name, dir_fd=fd)
        os.rename(asides[-1], name, src_dir_fd=fd, dst_dir_fd=fd)
        os.fsync(fd)


def asides_of(directory: int | str, name: str) -> list[str]:
    """The names in this directory under which this checkpoint was set aside, the newest last."""
    aside = re.compile(rf"\.{re.escape(name)}(\.\d+)?{re.escape(contract.BAD_SUFFIX)}")
    with os.scandir(directory) as entries:
        times = {each.name: each.stat(follow_symlinks=False).st_ctime_ns for each in entries if aside.fullmatch(each.name)}
    return sorted(times, key=times.__getitem__)


def stale_name(path: str) -> str:
    """The file or link beside this checkpoint that still names one that was set aside, and what to write; empty: none does.

    Example: DeepSpeed resumes from the name in `latest`, and that says global_step20, which is now `.global_step20.bad`.
    """
    parent, name = os.path.split(path)
    with os.scandir(parent) as found:
        entries = {each.name: each for each in found}
    asides = {match[1] for each in entries if (match := _ASIDE_NAME.fullmatch(each))} - entries.keys()
    asides, name = {_PART.sub("", each) for each in asides}, _PART.sub("", name)
    numbers = {_number(each): _number(name) for each in asides}  # Megatron's latest_checkpointed_iteration.txt says 20
    for entry in entries.values() if asides else ():
        link = entry.is_symlink()
        said = str(Path(entry.path).readlink()) if link else text(entry.path, _MOST_NAMING_BYTES)
        line = _OF_TENSORFLOW.match(said)
        said, form = (line[1], 'model_checkpoint_path: "{}"') if line else (said, "{}")
        new = name if said in asides else numbers.get(said) if _OF_NEWEST.search(entry.name) else None
        if new is not None:
            do = "link it to" if link else "write into it:"
            return f"{entry.path} still names {said}, which was set aside; {do} {form.format(new)}"
    return ""


def _number(name: str) -> str:
    """The last number in a name, as 20 in iter_0000020; without one, the name."""
    found = re.search(r"\d+(?=\D*$)", name)
    return str(int(found[0])) if found else name


def newer_than(place: Place, path: str, budget: Budget) -> list[str]:
    """The checkpoints that are newer than this one, the newest last. Raises Unanswered, OSError."""
    paths = [each[0] for each in _all_newest_first(place, budget)]
    return list(reversed(paths[: paths.index(path)])) if path in paths else []


def _is_whole(found: OwnCheckpoint) -> bool:
    return found.path != "" and found.sure


def _each_of(place: Place, paths: tuple[str, ...], rename: Callable[[str, str], object]) -> tuple[str, ...]:
    """Set those of this place aside, or put them back; return those that the disk refused to rename."""
    refused = []
    for path in paths:
        if not path.startswith(f"{place.base}/"):
            continue
        try:
            rename(place.base, path[len(place.base) + 1 :])
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            log.warning("checkpoint_not_renamed", path=path, error=str(error))
            refused.append(path)
    return tuple(refused)


def _roll_back(place: Place, from_step: int, budget: Budget) -> None:
    """Set aside the newest checkpoints, as far as their steps are not before this one; none if no older one is left."""
    known = [(path, step) for path, step, _ in _all_newest_first(place, budget) if step is not None]
    older = next((number for number, (_, step) in enumerate(known) if step < from_step), 0)
    _each_of(place, tuple(f"{place.base}/{path}" for path, _ in reversed(known[:older])), set_aside)


# --- the copy of one that its script writes over ------------------------------------------------------------------------


def marks_of(files: Iterable[Any]) -> tuple[tuple[str, int, int], ...]:
    """What tells a state of a checkpoint from its other states: path, size and time of its files, or of their copies."""
    return tuple((each.path, each.size_bytes, each.written_ns) for each in files)


class KeptCopy(Record):
    """The copy that is kept of a checkpoint. `marks`: path, size and time of each file; `place`: where the files are."""

    path: str
    step: int | None
    marks: tuple[tuple[str, int, int], ...]
    place: str

    @property
    def written_wall_s(self) -> float:
        return max(written_ns for _, _, written_ns in self.marks) / 1e9

    def is_of(self, path: str) -> bool:
        """Whether it is a copy of the files that are at this path now."""
        try:
            return self.marks == marks_of(whole_files.files_of(path, lambda: None))
        except (OSError, whole_files.TooMany) as error:
            lack.check(error)
            return False

    def was_set_aside(self) -> bool:
        """Whether the checkpoint itself was set aside: then its copy is as bad."""
        parent, name = os.path.split(self.path)
        try:
            return any(self.is_of(f"{parent}/{aside}") for aside in asides_of(parent, name))
        except OSError as error:
            lack.check(error)
            return True  # the directory is gone


class Keeper(Protocol):
    """Makes and puts back the copies (`adapters/copies/kept_copy.py`)."""

    def of(self, place: Place) -> KeptCopy | None: ...
    def keep(self, place: Place, newest: Candidate, files: _Files, *, replaced: bool) -> str: ...
    def put_back(self, place: Place) -> None: ...
    def drop(self, place: Place) -> None: ...


# --- the scans of the daemon ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Watched:
    place: Place
    scanner: Scanner = field(default_factory=Scanner)
    guard: threading.Lock = field(default_factory=threading.Lock)  # held by the thread that scans
    due_s: float = 0.0
    began_s: float | None = None
    shown: Shown | None = None  # None: not read yet from the record of the starts
    marks: tuple[tuple[float, int], ...] = ()  # (journal time, step) as shown lately
    fresh: bool = False  # the attempt began without a checkpoint
    stirs: int = 0  # looks at which the directory had changed, and no checkpoint of this training was there
    stirred_s: float = 0.0
    reported: OwnCheckpoint | None = None
    result: Result | None = None
    copying: threading.Lock = field(default_factory=threading.Lock)  # held while its copy is made or put back
    copy_due_s: float = 0.0
    no_copy: str = ""  # why no copy could be made
    puts_back: bool = False


class OwnCheckpoints:
    """Scans every program's own checkpoints. `newest` never blocks, and a start waits for some seconds at most."""

    def __init__(
        self, paths: Paths, clock: Clock, inbox: Inbox, keeper: Keeper,
        put_back: Callable[[Paths, str, Place], None] = lambda *_: None,
        figures: Callable[[str], Figures | None] = lambda _: None, *, shared: bool = False,
    ) -> None:  # fmt: skip
        """`put_back` puts a program's checkpoint from a copy off the box into place; OSError: it is not in place yet.

        `figures`: what the output of a program has shown.
        """
        self._paths, self._clock, self._inbox, self._keeper, self._put_back = paths, clock, inbox, keeper, put_back
        self._figures, self._shared = figures, shared
        self._watched: dict[str, _Watched] = {}
        self._guard = threading.Lock()
        self._tasks = Tasks("checkpoints")

    def newest(self, spec: ProgramSpec) -> OwnCheckpoint | None:
        """The result of a running program's last scan; None: there was none yet, or it has no `checkpoint_glob`."""
        watched = self._of(spec)
        if watched is None:
            return None
        figures = self._figures(spec.name)
        if figures is not None and figures.steps is not None:
            shown, target = watched.shown or noted_of(watched.place).shown, spec.figures.target_steps or figures.target
            first, marks = (*figures.first_steps, None)[0], figures.marks
            watched.shown = replace(
                shown, first=first, steps=figures.steps, target=target or shown.target,
                configured=spec.figures.target_steps is not None,
            )  # fmt: skip
            watched.marks = marks
        now_s = time.monotonic()
        began_s = watched.began_s
        if began_s is None and now_s >= watched.due_s:
            watched.began_s = now_s
            self._tasks.begin(f"checkpoints-{spec.name}", self._look_again, watched)
        elif began_s is not None and now_s - began_s > _MOST_S + watched.place.check_timeout_s * _MOST_LOOKED_AT:
            return OwnCheckpoint(sure=False, error=f"its directory {watched.place.base} does not answer")
        return watched.reported

    def _of(self, spec: ProgramSpec) -> _Watched | None:
        place = place_of(spec, self._paths.run_dir(spec.name), shared=self._shared)
        if place is None:
            return None
        with self._guard:
            watched = self._watched.get(spec.name)
            if watched is None or watched.place != place:
                watched = self._watched[spec.name] = _Watched(place)
            return watched

    def _look_again(self, watched: _Watched) -> None:
        began_s = time.monotonic()
        try:
            with watched.guard:
                found, before = self._look(watched, running=True, shown=watched.shown), watched.reported
                self._sight(watched)
                found = replace(found, displaced=self._displaced(watched))
                self._copy_if_due(watched)
                found = replace(found, note=found.note or watched.no_copy)
                # Two clocks are read one after the other, so the time differs slightly for unchanged files: no change.
                moved_s = abs((found.saved_at_s or 0.0) - ((before and before.saved_at_s) or 0.0))
                if before is None or moved_s >= _SAME_S or replace(found, saved_at_s=before.saved_at_s) != before:
                    watched.reported = found
        finally:
            took_s = time.monotonic() - began_s
            # Of a single checkpoint that is written over, each state is worth a copy before the next one.
            at_risk = watched.result is not None and (watched.result.matches <= 1 or watched.result.older)
            watched.due_s = began_s + max(_SOON_S if at_risk else _LOOK_S, took_s / _LOOK_SHARE)
            watched.began_s = None

    def _sight(self, watched: _Watched) -> None:
        """Note which steps were shown when the checkpoints of an attempt that began from nothing were written."""
        result, shown = watched.result, watched.shown
        if result is None or not result.starts or shown is None or shown.counts_steps is not None or not watched.fresh:
            return
        for _, number, written_s in sorted(result.rows, key=lambda row: row[2]):
            at_s = written_s - ahead_s(self._clock)
            steps = [step for mark_s, step in watched.marks if mark_s <= at_s + _SAME_S]
            if number is not None and steps and written_s >= result.starts[-1]:
                shown = shown.saw(number, steps[-1])
        watched.shown = shown

    def _displaced(self, watched: _Watched) -> tuple[str, ...]:
        """The checkpoints of an older experiment, if they stay in place of what this attempt saves."""
        result = watched.result
        if result is None or not result.older or result.rows or not result.starts:
            return ()
        with contextlib.suppress(OSError):
            changed_s = Path(watched.place.base).stat().st_mtime
            if changed_s > max(result.starts[-1], watched.stirred_s):
                watched.stirred_s, watched.stirs = changed_s, watched.stirs + 1
        return tuple(f"{watched.place.base}/{path}" for path in result.older) if watched.stirs >= _STIRS else ()

    def set_aside(self, spec: ProgramSpec, paths: tuple[str, ...]) -> None:
        """Set these checkpoints of a running program aside. Returns at once; the next look shows what has come of it."""
        if (watched := self._of(spec)) is not None:
            self._tasks.begin(f"aside-{spec.name}", _each_of, watched.place, paths, set_aside)

    def _copy_if_due(self, watched: _Watched) -> None:
        """Begin to copy the newest checkpoint if its script may write over it, and nothing else would be left.

        That is: it is the only one, or its path had other content before. Once there is a copy, only what the running
        attempt has written takes its place: what lay there before may be what kills each start.
        """
        result = watched.result or Result(watched.place)
        newest = result.choice.newest
        if newest is None or time.monotonic() < watched.copy_due_s or not watched.copying.acquire(blocking=False):
            return
        known, kept = watched.scanner.known[newest.path], self._keeper.of(watched.place)
        by_earlier_attempt = newest.written_wall_s < max((0.0, *result.starts))
        stays = kept is not None and (by_earlier_attempt or kept.is_of(f"{watched.place.base}/{newest.path}"))
        if not stays and (known.before is not None or result.matches == 1) and (known.is_alone or known.settled):
            self._tasks.begin("copy", self._copy, watched, newest, known.files, known.replaced)
        else:
            watched.copying.release()

    def _copy(self, watched: _Watched, newest: Candidate, files: _Files, replaced: bool) -> None:
        """`replaced`: its script has replaced each file of this checkpoint, and has not written over it."""
        began_s = time.monotonic()
        try:
            watched.no_copy = self._keeper.keep(watched.place, newest, files, replaced=replaced)
        except (OSError, ValueError, whole_files.TooMany) as error:  # it changed meanwhile, or the disk failed
            log.info("checkpoint_not_copied", path=newest.path, error=str(error))
        finally:
            watched.copy_due_s = time.monotonic() + (time.monotonic() - began_s) / _COPY_SHARE
            watched.copying.release()

    def last(self, spec: ProgramSpec | None, ending: Ending, shown: Figures) -> OwnCheckpoint | None:
        """The newest one of a script that has just ended; None: not known, or its own check may take long.

        Only a success without a step and an end at its target depend on it: no other next start has to wait for this.
        """
        at_end = spec is not None and shown.is_at(spec.figures.target_steps)
        watched = None if spec is None or spec.checkpoint_check else self._of(spec)
        if watched is None or not (at_end or (ending.code == 0 and shown.steps is None)):
            return None
        cut = ending.signal in SENT or in_save(ending.last_lines)  # else it had returned from its last write
        doubt_s = newest_whole.doubt_from_wall_s(
            "killed" if cut else "done", by_itself=not cut, ended_wall_s=time.time(), last_sign_wall_s=None
        )
        found = self._look(
            _Watched(watched.place), running=False, budget=Budget(time.monotonic() + _MOST_LAST_S), doubt_from_wall_s=doubt_s
        )
        return None if found.error else found

    def _look(
        self, watched: _Watched, *, running: bool, budget: Budget | None = None, start: bool = False, **more: Any
    ) -> OwnCheckpoint:
        watched.result = None
        try:
            watched.result = watched.scanner.scan(
                watched.place, budget or Budget(), now_wall_s=self._clock.wall_s(), running=running, **more
            )
            return watched.result.as_input(self._clock, start=start)
        except Unanswered as error:
            return OwnCheckpoint(sure=False, error=str(error))
        except Exception as error:
            lack.check(error)
            log.exception("checkpoints_not_looked_at", base=watched.place.base)
            return OwnCheckpoint(sure=False, error=f"it stopped at a bug ({type(error).__name__}); see the daemon's log")

    def before_start(self, command: Spawn, then: Callable[[str | None], None], refuse: Callable[[str], None]) -> None:
        """Set aside, scan, then call `then` with the path of the newest whole one; empty: there is none; None: unknown.

        If one cannot be put back, call `refuse` with the reason: the program would begin from scratch.
        """
        self._tasks.begin(f"start-{command.spec.name}", self._before_start, command, then, refuse)

    def _before_start(self, command: Spawn, then: Callable[[str | None], None], refuse: Callable[[str], None]) -> None:
        watched = self._of(command.spec)
        if watched is None:
            then(None)
            return
        try:
            self._put_back(self._paths, command.spec.name, watched.place)
        except OSError as error:
            refuse(f"its checkpoint from the copy off the box cannot be put back: {error}")
            return
        done: Future[tuple[OwnCheckpoint, tuple[str, ...]]] = Future()

        def look() -> None:
            with watched.guard:
                if not done.set_running_or_notify_cancel():  # too late: the attempt may have saved under one of these names
                    return
                try:
                    found, left = self._prepare(watched, command)
                    result = watched.result or Result(watched.place)
                    with contextlib.suppress(OSError):
                        found = replace(found, stale=stale_name(found.path))
                    watched.reported = found
                    watched.fresh, watched.stirs = not found.path, 0
                    watched.shown = (watched.shown or noted_of(watched.place).shown).begins()
                    _note_start(watched.place, watched.scanner.cut(result), watched.scanner.ahead, watched.shown)
                    done.set_result((found, left))
                except Exception as error:  # noqa: BLE001  it is raised below
                    done.set_exception(error)

        self._tasks.begin(f"look-{command.spec.name}", look)
        wait([done], _START_WAIT_S + (2 * watched.place.check_timeout_s if watched.place.check else 0.0))
        until_s = time.monotonic() + _MOST_PUT_BACK_S
        while watched.puts_back and time.monotonic() < until_s and wait([done], 1.0).not_done:
            pass
        try:
            found, left = done.result(0.0)
        except Exception as error:
            done.cancel()
            lack.check(error)  # to begin from scratch now would cost more than to wait until the lack is over
            if not isinstance(error, TimeoutError):
                log.exception("checkpoints_not_prepared", base=watched.place.base)
            silent = f"its directory {watched.place.base} does not answer"
            found, left = OwnCheckpoint(sure=False, error=silent), command.aside
        self._inbox.post(CheckpointsFound(self._clock.now_s(), command.spec.name, command.token, found, left))
        then(None if found.error else found.path)

    def _prepare(self, watched: _Watched, command: Spawn) -> tuple[OwnCheckpoint, tuple[str, ...]]:
        """Set aside and put back. Returns what is found then, and the paths that are still to be set aside."""
        place, left = watched.place, tuple(path for path in command.aside if os.path.lexists(path))
        kept = self._keeper.of(place)
        _each_of(place, command.back, functools.partial(put_back, kept))
        shown = watched.shown or noted_of(place).shown
        target = command.spec.figures.target_steps
        shown = replace(shown, target=target or shown.target, configured=target is not None)
        look = functools.partial(
            self._look, watched, running=False, start=True, doubt_from_wall_s=command.doubt_from_wall_s, shown=shown
        )
        spare = kept is not None and kept.path in left and not kept.is_of(kept.path)
        if left and (spare or look(without=left).path or not _is_whole(look())):  # never the last whole one
            left = _each_of(place, left, set_aside)
        if command.from_step is not None:
            try:
                _roll_back(place, command.from_step, Budget())
            except (Unanswered, OSError) as error:
                log.warning("not_rolled_back", base=place.base, error=str(error))
            self._keeper.drop(place)
            kept = None
        found = look(spare=True)
        if kept is None or found.error:
            return found, left
        if found.path == kept.path:
            return replace(found, spare=found.spare or ("" if kept.is_of(kept.path) else kept.place)), left
        if not os.path.lexists(kept.path) and command.doubt_from_wall_s is None and kept.path not in command.aside:
            note = f"{found.note}; " if found.note else ""  # nothing interrupted it, so somebody has removed it
            return replace(found, note=f"{note}a copy of {kept.path} is kept in {kept.place}"), left
        result = watched.result or Result(place)
        path, at_s = kept.path[len(place.base) + 1 :], kept.written_wall_s
        copy = Candidate(path, kept.step, watched.scanner.ahead.get(path, (at_s, at_s))[1], 0, WHOLE)
        looked = sorted((copy, *result.looked), key=result.age, reverse=True)
        if kept.was_set_aside() or newest_whole.choose(looked).start is not copy:
            return found, left
        found = look(spare=True, doubt_from_wall_s=None) if self._put_copy_back(watched, kept) else look(spare=True)
        return replace(found, put_back=found.path == kept.path), left

    def _put_copy_back(self, watched: _Watched, kept: KeptCopy) -> bool:
        """Put the copy back: then it is whole there. A failure is logged, and the start goes on without it."""
        watched.puts_back = True
        try:
            with watched.copying:
                self._keeper.put_back(watched.place)
        except (OSError, ValueError, Unanswered) as error:
            lack.check(error)
            log.warning("checkpoint_not_put_back", path=kept.path, error=str(error))
            return False
        finally:
            watched.puts_back = False
        log.warning("checkpoint_put_back", path=kept.path)
        return True

    def close(self) -> None:
        self._tasks.close()
