"""[when_done]: when this box is stopped, and by which command."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from supervisor.config.tables import check_command, choices
from supervisor.config.validation import Validation
from supervisor.features.when_done.settings import BUDGET, CAUSES, WhenDoneSettings
from supervisor.policy.upkeep.cost import CostSettings

_AFTER_SHUTDOWN: Final = "EXTRALIFE_AFTER_SHUTDOWN"  # of deploy/container/entrypoint
_OWN_SHUTDOWN: Final = re.compile(r"/when_done/slurm\b|(supervisor|extralife|\b)ctl\b.*\bshutdown\b")

SECTION: Final = "when_done"


def complete(validation: Validation, made: WhenDoneSettings, sections: dict[str, Any]) -> WhenDoneSettings:
    cost: CostSettings = sections["cost"]
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
