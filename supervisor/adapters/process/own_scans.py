"""The daemon's scans of the checkpoints that scripts write themselves: while they run, before a start, at the end.

Each scan runs in its own thread, with a time limit, and costs at most a fiftieth of a core.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from supervisor import lack
from supervisor.adapters.process import own_checkpoints as own
from supervisor.adapters.process import whole_files
from supervisor.adapters.process.own_checkpoints import Budget, Files, KeptCopy, Life, Place, Result, Scanner, Unanswered
from supervisor.adapters.threads import Tasks
from supervisor.as_user import acting_as
from supervisor.model.commands import Spawn
from supervisor.model.inputs import CheckpointsFound, Ending, OwnCheckpoint
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.figures import Figures
from supervisor.policy.script.finish import in_save
from supervisor.policy.worker import newest_whole
from supervisor.policy.worker.diagnosis import SENT
from supervisor.policy.worker.newest_whole import WHOLE, Candidate
from supervisor.policy.worker.whose_checkpoint import Shown
from supervisor.ports import Clock, Inbox, ahead_s

log = structlog.get_logger()

_LOOK_S: Final = 10.0
_SOON_S: Final = 1.0
_STIRS: Final = 2
_LOOK_SHARE: Final = 0.02
_COPY_SHARE: Final = 0.05  # of the time: the next copy comes twenty times as long after the one before as that took
_MOST_PUT_BACK_S: Final = 600.0
_MOST_LAST_S: Final = 5.0
_START_WAIT_S: Final = 10.0  # how long a start waits for a scan
_SAME_S: Final = 0.5


class Keeper(Protocol):
    """Makes and puts back the copies (`adapters/copies/kept_copy.py`)."""

    def of(self, place: Place) -> KeptCopy | None: ...
    def keep(self, place: Place, newest: Candidate, files: Files, *, replaced: bool) -> str: ...
    def put_back(self, place: Place) -> None: ...
    def drop(self, place: Place) -> None: ...


@dataclass(slots=True)
class _Watched:
    place: Place
    scanner: Scanner = field(default_factory=Scanner)
    guard: threading.Lock = field(default_factory=threading.Lock)  # held by the thread that scans
    life: Life = field(default_factory=lambda: Life(lost_wall_s=time.time()))
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

    def known_shown(self) -> Shown:
        return self.shown or own.noted_of(self.place).shown


class OwnCheckpoints:
    """Scans every program's own checkpoints. `newest` never blocks, and a start waits for some seconds at most."""

    def __init__(
        self, paths: Paths, clock: Clock, inbox: Inbox, keeper: Keeper,
        put_back: Callable[[Paths, str, Place], None] = lambda *_: None,
        figures: Callable[[str], Figures | None] = lambda _: None, *, shared: bool = False,
    ) -> None:  # fmt: skip
        """`put_back` puts a checkpoint from a copy off the box into place. `figures`: of the output of a program."""
        self._paths, self._clock, self._inbox, self._keeper, self._put_back = paths, clock, inbox, keeper, put_back
        self._figures, self._shared = figures, shared
        self._watched: dict[str, _Watched] = {}
        self._guard = threading.Lock()
        self._tasks = Tasks("checkpoints")

    def newest(
        self, spec: ProgramSpec, pids: Iterable[int] = (), progress_at_s: float | None = None
    ) -> OwnCheckpoint | None:
        """The result of a running program's last scan; None: there was none yet, or it has no `checkpoint_glob`.

        `pids`: its processes, if they are on this machine; `progress_at_s`: of its newest sign of progress.
        """
        watched = self._of(spec)
        if watched is None:
            return None
        age_s = None if progress_at_s is None else self._clock.now_s() - progress_at_s
        watched.life = watched.life.next(pids, None if age_s is None else time.monotonic() - age_s)
        figures = self._figures(spec.name)
        if figures is not None and figures.steps is not None:
            shown, target = watched.known_shown(), spec.figures.target_steps
            watched.shown = replace(
                shown, first=(*figures.first_steps, None)[0], steps=figures.steps, configured=target is not None,
                target=target or (None if figures.laps else figures.target or shown.target),
                counts_steps=None if figures.laps else shown.counts_steps,  # they begin anew in each epoch
            )  # fmt: skip
            watched.marks, watched.fresh = figures.marks, watched.fresh and not figures.laps
        now_s = time.monotonic()
        began_s = watched.began_s
        if began_s is None and now_s >= watched.due_s:
            watched.began_s = now_s
            self._tasks.begin(f"checkpoints-{spec.name}", self._look_again, watched)
        elif began_s is not None and now_s - began_s > own.MOST_S + watched.place.check_timeout_s * own.MOST_LOOKED_AT:
            return OwnCheckpoint(sure=False, error=f"its directory {watched.place.base} does not answer")
        return watched.reported

    def shown(self, program: str, place: Place) -> Shown | None:
        """What the output of a program has shown: of its present attempt, or of those before this daemon."""
        with self._guard:
            watched = self._watched.get(program)
        return own.noted_of(place).shown if watched is None else watched.shown

    def _of(self, spec: ProgramSpec) -> _Watched | None:
        place = own.place_of(spec, self._paths.run_dir(spec.name), shared=self._shared)
        if place is None:
            return None
        with self._guard:
            watched = self._watched.get(spec.name)
            if watched is None or watched.place != place:
                watched = self._watched[spec.name] = _Watched(place)
            return watched

    def _look_again(self, watched: _Watched) -> None:
        began_s, cpu_s = time.monotonic(), time.thread_time()
        try:
            with watched.guard:
                found, before = self._look(watched, life=watched.life), watched.reported
                self._sight(watched)
                with contextlib.suppress(PermissionError), acting_as(watched.place.user):
                    found = replace(found, displaced=self._displaced(watched))
                    self._copy_if_due(watched)
                found = replace(found, note=found.note or watched.no_copy)
                # Two clocks are read one after the other, so the time differs slightly for unchanged files: no change.
                moved_s = abs((found.saved_at_s or 0.0) - ((before and before.saved_at_s) or 0.0))
                if before is None or moved_s >= _SAME_S or replace(found, saved_at_s=before.saved_at_s) != before:
                    watched.reported = found
        finally:
            took_s = time.monotonic() - began_s
            # By time of the CPU: on a busy box a look takes longer, and programs are killed within a write more often.
            cost_s = took_s if watched.place.check else time.thread_time() - cpu_s
            # Of a single checkpoint that is written over, each state is worth a copy before the next one.
            at_risk = watched.result is not None and (watched.result.matches <= 1 or watched.result.older)
            watched.due_s = began_s + max(_SOON_S if at_risk else _LOOK_S, 2 * took_s, cost_s / _LOOK_SHARE)
            watched.began_s = None

    def _sight(self, watched: _Watched) -> None:
        """Note which steps were shown when the checkpoints of an attempt that began from nothing were written."""
        result, shown = watched.result, watched.shown
        if result is None or not result.starts or shown is None or shown.counts_steps is not None or not watched.fresh:
            return
        for _, number, written_s in sorted(result.rows, key=lambda row: row[2]):
            at_s = written_s - ahead_s(self._clock)
            before = [step for mark_s, step in watched.marks if mark_s <= at_s]
            after = [step for mark_s, step in watched.marks if mark_s > at_s]
            if number is not None and before and after and written_s >= result.starts[-1]:
                shown = shown.saw(number, before[-1], after[0])
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
            self._tasks.begin(f"aside-{spec.name}", own.each_of, watched.place, paths, own.set_aside)

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

    def _copy(self, watched: _Watched, newest: Candidate, files: Files, replaced: bool) -> None:
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
        alone, budget = _Watched(watched.place, shown=watched.shown), Budget(time.monotonic() + _MOST_LAST_S)
        found = self._look(alone, life=None, budget=budget, doubt_from_wall_s=doubt_s)
        return None if found.error else found

    def _look(
        self, watched: _Watched, *, life: Life | None, budget: Budget | None = None, start: bool = False, **more: Any
    ) -> OwnCheckpoint:
        watched.result = None
        try:
            with acting_as(watched.place.user):
                place = replace(watched.place, shown=watched.shown)
                watched.result = watched.scanner.scan(
                    place, budget or Budget(), now_wall_s=self._clock.wall_s(), life=life, **more
                )
            return watched.result.as_input(self._clock, start=start)
        except (Unanswered, PermissionError) as error:
            return OwnCheckpoint(sure=False, error=str(error))
        except Exception as error:
            lack.check(error)
            log.exception("checkpoints_not_looked_at", base=watched.place.base)
            return OwnCheckpoint(sure=False, error=f"it stopped at a bug ({type(error).__name__}); see the daemon's log")

    def before_start(self, command: Spawn, then: Callable[[str | None], None], refuse: Callable[[str], None]) -> None:
        """Set aside, scan, then call `then` with the path of the newest whole one; empty: there is none; None: unknown.

        If one cannot be put back, call `refuse` with the reason: the program would begin from scratch.
        """
        if (watched := self._of(command.spec)) is not None:
            self._tasks.begin(f"start-{command.spec.name}", self._before_start, watched, command, then, refuse)

    def _before_start(
        self, watched: _Watched, command: Spawn, then: Callable[[str | None], None], refuse: Callable[[str], None]
    ) -> None:
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
                    with acting_as(watched.place.user):
                        found, left = self._prepare(watched, command)
                        result = watched.result or Result(watched.place)
                        with contextlib.suppress(OSError):
                            found = replace(found, stale=own.stale_name(found.path))
                    watched.reported = found
                    watched.fresh, watched.stirs, watched.life = not found.path, 0, Life(lost_wall_s=time.time())
                    watched.shown = watched.known_shown().begins()
                    own.note_start(watched.place, watched.scanner.cut(result), watched.scanner.ahead, watched.shown)
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
        """Set aside and put back, by one look. Returns what a start finds, and the paths that are still to be set aside."""
        shown, target = watched.known_shown(), command.spec.figures.target_steps
        watched.shown = replace(shown, target=target or shown.target, configured=target is not None)
        place = replace(watched.place, shown=watched.shown)
        kept = self._keeper.of(place)
        own.each_of(place, command.back, functools.partial(own.put_back, kept))
        if command.from_step is not None:
            try:
                own.roll_back(place, command.from_step, Budget())
            except (Unanswered, OSError) as error:
                log.warning("not_rolled_back", base=place.base, error=str(error))
            self._keeper.drop(place)
            kept = None
        progress_s, doubt_s = watched.life.progress_s, command.doubt_from_wall_s
        if progress_s is not None:
            doubt_s = newest_whole.doubt_since_progress(doubt_s, time.time() - time.monotonic() + progress_s)
        aside = tuple(filter(os.path.lexists, command.aside))
        found = self._look(watched, life=None, start=True, doubt_from_wall_s=doubt_s, spare=True, without=aside)
        result = watched.result
        if result is None:
            return found, aside
        is_copied = kept is not None and kept.path in aside and not kept.is_of(kept.path)
        if not is_copied and result.without(aside).choice.start is None and found.path and found.sure:
            left = aside  # never the last whole one
        else:
            left = own.each_of(place, aside, own.set_aside)
        result = watched.result = result.without(gone := {*aside}.difference(left))
        for each in gone:  # what comes in their place does not show that the script replaces its files
            watched.scanner.known.pop(each.removeprefix(f"{place.base}/"), None)
        found = result.as_input(self._clock, start=True)
        return found if kept is None else self._beside_copy(watched, result, kept, command, found), left

    def _beside_copy(
        self, watched: _Watched, result: Result, kept: KeptCopy, command: Spawn, found: OwnCheckpoint
    ) -> OwnCheckpoint:
        """What a start finds if the kept copy counts, too. It is put back if it is the newest one that is not torn."""
        if found.path == kept.path:
            return replace(found, spare=found.spare or ("" if kept.is_of(kept.path) else kept.place))
        if not os.path.lexists(kept.path) and command.doubt_from_wall_s is None and kept.path not in command.aside:
            note = f"{found.note}; " if found.note else ""  # nothing interrupted it, so somebody has removed it
            return replace(found, note=f"{note}a copy of {kept.path} is kept in {kept.place}")
        path, at_s = kept.path[len(result.place.base) + 1 :], kept.written_wall_s
        size_bytes = sum(size for _, size, _ in kept.marks)
        copy = Candidate(path, kept.step, watched.scanner.ahead.get(path, (at_s, at_s))[1], size_bytes, WHOLE)
        looked = result.newest_first((*result.looked, copy))
        if newest_whole.choose(looked).start is not copy or kept.was_set_aside() or not self._put_copy_back(watched, kept):
            return found
        others = tuple(each for each in looked if each is copy or each.path != path)
        watched.scanner.known.pop(path, None)
        watched.result = replace(result, looked=others, matches=max(1, result.matches))
        return replace(watched.result.as_input(self._clock, start=True), put_back=True)

    def _put_copy_back(self, watched: _Watched, kept: KeptCopy) -> bool:
        """Put the copy back: then it is whole there. A failure is logged, and the start goes on without it."""
        watched.puts_back = True
        try:
            with watched.copying:
                self._keeper.put_back(replace(watched.place, shown=watched.shown))
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
