"""[when_done] and the limits of [cost]: when this box is stopped, and by which command."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from supervisor.config import lists
from supervisor.config.validation import DEFAULT, Origin, Validation, shown
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.upkeep.when_done import BUDGET, CAUSES, WhenDoneSettings


def limits(validation: Validation, made: CostSettings) -> CostSettings:
    """[cost] (the plain keys), checked."""
    if made.budget_usd is not None and made.usd_per_hour is None:
        validation.error(
            validation.at("cost", "budget_usd"), "cost.budget_usd needs cost.usd_per_hour, the price of an hour of this box"
        )
    if not made.until or _is_time(made.until):
        return made
    example = "a time with its zone, such as 2026-12-01T08:00:00+01:00 or 2026-12-01T07:00:00Z"
    validation.error(validation.at("cost", "until"), f"cost.until must be {example}, not {shown(made.until)}")
    return replace(made, until="")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def complete(validation: Validation, made: WhenDoneSettings, cost: CostSettings, *, starting: bool) -> WhenDoneSettings:
    """[when_done] (the plain keys) with the lists. `starting`: a missing program is only a warning, as programs train."""
    gently = starting or validation.source.is_kept
    absent = validation.warn if gently else validation.error
    command = lists.command(validation, "when_done", '["vastai", "stop", "instance", "1234"]', absent)
    table = validation.table("when_done")
    when = lists.choices(validation, "when_done", "when", CAUSES, "cause of an end") if "when" in table else made.when
    at, limited = validation.at("when_done", "when"), cost.budget_usd is not None or bool(cost.until)
    if table and not table.get("command"):
        validation.warn(validation.at("when_done"), "when_done.command is missing, so this box is never stopped")
    elif command and not when and not validation.errors:
        validation.error(at, f"when_done.when is empty; name one or more of {', '.join(CAUSES)}")
    if BUDGET in when and not limited:
        validation.warn(at, 'when_done.when has "budget", but [cost] has neither budget_usd nor until')
    elif command and limited and BUDGET not in when:
        validation.warn(at, 'the limit in [cost] stops nothing: add "budget" to when_done.when')
    for key, value in {"command": list(command), "when": list(when)}.items():
        validation.note(
            f"when_done.{key}", value, validation.at("when_done", key) if key in table else Origin(DEFAULT)
        )  # fmt: skip
    return replace(made, command=command, when=when)
