"""The box of every end-to-end test (`box.py`), closed at its end whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from box import Box
from simulated_nvml import SimulatedNvml


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def nvml(box: Box, tmp_path: Path) -> SimulatedNvml:
    """The daemon and its workers load this NVML: the real pynvml, and scenarios in place of a driver."""
    made = SimulatedNvml(tmp_path)
    box.env |= made.environment()
    return made
