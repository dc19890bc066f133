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
    """`plot GAME|PROGRAM|stability [--series FIGURE] [-o FILE.png|FILE.svg] [--since 12h|2d|TIME|boot|all]`.

    A picture. Of a game the returns (or another figure) of all its programs, over steps and over time, with levels and
    reboots behind them; what a resume took back is faint. stability: levels, reboots, trials and faults over time, and the
    MTBF of each level.
    """
    names, options = parse_options(args, valued=("-o", "--since", "--series"))
    if len(names) != 1:
        raise Failed("Error: plot takes the name of a game or program, or stability", USAGE)
    name, file = names[0], options.get("-o", f"{names[0]}.png")
    ending = file.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise Failed(f"Error: -o takes a name that ends in .png or .svg, not {text.printable(file)!r}", USAGE)
    try:
        from supervisor.ctl import pictures
    except ImportError:
        raise Failed("Error: plot needs matplotlib: pip install 'extralife[plot]'", GENERIC) from None
    since, series = since_query(options.get("--since", "all")), options.get("--series", _RETURN)
    session.warn_if_dead(to_stdout=True)
    timeline = session.page("timeline", since=since)
    if name == _STABILITY:
        figure = pictures.stability(timeline, session.page("level"))
    else:
        figure = pictures.learning(name, series, _curves(session, name, series, since), timeline)
    with files.aside(file) as path:
        pictures.written(figure, path, ending)
    session.say(text.printable(file))
    return OK


def _curves(session: Session, name: str, series: str, since: str | None) -> dict[str, Any]:
    """A figure of the programs of this game, or of this one program."""
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
