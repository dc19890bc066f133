"""Experience outlives every change of the number of environments, with kills and power cuts in between.

A random life of a replay is played against plain lists of episodes (`replay_reference.py`): whatever is sampled is a whole
transition of one environment's episode, and all of those are sampled.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from replay_reference import SHAPE, World, agree, cut_power, frame, temporary

from workers import replay as replay_module
from workers.replay import Replay

MOST = 7  # environments


@dataclass
class Life:
    """A replay, its files as the disk has them, and what should be in it."""

    base: Path
    rng: random.Random
    size: int
    stack: int
    n_step: int
    boot: int = 0
    homes: int = 0
    totals: list[int] = field(default_factory=lambda: [0])
    low: int = 0  # nothing older can be there: it was overwritten, or may have been
    spoiled: int = 0  # the same, were the power cut now
    committed: int = 0

    def __post_init__(self) -> None:
        self.home, self.synced = self.base / "0", self.base / "synced"
        self.memory = self.open(2)
        self.world = World(2, self.rng)
        self.sync()

    def open(self, num_envs: int) -> Replay:
        boot = f"{self.boot:032x}"
        return Replay(self.size, num_envs, SHAPE, stack=self.stack, n_step=self.n_step, gamma=0.9, directory=self.home,
                      boot_id=boot, report=pytest.fail)  # fmt: skip

    def sync(self) -> None:
        shutil.rmtree(self.synced, ignore_errors=True)
        shutil.copytree(self.home, self.synced)

    def move(self) -> Path:
        self.homes += 1
        return self.base / str(self.homes)

    def gone(self) -> None:
        """The slots of the next row are never trusted."""
        self.low = max(self.low, self.memory.total + self.memory.num_envs - self.size)

    # what happens

    def append(self, rows: int) -> None:
        for _ in range(rows):
            self.world.step(self.memory)
            self.totals.append(self.memory.total)
            self.gone()
            self.spoiled = max(self.spoiled, self.low)

    def commit(self, _: int) -> None:
        assert self.memory.commit()
        assert self.memory.wait()
        assert self.memory.committed == self.memory.total
        self.committed, self.spoiled = self.memory.total, self.low
        self.sync()

    def close(self, num_envs: int) -> None:
        self.memory.close()
        self.commit(0)
        self.begin(num_envs)

    def kill(self, num_envs: int) -> None:
        self.home = Path(shutil.copytree(self.home, self.move()))
        self.begin(num_envs)

    def kill_in_mid_append(self, num_envs: int) -> None:
        """Some of the row's pages were written, and the header was not yet."""
        before = shutil.copytree(self.home, self.base / "before", dirs_exist_ok=True)
        off = np.zeros(self.memory.num_envs, bool)
        pixels = np.stack([frame(2**40)] * self.memory.num_envs)
        self.memory.append(pixels, off, off, off, off, off)
        torn = self.move()
        torn.mkdir()
        for path in self.home.iterdir():
            new, old = path.read_bytes(), (before / path.name).read_bytes()
            parts = [(new if self.rng.random() < 0.5 else old)[at : at + 16] for at in range(0, len(new), 16)]
            (torn / path.name).write_bytes(old if path.name == replay_module.HEADER_FILE else b"".join(parts))
        self.home = torn
        self.begin(num_envs)

    def begin(self, num_envs: int) -> None:
        total = self.world.total
        self.memory = self.open(num_envs)
        self.world.restart(num_envs)
        self.gone()
        assert self.memory.total == total
        assert total - len(self.memory) == min(self.low, total), "nothing is lost but the oldest"

    def cut_power(self, num_envs: int) -> None:
        out = self.move()
        cut_power(self.home, self.synced, out, self.rng, newer_header=self.rng.random() < 0.5)
        self.home, self.boot = out, self.boot + 1
        self.memory = self.open(num_envs)
        self.world.rewind(self.committed)
        self.world.restart(num_envs)
        assert self.memory.total == self.committed
        oldest = self.memory.total - len(self.memory)
        self.spoiled = max(self.spoiled, self.memory.total + num_envs - self.size)
        # A sum is that of a row: what is left of one whose beginning was overwritten goes with it.
        assert oldest <= min(self.spoiled + MOST - 1, self.memory.total), "nothing is lost but what was overwritten"
        self.low = self.spoiled = oldest
        self.totals = [total for total in self.totals if total <= self.committed]
        self.sync()

    def rewind(self, choice: int) -> None:
        """To a moment that was, as a resume from a checkpoint asks for; before anything is appended."""
        target = self.totals[-1 - choice % len(self.totals)]
        dropped = self.memory.total - target
        assert self.memory.rewind(target) == dropped
        self.world.rewind(target)
        self.totals = [total for total in self.totals if total <= target]
        if dropped:
            self.low, self.committed = min(self.low, target), min(self.committed, target)
            header = replay_module.HEADER_FILE  # it is synced then, and nothing else is
            shutil.copy(self.home / header, self.synced / header)


ops = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)), st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.sampled_from(["close", "kill", "kill_in_mid_append", "cut_power"]), st.integers(1, MOST)),
    st.tuples(st.just("rewind"), st.integers(0, 8)),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(ops, min_size=1, max_size=14), st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 4), st.integers(1, 4)
)
@example([("append", 9), ("close", 2), ("append", 5), ("kill", 7), ("append", 3)], 0, 21, 4, 3)
@example(
    [("append", 9), ("close", 7), ("append", 9), ("commit", 0), ("kill", 1), ("append", 12), ("cut_power", 4)], 1, 3, 2, 2
)
@example(  # back to a moment whose rows were all overwritten, and which no commit has seen
    [("rewind", 2), ("kill_in_mid_append", 7), ("append", 9), ("append", 11), ("append", 11), ("rewind", 25), ("close", 5)],
    3349, 24, 4, 3,
)  # fmt: skip
@example([("kill", 7), ("append", 9), ("kill_in_mid_append", 1), ("append", 1), ("close", 7), ("append", 2)], 2, 0, 1, 1)
@example([("append", 12), ("append", 2), ("commit", 0), ("rewind", 1), ("cut_power", 1)], 0, 1, 1, 1)  # begins within a row
def test_a_life_with_any_number_of_environments(life, seed, spare, stack, n_step):
    size = (stack + n_step + 2) * MOST + spare
    with temporary() as name:
        played = Life(Path(name), random.Random(seed), size, stack, n_step)
        for what, how in life:
            getattr(played, what)(how)
            agree(played.memory, played.world, draws=2000)
