"""Every seed that ever found something finds nothing any more."""

import pytest
from boxes import night
from known_seeds import KNOWN
from shrinking import told


@pytest.mark.parametrize(("box", "seed", "programs", "_found"), KNOWN)
def test_a_seed_that_once_found_something(box, seed, programs, _found):
    found = night(box, seed, programs)
    if found.error is not None:
        pytest.fail(told(found), pytrace=False)
