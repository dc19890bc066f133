"""One box for the tests of a file: installed from deploy/, two real games on it; closed at the end whatever happened."""

from __future__ import annotations

import pytest
from installed import Installed
from labbox import unfit


def pytest_collection_modifyitems(items):
    here = str(__file__).rpartition("/")[0]
    why = unfit()
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(1800))
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    made = Installed(tmp_path_factory.mktemp("box"))
    try:
        yield made
    finally:
        made.close()
