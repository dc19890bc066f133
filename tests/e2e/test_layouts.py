"""Random layouts of two to five programs that share directories and patterns, under a real daemon: no figure of a neighbour.

    LAYOUTS_SEED=36 tests/run slow tests/e2e/test_layouts.py

Each seed draws 100 layouts: programs, `seeds` and services in one directory, in directories within each other and behind
symbolic links; patterns that overlap; files that are held open, opened for each row, replaced, or written by a child, and
some that were there before. In the middle a third of the programs is killed. What the pages and the journal say of each
program is compared with what its own writer wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from box import Box, until

WRITER = Path(__file__).parent / "programs" / "layout.py"
LAYOUTS, AT_ONCE, SEED = 100, 10, os.environ.get("LAYOUTS_SEED", "36")
DIRECTORIES = ("{base}", "{base}", "{base}/runs", "{base}/own/{name}", "{base}/link", "{base}/linked/{name}")
HOWS = {
    **dict.fromkeys(("json", "csv"), ("open", "each", "each", "replace", "child", "shell")),
    **dict.fromkeys(("events", "log"), ("open",)),
}
FILES = {
    "json": ("json_lines", ("**/*.jsonl", "*/**/*.jsonl", "runs/*/*.jsonl", "**/{mark}.jsonl"), "runs/{mark}/{mark}.jsonl"),
    "csv": ("csv_glob", ("**/*.csv", "runs/**/*.csv", "runs/{mark}*/*.csv"), "runs/{mark}-x/log.csv"),
    "events": ("events_glob", ("runs/**/events.out.tfevents.*", "**/events.*"), "runs/{mark}"),
    "log": ("log_regex", (r"step=(?P<step>\d+) loss=(?P<loss>\S+) reward=(?P<reward>\S+)",), "none"),
}


class Layouts:
    """The programs of some layouts, with the number that marks what each of them writes."""

    def __init__(self, root: Path, drawn: random.Random) -> None:
        self.root, self.drawn, self.numbers, self.plans = root, drawn, dict[str, int](), dict[str, dict[str, Any]]()

    def layout(self, at: int) -> str:
        """The sections of one layout."""
        base = self.root / f"l{at}"
        for shared in ("runs", "own", "target/runs", "data"):
            (base / shared).mkdir(parents=True)
        (base / "link").symlink_to(base / self.drawn.choice(("target", "runs")))
        sections, left = "", self.drawn.randint(2, 5)
        while left > 0:
            many = self.drawn.choice((1, 1, 1, 2)) if left > 1 else 1
            sections += self.program(base, f"p{at}x{left}", many, service=self.drawn.random() < 0.1)
            left -= many
        return sections

    def program(self, base: Path, name: str, many: int, *, service: bool) -> str:
        drawn, numbers = self.drawn, [len(self.numbers) + 1 + each for each in range(many)]
        names = [f"{name}-s{number}" for number in numbers] if many > 1 else [name]
        self.numbers |= dict(zip(names, numbers, strict=True))
        mark = "{seed}" if many > 1 else str(numbers[0])
        directory = Path(drawn.choice(DIRECTORIES).format(base=base, name=name))
        directory.mkdir(parents=True, exist_ok=True)
        if "linked" in directory.parts:  # a directory of its own, whose runs lie among those of others
            (directory / "runs").symlink_to(base / "data")
        kind = drawn.choice(("json", "json", "csv", "csv", "events", "log"))
        key, patterns, file = FILES[kind]
        saves, bad = drawn.choice(("saves/{name}/", "x/{name}", "saves/{name}")), many == 1 and drawn.random() < 0.15
        plan = {
            "me": mark, "rows": drawn.randint(150, 300), "kind": kind, "how": drawn.choice(HOWS[kind]), "file": file.format(mark=mark),
            "loss": "nan" if bad else None, "late_s": drawn.choice((0, 0, 3)), "saves": f"{saves}-STEP.pt",
            "truth": f"{self.root}/{{name}}.truth",
        }  # fmt: skip
        text = "{" + json.dumps(plan) + "}"
        command = json.dumps([sys.executable, str(WRITER), text])
        lines = [f"[program.{name}]", f"command = {command}", f'directory = "{directory}"', "stop_grace_s = 1.0"]
        if many > 1:
            lines.append(f"seeds = {numbers}")
        if service:
            return "\n".join([*lines, 'kind = "service"', ""])
        for number in numbers:
            self.plans[names[number - numbers[0]]] = plan
            before = directory / file.format(mark=number)
            if kind == "csv" and drawn.random() < 0.3:  # of an earlier run
                before.parent.mkdir(parents=True, exist_ok=True)
                before.write_text(f"step,loss,reward,own{number}\n7{number:03},{number}.5,{number},{number}\n")
        lines.append(f"{key} = '{drawn.choice(patterns).replace('{mark}', mark)}'")
        if not bad:  # a rollback is the subject of other tests
            glob = f"{saves.replace('x/', '**/')}-*.pt"
            lines += [f"checkpoint_glob = '{glob}'", r"checkpoint_step = '-(\d+)\.pt'"]
        return "\n".join([*lines, ""])

    def own(self, name: str, number: float | None) -> bool:
        """Whether it may have written this number."""
        return number is None or int(number) % 1000 == self.numbers[name]

    def truth(self, name: str) -> tuple[list[dict[str, str]], int]:
        """What it noted at each start, and its last step."""
        lines = [json.loads(line) for line in (self.root / f"{name}.truth").read_text().splitlines()]
        return [line for line in lines if isinstance(line, dict)], max(
            [0, *[line for line in lines if isinstance(line, int)]]
        )


def foreign(layouts: Layouts, shown: dict[str, Any]) -> list[str]:
    """What a program shows that it has not written."""
    name, number = shown["name"], layouts.numbers[shown["name"]]
    said = [
        *[f"{key} {shown[key]}" for key in ("steps", "ckpt_step") if not layouts.own(name, shown[key])],
        *[f"loss {shown['loss']}" for _ in (1,) if shown["loss"] not in (None, number + 0.5)],
        *[f"return {shown['mean_return']}" for _ in (1,) if shown["mean_return"] not in (None, number)],
        *[f"figure {key} {value}" for key, value in (shown["figures"] or {}).items() if (key, value) != (f"own{number}", number)],
    ]  # fmt: skip
    return [f"{name}: {each}; its plan {layouts.plans.get(name)}" for each in said]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(LAYOUTS // AT_ONCE))
def test_each_program_has_the_figures_of_its_own_writer(box: Box, part: int) -> None:
    drawn = random.Random(f"{SEED}-{part}")
    layouts = Layouts(box.directory / "work", drawn)
    box.config("".join(layouts.layout(at) for at in range(AT_ONCE)), slots=5 * AT_ONCE)
    box.start()
    wrong, known = set[str](), set[str]()

    def look() -> list[dict[str, Any]]:
        time.sleep(1.0)
        seen = [each for each in box.status()["programs"] if each["name"] in layouts.plans]
        wrong.update(each for shown in seen for each in foreign(layouts, shown))
        known.update(shown["name"] for shown in seen if shown["mean_return"] is not None)
        return seen

    until(lambda: look() and len(known) > 0.3 * len(layouts.plans), 60, "most figures")
    for shown in drawn.sample(look(), len(layouts.plans) // 3):
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(shown["pid"], signal.SIGKILL)
    until(lambda: all(shown["phase"] in {"DONE", "FATAL"} for shown in look()), 400, "all to be done")
    kept = {row["name"]: row["kept_steps"] for row in json.loads(box.ctl("report", "--json").stdout)["programs"]}
    count = Counter[str]()
    for shown in look():
        name, plan = shown["name"], layouts.plans[shown["name"]]
        starts, last = layouts.truth(name)
        if not plan["loss"]:
            wrong.update(
                f"{name}: {each}" for each in starts if os.path.realpath(each["given"]) != os.path.realpath(each["newest"])
            )
        if max(shown["steps"] or 0, kept[name]) > last:
            wrong.add(f"{name}: {shown['steps']} steps, {kept[name]} kept; it has made {last}, {plan}")
        count["known"] += name in known
        count["exact"] += shown["steps"] == last
        count["kept"] += last - kept[name] < 2000
    print(f"{len(layouts.plans)} programs: {dict(count)}; {len(wrong)} wrong")
    assert not wrong, "\n".join(sorted(wrong))
    assert count["exact"] > 0.3 * len(layouts.plans)  # a busy machine ends them before their writers are known
