"""Two trees of cgroups for the same tests: the kernel's, where this machine gives one to whoever tests, and files."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from supervisor.adapters.process.cgroups import Cgroups, OwnCgroup, mounted
from supervisor.policy.worker.confinement import Limits

MB = 2**20
LIMITS = Limits(100 * MB, 110 * MB, 512, 250)
FILES = {
    "cgroup.procs": "", "cgroup.events": "populated 0\nfrozen 0\n", "cgroup.kill": "", "cgroup.subtree_control": "",
    "cgroup.controllers": "cpu memory pids hugetlb\n", "memory.high": "max\n", "memory.max": "max\n", "pids.max": "max\n",
    "cpu.weight": "100\n", "memory.oom.group": "0\n", "memory.current": "4096\n", "memory.events": "oom 0\noom_kill 0\n",
    "memory.pressure": "some avg10=0.00 avg60=12.50 avg300=0.00 total=9\nfull avg10=0.00 avg60=3.00 avg300=0.00 total=1\n",
    "cpu.pressure": "some avg10=0.00 avg60=40.00 avg300=0.00 total=9\n", "io.pressure": "",
}  # fmt: skip


def fake_mkdir(path: Path) -> None:
    path.mkdir()
    for name, text in FILES.items():
        (path / name).write_text(text)


def fake_rmdir(path: Path) -> None:
    if (path / "cgroup.procs").read_text().split() or any(each.is_dir() for each in path.iterdir()):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    for each in path.iterdir():
        each.unlink()
    path.rmdir()


class Files:
    """A directory whose files look like a cgroup's: nothing happens when they are written."""

    def __init__(self, tmp_path: Path) -> None:
        self.base = tmp_path / "tree"
        fake_mkdir(self.base)

    def groups(self, limits: Limits = LIMITS) -> Cgroups:
        """As of a daemon that starts now."""
        found = Cgroups(OwnCgroup(str(self.base)), lambda _name: limits, mkdir=fake_mkdir, rmdir=fake_rmdir)
        found.set_up()
        return found

    def close(self) -> None:
        pass


class Kernel:
    """A cgroup of the kernel's second version, for this test alone; this process is back where it was at the end."""

    def __init__(self) -> None:
        there = mounted(Path("/proc/self/mountinfo").read_text())
        if there is None or os.geteuid() != 0:
            pytest.skip("no cgroup v2 that could be written here")
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        self.home = Path(there[1]) / own.strip("/")
        self.base = Path(there[1]) / f"extralife-test-{os.getpid()}-{time.monotonic_ns()}"
        try:
            self.base.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made in {there[1]}: {error.strerror}")

    def groups(self, limits: Limits = LIMITS) -> Cgroups:
        found = Cgroups(OwnCgroup(str(self.base)), lambda _name: limits)
        found.set_up()
        return found

    def close(self) -> None:
        """Everybody who is left in it ends, but for this process."""
        (self.home / "cgroup.procs").write_text(str(os.getpid()))
        (self.base / "cgroup.kill").write_text("1")
        for directory, _, _ in os.walk(self.base, topdown=False):
            for _ in range(500):
                try:
                    Path(directory).rmdir()
                    break
                except OSError:
                    time.sleep(0.02)
