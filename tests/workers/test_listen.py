"""A worker that begins while its state directory is away still answers to signals."""

import os
import subprocess
import sys
from pathlib import Path

from tools import ROOT

from workers import contract

ASK_FOR_STACKS = """
import os, signal
from workers.contract import STACKS_SIGNAL, Client
from workers.listen import listen
listen(Client({}))
os.kill(os.getpid(), signal.Signals[STACKS_SIGNAL])
print("goes on")
"""


def stacks(path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, contract.ENV_STACKS: str(path)}
    command = [sys.executable, "-c", ASK_FOR_STACKS]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_stacks_are_written_to_their_file(tmp_path: Path) -> None:
    done = stacks(tmp_path / "stacks.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
    assert "most recent call first" in (tmp_path / "stacks.txt").read_text()


def test_stacks_whose_directory_is_gone_are_written_to_standard_error(tmp_path: Path) -> None:
    done = stacks(tmp_path / "gone" / "stacks.txt")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert done.stderr.startswith("workers: stacks are written to standard error: [Errno 2]")
    assert "most recent call first" in done.stderr
    assert "Traceback" not in done.stderr
