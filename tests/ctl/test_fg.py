"""fg: a program's output here, and what is typed here on its standard input."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_backend import FakeBackend
from running import Terminal, ctl


@pytest.fixture
def log(backend: FakeBackend, tmp_path: Path) -> Path:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"ready\n")
    backend.input = []
    backend.change("Pong", stdout_log=str(path))
    return path


def test_what_is_typed_goes_to_it_and_what_it_prints_is_shown(api: Path, backend: FakeBackend, log: Path) -> None:
    with Terminal("fg", "Pong", socket=api) as terminal:
        terminal.until("ready")
        terminal.type("hello\n")
        terminal.until("hello")
        with log.open("ab") as file:
            file.write(b"you said hello\n")
        terminal.until("you said hello")
        terminal.interrupt()
        assert terminal.process.wait(30) == 0
    assert backend.input == [("Pong", b""), ("Pong", b"hello\n")]


def test_lines_of_a_pipe(api: Path, backend: FakeBackend, log: Path) -> None:
    done = ctl("fg", "Pong", socket=api, stdin="one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, "ready\n")
    assert backend.input == [("Pong", b""), ("Pong", b"one\n"), ("Pong", b"two\n")]


def test_refusals_in_supervisors_words(api: Path, backend: FakeBackend) -> None:
    for args, said in (
        ((), "no process name supplied"), (("a", "b"), "too many process names supplied"),
        (("nobody",), "bad process name supplied"), (("Breakout",), "process not running"),
        (("Pong",), "Pong has no standard input: set stdin = true in its section of the configuration"),
    ):  # fmt: skip
        done = ctl("fg", *args, socket=api)
        assert (done.returncode, done.stdout) == (1, f"ERROR: {said}\n")
