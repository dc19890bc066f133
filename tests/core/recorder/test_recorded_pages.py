"""The pages of the recorder: which rows and which event files answer a question."""

import re
from math import inf

import pytest
from core_kit import WALL_S
from test_pages import Sources
from test_pages import core as core_of_pages

from supervisor.features.recorder.page import from_files
from supervisor.features.recorder.rules.recording import Drawn, Row, as_places
from supervisor.features.recorder.rules.resolution import Held
from supervisor.reports.pages import BadQuery, pages

core = core_of_pages


def test_curves_are_continued_from_an_earlier_answer(core):
    core.now_s = 35.0
    whole = pages()["curves"].of(Sources(core), {"series": "env_steps", "since": "all"})
    assert "from_s" not in whole
    later = pages()["curves"].of(Sources(core), {"series": "env_steps", "since": "all", "after": str(whole["until_s"])})
    assert (later["period_s"], later["from_s"]) == (10.0, 10.0), "a reading may be late by some seconds"
    core.now_s = 45.0
    later = pages()["curves"].of(Sources(core), {"series": "env_steps", "since": "all", "after": "41.0"})
    assert (later["from_s"], later["subjects"][0]["at_s"]) == (20.0, [20.0, 20.0, 30.0])


class Own(Sources):
    """Pong's script reports kl, and for a while success_rate."""

    def rows(self, sheet, tier, since_s, until_s, subjects):
        if sheet.name != "figures":
            return super().rows(sheet, tier, since_s, until_s, subjects)
        told = {10.0: {"kl": 0.5}, 20.0: {"kl": 0.25, "success_rate": 1.0}, 40.0: {"kl": 9.0}}
        return [as_places(at_s, self.wall_s, "Pong", "a", at_s, own) for at_s, own in told.items()]

    def names(self):
        return {"kl", "kl\nsuccess_rate"}


def test_figures_of_a_scripts_own_names_are_series_of_programs(core):
    core.look(Pong={"steps": 2000, "lr": 0.1})
    core.now_s += 100.0
    found = pages()["curves"].of(Own(core), {"series": "env_steps,kl,success_rate,lr"})
    assert found["subjects"][0]["series"] == {
        "env_steps": {"newest": [10.0, 20.0, 20.0, 30.0]}, "kl": {"mean": [0.5, None, 0.25, None]},
        "success_rate": {"mean": [None, None, 1.0, None]}, "lr": {"mean": [None] * 4},
    }  # fmt: skip
    with pytest.raises(BadQuery, match=r"^programs have no series 'kll'; there are: .*, kl, lr, success_rate$"):
        pages()["curves"].of(Own(core), {"series": "kll"})


class Full(Own):
    """So many rows lie in each tier."""

    def held(self, sheet, since_s, until_s, subjects, enough):
        self.enough = enough
        return [Held(0.0, rows) for rows in (1_000_000, 72_000, 55_000, 42_000, 200, 20)]


@pytest.mark.parametrize(
    ("series", "enough", "period_s"),
    [
        ("env_steps", 120_001, 60.0), ("loss", 100_001, 60.0), ("env_steps,loss,mean_return,grad_norm", 63_157, 600.0),
        ("env_steps,kl", 48_001, 3600.0), ("env_steps,loss,mean_return,kl", 38_709, 21600.0), ("kl,success_rate", 48_001, 3600.0),
    ],
)  # fmt: skip
def test_an_answer_has_a_bound_of_numbers(core, series, enough, period_s):
    """Four rows a point. Of a program 9 and one for each series, or three; with figures of a script's own names 14 and the columns they are in."""
    core.now_s += 1000.0
    sources = Full(core)
    found = pages()["curves"].of(sources, {"series": series, "points": "2000"})
    assert (sources.enough, found["period_s"]) == (enough, period_s)


def test_figures_of_a_scripts_own_names_are_a_table_of_one_a_row(core):
    found = pages()["recorded"].of(Own(core), {"sheet": "figures"})
    assert found["columns"] == ["at_s", "wall_s", "readings", "program", "token", "figure", "env_steps", "value"]
    assert [row[5:] for row in found["rows"]] == [
        ["kl", 10.0, 0.5], ["kl", 20.0, 0.25], ["success_rate", 20.0, 1.0], ["kl", 40.0, 9.0],
    ]  # fmt: skip


def test_a_page_of_a_table_has_a_bound_of_cells(core):
    sources = Sources(core)
    words = ("RUNNING", "training", "light")
    sources.rows = lambda *_: [Row(at_s // 4 * 10.0, 0.0, ("Pong", str(at_s)), words, {}) for at_s in range(2000)]
    found = pages()["recorded"].of(sources, {"limit": "10000"})
    fit = 25_000 // len(found["columns"])
    assert len(found["rows"]) == -(-fit // 4) * 4 < 500, "the last moment is whole"
    assert len(pages()["recorded"].of(sources, {"limit": "5"})["rows"]) == 8


def test_curves_reach_back_as_far_as_anything_is_kept(core):
    core.now_s += 4 * 365 * 86400.0
    found = pages()["curves"].of(Sources(core), {"sheet": "host"})
    assert found["until_s"] - found["since_s"] == 1095 * 86400.0
    earlier = pages()["curves"].of(Sources(core), {"until": f"{1100 * 86400}s"})
    assert earlier["since_s"] == earlier["until_s"], "nothing is kept of it"
    assert {*found["units"]} == {"available_bytes", "memory_full", "io_full"}
    assert found["subjects"] == []


class Drew(Sources):
    """The worker of a program has drawn a point a minute: two starts, the second at step 50."""

    recorded_from_s = 7200.0

    def rows(self, sheet, tier, since_s, until_s, subjects):
        words = ("RUNNING", "training", "light")
        found = {"env_steps": 160.0, "resumed_step": 50.0, "loss": 1.0, "attempt": 2.0, "first_attempt": 2.0}
        if self.recorded_from_s is None:
            return []
        return [Row(self.recorded_from_s, self.wall_s, ("Pong", "real"), words, found)]

    def drawn(self, program, names, since_wall_s, until_wall_s):
        self.drawn_for = (program, names)
        starts = ((1, 0, range(100)), (2, 50, range(100, 200)))
        return [
            Drawn(start, resumed, wall_s, minute - resumed, {"loss": float(minute)})
            for start, resumed, minutes in starts for minute in minutes
            if since_wall_s <= (wall_s := self.wall_s - self.now_s + 60.0 * minute) < until_wall_s
        ]  # fmt: skip


def test_what_came_before_the_recorder_is_read_from_event_files(core):
    core.now_s = 14_400.0
    sources = Drew(core)
    sources.wall_s = WALL_S + core.now_s
    found = pages()["curves"].of(sources, {"series": "loss", "points": "120", "subjects": "Pong,Nobody"})
    (pong,) = found["subjects"]
    assert sources.drawn_for == ("Pong", ["loss"])
    assert (pong["from_files"], len(pong["at_s"])) == (60, 61), "as many points as were asked for, in the first half"
    assert pong["at_s"] == sorted(pong["at_s"])
    assert pong["attempt"][-2:] == [None, 2.0]
    lost = [steps for steps, keep in zip(pong["env_steps"], pong["kept"], strict=True) if not keep]
    assert lost, "what the second start took back"
    assert min(lost) > 50
    assert all(pong["kept"][51:]), "the start that the recorder found running is one attempt with its points before"
    unknown = from_files(sources.drawn("Pong", [], 0.0, inf), "Pong", lambda at_s: at_s, inf, 1e9)
    assert {row.keys for row in unknown} == {("Pong", "file 1"), ("Pong", "file 2")}
    assert from_files([], "Pong", float, inf, 1.0) == []
    first = min(point.wall_s for point in sources.drawn("Pong", [], 0.0, inf))
    assert from_files(sources.drawn("Pong", [], 0.0, inf), "Pong", lambda at_s: at_s, first, 1e9) == [], "all are later"
    sources.recorded_from_s = 60.0
    assert pages()["curves"].of(sources, {"series": "loss"})["subjects"][0]["from_files"] == 0, "nothing is missing"


def told(sources, limit, **asked):
    """The rows of event files, in as many answers as it takes."""
    rows, after = [], {}
    while True:
        page = pages()["recorded"].of(sources, {"drawn": "Pong", "limit": str(limit), **asked, **after})
        if not page["rows"]:
            return [dict(zip(page["columns"], row, strict=True)) for row in rows]
        rows += page["rows"]
        after = {"after": repr(page["rows"][-1][0])}


@pytest.mark.parametrize("limit", [1, 59, 10_000])
def test_event_files_are_exported_as_far_back_as_nothing_was_recorded(core, limit):
    core.now_s = 14_400.0
    sources = Drew(core)
    sources.wall_s = WALL_S + core.now_s
    rows = told(sources, limit, period_s="600")
    assert [row["at_s"] for row in rows] == [600.0 * n for n in range(12)]
    assert [row["token"] for row in rows] == ["file 1"] * 10 + ["file 2"] * 2
    assert (rows[0]["loss"], rows[0]["loss_least"], rows[0]["loss_most"], rows[0]["readings"]) == (4.5, 0.0, 9.0, 10)
    assert (rows[-1]["env_steps"], rows[-1]["resumed_step"], rows[-1]["attempt"]) == (69.0, 50.0, None)
    assert [row["at_s"] for row in told(sources, limit, period_s="600", since=f"{14_400 - 6000}s")] == [6000.0, 6600.0]
    assert told(sources, limit, sheet="host") == told(sources, limit, drawn="Nobody") == []
    sources.recorded_from_s = None
    assert told(sources, limit, period_s="3600")[-1]["at_s"] == 10_800.0, "nothing was ever recorded"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"series": "los"}, "programs have no series 'los'; there are: env_steps, "),
        ({"series": ",".join(["loss"] * 21)}, "series must name at most 20 of: "),
        ({"sheet": "disks"}, "sheet must be one of programs, figures, host, gpus, not 'disks'"),
        (
            {"sheet": "host", "series": "kl"},
            "host have no series 'kl'; there are: available_bytes, swap_free_bytes, memory_full, io_full, disk_free_bytes, cpu_busy",
        ),
        ({"sheet": "figures"}, "sheet must be programs for figures of a script's own names: series takes them too"),
        ({"points": "2001"}, "points must be a whole number from 10 to 2000, not '2001'"),
    ],
)
def test_curves_that_make_no_sense(core, query, said):
    with pytest.raises(BadQuery, match=f"^{re.escape(said)}{'' if said.endswith(' ') else '$'}"):
        pages()["curves"].of(Sources(core), query)


def test_a_table_ends_with_a_whole_moment(core):
    def steps(**query):
        found = pages()["recorded"].of(Sources(core), query)
        return [row[found["columns"].index("env_steps")] for row in found["rows"]]

    assert steps() == [10.0, 20.0, 20.0, 30.0]
    assert steps(limit="2") == [10.0, 20.0, 20.0]
    assert steps(after="20.0") == [30.0]
    assert steps(after="20.0", since="all", period_s="60") == [30.0]
    core.now_s += 1000.0
    assert steps(since="1s") == []


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        *(("after", text, f"a time in seconds from 0, not '{text}'") for text in ("-1", "x", "inf", "nan")),
        ("period_s", "30", "one of 10, 60, 600, 3600, 21600, 86400, not '30'"),
    ],
)
def test_a_moment_or_a_period_that_makes_no_sense(core, key, text, said):
    with pytest.raises(BadQuery, match=f"^{key} must be {said}$"):
        pages()["recorded"].of(Sources(core), {key: text})
