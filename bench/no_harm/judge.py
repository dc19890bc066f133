"""What came of a training, by its own log and its files. Nothing here asks extralife, but for what it did by itself."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from no_harm import formats

MOST_FRUITLESS = 2
# What extralife does to a program or its files of its own accord, by the kind of fact
INTERVENTIONS = {
    "CheckpointQuarantined", "CheckpointsPutBack", "RolledBack", "Stalled", "Slowed restart", "ChildHalted", "put back",
}  # fmt: skip
_BAD = re.compile(r"\..+\.bad$")
_EXPLAINED = {"fault", "early", "unreadable", "leaves", "finished", "unsaved"}  # the last word before an end of its own


@dataclass
class Line:
    at_s: float
    word: str
    rest: list[str]


@dataclass
class Verdict:
    """All counts of one training on one side."""

    lost: int = 0  # saved steps that were begun anew
    again: int = 0  # starts below the finished step, after the end
    astray: int = 0  # starts from a checkpoint of another run
    interrupted: int = 0  # ends that neither a fault nor the training itself explains
    extra: int = 0  # steps trained beyond those that were needed
    finished: int = 0
    starts: int = 0
    ended: bool = False
    taken: list[str] = field(default_factory=list)  # whole checkpoints that were renamed, replaced or removed
    fruitless: list[str] = field(default_factory=list)

    def text(self) -> str:
        ends = "ended" if self.ended else "not ended"
        return (
            f"lost {self.lost}, extra {self.extra}, again {self.again}, astray {self.astray}, "
            f"interrupted {self.interrupted}, finished {self.finished}, {ends}, starts {self.starts}"
        )


def shared(ours: list[Line], loop: list[Line]) -> list[Line]:
    """Our lines up to the first fault that the loop never had: it left early, was suspended or could not start."""
    if any(line.word == "finished" for line in loop):
        return ours
    faults = sum(line.word == "fault" for line in loop)
    ends = (number for number, line in enumerate(ours) if line.word == "fault" and int(line.rest[0]) >= faults)
    return ours[: next(ends, len(ours))]


def lines(truth: Path, until_s: float = float("inf")) -> list[Line]:
    found = []
    try:
        text = truth.read_text()
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        at_s, word, *rest = line.split(" ")
        if float(at_s) <= until_s:
            found.append(Line(float(at_s), word, rest))
    return found


def judge(habits: dict[str, Any], truth: list[Line], foreign: dict[str, str], log: Path | None = None) -> Verdict:
    """`foreign`: digests of checkpoints that other runs wrote, with the run; `log`: of a training that still runs."""
    found, files = Verdict(), Files(habits)
    saved = step = 0
    last, by_fault, stuck = "", False, False
    for line in truth:
        match line.word:
            case "starts":
                found.starts += 1
                # a fault may be followed by other lines before it takes effect
                found.interrupted += bool(last) and last not in _EXPLAINED and not by_fault
                by_fault = False
            case "fault":
                by_fault = line.rest[1] in ("kill", "term", "int", "abort", "crash", "stop", "rank")
            case "asked" if not by_fault:
                found.interrupted += 1
            case "begin":
                at, digest, path = int(line.rest[0]), line.rest[2], " ".join(line.rest[3:])
                if digest in foreign and habits["chooses"] == "given":
                    found.astray, at = found.astray + 1, 0
                elif digest in foreign:  # its own choice; when another run is ahead of it depends on the time
                    at = max(at, saved)
                elif digest != "-":
                    found.taken += files.loaded(path, digest)
                found.lost += max(0, saved - at)
                found.extra += max(0, step - at)
                found.again += found.finished > 0 and at < saved
                saved, step = min(saved, at), int(line.rest[0])
            case "at":
                step = max(step, int(line.rest[0]))
            case "saved":
                step = max(step, int(line.rest[0]))
                saved = max(saved, int(line.rest[0]))
            case "finished":
                found.finished += 1
                step = max(step, int(line.rest[0]))
        files.note(line)
        last, stuck = line.word, line.word == "unreadable" or (stuck and line.word == "starts")
    if stuck:  # no start can load it
        found.lost += saved
    taken = files.missing(set(foreign))
    later = {word for line in lines(log)[len(truth) :] for word in line.rest} if log else set()  # it has changed these since
    found.taken += [text for path, text in taken.items() if path not in later]
    return found


class Files:
    """The whole checkpoints that must be there, by the log of their writer."""

    def __init__(self, habits: dict[str, Any]) -> None:
        self._in_place = habits["way"] not in ("rename", "hidden")
        self._ck = Path(habits["ck"])
        self.expected: dict[str, str] = {}
        self.ever: dict[str, str] = {}  # digest -> what it is
        self._pending = ""  # the save in progress at the end may have replaced its path already

    def note(self, line: Line) -> None:
        path = " ".join(line.rest[2:])
        match line.word:
            case "saving":
                self._pending = " ".join(line.rest[1:])
                if self._in_place:
                    self.expected.pop(self._pending, None)
            case "starts":  # a save by rename that was interrupted has changed nothing
                self._pending = ""
            case "saved":
                self._pending = ""
                self.expected[path] = line.rest[1]
                self.ever[line.rest[1]] = f"{os.path.basename(path)} of step {line.rest[0]}"
            case "removed":
                self.expected.pop(" ".join(line.rest), None)
            case "moved":
                self.expected.pop(line.rest[1], None)
                if line.rest[0] in self.expected:
                    self.expected[line.rest[1]] = self.expected.pop(line.rest[0])

    def loaded(self, path: str, digest: str) -> list[str]:
        """A start loads another content than the last whole one that was written there."""
        wanted = self.expected.get(path, digest)
        if wanted == digest:
            return []
        self.expected[path] = digest
        return [f"{os.path.basename(path)} was {self.ever.get(digest, digest)} at a start, not {self.ever.get(wanted)}"]

    def missing(self, foreign: set[str]) -> dict[str, str]:
        """The whole checkpoints that are not in their place, by their path, and those that were set aside."""
        found, there = dict[str, str](), dict[str, str]()
        for each in self._ck.rglob("*") if self._ck.is_dir() else ():
            if _BAD.match(each.name) and not each.parent.name.endswith(".bad"):
                digest = _digest(each)
                there[digest] = each.name
                if digest in self.ever or digest in foreign:
                    found[str(each)] = f"{each.name} is whole: {self.ever.get(digest, 'of another run')}"
        for path, wanted in self.expected.items():
            digest = _digest(Path(path))
            if digest != wanted and wanted not in there and digest not in foreign and path != self._pending:
                now = "is gone" if digest == "" else f"is {self.ever.get(digest, 'something else')}"
                found[path] = f"{os.path.basename(path)} {now}, not {self.ever.get(wanted)}"
        return found


def _digest(path: Path) -> str:
    try:
        return formats.digest(formats.load(str(path)))
    except OSError:
        return ""


def fruitless(facts: list[dict[str, Any]], truth: list[Line]) -> list[str]:
    """The kinds of intervention that were done more than twice in a row although no step beyond the old ones came."""
    rows: dict[str, list[float]] = {}
    for fact in facts:
        kind = fact["kind"]
        if kind == "StopIntended" and fact.get("reason") == "slow":
            kind = "Slowed restart"
        if kind == "StartsFrom" and "put back from its copy" in fact["why"]:
            kind = "put back"
        if kind in INTERVENTIONS:
            rows.setdefault(kind, []).append(float(fact["wall_s"]))
    steps = [(line.at_s, int(line.rest[0])) for line in truth if line.word in ("at", "saved", "finished")]
    found = []
    for kind, times in rows.items():
        row, before = 0, -1
        for at_s in times:
            highest = max((step for when_s, step in steps if when_s <= at_s), default=0)
            row, before = (row + 1 if highest <= before else 1), highest
            if row == MOST_FRUITLESS + 1:
                found.append(f"{kind}: a third one in a row at step {highest}")
    return found


def harms(ours: Verdict, loop: Verdict, common: Verdict, *, spared: int = 0) -> list[str]:
    """In what extralife did worse than the plain loop with the same habits and faults.

    `common`: ours, while both had the same faults; `spared`: ends by extralife that its settings ask for.
    """
    found = []
    if common.lost > loop.lost:
        found.append(f"saved steps lost: {common.lost}, the loop {loop.lost}")
    if ours.again > loop.again and loop.finished:
        found.append(f"trained again after its end: {ours.again}, the loop {loop.again}")
    if common.astray > loop.astray:
        found.append(f"begun from another run's checkpoint: {common.astray}, the loop {loop.astray}")
    if ours.interrupted > loop.interrupted + spared:
        found.append(f"ended by extralife: {ours.interrupted}, the loop {loop.interrupted}")
    if loop.finished and not ours.finished:
        found.append("does not finish, the loop does")
    elif loop.finished and loop.ended and not ours.ended:
        found.append("does not end, the loop does")
    found += [f"whole checkpoint taken: {each}" for each in ours.taken if each not in loop.taken]
    return found + [f"intervention without effect: {each}" for each in ours.fruitless]


def is_better(ours: Verdict, loop: Verdict) -> bool:
    ends = ours.finished > 0 and ours.ended and not (loop.finished and loop.ended)
    return ends or ours.lost < loop.lost or ours.astray < loop.astray
