"""The features: what each adds to the decisions is one row (`context.Feature`) of its own module, in the order of a turn."""

from __future__ import annotations

from typing import Final

from supervisor.deciding import (
    alerting,
    backups,
    clocks,
    cluster,
    foundations,
    notices,
    offsite,
    own_checkpoints,
    supervision,
    when_done,
)
from supervisor.deciding.context import Feature

FEATURES: Final[tuple[Feature, ...]] = (
    foundations.FEATURE,
    supervision.FEATURE,
    clocks.FEATURE,
    own_checkpoints.FEATURE,
    backups.FEATURE,
    notices.FEATURE,
    when_done.FEATURE,
    offsite.FEATURE,
    cluster.FEATURE,
    alerting.FEATURE,
)
