"""The invariants that must hold at every moment, checked five times a second against ground truth.

A fault names the invariants that it may break, and for how long after its end (`Scoreboard.exempt`). Any other broken
invariant is a finding: it is recorded once, with the last injections before it.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from box import PATIENCE

from chaos.truth import Program, Truth, daemon_figures
from chaos.world import CHECKPOINT_MAX_S, SCRIPT, SCRIPT_BEHIND, World
from supervisor.files import open_regular
from supervisor.lack import is_named

PERIOD_S = 0.2
UNSUPERVISED_S = 25.0 * PATIENCE
ASTRAY_S = 10.0 * PATIENCE
TRAINS_AGAIN_S = 60.0 * PATIENCE
STATUS_S = 2.0 * PATIENCE
ACKNOWLEDGED_S = 12.0 * PATIENCE  # stop_grace_s of the configuration, and a margin
INTERVAL_S = (3 * CHECKPOINT_MAX_S + 6.0) * PATIENCE  # an interval, the save itself, and a margin for a busy machine
WARM_UP_S = 45.0
MORE_RSS_KIB, MORE_DESCRIPTORS, MORE_THREADS = 40 * 1024, 24, 12
LACK = "traceback for lack"  # exempt: a worker's traceback that names a lack of memory, descriptors or room
TRACEBACKS = ("Traceback (most recent call last)", "--- Logging error ---")

INVARIANTS = {
    "once": "at most one live process tree of a program, and it carries the fence's token",
    "supervised": f"no worker without a shim, and none that the daemon does not know, for more than {UNSUPERVISED_S:g} s",
    "checkpoint": "a program that has saved always has a whole checkpoint, verified by digest; none disappears unreported",
    "steps": "a worker resumes from the newest whole checkpoint, and that is at most an interval behind",
    "status": f"`status` answers within {STATUS_S:g} s while a daemon is up",
    "trains": f"every wanted program trains again within {TRAINS_AGAIN_S:g} s of the last cause",
    "traceback": "no traceback in the logs of the daemon and of its workers",
    "flat": "memory, descriptors and threads of a daemon stay flat after its warm-up",
    "acknowledged": "an acknowledged request holds, over a kill of the daemon right after",
    "deaths": "no attempt is recorded as dead for which nothing was injected",
    "restarts": "the daemon ends only when a fault has ended it",
}


@dataclass(frozen=True, slots=True)
class Broken:
    at_s: float
    invariant: str
    subject: str
    text: str
    before: tuple[str, ...]  # the last injections before it

    def to_json(self) -> dict[str, Any]:
        return {
            "at_s": round(self.at_s, 1), "invariant": self.invariant, "subject": self.subject, "text": self.text,
            "before": self.before,
        }  # fmt: skip


@dataclass(slots=True)
class _Track:
    """The checker's state for one program."""

    newest: int | None = None  # step of the newest whole checkpoint
    token: str = ""
    expected: int | None = None  # newest whole step when this token was first seen
    resumed: bool = True
    steps: int | None = None
    moved_s: float = 0.0
    several_s: float | None = None
    astray_s: float | None = None
    none_whole: int = 0
    behind: list[tuple[float, int]] = field(default_factory=list)  # (time, steps), for about a minute


@dataclass(slots=True)
class Scoreboard:
    """Shared by driver and checker: wanted states, exemptions, injected causes and broken invariants."""

    world: World
    wanted: dict[str, bool] = field(default_factory=dict)
    wanted_since_s: dict[str, float] = field(default_factory=dict)
    exempt_until_s: dict[tuple[str, str], float] = field(default_factory=dict)
    causes: list[tuple[float, str, str]] = field(default_factory=list)  # (time, subject, name)
    broken: list[Broken] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def exempt(self, invariant: str, subject: str, for_s: float) -> None:
        """Ignore an invariant for `for_s` seconds; `subject` is a program, "daemon", or "" for all subjects."""
        with self.lock:
            key = invariant, subject
            self.exempt_until_s[key] = max(self.exempt_until_s.get(key, 0.0), time.monotonic() + for_s)

    def is_exempt(self, invariant: str, subject: str) -> bool:
        now_s = time.monotonic()
        return any(now_s < self.exempt_until_s.get((invariant, each), 0.0) for each in (subject, ""))

    def want(self, program: str, run: bool) -> None:
        with self.lock:
            self.wanted[program], self.wanted_since_s[program] = run, time.monotonic()

    def cause(self, subject: str, name: str) -> None:
        with self.lock:
            self.causes.append((time.monotonic(), subject, name))

    def last_cause_s(self, program: str) -> float:
        """Time of the last cause that affects this program, the daemon, or the whole box."""
        return max((at_s for at_s, subject, _ in self.causes if subject in {program, "daemon", "box"}), default=0.0)

    def breaks(self, invariant: str, subject: str, text: str) -> None:
        if self.is_exempt(invariant, subject):
            return
        with self.lock:
            now_s = time.monotonic() - self.world.started_s
            recent = [b for b in self.broken if (b.invariant, b.subject) == (invariant, subject) and now_s - b.at_s < 60.0]
            if recent:
                return
            before = tuple(f"{at - self.world.started_s:.1f} {name} ({subject})" for at, subject, name in self.causes[-4:])
            self.broken.append(Broken(now_s, invariant, subject, text, before))
        self.world.event(f"BROKEN {invariant} ({subject}): {text}")


class Checker(threading.Thread):
    """Checks the invariants five times a second."""

    def __init__(self, board: Scoreboard) -> None:
        super().__init__(name="checker", daemon=True)
        self._board, self._world = board, board.world
        self.truth = Truth(board.world)
        self.seen: dict[str, Program] = {}
        self.looks = 0
        self.slowest_look_s = 0.0
        self.figures: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self._tracks = {name: _Track(moved_s=time.monotonic()) for name in (*board.world.programs, SCRIPT)}
        self._over = threading.Event()
        self._read: dict[str, tuple[int, int]] = {}
        self._base: dict[int, list[dict[str, int]]] = {}

    def run(self) -> None:
        try:
            while not self._over.wait(PERIOD_S):
                began_s = time.monotonic()
                self._turn()
                self.slowest_look_s = max(self.slowest_look_s, time.monotonic() - began_s)
        except BaseException as error:
            self.error = error
            raise

    def close(self) -> None:
        self._over.set()
        self.join()

    def training(self, program: str) -> bool:
        """Whether its steps have increased within the last three seconds."""
        track = self._tracks[program]
        return track.steps is not None and time.monotonic() - track.moved_s < 3.0

    def _turn(self) -> None:
        self.seen = self.truth.look()
        self.looks += 1
        for name, program in self.seen.items():
            track = self._tracks[name]
            self._once(name, program, track)
            if name != SCRIPT:
                self._checkpoint(name, program, track)
            self._steps(name, program, track)
            self._script_steps(name, program, track)
            self._trains(name, program, track)
            self._acknowledged(name, program)
        if self.looks % 5 == 0:
            self.tracebacks()
            self._flat()

    def _once(self, name: str, program: Program, track: _Track) -> None:
        now_s = time.monotonic()
        mains = {each.token for each in program.mains}
        if len(mains) > 1:
            self._board.breaks("once", name, f"{len(mains)} attempts live: {sorted(each.pid for each in program.mains)}")
        fenced = bool(program.mains and program.fence and program.fence not in mains)
        track.astray_s = (track.astray_s or now_s) if fenced else None
        if track.astray_s is not None and now_s - track.astray_s > ASTRAY_S:
            self._board.breaks("once", name, f"its worker is not the one that the fence names, for {ASTRAY_S:g} s")
        lost = bool(program.processes) and not program.shims
        track.several_s = (track.several_s or now_s) if lost or len(program.tokens) > 1 else None
        if track.several_s is not None and now_s - track.several_s > UNSUPERVISED_S:
            defect = "has no shim" if lost else f"has {len(program.tokens)} tokens"
            self._board.breaks("supervised", name, f"its tree {defect} for {now_s - track.several_s:.0f} s")

    def _checkpoint(self, name: str, program: Program, track: _Track) -> None:
        if program.whole:
            track.none_whole = 0
            if track.newest is not None and program.whole[0] < track.newest:
                where = self._world.run_dir(name) / "checkpoints"
                if not list(where.glob(f"ckpt-{track.newest}.*.bad")):
                    self._board.breaks(
                        "checkpoint", name, f"whole checkpoint {track.newest} is gone, {program.whole[0]} is left"
                    )
            track.newest = program.whole[0]
        elif track.newest is not None:
            track.none_whole += 1  # a listing may fall between a commit and a pruning: check again before it counts
            if track.none_whole >= 3:
                self._board.breaks("checkpoint", name, f"no whole checkpoint is left; {track.newest} was there")
                track.newest = None

    def _steps(self, name: str, program: Program, track: _Track) -> None:
        now_s, beat = time.monotonic(), program.beat
        if beat is None:
            return
        if beat.token != track.token:
            track.token, track.resumed = beat.token, False
            track.expected = track.newest
        if not track.resumed and beat.resumed_step != 2**64 - 1:
            track.resumed = True
            if track.expected is not None and beat.resumed_step < track.expected:
                text = f"resumed at {beat.resumed_step}, whole checkpoint {track.expected} was there"
                self._board.breaks("steps", name, text)
            earlier = [steps for at_s, steps in track.behind if now_s - at_s > 0 and at_s <= self._interval_before(track)]
            if earlier and beat.resumed_step < earlier[-1]:
                text = f"resumed at {beat.resumed_step}; an interval before its end it was at {earlier[-1]} already"
                self._board.breaks("steps", name, text)
            track.behind.clear()
        if track.resumed and beat.env_steps != track.steps:
            track.behind.append((now_s, beat.env_steps))
            del track.behind[:-600]

    def _script_steps(self, name: str, program: Program, track: _Track) -> None:
        """A script that overwrites its only checkpoint resumes from a whole one that is at most seconds old."""
        if name != SCRIPT or not program.mains:
            return
        token = program.mains[0].token
        if token == track.token:
            track.newest = self.truth.script_figure("saved")
            return
        resumed, pid = self.truth.script_figure("resumed"), self.truth.script_figure("pid")
        if resumed is None or pid not in {each.pid for each in program.processes}:
            return  # it has not begun yet
        if track.newest is not None and resumed < track.newest - SCRIPT_BEHIND:
            self._board.breaks("steps", name, f"resumed at {resumed}, and had saved {track.newest} whole")
        track.token = token

    @staticmethod
    def _interval_before(track: _Track) -> float:
        """The moment one interval (INTERVAL_S) before its last progress."""
        return track.behind[-1][0] - INTERVAL_S if track.behind else 0.0

    def _trains(self, name: str, program: Program, track: _Track) -> None:
        now_s, board = time.monotonic(), self._board
        if program.steps is not None and program.steps != track.steps:
            track.steps, track.moved_s = program.steps, now_s
        if not board.wanted.get(name, True):
            return
        since_s = max(track.moved_s, board.last_cause_s(name), board.wanted_since_s.get(name, 0.0))
        if now_s - since_s > TRAINS_AGAIN_S:
            states = [f"{each.pid} {each.state}" for each in (*program.shims, *program.processes)]
            board.breaks("trains", name, f"no progress for {now_s - track.moved_s:.0f} s; processes: {states or 'none'}")

    def _acknowledged(self, name: str, program: Program) -> None:
        board = self._board
        if board.wanted.get(name, True) or time.monotonic() - board.wanted_since_s[name] < ACKNOWLEDGED_S:
            return
        if program.mains:
            board.breaks("acknowledged", name, f"its stop was acknowledged, and {program.mains[0].pid} runs")

    def tracebacks(self) -> None:
        world = self._world
        logs = [(world.daemon_log, "daemon"), (world.state / "extralife.log", "daemon")]
        logs += [
            (world.run_dir(name) / log, name) for name in (*world.programs, SCRIPT) for log in ("stdout.log", "stderr.log")
        ]
        for path, subject in logs:
            text = self._new_text(path)
            at = min((text.index(mark) for mark in TRACEBACKS if mark in text), default=None)
            named = is_named(text[at:]) or os.strerror(errno.ENOSPC) in text[at:]
            lacked = subject != "daemon" and self._board.is_exempt(LACK, subject) and named
            if at is not None and not lacked:
                self._board.breaks("traceback", subject, f"{path.name}: {text[at : at + 1500]}")

    def _new_text(self, path: Path) -> str:
        """The new text of a log since the previous call. A replaced or truncated log is read from its beginning."""
        try:
            with os.fdopen(open_regular(path, follow=True), "rb") as file:  # a fault may have put a FIFO there
                inode, at = self._read.get(str(path), (0, 0))
                found = os.fstat(file.fileno())
                file.seek(at if found.st_ino == inode and found.st_size >= at else 0)
                data = file.read(4 << 20)
                self._read[str(path)] = (found.st_ino, file.tell())
        except OSError:
            return ""
        return data.decode(errors="replace")

    def _flat(self) -> None:
        life = self._world.systemd.alive()
        if life is None or time.monotonic() - life.began_s < WARM_UP_S:
            return
        found = daemon_figures(life.process.pid)
        if found is None:
            return
        base = self._base.setdefault(life.process.pid, [])
        base.append(found)
        first = {key: max(each[key] for each in base[:10]) for key in found}
        for key, more in (("rss_kib", MORE_RSS_KIB), ("descriptors", MORE_DESCRIPTORS), ("threads", MORE_THREADS)):
            recent = min(each[key] for each in base[-10:])  # minimum of ten samples: a burst of clients is not a leak
            if len(base) >= 20 and recent > first[key] + more:
                self._board.breaks("flat", "daemon", f"{key} was {first[key]}, is {recent}")

    def flatness(self) -> dict[str, Any]:
        """First and last figures of the longest-lived daemon."""
        longest = max(self._base.values(), key=len, default=[])
        return {} if not longest else {"looks": len(longest), "first": longest[0], "last": longest[-1]}


class StatusProbe(threading.Thread):
    """Requests `status` once a second, and compares the daemon's pids with those of /proc."""

    def __init__(self, board: Scoreboard, checker: Checker) -> None:
        super().__init__(name="status", daemon=True)
        self._board, self._world, self._checker = board, board.world, checker
        self._over = threading.Event()
        self.times_s: list[float] = []
        self._answers: deque[tuple[float, str]] = deque(maxlen=240)
        self._unknown: dict[str, tuple[int, float]] = {}
        self._unanswered_s: float | None = None

    def run(self) -> None:
        while not self._over.wait(1.0):
            self._turn()

    def close(self) -> None:
        self._over.set()
        self.join()

    def since(self, at_s: float) -> list[str]:
        """The answers to requests after `at_s`, as JSON. A problem may be over before its fault function returns."""
        return [text for asked_s, text in tuple(self._answers) if asked_s > at_s]

    def _turn(self) -> None:
        life = self._world.systemd.alive()
        began_s = time.monotonic()
        if life is None or life.ready_s is None or began_s - life.ready_s < 3.0:
            self._unanswered_s = None
            return
        try:
            code, status = self._world.request("GET", "/api/v1/status", timeout_s=10.0)
            error = "" if code == 200 else f"HTTP {code}: {status}"
        except (OSError, http.client.HTTPException) as failed:
            status, error = {}, f"{type(failed).__name__}: {failed}"
        took_s = time.monotonic() - began_s
        if self._world.systemd.alive() is not life:
            return
        if error:
            self._unanswered_s = self._unanswered_s or began_s
            if time.monotonic() - self._unanswered_s > STATUS_S:
                self._board.breaks(
                    "status", "daemon", f"no answer for {time.monotonic() - self._unanswered_s:.0f} s: {error}"
                )
            return
        self._unanswered_s = None
        self.times_s.append(took_s)
        if took_s > STATUS_S:
            self._board.breaks("status", "daemon", f"answered after {took_s:.1f} s")
        self._answers.append((began_s, json.dumps(status)))
        self._compare(status)

    def _compare(self, status: dict[str, Any]) -> None:
        now_s = time.monotonic()
        pids = {each["name"]: each.get("pid") for each in status.get("programs", [])}
        for name, program in self._checker.seen.items():
            main = program.mains[0].pid if program.mains else None
            if main is None or main == pids.get(name):
                self._unknown.pop(name, None)
                continue
            pid, since_s = self._unknown.setdefault(name, (main, now_s))
            if pid != main:
                self._unknown[name] = main, now_s
            elif now_s - since_s > UNSUPERVISED_S:
                self._board.breaks("supervised", name, f"{main} runs, the daemon knows {pids.get(name)}")
