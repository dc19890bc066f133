"""Programs in one directory: each gets the figures of the files that its own processes write, and no others."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock

from supervisor.adapters.figures import owners, reading, thread
from supervisor.adapters.figures.thread import FigureReader
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.figures import Sources

TOKEN = "ab" * 16
# It writes what each line of its input says, again and again: a row of its own, and as much elsewhere, like a line of a log.
WRITER = """
import json, os, random, select, sys, time
told, file, step = {}, None, 0
while True:
    if select.select([0], [], [], random.uniform(0.01, 0.04))[0]:
        told = json.loads(sys.stdin.readline())
        file and file.close()
        file = open(told["path"], "a", buffering=1) if told.get("how") == "open" else None
        print("ready", flush=True)
    if told:
        step += 1
        row = told["row"].replace("STEP", str(told["from"] + step)) + "\\n"
        with open(os.devnull, "w") as elsewhere:
            elsewhere.write(row)
        if told["how"] == "open":
            file.write(row)
        elif told["how"] == "each":
            with open(told["path"], "a") as file_of_row:
                file_of_row.write(row)
                file_of_row.flush()
                time.sleep(0.0005)  # as a slow disk: the watch meets it open sooner, with fewer looks
        else:
            text = open(told["path"]).read() if os.path.exists(told["path"]) else ""
            with open(told["path"] + "~", "w") as aside:
                aside.write((text + row)[-2000:])
            os.replace(told["path"] + "~", told["path"])
"""


class Writer:
    """A process that stands for the tree of one program."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", WRITER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def writes(self, path: Path, how: str, first: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        row = '{"step": STEP, "loss": 0.5}'
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"path": str(path), "how": how, "from": first, "row": row}) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"


@pytest.fixture(scope="module")
def writers() -> Iterator[list[Writer]]:
    made = [Writer() for _ in range(5)]
    yield made
    for each in made:
        each.process.kill()
        each.process.communicate(timeout=10)


class Box:
    """Programs with sources, and a reader that looks when it is asked to, in this process."""

    def __init__(self, root: Path) -> None:
        self.specs: dict[str, ProgramSpec] = {}
        self.seen: dict[str, set[int]] = {}  # steps by program
        paths = Paths(str(root / "state"), str(root / "run"))
        self.reader = FigureReader(paths, FakeClock(at_s=1_000.0), self.specs.get, self.specs.values)
        self.reader._over.set()
        self.reader._child = self  # type: ignore[assignment]

    def ask(self, request: dict[str, Any], _patience_s: float) -> dict[str, Any]:
        answer = json.loads(reading.as_json(reading.read_once(json.loads(json.dumps(request)))))
        self.seen.setdefault(request["name"], set()).update(int(values["step"]) for *_, values in answer["rows"])
        return answer

    def end(self) -> None:
        """Nothing to end."""

    def add(self, name: str, directory: Path, pattern: str, *pids: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        spec = self.specs[name] = ProgramSpec(
            name, ("x",), "d", directory=str(directory), figures=Sources(json_lines=pattern)
        )
        if pids:
            self.reader.watch(spec, TOKEN, time.time() - 1.0, None, pids)

    def look(self, name: str) -> int | None:
        item = self.reader._watched[name]
        item.search_due_s = 0.0
        self.reader._sources(item)
        self.reader._look(item, 30.0)
        return item.figures.steps


DIRECTORIES = ("{base}", "{base}", "{base}/runs", "{base}/own/{name}")
PATTERNS = ("**/*.jsonl", "**/*.jsonl", "*/**/*.jsonl", "**/{name}*.jsonl", "")
FILES = ("runs/{name}.jsonl", "runs/{at}/{name}-log.jsonl", "m{at}.jsonl")


@pytest.mark.parametrize("layouts", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_no_figure_of_a_neighbour_in_random_layouts_of_two_to_five_programs(
    tmp_path: Path, writers: list[Writer], monkeypatch: pytest.MonkeyPatch, layouts: int
) -> None:
    monkeypatch.setattr(owners, "WATCH_S", 0.2)
    monkeypatch.setattr(thread, "_WATCH_PAUSE_S", 0.0)
    drawn, with_figures = random.Random(36), 0
    for layout in range(layouts):
        box, base, names = Box(tmp_path), tmp_path / str(layout), [f"p{at}" for at in range(drawn.randint(2, 5))]
        for at, name in enumerate(names):
            words = {"base": str(base), "name": name, "at": str(at)}
            directory = Path(drawn.choice(DIRECTORIES).format_map(words))
            box.add(name, directory, drawn.choice(PATTERNS).format_map(words), writers[at].process.pid)
            file = directory / drawn.choice(FILES).format_map(words)
            writers[at].writes(file, drawn.choice(("open", "each", "each", "replace")), at * 10**9)
        for name in names * 4:
            box.look(name)
        for at, name in enumerate(names):
            assert {step // 10**9 for step in box.seen.get(name, ())} <= {at}, (layout, name, box.specs)
            with_figures += bool(box.seen.get(name))
    assert with_figures > layouts


def test_a_file_that_is_opened_for_each_row_is_its_writers_also_after_a_restart(
    tmp_path: Path, writers: list[Writer]
) -> None:
    box = Box(tmp_path)
    for at, name in enumerate("ab"):
        box.add(name, tmp_path / "runs", "*.jsonl", writers[at].process.pid)
        writers[at].writes(tmp_path / "runs" / f"{name}.jsonl", "each", at * 10**9)
    box.add("waits", tmp_path / "runs", "*.jsonl")
    limit_s = time.monotonic() + 30.0
    while not all(box.look(name) for name in "ab"):
        assert time.monotonic() < limit_s
    assert [max(box.seen[name]) // 10**9 for name in "ab"] == [0, 1]
    for name in "ab":
        box.reader.forget(name, TOKEN)
    box.seen.clear()
    box.add("b", tmp_path / "runs", "*.jsonl", writers[1].process.pid)
    box.look("b")
    found = box.reader._watched["b"].files
    assert found == {"json": [str(tmp_path / "runs" / "b.jsonl")]}, "its writer is known at the first look"


def test_a_file_of_tensorboard_is_of_the_program_whose_process_is_in_its_name() -> None:
    """It is open for a moment every two minutes."""
    file = "/w/runs/events.out.tfevents.1795785736.box-1.example.27885.0"
    assert owners.named(file, {"a": (27885,), "b": (1, 2)}) == {"a"}
    assert owners.named(file, {"b": (7885,)}) == owners.named("/w/events.out.tfevents.1795785736.27885", {}) == set()


def test_a_file_that_two_programs_have_open_is_nobodys(tmp_path: Path, writers: list[Writer]) -> None:
    box = Box(tmp_path)
    for at, name in enumerate("ab"):
        box.add(name, tmp_path, "*.jsonl", writers[at].process.pid)
        writers[at].writes(tmp_path / "one.jsonl", "open", 0)
    assert [box.look(name) for name in "ab"] == [None, None]
    box.reader._clock.advance(60.0)  # type: ignore[attr-defined]
    box.look("a")
    told = box.reader.newest("a", TOKEN)
    assert told is not None
    assert told.fault.startswith("the files that match *.jsonl may be another program's, which has the same directory")
    writers[1].writes(tmp_path / "two.jsonl", "open", 0)
    assert box.look("a") is not None


def test_programs_on_other_machines_are_told_apart_by_their_patterns_alone(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for name, pattern in (("a", "**/*.jsonl"), ("b", "runs/b*.jsonl"), ("c", "runs/c*.jsonl")):
        box.add(name, tmp_path, pattern)
        box.reader.watch(box.specs[name], TOKEN, time.time() - 1.0, None)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "b.jsonl").write_text('{"step": 5}\n')
    assert [box.look(name) for name in "abc"] == [None, None, None]
    del box.specs["a"]
    assert [box.look(name) for name in "bc"] == [5, None]
