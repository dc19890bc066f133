"""Stacks from outside: which processes are asked, with what, and what is told of those that cannot be read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.adapters import leftovers, procfs
from supervisor.adapters.process import evidence

HEADER = "Process 812: python train.py\nPython v3.11.7\n\n"


@pytest.fixture
def own() -> procfs.Stat:
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    return stat


@pytest.fixture
def spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run as py-spy: a file that a test writes."""
    path = tmp_path / "py-spy"
    path.touch(0o755)
    monkeypatch.setattr(evidence, "py_spy", lambda: str(path))
    return path


def test_a_python_is_known_by_the_name_of_its_executable(tmp_path: Path, own: procfs.Stat) -> None:
    assert evidence.is_python(own.pid)
    for name, known in (("pypy3.10", True), ("python3", True), ("cpython", False), ("sleep", False)):
        shutil.copy(Path(shutil.which("sleep") or "").resolve(), tmp_path / name)
        with subprocess.Popen(["sleep", "60"], executable=tmp_path / name) as process:
            assert evidence.is_python(process.pid) is known, name
            process.kill()
    assert not evidence.is_python(process.pid), "it is gone"


def test_it_is_asked_without_stopping_the_process_and_with_little_of_our_environment(spy, own, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/own")
    spy.write_text(f"#!/bin/sh\nprintf '{HEADER}'\necho \"$@\"\nreadlink /proc/self/fd/0\nenv | grep -v ^PWD= | sort\n")
    told = evidence.stacks_by_py_spy([own], 30.0).splitlines()
    assert told[:3] == [f"{own.name}({own.pid}):", f"dump --nonblocking --pid {own.pid}", "/dev/null"]
    mine = {"PATH": "/usr/bin:/bin:/own", "RUST_BACKTRACE": "0"} | leftovers.mark()
    assert set(told[3:]) - {"_=/usr/bin/env", "SHLVL=0", "SHLVL=1"} == {f"{name}={value}" for name, value in mine.items()}


def test_only_what_follows_its_header_is_shown_whatever_bytes_it_has(spy, own) -> None:
    spy.write_text(f"#!/bin/sh\nprintf '{HEADER}\\n  Thread 1\\n    a\\377b\\n\\n  Thread 2 in X\\n\\n'\n")
    assert evidence.stacks_by_py_spy([own], 30.0) == f"{own.name}({own.pid}):\n  Thread 1\n    a\ufffdb\n\n  Thread 2 in X"


SENTENCE = "echo 'Error: Failed to suspend it' >&2; echo >&2; echo 'Reason:' >&2"
CAUSES = f"{SENTENCE}; echo '    0: ptrace: no' >&2; echo '    1: EPERM: not permitted' >&2"
CANNOT = "  py-spy cannot read it: "


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", f"{CANNOT}no reason given"),
        ("echo '  an odd answer  ' >&2; exit 2", f"{CANNOT}an odd answer"),
        (f"{SENTENCE}; exit 1", f"{CANNOT}Failed to suspend it"),
        (f"{CAUSES}; exit 1", f"{CANNOT}Failed to suspend it (EPERM: not permitted)"),
        (f"{CAUSES}; echo 'Stack backtrace:' >&2; echo '   2: at a: b' >&2; exit 1",
         f"{CANNOT}Failed to suspend it (EPERM: not permitted)"),
        (None, "  py-spy cannot be run: Exec format error"),
    ],
)  # fmt: skip
def test_of_a_process_that_cannot_be_read_the_reason_is_reported(spy, own, script, said) -> None:
    spy.write_text("junk" if script is None else f"#!/bin/sh\n{script}\n")
    assert evidence.stacks_by_py_spy([own, own], 30.0) == "\n".join([f"{own.name}({own.pid}):\n{said}"] * 2)
