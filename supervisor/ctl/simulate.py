"""`simulate`: what the load policy would do on a simulated box, or on this one as its journal tells of it."""

from __future__ import annotations

import json
from dataclasses import asdict

from supervisor.ctl.session import OK, USAGE, Failed, Session, take, whole
from supervisor.policy.level.load import DEFAULT_NAMES
from supervisor.whatif.compare import Compared, compare, drawing
from supervisor.whatif.hosts import ARCHETYPES, drawn
from supervisor.whatif.play import DAY_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.whatif.compare import Path, Replayed
    from supervisor.whatif.hosts import Host

_MOST_DAYS = 366


def simulate(session: Session, args: list[str]) -> int:
    """`simulate [--host ARCHETYPE|--journal FILE] [--days N] [--seed N] [--start LEVEL] [--out FILE] [--why] [--json]`."""
    valued = ("--host", "--journal", "--days", "--seed", "--start", "--out")
    words, options = take(args, "--json", "--why", valued=valued)
    if words:
        raise Failed(f"Error: simulate takes options alone, not {words[0]!r}", USAGE)
    days = whole(options["--days"], "--days", least=1) if "--days" in options else None
    if days is not None and days > _MOST_DAYS:
        raise Failed(f"Error: --days takes {_MOST_DAYS} at most, not {days}", USAGE)
    seed = whole(options.get("--seed", "1"), "--seed")
    if "--journal" in options:
        if "--host" in options:
            raise Failed("Error: simulate takes --host or --journal, not both", USAGE)
        from supervisor.ctl.replayed import replayed

        return replayed(session, options, days, seed)
    host = _host(options.get("--host", "seed"))
    start = level_index(options.get("--start", "light"), DEFAULT_NAMES)
    found = compare(host, days=7 if days is None else days, seed=seed, start=start)
    if "--out" in options:
        title = f"{found.host}, seed {found.seed}: the level, and where the box rebooted"
        draw(options["--out"], title, found.levels, found.days, [("", found.path, found.deaths)])
    return tell(session, options, found, page(found))


def tell(session: Session, options: dict[str, str], found: Compared | Replayed, lines: list[str]) -> int:
    """What was found, as it was asked for: its page (`lines`), with each decision on request, or JSON."""
    if "--json" in options:
        session.say(json.dumps(asdict(found), indent=2))
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


def _host(name: str) -> Host:
    if name in ARCHETYPES:
        return ARCHETYPES[name]
    number = name.removeprefix("fresh")
    if name.startswith("fresh") and number.isdecimal():
        return drawn(int(number))
    import difflib

    near = difflib.get_close_matches(name, ARCHETYPES, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise Failed(f"Error: --host takes {', '.join(ARCHETYPES)} or freshN (drawn at random), not {name!r}{hint}", USAGE)


def page(found: Compared) -> list[str]:
    """A table of what each way of choosing makes, and the level over time."""
    out = [f"{found.host}, {found.days:g} days, seed {found.seed}: kept work less 5 min of training a reboot"]
    out += ["", f"{'':16}{'days at light':>14}{'of the oracle':>15}{'reboots':>9}{'changes':>9}"]
    out += [
        f"{row.name:16}{row.work_days:14.2f}{100 * row.share:14.1f}%{row.reboots:9}{row.changes:9}" for row in found.outcomes
    ]
    return [*out, "", *drawing(found)]


def draw(path: str, title: str, levels: Sequence[str], days: float, lines: Sequence[tuple[str, Path, Path]]) -> None:
    """The level over time as a picture; the ending of the file says which kind. `lines` are (name, path, reboots)."""
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
