"""Act on the deciding thread's own look at the threads and at the processes of live attempts.

The rule is `policy/box/supervision.py`.
"""

from __future__ import annotations

from supervisor.deciding import foundations
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.deciding.requests import end
from supervisor.model import commands, facts
from supervisor.model.inputs import SupervisionLooked
from supervisor.policy.box import supervision as rule
from supervisor.policy.box.foundations import Finding, Look
from supervisor.records import replace

_VITAL = "until then ends and readings of workers may be unknown"


def on_looked(context: DecisionContext, item: SupervisionLooked) -> None:
    """Note failing threads, have ends reported that no thread has reported, and end if supervision cannot be trusted."""
    found = (
        Finding(f"thread {each.name}", "", Look.FAILING, each.error, _VITAL if each.vital else "") for each in item.failing
    )
    foundations.on_looked(context, tuple(found), of_threads=True)
    late = rule.unreported(context.memory.gone, item.gone)
    context.memory = replace(context.memory, gone=item.gone)
    for name, program in sorted(context.state.live.items()):
        attempt = program.attempt
        if attempt is not None and attempt.pid is not None and attempt.token in late:
            context.command(commands.ReportEnd(name, attempt.number, attempt.token))
    why = rule.distrust(item.failing)
    if why:
        end(context, by=facts.ITSELF, keep_workers=True, why=why)


FEATURE = Feature(turn=20, inputs={SupervisionLooked: on_looked})
