"""What the tests of the configuration share."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_kit import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A configuration file of one's own, with a state directory beside it."""
    return Place(tmp_path)
