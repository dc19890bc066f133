"""The features, in the order of a turn: what each adds to the decisions is the row `FEATURE` of its own module."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from supervisor.deciding.context import Feature

NAMES: Final = (
    "foundations", "supervision", "clocks", "own_checkpoints", "backups", "notices", "when_done", "offsite", "cluster",
    "alerts",
)  # fmt: skip
FEATURES: Final[tuple[Feature, ...]] = tuple(import_module(f"supervisor.deciding.{name}").FEATURE for name in NAMES)
