"""Trainings of given habits under a real daemon, each beside a plain restart loop: extralife never keeps less (docs/testing.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from no_harm import formats, judge
from no_harm.habits import PLAIN
from no_harm.run import Run

KILLED_AFTER_SAVES = {"at": "after", "nth": 11, "steps": 10, "do": "kill"}  # the daemon has looked at one before
GONE_MOUNT = {
    "start": 2,
    "for_s": 5,
    "after_s": 0.1,
    "loaded": True,
    "says": "[Errno 2] No such file or directory: '/mnt/data'",
}
TRAININGS: dict[str, dict[str, Any]] = {
    "unknown format by rename": {"fmt": "binary", "way": "hidden", "faults": [KILLED_AFTER_SAVES]},
    "unknown format, given": {"fmt": "text", "name": "m_{step}", "keep": 1, "chooses": "given", "faults": [KILLED_AFTER_SAVES]},
    "rotated": {"fmt": "text", "way": "rotate", "faults": [{"at": "saved", "nth": 11, "do": "crash"}]},
    "a directory and its link": {
        "fmt": "sharded", "name": "epoch_{epoch}", "epoch": 40, "keep": 1, "pointer": "link", "chooses": "pointer",
        "faults": [KILLED_AFTER_SAVES | {"do": "abort"}],
    },
    "dies at its end": {"fmt": "json", "end": "segv", "shows": "epochs", "says_end": "training finished"},
    "an upload fails": {"fmt": "json", "end": "raise", "says_target": True},
    "no mount for a while": {"chooses": "given", "transient": GONE_MOUNT, "faults": [KILLED_AFTER_SAVES]},
    "interrupted as it starts": {
        "fmt": "distributed", "name": "m_{step}", "faults": [
            {"at": "saved", "nth": 11, "do": "kill"}, *[{"at": "loaded", "nth": 1, "steps": 0, "do": "int"}] * 3,
        ],
    },
    "crashes as it starts": {
        "fmt": "text", "chooses": "given", "shows": "none", "faults": [
            {"at": "saved", "nth": 11, "do": "kill"}, *[{"at": "loaded", "nth": 1, "steps": 9, "do": "crash"}] * 3,
        ],
    },
    "an older experiment": {
        "name": "m_{step}", "chooses": "given", "older": {"steps": [9000], "weeks": 2}, "faults": [KILLED_AFTER_SAVES],
    },
    "asked to leave": {"on_term": "save", "says_target": True, "faults": [KILLED_AFTER_SAVES | {"do": "term"}]},
}  # fmt: skip


@pytest.mark.long
def test_extralife_never_keeps_less_than_a_restart_loop_does() -> None:
    globs = {"last": "ck/last*", "m_{step}": "ck/m_*", "epoch_{epoch}": "ck/epoch_*"}
    drawn = []
    for each in TRAININGS.values():
        habits = PLAIN | {"every": 40, "target": 480, "until": 480, "step_s": 0.03} | each
        pattern = r"step=(?P<step>\d+)" + (r"/(?P<target>\d+)" if habits["says_target"] else "")
        config = {"checkpoint_glob": globs[habits["name"]], "log_regex": pattern}
        drawn.append(habits | {"config": config if habits["shows"] == "step" else {"checkpoint_glob": "ck/last*"}})
    run = Run(drawn, [], mounts=False)
    try:
        run.play(2.0)
        rows = run.results()
    finally:
        run.close(keep=False)
    harms = [f"{name}: {row['harms']} {row['says']}" for name, row in zip(TRAININGS, rows, strict=True) if row["harms"]]
    assert not harms, "\n".join(harms)
    assert not run.ends
    assert sum(row["loop"]["finished"] > 0 for row in rows) >= len(rows) - 1, "the loops have trained, too"


def test_the_judge_sees_each_harm(tmp_path: Path) -> None:
    habits = PLAIN | {"ck": str(tmp_path)}
    made = {step: formats.make("json", "it", step) for step in (40, 80)}
    old, new = (formats.digest(made[step]) for step in (40, 80))
    path = tmp_path / "last.json"
    (tmp_path / ".last.json.bad").write_bytes(made[80][""])
    path.write_bytes(made[40][""])
    truth = tmp_path / "truth"
    truth.write_text(
        f"1.0 starts 7\n1.1 begin 0 7 - -\n2.0 saved 40 {old} {path}\n3.0 saved 80 {new} {path}\n3.5 finished 80\n"
        f"4.0 starts 8\n4.1 begin 40 8 {old} {path}\n4.2 at 60\n5.0 starts 9\n"
    )
    found = judge.judge(habits, judge.lines(truth), {})
    assert (found.lost, found.extra, found.again, found.interrupted) == (40, 40, 1, 1)
    assert found.taken == [
        "last.json was last.json of step 40 at a start, not last.json of step 80",
        ".last.json.bad is whole: last.json of step 80",
    ]
    words = judge.harms(found, judge.Verdict(finished=1, ended=True), found)
    assert [each.partition(":")[0] for each in words] == [
        "saved steps lost", "trained again after its end", "ended by extralife", "does not end, the loop does",
        "whole checkpoint taken", "whole checkpoint taken",
    ]  # fmt: skip
    facts = [{"kind": "ChildHalted", "wall_s": 10.0 + each} for each in range(3)]
    assert judge.fruitless(facts, judge.lines(truth)) == ["ChildHalted: a third one in a row at step 80"]
    assert not judge.fruitless(facts[:2], judge.lines(truth))
