"""The box of every end-to-end test (`box.py`), closed at its end whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from box import Box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    try:
        yield made
    finally:
        made.close()
