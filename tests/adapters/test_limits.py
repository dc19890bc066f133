"""Open files: as many as allowed for the daemon, as many as it was given for its workers and its next image."""

from __future__ import annotations

import json
import resource
import subprocess

import pytest
from attempts_kit import REPO
from tools import PYTHON

from supervisor.adapters.process import limits

LOOK = """
import json, resource
from supervisor.adapters.process import limits
look = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
before = look(); limits.raise_files(); raised = look(); limits.restore_files()
most = next(n for n in range(1, 10_000) if limits.no_room(n)); said = limits.no_room(most - 1), limits.no_room(most)
print(json.dumps([limits.GIVEN_FILES, before, raised, look(), most, *said]))
"""


@pytest.mark.parametrize(("soft", "hard", "most"), [(100, 300, 8), (300, 300, 28), (1024, 4096, 149)])
def test_the_soft_limit_is_raised_and_given_back(soft, hard, most):
    shell = f"ulimit -S -n {soft} && ulimit -H -n {hard} && exec {PYTHON} -c '{LOOK}'"
    told = subprocess.run(["sh", "-c", shell], cwd=REPO, capture_output=True, text=True, check=False)
    found = json.loads(told.stdout)
    assert found[:6] == [soft, soft, hard, soft, most, None], told.stderr
    assert found[6] == (
        f"{most} programs need all of the {soft} open files that are allowed: raise LimitNOFILE= or `ulimit -n`"
    )


class Kernel:
    """Limits that no test can have on every machine."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int, *, refuses: bool = False) -> None:
        self.limits, self.refuses = (soft, hard), refuses

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == self.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == self.RLIMIT_NOFILE
        if self.refuses:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


ALL = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("given", "hard", "raised"),
    [
        (1024, ALL, 65_536), (1024, 65_535, 65_535), (1024, 65_537, 65_536), (1024, 1024, 1024),
        (65_536, ALL, 65_536), (70_000, 100_000, 70_000), (ALL, ALL, ALL),
    ],
)  # fmt: skip
def test_the_soft_limit_is_never_lowered_and_never_raised_into_the_millions(monkeypatch, given, hard, raised):
    kernel = Kernel(given, hard)
    monkeypatch.setattr(limits, "resource", kernel)
    monkeypatch.setattr(limits, "GIVEN_FILES", given)
    limits.raise_files()
    assert kernel.limits == (raised, hard)
    limits.restore_files()
    assert kernel.limits == (given, hard)


def test_a_limit_that_may_not_be_raised_stays(monkeypatch):
    kernel = Kernel(1024, 4096, refuses=True)
    monkeypatch.setattr(limits, "resource", kernel)
    monkeypatch.setattr(limits, "GIVEN_FILES", 1024)
    limits.raise_files()
    assert kernel.limits == (1024, 4096)
