"""Turn findings about files and directories into facts, commands and the troubles that `status` shows.

The rule is `policy/box/foundations.py`. Open findings are in memory, not in the state: a new daemon checks the files itself.
"""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext, Feature
from supervisor.model import commands, facts
from supervisor.model.inputs import FoundationsLooked
from supervisor.model.memory import Held, Memory, Standing
from supervisor.policy.box import foundations as rule
from supervisor.policy.box.foundations import Answer, Finding, Look, Verdict
from supervisor.records import replace


def _on_files(context: DecisionContext, item: FoundationsLooked) -> None:
    on_looked(context, item.findings)


def on_looked(context: DecisionContext, findings: tuple[Finding, ...], *, of_threads: bool = False) -> None:
    """Process all findings of one check, of files or of threads. A known finding that is not among them is over."""
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
            for_s = context.now_s - old.since_s
            why = rule.over(name, old.finding.path, for_s)
            context.record(facts.FoundationRestored(why, name, old.finding.path, for_s, old.troubled))


def _note(context: DecisionContext, old: Standing | None, finding: Finding) -> Standing:
    """Begin or continue one finding: order the restoration of its file, and record the finding if it is new."""
    verdict = rule.judge(finding)
    now = old or Standing(finding, context.now_s, context.wall_s, verdict.why)
    troubled = verdict.answer is Answer.TROUBLE
    if not troubled and (old is None or not old.recorded or old.finding.look is not finding.look):
        context.command(commands.RestoreFoundation(finding.name))
    recorded = _record(context, now, verdict, finding)
    return replace(now, finding=finding, why=verdict.why, troubled=now.troubled or troubled, recorded=recorded)


def _record(context: DecisionContext, now: Standing, verdict: Verdict, finding: Finding) -> bool:
    """Record a finding once, and once more when restoring it has failed. Returns whether it is on record."""
    troubled = verdict.answer is Answer.TROUBLE
    worse = now.recorded and troubled and not now.troubled
    new = not now.recorded and rule.record_again(context.memory.foundations_at_s.get(finding.name), context.now_s)
    if finding.name == rule.JOURNAL or (finding.minor and not troubled) or not (worse or new):
        return now.recorded
    context.record(facts.FoundationLost(verdict.why, finding.name, finding.path, finding.look.value, troubled))
    at_s = {**context.memory.foundations_at_s, finding.name: context.now_s}
    context.memory = replace(context.memory, foundations_at_s=at_s)
    return True


def showing(memory: Memory, item: FoundationsLooked, now_s: float, wall_s: float) -> Memory:
    """Keep findings for the pages while the journal cannot be written; `on_looked` records them later."""
    below = rule.explained(item.findings)
    shown = {
        each.name: memory.foundations.get(each.name) or Standing(each, now_s, wall_s, rule.judge(each).why)
        for each in item.findings if each.name not in below
    }  # fmt: skip
    return replace(memory, foundations=shown)


def _held(context: DecisionContext) -> Held | None:
    """A file or directory that a start relies on is missing or damaged."""
    found = next((each for each in context.memory.foundations.values() if each.finding.holds_starts), None)
    return None if found is None else Held("foundations", found.why)


FEATURE = Feature(memory="foundations", inputs={FoundationsLooked: _on_files}, held=_held)
