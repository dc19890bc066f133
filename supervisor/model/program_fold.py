"""What a fact about a program changes in the state: its part of `fold`."""

from __future__ import annotations

from typing import Final

from supervisor.model import facts
from supervisor.model.counts import counted
from supervisor.model.facts import Stamped
from supervisor.model.lifecycle import EDGE_OF, HAS_PROCESS, Phase, step
from supervisor.model.state import AtLevel, Attempt, LastExit, Program, Retry, Slowness, State, Stop
from supervisor.policy.box.lost_gpu import BY_WORKER
from supervisor.policy.script.finish import BACKGROUND, ENDED, is_at_exit, short_ends
from supervisor.policy.worker import intervention
from supervisor.policy.worker.intervention import Intervention, helped, newest, noted
from supervisor.policy.worker.restart import Deaths
from supervisor.policy.worker.stall import SILENT
from supervisor.policy.worker.suspects import ASIDE, BLAMED
from supervisor.records import replace

_BAD_KEPT: Final = 20


def with_program(state: State, stamped: Stamped, fact: facts.ProgramFact) -> State:
    """The state after a fact about a program. Raises IllegalTransition for an edge that its phase does not allow."""
    name = fact.program
    if isinstance(fact, facts.ProgramRemoved):
        return _without(state, name)
    program = state.programs.get(name)
    if program is None:
        if not isinstance(fact, facts.ProgramConfigured):
            return state  # a late fact about a program that has left the config
        phase = Phase.QUEUED if fact.autostart else Phase.STOPPED
        program = Program(
            name, phase, stamped.at_s, stamped.wall_s, fact.digest, wanted=fact.autostart, why=fact.why,
            attempts=state.former.get(name, 0), own_digest=fact.own_digest, service=fact.service,
        )  # fmt: skip
        return replace(state, programs={**state.programs, name: program})
    before, edge = program.steps, EDGE_OF.get(type(fact))
    if edge is not None and (phase := step(program.phase, edge)) is not program.phase:
        program = _moved(program, phase, stamped, fact)
    if isinstance(fact, facts.AttemptFact) and not isinstance(fact, facts.SpawnIntended):
        if program.attempt is None or program.attempt.token != fact.token:
            return state  # a fact about an attempt that is over
        program = _attempt(program, program.attempt, stamped, fact)
    else:
        program = _program(program, stamped, fact)
    counts = counted(program.counts, before, program.steps, fact)
    if counts is not program.counts:
        program = replace(program, counts=counts)
    return replace(state, programs={**state.programs, name: program})


def _without(state: State, name: str) -> State:
    """The state without a program. Its number of attempts stays: if it comes back, there must be no second attempt 1.

    That attempt would have the token and directory of the first one, find the exit record there and give up.
    """
    gone = state.programs.get(name)
    if gone is None:
        return state
    programs = {k: v for k, v in state.programs.items() if k != name}
    return replace(state, programs=programs, former={**state.former, name: gone.attempts})


def _moved(program: Program, phase: Phase, stamped: Stamped, fact: facts.ProgramFact) -> Program:
    attempt = program.attempt if phase in HAS_PROCESS else None
    rotated = isinstance(fact, facts.Requeued) and fact.handed_on
    interrupted = phase is Phase.QUEUED and program.phase in HAS_PROCESS and not rotated
    keeps_slot = interrupted or phase is Phase.BACKOFF or phase in HAS_PROCESS
    # Until an attempt that looks for the GPU itself has begun to train, its GPU is as lost as before.
    looks = phase in {Phase.STARTING, Phase.STOPPING} or interrupted
    return replace(
        program, phase=phase, since_s=stamped.at_s, since_wall_s=stamped.wall_s, why=fact.why, attempt=attempt,
        retry=program.retry if phase is Phase.BACKOFF else Retry(),
        interrupted=interrupted, slot_since_s=program.slot_since_s if keeps_slot else None,
        gpu_lost=program.gpu_lost if looks and program.gpu_lost == BY_WORKER else "",
    )  # fmt: skip


# `wanted` follows from the operator's request (`Wanted`), and also from the facts that the request caused. In a complete
# journal that changes nothing. In a journal that has lost `Wanted`, it keeps a stopped program from starting again.


def _program(program: Program, stamped: Stamped, fact: facts.ProgramFact) -> Program:
    match fact:
        case facts.ProgramConfigured():
            return _configured(program, fact)
        case facts.Wanted(run=True):
            # The operator's request is a fresh start: earlier failures do not count any more.
            return replace(fresh(program), wanted=True)
        case facts.Wanted(run=False) | facts.StayedDown():
            return replace(program, wanted=False)
        case facts.Requeued():
            return replace(program, wanted=True)
        case facts.SpawnIntended(attempt=number, token=token, digest=digest):
            attempt = Attempt(number, token, stamped.at_s, digest)
            since_s = stamped.at_s if program.slot_since_s is None else program.slot_since_s
            return replace(
                program, attempt=attempt, attempts=number, started_wall_s=stamped.wall_s, wanted=True,
                starts=replace(program.starts, error=""), slot_since_s=since_s,
            )  # fmt: skip
        case facts.BackedOff(until_s=until_s, slow=slow):
            deaths = replace(program.deaths, openings=program.deaths.openings + slow)
            return replace(program, retry=Retry(until_s, slow), deaths=deaths, why=fact.why)
        case facts.IntervalChosen(interval_s=interval_s):
            return replace(program, interval_s=interval_s)
        case facts.GapLearned(phase=phase, gap_s=gap_s):
            return replace(program, gaps_s=tuple(sorted({**dict(program.gaps_s), phase: gap_s}.items())))
        case facts.CheckpointQuarantined(step=step_):
            older = None if step_ is not None and program.ckpt.step == step_ else program.ckpt.step
            done = Intervention(ASIDE, stamped.at_s, fact.why, fact.path, step_)
            return replace(
                program, ckpt=replace(program.ckpt, step=older, quarantined=True, quarantined_step=step_),
                suspicion=program.suspicion.condemn(fact.path, on_trial=fact.on_trial),
                interventions=noted(program.interventions, done) if fact.on_trial else program.interventions,
            )  # fmt: skip
        case facts.CheckpointsPutBack():
            done = Intervention(ASIDE, stamped.at_s, fact.why, fruitless=intervention.MOST_FRUITLESS)
            return replace(
                program, suspicion=program.suspicion.with_tried_back(),
                interventions=(*(each for each in program.interventions if each.kind != ASIDE), done),
            )  # fmt: skip
        case facts.RolledBack():
            # The newest checkpoint is unknown until the next attempt reports it.
            back = Intervention(intervention.ROLLBACK, stamped.at_s, fact.why, step=fact.step)
            ckpt = replace(program.ckpt, roll_from=fact.from_step)
            return replace(
                program, rollbacks=fact.total, interventions=noted(program.interventions, back),
                ckpt=ckpt if fact.from_step is None else replace(ckpt, step=None, quarantined=True),
            )  # fmt: skip
        case _:
            return _learned(program, stamped, fact)


def _learned(program: Program, stamped: Stamped, fact: facts.ProgramFact) -> Program:
    match fact:
        case facts.Gated(lost=lost):  # a wait for the GPU is no part of a wait for its memory
            program = replace(program, since_s=stamped.at_s, since_wall_s=stamped.wall_s)
            return replace(program, gpu_lost=lost, why=fact.why)
        case facts.GpuUsed(gpus=gpus):
            return replace(program, gpus=gpus, attempt=program.attempt and replace(program.attempt, gpus=gpus))
        case facts.NeedLearned(level=level, gpu_bytes=gpu_bytes, host_bytes=host_bytes):
            return _at(program, level, replace(program.at(level), gpu_bytes=gpu_bytes, host_bytes=host_bytes))
        case facts.PaceLearned(level=level, rate=rate, save_gap_s=save_gap_s):
            return _at(program, level, replace(program.at(level), rate=rate, save_gap_s=save_gap_s))
        case facts.BatchLowered(level=level, batch_size=batch_size):
            return _at(program, level, replace(program.at(level), batch_size=batch_size))
        case _:
            return program


def _at(program: Program, level: str, known: AtLevel) -> Program:
    return replace(program, by_level={**program.by_level, level: known})


def _forgiven(program: Program) -> Program:
    return replace(
        program, deaths=Deaths(), starts=replace(program.starts, early_ends=0), suspicion=program.suspicion.wrote(),
        interventions=helped(helped(program.interventions, ASIDE), intervention.SILENCE),
    )  # fmt: skip


def fresh(program: Program) -> Program:
    """The program after an operator's request, in the config or by a command: its earlier failures have no effect."""
    suspicion = program.suspicion.with_tried_back()
    by_level = {level: AtLevel(each.gpu_bytes, each.host_bytes) for level, each in program.by_level.items()}
    return replace(
        _forgiven(replace(program, suspicion=suspicion)), by_level=by_level, short_ends=(), interventions=(),
        gpu_lost=program.gpu_lost if program.phase is Phase.GATED else "",
    )  # fmt: skip


def _configured(program: Program, fact: facts.ProgramConfigured) -> Program:
    program = replace(program, own_digest=fact.own_digest, service=fact.service)
    if fact.digest == program.digest:
        return program
    if fact.moved:
        return replace(program, digest=fact.digest)
    found, by_level = fresh(program), program.by_level if fact.level_only else {}
    starts = replace(found.starts, has_run=found.starts.has_run and fact.level_only)
    return replace(found, digest=fact.digest, by_level=by_level, starts=starts)


def _attempt(program: Program, attempt: Attempt, stamped: Stamped, fact: facts.AttemptFact) -> Program:
    """Apply a fact about an attempt. Some of these facts also change the program; the others change only the attempt."""
    # A rollback comes before the next start; a program's own checkpoints are set aside by that start (`facts.StartsFrom`).
    ckpt = program.ckpt if program.ckpt.path else replace(program.ckpt, roll_from=None)
    match fact:
        case facts.Resumption() | facts.ResumeUnknown():
            program = _resumed(program, attempt, fact)
        case facts.Spawned():
            program = replace(program, starts=replace(program.starts, failures=0, has_run=True), ckpt=ckpt)
        case facts.Recovered():
            program = _forgiven(program)
        case facts.StopIntended(reason="slow" | "stall") | facts.Helped():
            program = replace(program, interventions=_interventions(program, attempt, stamped.at_s, fact))
        case facts.Checkpointed() | facts.StartsFrom() | facts.CheckpointSeen():
            return _with_checkpoint(program, attempt, stamped, fact)
        case facts.Tallied(steps=steps, rate=rate):
            return replace(
                program, rate=program.rate if rate is None else rate,
                # Until its `Resumed`, the position of the previous attempt counts: lost steps are measured from it.
                steps=program.steps if steps is None or attempt.resumed_step is None else steps,
            )  # fmt: skip
        case facts.CheckpointBad(path=path):
            return replace(program, ckpt=replace(program.ckpt, bad=(*program.ckpt.bad, path)[-_BAD_KEPT:]))
        case facts.SpawnFailed(error=error):
            starts = replace(program.starts, error=error, failures=program.starts.failures + 1)
            return replace(program, attempt=None, starts=starts, why=fact.why)
        case facts.Exited():
            return _exited(replace(program, ckpt=ckpt), attempt, stamped, fact)
        case facts.StopIntended(reason="operator"):
            program = replace(program, wanted=False)
        case _:
            pass
    return replace(program, attempt=_changed(attempt, stamped.at_s, fact))


def _interventions(
    program: Program, attempt: Attempt, at_s: float, fact: facts.StopIntended | facts.Helped
) -> tuple[Intervention, ...]:
    done, slow = program.interventions, attempt.slow
    if isinstance(fact, facts.Helped):
        return helped(done, fact.kind)
    if fact.reason == "stall":
        return noted(done, Intervention(intervention.SILENCE, at_s, fact.why)) if attempt.stall == SILENT else done
    if slow is None or slow.step is None:
        return noted(done, Intervention(intervention.SLOW, at_s, fact.why))
    return noted(done, Intervention(intervention.STILL, at_s, fact.why, step=slow.step, made=slow.made))


def _resumed(program: Program, attempt: Attempt, fact: facts.Resumption | facts.ResumeUnknown) -> Program:
    """A worker that resumed did so from the newest whole checkpoint: if the state had a newer one, that is gone."""
    if isinstance(fact, facts.ResumeUnknown):
        return replace(program, counting=replace(program.counting, steps_before=0))
    counting = replace(program.counting, steps_before=fact.steps_before, since_s=attempt.intended_at_s)
    program = replace(program, steps=fact.step, counting=counting)
    newest = None if fact.step == program.ckpt.quarantined_step else fact.step or None
    if isinstance(fact, facts.Resumed) and not program.ckpt.path:
        program = replace(program, suspicion=program.suspicion.resumes(newest))
    if newest == program.ckpt.step or not isinstance(fact, facts.Resumed):
        return program
    return replace(program, ckpt=replace(program.ckpt, step=newest, at_s=None))


def _with_checkpoint(
    program: Program, attempt: Attempt, stamped: Stamped, fact: facts.Checkpointed | facts.StartsFrom | facts.CheckpointSeen
) -> Program:
    match fact:
        case facts.Checkpointed(step=step_, stall_s=stall_s, well=well):
            back = newest(program.interventions, intervention.ROLLBACK)
            if well and back is not None and back.step is not None and step_ > back.step:
                program = replace(program, interventions=helped(program.interventions, intervention.ROLLBACK))
            if attempt.saves_again(step_):  # not by a checkpoint at an earlier step than the failed one
                attempt = replace(attempt, save_error="", save_failed_step=None)
            return replace(
                program, attempt=attempt, ckpt=replace(program.ckpt.wrote(step_, stamped.at_s), stall_s=stall_s),
                steps=max(program.steps or 0, step_),
            )  # fmt: skip
        case facts.StartsFrom():
            return program if fact.error else _starts_from(program, attempt, fact)
    at_s = stamped.at_s if fact.saved_at_s is None else min(stamped.at_s, fact.saved_at_s)
    return replace(
        program, attempt=replace(attempt, save_error="", save_failed_step=None), suspicion=program.suspicion.wrote(),
        interventions=helped(program.interventions, ASIDE),
        ckpt=replace(program.ckpt.wrote(fact.step, at_s), path=fact.path, size_bytes=fact.size_bytes),
        steps=program.steps if fact.step is None else max(program.steps or 0, fact.step),
    )  # fmt: skip


def _starts_from(program: Program, attempt: Attempt, fact: facts.StartsFrom) -> Program:
    """The program with the checkpoints on the disk, which replace those of the previous look."""
    torn, suspicion, done = fact.torn not in ("", fact.path), program.suspicion, program.interventions
    known_s = program.ckpt.at_s  # None: the attempt before had found nothing
    newer = program.exit.looked and fact.saved_at_s is not None and (known_s is None or fact.saved_at_s > known_s + 1.0)
    if newer and fact.path not in suspicion.put_back:  # the attempt before has written it, and no look came in time
        suspicion, done = suspicion.wrote(), helped(done, ASIDE)
        suspicion = suspicion.dies(program.exit.why, trained=True) if program.exit.cause in BLAMED else suspicion
    attempt = replace(attempt, from_path=fact.path, from_step=fact.step, from_sure=fact.sure)
    suspicion = suspicion.begins(
        fact.torn or fact.path, torn=torn, cut=not fact.sure, left=fact.left,
        spare=fact.spare != "" or (torn and fact.path != ""),
    )  # fmt: skip
    return replace(
        program, attempt=attempt, suspicion=suspicion, interventions=done,
        ckpt=replace(
            program.ckpt, path=fact.path, step=fact.step, at_s=fact.saved_at_s, size_bytes=fact.size_bytes, roll_from=None
        ),
    )  # fmt: skip


def _changed(attempt: Attempt, at_s: float, fact: facts.AttemptFact) -> Attempt:
    match fact:
        case facts.Spawned(pid=pid, start_ticks=ticks, shim_pid=shim_pid, shim_start_ticks=shim_ticks):
            return replace(attempt, pid=pid, start_ticks=ticks, shim_pid=shim_pid, shim_start_ticks=shim_ticks)
        case facts.BecameReady():
            return replace(attempt, ready_at_s=at_s)
        case facts.Resumption(step=resumed, steps_before=before, key=key):
            reports = (*attempt.reports, key) if key else attempt.reports
            return replace(attempt, resumed_step=resumed, resumed_at_s=at_s, steps_before=before, reports=reports)
        case facts.ResumeUnknown():
            return replace(attempt, resume_unknown=True)
        case facts.Stalled(stall=stall):
            return replace(attempt, stall=stall, stalled_at_s=at_s, examined=False)
        case facts.Examined(evidence=evidence):
            slow = attempt.slow and replace(attempt.slow, warning=evidence.get("warning", ""))
            return replace(attempt, examined=True, slow=slow, at_exit=is_at_exit(evidence))
        case facts.Revived():
            return replace(attempt, stall=None, stalled_at_s=None, examined=False)
        case facts.StopIntended(reason=reason, grace_s=grace_s):
            return replace(attempt, stop=Stop(reason, at_s, grace_s))
        case facts.KillIntended() if attempt.stop is not None:
            return replace(attempt, stop=replace(attempt.stop, killed_at_s=at_s, kills=attempt.stop.kills + 1))
        case facts.NotEnded() if attempt.stop is not None:
            return replace(attempt, stop=replace(attempt.stop, not_ended=fact.why))
        case facts.Reported(key=key) | facts.CheckpointsOdd(key=key):
            return replace(attempt, reports=(*attempt.reports, key))
        case _:
            return _ailing(attempt, at_s, fact)


def _ailing(attempt: Attempt, at_s: float, fact: facts.AttemptFact) -> Attempt:
    """Faults of a worker that continues to train."""
    match fact:
        case facts.Slowed(step=step_, made=made, anew=anew):
            return replace(attempt, slow=Slowness(at_s, fact.why, step_, made, anew), examined=False)
        case facts.Diverged(fine_step=fine_step, key=key):
            return replace(attempt, fine_step=fine_step, reports=(*attempt.reports, key))
        case facts.Sickened(illness=illness, action="tell"):
            return replace(attempt, illnesses=(*attempt.illnesses, illness))
        case facts.Sickened(illness=illness, action=action, fine_step=fine_step):
            illnesses = (*attempt.illnesses, illness)
            return replace(attempt, illnesses=illnesses, ill=illness, illness_action=action, fine_step=fine_step)
        case facts.Healed(illness=illness):
            return replace(attempt, illnesses=tuple(ill for ill in attempt.illnesses if ill != illness))
        case facts.PaceRegained():
            return replace(attempt, slow=None)
        case facts.CommandGone(background=background):
            return replace(attempt, rest=BACKGROUND if background else ENDED)
        case facts.Quiet():
            return replace(attempt, quiet_at_s=at_s)
        case facts.CheckpointFailed(error=error, step=step, key=key):
            return replace(attempt, save_error=error, save_failed_step=step, reports=(*attempt.reports, key))
        case _:
            return attempt


def _exited(program: Program, attempt: Attempt, stamped: Stamped, fact: facts.Exited) -> Program:
    """The attempt is over: its running time is added to the exposure, and a death that counts is recorded."""
    ended_at_s = stamped.at_s if fact.ended_at_s is None else fact.ended_at_s
    ran_s = 0.0 if attempt.ready_at_s is None else max(0.0, ended_at_s - attempt.ready_at_s)
    exact = fact.cause != "reboot" and not fact.at_least
    began = program.counting.began_step if attempt.resumed_step is None else attempt.resumed_step
    at = program.came_to(fact.steps)
    if fact.steps is None:  # an attempt that restored nothing leaves the position as it was
        exact = program.counting.exact and attempt.resumed_step is None
    program = replace(
        program, attempt=None, why=fact.why, exposure_s=program.exposure_s + ran_s,
        exit=LastExit(
            fact.cause, fact.code, fact.signal, stamped.wall_s, program.exit.at_s if attempt.pid is None else ended_at_s,
            None if attempt.stop is None else attempt.stop.asked_at_s, fact.why, attempt.from_path is not None,
        ),
        steps=program.steps if fact.steps is None else fact.steps,
        counting=replace(program.counting, exact=exact, began_step=began),
        starts=replace(program.starts, early_ends=program.starts.early_ends + 1 if fact.early else 0),
        mean_return=program.mean_return if fact.mean_return is None else fact.mean_return,
        short_ends=short_ends(program.short_ends, at) if fact.cause == "left" and at is not None else program.short_ends,
    )  # fmt: skip
    if fact.checkpoint_step is not None and fact.checkpoint_step > (program.ckpt.step or -1):
        # None: its age is unknown. The time of the previous checkpoint would be wrong.
        program = replace(program, ckpt=program.ckpt.wrote(fact.checkpoint_step, fact.checkpoint_at_s))
    elif fact.checkpoint_step is not None and fact.checkpoint_step == program.ckpt.step and fact.checkpoint_at_s is not None:
        at_s = fact.checkpoint_at_s  # it was recorded some time after it was durable
        program = replace(program, ckpt=replace(program.ckpt, at_s=at_s))
    if fact.saved:  # also if it lived too briefly for its checkpoint to be on record
        done = helped(program.interventions, ASIDE)
        program = replace(program, suspicion=program.suspicion.wrote(), interventions=done)
    if not fact.counted:
        return program
    deaths, suspicion = program.deaths.after(
        stamped.at_s,
        lived_s=ended_at_s - attempt.intended_at_s if attempt.stop is None else None, saved=fact.saved,
        kind=(fact.cause, fact.code if fact.signal is None else -fact.signal), step=fact.steps or 0,
    ), program.suspicion  # fmt: skip
    if fact.cause in BLAMED:  # a worker may die of what it has read long after its first step, but not before it has read it
        trained = fact.trained if suspicion.step is None else attempt.resumed_step is None
        suspicion = suspicion.dies(fact.why, trained=trained)
    return replace(program, deaths=deaths, restarts=program.restarts + 1, suspicion=suspicion)
