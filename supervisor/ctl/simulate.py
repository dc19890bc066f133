"""`simulate`: the choices of the load policy on a simulated box, or on this one as reconstructed from its journal."""

from __future__ import annotations

from supervisor.ctl.outcome import USAGE, Failed
from supervisor.ctl.session import Session, parse_int, parse_options
from supervisor.ctl.simulated import draw, level_index, print_results
from supervisor.policy.level.load import DEFAULT_NAMES
from supervisor.simulation.compare import Compared, compare, drawing
from supervisor.simulation.hosts import ARCHETYPES, drawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.simulation.hosts import BoxModel

_MOST_DAYS = 366


def simulate(session: Session, args: list[str]) -> int:
    """`simulate [--host ARCHETYPE|--journal FILE] [--days N] [--seed N] [--start LEVEL]
    [--out FILE.svg|png] [--why] [--json]`.

    Simulate the choice of levels on a typical box, or on this one from its journal. It is compared with every fixed
    level and with the best choice in hindsight (oracle); needs no daemon, and only reads the journal.
    """  # noqa: D205
    valued = ("--host", "--journal", "--days", "--seed", "--start", "--out")
    words, options = parse_options(args, "--json", "--why", valued=valued)
    if words:
        raise Failed(f"Error: simulate takes only options, not {words[0]!r}", USAGE)
    days = parse_int(options["--days"], "--days", least=1) if "--days" in options else None
    if days is not None and days > _MOST_DAYS:
        raise Failed(f"Error: --days takes at most {_MOST_DAYS}, not {days}", USAGE)
    seed = parse_int(options.get("--seed", "1"), "--seed")
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
    return print_results(session, options, found, page(found))


def _host(name: str) -> BoxModel:
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
    """A table with the result of each way of choosing levels, and the level over time."""
    out = [f"{found.host}, {found.days:g} days, seed {found.seed}: kept work less 5 min of training a reboot"]
    out += ["", f"{'':16}{'days at light':>14}{'of the oracle':>15}{'reboots':>9}{'changes':>9}"]
    out += [
        f"{row.name:16}{row.work_days:14.2f}{100 * row.share:14.1f}%{row.reboots:9}{row.changes:9}" for row in found.outcomes
    ]
    return [*out, "", *drawing(found)]
