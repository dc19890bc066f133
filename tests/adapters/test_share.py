"""The share of the processors that a child of the daemon gets: real sessions, and a kernel that is asked too often."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cgroups_kit import Files

from supervisor.adapters.process import share
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


class Kernel:
    """Answers each write with the next of `answers`; `did` has the writes and the waits in between."""

    def __init__(self) -> None:
        self.answers: list[type[OSError] | None] = []
        self.did: list[object] = []

    def write(self, path: Path, text: str) -> None:
        self.did.append((str(path), text))
        if (answer := self.answers.pop(0)) is not None:
            raise answer

    def sleep(self, seconds: float) -> None:
        self.did.append(seconds)


@pytest.fixture
def kernel(monkeypatch):

    made = Kernel()
    monkeypatch.setattr(Path, "write_text", lambda path, text, encoding: made.write(path, text))
    monkeypatch.setattr(share, "time", made)
    return made


WROTE = ("/proc/7/autogroup", "10")


def test_a_kernel_that_is_asked_too_often_is_asked_again(kernel):
    kernel.answers = [BlockingIOError, BlockingIOError, None]
    Share().lower(7)
    assert kernel.did == [WROTE, 0.1, WROTE, 0.1, WROTE]


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError, PermissionError])
def test_a_share_that_cannot_be_changed_stays_as_it_is(kernel, error):
    kernel.answers = [error]
    Share().lower(7)
    assert kernel.did == [WROTE]
