"""The load policy, every fixed level and the oracle on one box: what `supervisorctl simulate` shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.policy.load import LoadSettings
from supervisor.whatif.held import Held
from supervisor.whatif.hosts import LEVELS, Host
from supervisor.whatif.play import DAY_S, Fixed, Play, Played, World, oracle


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way of choosing has made: kept work in days of training at light, and its share of the oracle's."""

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
    outcomes: tuple[Outcome, ...]
    path: tuple[tuple[float, int], ...]
    deaths: tuple[tuple[float, int], ...]
    whys: tuple[tuple[float, int, str], ...] = field(repr=False)


def compare(host: Host, *, days: float, seed: int, start: int = 0, settings: LoadSettings | None = None) -> Compared:
    """One play each, with the same chances."""
    settings = LoadSettings() if settings is None else settings
    marks_s, world = (days * DAY_S,), World()
    held = Held(start, settings, whys=[])
    ours = Play(host, held, seed, world).run(marks_s)
    best = oracle(host, seed, world, marks_s)
    fixed = [(f"always {settings.names[k]}", Play(host, Fixed(k), seed, world).run(marks_s)) for k in range(LEVELS)]
    rows = [("hold and probe", ours), ("oracle", best), *fixed]
    return Compared(
        host=host.name,
        days=days,
        seed=seed,
        levels=settings.names,
        outcomes=tuple(_outcome(name, played, best) for name, played in rows),
        path=tuple(ours.path),
        deaths=tuple(ours.deaths),
        whys=tuple(held.whys or ()),
    )


def _outcome(name: str, played: Played, best: Played) -> Outcome:
    return Outcome(name, played.work[0] / DAY_S, played.work[0] / best.work[0], played.reboots[0], len(played.path) - 1)


def drawing(compared: Compared, columns: int = 72) -> list[str]:
    """The level over time in letters: a line for each level, the highest first; `x` where the box rebooted."""
    whole_s = compared.days * DAY_S
    each_s = whole_s / columns
    grid = [[" "] * columns for _ in compared.levels]
    ends = [*(at_s for at_s, _ in compared.path[1:]), whole_s]
    for (from_s, level), until_s in zip(compared.path, ends, strict=True):
        last = min(columns - 1, int((until_s - 1e-6) / each_s))
        for column in range(min(columns - 1, int(from_s / each_s)), last + 1):
            grid[level][column] = "-"
    for at_s, level in compared.deaths:
        grid[level][min(columns - 1, int(at_s / each_s))] = "x"
    wide = max(len(name) for name in compared.levels)
    lines = [f"{name:>{wide}} |{''.join(row)}" for name, row in zip(compared.levels, grid, strict=True)]
    axis = f"{'':>{wide}} +{'-' * columns}"
    scale = f"{'':>{wide}}  0{f'{compared.days:g} days':>{columns - 1}}"
    return [*reversed(lines), axis, scale]
