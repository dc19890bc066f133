"""The share of the processors that a child of the daemon gets: real sessions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cgroups_kit import Files

from supervisor.adapters.process.share import Share


@pytest.fixture
def child():
    """The leader of a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process.pid
        process.kill()


def nice_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/autogroup").read_text().split() if Path("/proc/self/autogroup").exists() else []
    return words[-1] if words else pytest.skip("this kernel shares the processors otherwise (sched_autogroup_enabled)")


def test_a_child_has_a_tenth_of_a_programs_share_for_a_while(child, tmp_path):
    assert nice_of(child) == "0"
    files = Files(tmp_path)
    shares, aside = Share(files.groups()), files.base / "aside"
    shares.lower(child)
    (aside / "cpu.weight").write_text("")  # the kernel's file would not keep what was in it
    shares.lower(child)
    assert (nice_of(child), (aside / "cpu.weight").read_text()) == ("10", "10")
    assert (aside / "cgroup.procs").read_text() == str(child)
    shares.restore(child)
    assert (nice_of(child), (aside / "cpu.weight").read_text()) == ("0", "100")


def test_without_cgroups_its_session_alone_counts(child):
    Share().lower(child)
    assert nice_of(child) == "10"
    Share().lower(2**22 + 1)  # of a process that has ended it stays as it is
