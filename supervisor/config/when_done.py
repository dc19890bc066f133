"""[when_done] and the limits of [cost]: when this box is stopped, and by which command."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from supervisor.config.tables import check_command, choices
from supervisor.config.validation import Validation, shown
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.upkeep.when_done import BUDGET, CAUSES, WhenDoneSettings

_AFTER_SHUTDOWN: Final = "EXTRALIFE_AFTER_SHUTDOWN"  # of deploy/container/entrypoint
_OWN_SHUTDOWN: Final = re.compile(r"/when_done/slurm\b|(supervisor|extralife|\b)ctl\b.*\bshutdown\b")


def _limits(validation: Validation, made: CostSettings) -> CostSettings:
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


def complete(validation: Validation, made: WhenDoneSettings, sections: dict[str, Any]) -> WhenDoneSettings:
    """[when_done], checked, and the limits of [cost] that it uses."""
    cost = sections["cost"] = _limits(validation, sections["cost"])
    section = validation.section("when_done")
    absent = validation.warn if validation.starting else validation.error
    check_command(section, made.command, '["vastai", "stop", "instance", "1234"]', absent)
    if validation.environ.get(_AFTER_SHUTDOWN) == "stay" and _OWN_SHUTDOWN.search(" ".join(made.command)):
        why = f"`shutdown` ends extralife alone, because {_AFTER_SHUTDOWN}=stay keeps this container, which costs the same"
        absent(section.at("command"), f"when_done.command: {why}; take the script of your provider in deploy/when_done")
    when = choices(section, "when", made.when, CAUSES, "cause of an end")
    at, limited = section.at("when"), cost.budget_usd is not None or bool(cost.until)
    if section.body and not section.body.get("command"):
        validation.warn(section.at(), "when_done.command is missing, so this box is never stopped")
    elif made.command and not when and not validation.errors:
        validation.error(at, f"when_done.when is empty; name one or more of {', '.join(CAUSES)}")
    if BUDGET in when and not limited:
        validation.warn(at, 'when_done.when has "budget", but [cost] has neither budget_usd nor until')
    elif made.command and limited and BUDGET not in when:
        validation.warn(at, 'the limit in [cost] stops nothing: add "budget" to when_done.when')
    section.note("when", when)
    return replace(made, when=when)
