"""`preload.c`, compiled: what makes a process see another wall clock, or a kernel that begins no process.

env |= preload.environment(directory)       # for the process under test
preload.set_clock(directory, -3600)         # while it runs
"""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


@functools.cache
def _library():
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (apt-get install gcc libc6-dev)")
    keep = tempfile.TemporaryDirectory(prefix="xl-preload-")
    library = Path(keep.name) / "preload.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library, keep  # the directory goes with this process


def environment(directory):
    library, _ = _library()
    return {"LD_PRELOAD": str(library), "FAULTS_DIR": str(directory)}


def set_clock(directory, seconds):
    """The wall clock is off by so much from now on; old or new for every reader."""
    aside = directory / "clock.tmp"
    aside.write_text(str(int(seconds)))
    aside.rename(directory / "clock")


def no_forks(directory, *, refused):
    if refused:
        (directory / "fork").touch()
    else:
        (directory / "fork").unlink()
