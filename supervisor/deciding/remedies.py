"""Remedies: change the checkpoint, the random seed or the batch, so that the next attempt does not fail the same way."""

from __future__ import annotations

from supervisor.deciding.context import DecisionContext
from supervisor.model import commands, facts
from supervisor.model.inputs import Ending
from supervisor.model.state import Attempt, Program
from supervisor.policy.worker import divergence, health, out_of_memory, suspects
from supervisor.policy.worker.diagnosis import Diagnosis
from supervisor.policy.worker.intervention import ROLLBACK, fruitless


def remedy(context: DecisionContext, name: str, attempt: Attempt, ending: Ending, verdict: Diagnosis) -> str:
    """Apply the remedy for a death that counts. Returns why the program must be given up, or an empty text."""
    if verdict.cause == "diverged":
        return _roll_back(context, name, attempt)
    if verdict.cause == "sick":
        symptom = health.WORDS.get(attempt.ill, "its training went wrong")
        if attempt.illness_action == health.GIVE_UP:
            return f"{symptom}, and the config says to give up"
        if attempt.illness_action == health.NEW_SEED:
            return _new_seed(context, name, symptom)
        return _roll_back(context, name, attempt, symptom)
    if verdict.cause in out_of_memory.CAUSES:
        _lower_batch(context, name, ending)
    else:
        _judge_suspect(context, context.state.programs[name], ending)
    return ""


def _new_seed(context: DecisionContext, name: str, what: str) -> str:
    """Restart with another random seed; counts as a rollback, but sets no checkpoint aside."""
    program, most = context.state.programs[name], context.settings.divergence.rollbacks
    number = fruitless(program.interventions, ROLLBACK) + 1
    if number > most:
        return f"{what} again after {most} rollbacks"
    drawn = f"restarts with another random seed ({number} of {most})"
    why = f"{what} at step {_step(program)}: {drawn}; no checkpoint is set aside"
    context.record(facts.RolledBack(why, name, program.steps, None, number, program.rollbacks + 1))
    return ""


def _step(program: Program) -> str:
    return "?" if program.steps is None else f"{program.steps:,}"


def _roll_back(context: DecisionContext, name: str, attempt: Attempt, what: str = "diverged") -> str:
    program = context.state.programs[name]
    number = fruitless(program.interventions, ROLLBACK) + 1
    verdict = divergence.after(
        context.settings.divergence, number=number, newest_step=program.ckpt.step, fine_step=attempt.fine_step,
        resumed_step=attempt.resumed_step, what=what,
    )  # fmt: skip
    if verdict.give_up:
        return verdict.why
    why = f"{what} at step {_step(program)}: {verdict.why}"
    context.record(facts.RolledBack(why, name, program.steps, verdict.from_step, number, program.rollbacks + 1))
    if verdict.from_step is not None and not program.ckpt.path:
        context.command(commands.RollBack(name, verdict.from_step))
    return ""


def _lower_batch(context: DecisionContext, name: str, ending: Ending) -> None:
    """Lower the batch that the attempt ran with. The batch of a program that ignores its lowered batch stays as it is."""
    spec, level = context.settings.program(name), context.settings.level.name
    given = context.state.programs[name].at(level).batch_size
    ran_with = ending.batch_size or given or (spec.batch_size if spec is not None else None)
    if ran_with is None or (given is not None and ran_with > given):
        return
    fallback = spec.fallback_batch if spec is not None else None
    batch_size = out_of_memory.smaller_batch(ran_with, fallback=fallback, lowered=given is not None)
    if batch_size is not None:
        why = f"ran out of memory with batch {ran_with} at level {level}: {batch_size} from now on"
        context.record(facts.BatchLowered(why, name, level, batch_size, ran_with))


def _judge_suspect(context: DecisionContext, program: Program, ending: Ending) -> None:
    """Set a checkpoint aside, or put those back that the program wrote itself (`policy/worker/suspects.py`)."""
    suspicion, most, slow = program.suspicion, context.settings.restart.poison_deaths, program.deaths.openings > 0
    path, number = suspicion.path, suspicion.deaths
    named = suspects.names(path, ending.last_lines, cut=suspicion.cut)
    verdict = suspects.judge(most, suspicion, program.interventions, named=named, slow=slow)
    if suspicion.step is not None:
        if verdict is suspects.Verdict.SET_ASIDE and not program.ckpt.quarantined:
            why = f"{number} deaths in a row after resuming from step {suspicion.step}: the checkpoint before it is used"
            context.record(facts.CheckpointQuarantined(why, program.name, "", suspicion.step))
            context.command(commands.QuarantineCheckpoint(program.name, suspicion.step))
        return
    what = f"with checkpoint {path}" if path else "from nothing"
    deaths = f"{number} death{'' if number == 1 else 's in a row'} {what}, without a step"
    if verdict is suspects.Verdict.SET_ASIDE:
        proofs = (suspicion.torn, "which is torn"), (named, "which its output names"), (suspicion.cut, "which may be cut")
        proof = next((words for holds, words in proofs if holds), "and nothing else has helped")
        step = program.ckpt.step if path == program.ckpt.path else None
        why = f"{deaths}, {proof}: it is set aside, and the next start goes without it"
        context.record(facts.CheckpointQuarantined(why, program.name, path, step, not suspicion.torn))
    elif verdict is suspects.Verdict.PUT_BACK:
        why = f"{deaths}: no older one is whole, so it stays; see what it dies of"
        if tried := ", ".join(suspicion.tried):
            why = f"{deaths} and with newer ones: no checkpoint is the cause; put back: {tried}; see what it dies of"
        context.record(facts.CheckpointsPutBack(why, program.name, suspicion.tried))
