"""[cost]: the price of this box, and its limits."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from datetime import datetime

from supervisor.config.validation import Validation, shown
from supervisor.policy.upkeep.cost import CostSettings


def complete(validation: Validation, made: CostSettings, _: object) -> CostSettings:
    section = validation.section("cost")
    if made.budget_usd is not None and made.usd_per_hour is None:
        section.refuse("budget_usd", "needs cost.usd_per_hour, the price of an hour of this box")
    with contextlib.suppress(ValueError):
        until = datetime.fromisoformat(made.until) if made.until else None
        if until is None or until.tzinfo is not None:
            if until is not None and until.timestamp() <= time.time():  # noqa: TID251  a check of input
                report = validation.warn if validation.starting else validation.error
                report(section.at("until"), f"cost.until: {made.until} has passed; set a later time, or remove it")
            return made
    example = "a time with its zone, such as 2026-12-01T08:00:00+01:00 or 2026-12-01T07:00:00Z"
    section.refuse("until", f"must be {example}, not {shown(made.until)}")
    return replace(made, until="")
