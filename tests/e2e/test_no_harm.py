"""Trainings of given habits under a real daemon, each beside a plain restart loop: extralife never keeps less (docs/testing.md)."""

from __future__ import annotations

from typing import Any

import pytest
from no_harm.habits import PLAIN
from no_harm.run import Run

KILLED_AFTER_SAVES = {"at": "after", "nth": 3, "steps": 10, "do": "kill"}
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
    "rotated": {"fmt": "text", "way": "rotate", "faults": [{"at": "saved", "nth": 3, "do": "crash"}]},
    "a directory and its link": {
        "fmt": "sharded", "name": "epoch_{epoch}", "epoch": 40, "keep": 1, "pointer": "link", "chooses": "pointer",
        "faults": [KILLED_AFTER_SAVES | {"do": "abort"}],
    },
    "dies at its end": {"fmt": "json", "end": "segv", "shows": "epochs", "says_end": "training finished"},
    "an upload fails": {"fmt": "json", "end": "raise", "says_target": True},
    "no mount for a while": {"chooses": "given", "transient": GONE_MOUNT, "faults": [KILLED_AFTER_SAVES]},
    "interrupted as it starts": {
        "fmt": "distributed", "name": "m_{step}", "faults": [
            {"at": "saved", "nth": 2, "do": "kill"}, *[{"at": "loaded", "nth": 1, "steps": 0, "do": "int"}] * 3,
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
        habits = PLAIN | {"every": 40, "target": 280, "until": 280, "step_s": 0.02} | each
        pattern = r"step=(?P<step>\d+)" + (r"/(?P<target>\d+)" if habits["says_target"] else "")
        config = {"checkpoint_glob": globs[habits["name"]], "log_regex": pattern}
        drawn.append(habits | {"config": config if habits["shows"] == "step" else {"checkpoint_glob": "ck/last*"}})
    run = Run(drawn, [], mounts=False)
    try:
        run.play(0.4)
        rows = run.results()
    finally:
        run.close(keep=False)
    harms = [f"{name}: {row['harms']} {row['says']}" for name, row in zip(TRAININGS, rows, strict=True) if row["harms"]]
    assert not harms, "\n".join(harms)
    assert not run.ends
    assert sum(row["loop"]["finished"] > 0 for row in rows) >= len(rows) - 1, "the loops have trained, too"
