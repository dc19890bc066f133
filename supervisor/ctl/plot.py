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
    if len(names) > 1:
        raise Failed("Error: plot takes one name of a game or program, or stability, or no name: all games", USAGE)
    if not names:
        if "-o" in options:
            raise Failed("Error: -o takes the picture of one game: name it", USAGE)
        return _all(session, args)
    name, on_screen = names[0], "-o" not in options and text.is_screen()
    file = options.get("-o", f"{name}.png")
    ending = file.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise Failed(f"Error: -o takes a name that ends in .png or .svg, not {text.printable(file)!r}", USAGE)
    drawer = _drawer(on_screen=on_screen)
    since, series = since_query(options.get("--since", "all")), options.get("--series", _RETURN)
    session.warn_if_dead(to_stdout=True)
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


def _all(session: Session, options: list[str]) -> int:
    """Draw each game, and each program without one, that has recorded anything."""
    programs = [view for view in session.page("status")["programs"] if not view["service"]]
    codes = []
    for name in sorted({view.get("game") or view["name"] for view in programs}):
        try:
            codes.append(plot(session, [name, *options]))
        except Failed as failed:
            if failed.code == USAGE:
                raise
            session.warn(str(failed))
    return min(codes, default=GENERIC)


def _drawer(*, on_screen: bool) -> Any:
    """The module that draws. Raises Failed without its package."""
    try:
        if on_screen:
            from supervisor.ctl import terminal_plot

            return terminal_plot
        from supervisor.ctl import pictures
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
