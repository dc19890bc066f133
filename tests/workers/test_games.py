"""A worker's start imports the games that it can train, and no other environments."""

import subprocess
import sys

import pytest

_MADE = """
import sys, types
{before}
from workers import envs
envpool = envs.envpool
assert envpool is sys.modules["envpool"]
for task in ("Pong-v5", "Catch-v0"):
    pool = envpool.make(task, env_type="gymnasium", num_envs=1)
    pool.reset()
    pool.close()
print(len(envpool.list_all_envs()), "matplotlib" in sys.modules)
"""

# As a later release might move a family: the module is not where it was.
_MOVED = """
class Moved:
    def find_spec(self, name, path=None, target=None):
        if name == "envpool.toy_text.registration" and "envpool.entry" in sys.modules:
            if not hasattr(sys.modules["envpool.entry"], "__file__"):
                raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Moved())
"""


def _told(before: str = "") -> list[str]:
    code = _MADE.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()


def test_only_the_games_of_workers_are_registered():
    envs, drawn = _told()
    assert 100 < int(envs) < 250  # Atari's 104 and the toys, of 1,651
    assert drawn == "False"


@pytest.mark.slow  # 1,651 environments
def test_an_envpool_that_is_built_otherwise_is_imported_whole():
    assert int(_told(before=_MOVED)[0]) > 1000
