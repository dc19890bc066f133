"""The compiled shim in memory: what is in it, that nobody can change it, and that it goes with its last user."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.adapters.process.shim_code import ShimCode

SOURCE = Path(__file__).parents[2] / "supervisor" / "shim.py"


def test_it_is_the_compiled_source_that_is_not_compared_with_its_file() -> None:
    made = ShimCode()
    body = Path(made.path).read_bytes()
    assert body[:16] == importlib.util.MAGIC_NUMBER + b"\x01\0\0\0" + bytes(8)
    code = marshal.loads(body[16:])
    assert (code.co_filename, code.co_name) == (str(SOURCE), "<module>")
    assert code == compile(SOURCE.read_bytes(), str(SOURCE), "exec", dont_inherit=True)
    assert made.path == f"/proc/self/fd/{made.fd}"
    assert os.readlink(made.path) == "/memfd:shim.pyc (deleted)"
    assert not os.get_inheritable(made.fd)


def test_nobody_can_change_it() -> None:
    made = ShimCode()
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    assert fcntl.fcntl(made.fd, fcntl.F_GET_SEALS) == seals
    for change in (lambda: os.pwrite(made.fd, b"x", 0), lambda: os.ftruncate(made.fd, 0)):
        with pytest.raises(PermissionError):
            change()


def test_a_child_that_inherits_it_runs_it_and_a_traceback_names_the_source() -> None:
    made = ShimCode()
    command = [sys.executable, "-S", "-I", made.path, "Pong", "1"]
    done = subprocess.run(command, pass_fds=[made.fd], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 1, "it was given no order"
    assert f'File "{SOURCE}", line ' in done.stderr.decode()


def open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(fd))
            found.add((status.st_dev, status.st_ino))
    return found


def test_it_is_closed_with_its_last_user() -> None:
    made = ShimCode()
    status = os.fstat(made.fd)
    assert (status.st_dev, status.st_ino) in open_files()
    del made
    assert (status.st_dev, status.st_ino) not in open_files()
