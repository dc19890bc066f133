"""Turn findings about files and directories into facts, commands and the troubles that `status` shows.

The rule is `policy/box/foundations.py`. Open findings are in memory, not in the state: a new daemon checks the files itself.
"""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import Feature
from supervisor.deciding.requests import end
from supervisor.model import facts
from supervisor.model.inputs import FoundationsLooked
from supervisor.model.memory import Held, Memory, Standing
from supervisor.policy.box import foundations as rule
from supervisor.policy.box.foundations import Answer, Finding, Look
from supervisor.records import replace


def on_looked(context: DecisionContext, findings: tuple[Finding, ...], *, of_threads: bool = False) -> None:
    """Process all findings of one look, at files or at threads. A known finding that is not among them is over."""
    known = context.memory.foundations
    before = {name: each for name, each in known.items() if (each.finding.look is Look.FAILING) == of_threads}
    below = rule.explained(findings)
    standing = {name: before[name] for name in below if name in before}
    for finding in findings:
        if finding.name not in below:
            standing[finding.name] = _note(context, before.get(finding.name), finding)
    others = {name: each for name, each in known.items() if name not in before}
    context.memory = replace(context.memory, foundations={**others, **standing})
    for name, old in before.items():
        if name not in standing and old.recorded:
            why = rule.over(name, old.finding.path, for_s := context.now_s - old.since_s)
            context.record(facts.FoundationRestored(why, name, old.finding.path, for_s, old.troubled))
    if names := sorted(name for name, each in standing.items() if each.answer is Answer.RESTART and name not in below):
        why = f"extralife restarts itself, which restores: {', '.join(names)}"
        end(context, by=facts.ITSELF, keep_workers=True, why=why)


def _note(context: DecisionContext, old: Standing | None, finding: Finding) -> Standing:
    """Begin or continue one finding. It is recorded once, and once more when it becomes trouble."""
    may_restart = rule.may_restart_at_s(context.state.restarts_s) <= context.now_s
    answer, why = rule.judge(finding, may_restart=may_restart, again=old is not None)
    now = old or Standing(finding, context.now_s, context.wall_s, answer, why)
    troubled = answer is Answer.TROUBLE
    worse = now.recorded and troubled and not now.troubled
    new = not now.recorded and rule.record_at_s(context.memory.foundations_at_s.get(finding.name)) <= context.now_s
    if now_recorded := worse or new:
        context.record(facts.FoundationLost(why, finding.name, finding.path, finding.look.value, troubled))
        at_s = {**context.memory.foundations_at_s, finding.name: context.now_s}
        context.memory = replace(context.memory, foundations_at_s=at_s)
    return Standing(
        finding, now.since_s, now.since_wall_s, answer, why, troubled or now.troubled, now.recorded or now_recorded
    )


def showing(memory: Memory, item: FoundationsLooked, now_s: float, wall_s: float) -> Memory:
    """Keep findings for the pages while the journal cannot be written; `on_looked` records them later."""
    below = rule.explained(item.findings)
    shown = {
        each.name: memory.foundations.get(each.name) or Standing(each, now_s, wall_s, *rule.judge(each, may_restart=False))
        for each in item.findings if each.name not in below
    }  # fmt: skip
    return replace(memory, foundations=shown)


def _held(context: DecisionContext) -> Held | None:
    """A file or directory that a start relies on is missing or damaged."""
    found = next((each for each in context.memory.foundations.values() if each.finding.holds_starts), None)
    return None if found is None else Held("foundations", found.why)


FEATURE = Feature(
    turn=10, memory="foundations", held=_held,
    inputs={FoundationsLooked: lambda context, item: on_looked(context, item.findings)},
)  # fmt: skip
