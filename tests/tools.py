"""Programs and limits of the machine that a test needs: there, or the test is skipped with the package that has it."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]  # of the checkout
# For sockets, whose paths must be short, and for what is written often: memory, or /tmp where there is none to write to.
MEMORY_DIR = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
PATIENCE = float(os.environ.get("EXTRALIFE_TEST_PATIENCE", "1"))  # multiplies deadlines, for slow machines
# For a line of a shell: the checkout may lie below a directory with a space in its name.
PYTHON = shlex.quote(sys.executable)

# The package of Debian and Ubuntu; deploy/system-packages installs the same.
PACKAGES = {
    "dbus-daemon": "dbus",
    "dbus-send": "dbus",
    "gcc": "gcc libc6-dev",
    "g++": "g++",
    "systemd-analyze": "systemd",
    "systemd-notify": "systemd",
}


# Chromium asks nobody anything on its own. Its sandbox does not run as root.
BROWSER_ARGS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server", *(["--no-sandbox"] if os.geteuid() == 0 else []),
]  # fmt: skip


def browser_path() -> str | None:
    """A Chromium that runs: Ubuntu's package is only a script that asks for a snap.

    The one without windows is the same engine and takes two thirds of the CPU seconds: it has no pages of its own to draw.
    """
    for found in filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))):
        if subprocess.run([found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0:
            return found
    return None


def needs(name: str, *others: str) -> str:
    """The path of the first of these commands that is installed."""
    for each in (name, *others):
        if path := shutil.which(each):
            return path
    pytest.skip(f"{name} is not installed (apt-get install {PACKAGES[name]})")


@functools.cache
def compiled(source: Path, name: str, *options: str) -> tuple[Path, object]:
    """A shared library made of one C file, once a process, and what keeps it; its directory goes with the process."""
    compiler = needs("gcc", "cc", "clang")
    keep = tempfile.TemporaryDirectory(prefix="xl-compiled-")
    library = Path(keep.name) / name
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, *options], check=True)
    return library, keep


def allow_open_files(wanted: int) -> int:
    """The soft limit of open files, raised towards `wanted` as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return wanted if soft == resource.RLIM_INFINITY else soft


def mounted(options: str, at: Path) -> tuple[str, ...]:
    """A prefix that runs a command where a tmpfs of these options is mounted."""
    script = f'mount -t tmpfs -o {options} none "{at}" && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, "sh")
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    pytest.skip("this machine lets nobody mount a tmpfs in a namespace")


_STANDARD_STREAMS = 3


@contextlib.contextmanager
def no_descriptors(pid: int = 0) -> Iterator[None]:
    """No file can be opened in this process, or in another one, as with EMFILE, also after others were closed.

    Not 0: poll(2) refuses to wait for more descriptors than the limit.
    """
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_STANDARD_STREAMS, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
