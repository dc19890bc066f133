"""Records of a training beside its checkpoints: a point of the curves twice a minute, a log line each minute.

A rate is measured between two marks by the wall clock, and includes the time of saves and tests in between. The replay
ratio is the measured one (transitions learned per environment step), not the setting. If it is lower than the setting,
something delays learning; if it is higher, the learner is catching up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from workers.metrics import Metrics
from workers.scores import human_normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from workers.learner import Learner
    from workers.results import Evaluation

POINT_S: Final = 30.0
POINTS_A_LINE: Final = 2


class Records:
    """Call `begin` when the training begins, then `look` regularly. No method waits for a disk."""

    def __init__(self, learner: Learner, run_dir: Path) -> None:
        self.learner, self.run_dir = learner, run_dir
        self._metrics: Metrics | None = None
        self._before: Mark | None = None
        self._points = 0
        self.shares: dict[str, float] = {}  # of the time by activity, as of the newest point
        self.test_return: float | None = None

    def begin(self, now_s: float, beyond: Iterable[Evaluation], newest: Evaluation | None) -> None:
        """`beyond`: tests at later steps, from before a crash. They are not played again, so their points are kept."""
        self.test_return = None if newest is None else newest.mean_return
        self._before = mark(self.learner, now_s)
        self.learner.watch.shares()  # resets: the time before the training does not count
        self._open()
        for found in beyond:
            self._show(found)

    def look(self, now_s: float, learner_figures: Mapping[str, float | None]) -> str:
        """A log line when one is due, else empty; `learner_figures` are those of `Learner.figures`."""
        learner, before = self.learner, self._before
        if before is None or now_s - before.at_s < POINT_S:
            return ""
        self._before = after = mark(learner, now_s)
        measured, self.shares = rates(before, after, learner.args.batch_size), learner.watch.shares()
        if self._metrics is not None:
            self._metrics.offer(learner.env_steps, point(learner, learner_figures, measured, self.shares))
        self._points += 1
        return "" if self._points % POINTS_A_LINE else line(measured, self.shares)

    def for_the_beat(self) -> dict[str, float]:
        """Fields of the beat from the newest point and the newest test; empty before the first of either."""
        shares = {f"share_{part}": share for part, share in self.shares.items() if part != "rest"}
        return shares if self.test_return is None else {**shares, "test_return": self.test_return}

    def add_test(self, found: Evaluation) -> None:
        self.test_return = found.mean_return
        self._show(found)

    def _show(self, found: Evaluation) -> None:
        self._open()
        if self._metrics is not None:
            self._metrics.offer(found.first.env_steps, of_test(found))

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def _open(self) -> None:
        args = self.learner.args
        if self._metrics is None and args.tensorboard:
            settings = {each.name: getattr(args, each.name) for each in fields(args)}
            self._metrics = Metrics(self.run_dir, self.learner.env_steps, settings)


@dataclass(frozen=True, slots=True)
class Mark:
    """The counters of a learner at one moment."""

    at_s: float
    env_steps: int
    updates: int
    episodes: int


def mark(learner: Learner, at_s: float) -> Mark:
    return Mark(at_s, learner.env_steps, learner.updates, learner.episodes)


def rates(before: Mark, after: Mark, batch_size: int) -> dict[str, float]:
    """Rates between two marks; empty when no time has passed.

    Example: in 60 s 120,000 steps, 960 updates of 1,000 transitions and 30 games: 2,000 steps/s, 16 updates/s, 1,800
    games/hour, replay ratio 8.
    """
    took_s = after.at_s - before.at_s
    if took_s <= 0:
        return {}
    steps, updates = after.env_steps - before.env_steps, after.updates - before.updates
    found = {
        "speed/steps_per_s": steps / took_s,
        "speed/updates_per_s": updates / took_s,
        "speed/episodes_per_hour": (after.episodes - before.episodes) / took_s * 3600,
    }
    if steps > 0:
        found["learn/replay_ratio"] = updates * batch_size / steps
    return found


def point(
    learner: Learner, figures: Mapping[str, float | None], measured: Mapping[str, float], shares: Mapping[str, float]
) -> dict[str, float | None]:
    """All numbers of one point, by their names in the curves."""
    found: dict[str, float | None] = {**measured}
    found |= {f"learn/{name}": value for name, value in figures.items()}
    found |= {f"time/{name}": share for name, share in shares.items()}
    found["learn/lr"] = learner.optimizer.param_groups[0]["lr"]
    found["play/mean_return"] = learner.mean_return
    found["play/episodes"] = float(learner.episodes)
    return found


def line(measured: Mapping[str, float], shares: Mapping[str, float]) -> str:
    """`2,000 steps/s  16.0 updates/s ...  of the time: learn 72 %, env 18 %, act 6 %`; shares below 0.1 % are left out."""
    names = {
        "speed/steps_per_s": "{:,.0f} steps/s", "speed/updates_per_s": "{:.1f} updates/s",
        "speed/episodes_per_hour": "{:,.0f} games/hour", "learn/replay_ratio": "replay ratio {:.2f}",
    }  # fmt: skip
    rate_texts = [text.format(measured[name]) for name, text in names.items() if math.isfinite(measured.get(name, math.nan))]
    largest = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{name} {share:.1%}".replace("%", " %") for name, share in largest if share >= 0.001]
    return "  ".join(rate_texts) + (f"  of the time: {', '.join(parts)}" if parts else "")


def of_test(found: Evaluation) -> dict[str, float | None]:
    """The point of an evaluation in the curves."""
    lengths = [row.length for row in found.rows if row.length is not None]
    return {
        "test/return": found.mean_return,
        "test/hns": human_normalised(found.first.game, found.mean_return),
        "test/length": sum(lengths) / len(lengths) if lengths else None,
    }


def evaluation_summary(found: Evaluation) -> str:
    """`mean return of 30 test games: 18.20 (human-normalised 1.10)`."""
    hns = human_normalised(found.first.game, found.mean_return)
    beside = "" if hns is None else f", human-normalised {hns:.2f}"
    return f"mean return of {len(found.rows)} test games: {found.mean_return:.2f}{beside}"
