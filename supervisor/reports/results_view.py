"""The test games of all runs, combined: a row for each game, algorithm and resolution, and one figure over all games.

Within a row, over *seeds* (separate runs): mean, standard deviation (n - 1), smallest and largest of the runs' mean
returns in their newest whole test, and the human-normalised scores of these.

Over games, for each algorithm and resolution: the interquartile mean of the human-normalised scores of all runs, with a
95 % interval (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"):

* sort all runs of all games, drop a quarter of them (rounded down) at each end, take the mean of the rest;
* the interval: draw runs with replacement within each game, 2,000 times, and take the 2.5th and the 97.5th percentile.
  If no game has two runs, there is no interval.

Worked example: hns of one seed each in eight games 0, 0.1, 0.2, 0.4, 0.6, 0.9, 1.1, 13.9: two go at each end, the rest
are 0.2, 0.4, 0.6, 0.9, and their mean is 0.525.

Why not the mean over games: the 13.9 of one game would make it 2.15, better than human, although seven of eight are below
twice the human. Why not the median: it would not change if half of the games fell to zero. Why not the best seed: it is
luck.

The draws come from a counter and are the same each time, so that two requests do not give two answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from supervisor.reports.sources import Json, NewestResult, Sources

RESAMPLES: Final = 2000
_TAIL: Final = 0.025  # of the resamples, on either side of the interval
_WORD: Final = 2**64 - 1


def results(sources: Sources) -> Json:
    """The newest tests of all runs, combined."""
    return results_view(sources.results())


def results_view(tested: Sequence[NewestResult]) -> dict[str, Any]:
    """{"rows": one a game, algorithm and resolution, "overall": one an algorithm and resolution, "runs": one a run}."""
    runs = sorted(tested, key=lambda run: (run.game, run.algo, run.resolution or 0, run.program))
    groups: dict[tuple[str, str, int | None], list[NewestResult]] = {}
    for run in runs:
        groups.setdefault((run.game, run.algo, run.resolution), []).append(run)
    rows = [_row(key, group) for key, group in groups.items()]
    overall = [_overall(key, group) for key, group in _by_setting(runs).items()]
    return {"rows": rows, "overall": overall, "runs": [_run(run) for run in runs]}


def interquartile_mean(scores: Sequence[float]) -> float:
    """The mean without the lowest and the highest quarter (each rounded down), of at least one.

    Example: 1, 2, 3, 4, 100: one goes at each end, the mean of 2, 3, 4 is 3.
    """
    cut = len(scores) // 4
    kept = sorted(scores)[cut : len(scores) - cut]
    return sum(kept) / len(kept)


def interval(by_game: Mapping[str, Sequence[float]], resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """The 95 % interval of the interquartile mean, by drawing runs within each game; None if no game has two runs."""
    if all(len(scores) < 2 for scores in by_game.values()):
        return None
    words = _words()
    found = []
    for _ in range(resamples):
        drawn = [scores[next(words) % len(scores)] for scores in by_game.values() for _ in scores]
        found.append(interquartile_mean(drawn))
    found.sort()
    return found[int(resamples * _TAIL)], found[min(resamples - 1, int(resamples * (1 - _TAIL)))]


def _words(seed: int = 0) -> Iterator[int]:
    """SplitMix64 (Steele et al. 2014): well mixed words from a counter."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        word = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
        yield word ^ (word >> 31)


def _by_setting(runs: Sequence[NewestResult]) -> dict[tuple[str, int | None], dict[str, list[float]]]:
    """Scores by game, for each algorithm and resolution that has any."""
    found: dict[tuple[str, int | None], dict[str, list[float]]] = {}
    for run in runs:
        if run.hns is not None:
            found.setdefault((run.algo, run.resolution), {}).setdefault(run.game, []).append(run.hns)
    return found


def _row(key: tuple[str, str, int | None], runs: Sequence[NewestResult]) -> dict[str, Any]:
    game, algo, resolution = key
    returns = [run.mean_return for run in runs]
    hns = [run.hns for run in runs if run.hns is not None]
    hours = [run.hours_trained for run in runs if run.hours_trained is not None]
    return {
        "game": game, "algo": algo, "resolution": resolution, "seeds": len(runs),
        "env_steps_min": min(run.env_steps for run in runs), "env_steps_max": max(run.env_steps for run in runs),
        "hours_trained": _mean(hours), "test_games": sum(run.games for run in runs),
        "return_mean": _mean(returns), "return_std": _std(returns), "return_min": min(returns), "return_max": max(returns),
        "hns_mean": _mean(hns), "hns_min": min(hns, default=None), "hns_max": max(hns, default=None),
    }  # fmt: skip


def _overall(key: tuple[str, int | None], by_game: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    scores = [score for group in by_game.values() for score in group]
    low, high = interval(by_game) or (None, None)
    return {
        "algo": key[0], "resolution": key[1], "games": len(by_game), "runs": len(scores),
        "hns_iqm": interquartile_mean(scores), "hns_iqm_low": low, "hns_iqm_high": high, "hns_mean": _mean(scores),
    }  # fmt: skip


def _run(run: NewestResult) -> dict[str, Any]:
    return {
        "program": run.program, "game": run.game, "algo": run.algo, "resolution": run.resolution, "seed": run.seed,
        "env_steps": run.env_steps, "hours_trained": run.hours_trained, "test_games": run.games,
        "return": run.mean_return, "hns": run.hns,
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _std(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    spread: float = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return spread
