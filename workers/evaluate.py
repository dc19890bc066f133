"""Test games: whole games with the game's own score, in separate environments, during and after the training.

**When.** A test is due each time the environment steps pass a multiple of `test_period` (at the next moment at which a
checkpoint would lose nothing), and once the target is reached. A test belongs to that multiple. Games that `results.csv`
has for it are never played again; missing games are played as soon as the run resumes. Example: period 100,000, a crash
after the test at 300,000 and a resume at 290,000: no test at 300,000, the next one at 400,000. If the run leaves during
the test at 300,000, its finished games are kept; the run resumes at 300,000 and plays the missing games. After a rollback
with another random seed the learner is a different one and has its own tests.

**How.** As in the literature: up to 28 frames of no-ops at the beginning (7 steps; the literature's 30 is not a whole
number of steps), no clipped rewards, a lost life does not end a game, games end after 108,000 frames (30 minutes of play).
Actions are greedy except for one in a thousand (`EPSILON`; Hessel et al. 2018, and Dopamine). Nature's 0.05 was meant to
show that a policy does not merely repeat memorised moves. It costs score in every game that punishes a random action, and
later tables do not use it. With 0, a policy that does nothing (Breakout, never serving) would do nothing for 108,000
frames; with one in a thousand it continues within seconds.

**The same games.** No-ops and random actions depend only on (seed, environment steps), and the environments draw none of
their own. So a test does not depend on earlier tests of this process: an interrupted run has the same tests as an
uninterrupted one, and the environments are built once per attempt and kept. The obvious alternative is to seed the
environments when they are built; then each test would depend on all tests since the start. One dependence remains: a few
games (Seaquest) do not clear all of their memory when a game begins.

**Fair.** Each environment plays a fixed number of games: counting the games that end first would prefer short games,
which are mostly bad ones. Tests do not affect the training: they have their own environments, random numbers and results,
so a learner with tests equals, bit for bit, one without.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from workers import envs, results, scores
from workers.records import evaluation_summary
from workers.results import RESULTS_FILE, Evaluation, Row
from workers.store import Fenced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.contract import Client
    from workers.learner import Learner

EPSILON: Final = 0.001
FENCE_S: Final = 1.0  # between two checks of the fence
MOST_ENVS: Final = 16
MOST_IDLE: Final = 7  # no-op steps at the beginning of a game


class EvaluationGames:
    """The tests of one attempt. The first test builds the environments, and later ones reuse them: 75-80 ms of CPU each."""

    def __init__(self, learner: Learner, run_dir: Path) -> None:
        self.learner, self.path = learner, run_dir / RESULTS_FILE
        self._envs: envs.Envs | None = None
        args = learner.args
        # An unfinished evaluation counts only if it belongs to this learner: same step and same seed.
        self.rows = [
            row
            for evaluation in results.evaluations(results.read(self.path))
            if evaluation.whole or (evaluation.first.env_steps, evaluation.first.seed) == (learner.env_steps, args.seed)
            for row in evaluation.rows
        ]
        self._next_step = self._after(learner.env_steps)

    # when

    def is_due(self) -> bool:
        """Whether a periodic test is due now. Called between any two vector steps: it costs one comparison."""
        learner = self.learner
        if self._next_step is None or learner.env_steps < self._next_step or not learner.can_save_all():
            return False
        self._next_step = self._after(learner.env_steps)
        return self._next_step is not None and learner.env_steps >= self._next_step

    def _after(self, env_steps: int) -> int | None:
        """The step at which the next periodic test is due: the last multiple if it has no test yet, else the next one."""
        args = self.learner.args
        if not args.test_period or not args.num_test_episodes:
            return None
        due = env_steps // args.test_period * args.test_period
        return due if due and not self._is_recorded(due, due + args.test_period) else due + args.test_period

    def _is_recorded(self, from_step: int, before_step: int) -> bool:
        return any(
            evaluation.whole
            and from_step <= evaluation.first.env_steps < before_step
            and evaluation.first.seed in {None, self.learner.args.seed}
            for evaluation in results.evaluations(self.rows)
        )

    def is_done(self) -> bool:
        """Whether the results of this learner exist already, with the configured number of games."""
        learner = self.learner
        return any(
            evaluation.first.env_steps == learner.env_steps
            and len(evaluation.rows) == learner.args.num_test_episodes
            and evaluation.first.seed in {None, learner.args.seed}
            for evaluation in results.evaluations(self.rows)
        )

    def beyond(self) -> list[Evaluation]:
        """Tests with this seed at later steps than the present one, from before a crash set the run back."""
        learner = self.learner
        return [e for e in self._whole() if e.first.env_steps > learner.env_steps and e.first.seed == learner.args.seed]

    def newest(self) -> Evaluation | None:
        """The newest complete test of this run, with any seed."""
        return next(reversed(self._whole()), None)

    def _whole(self) -> list[Evaluation]:
        return [found for found in results.evaluations(self.rows) if found.whole]

    # how

    def run(self, client: Client, go_on: Callable[[], bool], *, training: bool = False) -> Evaluation | None:
        """Play the missing games of this evaluation and record them; None if `go_on`, called at each step, returns False.

        During training a full disk only causes one printed sentence: the next test writes these rows too.
        Raises Fenced within `FENCE_S` after another attempt has taken over, and writes nothing then.
        """
        learner, before, look_at_s = self.learner, list(self.rows), 0.0
        print(f"playing {learner.args.num_test_episodes} test games at step {learner.env_steps:,}", flush=True)

        def still() -> bool:
            nonlocal look_at_s
            client.progress()
            now_s = time.monotonic()
            if now_s >= look_at_s:
                look_at_s = now_s + FENCE_S
                self._must_own(client)
            return go_on()

        found = self.play(still)
        if self.rows != before:
            self._must_own(client)
            try:
                self.write()
            except OSError as error:
                if not training:
                    raise
                message = f"{self.path} was not written ({error.strerror or error}): it is tried again with the next test"
                print(f"workers: {message}", file=sys.stderr, flush=True)
        if found is not None:
            print(f"{evaluation_summary(found)} ({self.path})", flush=True)
        return found

    def _must_own(self, client: Client) -> None:
        if not client.fence_holds():
            raise Fenced(f"another attempt owns {self.path.parent}: the test games were not recorded")

    def play(self, go_on: Callable[[], bool]) -> Evaluation | None:
        """Play the missing games of one evaluation; None if `go_on`, called at each step, returns False.

        Finished games are in `rows` in either case; `write` makes them durable.
        """
        kept = self._begin()
        wanted = self.learner.args.num_test_episodes
        for number, (score, length) in enumerate(self._games(wanted - len(kept), go_on), start=len(kept) + 1):
            self.rows.append(self._row(number, score, length))
        found = results.evaluations(self.rows)[-1] if self.rows else None
        return found if found is not None and self._is_ours(found.first) and len(found.rows) >= wanted else None

    def write(self) -> None:
        """Write all rows. Raises OSError; then the rows are kept in memory, and the next call writes them."""
        self.rows = results.bounded(self.rows)
        results.write(self.path, self.rows)

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def _is_ours(self, row: Row) -> bool:
        return (row.env_steps, row.seed) == (self.learner.env_steps, self.learner.args.seed)

    def _begin(self) -> list[Row]:
        """The existing rows of this evaluation. Rows of a test with another number of games are dropped."""
        ours = [row for row in self.rows if self._is_ours(row)]
        wanted = self.learner.args.num_test_episodes
        if ours and ours[0].games != wanted:
            self.rows = [row for row in self.rows if not self._is_ours(row)]
            return []
        return ours

    def _games(self, count: int, go_on: Callable[[], bool]) -> list[tuple[float, int]]:
        """(return, length in steps) of `count` games, or only of the finished ones if `go_on` returned False."""
        learner = self.learner
        tests = self._environments()
        envs_n = tests.num_envs
        left = np.array([count // envs_n + (env < count % envs_n) for env in range(envs_n)])
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([learner.args.seed, learner.env_steps])))
        step = tests.reset()
        totals, lengths, idle = np.zeros(envs_n), np.zeros(envs_n, int), self._idle(rng, envs_n)
        found: list[tuple[float, int]] = []
        while left.any() and go_on():
            slips = rng.random(envs_n) < EPSILON
            played = np.where(slips, rng.integers(learner.spec.actions, size=envs_n), learner.greedy(step))
            tests.send(np.where(idle > 0, 0, played))
            step = tests.recv()
            totals += step.scores
            lengths += ~step.starts  # the step that only resets does not belong to the game
            idle -= ~step.starts & (idle > 0)
            for env in np.flatnonzero(step.game_over & (left > 0)):
                found.append((float(totals[env]), int(lengths[env])))
                left[env] -= 1
            if step.game_over.any():
                totals[step.game_over], lengths[step.game_over] = 0.0, 0
                idle = np.where(step.game_over, self._idle(rng, envs_n), idle)
        return found

    def _idle(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """No-op steps of each environment before its game; a toy has no such action."""
        return rng.integers(MOST_IDLE + 1 if self.learner.spec.atari else 1, size=count)

    def _environments(self) -> envs.Envs:
        if self._envs is None:
            args, learner = self.learner.args, self.learner
            count = min(args.num_test_episodes, args.num_envs, MOST_ENVS)
            # No supervised attempt has number 0, so no training uses these seeds. They are the same in every attempt.
            seeds = envs.env_seeds(args.seed + 1, 0, 0, count)
            self._envs = envs.make(learner.spec, seeds, args.threads, learning=False)
        return self._envs

    def _row(self, number: int, score: float, length: int) -> Row:
        learner, args = self.learner, self.learner.args
        return Row(
            program=args.program, game=args.game, algo=args.algo, seed=args.seed, resolution=args.resolution,
            env_steps=learner.env_steps, frames=learner.frames, episode=number, score=score,
            hours_trained=learner.trained_s / 3600.0, length=length, hns=scores.human_normalised(args.game, score),
            games=args.num_test_episodes,
        )  # fmt: skip
