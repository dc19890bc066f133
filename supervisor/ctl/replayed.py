"""`simulate --journal FILE`: the load policy on boxes drawn from the journal, beside the actual and the best choices."""

from __future__ import annotations

import math
import os

from supervisor.ctl.locate import settings as find_settings
from supervisor.ctl.outcome import Failed
from supervisor.ctl.past import NoPast, past_of, rows_of
from supervisor.ctl.session import Session
from supervisor.ctl.simulated import draw, level_index, print_results
from supervisor.policy.level import speeds as pace
from supervisor.policy.level.load import LoadSettings
from supervisor.policy.level.worth import mtbf_bound_s
from supervisor.reports.climb_view import span
from supervisor.simulation.compare import AS_IT_WAS, OURS, Replayed, drawn_path, replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.simulation.past import Past

_DRAWS = 8
_DRAWS_OF_MONTHS = 3
_MONTHS_DAYS = 60.0
_MOST_DAYS = 366.0


def replayed(session: Session, options: dict[str, str], days: int | None, seed: int) -> int:
    """Replay the policy, with the settings of the configuration if there is one. Never writes to the journal."""
    past = _past(options["--journal"])
    found_settings = find_settings(session.options)
    rule = LoadSettings(names=past.names) if found_settings is None else found_settings.load.rule(past.names)
    start = level_index(options["--start"], past.names) if "--start" in options else None
    span_days = past.for_s / 86400.0 if days is None else float(days)
    if span_days > _MOST_DAYS:
        raise Failed(f"Error: the journal covers {span_days:.0f} days; choose at most 366 with --days")
    draws = _DRAWS_OF_MONTHS if span_days > _MONTHS_DAYS else _DRAWS
    found = replay(past, rule, days=days, seed=seed, draws=draws, start=start)
    was = [(AS_IT_WAS, past.path, past.deaths)] if days is None else []
    if "--out" in options:
        lines = [*was, (f"{OURS}, one box drawn", found.would_path, found.would_deaths)]
        draw(options["--out"], "the level, and where the box rebooted", past.names, found.days, lines)
    return print_results(session, options, found, page(found))


def _past(path: str) -> Past:
    from pathlib import Path

    from supervisor.model.codec import MalformedFact

    if os.path.isdir(path):  # noqa: PTH112  a state directory
        path = os.path.join(path, "journal.sqlite")  # noqa: PTH118
    try:
        return past_of(rows_of(Path(path)))
    except NoPast as error:
        raise Failed(f"Error: {path}: {error}") from error
    except (OSError, MalformedFact) as error:
        told = str(error) if isinstance(error, MalformedFact) or error.strerror is None else error.strerror
        raise Failed(f"Error: {told if path in told else f'{path}: {told}'}") from error


def page(found: Replayed) -> list[str]:
    """The record of each level, the result of each way of choosing levels, and the level over time."""
    past = found.past
    out = [f"{span(found.days * 86400.0)}, {found.draws} boxes drawn from the journal, seed {found.seed}"]
    wide = max(len(name) for name in (*past.names, "level"))
    out += ["", f"{'level':{wide}}  {'trained':>9}{'reboots':>9}  {'speed':>14}  it reboots"]
    out += [f"{name:{wide}}  {_shown(past, level)}" for level, name in enumerate(past.names)]
    unknown = [name for name, record in zip(past.names, past.records, strict=True) if not record.up_s]
    if unknown:
        out += ["", f"{', '.join(unknown)} never ran: all figures below guess its speed and reboots from usual boxes"]
    unit = past.names[past.unit]
    out += ["", "Kept work less 5 min of training a reboot, mean over the boxes; in brackets the least and the most of any"]
    out += [f"{'':16}{f'days at {unit}':>16}{'of the oracle':>26}{'reboots':>9}{'changes':>9}"]
    for way in found.ways:
        share = "-" if way.share is None or way.least is None or way.most is None else (
            f"{100 * way.share:.1f}% ({100 * way.least:.0f}..{100 * way.most:.0f})"
        )  # fmt: skip
        out += [f"{way.name:16}{way.work_days:16.2f}{share:>26}{way.reboots:9.1f}{way.changes:9.1f}"]
    if found.ways[0].name == AS_IT_WAS:
        out += ["", "as it was:", *drawn_path(past.names, past.path, past.deaths, found.days)]
        out += ["", "as it would have been, on the first box drawn:"]
    else:
        out += ["", "as it would be, on the first box drawn:"]
    return [*out, *drawn_path(past.names, found.would_path, found.would_deaths, found.days)]


def _shown(past: Past, level: int) -> str:
    record = past.records[level]
    mean, error = pace.gain(past.speeds, level, past.unit)
    if level == past.unit:
        speed = "1"
    elif past.speeds.readings[level]:
        speed = f"{math.exp(mean):.2f} +-{100 * error:.0f} %"
    else:
        speed = "unknown"
    if not record.up_s:
        reboots = "unknown"
    elif record.wear_s is not None:
        reboots = f"after {span(record.wear_s)} each time: it wears out"
    elif record.reboots:
        reboots = (
            f"every {span(record.up_s / record.reboots)} (>= {span(mtbf_bound_s(record.reboots, record.up_s))} at 90 %)"
        )
    else:
        reboots = f"not yet (MTBF >= {span(mtbf_bound_s(0.0, record.up_s))} at 90 %)"
    return f"{span(record.up_s):>9}{record.reboots:9.3g}  {speed:>14}  {reboots}"
