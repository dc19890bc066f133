"""What is changed before the next attempt, so that it is not simply the same again: checkpoint, chance, or batch."""

from __future__ import annotations

from supervisor.deciding.turn import Turn
from supervisor.model import commands, facts
from supervisor.model.inputs import Ending
from supervisor.model.state import Attempt, Program
from supervisor.policy.worker import divergence, health, memory, restart
from supervisor.policy.worker.diagnosis import Diagnosis


def remedy(turn: Turn, name: str, attempt: Attempt, ending: Ending, verdict: Diagnosis) -> str:
    """Facts and commands by the cause of a death that counts; returns why nothing more is to be tried, or nothing."""
    if verdict.cause == "diverged":
        return _roll_back(turn, name, attempt)
    if verdict.cause == "sick":
        return _cure(turn, name, attempt)
    if verdict.cause in memory.CAUSES:
        _lower_batch(turn, name, ending)
    else:
        _quarantine(turn, name)
    return ""


def _cure(turn: Turn, name: str, attempt: Attempt) -> str:
    what = health.WORDS.get(attempt.ill, "its training went wrong")
    if attempt.cure == health.GIVE_UP:
        return f"{what}, and the config says to give up"
    if attempt.cure == health.NEW_SEED:
        return _draw_anew(turn, name, what)
    return _roll_back(turn, name, attempt, what)


def _draw_anew(turn: Turn, name: str, what: str) -> str:
    """A roll-back that sets nothing aside."""
    program, most = turn.state.programs[name], turn.settings.divergence.rollbacks
    number = program.divergences + 1
    if number > most:
        return f"{what} again after {most} rollbacks"
    drawn = f"restarts with another random seed ({number} of {most})"
    why = f"{what} at step {_step(program)}: {drawn}; no checkpoint is set aside"
    turn.record(facts.RolledBack(why, name, program.steps, None, number, program.rollbacks + 1))
    return ""


def _step(program: Program) -> str:
    return "?" if program.steps is None else f"{program.steps:,}"


def _roll_back(turn: Turn, name: str, attempt: Attempt, what: str = "diverged") -> str:
    program = turn.state.programs[name]
    number = program.divergences + 1
    verdict = divergence.after(
        turn.settings.divergence, number=number, newest_step=program.ckpt_step, fine_step=attempt.fine_step,
        resumed_step=attempt.resumed_step, what=what,
    )  # fmt: skip
    if verdict.give_up:
        return verdict.why
    why = f"{what} at step {_step(program)}: {verdict.why}"
    turn.record(facts.RolledBack(why, name, program.steps, verdict.from_step, number, program.rollbacks + 1))
    if verdict.from_step is not None:
        turn.command(commands.RollBack(name, verdict.from_step))
    return ""


def _lower_batch(turn: Turn, name: str, ending: Ending) -> None:
    """By the batch that it ran with; one that runs with more than it was given does not take ours."""
    spec, level = turn.spec(name), turn.settings.level.name
    given = turn.state.programs[name].batch_size(level)
    ran_with = ending.batch_size or given or (spec.batch_size if spec is not None else None)
    if ran_with is None or (given is not None and ran_with > given):
        return
    fallback = spec.fallback_batch if spec is not None else None
    batch_size = memory.smaller_batch(ran_with, fallback=fallback, lowered=given is not None)
    if batch_size is not None:
        why = f"ran out of memory with batch {ran_with} at level {level}: {batch_size} from now on"
        turn.record(facts.BatchLowered(why, name, level, batch_size, ran_with))


def _quarantine(turn: Turn, name: str) -> None:
    """A checkpoint that kills whoever loads it."""
    program, settings = turn.state.programs[name], turn.settings.restart
    if program.quarantined_since_ckpt or not restart.is_poison(settings, program.death_resumes, program.ckpt_step):
        return
    deaths = f"{settings.poison_deaths} deaths in a row after resuming from step {program.ckpt_step}"
    why = f"{deaths}: the checkpoint before it is used"
    turn.record(facts.CheckpointQuarantined(why, name, "", program.ckpt_step))
    turn.command(commands.QuarantineCheckpoint(name, program.ckpt_step))
