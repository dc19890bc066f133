"""What a replay must give, told by plain lists of episodes; and what a power cut leaves of its files."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from workers import replay as replay_module
from workers.replay import NothingToSample, Replay

SHAPE = (2, 4)  # eight bytes: a frame is its own number
BOOT_A, BOOT_B = "a" * 32, "b" * 32


@dataclass
class Episode:
    """Cells that were acted on, and how it ended: `terminated`, `truncated`, or None (running, or cut by a seam)."""

    cells: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    end: str | None = None
    final_cell: int | None = None  # where the frame after the last action is stored


@dataclass
class Track:
    """What one environment of one process went through: its games, as cells, and its episodes."""

    games: list[list[int]] = field(default_factory=lambda: [[]])
    episodes: list[Episode] = field(default_factory=lambda: [Episode()])
    reset_due: str | None = None  # None, "life" or "game": the next call is ignored
    begins: bool = True


@dataclass
class World:
    """envpool's behaviour by the book, writing into a replay and, independently, into lists of episodes and games."""

    num_envs: int
    rng: random.Random
    total: int = 0
    tracks: list[Track] = field(default_factory=list)  # of all processes so far
    new_process: bool = True

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, num_envs: int | None = None) -> None:
        """A new process: all environments are new, and there may be more or fewer of them."""
        self.num_envs, self.new_process = num_envs or self.num_envs, True
        self.tracks += [Track() for _ in range(self.num_envs)]

    def rewind(self, total: int) -> None:
        """Forget what came later, then a new process."""
        for track in self.tracks:
            track.games = [[cell for cell in game if cell < total] for game in track.games]
            for episode in track.episodes:
                episode.cells = [cell for cell in episode.cells if cell < total]
                if episode.final_cell is not None and episode.final_cell >= total:
                    # A terminal step needs no final frame; a truncated one can't do without.
                    episode.final_cell = None
                if len(episode.cells) < len(episode.actions):
                    episode.end = None
                episode.actions = episode.actions[: len(episode.cells)]
                episode.rewards = episode.rewards[: len(episode.cells)]
        self.total = total
        self.restart()

    def step(self, memory: Replay) -> None:
        count, tracks = self.num_envs, self.tracks[-self.num_envs :]
        frames = np.stack([frame(self.total + env) for env in range(count)])
        actions, rewards = np.zeros(count, np.int64), np.zeros(count)
        flags = {"terminated": np.zeros(count, bool), "truncated": np.zeros(count, bool)}
        # The first row of a process is a start whether or not the caller says so.
        starts = np.array([track.begins for track in tracks]) & (not self.new_process)
        self.new_process = False
        for env, track in enumerate(tracks):
            cell = self.total + env
            if track.begins and track.games[-1]:
                track.games.append([])
            track.begins = False
            track.games[-1].append(cell)
            actions[env] = self.rng.randrange(18)
            if track.reset_due is not None:
                # The fake step: it shows the last frame, ignores the action and brings nothing.
                track.episodes[-1].final_cell = cell
                track.episodes.append(Episode())
                track.begins = track.reset_due == "game"
                track.reset_due = None
                continue
            rewards[env] = self.rng.choice([0.0, 0.0, 1.0, -1.0, 0.5])
            episode = track.episodes[-1]
            episode.cells.append(cell)
            episode.actions.append(int(actions[env]))
            episode.rewards.append(rewards[env])
            end = self.rng.choices([None, "terminated", "truncated", "both", "life"], [6, 1, 1, 0.3, 0.5])[0]
            if end is not None:
                episode.end = "truncated" if end == "truncated" else "terminated"
                flags["terminated"][env] = end != "truncated"
                flags["truncated"][env] = end in {"truncated", "both"}
                track.reset_due = "life" if end == "life" else "game"
        memory.append(frames, actions, rewards, flags["terminated"], flags["truncated"], starts)
        self.total += count

    @staticmethod
    def stack(track: Track, cell: int, stack: int, oldest: int) -> tuple[int, ...] | None:
        game = next(game for game in track.games if cell in game)
        place = game.index(cell)
        cells = [game[max(0, place - back)] for back in reversed(range(stack))]
        return None if min(cells) < oldest else tuple(number(cell) for cell in cells)

    def transitions(self, stack: int, n_step: int, gamma: float, oldest: int) -> dict[int, tuple]:
        """Frame number -> (obs, action, return, next obs or None, discount) of each whole transition."""
        found = {}
        for track in self.tracks:
            for episode in track.episodes:
                for place, cell in enumerate(episode.cells):
                    taken = episode.rewards[place : place + n_step]
                    last = place + len(taken) - 1
                    value = sum(gamma**k * reward for k, reward in enumerate(taken))
                    obs = self.stack(track, cell, stack, oldest) if cell >= oldest else None
                    if obs is None:
                        continue
                    ended = episode.end is not None and last == len(episode.cells) - 1
                    if ended and episode.end == "terminated":
                        after, discount = None, 0.0
                    else:
                        if ended:
                            after_cell = episode.final_cell
                        elif last + 1 < len(episode.cells) and len(taken) == n_step:
                            after_cell = episode.cells[last + 1]
                        else:
                            after_cell = None
                        if after_cell is None:
                            continue
                        after, discount = self.stack(track, after_cell, stack, oldest), gamma ** len(taken)
                        assert after is not None
                    found[number(cell)] = (obs, episode.actions[place], value, after, discount)
        return found


def number(cell: int) -> int:
    return cell + 1


def frame(cell: int) -> np.ndarray:
    return np.frombuffer(number(cell).to_bytes(8, "little"), np.uint8).reshape(SHAPE)


def numbers(stacks: torch.Tensor) -> list[tuple[int, ...]]:
    """[B, stack, 2, 4] bytes -> the frames' numbers."""
    return [tuple(row) for row in stacks.numpy().reshape(*stacks.shape[:2], 8).view("<i8")[..., 0].tolist()]


def agree(memory: Replay, world: World, draws: int = 3000) -> int:
    """Whatever is sampled is in the reference, and all of the reference is sampled. Returns how many there are."""
    assert memory.total == world.total
    expected = world.transitions(memory.stack, memory.n_step, memory.gamma, memory.total - len(memory))
    if not expected:
        with pytest.raises(NothingToSample):
            memory.sample(1, np.random.default_rng(0))
        return 0
    seen = set()
    batch = memory.sample(draws, np.random.default_rng(1))
    following = numbers(batch.next_obs)
    for place, obs in enumerate(numbers(batch.obs)):
        if obs[-1] in seen:
            continue
        seen.add(obs[-1])
        assert obs[-1] in expected, f"{obs} is no whole transition"
        wanted_obs, action, value, after, discount = expected[obs[-1]]
        assert obs == wanted_obs
        assert batch.actions[place].item() == action
        assert batch.returns[place].item() == pytest.approx(value, abs=1e-5)
        assert batch.discounts[place].item() == pytest.approx(discount, abs=1e-6)
        if after is not None:
            assert following[place] == after
    assert seen == set(expected)
    return len(seen)


@dataclass(frozen=True)
class Setup:
    num_envs: int
    stack: int
    n_step: int
    gamma: float
    spare: int
    steps: int
    seed: int

    @property
    def capacity(self) -> int:
        return (self.stack + self.n_step + 2 + self.spare) * self.num_envs

    def open(self, directory: Path | None, boot_id: str = BOOT_A) -> Replay:
        return Replay(self.capacity, self.num_envs, SHAPE, stack=self.stack, n_step=self.n_step, gamma=self.gamma,
                      directory=directory, boot_id=boot_id)  # fmt: skip

    def world(self) -> World:
        return World(self.num_envs, random.Random(self.seed))


def temporary() -> tempfile.TemporaryDirectory:
    """In memory where there is such a place: a kill and a power cut are played by copying files, not by the disk."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def cut_power(now: Path, synced: Path, out: Path, rng: random.Random, *, newer_header: bool) -> None:
    """The files after a power cut: each page as it was at the last sync or as it is now; the header likewise."""
    out.mkdir()
    for path in now.iterdir():
        new, old = path.read_bytes(), (synced / path.name).read_bytes()
        if path.name == replay_module.HEADER_FILE:
            # The slots are synced; only the live record's page may be newer.
            pages = [old[:12288], (new if newer_header else old)[12288:]]
        else:
            # 64 bytes stand for a page: the files of these tests are small.
            pages = [(new if rng.random() < 0.5 else old)[at : at + 64] for at in range(0, len(new), 64)]
        (out / path.name).write_bytes(b"".join(pages))
