"""Named figures of a training: the numbers for the log line, the beat and the curves of one learner.

A rate is measured between two marks by the wall clock, and includes the time of saves and tests in between. The replay
ratio is the measured one (transitions learned per environment step), not the setting. If it is lower than the setting,
something delays learning; if it is higher, the learner is catching up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.scores import human_normalised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.learner import Learner
    from workers.results import Evaluation


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
