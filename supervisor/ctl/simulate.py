"""`simulate`: what the load policy would do on a simulated box, beside every fixed level and an oracle."""

from __future__ import annotations

import json
from dataclasses import asdict

from supervisor.ctl.session import OK, USAGE, Failed, Session, take, whole
from supervisor.policy.load import DEFAULT_NAMES
from supervisor.whatif.compare import Compared, compare, drawing
from supervisor.whatif.hosts import ARCHETYPES, drawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.whatif.hosts import Host

_MOST_DAYS = 366


def simulate(session: Session, args: list[str]) -> int:
    """`simulate [--host ARCHETYPE] [--days N] [--seed N] [--start LEVEL] [--out FILE] [--why] [--json]`."""
    words, options = take(args, "--json", "--why", valued=("--host", "--days", "--seed", "--start", "--out"))
    if words:
        raise Failed(f"Error: simulate takes options alone, not {words[0]!r}", USAGE)
    days = whole(options.get("--days", "7"), "--days", least=1)
    if days > _MOST_DAYS:
        raise Failed(f"Error: --days takes {_MOST_DAYS} at most, not {days}", USAGE)
    seed, start = whole(options.get("--seed", "1"), "--seed"), options.get("--start", "light")
    host = _host(options.get("--host", "seed"))
    levels = DEFAULT_NAMES
    if start not in levels:
        raise Failed(f"Error: --start takes one of {', '.join(levels)}, not {start!r}", USAGE)
    found = compare(host, days=days, seed=seed, start=levels.index(start))
    if "--out" in options:
        _draw(found, options["--out"])
    if "--json" in options:
        session.say(json.dumps(asdict(found), indent=2))
        return OK
    for line in page(found):
        session.say(line)
    if "--why" in options:
        for at_s, _, why in found.whys:
            session.say(f"{at_s / 3600:7.1f} h  {why}")
    return OK


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


def _draw(found: Compared, path: str) -> None:
    """The level over time as a picture; the ending of the file says which kind."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        told = "Error: --out needs matplotlib, which is not installed: pip install 'extralife[plot]'"
        raise Failed(f"{told}; without it, the page itself draws the level in letters") from None
    figure = Figure(figsize=(10, 3), layout="constrained")
    axes = figure.subplots()
    hours = [at_s / 3600.0 for at_s, _ in found.path] + [found.days * 24.0]
    axes.step(hours, [level for _, level in found.path] + [found.path[-1][1]], where="post", linewidth=1.0)
    axes.plot([at_s / 3600.0 for at_s, _ in found.deaths], [level for _, level in found.deaths], "rx", markersize=4)
    axes.set_yticks(range(len(found.levels)), found.levels)
    axes.set_xlabel("hours")
    axes.set_title(f"{found.host}, seed {found.seed}: the level, and where the box rebooted")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise Failed(f"Error: cannot write {path}: {error}") from error
