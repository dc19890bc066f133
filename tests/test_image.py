"""A program image stays with the release that it was started from, and the next one follows the link."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tools import ROOT

from supervisor import image

_SETTLE = """
import json, sys
from supervisor import image
started_as = image.pin_release()
print(json.dumps([started_as, sys.executable, sys.path, image.again(started_as, ("-c", "some.toml"))]))
"""


@pytest.fixture
def releases(tmp_path):
    """Two environments and a link to the first one."""
    for name in ("one", "two"):
        made = tmp_path / name / ".venv"
        venv.create(made, with_pip=False, symlinks=True)
        site = sysconfig.get_path("purelib", "venv", {"base": str(made), "platbase": str(made)})
        (Path(site) / "ours.pth").write_text(f"{ROOT}\n")
    (tmp_path / "current").symlink_to(tmp_path / "one")
    return tmp_path


def settled(python):
    done = subprocess.run([python, "-c", _SETTLE], capture_output=True, text=True, check=True, cwd="/", timeout=60)
    return json.loads(done.stdout)


def test_what_was_started_through_the_link_stays_with_the_release(releases):
    python = releases / "current/.venv/bin/python"
    started_as, executable, path, again = settled(python)
    assert started_as == str(python)
    assert executable == f"{releases}/one/.venv/bin/python"
    assert [entry for entry in path if "current" in entry] == []
    assert any(entry.startswith(f"{releases}/one/.venv/lib/") for entry in path)
    assert again == [str(python), "-P", "-m", "supervisor", "-c", "some.toml"]


def test_what_was_started_without_a_link_is_left_alone(releases):
    python = releases / "two/.venv/bin/python"
    started_as, executable, _, _ = settled(python)
    assert started_as == executable == str(python)


def test_only_what_lies_in_the_directory_is_moved():
    assert image.moved("/opt/current/.venv/bin/python", "/opt/current/.venv", "/opt/r/.venv") == "/opt/r/.venv/bin/python"
    assert image.moved("/opt/current/.venv", "/opt/current/.venv", "/opt/r/.venv") == "/opt/r/.venv"
    assert image.moved("/opt/current/.venv2/x", "/opt/current/.venv", "/opt/r/.venv") == "/opt/current/.venv2/x"


def test_the_release_is_where_this_code_lies():
    assert str(ROOT) == image.RELEASE
    assert Path(sys.modules["supervisor"].__file__).parent.parent == ROOT
