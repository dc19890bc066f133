"""Checkpoints survive whatever strikes while they are written, and damage is never loaded."""

import errno
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import preload
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools import ROOT

from supervisor.adapters.process.checkpoints import survey, verify
from workers import checkpoint as checkpoint_module
from workers import contract, daemon_side
from workers.checkpoint import Checkpointer, Loaded
from workers.contract import Client
from workers.store import AllDamaged, Entry, Fenced, WrongIdentity, names_to_keep, read_manifest, write_file

TOKENS = ["1" * 32, "2" * 32, "3" * 32]
IDENTITY = {"game": "Pong", "algo": "dqn", "frame_shape": (84, 84)}
FILES = ("tensors.safetensors", "state.json", "manifest.json")


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    make = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(16, 3, 4, 4, generator=make).contiguous(memory_format=torch.channels_last),
        "bias": torch.randn(5, generator=make),
        "half": torch.randn(3, 2, generator=make).to(torch.bfloat16),
        "step": torch.tensor(seed),
        "rng": torch.randint(0, 256, (101,), generator=make).to(torch.uint8),
        "flags": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 4),
        "transposed": torch.randn(4, 6, generator=make).t(),
    }


def same(loaded: Loaded, seed: int) -> None:
    wanted = tensors(seed)
    assert set(loaded.tensors) == set(wanted)
    for name, tensor in wanted.items():
        assert loaded.tensors[name].dtype == tensor.dtype
        assert torch.equal(loaded.tensors[name], tensor)
    assert loaded.state == {"seed": seed, "epsilon": 0.1, "rng": [2**127 + seed, None]}


def put(saver: Checkpointer, step: int, *, mean_return: float | None = None) -> None:
    assert saver.save(step, tensors(step), {"seed": step, "epsilon": 0.1, "rng": [2**127 + step, None]},
                      mean_return=mean_return, stall_s=0.002)  # fmt: skip
    assert saver.wait(60)


def good(saver: Checkpointer, step: int, *, mean_return: float | None = None) -> None:
    put(saver, step, mean_return=mean_return)
    assert saver.failure is None
    assert saver.committed_step == step


def names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


class Attempt:
    """A supervised attempt: the environment that the daemon gives, and what it is told."""

    def __init__(self, run_dir: Path, token: str = TOKENS[0], attempt: int = 1) -> None:
        self.run_dir = run_dir
        run_dir.mkdir(exist_ok=True, parents=True)
        (run_dir / contract.FENCE_FILE).write_text(token + "\n")
        self.beat = run_dir.parent / f"beat-{run_dir.name}-{token}-{attempt}"
        self.directory = run_dir / contract.ATTEMPTS_DIR / f"{attempt}-{token}"
        self.client = Client({
            contract.ENV_BEAT: str(self.beat), contract.ENV_TOKEN: token, contract.ENV_RUN_DIR: str(run_dir),
            contract.ENV_PROGRAM: "Pong", contract.ENV_ATTEMPT: str(attempt),
        })  # fmt: skip
        self.client.close()
        self.saver = Checkpointer(run_dir, self.client, IDENTITY)

    def reports(self) -> list[dict]:
        try:
            text = (self.directory / contract.REPORTS_FILE).read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


# --- the plain way -------------------------------------------------------------------------------------------------------


def test_what_is_saved_comes_back(run_dir: Path) -> None:
    attempt = Attempt(run_dir)
    assert attempt.saver.load_newest() is None
    good(attempt.saver, 1000, mean_return=3.5)
    beat = daemon_side.read_beat(attempt.beat)
    assert beat is not None
    assert (beat.ckpt_step, beat.ckpt_count, beat.ckpt_stall_us) == (1000, 1, 2000)
    loaded = Attempt(run_dir, TOKENS[1], 2).saver.load_newest()
    assert loaded is not None
    assert (loaded.env_steps, loaded.path) == (1000, run_dir / "checkpoints" / f"ckpt-1000.{TOKENS[0]}")
    assert (loaded.manifest.program, loaded.manifest.attempt, loaded.manifest.mean_return) == ("Pong", 1, 3.5)
    same(loaded, 1000)


def test_the_state_is_taken_when_save_is_called(run_dir: Path) -> None:
    """The caller goes on changing its counters while the thread writes."""
    saver = Attempt(run_dir).saver
    state = {"counter": 1}
    assert saver.save(1, tensors(), state, mean_return=None, stall_s=0.0)
    state["counter"] = 2
    assert saver.wait(60)
    loaded = saver.load_newest()
    assert loaded is not None
    assert loaded.state == {"counter": 1}


def test_a_lower_step_never_replaces_a_higher_one(run_dir: Path) -> None:
    attempt = Attempt(run_dir)
    good(attempt.saver, 100)
    put(attempt.saver, 99)
    assert "a lower step never replaces a higher one" in (attempt.saver.failure or "")
    assert names(run_dir) == [f"ckpt-100.{TOKENS[0]}"]


def test_one_save_at_a_time(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver, go, there = Attempt(run_dir).saver, threading.Event(), threading.Event()
    original = os.fsync

    def held(fd: int) -> None:
        there.set()
        assert go.wait(60)
        original(fd)

    monkeypatch.setattr(os, "fsync", held)
    assert saver.save(1, tensors(), {}, mean_return=None, stall_s=0.0)
    assert there.wait(60)
    assert not saver.save(2, tensors(), {}, mean_return=None, stall_s=0.0)
    assert not saver.wait(0.0)
    go.set()
    assert saver.wait(60)
    assert names(run_dir) == [f"ckpt-1.{TOKENS[0]}"]


def test_what_cannot_be_stored_is_the_callers_error(run_dir: Path) -> None:
    saver = Attempt(run_dir).saver
    with pytest.raises(TypeError, match=r"tensor 'x' has type torch\.complex64"):
        saver.save(1, {"x": torch.zeros(1, dtype=torch.complex64)}, {}, mean_return=None, stall_s=0.0)
    with pytest.raises(TypeError, match="not JSON serializable"):
        saver.save(1, tensors(), {"x": object()}, mean_return=None, stall_s=0.0)
    assert names(run_dir) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_diverged_state_is_not_saved(run_dir: Path, value: float) -> None:
    """Else a learner that diverged would push the good checkpoints out, one by one."""
    attempt = Attempt(run_dir)
    good(attempt.saver, 1)
    attempt.saver.save(2, {"w": torch.tensor([1.0, value])}, {}, mean_return=None, stall_s=0.0)
    assert attempt.saver.wait(60)
    unfit = "checkpoint at step 2 was not written: tensor 'w' holds numbers that are not finite"
    assert attempt.saver.failure == unfit
    attempt.saver.save(3, tensors(), {"loss": value}, mean_return=None, stall_s=0.0)
    assert attempt.saver.wait(60)
    unfit = "checkpoint at step 3 was not written: the state holds a number that is not finite"
    assert attempt.saver.failure == unfit
    assert [report["kind"] for report in attempt.reports()] == ["checkpoint_failed"] * 2
    assert names(run_dir) == [f"ckpt-1.{TOKENS[0]}"]
    good(attempt.saver, 4, mean_return=value)


# --- the fence -----------------------------------------------------------------------------------------------------------


def test_a_fenced_attempt_commits_nothing(run_dir: Path) -> None:
    old = Attempt(run_dir)
    good(old.saver, 10)
    new = Attempt(run_dir, TOKENS[1], 2)
    assert old.saver.save(20, tensors(), {}, mean_return=None, stall_s=0.0)
    with pytest.raises(Fenced):
        old.saver.wait(60)
    with pytest.raises(Fenced):
        old.saver.save(30, tensors(), {}, mean_return=None, stall_s=0.0)
    assert names(run_dir) == [f"ckpt-10.{TOKENS[0]}"]
    good(new.saver, 11)


def test_a_fenced_attempt_leaves_the_others_save_alone(run_dir: Path) -> None:
    Attempt(run_dir)
    under_way = run_dir / "checkpoints" / f"ckpt-5.{TOKENS[1]}.tmp"
    under_way.mkdir()
    (under_way / "state.json").write_text("{}")
    attempt = Attempt(run_dir)
    assert not under_way.exists()  # what an earlier attempt left behind
    under_way.mkdir()
    (run_dir / contract.FENCE_FILE).write_text(TOKENS[1])
    Checkpointer(run_dir, attempt.client, IDENTITY)
    assert under_way.exists()


# --- the N-th call fails, the N-th call is the last one --------------------------------------------------------------------


class Crash(BaseException):
    """The machine is gone: this call and all later ones never happen."""


@dataclass
class Disk:
    """Counts the writing thread's calls, fails the N-th, and remembers what a power cut would take.

    A power cut takes what was not synced: a file's bytes until fsync(file); a directory's new, renamed and removed
    entries until fsync(directory). Some of it may have reached the disk all the same, so there are two outcomes to
    survive: `lost`, nothing of it did, and `renamed`, the entries did but the bytes did not.
    """

    fail_at: int
    crash: bool
    calls: int = 0
    paths: dict[int, Path] = field(default_factory=dict)
    dirty: set[Path] = field(default_factory=set)
    entries: list[tuple[str, Path, Path | None]] = field(default_factory=list)
    last: str = ""

    def call(self, name: str, path: Path) -> None:
        self.calls += 1
        if self.calls == self.fail_at or (self.crash and self.calls > self.fail_at):
            self.last = f"{name} {path.name}"
            if self.crash:
                raise Crash
            raise OSError(random.Random(self.calls).choice([errno.ENOSPC, errno.EIO]), "struck", str(path))

    def synced(self, path: Path) -> None:
        self.dirty.discard(path)
        self.entries = [entry for entry in self.entries if entry[1].parent != path]

    def renamed(self, source: Path, target: Path) -> None:
        self.entries.append(("rename", target, source))

        # What was noted below the old name is below the new one now.
        def move(path: Path) -> Path:
            return target / path.relative_to(source) if path.is_relative_to(source) else path

        self.dirty = {move(path) for path in self.dirty}
        self.entries = [(kind, move(path) if path != target else path, other) for kind, path, other in self.entries]

    def cut_power(self, outcome: str) -> None:
        for path in self.dirty:
            if path.exists():
                os.truncate(path, 0)
        if outcome == "renamed":
            return
        for kind, path, source in reversed(self.entries):
            if kind == "rename" and path.exists():
                assert source is not None
                path.rename(source)
            elif kind == "create" and path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def on_disk(disk: Disk) -> Iterator[None]:
    """Put `disk` between the writing thread and the real one."""
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir")}

    def mine() -> bool:
        return threading.current_thread().name == "checkpoint"

    def wrap(name: str, before: Callable[..., Path], after: Callable[..., None]) -> Callable:
        def call(*args, **kwargs):
            if not mine():
                return real[name](*args, **kwargs)
            disk.call(name, before(*args))
            result = real[name](*args, **kwargs)
            after(result, *args)
            return result

        return call

    def opened(fd: int, path: os.PathLike, flags: int, *_: int) -> None:
        disk.paths[fd] = Path(path)
        if flags & os.O_CREAT:
            disk.entries.append(("create", Path(path), None))

    def by_path(path: os.PathLike, *_: object) -> Path:
        return Path(path)

    def by_fd(fd: int, *_: object) -> Path:
        return disk.paths[fd]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", wrap("open", by_path, opened))
        patch.setattr(os, "write", wrap("write", by_fd, lambda _, fd, __: disk.dirty.add(disk.paths[fd])))
        patch.setattr(os, "fsync", wrap("fsync", by_fd, lambda _, fd: disk.synced(disk.paths[fd])))
        patch.setattr(os, "close", wrap("close", by_fd, lambda _, fd: disk.paths.pop(fd)))
        patch.setattr(
            os, "mkdir", wrap("mkdir", by_path, lambda _, path, *__: disk.entries.append(("create", Path(path), None)))
        )
        patch.setattr(os, "rename", wrap("rename", by_path, lambda _, old, new: disk.renamed(Path(old), Path(new))))
        patch.setattr(os, "unlink", wrap("unlink", by_path, lambda *_: None))
        patch.setattr(os, "rmdir", wrap("rmdir", by_path, lambda *_: None))
        yield


@pytest.fixture(scope="module")
def saved_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints, so that a fourth commit prunes one."""
    run_dir = tmp_path_factory.mktemp("before") / "run"
    for step in (1, 2, 3):
        good(Attempt(run_dir).saver, step)
    for path in run_dir.glob("checkpoints/*/manifest.json"):
        # Committed long ago: only "the last three" holds them.
        manifest = contract.Manifest.from_json(path.read_bytes())
        old = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__} | {"created_wall_s": 1e9}
        path.write_text(contract.Manifest(**old).to_json())
    return run_dir


def strike(saved_before: Path, tmp_path: Path, disk: Disk) -> tuple[Path, bool]:
    """A save at step 4 on this disk; returns the directory and whether the daemon was told that it is durable."""
    run_dir = shutil.copytree(saved_before, tmp_path / f"run-{disk.fail_at}")
    attempt = Attempt(run_dir, TOKENS[1], 2)
    told = []
    attempt.client.committed = lambda step, **_: told.append(step)  # type: ignore[method-assign]
    with on_disk(disk):
        attempt.saver.save(
            4, tensors(4), {"seed": 4, "epsilon": 0.1, "rng": [2**127 + 4, None]}, mean_return=None, stall_s=0.0
        )
        assert attempt.saver._thread is not None
        attempt.saver._thread.join(60)
    if not disk.crash:
        attempt.saver.wait(0)  # an error of the disk is never raised
        if disk.calls >= disk.fail_at and attempt.saver.failure is not None:
            assert [report["kind"] for report in attempt.reports()] == ["checkpoint_failed"]
            good(attempt.saver, 5)
            assert [name for name in names(run_dir) if name.endswith(".tmp")] == [], disk.last
    return run_dir, told == [4]


def check_after(run_dir: Path, told: bool, last: str) -> None:
    for info in survey(run_dir):
        # Older ones too: pruning must never leave half of one under its name.
        assert verify(info).verified, f"died in: {last}"
    loaded = Attempt(run_dir, TOKENS[2], 3).saver.load_newest()
    assert loaded is not None
    assert loaded.env_steps in ({4} if told else {3, 4}), f"died in: {last}"
    same(loaded, loaded.env_steps)
    left = names(run_dir)
    assert [name for name in left if name.endswith((".tmp", ".bad"))] == [], f"died in: {last}"


@pytest.mark.parametrize("outcome", ["killed", "lost", "renamed"])
def test_a_death_at_every_call_leaves_a_whole_newest_checkpoint(saved_before: Path, tmp_path: Path, outcome: str) -> None:
    """SIGKILL (`killed`) or power cut before the N-th call, for every N until the save gets through."""
    for number in range(1, 200):
        disk = Disk(number, crash=True)
        run_dir, told = strike(saved_before, tmp_path, disk)
        if outcome != "killed":
            disk.cut_power(outcome)
        check_after(run_dir, told, disk.last)
        shutil.rmtree(run_dir)
        if disk.calls < number:
            assert told
            assert number > 30
            return
    pytest.fail("the save never got through")


def test_an_error_at_every_call_is_reported_and_survived(saved_before: Path, tmp_path: Path) -> None:
    unread = 0
    for number in range(1, 200):
        disk = Disk(number, crash=False)
        run_dir, told = strike(saved_before, tmp_path, disk)
        loaded = Attempt(run_dir, TOKENS[2], 3).saver.load_newest()
        assert loaded is not None
        assert loaded.env_steps in {4, 5}
        unread += (loaded.env_steps, disk.calls >= number, told) == (4, True, True)
        shutil.rmtree(run_dir)
        if disk.calls < number:
            assert told
            assert unread == 3, "open, open and close: a fence that cannot be read once stops no save"
            return
    pytest.fail("the save never got through")


def test_a_full_disk_is_reported_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(run_dir)
    with monkeypatch.context() as patch:

        def full(fd: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", full)
        for step in (1, 2, 3):
            put(attempt.saver, step)
    (report,) = attempt.reports()
    assert report["kind"] == "checkpoint_failed"
    assert "No space left on device" in report["error"]
    good(attempt.saver, 4)
    assert names(run_dir) == [f"ckpt-4.{TOKENS[0]}"]


def test_without_its_run_directory_nothing_is_written_and_the_reason_is_kept(run_dir: Path) -> None:
    saver = Attempt(run_dir).saver
    shutil.rmtree(run_dir)
    put(saver, 1)
    why = f"[Errno {errno.ENOENT}] its run directory was removed: '{run_dir}'"
    assert saver.failure == f"checkpoint at step 1 was not written: {why}"
    assert not (run_dir / "checkpoints").exists(), "one that a worker makes could be beside the one that counts"


def test_a_disk_that_says_it_wrote_and_did_not_is_found_out(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(run_dir)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda _, data: len(data))
        put(attempt.saver, 1)
    assert re.search(r"was not written: .* has 0 bytes after writing \d\d+: ", attempt.saver.failure or "")
    assert names(run_dir) == []


SAVER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import torch
    from workers.checkpoint import Checkpointer
    from workers.contract import Client
    torch.set_num_threads(1)
    saver = Checkpointer(Path(sys.argv[1]), Client({}), {"game": "Pong"})
    found = saver.load_newest()
    step = found.env_steps if found else 0
    while True:
        step += 1
        saver.save(step, {"w": torch.full((500_000,), float(step))}, {"step": step}, mean_return=None, stall_s=0.0)
        print(saver.committed_step, flush=True)  # while the save is under way
        saver.wait()
    """
)


def test_sigkill_in_mid_save(run_dir: Path) -> None:
    """A real process, killed at a random moment of a save, again and again."""
    known, rng = 0, random.Random(0)
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(run_dir)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:  # fmt: skip
            assert process.stdout is not None
            for _ in range(rng.randrange(3, 12)):
                line = process.stdout.readline().strip()
                known = known if line == "None" else int(line)
            process.send_signal(signal.SIGKILL)
            process.wait()
        saver = Checkpointer(run_dir, Client({}), {"game": "Pong"})
        loaded = saver.load_newest()
        assert loaded is not None
        assert loaded.env_steps >= known > 0
        assert loaded.state == {"step": loaded.env_steps}
        assert torch.equal(loaded.tensors["w"], torch.full((500_000,), float(loaded.env_steps)))
        assert not [name for name in names(run_dir) if name.endswith((".tmp", ".bad"))]


WITHOUT_THREADS = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, "tests")
    import preload
    import torch
    from workers.checkpoint import Checkpointer
    from workers.contract import Client
    torch.set_num_threads(1)
    run_dir, faults = map(Path, sys.argv[1:])
    saver = Checkpointer(run_dir, Client({}), {"game": "Pong"})
    preload.no_forks(faults, refused=True)
    for step in (1, 2):
        assert saver.save(step, {"w": torch.full((500,), float(step))}, {"step": step}, mean_return=None, stall_s=0.0)
        assert saver.wait(0)
        print(saver.committed_step, saver.failure)
    """
)


def test_while_no_thread_can_be_begun_it_is_saved_all_the_same(run_dir: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS, str(run_dir), str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, **preload.environment(tmp_path), "OMP_NUM_THREADS": "1"}, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["1 None", "2 None"], done.stderr
    assert Checkpointer(run_dir, Client({}), {"game": "Pong"}).load_newest() is not None


# --- damage --------------------------------------------------------------------------------------------------------------


def two(run_dir: Path) -> Path:
    attempt = Attempt(run_dir)
    good(attempt.saver, 1)
    good(attempt.saver, 2)
    return run_dir / "checkpoints" / f"ckpt-2.{TOKENS[0]}"


def falls_back(run_dir: Path, error: str) -> None:
    attempt = Attempt(run_dir, TOKENS[1], 2)
    loaded = attempt.saver.load_newest()
    assert loaded is not None
    assert loaded.env_steps == 1
    same(loaded, 1)
    assert names(run_dir) == [f"ckpt-1.{TOKENS[0]}", f"ckpt-2.{TOKENS[0]}.bad"]
    (report,) = attempt.reports()
    assert report["kind"] == "checkpoint_bad"
    assert report["path"] == str(run_dir / "checkpoints" / f"ckpt-2.{TOKENS[0]}.bad")
    assert error in report["error"]
    assert attempt.saver.bad_count == 1
    # It carries on, past the damaged one's step as well.
    good(attempt.saver, 2)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "error"),
    [("missing", "is missing"), ("empty", ""), ("truncated", ""), ("longer", ""), ("directory", "is not a file")],
)
def test_damage_falls_back_to_the_one_before(run_dir: Path, name: str, damage: str, error: str) -> None:
    path = two(run_dir) / name
    data = path.read_bytes()
    if damage in {"missing", "directory"}:
        path.unlink()
    if damage == "directory":
        path.mkdir()
    if damage in {"empty", "truncated", "longer"}:
        path.write_bytes({"empty": b"", "truncated": data[:-1], "longer": data + b"x"}[damage])
    falls_back(run_dir, error or ("manifest" if name == "manifest.json" else "bytes, expected"))


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"state.json": b"{}"}, "its manifest lists state.json"),
        ({}, "its manifest lists no files"),
        ({"state.json": b"{", "tensors.safetensors": b""}, "its files can't be read: "),
        ({"state.json": b"{}", "tensors.safetensors": b"x"}, "its files can't be read: "),
        ({"state.json": b"[1]", "tensors.safetensors": safetensors.torch.save({})}, "state.json is not an object"),
    ],
)
def test_files_with_the_right_digests_that_are_no_checkpoint_are_damage(
    run_dir: Path, files: dict[str, bytes], error: str
) -> None:
    path = two(run_dir)
    manifest = read_manifest(path)
    for name in FILES:
        (path / name).unlink()
    listed = {name: write_file(path / name, [data]) for name, data in files.items()}
    write_file(path / "manifest.json", [replace(manifest, files=listed).to_json().encode()])
    falls_back(run_dir, error)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("pair") / "run"
    two(run_dir)
    return run_dir


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(pair: Path, tmp_path: Path, name: str, place: float, bit: int) -> None:
    run_dir = shutil.copytree(pair, tmp_path / "run")
    try:
        path = run_dir / "checkpoints" / f"ckpt-2.{TOKENS[0]}" / name
        data = bytearray(path.read_bytes())
        data[int(place * len(data))] ^= 1 << bit
        path.write_bytes(data)
        loaded = Attempt(run_dir, TOKENS[1], 2).saver.load_newest()
        assert loaded is not None
        if loaded.env_steps == 2:
            # A last decimal that makes no difference to the number: then nothing is damaged.
            assert name == "manifest.json"
            same(loaded, 2)
        else:
            same(loaded, 1)
            assert f"ckpt-2.{TOKENS[0]}.bad" in names(run_dir)
    finally:
        shutil.rmtree(run_dir)


def test_all_damaged_is_said_aloud(run_dir: Path) -> None:
    """And again on every start until something new is committed: never silently from scratch."""
    path = two(run_dir)
    (path / "state.json").write_text("{}")
    (run_dir / "checkpoints" / f"ckpt-1.{TOKENS[0]}" / "tensors.safetensors").unlink()
    for attempt, why in ((2, f"ckpt-2.{TOKENS[0]}: .+; ckpt-1.{TOKENS[0]}: .+"), (3, "all of them were set aside before")):
        with pytest.raises(AllDamaged, match=rf"^no checkpoint in \S+ is whole \({why}\); they are kept there as \*\.bad$"):
            Attempt(run_dir, TOKENS[1], attempt).saver.load_newest()
    assert [name for name in names(run_dir) if not name.endswith(".bad")] == []
    saver = Attempt(run_dir, TOKENS[2], 4).saver
    good(saver, 1)
    loaded = saver.load_newest()
    assert loaded is not None


def test_a_tensor_that_is_not_finite_is_damage(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that an older version, or a broken device, had written with a right digest."""
    saver = Attempt(run_dir).saver
    good(saver, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "_finite", lambda _: True)
        saver.save(2, {"w": torch.tensor([math.nan])}, {}, mean_return=None, stall_s=0.0)
        assert saver.wait(60)
        assert saver.failure is None
    falls_back(run_dir, "tensor 'w' holds numbers that are not finite")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_an_error_of_the_disk_is_no_damage(run_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = two(run_dir)
    original = os.read
    with monkeypatch.context() as patch:

        def failing(fd: int, size: int) -> bytes:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(path)):
                raise OSError(number, os.strerror(number))
            return original(fd, size)

        patch.setattr(os, "read", failing)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
            Attempt(run_dir, TOKENS[1], 2).saver.load_newest()
        assert caught.value.errno == number
    loaded = Attempt(run_dir, TOKENS[1], 3).saver.load_newest()
    assert loaded is not None
    assert loaded.env_steps == 2


def test_a_checkpoint_that_vanishes_meanwhile_is_no_damage(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon may set one aside at any moment."""
    path = two(run_dir)
    attempt = Attempt(run_dir, TOKENS[1], 2)
    original = checkpoint_module._read_whole

    def racing(*args):
        if path.exists():
            path.rename(path.with_name(path.name + ".bad"))
        return original(*args)

    monkeypatch.setattr(checkpoint_module, "_read_whole", racing)
    with pytest.raises(FileNotFoundError):
        attempt.saver.load_newest()
    assert attempt.reports() == []
    loaded = attempt.saver.load_newest()
    assert loaded is not None
    assert loaded.env_steps == 1


def test_another_identity_is_refused_and_left_alone(run_dir: Path) -> None:
    two(run_dir)
    before = names(run_dir)
    for change, pattern in [
        ({"game": "Breakout"}, "has game 'Pong', this run has game 'Breakout'"),
        ({"frame_shape": (42, 42)}, r"has frame_shape \[84, 84\], this run has frame_shape \[42, 42\]"),
        ({"actions": 6}, "has no actions, this run has actions 6"),
    ]:
        with pytest.raises(WrongIdentity, match=pattern):
            Checkpointer(run_dir, Client({}), {**IDENTITY, **change}).load_newest()
    assert names(run_dir) == before


# --- what is kept --------------------------------------------------------------------------------------------------------


def entry(step: int, wall_s: float = 0.0, boot: str = "b", score: float | None = None) -> Entry:
    return Entry(f"ckpt-{step}", step, wall_s, boot, score)


def test_the_worked_example_of_the_keep_rule() -> None:
    noon = 12 * 3600.0
    saves = [entry(minute, noon - 7200 + minute * 60, score=5.0 if minute == 17 else 1.0) for minute in range(121)]
    # 11:58, 11:59 and 12:00 are the last three; 10:59 is its hour's; minute 17 the best.
    assert names_to_keep(saves, noon) == {"ckpt-118", "ckpt-119", "ckpt-120", "ckpt-59", "ckpt-17"}


def test_the_last_of_the_boot_before_is_kept() -> None:
    saves = [entry(step, boot="a" if step < 3 else "b" if step < 10 else "c") for step in range(20)]
    assert names_to_keep(saves, 1e6) == {"ckpt-19", "ckpt-18", "ckpt-17", "ckpt-9"}


entries = st.lists(
    st.builds(
        Entry,
        name=st.uuids().map(str),
        env_steps=st.integers(0, 50),
        created_wall_s=st.floats(-1e5, 3e5),
        boot_id=st.sampled_from("abc"),
        mean_return=st.none() | st.floats(-5, 5),
    ),
    max_size=60,
)


def test_three_days_of_saves_always_leave_one_an_hour() -> None:
    held: list[Entry] = []
    for step in range(3 * 24 * 12):
        now_wall_s = step * 300.0
        held.append(entry(step, now_wall_s))
        keep = names_to_keep(held, now_wall_s)
        held = [item for item in held if item.name in keep]
        for hours in range(min(23, int(now_wall_s // 3600))):
            assert any(0 <= (now_wall_s - hours * 3600) - item.created_wall_s <= 3600 for item in held)
    assert len(held) < 30


def test_pruning_keeps_by_the_rule_and_spares_backups(run_dir: Path) -> None:
    attempt = Attempt(run_dir)
    (run_dir / contract.BACKUPS_DIR).mkdir()
    (run_dir / contract.BACKUPS_DIR / f"ckpt-2.{TOKENS[0]}").write_text("")
    for step in range(1, 8):
        good(attempt.saver, step, mean_return=9.0 if step == 3 else 1.0)
    assert names(run_dir) == [f"ckpt-{step}.{TOKENS[0]}" for step in (2, 3, 5, 6, 7)]


def test_nothing_is_pruned_while_backups_are_unknown(run_dir: Path) -> None:
    """Unknown is not none: a directory that can't be listed may name any of them."""
    attempt = Attempt(run_dir)
    (run_dir / contract.BACKUPS_DIR).write_text("not a directory")
    for step in range(1, 6):
        put(attempt.saver, step)
        failure = rf"checkpoint at step {step} is committed, but old ones could not be removed: \[Errno 20\] .+"
        assert re.fullmatch(failure, attempt.saver.failure or "")
    assert len(names(run_dir)) == 5
    assert len(attempt.reports()) == 1
