"""fg: a program's output here, and what is typed here on its standard input."""

import subprocess

import pytest
from running import CTL, Terminal, ctl, environment
from serving import until


@pytest.fixture
def log(backend, tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"ready\n")
    backend.input = []
    backend.change("Pong", stdout_log=str(path))
    return path


def test_what_is_typed_goes_to_it_and_what_it_prints_is_shown(api, backend, log):
    with Terminal("fg", "Pong", socket=api) as terminal:
        terminal.until("ready")
        terminal.type("hello\n")
        terminal.until("hello")
        with log.open("ab") as file:
            file.write(b"you said hello\n")
        terminal.until("you said hello")
        until(lambda: len(backend.input or ()) > 1, "what was typed: the terminal itself has shown it before")
        terminal.interrupt()
        assert terminal.process.wait(30) == 0
    assert backend.input == [("Pong", b""), ("Pong", b"hello\n")]


def test_lines_of_a_pipe(api, backend, log):
    with subprocess.Popen(
        [*CTL, "-s", f"unix://{api}", "fg", "Pong"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=environment(), cwd="/",
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"  # a busy machine may show it late, and the pipe ends after that
        assert process.communicate(timeout=60) == ("", None)
    assert process.returncode == 0
    assert backend.input == [("Pong", b""), ("Pong", b"one\n"), ("Pong", b"two\n")]


def test_one_without_standard_input_says_how_to_give_it_one(api, backend):
    done = ctl("fg", "Pong", socket=api)
    said = "ERROR: Pong has no standard input: set stdin = true in its section of the configuration\n"
    assert (done.returncode, done.stdout) == (1, said)
