"""One number, one value: every page of a simulated night gives the same value for the same figure (docs/accounts.md)."""

from math import fsum

import pytest
from boxes import DAY_S, HOUR_S, night
from fakes import FakeSources

from supervisor.reports import pages as registry
from supervisor.reports.status_view import status_view

NIGHTS = [("rough", 3, 3 * HOUR_S), ("reboots", 1, 6 * HOUR_S), ("mixed", 7, DAY_S), ("usual", 2, 5 * HOUR_S)]


@pytest.fixture(scope="module", params=NIGHTS, ids=lambda each: f"{each[0]}-{each[1]}")
def sources(request):
    box, seed, length_s = request.param
    found = night(box, seed, 3, length_s=length_s)
    assert found.error is None
    core, end = found.world.core, found.world.core.journal[-1]
    return FakeSources(
        state=core.state,
        settings=core.settings,
        memory=core.memory,
        journal=core.journal,
        now_s=core.now_s,
        wall_s=end.wall_s,
    )


@pytest.fixture(scope="module")
def pages(sources):
    found = {name: registry.pages()[name].of(sources, {}) for name in ("accounts", "cost", "days", "report", "level")}
    return found | {"status": status_view(sources)}


def metrics(sources):
    """Values by (name, program), of the exposition that Prometheus reads."""
    from supervisor.features.metrics.families import metrics_view

    return {
        (family.name, program): value
        for family in metrics_view(sources) if family.labels == ("program",) for (program,), value in family.samples
    }  # fmt: skip


def one(values):
    """The only value that all places give."""
    first, *others = values.values()
    assert {name: value for name, value in values.items() if value != pytest.approx(first)} == {}
    assert others
    return first


def test_the_whole_box_has_one_value_for_each_figure_of_a_window(sources, pages):
    accounts, cost, days, report = pages["accounts"]["total"], pages["cost"], pages["days"]["total"], pages["report"]
    parts, programs = pages["days"]["days"], pages["accounts"]["programs"]
    one({"accounts": accounts["reboots"], "report": report["reboots"], "days": days["reboots"],
         "each day": sum(each["reboots"] for each in parts), "status": pages["status"]["daemon"]["reboots_total"]})  # fmt: skip
    one({"accounts": accounts["ettr"], "cost": cost["useful_share"], "report": report["useful_share"],
         "days": days["useful_share"]})  # fmt: skip
    one({"report": report["kept_steps"], "days": days["kept_steps"], "each day": fsum(each["kept_steps"] for each in parts)})
    for key in ("lost_steps", "failures", "lost_unknown"):
        one({"accounts": accounts[key], "days": days[key], "programs": sum(each[key] for each in programs)})
    one({"accounts": accounts["wall_s"], "cost": cost["slot_hours"] * 3600.0})
    one({"cost": cost["wall_hours"], "days": days["hours"], "report": report["length_s"] / 3600.0})
    assert [(each["name"], pytest.approx(each["share"])) for each in cost["causes"]] == [
        (each["name"], each["share"]) for each in days["causes"]
    ]


def test_a_program_has_one_value_for_each_figure(sources, pages):
    sheets = {each["name"]: each for each in pages["accounts"]["programs"]}
    views, told = {each["name"]: each for each in pages["status"]["programs"]}, metrics(sources)
    assert {row["name"] for row in pages["report"]["programs"]} == views.keys()
    for row in pages["report"]["programs"]:
        view, sheet = views[row["name"]], sheets[row["name"]]
        assert view["mean_return"] is None or row["last_return"] == view["mean_return"]
        assert (row["phase"], row["eta_s"], row["best_return"]) == (view["phase"], view["eta_s"], view["best_return"])
        one({"report": row["trained_s"], "accounts": sheet["seconds"]["TRAINING"]})
        one({"report": row["failures"], "accounts": sheet["failures"]})
        lost = told["extralife_program_lost_environment_steps", row["name"]]
        one({"report": row["lost_steps"], "accounts": sheet["lost_steps"], "metrics": lost})


def test_a_level_and_the_forecast_have_one_value(sources, pages):
    report, bill, level = pages["report"], pages["cost"], pages["level"]
    for mine, other in zip(report["levels"], level["levels"], strict=True):
        assert {key: mine[key] for key in ("up_s", "reboots", "mtbf_s", "mtbf_bound_s")} == {
            key: other[key] for key in ("up_s", "reboots", "mtbf_s", "mtbf_bound_s")
        }
    here = next(each for each in bill["levels"] if each["in_force"])
    assert [report["next"][key] for key in ("days", "days_more", "usd")] == [
        here[key] for key in ("days", "days_more", "usd")
    ]
    assert report["next"]["line"] == pages["status"]["daemon"]["level"]["line"] == level["line"]
    in_force = next(each for each in level["levels"] if each["in_force"])
    assert in_force["up_s"] > 0, "a level that is in force is measured"
    assert "not measured yet" not in level["line"]
