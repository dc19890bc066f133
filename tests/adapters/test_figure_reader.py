"""The thread that reads figures, one look at a time: what its child is asked, and what becomes of each answer."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attempts_kit import eventually, gone
from fakes import FakeClock
from leaks import nothing_stays_open

from supervisor.adapters import leftovers
from supervisor.adapters.figures import thread
from supervisor.adapters.figures.thread import FigureReader, FigureReading
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.figures import CSV, LOG, Figures, Sources

TOKEN = "ab" * 16
STEP = r"step=(?P<step>\d+)"
NOTHING: dict[str, Any] = {
    "cursors": {}, "behind": False, "files": {}, "slow": [], "lines": 0, "matched": [], "odd": {}, "claims": {}, "not_own": {}, "waited_s": 0.0, "rows": [], "notes": [],
}  # fmt: skip


class Child:
    """In place of the child process: it answers as it is told, and notes what it was asked, and for how long."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.patience: list[float] = []
        self.answers: list[dict[str, Any] | Exception] = []
        self.takes_s = 0.0
        self.now_s = 500.0  # the time of the reader's module
        self.ended = 0

    def ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        self.asked.append(json.loads(json.dumps(request)))
        self.patience.append(patience_s)
        self.now_s += self.takes_s
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer if "error" in answer else NOTHING | answer

    def end(self) -> None:
        self.ended += 1


class Desk:
    """A reader without its thread: it looks when the test asks for the last step."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.child = root, FakeClock(at_s=1_000.0), Child()
        self.paths = Paths(str(root / "state"), str(root / "run"))
        self.logs = [self.paths.log("mine", channel) for channel in ("stdout", "stderr")]
        self.specs: dict[str, ProgramSpec] = {}
        self.reader = FigureReader(self.paths, self.clock, self.specs.get)
        self.reader._child = self.child  # type: ignore[assignment]
        self.reader._over.set()

    def watch(self, sources: Sources, token: str = TOKEN, logs_from: tuple[int, int] | None = (0, 0), **more: Any) -> None:
        self.specs["mine"] = spec = ProgramSpec("mine", ("x",), "d", figures=sources, **more)
        self.reader.watch(spec, token, 1.7e9, logs_from)

    def last(self, program: str = "mine") -> int | None:
        return self.reader.last(program, TOKEN, 1.7e9, (0, 0)).steps

    def look(self, *answers: dict[str, Any] | Exception) -> FigureReading:
        self.child.answers = list(answers)
        self.last()
        told = self.reader.newest("mine", TOKEN)
        assert told is not None
        return told


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path)
    monkeypatch.setattr(thread, "time", SimpleNamespace(monotonic=lambda: made.child.now_s, time=time.time))
    yield made
    made.reader.stop()


# --- what the child is asked ---------------------------------------------------------------------------------------------


def test_the_next_look_goes_on_from_there_without_expressions_that_are_too_slow(desk: Desk) -> None:
    desk.watch(Sources((STEP, "b"), "*.jsonl"), logs_from=(30, 4))
    known = {"files": {"json": ["/m.jsonl"]}, "cursors": {desk.logs[0]: [1, 2, 40]}}
    for _ in range(4):
        desk.look({"slow": [1]} | known)
    first, *_, last = desk.child.asked
    assert (first["begin"], first["files"], first["cursors"]) == (dict(zip(desk.logs, (30, 4), strict=True)), {}, {})
    assert known.items() <= last.items()
    assert [asked["off"] for asked in desk.child.asked] == [[], [], [], [1]], "after the third time"


def test_a_change_of_the_sources_begins_anew_with_all_that_was_counted(desk: Desk) -> None:
    desk.watch(Sources((STEP,), "*.jsonl"))
    cursors = {desk.logs[0]: [1, 2, 3]}
    told = desk.look({"slow": [0], "lines": 300, "files": {"json": ["/a"]}, "cursors": cursors})
    assert told.fault == f"log_regex '{STEP}' matches no line of its log"
    for _ in range(2):
        desk.look({"slow": [0], "files": {"json": ["/a"]}, "cursors": cursors})
    desk.specs["mine"] = replace(desk.specs["mine"], figures=Sources(("other",), "*.jsonl"))
    told = desk.look({"lines": 199, "cursors": cursors})
    asked = desk.child.asked[-1]
    assert (asked["regex"], asked["off"], asked["first"], asked["files"]) == (["other"], [], True, {})
    assert (asked["cursors"], told.fault) == (cursors, ""), "of each file what is new is read"
    del desk.specs["mine"]
    desk.look()
    assert desk.child.asked[-1]["regex"] == ["other"], "a program that leaves the configuration is read to its end"


def test_the_next_attempt_goes_on_in_files_that_are_not_its_logs(desk: Desk) -> None:
    desk.watch(Sources((STEP,)))
    desk.look({"cursors": {desk.logs[0]: [9] * 6, "/m.jsonl": {"at": 3, "whole": False}}})
    desk.reader.forget("mine", "another")
    assert desk.reader.newest("mine", TOKEN) is not None
    desk.reader.forget("nobody", TOKEN)
    desk.reader.forget("mine", TOKEN)
    assert desk.reader.newest("mine", TOKEN) is None
    desk.watch(Sources((STEP,)))
    desk.look()
    assert desk.child.asked[-1]["cursors"] == {"/m.jsonl": {"at": 3, "whole": True, "fresh": True}}


# --- what becomes of its answers -----------------------------------------------------------------------------------------


def test_rows_are_booked_at_their_own_time_but_never_later_than_now(desk: Desk) -> None:
    ahead_s = 1.7e9 - 1_000.0  # of the wall clock
    desk.watch(Sources((STEP,)))
    rows = [
        [LOG, ahead_s + 900.0, True, {"step": 5, "kl": "0.5"}], [CSV, ahead_s + 950.0, False, {"step": 99, "loss": "nan"}],
        [LOG, ahead_s + 960.0, False, {"step": "7"}],
    ]  # fmt: skip
    told = desk.look({"rows": rows, "lines": 1})
    figures = told.figures
    assert (figures.steps, figures.moved_at_s, figures.marks) == (7, 960.0, ((900.0, 5), (960.0, 7)))
    assert (figures.values, figures.nan_count, told.looked_at_s) == ({"kl": 0.5}, 1, 1_000.0)
    assert desk.look({"rows": [[LOG, None, True, {"step": 8}]]}).figures.moved_at_s == 1_000.0
    assert desk.look({"rows": [[LOG, ahead_s + 1_070.0, True, {"step": 9}]]}).figures.moved_at_s == 1_000.0
    assert desk.last() == 9


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({"error": "MemoryError: "}, "its figures cannot be read: MemoryError: "),
        (OSError("the reading process has ended"), "its figures cannot be read: the reading process has ended"),
        ({"cursors": None}, "its figures cannot be read: 'NoneType' object is not iterable"),
        (TimeoutError(), "its files did not answer within 3s: they are read again in 10m"),
    ],
)
def test_a_look_that_fails_is_a_fault_beside_what_was_known(desk: Desk, error: Any, fault: str) -> None:
    desk.watch(Sources((STEP,)))
    assert desk.look(error) == FigureReading(Figures(), -math.inf, fault)
    known = desk.look({"rows": [[LOG, None, True, {"step": 5}]]})
    desk.clock.advance(7.0)
    assert desk.look(error) == FigureReading(known.figures, 1_000.0, fault), "with its old time"


NO_LINE = f"log_regex '{STEP}' matches no line of its log"
NO_NUMBER = f"log_regex '{STEP}' finds 'five' as step, which is no number"
FILES = Sources((STEP,), "*.jsonl", "", "runs/*")


@pytest.mark.parametrize(
    ("sources", "after_s", "answers", "fault"),
    [
        (FILES, 0.0, [{"notes": ["one", "two"]}], "one"),
        (FILES, 0.0, [{"lines": 150}, {"lines": 51, "notes": ["one"]}], NO_LINE),
        (FILES, 0.0, [{"lines": 1, "matched": [0]}, {"lines": 500}], ""),
        (Sources((STEP,)), 300.0, [{"lines": 1}], NO_LINE),
        (Sources((STEP, "b")), 1799.0, [{"lines": 500, "matched": [0]}], ""),
        (Sources((STEP, "b")), 1800.0, [{"lines": 1, "matched": [0]}], "log_regex 'b' matches no line of its log"),
        (Sources((STEP,)), 0.0, [{"odd": {"step": [STEP, "five"]}}, {"odd": {"step": [STEP, "six"]}}], NO_NUMBER),
        (Sources((STEP,)), 0.0, [{"odd": {"step": [STEP, "five"]}}, {"rows": [[LOG, None, True, {"step": 6}]]}], ""),
        (FILES, 299.0, [{}], ""),
        (FILES, 300.0, [{}], "no file below {base} matches *.jsonl, or none was written since its start"),
        (FILES, 300.0, [{"rows": [[LOG, None, True, {"step": 6}]]}], ""),
        (
            FILES, 300.0, [{"slow": [0], "lines": 200}] * 3,
            f"log_regex '{STEP}' takes too long for a line of its log: it is not used any more",
        ),
    ],
)  # fmt: skip
def test_why_figures_are_incomplete(
    desk: Desk, sources: Sources, after_s: float, answers: list[dict[str, Any]], fault: str
) -> None:
    desk.watch(sources)
    desk.clock.advance(after_s)
    for answer in answers:
        told = desk.look(answer)
    assert told.fault == fault.format(base=desk.paths.run_dir("mine"))


# --- the child process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[thread._Child]:
    made = thread._Child()
    yield made
    made.end()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The child runs this code instead of its own."""
    monkeypatch.setattr(thread, "_CHILD", str(tmp_path / "child.py"))

    def write(code: str) -> None:
        (tmp_path / "child.py").write_text(f"import json, os, sys\n{code}")

    return write


def test_the_child_is_a_group_of_its_own_and_ends_without_a_trace(
    written: Callable[[str], None], child: thread._Child
) -> None:
    written(
        "for line in sys.stdin:\n"
        "    here = [os.getpid() == os.getpgrp(), os.getsid(0), os.getcwd()]\n"
        "    print(json.dumps({'asked': json.loads(line), 'here': here, 'pid': os.getpid(),\n"
        "          'mark': os.environ['EXTRALIFE_CHILD_OF']}), flush=True)\n"
    )
    with nothing_stays_open():
        first, second = child.ask({"a": "ä"}, 60.0), child.ask({"b": "x" * 500_000}, 60.0)
        child.end()
    assert (first["asked"], second["asked"]) == ({"a": "ä"}, {"b": "x" * 500_000})
    assert (first["here"], first["mark"]) == ([True, os.getsid(0), "/"], leftovers.mark()["EXTRALIFE_CHILD_OF"])
    assert first["pid"] == second["pid"], "one child serves all"
    assert eventually(lambda: gone(first["pid"]))
    child.end()


def test_a_child_that_ends_is_told_and_its_successor_knows_nothing_of_it(
    written: Callable[[str], None], child: thread._Child
) -> None:
    written("sys.stdin.readline()\nprint('{\"half', end='', flush=True)")
    with nothing_stays_open(), pytest.raises(OSError, match=r"^the reading process has ended$"):
        child.ask({}, 60.0)
    written('sys.stdin.readline()\nprint(\'{"whole": 1}\\n{"more": 2}\', flush=True)')
    assert child.ask({}, 60.0) == {"whole": 1}
    assert child._process is not None
    child._process.wait()
    assert child.ask({}, 60.0) == {"whole": 1}, "what it had said beyond its answer is forgotten with it"


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_child_that_neither_reads_nor_answers_is_killed_with_all_that_it_has_started(
    tmp_path: Path, written: Callable[[str], None], child: thread._Child, size: int
) -> None:
    (tmp_path / "begun").touch()
    written(
        "import subprocess\n"
        f"print(os.getpid(), subprocess.Popen(['sleep', '300']).pid, file=open({str(tmp_path / 'begun')!r}, 'w'), flush=True)\n"
        "subprocess.Popen.wait(subprocess.Popen(['sleep', '300']))\n"
    )
    for patience_s in (2.0, 40.0):  # in the shorter time a busy machine may not have begun all of it
        with pytest.raises(TimeoutError):
            child.ask({"x": "x" * size}, patience_s)
        if pids := (tmp_path / "begun").read_text().split():
            break
    assert child._process is None
    itself, started = map(int, pids)
    assert eventually(lambda: gone(itself) and gone(started))
