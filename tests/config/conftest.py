"""What the tests of the configuration share."""

import pytest
from config_kit import Place


@pytest.fixture
def place(tmp_path):
    """A configuration file of one's own, with a state directory beside it."""
    return Place(tmp_path)
