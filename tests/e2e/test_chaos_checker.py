"""The checker of a chaos run sees what it is there for: each invariant broken on purpose, by real processes and files."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from box import ROOT, until
from chaos import invariants
from chaos.invariants import Checker, Scoreboard
from chaos.world import World

from workers import contract


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, ("Pong",))
    made.daemon_log.touch()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def board(world: World) -> Scoreboard:
    made = Scoreboard(world)
    made.want("Pong", run=True)
    made.cause("Pong", "a fault")
    return made


class Tree:
    """A shim and a worker as /proc shows them; neither is one."""

    def __init__(self, world: World, attempt: int, *, forked: bool = False) -> None:
        """`forked`: the worker is still the shim's copy, until `execute`."""
        self.token = f"{attempt:032x}"
        env = {
            **os.environ, "EXTRALIFE_RUN_DIR": str(world.run_dir("Pong")), "EXTRALIFE_TOKEN": self.token,
            "EXTRALIFE_PROGRAM": "Pong", "EXTRALIFE_ATTEMPT": str(attempt),
        }  # fmt: skip
        started = [
            "sh",
            "-c",
            f"exec 3<&0; {{ {'read x <&3; ' if forked else ''}exec sleep 1000; }} & echo $!; wait",
            "/proc/self/fd/9",
            "Pong",
            str(attempt),
            str(world.run_dir("Pong")),
        ]
        self.shim = subprocess.Popen(started, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.shim.stdout is not None
        self.worker = int(self.shim.stdout.readline())
        self.shim.stdout.close()
        if not forked:
            self.await_image()

    def execute(self) -> None:
        assert self.shim.stdin is not None
        self.shim.stdin.write(b"\n")
        self.shim.stdin.flush()
        self.await_image()

    def await_image(self) -> None:
        image, environ = (Path(f"/proc/{self.worker}/{file}") for file in ("cmdline", "environ"))  # set one after the other
        until(lambda: image.read_bytes().startswith(b"sleep") and environ.read_bytes(), 10, "the worker's own image")

    def kill_shim(self) -> None:
        assert self.shim.stdin is not None
        self.shim.stdin.close()
        self.shim.kill()
        self.shim.wait()

    def end(self) -> None:
        self.kill_shim()
        os.kill(self.worker, 9)


def commit(world: World, step: int) -> Path:
    """A checkpoint as `workers.checkpoint` leaves it, with other contents."""
    where = world.run_dir("Pong") / "checkpoints" / contract.checkpoint_name(step, "a" * 32)
    where.mkdir(parents=True)
    data = b"numbers" * 100
    (where / "tensors.safetensors").write_bytes(data)
    files = {"tensors.safetensors": (len(data), hashlib.blake2b(data, digest_size=32).hexdigest())}
    manifest = contract.Manifest("Pong", "a" * 32, 1, "b" * 32, step, time.time(), {}, files)
    (where / contract.MANIFEST_FILE).write_text(manifest.to_json())
    return where


def broken(board: Scoreboard) -> list[str]:
    return [each.invariant for each in board.broken]


def test_two_workers_of_a_program_are_seen(world: World, board: Scoreboard) -> None:
    checker, trees = Checker(board), [Tree(world, 1)]
    try:
        checker._turn()
        assert not board.broken
        trees.append(Tree(world, 2))
        checker._turn()
        assert broken(board) == ["once"]
        assert board.broken[0].before[-1].endswith("a fault (Pong)")
    finally:
        for tree in trees:
            tree.end()


def test_a_worker_without_its_shim_is_seen(world: World, board: Scoreboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "UNSUPERVISED_S", 0.0)
    checker, tree = Checker(board), Tree(world, 1)
    try:
        checker._turn()
        assert not board.broken
        tree.kill_shim()
        checker._turn()
        checker._turn()
        assert broken(board) == ["supervised"]
    finally:
        os.kill(tree.worker, 9)


def test_the_copy_of_a_shim_is_a_worker_once_it_executes_one(
    world: World, board: Scoreboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between fork and exec it has the shim's command line. Taken for a shim for ever, it would have no beat."""
    monkeypatch.setattr("chaos.truth._YOUNG_S", 600.0)  # a busy machine may keep the copy waiting for as long as it likes
    truth, tree = Checker(board).truth, Tree(world, 1, forked=True)
    try:
        assert not truth.look()["Pong"].processes
        tree.execute()
        assert [each.pid for each in truth.look()["Pong"].mains] == [tree.worker]
    finally:
        tree.end()


def test_a_stopped_program_that_runs_is_seen(world: World, board: Scoreboard) -> None:
    checker, tree = Checker(board), Tree(world, 1)
    try:
        board.want("Pong", run=False)
        board.wanted_since_s["Pong"] -= 60.0
        checker._turn()
        assert broken(board) == ["acknowledged"]
    finally:
        tree.end()


def test_a_flipped_bit_costs_a_checkpoint_its_word(world: World, board: Scoreboard) -> None:
    checker = Checker(board)
    first, second = commit(world, 100), commit(world, 200)
    checker._turn()
    assert checker.seen["Pong"].whole == (200, 100)
    path = second / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    checker._turn()
    assert checker.seen["Pong"].whole == (100,)
    assert checker.seen["Pong"].damaged == (200,)
    assert broken(board) == ["checkpoint"], "nothing was injected that may cost the newest one"
    board.broken.clear()
    (first / contract.MANIFEST_FILE).unlink()
    for _ in range(3):
        checker._turn()
    assert broken(board) == ["checkpoint"], "none is left"


def test_a_fault_may_exempt_what_it_breaks_and_only_for_its_time(
    world: World, board: Scoreboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker(board)
    commit(world, 100)
    newest = commit(world, 200)
    checker._turn()
    now_s = time.monotonic()
    monkeypatch.setattr(invariants, "time", SimpleNamespace(monotonic=lambda: now_s))
    board.exempt("checkpoint", "Pong", 0.2)
    (newest / contract.MANIFEST_FILE).unlink()
    checker._turn()
    assert not board.broken
    now_s += 0.2
    (newest / contract.MANIFEST_FILE).write_text("")
    board.breaks("checkpoint", "Pong", "it is over")
    assert broken(board) == ["checkpoint"]


def test_a_worker_that_resumes_too_far_back_is_seen(
    world: World, board: Scoreboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker, tree = Checker(board), Tree(world, 1)
    (world.runtime / "beats").mkdir()
    env = {
        contract.ENV_BEAT: str(world.runtime / "beats" / "Pong.1.beat"), contract.ENV_TOKEN: tree.token,
        contract.ENV_ATTEMPT: "1", contract.ENV_BOOT_ID: "c" * 32,
    }  # fmt: skip
    try:
        commit(world, 100)
        commit(world, 200)
        client = contract.Client(env)
        checker._turn()
        client.progress(env_steps=100, resumed_step=100)
        now_s = time.monotonic()
        monkeypatch.setattr(invariants, "time", SimpleNamespace(monotonic=lambda: now_s))
        checker._turn()
        assert broken(board) == ["steps"]
        assert "resumed at 100, whole checkpoint 200 was there" in board.broken[0].text
        now_s += 2.9
        assert checker.training("Pong")
        now_s += 0.2
        assert not checker.training("Pong")
    finally:
        tree.end()


def test_a_wanted_program_that_does_not_train_is_seen(
    world: World, board: Scoreboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "TRAINS_AGAIN_S", 0.1)
    checker = Checker(board)
    time.sleep(0.15)
    checker._turn()
    assert broken(board) == ["trains", "trains"], "the game and the script"


def test_a_traceback_is_seen_once_and_a_workers_is_exempt_for_the_lack_that_was_injected(
    world: World, board: Scoreboard
) -> None:
    checker, log = Checker(board), world.run_dir("Pong") / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("workers: an error in one line\n")

    def seen(log: Path, error: str) -> list[str]:
        board.broken.clear()
        with log.open("a") as file:
            file.write(f"Traceback (most recent call last):\n  File ...\n{error}\n")
        for _ in range(2):
            checker.tracebacks()
        return [f"{each.invariant} of {each.subject}" for each in board.broken if error in each.text]

    assert seen(log, "OSError: [Errno 24] Too many open files") == ["traceback of Pong"]
    board.exempt(invariants.LACK, "", 3600.0)
    assert not seen(log, "OSError: [Errno 24] Too many open files")
    assert not seen(log, "MemoryError")
    assert seen(log, "ValueError: wrong") == ["traceback of Pong"]
    assert seen(world.daemon_log, "MemoryError") == ["traceback of daemon"]


def test_words_that_a_report_must_hold_are_the_products_own() -> None:
    """A sentence that is put better would else be called a wrong report, and only after hours of chaos."""
    tree = ast.parse((ROOT / "bench" / "chaos" / "table.py").read_text())
    wanted = {
        each.value.value
        for each in ast.walk(tree)
        if isinstance(each, ast.keyword) and each.arg in {"why", "cause"} and isinstance(each.value, ast.Constant)
    }
    sources = "\n".join(path.read_text() for part in ("supervisor", "workers") for path in (ROOT / part).rglob("*.py"))
    of_the_system = {os.strerror(code) for code in errno.errorcode}
    assert len(wanted) > 10
    assert not [words for words in wanted - of_the_system if words not in sources]
