"""`report` as people run it: one screen for the morning."""

import json
import re

import pytest
from running import ctl

from supervisor.ctl import report as page
from supervisor.ctl import text

WALL_S = 1_763_700_000.0


def row(name, **known):
    return {
        "name": name, "phase": "RUNNING", "why": "", "trained_s": 7200.0, "kept_steps": 1_000_000.0, "lost_steps": 500,
        "lost_unknown": 0, "failures": 1, "first_return": -20.1, "last_return": 18.2, "best_return": 19.5, "eta_s": 3600.0,
        **known,
    }  # fmt: skip


def level(name, kept, least=None, *, in_force=False, why=""):
    return {"name": name, "in_force": in_force, "kept_steps": kept, "kept_steps_least": least, "why": why}


def found(**known):
    return {
        "since_wall_s": WALL_S - 43_000.0, "until_wall_s": WALL_S, "length_s": 43_000.0, "programs": [row("Pong")],
        "broke": [], "reboots": 2, "kept_steps": 41_000_000.0, "useful_share": 0.931, "usd": 7.2, "usd_per_hour": 0.6,
        "next": {"level": "medium", "days": 4.25, "usd": 61.2, "why": "", "line": "medium: no reboot in 40m"},
        "levels": [level("medium", 41e6, in_force=True)], "needs": [], **known,
    }  # fmt: skip


@pytest.mark.parametrize(("columns", "left"), [(80, {"TRAINED", "BEST"}), (120, set())])
def test_a_narrow_terminal_keeps_what_one_looks_for_once_a_day(columns, left):
    told = page.page(found(programs=[row("Breakout-seed-12", eta_s=300_000.0)]), columns)
    titles = re.split(r"\s{2,}", told[2])
    wanted = ["PROGRAM", "STATE", "TRAINED", "KEPT STEPS", "LOST", "FAILURES", "RETURN", "BEST", "DONE IN"]
    assert titles == [title for title in wanted if title not in left]
    assert text.width(told[3]) <= columns
    assert told[3].endswith("3d 11h")


@pytest.mark.parametrize(("args", "since"), [((), "43200s"), (("--since", "boot"), "boot")])
def test_the_window_that_is_asked_for(api, backend, args, since):
    backend.reported = found()
    done = ctl("report", *args, socket=api)
    assert done.returncode == 0, done.stderr
    assert "nothing broke" in done.stdout
    assert json.loads(ctl("report", *args, "--json", socket=api).stdout) == {"version": 1, **found()}
    assert {str(each) for each in backend.windows} == {str(backend.window(since))}


HOSTILE = "<script>alert(1)</script>|\x1b[31m\u202e`*_[x](y)"


def hostile():
    broke = [{"what": HOSTILE, "count": 3, "programs": [HOSTILE], "newest_wall_s": WALL_S - 60, "why": HOSTILE}]
    return found(
        programs=[row(HOSTILE, phase=HOSTILE)], broke=broke, needs=[HOSTILE],
        levels=[level(HOSTILE, None, why="never measured")],
    )  # fmt: skip


def test_markdown_in_which_strangers_texts_are_text():
    lines = page.markdown(hostile())
    assert lines[4] == lines[4].replace("<script>", "")
    assert lines[4].replace("\\|", "").count("|") == 10, "the table keeps its columns"
    assert not {"\x1b", "\u202e"} & {*"".join(lines)}
    assert all(line.isprintable() for line in page.page(hostile()))
    assert not {"\x1b", "\u202e"} & {*"".join(page.page(hostile()))}
    assert "Nothing." not in lines
    assert page.markdown(found())[-1] == "Nothing."


def test_formats_and_files(api, backend, tmp_path):
    backend.reported = found()
    assert ctl("report", "--format", "md", socket=api).stdout.startswith("# Since ")
    file = tmp_path / "night"
    assert ctl("report", "--format", "json", "--out", str(file), socket=api).returncode == 0
    assert json.loads(file.read_text()) == {"version": 1, **found()}
    assert ctl("report", "--out", str(file), socket=api).returncode == 0
    assert file.read_text().startswith("Since ")
    refused = ctl("report", "--format", "pdf", socket=api)
    assert (refused.returncode, refused.stdout) == (2, "Error: --format takes text, json, md, not 'pdf'\n")
