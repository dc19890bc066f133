"""Start and stop attempts, record their reports, and handle their ends."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

from supervisor.deciding import own_checkpoints, time_spent
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.gating import admit, waits_for_gpu, when_no_gpu
from supervisor.deciding.hardware import gpu_of
from supervisor.deciding.remedies import remedy
from supervisor.formats import duration, span
from supervisor.model import commands, facts
from supervisor.model.inputs import Ended, Ending, Report, Sample, SpawnBroke, SpawnSucceeded
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.model.settings import ProgramSpec, Progress
from supervisor.model.state import Attempt, Program, Stop
from supervisor.policy.box import lost_gpu
from supervisor.policy.box.gate import Answer, Verdict
from supervisor.policy.script import resume_step
from supervisor.policy.script.figures import Fall
from supervisor.policy.script.finish import BACKGROUND, ENDED, Course, has_more_epochs, in_save, says_done, says_early_stop
from supervisor.policy.worker import newest_whole, no_room, out_of_memory, reason_line, restart
from supervisor.policy.worker.diagnosis import NO_GPU, Diagnosis, diagnose
from supervisor.policy.worker.loss import AT_LEAST, IN_WORDS, Loss, furthest, loss, lost_share
from supervisor.records import replace

_HOLDS_SLOT_S = 30.0  # a restart due within this time keeps its slot; during a longer wait another program gets it
_CHANGE_S = 120.0  # starts are staggered for this long after a change of level
_GRACE_S = 20.0  # of a program that is no longer in the config, so its own setting is unknown
_LEAST_IMPORTANT = 10**9
_LOOKS_S = 10.0  # so much later than it was printed a step may be read


# --- slots -------------------------------------------------------------------------------------------------------------


def fill_slots(context: DecisionContext, *, staggered: bool = True) -> None:
    """Give free slots to programs that are due or queued, by priority, then by waiting time. Running programs keep theirs.

    Among equal priorities, interrupted programs come first: a reboot must not give their slots to programs that waited.
    Example, two slots: Pong runs, Breakout died and is due in 4 s (it keeps its slot), Qbert is queued: nothing starts.
    If Breakout's breaker were open (next trial in 30 min), Qbert would start now. The same if Breakout's GPU is lost.
    `staggered`: after a change of level, starts from the queue wait for each other. To build 256 environments eight times
    at once would take every core of this box for a minute.
    """
    held = tuple(each for why in context.hooks("held") if (each := why(context)) is not None)
    context.memory = replace(context.memory, held=held)
    if context.state.stopping or context.memory.ended or any(each.programs is None for each in held):
        return
    _stop_excess(context)
    if context.settings.load.rotation_h:
        _rotate(context)
    slots, programs = context.settings.level.slots, context.state.programs.values()
    trainings = [program for program in programs if not program.service]
    processes = sum(1 for program in trainings if program.phase in HAS_PROCESS)
    kept = sum(map(_keeps_slot_in_backoff, trainings))
    # An interrupted program keeps its slot while a rollback replaces its checkpoints.
    kept += sum(each.phase is Phase.QUEUED and each.interrupted and context.is_held(each.name) for each in trainings)
    ready = [(program, spec) for program in programs if (spec := _to_start(context, program)) is not None]
    waiting: dict[int | None, str] = {}  # by GPU: the first program that waits for its memory; later ones wait behind it
    for program, spec in sorted(
        ready, key=lambda item: (item[1].priority, not item[0].interrupted, item[0].since_s, item[0].name)
    ):
        takes_slot = not program.service
        kept -= takes_slot and _keeps_slot_in_backoff(program)
        if waits_for_gpu(context, program, spec):
            continue
        if takes_slot and processes + kept >= slots:
            if program.phase is not Phase.QUEUED:
                waited = "its GPU is back" if program.gpu_lost else "it waited for GPU memory"
                due = "its restart is due" if program.phase is Phase.BACKOFF else waited
                context.record(facts.Requeued(f"{due}, but no slot is free", program.name))
            continue
        if takes_slot and staggered and program.phase is Phase.QUEUED and _waits_for_another(context):
            continue
        verdict = admit(context, program, spec, waiting)
        if verdict.answer is Answer.START:
            _spawn(context, program, spec, verdict)
        elif verdict.answer is Answer.WAIT:
            waiting.setdefault(gpu_of(context, spec), program.name)
        processes += takes_slot and verdict.answer is not Answer.GIVE_UP


def _stop_excess(context: DecisionContext) -> None:
    """With fewer slots than running programs (after a lower level), ask the least important to save and exit.

    Of the same priority, those that cannot resume leave last: they would lose everything.
    """
    programs = [program for program in context.state.programs.values() if not program.service]
    holders = [p for p in programs if p.attempt is not None and p.attempt.stop is None]
    over = len(holders) - context.settings.level.slots
    if over <= 0:
        return

    def order(program: Program) -> tuple[int, bool, float, str]:
        spec = context.settings.program(program.name)
        resumes = spec is None or spec.follows_level
        return -_priority(context, program), not resumes, -program.since_s, program.name

    for program in sorted(holders, key=order)[:over]:
        why = f"level {context.settings.level.name} has fewer slots"
        stop(context, *context.present(program.name), reason="slot", by="extralife", why=why)


def _rotate(context: DecisionContext) -> None:
    """After `rotation_h` in a slot, a program gives the slot to another program that has waited as long.

    Only one program at a time gives up its slot, the longest holder first, and never to a less important program. It then
    goes to the end of the queue of its priority, behind interrupted programs. Example with two slots and 6 h: A and B run, C
    waits. After 6 h C replaces A, after 12 h A replaces B: each trains for two thirds of the time, with a restart every 6 h.
    """
    rotation_s = context.settings.load.rotation_h * 3600.0
    programs = [program for program in context.state.programs.values() if not program.service]
    if sum(p.phase in {Phase.STARTING, Phase.RUNNING} for p in programs) < context.settings.level.slots:
        return
    long_ago_s = context.now_s - rotation_s
    waiting = [_priority(context, p) for p in programs if p.phase is Phase.QUEUED and p.wanted and p.since_s <= long_ago_s]
    held = [
        (program.slot_since_s, program.name)
        for program in programs
        if program.phase is Phase.RUNNING and program.slot_since_s is not None and program.slot_since_s <= long_ago_s
        and waiting and min(waiting) <= _priority(context, program)
    ]  # fmt: skip
    if held:
        why = f"had its slot for {span(rotation_s)} while others wait"
        stop(context, *context.present(min(held)[1]), reason="rotation", by="extralife", why=why)


def _waits_for_another(context: DecisionContext) -> bool:
    """Whether a start from the queue would follow the previous start too soon. If so, the loop wakes up at the right time.

    Cluster jobs are exempt: each builds its environments on its own node.
    """
    since_s, gap_s = context.state.climb.level_since_s, context.settings.load.stagger_s
    if context.settings.remote or not context.settings.ladder or since_s is None:
        return False
    if context.now_s - since_s > _CHANGE_S:
        return False
    begun = [program.attempt.intended_at_s for program in context.state.live.values() if program.attempt is not None]
    newest_s = max((at_s for at_s in begun if at_s >= since_s), default=None)
    if newest_s is None or newest_s + gap_s <= context.now_s:
        return False
    context.wake(newest_s + gap_s)
    return True


def _keeps_slot_in_backoff(program: Program) -> bool:
    """Whether a program without a process keeps its slot: its whole restart delay is at most `_HOLDS_SLOT_S`."""
    if program.retry.at_s is None or program.retry.slow:
        return False
    return program.retry.at_s - program.since_s <= _HOLDS_SLOT_S


def _to_start(context: DecisionContext, program: Program) -> ProgramSpec | None:
    """The spec of a program that may start now (queued, waiting for memory, or due), else None."""
    due = program.retry.at_s is not None and program.retry.at_s <= context.now_s
    due = (due or program.phase in {Phase.QUEUED, Phase.GATED}) and not context.is_held(program.name)
    return context.settings.program(program.name) if due and program.wanted else None


def _priority(context: DecisionContext, program: Program) -> int:
    """Lower is more important; a program that has left the config comes after all others."""
    spec = context.settings.program(program.name)
    return _LEAST_IMPORTANT if spec is None else spec.priority


_WAITED = {lost_gpu.BY_BOX: "its GPU is back", lost_gpu.BY_WORKER: "its worker looks for its GPU again"}


def _spawn(context: DecisionContext, program: Program, spec: ProgramSpec, verdict: Verdict) -> None:
    number = program.attempts + 1
    why = program.why if program.phase is Phase.BACKOFF else f"a slot of level {context.settings.level.name} is free"
    if program.phase is Phase.GATED:
        free = _WAITED.get(program.gpu_lost, "it waits no longer for GPU memory")
        free = free if verdict.free_bytes is None else "the GPU memory that it needs is free"
        why = verdict.why or f"{free}, after {span(context.now_s - program.since_s)}"
    lowered = program.at(context.settings.level.name).batch_size
    lowered = lowered if verdict.batch_size is None else verdict.batch_size
    order = commands.Spawn(
        spec, number, context.token(program.name, number), lowered, program.rollbacks,
        when_no_gpu=when_no_gpu(context, program, spec),
    )  # fmt: skip
    for changed in context.hooks("order"):
        order = changed(context, order)
    context.record(facts.SpawnIntended(why, program.name, order.token, number, spec.digest, context.settings.level.name))
    context.command(_with_own_checkpoints(context, program, order) if spec.checkpoint_glob else order)
    set_control(context, program.name, order.token)


def _with_own_checkpoints(context: DecisionContext, program: Program, order: commands.Spawn) -> commands.Spawn:
    """Add to the start command which of the program's own checkpoints to set aside and which to doubt before the start."""
    ended_s, cause = program.exit.at_s, program.exit.cause
    since = [] if ended_s is None else [each for each in context.state.reboots if each.at_s >= ended_s]
    cut = [each.sign_wall_s for each in since[:1] if cause == "reboot" or each.cause not in {"orderly", "operator"}]
    doubt_s = newest_whole.doubt_from_wall_s(
        cause, by_itself=program.exit.code is not None, last_sign_wall_s=cut[0] if cut else None,
        ended_wall_s=None if ended_s is None else context.wall_s - (context.now_s - ended_s),
    )  # fmt: skip
    from_step, aside = program.ckpt.roll_from if program.ckpt.path else None, program.suspicion.condemned
    if from_step is not None and program.counting.steps_before:  # the steps in the names are those of single attempts
        from_step, aside = None, (*aside, program.ckpt.path)
    return replace(order, aside=aside, back=program.suspicion.put_back, from_step=from_step, doubt_from_wall_s=doubt_s)


def set_control(context: DecisionContext, name: str, token: str, *, leave_by_s: float | None = None) -> None:
    """Write the attempt's control record. Its offset spreads the saves of the programs evenly over the interval."""
    interval_s = context.state.programs[name].interval_s or context.settings.checkpoint.first_s
    names = sorted(context.state.programs)
    offset_s = interval_s * names.index(name) / len(names)
    saves = context.memory.saves_asked.get(token, 0)
    context.command(commands.SetControl(name, token, interval_s, offset_s, saves, leave_by_s))


def on_spawned(context: DecisionContext, item: SpawnSucceeded) -> None:
    found = context.live(item.program, item.token)
    if found is None:
        return
    why = f"attempt {found[1].number} runs as pid {item.pid}"
    context.record(
        facts.Spawned(why, item.program, item.token, item.pid, item.start_ticks, item.shim_pid, item.shim_start_ticks)
    )
    spec = context.settings.program(item.program) or commands.orphan_spec(item.program)
    context.command(commands.Watch(spec, found[1].number, item.token, item.pid, item.start_ticks))
    if found[1].stop is not None:  # the stop request came during the start
        context.command(commands.AskToLeave(item.program, item.token))


def on_spawn_broke(context: DecisionContext, item: SpawnBroke) -> None:
    """Handle a failed start. After a permanent error the program is given up; after any other error it is retried.

    A program that has run with this configuration is retried in any case: its command is missing because its disk is not
    mounted yet after a reboot, or because its environment is being installed again.
    """
    found = context.live(item.program, item.token)
    if found is None:
        return
    program, attempt = found
    context.record(facts.SpawnFailed(item.error, item.program, item.token, item.error, item.permanent))
    context.memory = context.memory.forget(item.program)
    context.command(commands.Forget(item.program, item.token))
    if attempt.stop is not None:
        _after_stop(context, item.program, attempt.stop)
    elif item.permanent and (item.refused or not program.starts.has_run):
        context.give_up(item.program, item.error)
    else:
        delay_s = restart.after_failed_start(context.settings.restart, context.state.programs[item.program].starts.failures)
        why = f"its process could not be started: {item.error}; next try in {span(delay_s)}"
        context.record(facts.BackedOff(why, item.program, context.now_s + delay_s, delay_s, slow=False))
    fill_slots(context)


# --- stopping ------------------------------------------------------------------------------------------------------------


def stop(
    context: DecisionContext, program: Program, attempt: Attempt, *, reason: str, by: str, why: str,
    grace_s: float | None = None,
) -> None:  # fmt: skip
    """Ask an attempt to save and exit; `on_deadlines` kills it when the grace time is over."""
    name = program.name
    if attempt.stop is not None and (attempt.stop.reason == reason or attempt.stop.not_ended):
        return
    if grace_s is None:
        spec = context.settings.program(name)
        grace_s = _GRACE_S if spec is None else spec.stop_grace_s
    time_spent.record_tally(context, name)
    context.record(facts.StopIntended(why, name, attempt.token, reason, by, grace_s))
    set_control(context, name, attempt.token, leave_by_s=context.now_s + grace_s)
    context.command(commands.AskToLeave(name, attempt.token))


def send_away(
    context: DecisionContext, reason: str, why: str, *, by: str = "extralife", names: Collection[str] | None = None,
    grace_s: Callable[[str], float | None] = lambda _: None,
) -> None:  # fmt: skip
    """Ask running programs (None: all) to save and exit. `held` of the same feature keeps the others from starting.

    Those that wait keep what they wait for: without it a lost GPU or a slow retry would look like work.
    """
    for name in sorted(context.state.live if names is None else context.state.live.keys() & set(names)):
        program, attempt = context.present(name)
        if attempt.stop is None:
            stop(context, program, attempt, reason=reason, by=by, why=why, grace_s=grace_s(name))


# --- the end -------------------------------------------------------------------------------------------------------------


def on_ended(context: DecisionContext, item: Ended) -> None:
    if (found := context.live(item.program, item.token)) is not None:
        finish(context, *found, item.ending)
        fill_slots(context)


def finish(context: DecisionContext, program: Program, attempt: Attempt, ending: Ending) -> None:
    name = program.name
    for report in ending.reports:
        on_report(context, name, attempt.token, report)
    program, attempt = context.present(name)
    spec = context.settings.program(name)
    oom_kill = out_of_memory.oom_kill(
        line=ending.oom_line, oom_kills=ending.oom_kills, accounted=context.state.oom_kills,
        own=ending.oom_own, limit_bytes=ending.memory_max_bytes,
    )  # fmt: skip
    if attempt.rest == BACKGROUND and ending.rest is not None:
        ending = replace(ending, code=ending.rest[0], signal=ending.rest[1])
    beat = spec is not None and spec.progress is Progress.AUTO and ending.steps is not None
    verdict = diagnose(
        code=ending.code, signal=ending.signal, stop_reason=attempt.stop.reason if attempt.stop is not None else None,
        stall=attempt.stall, done_codes=spec.done_codes if spec is not None else (0,),
        contract=spec is None or spec.progress is Progress.BEAT or beat, last_lines=ending.last_lines, fate=ending.fate,
        oom_kill=oom_kill,
    )  # fmt: skip
    if attempt.stop is None:
        for judge in context.hooks("verdict"):
            verdict = judge(ending, spec.done_codes if spec is not None else (0,), verdict)
    ended_at_s = None if ending.ended_at_s is None else max(attempt.intended_at_s, min(context.now_s, ending.ended_at_s))
    time_spent.record_end(context, *context.present(name), ending, ended_at_s)
    watch = context.memory.watch(name, attempt.token)
    for own in (None if watch is None else watch.sample.own, ending.own):
        if own is not None:
            own_checkpoints.note_last(context, name, own)
    accounted = context.state.oom_kills
    if not ending.oom_own:
        killed = verdict.cause == out_of_memory.OOM_KILLED
        accounted = out_of_memory.accounted_after(ending.oom_kills, accounted, killed=killed)
    course, steps = _course(context, name, ending, verdict)
    early = spec is not None and _is_early(context, spec, attempt, verdict, ended_at_s)
    verdict = course.judge(verdict)
    if verdict.counted and (full := no_room.clause(ending.signal, ending.last_lines, ending.disks)):
        verdict = replace(verdict, why=f"{verdict.why}; {full}")  # for every sentence about this end
    if spec is not None and verdict.cause == "done" and (early or spec.restart == restart.ALWAYS):
        reason = f"ended within {span(spec.start_s or 0.0)} of its start" if early else "ended, but `restart` is always"
        verdict = Diagnosis("ended", counted=early, why=f"{reason}: {verdict.why}")
    before, saved = context.state, _has_saved(context, name, ending)
    seen = None if watch is None else watch.sample.figures.get("mean_return")
    returns = ending.mean_return, ending.shown.values.get("mean_return"), seen
    context.record(
        facts.Exited(
            verdict.why + _remains(attempt, ending),
            name, attempt.token, verdict.cause, ending.code, ending.signal, steps, ending.ckpt_step,
            ending.leftovers, ending.last_lines if verdict.counted or verdict.cause == "config" else (),
            verdict.counted, ending.max_rss_bytes, ended_at_s, accounted, ending.steps is None and steps is not None,
            None if ending.ckpt_at_s is None else min(context.now_s, ending.ckpt_at_s), early,
            mean_return=next((each for each in returns if each is not None), None),
            trained=has_trained(context, name, ending), saved=saved,
        )
    )  # fmt: skip
    for note in context.hooks("ended"):
        note(context, name, ending, before)
    context.memory = context.memory.forget(name)
    context.command(commands.Forget(name, attempt.token))
    _follow(context, name, attempt, ending, verdict, saved=saved)


def had_finished(context: DecisionContext, name: str, ending: Ending, *, sudden: bool) -> bool:
    """Whether an attempt that the reboot seems to have ended had finished before it (`policy/script/finish.py`)."""
    (_, attempt), spec = context.present(name), context.settings.program(name)
    if spec is None or attempt.stop is not None or attempt.rest == BACKGROUND or ending.code not in spec.done_codes:
        return False
    done = Diagnosis("done", counted=False, why="finished")
    return _course(context, name, ending, done)[0].had_finished(by_contract=spec.progress is Progress.BEAT, sudden=sudden)


def _remains(attempt: Attempt, ending: Ending) -> str:
    """What its processes left, as a part of the sentence about its end."""
    files = sum(each.startswith("/") for each in ending.leftovers)
    processes = 0 if attempt.rest == ENDED else len(ending.leftovers) - files
    said = f"; {processes} leftover process{'' if processes == 1 else 'es'} ended" if processes else ""
    return said + (f"; {files} leftover file{'' if files == 1 else 's'} in /dev/shm removed" if files else "")


def _course(context: DecisionContext, name: str, ending: Ending, verdict: Diagnosis) -> tuple[Course, int | None]:
    """(What is known about an attempt at its end, beside its exit status; its last step, if it is known)."""
    program, attempt = context.present(name)
    spec, watch = context.settings.program(name), context.memory.watch(name, attempt.token)
    steps = ending.steps
    if steps is None:  # without a final beat it is the step of the last sample
        steps = None if watch is None else watch.sample.steps
        steps = steps if ending.shown.steps is None else ending.shown.steps + attempt.steps_before
        if attempt.resumed_step is not None or (steps is not None and not attempt.resume_unknown):
            steps = furthest(steps, program.steps)
    grace_s = _GRACE_S if spec is None else spec.stop_grace_s
    at = program.came_to(steps)
    target, bar, resumed = ending.target, None, attempt.resumed_step
    if target is None and spec is not None and ending.steps is None:
        target = spec.figures.target_steps
        bar = ending.shown.bar if target is None else None
        if bar is not None:  # of an epoch, perhaps
            at, target = bar.step + attempt.steps_before, bar.target + attempt.steps_before
            part = bar.is_part or has_more_epochs(ending.last_lines)
            resumed = None if resumed is None or part else min(resumed, (*bar.first_steps, 0)[0] + attempt.steps_before)
            bar = replace(bar, is_part=part or (program.ckpt.step or 0) >= 2 * target)  # that counts all epochs
        elif target is None and ending.shown.target is not None:
            target = ending.shown.target + attempt.steps_before
        elif watch is not None and watch.sample.target_kind == "env_steps":
            target = watch.sample.target
    signalled = watch is not None and context.now_s - watch.signal_at_s <= grace_s
    shown = ending.shown.first_steps
    course = Course(
        at, target, resumed, program.short_ends, watch.signal if watch is not None and signalled else "",
        ending.leftovers if attempt.rest == ENDED else (), grace_s, ending.decided or says_early_stop(ending.last_lines),
        reason_line.unhandled(ending.last_lines), bar, ending.shown.laps,
        min(abs(after - before) for before, after in pairwise(shown)) if len(shown) == resume_step.FIRSTS else 0,
        _untrained(context, name, ending), _saved_end(context, name, target), in_save(ending.last_lines), attempt.at_exit,
        program.suspicion.is_as_before(verdict.why) and not (
            has_trained(context, name, ending) or _has_saved(context, name, ending)
        ),
        says_done(ending.last_lines),
    )  # fmt: skip
    return course, steps


def _untrained(context: DecisionContext, name: str, ending: Ending) -> str:
    """The checkpoint with which a first attempt began that made no step and wrote none; empty: it is another one, or has."""
    program, attempt = context.present(name)
    idle = attempt.number == 1 and program.ckpt.path == attempt.from_path and not has_trained(context, name, ending)
    return attempt.from_path or "" if idle else ""


def _saved_end(context: DecisionContext, name: str, target: int | None) -> bool | None:
    """Whether the newest checkpoint is of the target, or without a step as new as the last step; None: there are none."""
    (program, attempt), spec = context.present(name), context.settings.program(name)
    if program.ckpt.step is not None:
        return target is not None and program.ckpt.step >= target
    watch, saved_at_s = context.memory.watch(name, attempt.token), program.ckpt.at_s
    if spec is None or not (spec.checkpoint_glob or spec.builtin):
        return None
    stepped_at_s = attempt.intended_at_s if watch is None else max(attempt.intended_at_s, watch.pace.at_s - _LOOKS_S)
    return saved_at_s is not None and saved_at_s >= stepped_at_s


def _has_saved(context: DecisionContext, name: str, ending: Ending) -> bool:
    """Whether the present attempt has written a checkpoint beyond the one that it began with."""
    program, attempt = context.present(name)
    watch = context.memory.watch(name, attempt.token)
    own = ending.own or (None if watch is None else watch.sample.own)  # not on record yet if its first step is not
    step = furthest(ending.ckpt_step, program.ckpt.step, None if own is None else own.step)
    began = attempt.from_step if attempt.resumed_step is None else attempt.resumed_step
    if step is not None and began is not None:
        return step > began
    wrote_s = ending.ckpt_at_s if program.ckpt.at_s is None else program.ckpt.at_s
    return wrote_s is not None and wrote_s > attempt.intended_at_s and has_trained(context, name, ending)


def has_trained(context: DecisionContext, name: str, ending: Ending) -> bool:
    """Whether the present attempt has shown more than one step."""
    watch = context.memory.watch(name, context.present(name)[1].token)
    return len(ending.shown.first_steps) > 1 or (watch is not None and watch.pace.count > 0)


def _is_early(
    context: DecisionContext, spec: ProgramSpec, attempt: Attempt, verdict: Diagnosis, ended_at_s: float | None
) -> bool:
    """Whether the attempt ended by itself before it counted as started (`policy/worker/restart.py`)."""
    if attempt.stop is not None or not (verdict.counted or verdict.cause == "done"):
        return False
    lived_s = (context.now_s if ended_at_s is None else ended_at_s) - attempt.intended_at_s
    return restart.is_early(lived_s=lived_s, start_s=spec.start_s, start_retries=spec.start_retries)


def _follow(
    context: DecisionContext, name: str, attempt: Attempt, ending: Ending, verdict: Diagnosis, *, saved: bool
) -> None:
    spec = context.settings.program(name)
    if attempt.stop is not None and (verdict.cause == "stopped" or spec is None):
        _after_stop(context, name, attempt.stop)
    elif attempt.stop is None and not context.state.programs[name].wanted:
        # The journal has the operator's request, but the fact of the stop was in a damaged part.
        context.record(facts.StayedDown("stopped by the operator", name))
        context.answer_waiting(name)
    elif verdict.cause == "done":
        context.record(facts.Finished(verdict.why, name, verdict.doubtful))
    elif verdict.cause == "ended" and not verdict.counted:
        lived_s = context.now_s - attempt.intended_at_s
        delay_s = restart.after_clean_end(lived_s)
        context.record(facts.BackedOff(verdict.why, name, context.now_s + delay_s, delay_s, slow=False))
    elif verdict.cause == NO_GPU:
        context.record(facts.Gated(lost_gpu.refused(verdict.why), name, None, 0, None, lost_gpu.BY_WORKER))
    elif any(handled(context, name, verdict) for handled in context.hooks("follows")):
        pass
    elif (
        verdict.counted
        and spec is not None
        and spec.restart == restart.NEVER
        and not context.state.programs[name].starts.early_ends
    ):
        why = f"{verdict.why}; `restart` says never: it starts again with `extralifectl start`"
        context.record(facts.NotRestarted(why, name))
    elif verdict.counted:
        _after_death(context, name, verdict, attempt, ending, saved=saved)
    else:
        context.give_up(name, verdict.why)


def _after_stop(context: DecisionContext, name: str, asked: Stop) -> None:
    """Choose the state after a stop on request, by what the operator wants now. That may have changed since the request."""
    if context.settings.program(name) is None:
        context.record(facts.ProgramRemoved("it is no longer in the config", name))
    elif not context.state.programs[name].wanted:
        context.record(facts.StayedDown("stopped by the operator", name))
    else:
        why = _AFTER_STOP.get(asked.reason, f"stopped on request ({asked.reason})")
        context.record(facts.Requeued(why, name, handed_on=asked.reason == "rotation"))
    context.answer_waiting(name)


_AFTER_STOP = {
    "operator": "the operator started it again",
    "notice": "it waits for the announced end of this box",
    "restart": "restarted by the operator",
    "config": "restarts with its changed configuration",
    "shutdown": "resumes when extralife starts again",
    "slot": "gave its slot to another program",
    "rotation": "gave its slot to another program",
    "level": "restarts at another level",
    "slow": "restarts because it was slow",
    "rollback": "stopped for a rollback to a backup",
    "offsite": "another box has taken over",
    "when_done": "this box is about to be stopped",
}


def _after_death(
    context: DecisionContext, name: str, verdict: Diagnosis, attempt: Attempt, ending: Ending, *, saved: bool
) -> None:
    """Apply the remedy for this death, then ask the restart policy when to try again."""
    hopeless = remedy(context, name, attempt, ending, verdict)
    if hopeless:
        context.give_up(name, f"{verdict.why}; {hopeless}")
        return
    program = context.state.programs[name]
    if ends := program.starts.early_ends:  # it ended before it counted as started
        spec = context.settings.program(name)
        retries = 0 if spec is None or spec.start_retries is None else spec.start_retries
        delay_s = restart.after_early_end(ends, retries)
        if delay_s is None:
            why = f"{verdict.why}; start {ends} in a row failed, and start_retries = {retries}: it starts again"
            context.record(facts.GaveUp(f"{why} with `extralifectl start` or after a change of its config", name))
            return
        why = f"{verdict.why}; failed start {ends} of at most {retries + 1}: next try in {span(delay_s)}"
        context.record(facts.BackedOff(why, name, context.now_s + delay_s, delay_s, slow=False))
        return
    after = restart.after_death(
        context.settings.restart, program.deaths, now_s=context.now_s, saved=saved,
        lived_s=context.now_s - attempt.intended_at_s,
    )  # fmt: skip
    why = f"{verdict.why}; {after.why}"
    context.record(facts.BackedOff(why, name, context.now_s + after.delay_s, after.delay_s, after.slow))


# --- reports of workers ----------------------------------------------------------------------------------------------------

_REPORTS_KEPT = 50  # an attempt that reports in a loop must not fill the journal
_CHARS_KEPT = 500  # nor may long texts of a report
_KEY_CHARS = 100
_RESUMED = "resumed "


def on_report(context: DecisionContext, name: str, token: str, report: Report) -> None:
    """Record a worker's report once. The daemon reads reports again when an attempt ends and after its own restart."""
    found = context.live(name, token)
    if found is None:
        return
    program, attempt = found
    step = _count(report.fields.get("step"))
    if report.kind == "from_scratch" or (report.kind == "resumed" and step is not None):
        key = f"{_RESUMED}{report.fields.get('at_ns')}"[:_KEY_CHARS]
        if attempt.resumed_step is None:
            resumed(context, program, token, step or 0, key=key)
        elif key not in attempt.reports and any(each.startswith(_RESUMED) for each in attempt.reports):
            _resumed_again(context, program, attempt, step or 0, key)
        if report.kind == "resumed":
            return
    if report.kind == "checkpoint_bad":
        path, error = (str(report.fields.get(key, "?"))[:_CHARS_KEPT] for key in ("path", "error"))
        if path not in program.ckpt.bad:
            context.record(facts.CheckpointBad(f"{path} was set aside: {error}", name, token, path, error))
        return
    key = f"{report.kind} {report.fields.get('at_ns')}"[:_KEY_CHARS]
    if len(attempt.reports) >= _REPORTS_KEPT or key in attempt.reports:
        return
    if report.kind == "checkpoint_failed":
        # A worker reports it once until a save succeeds again, and trains on meanwhile.
        error = no_room.with_remedy(str(report.fields.get("error", "?"))[:_CHARS_KEPT])
        free = report.fields.get("free_bytes")
        free_bytes, step = _count(free), _count(report.fields.get("step"))
        room = "" if free_bytes is None else f" ({free_bytes / 1e6:,.1f} MB free)"
        context.record(
            facts.CheckpointFailed(f"{error}{room}; it trains on", name, attempt.token, error, step, free_bytes, key)
        )
        return
    if report.kind == "diverged":
        why = str(report.fields.get("error", "its losses are no longer finite"))[:_CHARS_KEPT]
        context.record(facts.Diverged(why, name, attempt.token, _count(report.fields.get("step")), key))
        return
    text = ", ".join(f"{key}: {value}" for key, value in sorted(report.fields.items()) if key != "at_ns")[:_CHARS_KEPT]
    kind = report.kind[:_KEY_CHARS]
    context.record(facts.Reported(f"the worker reports {kind}: {text}", name, attempt.token, kind, text, key))


def resumed(
    context: DecisionContext, program: Program, token: str, step: int, *,
    anew: bool = False, first: bool = False, key: str = "",
) -> None:  # fmt: skip
    """Record the step from which an attempt resumes, and the lost work. `anew`: it counts its own steps from 0.

    `first`: its own output shows this step first. It resumed there or before, which gives the least loss. Example: the
    newest step of the previous attempt is 50,000. If this one shows 48,100 first, at least 1,900 steps are lost. If it shows
    50,200 first, it may have resumed at any step up to that one: the loss is unknown.
    """
    made, last, newest = _made(program), program.exit, program.ckpt.step
    cost = loss(
        made if first or made is None else furthest(made, newest), step, exact=program.counting.exact and not first,
        saved=last.cause in _SAVED and last.code is not None and not first, began_step=program.counting.began_step,
        rate=context.memory.rates.get(program.name) or program.rate, computed=program.counts.kept_steps,
        saved_late=not first and _saved_late(program, step),
    )  # fmt: skip
    why = f"shows step {step:,} first" if first else f"resumed at step {step:,}"
    why += f" (last exit: {last.cause})" if last.cause else ""
    if made is not None:
        why += f": it has resumed there or before, {_cost(cost)}" if first else f", {_cost(cost)}"
    elif not (step or first):
        why = "begins at step 0"
    if newest and not (step or first):
        why = f"no checkpoint was found, although there was one at step {newest:,}; {why}"
    if step and step == program.ckpt.quarantined_step and not first:
        # The daemon died before it set the checkpoint aside, or the disk failed: the same deaths would repeat for ever.
        why += "; that checkpoint should have been set aside before; it is set aside now"
        if not program.ckpt.path:  # the program's own checkpoints are set aside at its next start
            context.command(commands.QuarantineCheckpoint(program.name, step))
    if anew:
        why += "; it counts its steps anew, and they are added (if it has begun from scratch, set steps_begin_anew = false)"
    kind, bound = (facts.FirstStepShown, AT_LEAST) if first else (facts.Resumed, cost.bound)
    before = step if anew else 0
    _record_loss(context, kind, why, program, token, step, replace(cost, bound=bound), last.cause, before=before, key=key)


def _record_loss(
    context: DecisionContext, kind: type[facts.Resumption], why: str, program: Program, token: str, step: int, cost: Loss,
    cause: str, *, before: int = 0, key: str = "",
) -> None:  # fmt: skip
    at_least = cost.bound != ""
    context.record(kind(why, program.name, token, step, cost.steps, cost.seconds, cause, cost.share, at_least, before, key))


def _made(program: Program) -> int | None:
    """The furthest known step of the attempts before this one."""
    return None if own_checkpoints.is_first(program) else program.steps


def note_resume(context: DecisionContext, name: str, sample: Sample, *, final: bool) -> None:
    """Record the resume of an attempt that has not reported it, once it can be judged (`policy/script/resume_step.py`)."""
    (program, attempt), spec = context.present(name), context.settings.program(name) or commands.orphan_spec(name)
    shown = own_checkpoints.first_steps(program, attempt, sample)
    firsts = shown or (() if sample.steps is None else (sample.steps,))
    target = sample.target if sample.target_kind == "env_steps" and spec.figures.target_steps is None else None
    sure = attempt.from_sure if attempt.from_path else None
    evidence = resume_step.Evidence(
        firsts, False if attempt.from_path == "" else sure, attempt.from_step, _made(program),
        given=spec.takes_resume, began=program.counting.steps_before > 0, anew=spec.figures.begin_anew, target=target,
    )  # fmt: skip
    how, step = resume_step.judge(evidence, final=final)
    if how == resume_step.SHOWN and shown:
        resumed(context, program, attempt.token, step, first=True)
    elif how in {resume_step.RESUMED, resume_step.ANEW}:
        resumed(context, program, attempt.token, step, anew=how == resume_step.ANEW)
    elif how:
        _record_unknown(context, program, attempt, firsts if how == resume_step.UNKNOWN else ())


def note_fall(context: DecisionContext, name: str, sample: Sample, fall: Fall, *, anew: bool) -> None:
    """Record the loss of an attempt whose launcher has restarted its ranks. `anew`: an earlier look had no such fall."""
    program, attempt = context.present(name)
    own = None if sample.own is None else sample.own.step
    saved = frozenset(step for step in (program.ckpt.step, attempt.from_step, own) if step)
    step, is_saved = resume_step.after_fall(fall.furthest, fall.firsts, saved)
    if step is None or attempt.steps_before or not (anew or attempt.resumed_step != step):
        return
    kind, bound = (facts.Resumed, "") if is_saved else (facts.FirstStepShown, AT_LEAST)
    _record_within(context, program, attempt, fall.furthest, step, kind=kind, bound=bound)


def _resumed_again(context: DecisionContext, program: Program, attempt: Attempt, step: int, key: str) -> None:
    """Record the loss of an attempt whose worker has reported once more from which step it goes on."""
    watch = context.memory.watch(program.name, attempt.token)
    made = furthest(program.steps, None if watch is None else watch.most) or 0
    if step < made:
        _record_within(context, program, attempt, made, step, kind=facts.Resumed, bound=AT_LEAST, key=key)
    if watch is not None:
        context.keep_observation(program.name, replace(watch, most=step))


def _record_within(
    context: DecisionContext, program: Program, attempt: Attempt, made: int, step: int, *,
    kind: type[facts.Resumption], bound: str, key: str = "",
) -> None:  # fmt: skip
    lost, rate = made - step, context.memory.rates.get(program.name) or program.rate
    cost = Loss(lost, lost / rate if rate else None, lost_share(lost, made, attempt.resumed_step), bound)
    why = f"restarted within the attempt: from step {made:,} to {step:,}, {_cost(cost)}"
    _record_loss(context, kind, why, program, attempt.token, step, cost, "restarted within", key=key)


def _record_unknown(context: DecisionContext, program: Program, attempt: Attempt, firsts: tuple[int, ...]) -> None:
    after = f" (last exit: {program.exit.cause})" if program.exit.cause else ""
    reason = "did not report from which step"
    if attempt.from_path and not attempt.from_sure:
        reason = f"may have begun with a checkpoint that is newer than {attempt.from_path}"
    elif attempt.from_path and attempt.from_step is None:
        reason = f"the step of checkpoint {attempt.from_path} is not known: set checkpoint_step"
    elif firsts:
        saved = "" if attempt.from_step is None else f", its newest checkpoint is of step {attempt.from_step:,}"
        key = "set steps_begin_anew = true if it goes on from its checkpoint, false if it begins from scratch"
        reason = f"counts its steps from {firsts[0]:,}{saved} ({key})"
    why = f"trains again{after}, but {reason}: how much work was lost is unknown"
    context.record(facts.ResumeUnknown(why, program.name, attempt.token))


_SAVED = frozenset({"stopped", "left", "done", "time_limit"})  # causes of exits before which the worker saves a checkpoint


def _saved_late(program: Program, step: int) -> bool:
    """Whether the program wrote its own checkpoint of this step after the request to exit."""
    asked_at_s, saved_at_s = program.exit.asked_at_s, program.ckpt.at_s
    is_it = bool(program.ckpt.path) and program.ckpt.step == step
    return is_it and asked_at_s is not None and saved_at_s is not None and saved_at_s >= asked_at_s


def _cost(cost: Loss) -> str:
    """`at least 500 steps lost (12s, 3.1 % of the attempt)`; unknown parts are left out."""
    if cost.steps is None:
        return "lost steps unknown"
    details = [duration(cost.seconds)] if cost.seconds is not None else []
    details += [f"{100 * cost.share:.1f} % of the attempt"] if cost.share is not None else []
    return f"{IN_WORDS[cost.bound]}{cost.steps:,} steps lost" + (f" ({', '.join(details)})" if details else "")


def _count(value: object) -> int | None:
    """A worker's value if it is a whole number, else None."""
    return value if type(value) is int and 0 <= value < 2**63 else None
