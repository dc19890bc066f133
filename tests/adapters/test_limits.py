"""Open files: as many as allowed for the daemon, as many as it was given for its workers and its next image."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from attempts_kit import REPO

LOOK = """
import json, resource
from supervisor.adapters import limits
look = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
before = look(); limits.raise_files(); raised = look(); limits.restore_files()
print(json.dumps([limits.GIVEN_FILES, before, raised, look()]))
"""


@pytest.mark.parametrize(("soft", "hard", "raised"), [(100, 300, 300), (300, 300, 300)])
def test_the_soft_limit_is_raised_and_given_back(soft, hard, raised):
    shell = f"ulimit -S -n {soft} && ulimit -H -n {hard} && exec {sys.executable} -c '{LOOK}'"
    told = subprocess.run(["sh", "-c", shell], cwd=REPO, capture_output=True, text=True, check=False)
    assert json.loads(told.stdout) == [soft, soft, raised, soft], told.stderr
