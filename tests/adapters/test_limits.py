"""Open files: as many as allowed for the daemon, as many as it was given for its workers and its next image."""

from __future__ import annotations

import json
import subprocess

import pytest
from attempts_kit import REPO
from tools import PYTHON

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
