"""Printing and drawing of results, shared by `simulate` and `simulate --journal`."""

from __future__ import annotations

from dataclasses import asdict

from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.simulation.play import DAY_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.ctl.session import Session
    from supervisor.simulation.compare import Compared, Path, Replayed


def print_results(session: Session, options: dict[str, str], found: Compared | Replayed, lines: list[str]) -> int:
    """Print the results: the page (`lines`), with each decision after it for --why; or JSON for --json."""
    if "--json" in options:
        session.say_json(asdict(found))
        return OK
    for line in lines:
        session.say(line)
    if "--why" in options:
        for at_s, _, why in found.whys:
            session.say(f"{at_s / 3600:7.1f} h  {why}")
    return OK


def level_index(name: str, levels: Sequence[str]) -> int:
    if name not in levels:
        raise Failed(f"Error: --start takes one of {', '.join(levels)}, not {name!r}", USAGE)
    return levels.index(name)


def draw(path: str, title: str, levels: Sequence[str], days: float, lines: Sequence[tuple[str, Path, Path]]) -> None:
    """Draw the level over time. The ending of the file name selects the format. `lines` are (name, path, reboots)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        told = "Error: --out needs matplotlib, which is not installed: pip install 'extralife[plot]'"
        raise Failed(f"{told}; without it, the page itself draws the level in letters") from None
    figure = Figure(figsize=(10, 3), layout="constrained")
    axes = figure.subplots()
    for name, moves, deaths in lines:
        hours = [at_s / 3600.0 for at_s, _ in moves] + [days * DAY_S / 3600.0]
        (line,) = axes.step(hours, [level for _, level in moves] + [moves[-1][1]], where="post", linewidth=1.0, label=name)
        marks = [at_s / 3600.0 for at_s, _ in deaths], [level for _, level in deaths]
        axes.plot(*marks, "x", color="r" if len(lines) == 1 else line.get_color(), markersize=4)
    if len(lines) > 1:
        axes.legend(loc="best", fontsize="small")
    axes.set_yticks(range(len(levels)), levels)
    axes.set_xlabel("hours")
    axes.set_title(title)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise Failed(f"Error: cannot write {path}: {error}") from error
