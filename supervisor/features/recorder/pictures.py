"""Pictures by matplotlib. Colour-blind readers can tell the colours, those of Okabe and Ito, apart on white."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from supervisor.adapters.host.clock import LocalZone
from supervisor.ctl import text

Json = dict[str, Any]
Point = tuple[float, float]

_SEEDS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
_BROKEN, _QUIET = "#D55E00", "#777777"
_PALE: Final = ("#F6F8FA", "#EEF3F7", "#E6EDF3", "#DDE7EF", "#D5E1EB", "#CDDBE7")  # for levels: the heavier, the darker
_STRONG: Final = ("#9FB8D0", "#7FA0C0", "#5F88B0", "#3F709F", "#20588F", "#0B3C6F")
_DAY_S: Final = 86_400.0
_READING_S: Final = 10.0  # single readings come when they come; rows of a longer period are exactly one period apart
_GRID: Final = 200
_SPANNED: Final = {"reboot", "no daemon", "suspended"}
_TITLES: Final = {"mean_return": ("mean return of the last episodes", "return")}
_MARKS: Final = {"stall": "v", "death": "x", "divergence": "D", "rollback": "<", "illness": "P"}


def written(figure: Figure, path: str, ending: str) -> None:
    """Save to a file of this format. Text in an SVG stays text, so that it can be searched and copied."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "extralife"}):
        figure.savefig(path, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)


def learning(name: str, series: str, curves: Json, timeline: Json) -> Figure:
    """A figure of all programs of a game: over steps, and over time with levels and reboots behind them."""
    title, unit = _TITLES.get(series, (_words(series), _words(series)))
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    by_steps, by_time = figure.subplots(2, 1)
    found = [each | {"drawn": _lines(each["series"][series])} for each in curves["subjects"]]
    subjects = [each for each in found if any(value is not None for value in each["drawn"]["mean"])]
    for place, each in enumerate(subjects):
        colour, label = _SEEDS[place % len(_SEEDS)], _words(each["program"])
        alone = len(subjects) == 1
        for axes, xs in ((by_steps, each["env_steps"]), (by_time, [wall_s / _DAY_S for wall_s in each["wall_s"]])):
            _curve(axes, xs, each, curves["period_s"], colour, label, thin=axes is by_steps and not alone)
    seeds = (zip(each["env_steps"], each["drawn"]["mean"], each["kept"], strict=True) for each in subjects)
    band = _band([[(x, y) for x, y, kept in rows if kept and x is not None and y is not None] for rows in seeds])
    if band:
        xs, middle, error, count = band
        by_steps.plot(xs, middle, color="black", linewidth=2.0, label=f"mean of {count} seeds, ± standard error")
        low, high = [m - e for m, e in zip(middle, error, strict=True)], [m + e for m, e in zip(middle, error, strict=True)]
        by_steps.fill_between(xs, low, high, color="black", alpha=0.15, linewidth=0)
    by_steps.set_title(f"{_words(name)}: {title}")
    by_steps.set_xlabel("environment steps")
    by_steps.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not all(all(each["kept"]) for each in subjects):
        by_steps.plot([], [], color=_QUIET, alpha=0.5, linestyle=":", label="taken back by a resume")
    _behind(by_time, timeline, [each["level"] for each in timeline["levels"]])
    walls = [wall_s for each in subjects for wall_s in each["wall_s"]]
    _dates(by_time, min(walls), max(walls))
    for axes in (by_steps, by_time):
        axes.set_ylabel(unit)
        _plain(axes)
        axes.legend(loc="upper left", fontsize="small", framealpha=0.8)
    return figure


def _lines(series: Json) -> Json:
    """Mean, least and most of a series. A total has only newest values, and some measurements have only means."""
    mean = series.get("mean") or series.get("newest") or []
    return {"mean": mean, "least": series.get("least", mean), "most": series.get("most", mean)}


def _curve(axes: Axes, xs: Sequence[Any], each: Json, period_s: float, colour: str, label: str, *, thin: bool) -> None:
    """Draw kept points as a line, with the least and most of each period around it. Discarded points are dotted."""
    series = each["drawn"]
    rows = list(zip(xs, series["mean"], series["least"], series["most"], each["kept"], each["at_s"], strict=True))
    longest_s = period_s * (1.5 if period_s > _READING_S else 2.5)
    for kept in (True, False):
        for run in _runs(rows, kept=kept, gap_s=longest_s):
            x, y = [row[0] for row in run], [row[1] for row in run]
            dotted = {"linewidth": 1.0, "alpha": 0.45, "linestyle": ":"}
            line = {"linewidth": 0.9 if thin else 1.6, "alpha": 0.7} if kept else dotted
            axes.plot(x, y, color=colour, label=label, **line)
            label = "_"  # only the first line appears in the legend
            if kept and not thin:
                axes.fill_between(x, [row[2] for row in run], [row[3] for row in run], color=colour, alpha=0.15, linewidth=0)


def _runs(rows: Iterable[Any], *, kept: bool, gap_s: float) -> Iterator[list[Any]]:
    """Stretches of known points, all kept or all discarded, without a gap in time and without a step back."""
    run: list[Any] = []
    for row in rows:
        fits = row[0] is not None and row[1] is not None and row[4] == kept
        if run and (not fits or row[5] - run[-1][5] > gap_s or row[0] < run[-1][0]):
            yield run
            run = []
        if fits:
            run.append(row)
    if run:
        yield run


def _band(seeds: Sequence[Sequence[Point]]) -> tuple[list[float], list[float], list[float], int] | None:
    """(steps, mean, standard error, n) over the steps that all seeds have reached; None for fewer than two seeds.

    Beyond the slowest seed, the mean would jump where a seed is missing, and the jump would look like learning. So a seed
    that has less than half of the steps does not count, as in the dashboard.
    """
    known = [sorted(points) for points in seeds if len(points) > 1]
    half = (max(points[-1][0] for points in known) - min(points[0][0] for points in known)) / 2 if known else 0.0
    known = [points for points in known if points[-1][0] - points[0][0] >= half]
    if len(known) < 2:
        return None
    begin, end = max(points[0][0] for points in known), min(points[-1][0] for points in known)
    if begin >= end:
        return None
    xs = [begin + (end - begin) * place / _GRID for place in range(_GRID + 1)]
    columns = list(zip(*(list(_at(points, xs)) for points in known), strict=True))
    return xs, [mean(column) for column in columns], [stdev(column) / sqrt(len(known)) for column in columns], len(known)


def _at(points: Sequence[Point], xs: Sequence[float]) -> Iterator[float]:
    """The values at rising `xs`, interpolated linearly between the points."""
    place = 0
    for x in xs:
        while place < len(points) - 2 and points[place + 1][0] < x:
            place += 1
        (left, low), (right, high) = points[place], points[place + 1]
        yield low if right == left else low + (high - low) * min(1.0, max(0.0, (x - left) / (right - left)))


# --- stability -----------------------------------------------------------------------------------------------------------


def stability(timeline: Json, ladder: Json) -> Figure:
    """Levels, reboots, trials and faults over time; below it the MTBF of each level with its bound."""
    names = [each["name"] for each in ladder["levels"]]
    names += [each["level"] for each in timeline["levels"] if each["level"] not in names]
    names = list(dict.fromkeys(names))
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 1 + 0.25 * len(ladder["levels"])))
    for each in timeline["levels"]:
        row = names.index(each["level"])
        hatch = {"hatch": "///", "edgecolor": "white"} if each["trial"] else {}
        left, right = each["from_wall_s"] / _DAY_S, each["to_wall_s"] / _DAY_S
        shade = _shade(row, len(names), drawn=True)
        above.barh(row, right - left, left=left, height=0.7, color=shade, **hatch)
    _box(above, timeline)
    for kind, marker in _MARKS.items():
        at = [each["wall_s"] / _DAY_S for each in timeline["marks"] if each["kind"] == kind]
        if at:
            label = f"{kind} ({len(at)})"
            above.plot(at, [len(names)] * len(at), marker, color=_QUIET, markersize=5, alpha=0.7, label=label)
    above.set_yticks(range(len(names)), [_words(name) for name in names])
    above.set_ylim(-0.6, len(names) + 0.4)
    unclean = sum(each["count"] for each in timeline["box"] if each.get("cause") == "unclean")
    other = sum(each["count"] for each in timeline["box"] if each["kind"] == "reboot") - unclean
    length = text.duration(timeline["until_s"] - timeline["since_s"])
    trial = "; hatched: a trial" if any(each["trial"] for each in timeline["levels"]) else ""
    told = text.count(unclean, "unclean reboot") + (f" and {other} other" if other else "")
    above.set_title(f"Levels of {length}: {told}{trial}")
    _dates(above, timeline["since_wall_s"], timeline["until_wall_s"])
    _plain(above)
    handles, labels = above.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        above.legend(
            unique.values(), unique.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False
        )
    _mtbf(below, ladder["levels"])
    return figure


def _mtbf(axes: Axes, levels: Sequence[Json]) -> None:
    """Draw a bar for each level, with the bound as a line in it. Without a reboot there is no mean, only the bound."""
    hours = [0.0 if level["mtbf_s"] is None else level["mtbf_s"] / 3600.0 for level in levels]
    axes.barh(range(len(levels)), hours, height=0.55, color=[_shade(n, len(levels), drawn=True) for n in range(len(levels))])
    for place, level in enumerate(levels):
        bound = None if level["mtbf_bound_s"] is None else level["mtbf_bound_s"] / 3600.0
        if bound is not None:
            axes.plot([bound, bound], [place - 0.38, place + 0.38], color=_BROKEN, linewidth=2.0)
        end = max(hours[place], bound or 0.0), place
        axes.annotate(_record(level), end, (6, 0), textcoords="offset points", va="center", fontsize="small")
    axes.plot([], [], color=_BROKEN, linewidth=2.0, label="at least, at 90 %")
    axes.set_yticks(range(len(levels)), [_words(level["name"]) for level in levels])
    axes.set_ylim(-0.6, len(levels) - 0.4)
    axes.margins(x=0.35)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("hours between unclean reboots (MTBF), by level")
    axes.legend(loc="lower right", fontsize="small", framealpha=0.8)
    _plain(axes)


def _record(level: Json) -> str:
    if not level["up_s"]:
        return "never measured"
    reboots = level["reboots"]
    if not reboots:
        return f"no reboot in {text.duration(level['up_s'])}"
    counted = f"{reboots:g} reboot{'' if reboots == 1 else 's'}"
    return f"{text.duration(level['mtbf_s'])}: {counted} in {text.duration(level['up_s'])}"


# --- shared by both figures ----------------------------------------------------------------------------------------------


def _behind(axes: Axes, timeline: Json, names: Sequence[str]) -> None:
    names = list(dict.fromkeys(names))
    for each in timeline["levels"]:
        shade = _shade(names.index(each["level"]), len(names), drawn=False)
        hatch: dict[str, Any] = {"hatch": "///", "edgecolor": "white"} if each["trial"] else {}
        axes.axvspan(
            each["from_wall_s"] / _DAY_S, each["to_wall_s"] / _DAY_S, facecolor=shade, zorder=0, linewidth=0, **hatch
        )
    for name in names:
        shade = _shade(names.index(name), len(names), drawn=False)
        axes.fill([], [], facecolor=shade, edgecolor=_QUIET, linewidth=0.5, label=f"level {_words(name)}")
    if any(each["trial"] for each in timeline["levels"]):
        axes.fill([], [], facecolor=_PALE[-1], edgecolor="white", hatch="///", linewidth=0.5, label="on trial")
    _box(axes, timeline)


def _box(axes: Axes, timeline: Json) -> None:
    labelled = set[str]()
    for each in timeline["box"]:
        if each["kind"] not in _SPANNED:
            continue
        label = f"{each.get('cause', '')} reboot".strip() if each["kind"] == "reboot" else each["kind"]
        unclean = each.get("cause") == "unclean"
        style: dict[str, Any] = {"color": _BROKEN if unclean else _QUIET, "linestyle": "-" if unclean else "--"}
        shown = "_" if label in labelled else label
        labelled.add(label)
        begin, end = each["from_wall_s"] / _DAY_S, each["to_wall_s"] / _DAY_S
        if each["kind"] == "reboot":
            axes.axvline(begin, linewidth=1.1, label=shown, **style)
            shown = "_"
        axes.axvspan(begin, end, color=style["color"], alpha=0.2, linewidth=0, label=shown)


def _shade(place: int, count: int, *, drawn: bool) -> str:
    """The shade of a level: a pale one behind curves, a strong one for bars."""
    shades = _STRONG if drawn else _PALE
    return shades[min(place * (len(shades) - 1) // max(1, count - 1), len(shades) - 1)]


def _dates(axes: Axes, begin_s: float, end_s: float) -> None:
    """Show local time on the x axis, from `begin_s` to `end_s`."""
    zone = LocalZone()
    locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    axes.set_xlim(begin_s / _DAY_S, max(end_s, begin_s + 60.0) / _DAY_S)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="both", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def _words(name: str) -> str:
    """Escape a name for matplotlib: `$` would start a formula, and a leading `_` would hide it from the legend."""
    shown = text.printable(name).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
