"""The pure functions of the dashboard, called in the browser that runs them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from supervisor.api.stream import changed
from supervisor.formats import duration, span, usd
from supervisor.printable import printable
from workers.scores import REFERENCES, human_normalised

DASH = "\u2013"
LOADED = """async ([module, given]) => {
    const app = document.querySelector('script[type=module]').src;
    const it = await import(app.replace('app.js', module + '.js'));
    return await (async () => { CODE })();
}"""


@pytest.fixture(scope="module")
def shapes(browser: Any, served: Any) -> Any:
    """`shapes("curves", "return it.usual(given)", ...)`: a module of the page as `it`, JSON in and out."""
    page = browser.new_page(timezone_id="UTC")
    page.goto(f"http://localhost:{served[1]}/")

    def call(module: str, code: str, given: Any = None) -> Any:
        return page.evaluate(LOADED.replace("CODE", code), [module, given])

    yield call
    page.close()


def subject(**known: Any) -> dict[str, Any]:
    """A program's curve: ten seconds a point, from 1,000 s on."""
    length = len(known["env_steps"])
    at_s = known.pop("at_s", [1000.0 + 10 * place for place in range(length)])
    base = {"program": "Pong", "level": ["light"] * length, "worker_phase": ["training"] * length, "kept": [True] * length}
    base |= {"attempt": [1] * length, "at_s": at_s}
    y = known.pop("y")
    spread = {"least": [v and v - 1 for v in y], "mean": y, "most": [v and v + 1 for v in y]}
    return base | {"series": {"mean_return": spread}} | known


ABOUT = {"period_s": 10, "offset_s": 500, "slots": {"light": 2}, "usd_per_hour": 3.6}


def points(shapes: Any, found: Any, axis: str) -> Any:
    return shapes("shape/curves", f"return it.points(given[0], 'mean_return', '{axis}', given[1])", [found, ABOUT])


def test_a_resume_rewinds_a_curve_and_keeps_what_was_lost_faint(shapes: Any) -> None:
    found = subject(env_steps=[100, 200, 300, 250, 350], y=[1, 2, 3, 2.5, 3.5], kept=[True, True, False, True, True])
    kept, lost = shapes(
        "shape/curves",
        "const list = it.points(given[0], 'mean_return', 'steps', given[1]); return [it.keptLine(list), it.lostLines(list)]",
        [found, ABOUT],
    )
    assert kept == {"xs": [100, 200, 225, 250, 350], "ys": [1, 2, None, 2.5, 3.5]}, "broken where a stretch was lost"
    assert lost == [{"xs": [200, 300], "ys": [2, 3]}], "and drawn from the last point that was kept"


@pytest.mark.parametrize("drawn", [{"mean": [1, None, 3]}, {"newest": [1, None, 3]}])
def test_what_has_no_bounds_is_its_own_bounds(shapes: Any, drawn: Any) -> None:
    found = subject(env_steps=[1, 2, 3], y=[0, 0, 0]) | {"series": {"mean_return": drawn}}
    assert [[point["low"], point["y"], point["high"]] for point in points(shapes, found, "steps")] == [[1] * 3, [3] * 3]


@pytest.mark.parametrize(
    ("period_s", "at_s", "line"),
    [
        (10, [1000.0, 1010.0, 1100.0], {"xs": [1500, 1510, 1555, 1600], "ys": [1, 2, None, 3]}),
        (
            3600,
            [0.0, 3600.0, 10_800.0],
            {"xs": [500, 4100, 7700, 11_300], "ys": [1, 2, None, 3]},
        ),  # a row of an hour is missing
    ],
)
def test_a_time_without_readings_is_a_gap(shapes: Any, period_s: int, at_s: list[float], line: Any) -> None:
    given = [subject(env_steps=[1, 2, 3], y=[1, 2, 3], at_s=at_s), ABOUT | {"period_s": period_s}]
    assert shapes("shape/curves", "return it.keptLine(it.points(given[0], 'mean_return', 'wall', given[1]))", given) == line


def test_unknown_values_are_no_points(shapes: Any) -> None:
    found = subject(env_steps=[1, None, 3, 4], y=[None, 2, 3, 0])
    assert [point["y"] for point in points(shapes, found, "steps")] == [3, 0]
    assert [point["y"] for point in points(shapes, found, "wall")] == [2, 3, 0]


def test_axes_of_trained_hours_and_dollars_leave_out_what_was_no_training(shapes: Any) -> None:
    found = subject(
        env_steps=[1, 2, 3, 4], y=[1, 2, 3, 4], at_s=[1000.0, 1010.0, 4600.0, 4610.0],
        worker_phase=["training", "saving", "training", "training"],
    )  # fmt: skip
    hours = [point["x"] * 3600 for point in points(shapes, found, "hours")]
    assert hours == pytest.approx([10, 10, 20, 30]), "an outage of an hour takes no room"
    # 3.60 dollars an hour on two slots: 0.5 ct a ten seconds
    assert [point["x"] for point in points(shapes, found, "dollars")] == pytest.approx([0.005, 0.010, 0.015, 0.020])


def test_seeds_have_a_mean_with_its_standard_error(shapes: Any) -> None:
    lines = [{"xs": [0, 10], "ys": [level, level + 10]} for level in (0, 3, 6)]
    found = shapes("shape/curves", "return it.average(given)", lines)
    assert found["xs"][0] == 0
    assert found["xs"][-1] == 10
    assert found["mean"][-1] == pytest.approx(13)
    assert found["high"][-1] - found["mean"][-1] == pytest.approx(3 / math.sqrt(3))
    assert shapes("shape/curves", "return it.average(given)", lines[:1]) is None, "of one seed there is no band"


def test_a_mean_does_not_jump_while_one_seed_pauses(shapes: Any) -> None:
    whole, pausing = {"xs": [0, 10], "ys": [0, 0]}, {"xs": [0, 2, 5, 8, 10], "ys": [9, 9, None, 9, 9]}
    found = shapes("shape/curves", "return it.average(given)", [whole, pausing])
    assert set(found["mean"]) == {4.5}
    both = shapes("shape/curves", "return it.average(given)", [pausing, pausing])
    assert both["mean"][len(both["xs"]) // 2] is None, "where all pause it is a gap"


@pytest.mark.parametrize(("ends", "until", "n"), [(5, 5, 3), (4, 10, 2), (10, 10, 3)])
def test_a_mean_does_not_jump_where_one_seed_ends(shapes: Any, ends: int, until: int, n: int) -> None:
    lines = [{"xs": [0, ends], "ys": [9, 9]}, {"xs": [0, 10], "ys": [0, 0]}, {"xs": [0, 10], "ys": [3, 3]}]
    found = shapes("shape/curves", "return it.average(given)", lines)
    assert (found["n"], found["xs"][-1]) == (n, until), "a line that is shorter than half of the whole does not count"
    assert set(found["mean"]) == {4 if n == 3 else 1.5}


def test_a_mean_is_as_fine_as_its_lines(shapes: Any) -> None:
    line = {"xs": [3600 * hour for hour in range(720) if hour not in (400, 401)], "ys": [1] * 718}
    line["xs"].insert(400, 401.0 * 3600)
    line["ys"].insert(400, None)
    found = shapes("shape/curves", "return it.average(given)", [line, line])
    assert len(found["xs"]) > 720
    assert None in found["mean"][400:500], "two hours of a month are a gap"
    coarse = shapes("shape/curves", "return it.average(given, 10)", [line, line])
    assert coarse["mean"].count(None) == 1, "also between two points of the mean"


def test_seeds_that_did_not_train_at_the_same_time_are_drawn_without_a_mean(shapes: Any) -> None:
    subjects = [subject(env_steps=[1, 2], y=[1, 2], at_s=[at_s, at_s + 10.0]) for at_s in (0.0, 100.0)]
    found = shapes("shape/curves", "return it.chartOf(given[0], 'mean_return', 'wall', given[1])", [subjects, ABOUT])
    assert (found["kinds"], found["n"], found["averaged"]) == (["seed", "seed"], 2, False)


def test_a_sparkline_is_whole_although_two_attempts_have_rows_in_one_period(shapes: Any) -> None:
    found = subject(env_steps=[1, 2, 3, 4, 5], y=[1, 2, 3, 4, 5], at_s=[0.0, 60.0, 70.0, 120.0, 180.0])
    assert shapes("shape/curves", "return it.sparkline(given, 'mean_return', 60, 16)", found).count("M") == 1
    away = subject(env_steps=[1, 2, 3, 4], y=[1, 2, 3, 4], at_s=[0.0, 60.0, 420.0, 480.0])
    assert shapes("shape/curves", "return it.sparkline(given, 'mean_return', 60, 16)", away).count("M") == 2


def test_a_point_alone_is_visible_in_a_sparkline(shapes: Any) -> None:
    found = subject(env_steps=[1, 2, 3], y=[1, None, 3])
    assert shapes("shape/curves", "return it.sparkline(given, 'mean_return', 60, 16)", found) == "M0.0 15.0h1M60.0 1.0h1"


ANSWER = {
    "period_s": 10.0, "since_s": 0.0, "until_s": 45.0,
    "subjects": [
        {"program": "Pong", "at_s": [10.0, 20.0, 30.0, 40.0], "attempt": [1, 1, 1, 1], "from_files": 1,
         "series": {"loss": {"mean": [1, 2, 3, 4]}}},
        {"program": "Done", "at_s": [10.0, 20.0], "attempt": [1, 1], "from_files": 0, "series": {"loss": {"mean": [8, 9]}}},
    ],
}  # fmt: skip


def later(attempt: int, **more: Any) -> dict[str, Any]:
    pong = {"program": "Pong", "at_s": [40.0, 50.0], "attempt": [1, attempt], "from_files": 0}
    fresh = {"program": "New", "at_s": [50.0], "attempt": [1], "from_files": 0, "series": {"loss": {"mean": [0]}}}
    subjects = [pong | {"series": {"loss": {"mean": [4.5, 5]}}}, fresh]
    return {"period_s": 10.0, "since_s": 15.0, "until_s": 55.0, "from_s": 40.0, "subjects": subjects} | more


def test_an_answer_grows_at_its_end_and_forgets_what_lies_before_the_window(shapes: Any) -> None:
    found = shapes("shape/growing", "return it.grown(given[0], given[1])", [ANSWER, later(1)])
    pong, done, new = found["subjects"]
    assert (pong["at_s"], pong["series"]["loss"]["mean"], pong["from_files"]) == (
        [20.0, 30.0, 40.0, 50.0],
        [2, 3, 4.5, 5],
        0,
    )
    assert (done["at_s"], done["series"]["loss"]["mean"]) == ([20.0], [9])
    assert (new["program"], found["until_s"]) == ("New", 55.0)
    gone = shapes("shape/growing", "return it.grown(given[0], given[1])", [ANSWER, later(1, since_s=25.0)])
    assert [each["program"] for each in gone["subjects"]] == ["Pong", "New"]


@pytest.mark.parametrize("other", [later(2), later(1, period_s=20.0)])
def test_after_another_attempt_or_at_another_resolution_an_answer_cannot_grow(shapes: Any, other: Any) -> None:
    assert shapes("shape/growing", "return it.grown(given[0], given[1])", [ANSWER, other]) is None


def test_lines_on_one_axis_tell_a_gap_from_a_point_of_another_line(shapes: Any) -> None:
    code = "return it.joined(given).map((ys) => ys.map((y) => y === undefined ? 'absent' : y))"
    found = shapes("shape/curves", code, [{"xs": [1, 2, 4, 5], "ys": [1, None, 4, 5]}, {"xs": [2.5, 4.5], "ys": [7, 7]}])
    assert found == [[1, 2, 2.5, 4, 4.5, 5], [1, None, None, 4, "absent", 5], [None, None, 7, "absent", 7, None]]


def test_the_human_score_is_the_one_of_the_workers(shapes: Any) -> None:
    for game in ("Pong", "Breakout", "Skiing"):
        score = shapes("shape/curves", "return it.normalised(given)(12.5)", REFERENCES[game])
        assert score == pytest.approx(human_normalised(game, 12.5))


def test_a_change_of_the_stream_makes_the_newer_status(shapes: Any) -> None:
    old = {
        "daemon": {"state": "running", "level": {"name": "light"}}, "now_s": 1.0, "wall_s": 5.0,
        "programs": [{"name": "Pong", "phase": "RUNNING", "why": ""}, {"name": "Qbert", "phase": "DONE", "why": ""}],
    }  # fmt: skip
    new = {
        "daemon": {"state": "running", "level": {"name": "heavy"}}, "now_s": 2.0, "wall_s": 6.0,
        "programs": [{"name": "Alien", "phase": "QUEUED", "why": "new"}, {"name": "Pong", "phase": "BACKOFF", "why": "died"}],
    }  # fmt: skip
    change = json.loads(json.dumps(changed(old, new)))
    assert shapes("shape/status", "return it.applied(given[0], given[1])", [old, change]) == new


def test_programs_that_need_a_look_come_first(shapes: Any) -> None:
    phases = ["RUNNING", "FATAL", "DONE", "BACKOFF", "RUNNING"]
    programs = [{"name": f"P{place}", "phase": phase, "trouble": None} for place, phase in enumerate(phases)]
    programs[4]["trouble"] = "stalled"
    found = shapes("shape/status", "return it.sortedPrograms(given)", programs)
    assert [view["name"] for view in found["first"]] == ["P1", "P4", "P3"]
    assert [game for game, _ in found["groups"]] == ["P0", "P2"]


def test_programs_are_grouped_by_a_setting_in_which_they_differ(shapes: Any) -> None:
    programs = [
        {"name": name, "game": game, "group": name}
        for name, game in (("Pong-s1", "Pong"), ("a.b", ""), ("c", ""), ("d", ""))
    ]
    rows = [
        {"key": f"program.{key}", "value": value}
        for key, value in {
            "Pong-s1.lr": 0.0001, "Pong-s1.seed": 1, "Pong-s1.algo": "dqn", "a.b.command": ["python3", "t.py", "--lr", "3e-4", "size=2"],
            "a.b.seed": 2, "c.command": "t.py --lr=1e-3 --fast --env-id Pong", "c.algo": "dqn", "gone.lr": 7, "d.lr": None,
        }.items()
    ]  # fmt: skip
    code = (
        "const all = it.varied(given[0], given[1]); return [[...all.keys()], given[1].map(it.groupBy('lr', all, given[1]))]"
    )
    assert shapes("shape/status", code, [rows, programs]) == [["lr"], ["Pong · lr 0.0001", "lr 3e-4", "lr 1e-3", "d"]]


@pytest.mark.parametrize(
    "text", ["\x1b[31mred\x1b[0m", "a\u202eb", "tab\there", "\x00\x07\x7f\x9b", "\U000e0041", "ünï ✓ 漢", "a\xa0b"]
)
def test_text_is_made_visible_as_everywhere_else(shapes: Any, text: str) -> None:
    assert shapes("text", "return it.visible(given)", text) == printable(text)


def test_words_for_numbers_and_times(shapes: Any) -> None:
    code = "return given.map(it.%s)"
    counts = {None: DASH, 0: "0", 980: "980", 12_340: "12.3 k", 41_000_000: "41 M", 999_900: "1 M"}
    assert shapes("text", code % "count", list(counts)) == list(counts.values())
    assert shapes("text", code % "bytes", [None, 0, 27_800_000_000]) == [DASH, "0 B", "27.8 GB"]
    lengths = [None, 0.4, 42, 59.6, 65, 3599, 3600, 3660, 11_100, 86_399, 90_000, 187_200, 98_280, 1_080_000]
    assert shapes("text", code % "span", lengths) == [DASH, *map(duration, lengths[1:])]
    short = [None, 0, 0.0004, 0.004, 0.44, 0.9996, 2.46, 3.04, 9.94, 9.96, 3660]
    assert shapes("text", code % "exact", short) == [DASH, *map(span, short[1:])]
    prices = [None, 0, 9.54e-05, 0.001, 0.05, 0.1388, 0.9994, 0.9996, 7.2, 41.2, 3609.4]
    assert shapes("text", code % "dollars", prices) == [DASH, *map(usd, prices[1:])]
    assert shapes("text", code % "percent", [None, 0, 0.0003, 0.004, 0.931]) == [DASH, "0 %", "<0.1 %", "0.4 %", "93 %"]
    now = 1_800_025_200.0  # Friday 2027-01-15 15:00 UTC
    moments = [now - 3 * 3600, now + 4 * 86_400, now + 30 * 86_400, now - 30 * 86_400, now + 700 * 86_400]
    said = shapes("text", "return given[0].map((each) => it.moment(each, given[1]))", [moments, now])
    assert said == ["12:00", "Tuesday 15:00", "14 Feb", "16 Dec 15:00", "Dec 2028"]


def test_labels_of_an_axis_differ(shapes: Any) -> None:
    code = "return it.spaced(given[0], given[1])"
    assert shapes("text", code, [[67.5, 70, 72.5], 2.5]) == ["67.5", "70.0", "72.5"]
    assert shapes("text", code, [[0, 2500, 5000], 2500]) == ["0", "2.5 k", "5.0 k"]
    assert shapes("text", code, [[0.0012, 0.0014], 0.0002]) == ["0.0012", "0.0014"]
    assert shapes("text", code, [[-21, None, 30_000], None]) == ["\u221221", "", "30 k"], "a logarithmic scale has no step"


def test_an_address_holds_all_choices(shapes: Any) -> None:
    code = "return given.map((hash) => it.write(it.read(hash)))"
    kept = [
        "#/",
        "#/program/my%2Frun?axis=steps&series=loss,kl&zoom=10,20.5&smooth=0.9&log=yes",
        "#/compare?window=7d&pick=a,b&q=x+y",
    ]
    assert shapes("shape/route", code, kept) == kept
    bad = ["#axis=steps&window=constructor", "#/nowhere?zoom=9,1", "#/program/%E0%A4%A"]
    assert shapes("shape/route", code, bad) == ["#/?axis=steps", "#/", "#/program/%25E0%25A4%25A"]


def test_a_smoothed_line_begins_at_its_first_value(shapes: Any) -> None:
    found = shapes("shape/curves", "return it.smoothed(given, 0.5).ys", {"xs": [1, 2, 3, 4], "ys": [4, None, 10, 10]})
    assert found == [4, None, pytest.approx(8), pytest.approx(64 / 7)]


def test_bands_of_a_timeline(shapes: Any) -> None:
    span = {"why": "w", "seq": 3}
    timeline = {
        "until_s": 100, "until_wall_s": 1100,
        "levels": [{"from_s": 0, "to_s": 50, "level": "light", "trial": False, **span}, {"from_s": 50, "to_s": 100, "level": "heavy", "trial": True, **span}],
        "box": [{"from_s": 60, "to_s": 70, "kind": "reboot", **span}],
        "marks": [{"at_s": 80, "kind": "rollback", "what": "rolled back", "program": "Qbert", "count": 2, **span}, {"at_s": 90, "kind": "operator", "what": "stop", "program": None, "count": 1, **span}],
    }  # fmt: skip
    found = shapes("shape/bands", "return it.bandsOf(given)", timeline)
    assert [(band["kind"], band["from_s"], band["to_s"], band["label"]) for band in found] == [
        ("level", 1000, 1050, "light"), ("trial", 1050, 1100, "heavy, trial"), ("reboot", 1060, 1070, "reboot"),
        ("rollback", 1080, None, "Qbert: rolled back (2 times)"),
    ]  # fmt: skip
    own = shapes("shape/bands", "return it.behind(it.bandsOf(given), ['Pong']).map(({kind}) => kind)", timeline)
    assert own == ["level", "trial", "reboot"], "another program's rollback is not drawn"
