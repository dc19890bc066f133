"""No curve where nothing ran: the lines that the page draws, against what the recorder wrote of random nights."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from test_shapes import LOADED

from supervisor.features.recorder.page import curves_view, needed
from supervisor.features.recorder.rules.recording import PROGRAMS, Row, tracks_of

RECORDS, EACH = 1000, 100
DRAWN = """
    const [name, scale] = ["mean_return", "wall"];
    const pointed = (ys) => ys.map((_, place) => ys[it.nearest(ys, place)] ?? null);
    const seen = ({data, kinds, names}) => ({kinds, names, pointed: data.slice(1).map(pointed), data: data.map((ys) => ys.map((y) => y === undefined ? "absent" : y))});
    return JSON.stringify(JSON.parse(given).map(([period_s, subjects]) => {
        const about = {period_s, offset_s: 0, slots: {}, usd_per_hour: null};
        const each = subjects.map((subject, ink) => ({name: subject.program, ink, subjects: [subject]}));
        return {
            compared: seen(it.linesOf([{name: "", ink: 0, subjects}, ...each], name, scale, about)),
            seeds: seen(it.chartOf(subjects, name, scale, about)),
            one: seen(it.chartOf(subjects.slice(0, 1), name, scale, about)),
        };
    }))
"""


def record(seed: int) -> tuple[float, list[Row]]:
    """(period of its curves, readings of up to four programs) with outages of the box, waits, and steps taken back."""
    chance = random.Random(seed)
    period_s, end_s = chance.choice([10.0, 10.0, 30.0]), chance.uniform(400, 2000)

    def outages(most: int) -> list[tuple[float, float]]:
        begins = [chance.uniform(0, end_s) for _ in range(chance.randint(0, most))]
        return [(begin, begin + chance.expovariate(1 / 200)) for begin in begins]

    rows = []
    of_box = outages(2)
    for program in range(chance.randint(1, 4)):
        away, attempt, step, resumed, silent = [*of_box, *outages(3)], 1, 0, 0, 0
        at_s = chance.uniform(0, end_s / 3)
        while at_s < end_s:
            if until := [to for begin, to in away if begin <= at_s < to]:
                at_s, attempt, silent = max(until), attempt + 1, chance.randint(0, 12)
                resumed = step = max(0, step - chance.randint(0, 6) * 100)
                continue
            silent, step = silent - 1, step + 100
            known = {
                "mean_return": None if silent > 0 else step / 1000,
                "env_steps": step,
                "attempt": attempt,
                "resumed_step": resumed,
            }
            rows.append(Row(at_s, at_s, (f"p{program}", str(attempt)), ("RUNNING", "training", "light"), known))
            at_s += chance.uniform(9, 11)
    return period_s, rows


def absences(moments: list[float], period_s: float) -> list[tuple[float, float]]:
    """Times without a reading that are longer than what a period can hide."""
    return [(last, first - period_s) for last, first in pairwise(sorted(moments)) if first - last > 3 * period_s]


def answer(period_s: float, rows: list[Row]) -> Any:
    sheet = needed(PROGRAMS, ["mean_return"])
    tracks = tracks_of(sheet, sorted(rows))
    if period_s > 10:
        tracks = {keys: track.thinned(sheet, period_s) for keys, track in tracks.items()}
    return [period_s, curves_view(sheet, tracks, ["mean_return"])]


def crossed(xs: list[float], ys: list[Any], pointed: list[Any], away: list[tuple[float, float]]) -> list[str]:
    """How a line shows anything in a time without readings."""
    segments, last = [], None
    for x, y in zip(xs, ys, strict=True):
        if isinstance(y, (int, float)) and last is not None:
            segments.append((last, x))
        last = x if isinstance(y, (int, float)) else None if y is None else last
    return [f"drawn from {one} to {other}" for begin, end in away for one, other in segments if one <= begin and other >= end] + [
        f"{y} at {x}" for begin, end in away for x, *both in zip(xs, ys, pointed, strict=True) for y in both
        if begin < x < end and y is not None
    ]  # fmt: skip


@pytest.mark.timeout(900)  # 20 s of CPU in Chromium and here
@pytest.mark.long
def test_no_curve_crosses_a_time_in_which_nothing_ran(browser: Any, served: Any) -> None:
    page = browser.new_page()
    page.goto(f"http://localhost:{served[1]}/")
    found = 0
    for first in range(0, RECORDS, EACH):
        records = [record(seed) for seed in range(first, first + EACH)]
        given = json.dumps([answer(*each) for each in records])
        models = json.loads(page.evaluate(LOADED.replace("CODE", DRAWN), ["shape/curves", given]))
        for seed, (period_s, rows), charts in zip(range(first, first + EACH), records, models, strict=True):
            names = sorted({row.keys[0] for row in rows})
            away = {name: absences([row.at_s for row in rows if row.keys[0] == name], period_s) for name in names}
            away[""] = absences([row.at_s for row in rows], period_s)  # of a mean: while none ran
            found += sum(map(len, away.values()))
            for chart, model in charts.items():
                owners = model.get("names") or (names[:1] * 9 if chart == "one" else [""] * len(model["kinds"]))
                for owner, ys, pointed in zip(owners, model["data"][1:], model["pointed"], strict=False):
                    assert not crossed(model["data"][0], ys, pointed, away[owner]), (seed, chart, owner)
    page.close()
    assert found > 2 * RECORDS, "the records have absences"


PIXELS = """async (apart) => {
    const app = document.querySelector('script[type=module]').src;
    const [{linesOf}, {Chart}] = await Promise.all(['shape/curves', 'view/chart'].map((name) => import(app.replace('app.js', `${name}.js`))));
    const program = (y, from_s, to_s) => {
        const at_s = Array.from({length: 1001}, (_, place) => 10 * place).filter((at) => at <= from_s || at >= to_s);
        const same = (value) => at_s.map(() => value);
        return {program: `${y}`, at_s, env_steps: at_s, kept: same(true), worker_phase: same("training"), level: same("light"), series: {mean_return: {mean: same(y)}}};
    };
    const [runs, ...wait] = [program(1, 0, 0), program(2, 3000, 7000), program(3, 3000, 7000)];
    const groups = (apart ? [[runs], [wait[0]]] : [[runs], wait]).map((subjects, ink) => ({name: `${ink}`, ink, subjects}));
    const place = Object.assign(document.createElement("div"), {style: "width: 1000px; height: 300px; position: fixed; inset: 0"});
    document.body.append(place);
    let shown = null;
    const chart = new Chart(place, (_, values) => (shown = values));
    chart.update({...linesOf(groups, "mean_return", "wall", {period_s: 10, offset_s: 0, slots: {}, usd_per_hour: null}), axis: "wall", bands: [], range: [0, 10_000]});
    await new Promise(requestAnimationFrame);
    const over = place.querySelector(".u-over"), plot = over.getBoundingClientRect(), ratio = devicePixelRatio;
    const copy = new OffscreenCanvas(chart.canvas.width, chart.canvas.height).getContext("2d", {willReadFrequently: true});
    copy.drawImage(chart.canvas, 0, 0);
    const coloured = (from, to) => { // pixels of curves, which are not grey as the grid, above the program that runs
        const {data} = copy.getImageData((plot.left + plot.width * from) * ratio, plot.top * ratio, plot.width * (to - from) * ratio, plot.height * 0.8 * ratio);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) found += data[at + 3] > 0 && Math.max(...data.slice(at, at + 3)) - Math.min(...data.slice(at, at + 3)) > 40;
        return found;
    };
    const at = (share) => {
        over.dispatchEvent(new MouseEvent("mousemove", {clientX: plot.left + plot.width * share, clientY: plot.top + 50}));
        return shown?.at(-1) ?? null;
    };
    const found = [coloured(0.1, 0.29), coloured(0.31, 0.69), coloured(0.71, 0.9), at(0.2), at(0.5), at(0.8)];
    chart.destroy();
    place.remove();
    return found;
}"""


@pytest.mark.parametrize(("apart", "value"), [(True, 2), (False, 2.5)])
def test_nothing_is_drawn_while_programs_wait_beside_one_that_trains(opened: Any, apart: bool, value: float) -> None:
    before, meanwhile, after, *pointed = opened("/compare").page.evaluate(PIXELS, apart)
    assert before > 100
    assert after > 100
    assert (meanwhile, pointed) == (0, [value, None, value])
