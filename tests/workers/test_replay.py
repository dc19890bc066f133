"""The replay equals a plain list of episodes, and comes back after a kill and a power cut."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers import replay as replay_module
from workers.replay import NothingToSample, Replay, ReplayError, ReplayInUse, ReplayTooLarge

REPO = Path(__file__).parents[2]
SHAPE = (2, 4)  # eight bytes: a frame is its own number
BOOT_A, BOOT_B = "a" * 32, "b" * 32
EXAMPLES = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- the reference: plain lists of episodes --------------------------------------------------------------------------


@dataclass
class Episode:
    """Rows that were acted on, and how it ended: `terminated`, `truncated`, or None (running, or cut by a seam)."""

    rows: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    end: str | None = None
    final_row: int | None = None  # where the frame after the last action is stored


@dataclass
class World:
    """envpool's behaviour by the book, writing into a replay and, independently, into lists of episodes and games."""

    num_envs: int
    rng: random.Random
    rows: int = 0
    games: list[list[list[int]]] = field(default_factory=list)  # [env][game] -> rows
    episodes: list[list[Episode]] = field(default_factory=list)  # [env]
    reset_due: list[str | None] = field(default_factory=list)  # None, "life" or "game": the next call is ignored
    begins: list[bool] = field(default_factory=list)
    new_process: bool = True

    def __post_init__(self) -> None:
        self.games = [[] for _ in range(self.num_envs)]
        self.episodes = [[] for _ in range(self.num_envs)]
        self.restart()

    def restart(self) -> None:
        """A new process: all environments are new."""
        self.reset_due, self.begins, self.new_process = [None] * self.num_envs, [True] * self.num_envs, True
        for env in range(self.num_envs):
            self.games[env].append([])
            self.episodes[env].append(Episode())

    def rewind(self, rows: int) -> None:
        """Forget what came later, then a new process."""
        for env in range(self.num_envs):
            self.games[env] = [[row for row in game if row < rows] for game in self.games[env]]
            for episode in self.episodes[env]:
                episode.rows = [row for row in episode.rows if row < rows]
                if episode.final_row is not None and episode.final_row >= rows:
                    # A terminal step needs no final frame; a truncated one can't do without.
                    episode.final_row = None
                if len(episode.rows) < len(episode.actions):
                    episode.end = None
                episode.actions = episode.actions[: len(episode.rows)]
                episode.rewards = episode.rewards[: len(episode.rows)]
        self.rows = rows
        self.restart()

    def step(self, memory: Replay) -> None:
        frames = np.zeros((self.num_envs, *SHAPE), np.uint8)
        actions, rewards = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs)
        flags = {"terminated": np.zeros(self.num_envs, bool), "truncated": np.zeros(self.num_envs, bool)}
        # The first row of a process is a start whether or not the caller says so.
        starts, self.new_process = np.array(self.begins) & (not self.new_process), False
        for env in range(self.num_envs):
            frames[env] = frame(self.rows, env, self.num_envs)
            if self.begins[env] and self.games[env][-1]:
                self.games[env].append([])
            self.begins[env] = False
            self.games[env][-1].append(self.rows)
            actions[env] = self.rng.randrange(18)
            if self.reset_due[env] is not None:
                # The fake step: it shows the last frame, ignores the action and brings nothing.
                self.episodes[env][-1].final_row = self.rows
                self.episodes[env].append(Episode())
                self.begins[env] = self.reset_due[env] == "game"
                self.reset_due[env] = None
                continue
            rewards[env] = self.rng.choice([0.0, 0.0, 1.0, -1.0, 0.5])
            episode = self.episodes[env][-1]
            episode.rows.append(self.rows)
            episode.actions.append(int(actions[env]))
            episode.rewards.append(rewards[env])
            end = self.rng.choices([None, "terminated", "truncated", "both", "life"], [6, 1, 1, 0.3, 0.5])[0]
            if end is not None:
                episode.end = "truncated" if end == "truncated" else "terminated"
                flags["terminated"][env] = end != "truncated"
                flags["truncated"][env] = end in {"truncated", "both"}
                self.reset_due[env] = "life" if end == "life" else "game"
        memory.append(frames, actions, rewards, flags["terminated"], flags["truncated"], starts)
        self.rows += 1

    def stack(self, env: int, row: int, stack: int, oldest: int) -> tuple[int, ...] | None:
        game = next(game for game in self.games[env] if row in game)
        place = game.index(row)
        rows = [game[max(0, place - back)] for back in reversed(range(stack))]
        return None if min(rows) < oldest else tuple(number(row, env, self.num_envs) for row in rows)

    def transitions(self, stack: int, n_step: int, gamma: float, oldest: int) -> dict[int, tuple]:
        """Frame number -> (obs, action, return, next obs or None, discount) of each whole transition."""
        found = {}
        for env in range(self.num_envs):
            for episode in self.episodes[env]:
                for place, row in enumerate(episode.rows):
                    taken = episode.rewards[place : place + n_step]
                    last = place + len(taken) - 1
                    value = sum(gamma**k * reward for k, reward in enumerate(taken))
                    obs = self.stack(env, row, stack, oldest) if row >= oldest else None
                    if obs is None:
                        continue
                    ended = episode.end is not None and last == len(episode.rows) - 1
                    if ended and episode.end == "terminated":
                        after, discount = None, 0.0
                    else:
                        if ended:
                            after_row = episode.final_row
                        elif last + 1 < len(episode.rows) and len(taken) == n_step:
                            after_row = episode.rows[last + 1]
                        else:
                            after_row = None
                        if after_row is None:
                            continue
                        after, discount = self.stack(env, after_row, stack, oldest), gamma ** len(taken)
                        assert after is not None
                    found[number(row, env, self.num_envs)] = (obs, episode.actions[place], value, after, discount)
        return found


def number(row: int, env: int, num_envs: int) -> int:
    return row * num_envs + env + 1


def frame(row: int, env: int, num_envs: int) -> np.ndarray:
    return np.frombuffer(number(row, env, num_envs).to_bytes(8, "little"), np.uint8).reshape(SHAPE)


def numbers(stacks: torch.Tensor) -> list[tuple[int, ...]]:
    """[B, stack, 2, 4] bytes -> the frames' numbers."""
    return [tuple(row) for row in stacks.numpy().reshape(*stacks.shape[:2], 8).view("<i8")[..., 0].tolist()]


def agree(memory: Replay, world: World, draws: int = 3000) -> int:
    """Whatever is sampled is in the reference, and all of the reference is sampled. Returns how many there are."""
    oldest = memory.total // memory.num_envs - len(memory) // memory.num_envs
    expected = world.transitions(memory.stack, memory.n_step, memory.gamma, oldest)
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


setups = st.builds(
    Setup, num_envs=st.integers(1, 3), stack=st.integers(1, 4), n_step=st.integers(1, 4),
    gamma=st.sampled_from([0.99, 0.5, 1.0, 0.0]), spare=st.integers(0, 12), steps=st.integers(0, 60),
    seed=st.integers(0, 2**32),
)  # fmt: skip


def temporary() -> tempfile.TemporaryDirectory:
    """In memory where there is such a place: a kill and a power cut are played by copying files, not by the disk."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@EXAMPLES
@given(setups)
def test_samples_are_the_transitions_of_the_episodes(setup: Setup) -> None:
    """Never across an episode, a game, a fake step or the ring's head; all whole ones and nothing else."""
    memory, world = setup.open(None), setup.world()
    for _ in range(setup.steps):
        world.step(memory)
    agree(memory, world)


@EXAMPLES
@given(setups, st.lists(st.integers(0, 25), max_size=2))
def test_a_killed_process_loses_nothing(setup: Setup, lives: list[int]) -> None:
    """What is in the page cache is all there for the next process; no transition crosses the seam."""
    with temporary() as name:
        home, world = Path(name) / "0", setup.world()
        memory = setup.open(home)
        for place, steps in enumerate([setup.steps, *lives]):
            for _ in range(steps):
                world.step(memory)
            agree(memory, world)
            total, stored = memory.total, len(memory)
            # A copy of the files as they are now is what a killed process leaves: nothing was closed or synced.
            home = shutil.copytree(home, Path(name) / str(place + 1))
            memory = setup.open(home)
            assert (memory.total, len(memory)) == (total, stored)
            world.restart()
            agree(memory, world)


@EXAMPLES
@given(setups, st.integers(0, 70), st.integers(0, 20))
def test_rewind_forgets_what_came_later(setup: Setup, back: int, more: int) -> None:
    with temporary() as name:
        home = Path(name) / "now"
        memory, world = setup.open(home), setup.world()
        for _ in range(setup.steps):
            world.step(memory)
        memory.commit()
        target = max(0, setup.steps - back)
        assert memory.rewind(target * setup.num_envs) == (setup.steps - target) * setup.num_envs
        # `rewind` waits for the commit where it drops rows, but not where it has nothing to do (back = 0).
        assert memory.wait()
        assert memory.total == target * setup.num_envs
        world.rewind(target)
        agree(memory, world)
        for _ in range(more):
            world.step(memory)
        agree(memory, world)
        # The rewound rows are gone on disk as well, although the newest commit had covered them.
        lost_power = setup.open(Path(shutil.copytree(home, Path(name) / "later")), BOOT_B)
        assert lost_power.total == target * setup.num_envs
        lost_power.close()
        memory.commit()
        assert memory.wait()
        agree(setup.open(Path(shutil.copytree(home, Path(name) / "committed")), BOOT_B), world)


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


@EXAMPLES
@given(setups, st.integers(0, 25), st.integers(0, 40), st.booleans())
def test_after_a_power_cut_only_the_committed_is_trusted(setup: Setup, second: int, later: int, newer: bool) -> None:
    """Rows after the commit are dropped; rows that they overwrote, in part, are found out by their sums."""
    with temporary() as name:
        base = Path(name)
        memory, world = setup.open(base / "now"), setup.world()
        for steps in (setup.steps, second):
            for _ in range(steps):
                world.step(memory)
            assert memory.commit()
            assert memory.wait()
        committed = memory.total
        assert memory.committed == committed
        shutil.copytree(base / "now", base / "synced")
        for _ in range(later):
            world.step(memory)
        untouched = max(0, memory.total - memory.capacity)
        cut_power(base / "now", base / "synced", base / "out", random.Random(setup.seed), newer_header=newer)
        after = setup.open(base / "out", BOOT_B)
        assert after.total == committed
        assert after.total - len(after) <= max(untouched, 0) or not len(after)
        world.rewind(committed // setup.num_envs)
        agree(after, world)
        for _ in range(5):
            world.step(after)
        agree(after, world)


@pytest.mark.parametrize("damage", ["torn", "zeroed", "garbage"])
def test_a_torn_header_falls_back_to_the_commit_before(scratch: Path, damage: str) -> None:
    setup = Setup(2, 4, 3, 0.99, 30, 0, 7)
    memory, world = setup.open(scratch / "r"), setup.world()
    totals = []
    for _ in range(2):
        for _ in range(12):
            world.step(memory)
        memory.commit()
        assert memory.wait()
        totals.append(memory.committed)
    epoch = 2
    memory.close()
    with (scratch / "r" / replay_module.HEADER_FILE).open("r+b") as file:
        file.seek(4096 * (1 + epoch % 2) + (4 if damage == "torn" else 0))
        file.write({"torn": b"\xff\xff", "zeroed": bytes(4096), "garbage": os.urandom(64)}[damage])
    after = setup.open(scratch / "r", BOOT_B)
    assert after.total == totals[0]
    world.rewind(totals[0] // 2)
    assert agree(after, world)


def test_a_flipped_bit_drops_the_older_rows_only(scratch: Path) -> None:
    setup = Setup(2, 2, 1, 0.99, 40, 0, 3)
    memory, world = setup.open(scratch), setup.world()
    for _ in range(30):
        world.step(memory)
    memory.close()
    with (scratch / replay_module.FRAMES_FILE).open("r+b") as file:
        file.seek(10 * 2 * 8 + 3)
        file.write(b"\xee")
    after = setup.open(scratch, BOOT_B)
    assert (after.total, len(after)) == (60, 2 * 19)
    world.rewind(30)
    assert agree(after, world)


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import numpy as np
    from workers.replay import Replay
    memory = Replay(4 * 200, 4, (21, 40), stack=4, n_step=3, gamma=0.99, directory=Path(sys.argv[1]))
    off, row = np.zeros(4, bool), memory.total // 4
    print("first", row, flush=True)
    while True:
        frames = np.full((4, 21, 40), row % 251, np.uint8)
        memory.append(frames, np.full(4, row % 18), np.full(4, row % 7), off, off, off)
        row += 1
        if row % 16 == 0:
            memory.commit()
            print(row, memory.committed // 4, flush=True)
    """
)


def test_sigkill_in_mid_append_leaves_whole_rows(scratch: Path) -> None:
    """A real process, killed while it appends and commits; the ring has come round several times."""
    seen = 0
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(scratch)], stdout=subprocess.PIPE, text=True,
                              cwd=REPO, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:  # fmt: skip
            assert process.stdout is not None
            assert int(process.stdout.readline().split()[1]) >= seen
            for _ in range(30):
                seen = int(process.stdout.readline().split()[0])
            process.send_signal(signal.SIGKILL)
            process.wait()
    memory = Replay(4 * 200, 4, (21, 40), stack=4, n_step=3, gamma=0.99, directory=scratch)
    assert memory.total // 4 >= seen
    assert len(memory) == memory.capacity
    batch = memory.sample(2000, np.random.default_rng(0))
    newest = batch.obs[:, -1].reshape(2000, -1)
    assert (newest == newest[:, :1]).all(), "a torn frame was sampled"
    rows = newest[:, 0].to(torch.int64)
    assert ((batch.next_obs[:, -1, 0, 0].to(torch.int64) - rows) % 251 == 3).all()
    assert ((rows - batch.obs[:, 0, 0, 0].to(torch.int64)) % 251 <= 3).all()


# --- what it refuses ---------------------------------------------------------------------------------------------------


def test_another_shape_is_never_misread(scratch: Path) -> None:
    """Each way in which files may be of something else: they are removed, loudly, and a new replay begins."""
    base = {"capacity": 4 * 20, "num_envs": 4, "frame_shape": (2, 4), "identity": {"game": "Pong"}}
    changes = [
        {"num_envs": 2},
        {"frame_shape": (4, 2)},
        {"capacity": 4 * 24},
        {"identity": {"game": "Breakout"}},
    ]
    for change in changes:
        arguments = {**base, "stack": 4, "n_step": 1, "gamma": 0.9, "directory": scratch / "r"}
        memory = Replay(**arguments)
        world = World(4, random.Random(0))
        for _ in range(10):
            world.step(memory)
        memory.close()
        notes: list[str] = []
        other = Replay(**{**arguments, **change}, report=notes.append)
        assert other.total == 0
        (key,) = {"num_envs": "num_envs", "frame_shape": "frame_shape", "capacity": "rows", "identity": "identity"}[
            next(iter(change))
        ].split()
        assert len(notes) == 1
        # Fewer environments also mean more rows: whichever differs first is named.
        assert key in notes[0] or "rows" in notes[0]
        other.close()
        shutil.rmtree(scratch / "r")


@pytest.mark.parametrize("name", ["header.bin", "frames.bin", "steps.bin", "sums.bin"])
@pytest.mark.parametrize("damage", ["missing", "empty", "short", "flipped"])
def test_damaged_files_are_begun_anew(scratch: Path, name: str, damage: str) -> None:
    setup = Setup(2, 2, 1, 0.99, 10, 0, 3)
    memory, world = setup.open(scratch), setup.world()
    for _ in range(10):
        world.step(memory)
    memory.close()
    path = scratch / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        path.write_bytes(bytes([data[0] ^ 16]) + data[1:])
    else:
        path.write_bytes(b"" if damage == "empty" else data[:-1])
    notes: list[str] = []
    after = Replay(
        setup.capacity, 2, SHAPE, stack=2, n_step=1, gamma=0.99, directory=scratch, boot_id=BOOT_B, report=notes.append
    )
    if damage == "flipped" and name != "header.bin":
        assert after.total == 20
        assert len(after) == 18  # row 0 does not match its sum
    else:
        assert after.total == 0
        assert notes
    for _ in range(10):
        world.step(after)


def test_two_writers_are_refused(scratch: Path) -> None:
    setup = Setup(2, 2, 1, 0.99, 10, 0, 3)
    memory = setup.open(scratch)
    with pytest.raises(ReplayInUse, match="in use by another process"):
        setup.open(scratch)
    memory.close()
    setup.open(scratch).close()


def test_too_large_is_refused_with_the_numbers(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ReplayTooLarge, match=r"70682\.\d\d GB but .* GB are free in memory: set replay_size to [\d,]+ or less"
    ):
        Replay(10**10, 64, directory=scratch / "r", stack=4, n_step=3, gamma=0.99)
    monkeypatch.setattr(replay_module, "available_memory_bytes", lambda: None)  # as where /proc says nothing
    with pytest.raises(ReplayTooLarge, match="are free on the disk of"):
        Replay(10**10, 64, directory=scratch / "r", stack=4, n_step=3, gamma=0.99)
    assert list((scratch / "r").iterdir()) == []


def test_too_small_is_refused() -> None:
    with pytest.raises(ReplayError, match="too small for 64 environments: at least 576"):
        Replay(500, 64, stack=4, n_step=3, gamma=0.99)


def test_wrong_frames_are_refused() -> None:
    memory = Setup(2, 2, 1, 0.99, 10, 0, 3).open(None)
    off = np.zeros(2, bool)
    with pytest.raises(ValueError, match=r"must be uint8 \[2, 2, 4\], not float64 \[2, 2, 4\]"):
        memory.append(np.zeros((2, 2, 4)), [0, 0], [0, 0], off, off, off)


# --- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_costs_what_is_new(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(2, 2, 1, 0.99, 400, 0, 3)
    memory, world = setup.open(scratch), setup.world()
    summed = []
    original = replay_module._Files.crc

    def crc(self: replay_module._Files, slot: int) -> int:
        summed.append(slot)
        return original(self, slot)

    monkeypatch.setattr(replay_module._Files, "crc", crc)
    for steps, total in ((300, 300), (5, 305), (0, 305)):
        for _ in range(steps):
            world.step(memory)
        memory.commit()
        assert memory.wait()
        assert len(summed) == total


def test_a_failed_commit_is_reported_once_and_tried_again(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    memory = Replay(100, 2, SHAPE, stack=2, n_step=1, gamma=0.9, directory=scratch, report=notes.append)
    world = World(2, random.Random(0))
    world.step(memory)
    with monkeypatch.context() as patch:

        def full(fd: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fdatasync", full)
        for _ in range(3):
            memory.commit()
            assert memory.wait()
    assert memory.committed == 0
    assert len(notes) == 1
    assert "No space left" in notes[0]
    memory.commit()
    assert memory.wait()
    assert memory.committed == memory.total == 2


def test_sampling_is_a_function_of_the_generator() -> None:
    setup = Setup(3, 4, 3, 0.99, 20, 0, 5)
    memory, world = setup.open(None), setup.world()
    for _ in range(25):
        world.step(memory)
    for make in (lambda: torch.Generator().manual_seed(3), lambda: np.random.default_rng(3)):
        first, second = memory.sample(64, make()), memory.sample(64, make())
        for name in ("obs", "actions", "returns", "next_obs", "discounts"):
            assert torch.equal(getattr(first, name), getattr(second, name)), name
        assert first.obs.shape == (64, 4, *SHAPE)
        assert first.obs.is_contiguous()
        assert first.next_obs.is_contiguous()


def test_sampling_is_uniform() -> None:
    setup = Setup(2, 2, 2, 0.99, 20, 0, 5)
    memory, world = setup.open(None), setup.world()
    for _ in range(20):
        world.step(memory)
    batch = memory.sample(60_000, np.random.default_rng(0))
    counts = np.bincount([obs[-1] for obs in numbers(batch.obs)])
    counts = counts[counts > 0]
    expected = 60_000 / len(counts)
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < len(counts) + 6 * (2 * len(counts)) ** 0.5


def test_the_header_is_plain(scratch: Path) -> None:
    """A person who looks into header.bin can read of what it is."""
    Replay(100, 2, SHAPE, stack=2, n_step=1, gamma=0.9, directory=scratch, identity={"game": "Pong"}).close()
    data = (scratch / replay_module.HEADER_FILE).read_bytes()
    text = data[16 : 16 + int.from_bytes(data[8:12], "little")]
    assert json.loads(text) == {"rows": 50, "num_envs": 2, "frame_shape": [2, 4], "identity": {"game": "Pong"}}


# --- against envpool itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodic_life", [False, True])
def test_samples_are_envpools_own_observations(episodic_life: bool) -> None:
    """Stacks rebuilt from single frames are the stacks that envpool gave; its fake steps are never learned from."""
    envpool = pytest.importorskip("envpool")
    size, envs, n_step, gamma = 36, 3, 3, 0.9
    world = envpool.make("Breakout-v5", "gymnasium", num_envs=envs, stack_num=4, img_height=size, img_width=size, seed=5,
                         max_episode_steps=60, episodic_life=episodic_life, num_threads=1)  # fmt: skip
    memory = Replay(1000, envs, (size, size), stack=4, n_step=n_step, gamma=gamma)
    rng = np.random.default_rng(0)
    obs, info = world.reset()
    starts, log = np.ones(envs, bool), []
    for _ in range(200):
        actions = rng.integers(0, 4, envs)
        after, rewards, terminated, truncated, info = world.step(actions)
        memory.append(obs[:, -1], actions, rewards, terminated, truncated, starts)
        log.append((obs, actions, rewards, terminated, truncated))
        starts, obs = info["elapsed_step"] == 0, after
    world.close()
    expected = set()
    for env in range(envs):
        fake = False
        for row in range(len(log)):
            done = False
            value, discount, place = 0.0, 1.0, row
            while not done and place < min(row + n_step, len(log)):
                value += discount * float(log[place][2][env])
                discount *= gamma
                done = bool(log[place][3][env] or log[place][4][env])
                place += 1
            ended = log[place - 1][3][env]
            if not fake and (ended or (place < len(log) and (done or place == row + n_step))):
                following = b"" if ended else log[place][0][env].tobytes()
                expected.add((log[row][0][env].tobytes(), int(log[row][1][env]), round(value, 4),
                              0.0 if ended else round(discount, 4), following))  # fmt: skip
            fake = bool(log[row][3][env] or log[row][4][env])
    batch = memory.sample(6000, np.random.default_rng(0))
    seen = set()
    for place in range(6000):
        discount = round(batch.discounts[place].item(), 4)
        following = batch.next_obs[place].numpy().tobytes() if discount else b""
        seen.add((batch.obs[place].numpy().tobytes(), int(batch.actions[place]), round(batch.returns[place].item(), 4),
                  discount, following))  # fmt: skip
    assert len(expected) > 400
    assert any(item[3] == 0.0 for item in expected) == episodic_life
    assert seen == expected


def test_a_game_that_is_over_within_its_own_reset() -> None:
    """envpool may report done again with the fake step; then the next call is ignored as well."""
    memory = Replay(40, 1, SHAPE, stack=2, n_step=1, gamma=0.9)
    #        game, done | fake, done again | fake although it begins | a real step of the new game
    for row, (done, start) in enumerate([(True, True), (True, False), (False, True), (False, True), (False, False)]):
        memory.append(frame(row, 0, 1)[None], [row], [1.0], [done], [False], [start])
    batch = memory.sample(200, np.random.default_rng(0))
    discounts = [round(discount, 4) for discount in batch.discounts.tolist()]
    assert set(zip(batch.actions.tolist(), discounts, strict=True)) == {(0, 0.0), (3, 0.9)}


def test_an_environment_that_resets_within_the_call() -> None:
    """The row after a done that begins a game is a real step; a truncation without a final frame is left out."""
    memory = Replay(40, 1, SHAPE, stack=2, n_step=1, gamma=0.9)
    for row, end in enumerate(["", "terminated", "", "truncated", "", ""]):
        starts = [row in {0, 2, 4}]
        memory.append(frame(row, 0, 1)[None], [row], [1.0], [end == "terminated"], [end == "truncated"], starts)
    batch = memory.sample(200, np.random.default_rng(0))
    assert set(batch.actions.tolist()) == {0, 1, 2, 4}


def test_the_header_is_written_after_everything_is_synced(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(2, 2, 1, 0.99, 10, 0, 3)
    memory, world = setup.open(scratch), setup.world()
    calls: list[tuple[str, str, int]] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def name_of(fd: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{fd}")).name

    def write(fd: int, data: bytes, at: int) -> int:
        calls.append(("write", name_of(fd), at))
        return pwrite(fd, data, at)

    def sync(fd: int) -> None:
        fdatasync(fd)
        calls.append(("sync", name_of(fd), 0))

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    for _ in range(3):
        world.step(memory)
        memory.commit()
        assert memory.wait()
        slot = max(
            place for place, (kind, name, at) in enumerate(calls) if (kind, name) == ("write", "header.bin") and at < 12288
        )
        for name in ("frames.bin", "steps.bin", "sums.bin"):
            written = max(place for place, call in enumerate(calls) if call[:2] == ("write", name))
            assert any(call[:2] == ("sync", name) for call in calls[written:slot]), name
        assert ("sync", "header.bin", 0) in calls[slot:]
        calls.clear()


@pytest.mark.parametrize("overtaken", [1, 5, 12, 30])
def test_a_ring_that_comes_round_during_the_commit(scratch: Path, monkeypatch: pytest.MonkeyPatch, overtaken: int) -> None:
    """The slot of a row to be committed holds a later row by then: that one must not pass for the committed one."""
    setup = Setup(2, 2, 1, 0.99, 10, 0, 3)
    memory, world = setup.open(scratch / "now"), setup.world()
    for _ in range(20):
        world.step(memory)
    original, struck = replay_module._Files.crc, []

    def crc(self: replay_module._Files, slot: int) -> int:
        if not struck:
            struck.append(slot)
            for _ in range(overtaken):
                world.step(memory)
        return original(self, slot)

    monkeypatch.setattr(replay_module._Files, "crc", crc)
    memory.commit()
    assert memory.wait()
    assert struck
    assert memory.committed == 40
    after = setup.open(shutil.copytree(scratch / "now", scratch / "out"), BOOT_B)
    assert after.total == 40
    world.rewind(20)
    agree(after, world)
