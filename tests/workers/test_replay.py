"""The replay equals a plain list of episodes, and comes back after a kill and a power cut."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from replay_reference import BOOT_B, SHAPE, Setup, World, agree, frame, numbers
from tools import ROOT

from workers import replay as replay_module
from workers.replay import Replay, ReplayInUse, ReplayTooLarge


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


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
    world.rewind(totals[0])
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
                              cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:  # fmt: skip
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


def geometry(capacity, frame_shape, identity):
    return {"cells": capacity, "frame_shape": list(frame_shape), "identity": identity}


def test_another_shape_is_never_misread(scratch: Path) -> None:
    """Each way in which files may be of something else: they are removed, loudly, and a new replay begins."""
    base = {"capacity": 4 * 20, "frame_shape": (2, 4), "identity": {"game": "Pong"}}
    changes = {"frame_shape": (4, 2), "capacity": 4 * 24, "identity": {"game": "Breakout"}}
    for key, value in changes.items():
        arguments = {**base, "num_envs": 4, "stack": 4, "n_step": 1, "gamma": 0.9, "directory": scratch / "r"}
        memory = Replay(**arguments)
        world = World(4, random.Random(0))
        for _ in range(10):
            world.step(memory)
        memory.close()
        notes: list[str] = []
        other = Replay(**{**arguments, key: value}, report=notes.append)
        assert other.total == 0
        assert len(notes) == 1
        was, now = (geometry(**(base | more))[{"capacity": "cells"}.get(key, key)] for more in ({}, {key: value}))
        name = {"capacity": "cells"}.get(key, key)
        assert notes == [f"{scratch / 'r'} can't be used and is begun anew: {name} was {was} and is {now} now"]
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
    path_size = path.stat().st_size if path.exists() else 0
    notes: list[str] = []
    after = Replay(
        setup.capacity, 2, SHAPE, stack=2, n_step=1, gamma=0.99, directory=scratch, boot_id=BOOT_B, report=notes.append
    )
    if damage == "flipped" and name != "header.bin":
        assert after.total == 20
        assert len(after) == 18  # row 0 does not match its sum
    else:
        assert after.total == 0
        assert after.recovered == "new"
        why = f"{name} is missing" if damage == "missing" else f"{name} has {path_size} bytes, expected {len(data)}"
        if name == "header.bin" and damage != "missing":
            why = f"{name} has {len(data) - 1} bytes, expected {len(data)}" if damage == "short" else "its header is damaged"
        assert notes == [f"{scratch} can't be used and is begun anew: {why}"]
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
        ReplayTooLarge, match=r"70840\.\d\d GB but .* GB are free in memory: set replay_size to [\d,]+ or less"
    ):
        Replay(10**10, 64, directory=scratch / "r", stack=4, n_step=3, gamma=0.99)
    monkeypatch.setattr(replay_module, "available_memory_bytes", lambda: None)  # as where /proc says nothing
    with pytest.raises(ReplayTooLarge, match="are free on the disk of"):
        Replay(10**10, 64, directory=scratch / "r", stack=4, n_step=3, gamma=0.99)
    assert list((scratch / "r").iterdir()) == []


def test_what_is_too_large_is_reported_with_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it advises is taken, and one transition more is not."""
    monkeypatch.setattr(replay_module, "available_memory_bytes", lambda: 10**6)
    with pytest.raises(ReplayTooLarge) as refused:
        Replay(10**6, 2, SHAPE, stack=2, n_step=1, gamma=0.9)
    needs, fits = re.fullmatch(
        r"a replay of 1,000,000 transitions of 2x4 needs (0\.\d\d) GB but 0\.00 GB are free in memory: "
        r"set replay_size to ([\d,]+) or less",
        str(refused.value),
    ).groups()
    size_bytes = replay_module.Geometry(10**6, SHAPE, {}).size_bytes
    assert needs == f"{size_bytes / 1e9:.2f}"
    count = int(fits.replace(",", ""))
    assert Replay(count, 2, SHAPE, stack=2, n_step=1, gamma=0.9).recovered == "kept in memory only"
    with pytest.raises(ReplayTooLarge):
        Replay(count + 1, 2, SHAPE, stack=2, n_step=1, gamma=0.9)


def test_what_is_available_is_the_least_of_host_and_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path

    def place(path: str, text: str) -> None:
        file = real(f"{tmp_path}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    monkeypatch.setattr(replay_module, "Path", lambda path: real(f"{tmp_path}{path}"))
    assert replay_module.available_memory_bytes() is None
    place("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   5000 kB\n")
    assert replay_module.available_memory_bytes() == 5_000 * 1024
    place("/proc/self/cgroup", "1:cpu:/other\n0::/a/b\n")
    place("/sys/fs/cgroup/a/b/memory.max", "max\n")
    for name, text in (("max", "4000000"), ("current", "3000000"), ("stat", "anon 7\ninactive_file 200\nactive_file 30\n")):
        place(f"/sys/fs/cgroup/a/memory.{name}", text)
    assert replay_module.available_memory_bytes() == 1_000_230
    place("/sys/fs/cgroup/a/memory.max", "9000000")
    assert replay_module.available_memory_bytes() == 5_000 * 1024
    place("/proc/meminfo", "garbage")
    assert replay_module.available_memory_bytes() == 6_000_230


# --- commits -----------------------------------------------------------------------------------------------------------


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
        memory.append(frame(row)[None], [row], [1.0], [done], [False], [start])
    batch = memory.sample(200, np.random.default_rng(0))
    discounts = [round(discount, 4) for discount in batch.discounts.tolist()]
    assert set(zip(batch.actions.tolist(), discounts, strict=True)) == {(0, 0.0), (3, 0.9)}


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

    def crc(self: replay_module._Files, place: int, count: int) -> int:
        if not struck:
            struck.append(place)
            for _ in range(overtaken):
                world.step(memory)
        return original(self, place, count)

    monkeypatch.setattr(replay_module._Files, "crc", crc)
    memory.commit()
    assert memory.wait()
    assert struck
    assert memory.committed == 40
    after = setup.open(shutil.copytree(scratch / "now", scratch / "out"), BOOT_B)
    assert after.total == 40
    world.rewind(40)
    agree(after, world)
