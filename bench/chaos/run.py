"""One run: a plan drawn from a seed, its faults injected one after another, and the verdict on each report."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from box import PATIENCE

from chaos.faults import NotPossible, Scene
from chaos.invariants import Checker, Scoreboard, StatusProbe
from chaos.reports import Reports, View
from chaos.table import FAULTS, Fault
from chaos.world import SCRIPT, World

OVERLAPS = 0.2  # share of faults that are injected before the previous one is healed
HEALED_S = 75.0 * PATIENCE  # longest wait for a fault to heal: after that an invariant is broken anyway
SETTLE_S = 6.0
MASKED_S = 12.0  # longest wait for the report of a fault that another one may have hidden


@dataclass(frozen=True, slots=True)
class Planned:
    """The n-th fault: its kind, target and delay, and whether it may overlap the previous fault."""

    number: int
    fault: Fault
    program: str
    gap_s: float
    overlaps: bool
    seed: int


def plan(seed: int, faults: list[Fault], programs: tuple[str, ...]) -> Any:
    """An endless plan, determined by seed, kinds and programs. First every kind comes once, then kinds come by weight."""
    dice = random.Random(seed)
    first = dice.sample(faults, len(faults))
    number = 0
    while True:
        fault = first[number] if number < len(first) else dice.choices(faults, [each.weight for each in faults])[0]
        overlaps = dice.random() < OVERLAPS
        gap_s = dice.uniform(0.0, 2.0) if overlaps else dice.uniform(0.5, 4.0)
        yield Planned(number + 1, fault, dice.choice(programs), gap_s, overlaps, dice.randrange(2**32))
        number += 1


@dataclass(slots=True)
class Injection:
    """One injected fault, and the verdict on its report."""

    planned: Planned
    program: str
    at_s: float
    ended_s: float
    view: View
    outcome: str = ""  # right, wrong, masked, none (no report is due), skipped
    report: str = ""
    after_s: float | None = None

    @property
    def subject(self) -> str:
        return self.program if self.planned.fault.subject == "program" else self.planned.fault.subject


@dataclass(slots=True)
class Run:
    """The state and the results of one run."""

    world: World
    board: Scoreboard
    checker: Checker
    probe: StatusProbe
    reports: Reports
    injections: list[Injection] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _claimed: set[int] = field(default_factory=set)
    _lives_seen: int = 1

    @classmethod
    def begin(cls, world: World) -> Run:
        board = Scoreboard(world)
        checker = Checker(board)
        run = cls(world, board, checker, StatusProbe(board, checker), Reports(world))
        for name in (*world.programs, SCRIPT):
            board.want(name, True)
        board.cause("box", "the run begins")
        world.systemd.start()
        run.checker.start()
        run.probe.start()
        run.reports.start()
        return run

    def drive(self, planned: Any, *, minutes: float, faults: int | None) -> None:
        """Inject faults for `minutes`, or until `faults` are injected. Time starts when all games train and have saved."""
        self._await(self._healthy, 120.0 * PATIENCE)
        self._await_checkpoints()
        until_s = time.monotonic() + 60.0 * minutes
        for each in planned:
            if time.monotonic() > until_s or (faults is not None and len(self.injections) >= faults):
                break
            if not each.overlaps:
                self._await(lambda each=each: self._ready_for(each), HEALED_S)
            self._sleep(each.gap_s)
            self._inject(each)
        self._await(lambda: self._healthy_and_reported() and not self._later, HEALED_S)
        self._sleep(SETTLE_S)
        self._judge(final=True)
        self._deaths()

    def _await_checkpoints(self) -> None:
        self._await(lambda: all(len(self.checker.seen[name].whole) >= 2 for name in self.world.programs), 60.0 * PATIENCE)

    # waiting

    def _await(self, look: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            self._turn()
            if look():
                return True
            time.sleep(0.2)
        return False

    def _sleep(self, seconds: float) -> None:
        self._await(lambda: False, seconds)

    def _turn(self) -> None:
        if self.checker.error is not None:
            raise self.checker.error
        now_s = time.monotonic()
        for item in [each for each in self._later if each[0] <= now_s]:
            self._later.remove(item)
            item[1]()
        self._judge()
        self._ends()

    def _healthy(self) -> bool:
        """By ground truth: a daemon is up, and every wanted program's steps move."""
        wanted = [name for name, run in self.board.wanted.items() if run]
        return self.world.systemd.alive() is not None and all(self.checker.training(name) for name in wanted)

    def _healthy_and_reported(self) -> bool:
        return self._healthy() and all(each.outcome for each in self.injections)

    def _ready_for(self, planned: Planned) -> bool:
        """All earlier faults are reported, and the target is up; the other program may still be healing."""
        if self.world.systemd.alive() is None or not all(each.outcome for each in self.injections):
            return False
        if planned.fault.subject == SCRIPT:
            return self.checker.training(SCRIPT)
        wanted = self.board.wanted.get(planned.program, True)
        return planned.fault.subject != "program" or not wanted or self.checker.training(planned.program)

    # injecting

    def _inject(self, planned: Planned) -> None:
        fault = planned.fault
        programs = sorted(self.world.programs, key=lambda name: name != planned.program)
        if fault.subject != "program":
            programs = [SCRIPT] if fault.subject == SCRIPT else programs[:1]
        why = ""
        for program in programs:
            if fault.subject == "program" and not self.board.wanted.get(program, True):
                why = f"{program} is stopped by the operator"
                continue
            try:
                self._inject_into(planned, program)
            except NotPossible as impossible:
                why = str(impossible)
                continue
            return
        self.skipped.append((fault.name, why))
        self.world.event(f"{planned.number}. {fault.name}: left out, {why}")

    def _inject_into(self, planned: Planned, program: str) -> None:
        fault = planned.fault
        scene = Scene(self.world, self.board, self.checker, random.Random(planned.seed), program)
        view = View(
            self.world, self.reports, program, len(self.reports.rows), self.world.daemon_log.stat().st_size, self._claimed,
            scene.answers,
        )  # fmt: skip
        about = program if fault.subject == "program" else fault.subject
        self.world.event(f"{planned.number}. {fault.name} -> {about}")
        self.board.cause(about, fault.name)
        at_s = time.monotonic()
        try:
            fault.run(scene)
        finally:
            self.board.cause(about, fault.name)  # again, because the fault may have taken long
        now_s = time.monotonic()
        self._later += [(now_s + after_s, self._logged(fault.name, do)) for after_s, do in scene.later]
        self.injections.append(Injection(planned, program, at_s, now_s, view))

    def _logged(self, name: str, do: Callable[[], None]) -> Callable[[], None]:
        def later() -> None:
            self.world.event(f"   {name}: its second part")
            do()

        return later

    # judging

    def _judge(self, *, final: bool = False) -> None:
        now_s = time.monotonic()
        for each in self.injections:
            if each.outcome:
                continue
            fault = each.planned.fault
            each.view.statuses = self.probe.since(each.at_s)
            if fault.reported is None:
                each.outcome = "none"
            elif (found := fault.reported(each.view)) is not None:
                each.outcome, each.report, each.after_s = "right", found, now_s - each.at_s
            elif now_s - each.ended_s > MASKED_S * PATIENCE and self._masked(each):
                each.outcome, each.report = "masked", self._instead(each)
            elif final or now_s - each.ended_s > fault.within_s * PATIENCE + (0.0 if self._healthy() else 30.0):
                each.outcome = "masked" if self._masked(each) else "wrong"
                each.report = self._instead(each)
                self.world.event(f"{each.planned.number}. {fault.name}: {each.outcome}; reported instead: {each.report}")

    def _masked(self, injection: Injection) -> bool:
        """Another fault hit the same subject, or the whole box, before this one could be observed, or lasted until then."""
        until_s = injection.ended_s + 5.0
        hidden_by = {injection.subject, "box"} | ({"daemon"} if injection.subject == "box" else set())
        return any(
            other is not injection and other.subject in hidden_by and other.at_s < until_s
            and injection.at_s - 5.0 < max(other.ended_s, other.at_s + (other.after_s or 0.0))
            for other in self.injections
        )  # fmt: skip

    def _instead(self, injection: Injection) -> str:
        rows = self.reports.rows[injection.view.from_row :]
        about = [r for r in rows if r["program"] in {None, injection.program} and r["kind"] not in _QUIET]
        return "; ".join(f"{row['kind']}: {row['why']}" for row in about[:3])[:400] or "nothing"

    def _ends(self) -> None:
        """Report ends of the daemon that no fault has caused."""
        lives = self.world.systemd.lives
        while self._lives_seen < len(lives):
            ended = lives[self._lives_seen - 1]
            self._lives_seen += 1
            recent = [name for at_s, _, name in self.board.causes if (ended.ended_s or 0.0) - at_s < 30.0]
            ending = any(_ENDS.get(name, False) for name in recent)
            if not ending:
                self.board.breaks("restarts", "daemon", f"it ended with {ended.process.returncode}; recent faults: {recent}")

    def _deaths(self) -> None:
        """Report attempts that died although no fault was injected."""
        for row in self.reports.rows:
            if row["kind"] == "Exited" and row["fields"].get("counted"):
                near = [
                    name for at_s, subject, name in self.board.causes
                    if subject in {row["program"], "box", "daemon"} and -2.0 < row["received_s"] - at_s < 60.0
                ]  # fmt: skip
                if not near:
                    self.board.breaks("deaths", row["program"], f"{row['fields']['cause']}: {row['why']}")

    def close(self) -> None:
        for thread in (self.probe, self.reports, self.checker):
            with contextlib.suppress(RuntimeError):
                thread.close()
        self.world.close()


_QUIET = frozenset(
    "Checkpointed Tallied GapLearned NeedLearned IntervalChosen Resumed BecameReady Spawned SpawnIntended".split()
)


_ENDS = {fault.name: fault.ends_daemon for fault in FAULTS} | {"killed after the start was acknowledged": True}
