"""Pictures in a terminal, by plotext: the figures of `pictures.py` as far as characters can show them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, Final

import plotext

from supervisor.ctl import text

Json = dict[str, Any]
Point = tuple[float, float]
_COLOURS: Final = ("blue+", "orange+", "green+", "magenta+", "cyan+", "default")
_HOUR_S: Final = 3600.0
_TICKS: Final = 5
_MOST_LINES: Final = 30


def learning(name: str, series: str, curves: Json) -> list[str]:
    """A figure of all programs of a game, over steps or, if unknown, over hours, without what a resume took back."""
    subjects = curves["subjects"]
    of_steps = any(step is not None for each in subjects for step in each["env_steps"])
    first_s = min((wall_s for each in subjects for wall_s in each["wall_s"]), default=0.0)
    lines = {}
    for each in subjects:
        values = each["series"][series].get("mean") or each["series"][series].get("newest") or []
        xs = each["env_steps"] if of_steps else [(wall_s - first_s) / _HOUR_S for wall_s in each["wall_s"]]
        rows = zip(xs, values, each["kept"], strict=True)
        lines[each["program"]] = sorted((x, y) for x, y, kept in rows if kept and x is not None and y is not None)
    return _drawn(f"{name}: {series.replace('_', ' ')}", lines, "environment steps" if of_steps else "hours")


def stability(timeline: Json) -> list[str]:
    """The level over time, with a line for each reboot."""
    begin_s: float = timeline["since_wall_s"]

    def hours(wall_s: float) -> float:
        return (wall_s - begin_s) / _HOUR_S

    names = list(dict.fromkeys(each["level"] for each in timeline["levels"]))
    reboots = [hours(each["from_wall_s"]) for each in timeline["box"] if each["kind"] == "reboot"]
    ends = ((each, end) for each in timeline["levels"] for end in ("from_wall_s", "to_wall_s"))
    points = [(hours(each[end]), float(names.index(each["level"]))) for each, end in ends]
    return _drawn(f"levels, and {text.count(len(reboots), 'reboot')}", {"": points}, "hours", names, reboots)


def _drawn(
    title: str, lines: dict[str, list[Point]], unit: str, names: Sequence[str] = (), marks: Sequence[float] = ()
) -> list[str]:
    """`names` are those of the values 0, 1, 2 ...; `marks` are upright lines."""
    size = shutil.get_terminal_size()
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(size.columns, min(_MOST_LINES, size.lines - 2))
    plotext.title(text.printable(title))
    plotext.xlabel(unit)
    known = {name: points for name, points in lines.items() if points}
    for (name, points), colour in zip(known.items(), _COLOURS * (len(known) // len(_COLOURS) + 1), strict=False):
        xs, ys = zip(*points, strict=True)
        plotext.plot(xs, ys, label=text.printable(name) or None, marker="braille", color=colour)
    every = [x for points in known.values() for x, _ in points] or [0.0]
    ticks = [min(every) + (max(every) - min(every)) * place / (_TICKS - 1) for place in range(_TICKS)]
    plotext.xticks(ticks, [text.number(tick) for tick in ticks])
    if names:
        plotext.yticks(range(len(names)), [text.printable(name) for name in names])
    for mark in marks:
        plotext.vline(mark, "red+")
    built: str = plotext.build()
    return (built if text.Paint(on=True).on else plotext.uncolorize(built)).splitlines()
