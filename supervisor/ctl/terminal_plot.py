"""Pictures in a terminal, by plotext: the figures of `pictures.py` as far as characters can show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotext

from supervisor.ctl import text

Json = dict[str, Any]
_COLOURS: Final = ("blue+", "orange+", "green+", "magenta+", "cyan+", "default")
_HOUR_S: Final = 3600.0
_TICKS: Final = 5


def learning(name: str, series: str, curves: Json, size: tuple[int, int]) -> list[str]:
    """A figure of all programs of a game, over steps or, if unknown, over hours, without what a resume took back."""
    of_steps = any(step is not None for each in curves["subjects"] for step in each["env_steps"])
    _begin(f"{text.printable(name)}: {text.printable(series).replace('_', ' ')}", size)
    first_s = min((each["wall_s"][0] for each in curves["subjects"] if each["wall_s"]), default=0.0)
    every: list[float] = []
    for place, each in enumerate(curves["subjects"]):
        drawn = each["series"][series]
        values = drawn.get("mean") or drawn.get("newest") or []
        xs = each["env_steps"] if of_steps else [(wall_s - first_s) / _HOUR_S for wall_s in each["wall_s"]]
        rows = zip(xs, values, each["kept"], strict=True)
        points = sorted((x, y) for x, y, kept in rows if kept and x is not None and y is not None)
        if points:
            _line(points, text.printable(each["program"]), place)
            every += [x for x, _ in points]
    return _end(every, "environment steps" if of_steps else "hours")


def stability(timeline: Json, size: tuple[int, int]) -> list[str]:
    """The level over time, with a line for each reboot."""
    begin_s = timeline["since_wall_s"]
    names = list(dict.fromkeys(each["level"] for each in timeline["levels"]))
    reboots = [(each["from_wall_s"] - begin_s) / _HOUR_S for each in timeline["box"] if each["kind"] == "reboot"]
    _begin(f"levels, and {text.count(len(reboots), 'reboot')}", size)
    points = [
        ((each[end] - begin_s) / _HOUR_S, float(names.index(each["level"])))
        for each in timeline["levels"]
        for end in ("from_wall_s", "to_wall_s")
    ]
    if points:
        _line(points, "", 0)
        plotext.yticks(range(len(names)), [text.printable(each) for each in names])
    for at_h in reboots:
        plotext.vline(at_h, "red+")
    return _end([x for x, _ in points], "hours")


def _begin(title: str, size: tuple[int, int]) -> None:
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(*size)
    plotext.title(title)


def _line(points: Sequence[tuple[float, float]], label: str, place: int) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    plotext.plot(xs, ys, label=label or None, marker="braille", color=_COLOURS[place % len(_COLOURS)])


def _end(xs: Sequence[float], unit: str) -> list[str]:
    if xs:
        ticks = [min(xs) + (max(xs) - min(xs)) * place / (_TICKS - 1) for place in range(_TICKS)]
        plotext.xticks(ticks, [text.number(tick) for tick in ticks])
    plotext.xlabel(unit)
    built: str = plotext.build()
    return (built if text.Paint(on=True).on else plotext.uncolorize(built)).splitlines()
