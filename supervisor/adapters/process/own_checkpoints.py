"""Finds, examines and sets aside the checkpoints that a script writes by itself, by its `checkpoint_glob`.

Whatever is in the directory, nothing here raises. A wildcard matches no link, because a link may lead to foreign files, or
back to the directory itself. The part of the pattern without a wildcard was written by hand, so links in it are followed,
and so is `latest.pt` as its last part, to a checkpoint below the same directory. A `[` begins a set of characters, and it
also matches itself: names such as `run[1]` exist.

A checkpoint that is set aside becomes `.NAME.bad` in its directory: scripts look for `*.pt` or `checkpoint-*`, and neither
finds that name.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor import lack
from supervisor.adapters import durable, hooks, procfs
from supervisor.adapters.process import checkpoints, whole_files
from supervisor.adapters.process.processes import inherited, make_dir
from supervisor.as_user import acting_as, as_daemon
from supervisor.files import held, text
from supervisor.formats import span
from supervisor.model.inputs import OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec, Settings
from supervisor.policy.worker import newest_whole
from supervisor.policy.worker.newest_whole import TORN, UNKNOWN, WHOLE, Candidate
from supervisor.policy.worker.step_in_name import StepRule, parsed
from supervisor.policy.worker.whose_checkpoint import Shown
from supervisor.ports import Clock, ahead_s
from supervisor.records import Record
from workers import contract

log = structlog.get_logger()

MOST_S: Final = 60.0  # of one scan, without the program's own check
_MOST_ENTRIES: Final = 300_000
MOST_LOOKED_AT: Final = 20  # examined checkpoints, the newest ones
_MOST_STARTS: Final = 64
_STARTS_FILE: Final = "starts.json"
KEPT: Final = "kept"  # the copy in a run directory
_MOST_DEEP: Final = 16
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
    user: str = ""  # of the program, if it has one: all that is done there is done as this user
    shown: Shown | None = None  # by its output: checkpoints of others are left out


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
        spec.env, spec.directory or ("/" if spec.user else run_dir), run_dir, shared, spec.user,
    )  # fmt: skip


ShownBy = Callable[[str, Place], Shown | None]  # what the output of a program has shown


def places_of(
    settings: Settings, paths: Paths, programs: Iterable[str], shown: ShownBy = lambda *_: None
) -> dict[str, Place]:
    specs = [spec for name in programs if (spec := settings.program(name)) is not None]
    found = {spec.name: place_of(spec, paths.run_dir(spec.name), shared=settings.remote) for spec in specs}
    return {name: replace(place, shown=shown(name, place)) for name, place in found.items() if place is not None}


@dataclass(slots=True)
class Budget:
    """The time and directory entries that are left for one scan."""

    until_s: float = field(default_factory=lambda: time.monotonic() + MOST_S)
    entries: int = _MOST_ENTRIES

    def spend(self) -> None:
        self.entries -= 1
        if self.entries < 0:
            raise Unanswered(f"its directory has more than {_MOST_ENTRIES:,} entries: use a narrower checkpoint_glob")
        if self.entries % 256 == 0 and time.monotonic() > self.until_s:
            raise Unanswered(f"its directory could not be read within {span(MOST_S)}")


# --- finding ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Matches:
    """The matching paths, relative to the base, and the number of links that were skipped."""

    paths: list[str] = field(default_factory=list)
    links: int = 0
    unread: str = ""  # the first directory below the base that may not be read

    def add_link(self, target: str) -> None:
        self.links += not target
        self.paths += [target] if target else []


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
                    found.add_link(_target(place, at, entry.path))
                elif at + 1 < len(wanted):
                    if entry.is_dir(follow_symlinks=False):
                        walk(entry.path, f"{below}{entry.name}/", at + 1, depth + 1)
                elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                    found.paths.append(f"{below}{entry.name}")

    walk(place.base, "", 0, 0)
    return found


def _target(place: Place, at: int, link: str) -> str:
    """Where a link leads that the pattern names in full, such as `latest.pt`; empty: out of the base, or to nothing."""
    target, root = os.path.realpath(link), os.path.realpath(place.base) + "/"
    is_named = place.parts[at:] == place.parts[-1:] and not _WILD.search(place.parts[at])
    return target.removeprefix(root) if is_named and target.startswith(root) and os.path.lexists(target) else ""


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


Files = tuple[whole_files.File, ...]
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
    return _ordered(real, noted.starts)


class _Ours(Record):
    """The checkpoints without those of others: a sentence about the newest of these, and those of an older experiment."""

    rows: list[_Row]
    odd: str = ""
    older: tuple[str, ...] = ()


def _ours(place: Place, paths: list[str], budget: Budget, noted: Noted, most: int | None = None) -> _Ours:
    """The newest first. If their steps are stored in files, at most so many files are read."""
    rows, shown = _newest_first(place, paths, budget, noted), place.shown
    rows = _with_steps(place, rows[:most], noted.starts) if place.rule.file else rows
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
    if not newest or not starts or (now_wall_s is not None and now_wall_s - starts[-1] < MOST_S):
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


def _ordered(rows: Sequence[_Row], starts: Sequence[float]) -> list[_Row]:
    steps = newest_whole.with_stand_ins(rows, starts)
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
    with contextlib.suppress(OSError, TypeError, ValueError, AttributeError), as_daemon():
        body, now_wall_s = durable.read_json(f"{place.run_dir}/{_STARTS_FILE}"), time.time()
        body = body if isinstance(body, dict) else {"starts": body or ()}  # an earlier version wrote the starts alone
        past = tuple(at_s for each in body["starts"] if (at_s := float(each)) <= now_wall_s)
        ahead = {path: (float(at_s), float(real_s)) for path, (at_s, real_s) in body.get("ahead", {}).items()}
        return Noted(past, dict(body.get("doubts", {})), ahead, Shown(**body.get("shown", {})))
    return Noted()


def _state_of(files: Files) -> list[list[int]]:
    return [[each.inode, each.written_ns] for each in files]


def note_start(place: Place, doubtful: dict[str, Any], ahead: dict[str, tuple[float, float]], shown: Shown) -> None:
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
    return _ours(place, _find(place, budget).paths, budget, noted_of(place)).rows


def _with_steps(place: Place, newest: list[_Row], starts: Sequence[float]) -> list[_Row]:
    """Add the steps that are stored in files, and sort by them."""
    with_steps: list[_Row] = []
    for path, _, written_s in newest:
        step = None
        try:
            os.close(contract.open_below(place.base, f"{path}/{place.rule.file}"))
            step = place.rule.of_json(durable.read_json(f"{place.base}/{path}/{place.rule.file}"))
        except (OSError, ValueError) as error:
            lack.check(error)
        with_steps.append((path, step, written_s))
    return _ordered(with_steps, starts)


# --- looking ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """The findings about one path, valid as long as its files stay the same. `before`: its former files."""

    files: Files
    before: Files | None = None
    defect: str | None = None
    unreadable: str = ""
    looks: int = 0
    seen_s: float = field(default_factory=time.monotonic)  # its time of writing may be in the future
    settled: bool = False  # it counts as whole

    @property
    def is_alone(self) -> bool:
        return [each.path for each in self.files] == [""]

    @property
    def replaced(self) -> bool:
        """Whether its script has put other files in place of the former ones, and has not written over them."""
        before = {each.inode for each in self.before or ()}
        return bool(before) and before.isdisjoint(each.inode for each in self.files)


class Life(Record):
    """What is known of a program that runs: its processes, and when it last showed progress. The default: nothing."""

    pids: frozenset[int] = frozenset()
    lost_wall_s: float = 0.0  # when a look at its processes last missed one
    progress_s: float | None = None  # on the monotonic clock

    def next(self, pids: Iterable[int], progress_s: float | None) -> Life:
        """At the next look. An attempt shows no progress before its first."""
        found = frozenset(pids)
        return Life(found, self.lost_wall_s if self.pids <= found else time.time(), progress_s)

    def has_closed(self, place: Place, path: str, known: _Known, written_wall_s: float) -> bool:
        """Whether a living process has closed this file: a dead one has closed it as well."""
        if place.shared or not known.is_alone or written_wall_s <= self.lost_wall_s:
            return False
        if not whole_files.are_closed(f"{place.base}/{path}", known.files):
            return False
        stats = map(procfs.read_stat, self.pids)
        return all(each is not None and each.alive for each in stats)


@dataclass(slots=True)
class Scanner:
    """Repeated scans of one place: files that have not changed since an earlier scan are not read again."""

    known: dict[str, _Known] = field(default_factory=dict)
    ahead: dict[str, tuple[float, float]] = field(default_factory=dict)  # as in `Noted`

    def cut(self, found: Result) -> dict[str, Any]:
        return {each.path: _state_of(self.known[each.path].files) for each in found.looked if each.why == _MAY_BE_CUT}

    def scan(
        self, place: Place, budget: Budget, *, now_wall_s: float, life: Life | None, doubt_from_wall_s: float | None = None,
        spare: bool = False, without: Collection[str] = (),
    ) -> Result:  # fmt: skip
        """Scan until a whole one is found, and a `spare` one, beside these. `life`: None: not running. Raises Unanswered."""
        try:
            found = _find(place, budget)
            whole, looked, noted = 0, list[Candidate](), noted_of(place)
            noted.ahead.update(self.ahead)
            ours = _ours(place, found.paths, budget, noted, MOST_LOOKED_AT)
            newest, self.ahead = ours.rows[:MOST_LOOKED_AT], noted.ahead
            for path, step, written_s in newest:
                known = self._of(place, path, budget)
                if known is None:
                    continue
                self.known[path] = known
                at_s = max((each.written_ns / 1e9 for each in known.files if path not in self.ahead), default=written_s)
                quiet_s = max(now_wall_s - at_s, time.monotonic() - known.seen_s)
                lived_on_s = quiet_s if known.looks > 1 else 0.0
                if life is not None and life.progress_s is not None:
                    lived_on_s = life.progress_s - known.seen_s
                known.settled = known.settled or newest_whole.is_settled(
                    at_s, running=life is not None, lived_on_s=lived_on_s, doubt_from_wall_s=doubt_from_wall_s,
                    closed_s=quiet_s if life is not None and life.has_closed(place, path, known, at_s) else 0.0,
                    replaced=known.is_alone and known.replaced,
                )  # fmt: skip
                verdict = _verdict(known, doubted=noted.doubts.get(path) == _state_of(known.files))
                looked.append(Candidate(path, step, at_s, sum(each.size_bytes for each in known.files), *verdict))
                whole += looked[-1].verdict == WHOLE and f"{place.base}/{path}" not in without
                if whole > spare:
                    break
        except OSError as error:
            lack.check(error)
            raise Unanswered(f"its directory cannot be read: {error.strerror or error}") from error
        self.known = {path: known for path, known in self.known.items() if path in {row[0] for row in newest}}
        gap_s = newest_whole.usual_gap_s([each[2] for each in newest])
        saving_since_s = None if life is None else now_wall_s - _SAVING_S
        odd = ours.odd or _other_name(place, found.paths, newest, noted.starts, None if life is None else now_wall_s)
        return Result(
            place, tuple(looked), len(found.paths), found.links, found.unread, gap_s, saving_since_s, noted.starts, odd,
            tuple(newest), ours.older,
        )  # fmt: skip

    def _of(self, place: Place, path: str, budget: Budget) -> _Known | None:
        full = f"{place.base}/{path}"
        try:
            files = whole_files.files_of(full, budget.spend)
            known = self.known.get(path)
            if known is None or known.files != files:
                wrong = whole_files.defect(full, files, place.rule.file) if files else "it is an empty directory"
                silent = ""
                if not wrong and place.check:
                    wrong, silent = _own_check(place, full)
                known = _Known(files, None if known is None else known.files, wrong, silent)
        except FileNotFoundError:
            return None
        except whole_files.TooMany as error:
            known = _Known((), None, unreadable=str(error))
        except OSError as error:
            lack.check(error)
            known = _Known((), unreadable=f"it cannot be read: {error.strerror or error}")
        known.looks += 1
        return known


def _verdict(known: _Known, *, doubted: bool) -> tuple[str, str]:
    if known.unreadable:
        return UNKNOWN, known.unreadable
    if known.defect:
        return TORN, known.defect
    return (UNKNOWN, _MAY_BE_CUT) if known.defect is None and (doubted or not known.settled) else (WHOLE, "")


def _own_check(place: Place, path: str) -> tuple[str | None, str]:
    """Run `checkpoint_check`: empty for exit code 0, else its last line, and why it gives no answer."""
    try:
        env = hooks.environ_of(place.user, inherited()) | dict(place.env)
        code, output = hooks.run(
            [*place.check, path], place.check_timeout_s, env=env, cwd=place.directory, user=place.user
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return None, f"checkpoint_check cannot be started: {error}"
    if code is None:
        return None, f"checkpoint_check did not answer within {span(place.check_timeout_s)}"
    said = f"checkpoint_check ended with {code}"
    if code < 0 or code in (126, 127):
        return None, said
    return "" if code == 0 else (output.strip().splitlines() or [said])[-1][:_MOST_SAID], ""


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
    rows: tuple[_Row, ...] = ()  # the newest ones, also those that were not looked at
    older: tuple[str, ...] = ()  # of an older experiment

    def without(self, paths: Collection[str]) -> Result:
        """Without these checkpoints."""
        looked = tuple(each for each in self.looked if f"{self.place.base}/{each.path}" not in paths)
        return replace(self, looked=looked, matches=self.matches - len(self.looked) + len(looked))

    def newest_first(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        by_row = {(each.path, each.step, each.written_wall_s): each for each in candidates}
        return [by_row[row] for row in _ordered([*by_row], self.starts)]

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
        if found is not None and found.step is not None and self.place.shown and self.place.shown.counts_steps is False:
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
    """Undo `set_aside`, unless a newer one has that name; the `copy` that was put there goes. Raises OSError, ValueError."""
    (fd, name), there = parent_below(base, path), f"{base}/{path}"
    with held(fd):
        asides = asides_of(fd, name)
        # Its script may have written it again, and that may be what the copy was made of.
        is_copy = copy is not None and copy.is_of(there)
        is_copy = is_copy and asides != [] and _written_s(f"/proc/self/fd/{fd}/{asides[-1]}") > _written_s(there)
        if not asides or (os.path.lexists(there) and not is_copy):
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


def each_of(place: Place, paths: tuple[str, ...], rename: Callable[[str, str], object]) -> tuple[str, ...]:
    """Set those of this place aside, or put them back; return those that the disk refused to rename."""
    refused = []
    for path in paths:
        if not path.startswith(f"{place.base}/"):
            continue
        try:
            with acting_as(place.user):
                rename(place.base, path[len(place.base) + 1 :])
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            log.warning("checkpoint_not_renamed", path=path, error=str(error))
            refused.append(path)
    return tuple(refused)


def roll_back(place: Place, from_step: int, budget: Budget) -> None:
    """Set aside the newest checkpoints, as far as their steps are not before this one; none if no older one is left."""
    known = [(path, step) for path, step, _ in _all_newest_first(place, budget) if step is not None]
    older = next((number for number, (_, step) in enumerate(known) if step < from_step), 0)
    each_of(place, tuple(f"{place.base}/{path}" for path, _ in reversed(known[:older])), set_aside)


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
