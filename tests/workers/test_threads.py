"""What a worker tells the libraries about threads before it imports them."""

import pytest

from workers.__main__ import _set_threads
from workers.args import make


@pytest.mark.parametrize(("given", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "0"}, "0")])
def test_spinning_is_short_unless_it_is_set(given, spins):
    environ = {"OMP_NUM_THREADS": "7", **given}
    _set_threads(make("Catch", threads=2), environ)
    assert environ["GOMP_SPINCOUNT"] == spins
    assert environ["OMP_NUM_THREADS"] == environ["MKL_NUM_THREADS"] == "2", "the setting counts"
