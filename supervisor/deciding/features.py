"""What features add to the decisions, in the order of a turn: `FEATURE` of the kernel's own modules and of theirs."""

from __future__ import annotations

from typing import Final

from supervisor import discovery
from supervisor.deciding import clocks, foundations, own_checkpoints, supervision
from supervisor.deciding.feature import Feature

_OWN: Final = (foundations, supervision, clocks, own_checkpoints)
FEATURES: Final[tuple[Feature, ...]] = tuple(
    sorted((each.FEATURE for each in (*_OWN, *discovery.modules("decide"))), key=lambda feature: feature.turn)
)
