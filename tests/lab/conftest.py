"""Boxes for the tests of a file, installed from deploy/; closed at the end whatever happened."""

from __future__ import annotations

import pytest
import qemubox
from installed import Installed
from labbox import PATIENCE, unfit

OWN_KERNEL = ("test_lab_cgroups.py", "test_lab_panic.py")


def pytest_collection_modifyitems(items):
    here = str(__file__).rpartition("/")[0]
    why, why_own = unfit(), qemubox.unfit()
    for item in items:
        if str(item.path).startswith(here):
            own = item.path.name in OWN_KERNEL
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout((3600 if own else 1800) * PATIENCE))
            if why_own if own else why:
                item.add_marker(pytest.mark.skip(reason=why_own if own else why))


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    made = Installed(tmp_path_factory.mktemp("box"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def own_kernel(request, tmp_path_factory):
    """A booted box with a kernel of its own; the test's file says CONFIG, and FILES that are on its disk."""
    try:
        made = qemubox.QemuBox(
            tmp_path_factory.mktemp("kernel"), request.module.CONFIG, getattr(request.module, "FILES", {})
        )
    except qemubox.NoImage as error:
        pytest.skip(str(error))
    try:
        print(f"booted in {made.boot():.0f} s")
        yield made
    finally:
        made.close()
