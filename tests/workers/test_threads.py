"""What a worker tells the libraries about threads before it imports them."""

import pytest

from workers.__main__ import _set_threads
from workers.args import make


@pytest.mark.parametrize(
    ("threads", "given", "spins"), [(2, {}, "3000"), (16, {}, "10000"), (2, {"GOMP_SPINCOUNT": "0"}, "0")]
)
def test_spinning_is_short_unless_it_is_set(threads, given, spins):
    environ = {"OMP_NUM_THREADS": "7", **given}
    _set_threads(make("Catch", threads=threads), environ)
    assert environ["GOMP_SPINCOUNT"] == spins
    assert environ["OMP_NUM_THREADS"] == environ["MKL_NUM_THREADS"] == str(threads), "the setting counts"
