"""Records of a training beside its checkpoints: a point of the curves twice a minute, a log line each minute."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from workers import figures
from workers.metrics import Metrics

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
        self._before: figures.Mark | None = None
        self._points = 0
        self.shares: dict[str, float] = {}  # of the time by activity, as of the newest point
        self.test_return: float | None = None

    def begin(self, now_s: float, beyond: Iterable[Evaluation], newest: Evaluation | None) -> None:
        """`beyond`: tests at later steps, from before a crash. They are not played again, so their points are kept."""
        self.test_return = None if newest is None else newest.mean_return
        self._before = figures.mark(self.learner, now_s)
        self.learner.watch.shares()  # resets: the time before the training does not count
        self._open()
        for found in beyond:
            self._show(found)

    def look(self, now_s: float, learner_figures: Mapping[str, float | None]) -> str:
        """A log line when one is due, else empty; `learner_figures` are those of `Learner.figures`."""
        learner, before = self.learner, self._before
        if before is None or now_s - before.at_s < POINT_S:
            return ""
        self._before = after = figures.mark(learner, now_s)
        measured, self.shares = figures.rates(before, after, learner.args.batch_size), learner.watch.shares()
        if self._metrics is not None:
            self._metrics.offer(learner.env_steps, figures.point(learner, learner_figures, measured, self.shares))
        self._points += 1
        return "" if self._points % POINTS_A_LINE else figures.line(measured, self.shares)

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
            self._metrics.offer(found.first.env_steps, figures.of_test(found))

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def _open(self) -> None:
        args = self.learner.args
        if self._metrics is None and args.tensorboard:
            settings = {each.name: getattr(args, each.name) for each in fields(args)}
            self._metrics = Metrics(self.run_dir, self.learner.env_steps, settings)
