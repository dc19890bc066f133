"""`plot`: pictures of a night for a report or a chat: the learning curves of a game, or the stability of the box."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import files, text
from supervisor.ctl.accounts import since_query
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options

_STABILITY = "stability"
_ENDINGS = ("png", "svg")
_POINTS = 1000
_RETURN = "mean_return"


def plot(session: Session, args: list[str]) -> int:
    """`plot [GAME|PROGRAM|stability] [--series FIGURE] [-o FILE.png|FILE.svg] [--since 12h|2d|TIME|boot|all]`.

    A picture: in the terminal, or with -o (and where there is no terminal) in a file; without a name one of each game.
    Of a game the returns (or another figure) of all its programs, over steps and over time, with levels and reboots
    behind them; what a resume took back is faint. stability: levels, reboots, trials and faults over time, and the MTBF
    of each level.
    """
    names, options = parse_options(args, valued=("-o", "--since", "--series"))
    if len(names) > 1 or (not names and "-o" in options):
        raise Failed("Error: plot takes the name of a game or program, or stability; without a name it takes no -o", USAGE)
    drawer = _drawer(on_screen="-o" not in options and text.is_screen())
    session.warn_if_dead(to_stdout=True)
    if names:
        return _draw(session, drawer, names[0], options)
    drawn = 0
    views = session.page("status")["programs"]
    for name in sorted({view.get("game") or view["name"] for view in views if not view["service"]}):
        try:
            drawn += _draw(session, drawer, name, options) == OK
        except Failed as failed:
            session.warn(str(failed))
    return OK if drawn else GENERIC


def _draw(session: Session, drawer: Any, name: str, options: dict[str, str]) -> int:
    on_screen, file = "-o" not in options and text.is_screen(), options.get("-o", f"{name}.png")
    ending = file.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise Failed(f"Error: -o takes a name that ends in .png or .svg, not {text.printable(file)!r}", USAGE)
    since, series = since_query(options.get("--since", "all")), options.get("--series", _RETURN)
    timeline = session.page("timeline", since=since)
    curves = None if name == _STABILITY else _curves(session, name, series, since)
    if on_screen:
        for line in drawer.stability(timeline) if curves is None else drawer.learning(name, series, curves):
            session.say(line)
        return OK
    if curves is None:
        figure = drawer.stability(timeline, session.page("level"))
    else:
        figure = drawer.learning(name, series, curves, timeline)
    with files.aside(file) as path:
        drawer.written(figure, path, ending)
    session.say(text.printable(file))
    return OK


def _drawer(*, on_screen: bool) -> Any:
    """The module that draws. Raises Failed without its package."""
    try:
        if on_screen:
            from supervisor.features.recorder import terminal_plot

            return terminal_plot
        from supervisor.features.recorder import pictures
    except ImportError:
        what = "plot needs plotext to draw in a terminal" if on_screen else "plot needs matplotlib"
        other = "; or name a file: -o FILE.png" if on_screen else ""
        raise Failed(f"Error: {what}: pip install 'extralife[plot]'{other}", GENERIC) from None
    return pictures


def _curves(session: Session, name: str, series: str, since: str | None) -> dict[str, Any]:
    programs = session.page("status")["programs"]
    chosen = [view["name"] for view in programs if name in {view["name"], view.get("game")}]
    if not chosen:
        known = sorted({view.get("game") or view["name"] for view in programs})
        raise Failed(
            f"Error: no game or program is called {text.printable(name)}; there are: {', '.join(known) or 'none'}", GENERIC
        )
    found = session.page("curves", series=series, subjects=",".join(chosen), since=since, points=_POINTS)
    values = (value for each in found["subjects"] for line in each["series"][series].values() for value in line)
    if not any(value is not None for value in values):
        what = "returns" if series == _RETURN else text.printable(series)
        raise Failed(f"Error: nothing was recorded of the {what} of {text.printable(name)} in that time", GENERIC)
    return found
