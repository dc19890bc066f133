"""Containers for the tests of this directory; each ends with its test. The volume with an installed program is made once."""

from __future__ import annotations

import shutil

import pytest
from containerbox import Box, unfit


def pytest_collection_modifyitems(items):
    here = str(__file__).rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A volume onto which a container has installed the program."""
    if why := unfit():
        pytest.skip(why)
    box = Box(tmp_path_factory.mktemp("installed"))
    try:
        box.run()
        box.trains()
        assert box.stop(10) < 10
    finally:
        box.close()
    return box.home / "releases"


@pytest.fixture
def box(installed, tmp_path):
    made = Box(tmp_path / "volume")
    shutil.copytree(installed, made.home / "releases", symlinks=True)
    try:
        yield made
    finally:
        made.close()
