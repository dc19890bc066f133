"""The load policy, every fixed level and the oracle on one box, or on boxes drawn from a past: `supervisorctl simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from statistics import mean
from typing import Final

from supervisor.policy.level.load import LoadSettings
from supervisor.records import dataclass
from supervisor.simulation.hosts import BoxModel
from supervisor.simulation.past import Past, drawn_from, world
from supervisor.simulation.play import DAY_S, Fixed, Play, Played, World, oracle
from supervisor.simulation.policy_player import PolicyPlayer

OURS: Final = "hold and probe"
ORACLE: Final = "oracle"
AS_IT_WAS: Final = "as it was"
Path = tuple[tuple[float, int], ...]  # (seconds, level)


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The result of one chooser: kept work in days of training at light, and its share of the oracle's."""

    name: str
    work_days: float
    share: float
    reboots: int
    changes: int


@dataclass(frozen=True, slots=True)
class Compared:
    """`path` and `deaths` are (seconds, level); `whys` are (seconds, level, why) of each change."""

    host: str
    days: float
    seed: int
    levels: tuple[str, ...]
    outcomes: tuple[PolicyOutcome, ...]
    path: Path
    deaths: Path
    whys: tuple[tuple[float, int, str], ...] = field(repr=False)


def compare(host: BoxModel, *, days: float, seed: int, start: int = 0, settings: LoadSettings | None = None) -> Compared:
    """One play for each chooser, with the same random numbers."""
    settings = LoadSettings() if settings is None else settings
    held = PolicyPlayer(start, settings, whys=[])
    rows = _played(host, held, seed, World(), days)
    ours, best = rows[OURS], rows[ORACLE]
    return Compared(
        host=host.name,
        days=days,
        seed=seed,
        levels=settings.names,
        outcomes=tuple(_outcome(name, played, best) for name, played in rows.items()),
        path=tuple(ours.path),
        deaths=tuple(ours.deaths),
        whys=tuple(held.whys or ()),
    )


def _played(host: BoxModel, held: PolicyPlayer, seed: int, world: World, days: float) -> dict[str, Played]:
    """The policy, the oracle and each fixed level on one box, with the same random numbers."""
    marks_s = (days * DAY_S,)
    found = {OURS: Play(host, held, seed, world).run(marks_s), ORACLE: oracle(host, seed, world, marks_s)}
    for level, name in enumerate(held.settings.names):
        found[f"always {name}"] = Play(host, Fixed(level), seed, world).run(marks_s)
    return found


def _outcome(name: str, played: Played, best: Played) -> PolicyOutcome:
    return PolicyOutcome(
        name, played.work[0] / DAY_S, played.work[0] / best.work[0], played.reboots[0], len(played.path) - 1
    )


def drawing(compared: Compared, columns: int = 72) -> list[str]:
    """The level over time as text: a line for each level, the highest first; `x` where the box rebooted."""
    return drawn_path(compared.levels, compared.path, compared.deaths, compared.days, columns)


def drawn_path(levels: Sequence[str], path: Path, deaths: Path, days: float, columns: int = 72) -> list[str]:
    """As `drawing`, for any path."""
    whole_s = days * DAY_S
    each_s = whole_s / columns
    grid = [[" "] * columns for _ in levels]
    ends = [*(at_s for at_s, _ in path[1:]), whole_s]
    for (from_s, level), until_s in zip(path, ends, strict=True):
        last = min(columns - 1, int((until_s - 1e-6) / each_s))
        for column in range(min(columns - 1, int(from_s / each_s)), last + 1):
            grid[level][column] = "-"
    for at_s, level in deaths:
        grid[level][min(columns - 1, int(at_s / each_s))] = "x"
    wide = max(len(name) for name in levels)
    lines = [f"{name:>{wide}} |{''.join(row)}" for name, row in zip(levels, grid, strict=True)]
    axis = f"{'':>{wide}} +{'-' * columns}"
    hours = days * 24.0
    told = f"{days:.3g} days" if days == 1 or days >= 2 else f"{hours:.3g} h" if hours >= 2 else f"{60 * hours:.3g} min"
    scale = f"{'':>{wide}}  0{told:>{columns - 1}}"
    return [*reversed(lines), axis, scale]


# --- a box's own past ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """The mean result of one chooser on the drawn boxes. Shares are of the oracle's work: mean, least, most.

    None: in such a short time even the oracle keeps no work.
    """

    name: str
    work_days: float
    share: float | None
    least: float | None
    most: float | None
    reboots: float
    changes: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of `replay`; `would_path` and `would_deaths` are those of the first drawn box."""

    days: float
    draws: int
    seed: int
    past: Past
    ways: tuple[Way, ...]
    would_path: Path
    would_deaths: Path
    whys: tuple[tuple[float, int, str], ...] = field(repr=False)


def replay(past: Past, settings: LoadSettings, *, days: float | None, seed: int, draws: int, start: int | None) -> Replayed:
    """The policy on `draws` boxes that this one could be. `days` None: as long as the time that the journal covers."""
    at = world(past)
    for_days = past.for_s / DAY_S if days is None else days
    start = past.path[0][1] if start is None else start
    hosts = [drawn_from(past, number) for number in range(seed, seed + draws)]
    helds = [PolicyPlayer(start, settings, past.costs, whys=[]) for _ in hosts]
    plays = [
        _played(host, held, number, at, for_days) for number, (host, held) in enumerate(zip(hosts, helds, strict=True), seed)
    ]
    best = [each[ORACLE].work[0] for each in plays]
    ways = [_way(name, [each[name] for each in plays], best) for name in plays[0]]
    if days is None:
        ways.insert(0, _as_it_was(past, hosts, at, best))
    first = plays[0][OURS]
    return Replayed(
        for_days, draws, seed, past, tuple(ways), tuple(first.path), tuple(first.deaths), tuple(helds[0].whys or ())
    )


def _way(name: str, plays: list[Played], best: list[float]) -> Way:
    reboots, changes = [played.reboots[0] for played in plays], [len(played.path) - 1 for played in plays]
    return _told(name, [played.work[0] for played in plays], best, mean(reboots), mean(changes))


def _as_it_was(past: Past, hosts: list[BoxModel], at: World, best: list[float]) -> Way:
    """The work of the real box, with the speeds of each drawn box, scored in the same way as the others."""
    lost_s = at.interval_s / 2.0 + at.penalty_s
    works = []
    for host in hosts:
        ran = sum(speed * for_s for speed, for_s in zip(host.speeds, past.ran_s, strict=True))
        works.append(ran - lost_s * sum(host.speeds[level] for _, level in past.deaths))
    return _told(AS_IT_WAS, works, best, float(len(past.deaths)), float(len(past.path) - 1))


def _told(name: str, works: list[float], best: list[float], reboots: float, changes: float) -> Way:
    shares = [work / most for work, most in zip(works, best, strict=True)] if min(best) > 0.0 else []
    share, least, most = (mean(shares), min(shares), max(shares)) if shares else (None, None, None)
    return Way(name, mean(works) / DAY_S, share, least, most, reboots, changes)
