"""One number, one value: what the page computes of returns is what `status`, `report`, the API and both CSV files give."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random
from statistics import mean, stdev
from typing import Any
from urllib.request import urlopen

import pytest
from test_shapes import LOADED

from supervisor.ctl import text
from supervisor.ctl.status_page import cells
from workers.scores import human_normalised

GAMES = {"Pong": ["Pong-s1", "Pong-s2", "Pong-s3"], "Breakout": ["Breakout-s1", "Breakout-s2"], "Qbert": ["Qbert"]}
TRAININGS = [name for names in GAMES.values() for name in names]
HUMAN = {game: lambda value, game=game: human_normalised(game, value) for game in GAMES}  # type: ignore[misc]


def rough(where: Any, seed: int) -> Any:
    """Three hours in which programs stall, die, roll back and are stopped, and the box reboots: the seed decides."""
    from night import Night

    host, chance = Night(where, seed=seed), Random(seed)
    host.look_s = 30.0
    host.start()
    for _ in range(8):
        host.run(chance.uniform(600.0, 1500.0))
        running = sorted(host.living[token].name for token in host.living if host.living[token].name in TRAININGS)
        name = chance.choice(running or TRAININGS)
        fault = chance.choice(["stick", "die", "diverge", "reboot", "stop"])
        if fault == "stick" and running:
            host.worker(name).stick(host.now_s)
        elif fault == "reboot":
            host.reboot(chance.uniform(60.0, 900.0), "power", "journal ends in the middle")
        elif fault == "stop":
            host.operator("stop", name)
        else:
            host.ends(name, code=65 if fault == "diverge" else 1, last_lines=("it died",), after_s=60.0)
    host.look_s = 10.0
    host.run(600.0)
    return host


class Served:
    """A night behind its API, and a page of the dashboard over it."""

    def __init__(self, browser: Any, port: int) -> None:
        self.port = port
        context = browser.new_context(viewport={"width": 1440, "height": 2400}, timezone_id="UTC")
        self.page = context.new_page()

    def api(self, target: str) -> Any:
        with urlopen(f"http://localhost:{self.port}/api/v1/{target}", timeout=60) as answer:
            return json.load(answer)

    def recorded(self, since: str) -> list[dict[str, Any]]:
        """The rows of `extralifectl export`."""
        found: list[dict[str, Any]] = []
        while rows := (
            page := self.api(f"recorded?period_s=10&since={since}&after={found[-1]['at_s'] if found else 0.0!r}")
        )["rows"]:
            found += [dict(zip(page["columns"], row, strict=True)) for row in rows]
        return found

    def open(self, words: str) -> Any:
        self.page.goto(f"http://localhost:{self.port}/#{words}")
        self.page.reload()
        return self.page

    def shape(self, module: str, code: str, given: Any) -> Any:
        return self.page.evaluate(LOADED.replace("CODE", code), [module, given])

    def words(self, value: float | None) -> str:
        """A figure as the page writes it."""
        found: str = self.shape("text", "return it.figures(given)", value)
        return found


@pytest.fixture(scope="module", params=[1, 2, 3])
def night(browser: Any, request: pytest.FixtureRequest) -> Iterator[Served]:
    from inside import Application, directory
    from tunnels import tunnel

    application = Application(lambda: rough(directory(), request.param))
    application.serve()
    application.within(application.host.write_down)
    with tunnel(application.host.runtime_dir / "supervisor.sock") as port:
        served = Served(browser, port)
        served.open("/")
        yield served
        served.page.context.close()
    application.close()


def returns(night: Served) -> dict[str, float | None]:
    return {view["name"]: view["mean_return"] for view in night.api("status")["programs"] if view["name"] in TRAININGS}


def known(values: dict[str, float | None], names: list[str]) -> list[float]:
    return [value for name in names if (value := values[name]) is not None]


def test_a_return_has_one_value_in_every_place(night: Served) -> None:
    status, report = night.api("status"), night.api("report?since=all")
    views = {view["name"]: view for view in status["programs"]}
    now = returns(night)
    assert len(known(now, TRAININGS)) >= 3
    assert {row["name"]: row["last_return"] for row in report["programs"] if row["name"] in TRAININGS} == now
    newest = {row["program"]: row["mean_return"] for row in night.recorded("86400s") if row["mean_return"] is not None}
    for name, value in now.items():
        if value is None:
            assert name not in newest
            continue
        assert cells(views[name])["RETURN"] == text.signed(value)
        assert newest[name] == pytest.approx(value), "the last line of extralifectl export"
        page = night.open(f"/program/{name}")
        shown = page.locator(".figures div", has=page.get_by_text("mean return", exact=True)).locator("dd").first
        assert shown.inner_text() == night.words(value)
        page.locator(".values strong").first.wait_for()
        assert page.locator(".values strong").all_inner_texts() == [night.words(value)]
        if views[name]["phase"] == "RUNNING":
            assert f"return {night.words(value)}," in page.locator("p.sentence").inner_text()


def test_the_overview_and_compare_have_the_return_of_each_program_and_group(night: Served) -> None:
    now = returns(night)
    rows = night.open("/").locator("#trained tr", has=night.page.locator("td.return"))
    rows.first.wait_for()
    shown = {
        row.locator("th").inner_text().split("\n")[0]: row.locator("td.return").inner_text().split(" ")[0]
        for row in rows.all()
    }
    assert {name: shown[name] for name in TRAININGS} == {name: night.words(value) for name, value in now.items()}
    for human in ("no", "yes"):
        page = night.open(f"/?human={human}")
        for game, names in GAMES.items():
            scale: Callable[[float], Any] = HUMAN[game] if human == "yes" else float
            if values := [scale(value) for value in known(now, names)]:
                caption = page.locator("#well figure", has=page.get_by_text(game, exact=True)).locator(".value")
                caption.wait_for()
                assert caption.inner_text() == night.words(mean(values)), (human, game)
    page = night.open(f"/compare?mean=yes&pick={','.join(TRAININGS)}")
    for game, names in GAMES.items():
        values = known(now, names)
        row = page.locator("table.compare tr", has=page.get_by_role("button", name=game, exact=True))
        if len(names) > 1:
            row.wait_for()
            found = [cell.inner_text() for cell in row.locator("td.number").all()[:2]]
            spread = f"± {night.words(stdev(values))}" if len(values) > 1 else "\u2013"
            assert found[0] == night.words(mean(values) if values else None)
            assert found[1].startswith(spread)
        title = f"{game} (n {len(names)})" if len(names) > 1 else game
        line = page.locator(".values li", has_text=title)
        line.wait_for()
        assert line.locator("strong").inner_text() == night.words(mean(values) if values else None)


def test_the_csv_of_a_chart_has_the_values_of_the_export(night: Served) -> None:
    page = night.open(f"/compare?window=1h&pick={','.join(TRAININGS)}")
    page.locator(".values strong").first.wait_for()
    page.wait_for_function(
        "async () => (await import(document.querySelector('script[type=module]').src)).charts.held('mean_return')?.data[0].length"
    )
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    lines = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
    answer = night.api(f"curves?since=3600s&subjects={','.join(TRAININGS)}&series=mean_return&points=1500")
    offset_s = answer["until_wall_s"] - answer["until_s"]
    rows = night.recorded("3700s")
    exported = {(row["program"], round(row["at_s"] + offset_s, 1)): row["mean_return"] for row in rows}
    assert len(lines) > 100
    for line in lines:
        at_s = datetime.fromisoformat(line["time"]).timestamp()
        assert float(line["value"]) == pytest.approx(exported[line["line"], round(at_s, 1)])


def test_the_mean_of_seeds_is_the_one_of_plot(night: Served) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: .venv/bin/pip install 'extralife[plot]'")
    from supervisor.features.recorder.pictures import _band

    answer = night.api(f"curves?since=all&subjects={','.join(GAMES['Pong'])}&series=mean_return&points=500")
    rows = [
        zip(each["env_steps"], each["series"]["mean_return"]["mean"], each["kept"], strict=True)
        for each in answer["subjects"]
    ]
    seeds = [[(x, y) for x, y, kept in row if kept and x is not None and y is not None] for row in rows]
    code = """
        const about = {period_s: given.period_s, offset_s: 0, slots: {}, usd_per_hour: null};
        const {data, kinds} = it.chartOf(given.subjects, "mean_return", "steps", about);
        return kinds.includes("mean") ? [data[0], data[kinds.indexOf("mean") + 1]] : [[], []]
    """
    xs, drawn = night.shape("shape/curves", code, answer)
    band = _band(seeds)
    if band is None:
        assert drawn == []
        return
    grid, middle, _, _ = band
    shown = {x: y for x, y in zip(xs, drawn, strict=False) if y is not None}
    both = [(shown[x], y) for x, y in zip(grid, middle, strict=True) if x in shown]
    assert len(both) > 50
    assert [mine for mine, _ in both] == pytest.approx([other for _, other in both])
