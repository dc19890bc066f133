"""Turn samples into healing: judge the sample of every live attempt once a second, and heal stalls step by step.

The steps: evidence (stacks, kernel stack, last lines); SIGCONT for a stopped process; SIGTERM with a short grace time;
SIGKILL to the whole process tree; the next start, only after that tree is gone. If a worker makes progress again in
between, the steps end.
"""

from __future__ import annotations

import math

from supervisor.deciding import health, own_checkpoints, time_spent
from supervisor.deciding.attempts import note_fall, note_resume, on_report, resumed, set_control, stop
from supervisor.deciding.context import DecisionContext, kill_due_s
from supervisor.deciding.hardware import on_hardware
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.codes import FAILED
from supervisor.model.inputs import CommandLeft, EvidenceTaken, Sample, Sampled
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Away, Observation
from supervisor.model.settings import ProgramSpec, Progress
from supervisor.model.state import Attempt, LevelRecord, Program
from supervisor.policy.box.readings import Gpus
from supervisor.policy.script import finish, service_health
from supervisor.policy.script.service_health import UNHEALTHY, Checked
from supervisor.policy.worker import (
    absence,
    checkpointing,
    divergence,
    ending,
    slowness,
    stall,
    unsaved,
)
from supervisor.policy.worker import health as health_rule
from supervisor.policy.worker.intervention import ROLLBACK, SILENCE, SLOW, STILL, Intervention, fruitless, may_repeat
from supervisor.policy.worker.loss import furthest
from supervisor.policy.worker.readiness import ready_after_s
from supervisor.policy.worker.slowness import Pace
from supervisor.policy.worker.witness import GPU, GpuUse, works_on_gpu
from supervisor.records import replace

_INTERVAL_FACT_S = 30.0
_GAP_GROWTH = 1.2
_LEAST_GAP_S = 1.0
_EXEMPT_MOVES = 5
_HALT_FACT_S = 600.0  # one process that is stopped again and again must not fill the journal
_RESUME_REPORT_S = 10.0  # such a program may report or not, and its reports are read every five seconds
_FIRST_STEP_S = 600.0  # limit for the first step in the output of a program whose output shows its steps ...
_FIRST_STEPS_S = 60.0  # ... and for its first steps, which event files do not show, once there is a step
_MOST_REASONS = 16  # why figures of one program are not known: a reason may name a file, and there may be many
_EVIDENCE_WAIT_S = 10.0  # the adapter takes at most 5 s for the evidence; after twice that, heal without it
_GONE = (None, "Z", "X")  # process states: unknown, zombie, dead


def on_sampled(context: DecisionContext, item: Sampled) -> None:
    """Process one sample of everything: reports, workers, GPUs and host."""
    last_look_s = context.memory.looked_at_s
    context.memory = replace(context.memory, looked_at_s=context.now_s)
    context.looked_s = context.now_s if item.began_s is None else min(context.now_s, item.began_s)
    for name, token, report in item.reports:
        on_report(context, name, token, report)
    looks = _observe(context, item.samples)
    for name, sample, before in looks:
        context.keep_observation(name, time_spent.on_sample(context, name, before, context.memory.watches[name]))
        moved = before is not None and context.memory.watches[name].moves > before.moves
        if before is not None and moved and last_look_s is not None:
            _learn_gap(context, name, before, sample, last_look_s)
        if context.memory.gpus is not None and context.memory.gpus.gpus:
            _note_gpu(context, name, sample, context.memory.gpus)
        if context.state.programs[name].phase is Phase.STARTING:
            _become_ready(context, name, sample)
        if before is not None and moved:
            health.note(context, name)
        _note_resume(context, name, sample)
        if sample.fall is not None and (before is None or sample.fall != before.sample.fall):
            note_fall(context, name, sample, sample.fall, anew=before is not None)
        if context.present(name)[1].steps_before != context.memory.watches[name].steps_before:
            continue  # its steps are understood from the next look on
        _look_at_work(context, name, sample, before)
        if before is not None and moved:
            _note_divergence(context, name)
            _note_help(context, name)
    on_hardware(context, item)


def _observe(context: DecisionContext, samples: dict[str, Sample]) -> list[tuple[str, Sample, Observation | None]]:
    """Remember the samples of live attempts. Returns each with the observation before."""
    rates: dict[str, float] = {}
    looks: list[tuple[str, Sample, Observation | None]] = []
    for name, read in sorted(samples.items()):
        sample, found = read, context.live(name, read.token)
        if found is None:
            continue
        before, (program, attempt) = context.memory.watch(name, sample.token), found
        if attempt.steps_before:
            spec = context.settings.program(name)
            sample = sample.in_total(attempt.steps_before, own_target=spec is not None and spec.figures.target_steps is None)
        if program.counting.steps_before and sample.own is not None:
            sample = replace(sample, own=own_checkpoints.in_total(program, sample.own))
        # The pace of its steps after this sample, and whether they are silent: their rate is no longer known.
        pace, absences = Pace() if before is None else before.pace, context.memory.absences
        pace = pace.after(sample.steps, now_s=context.looked_s, awake_at_s=absence.moved_on(pace.at_s, absences))
        limit_s = pace.limit_s(context.settings.stall, program.gap_s("training"))
        silent = pace.step is not None and context.looked_s - absence.moved_on(pace.at_s, absences) > limit_s
        sample = sample.without_rate() if silent else sample
        watch = Observation(sample.token, sample, sample.progress_at_s) if before is None else _watch(before, sample)
        if before is not None and before.silent and not silent:
            watch = replace(watch, slow_since_s=None)  # its rate spans that time
        watch = replace(
            watch, pace=pace, silent=silent, steps_before=attempt.steps_before, most=furthest(watch.most, sample.steps)
        )
        context.keep_observation(name, replace(watch, losses=_losses(context, before, sample)))
        if sample.steps_per_s is not None and sample.steps_per_s > 0:
            rates[name] = sample.steps_per_s
        looks.append((name, sample, before))
    if rates:
        context.memory = replace(context.memory, rates={**context.memory.rates, **rates})
    return looks


def notice_own_absence(context: DecisionContext, away_s: float) -> None:
    """Record a time in which this daemon did not run (SIGSTOP, suspend, starvation). It does not count against workers."""
    absences, looked_at_s = context.memory.absences, context.memory.looked_at_s
    from_s, until_s = context.now_s - away_s, context.now_s + absence.settle_s(away_s)
    context.memory = replace(
        context.memory, overslept_s=None, blind_until_s=until_s, absences=absence.remember(absences, (from_s, context.now_s))
    )  # fmt: skip
    if absence.is_news(absences, from_s):
        why = f"the daemon did not run for {span(away_s)}: that time does not count against any worker"
        context.memory = replace(context.memory, away=Away(from_s if looked_at_s is None else looked_at_s, context.now_s))
        context.record(facts.DaemonSuspended(why, away_s, until_s))


def _look_at_work(context: DecisionContext, name: str, sample: Sample, before: Observation | None) -> None:
    if sample.unread:
        # Each reason once, however often reasons alternate.
        recorded = context.memory.unread.get(name, frozenset())
        if sample.unread not in recorded and len(recorded) < _MOST_REASONS:
            context.memory = replace(context.memory, unread={**context.memory.unread, name: recorded | {sample.unread}})
            context.record(facts.FiguresUnread(sample.unread, name, sample.token))
    if sample.ckpt_count:
        _note_checkpoint(context, name, sample)
    elif sample.own is not None:
        own_checkpoints.note_saved(context, name, sample, sample.own)
    trains = sample.phase == "training"
    if trains:
        _note_unsaved(context, name, sample)
    if sample.halted:
        _continue_children(context, name, sample)
    if sample.left is not None:
        _judge_rest(context, name, sample, sample.left, before)
        if context.present(name)[1].rest != finish.BACKGROUND:
            return  # an upload may be silent: its grace is its only limit
    _judge(context, name, sample)
    if context.state.programs[name].phase is not Phase.STARTING:
        _end_streak(context, name)
        _choose_interval(context, name, sample)
    if trains:
        _note_slowness(context, name, sample)


def _watch(before: Observation, sample: Sample) -> Observation:
    progress_at_s = sample.progress_at_s
    if progress_at_s is None or (before.progress_at_s is not None and progress_at_s <= before.progress_at_s):
        return replace(before, sample=sample)
    rates = before.rates
    if sample.phase == "training" and sample.steps_per_s is not None and before.slow_since_s is None:
        rates = (*rates, sample.steps_per_s)[-slowness.RATES_KEPT :]  # a slow period must not lower the usual rate
    return replace(before, sample=sample, progress_at_s=progress_at_s, moves=before.moves + 1, rates=rates)


def _losses(context: DecisionContext, before: Observation | None, sample: Sample) -> divergence.Losses:
    if sample.losses is not None:
        return sample.losses
    known, old = (divergence.Losses(), Sample(sample.token)) if before is None else (before.losses, before.sample)
    if sample.nan_count is None:
        return known
    bad = max(0, sample.nan_count - (old.nan_count or 0))
    return known.by_beat(
        bad=bad, updates=sample.figures.get("updates", 0.0) - old.figures.get("updates", 0.0),
        loss=sample.figures.get("loss"), loss_before=old.figures.get("loss"), at_s=context.looked_s,
        step=old.steps if bad else sample.steps,
    )  # fmt: skip


def _become_ready(context: DecisionContext, name: str, sample: Sample) -> None:
    """Record that training has begun. If only a log or work shows it, a least age applies (`policy/worker/readiness.py`)."""
    program, attempt = context.present(name)
    spec, event, begun = context.settings.program(name), "training began", sample.ready
    at_once = not context.asks_witnesses(name, sample)
    if program.service:
        event = "counts as started,"
    if spec is not None and spec.start_s is not None:
        event, begun, at_once = "counts as started,", sample.proc_state not in _GONE, False
    elif not at_once:
        begun = sample.ready or sample.witness_at_s is not None
    if not begun or (not at_once and context.now_s < _ready_due_s(context, program, attempt)):
        return
    after_s = context.now_s - attempt.intended_at_s
    time_spent.record_start(context, name)
    context.record(facts.BecameReady(f"{event} {span(after_s)} after its start", name, attempt.token, after_s))


def _learn_gap(context: DecisionContext, name: str, before: Observation, sample: Sample, last_look_s: float) -> None:
    """Learn the largest healthy gap in training: the age of the last progress at the sample before new progress.

    The first few samples with progress are exempt, and a gap after a fault: it must not raise the limit that detects it.
    """
    old = before.sample
    program, attempt = context.present(name)
    awake_at_s = absence.moved_on_if_known(before.progress_at_s, context.memory.absences)
    if attempt.stall is not None or awake_at_s != before.progress_at_s:
        return
    if old.phase != "training" or sample.phase != "training" or before.moves < _EXEMPT_MOVES:
        return
    if before.progress_at_s is None or old.proc_state in {"T", "t"}:
        return
    gap_s = last_look_s - before.progress_at_s
    known_s = program.gap_s("training") or 0.0
    if gap_s >= _LEAST_GAP_S and gap_s > _GAP_GROWTH * known_s:
        why = f"went {span(gap_s)} without progress and was healthy: its stall limit is raised"
        context.record(facts.GapLearned(why, name, "training", gap_s))


def _resume_due_s(context: DecisionContext, program: Program, attempt: Attempt, sample: Sample) -> float:
    """When `note_resume` records where an attempt resumed, although it has not reported that; infinite: never.

    A program gets some time for this report, and until its first step appears in its output, if that is read.
    """
    spec = context.settings.program(program.name)
    known = attempt.resumed_step is not None or attempt.resume_unknown or attempt.ready_at_s is None or program.service
    if known or spec is None or spec.builtin:
        return math.inf
    if own_checkpoints.begins_at(attempt) is None and (
        program.exposure_s <= 0.0 or spec.source(sample.source) is Progress.BEAT
    ):
        return math.inf
    if sample.first_steps and sample.source != Progress.BEAT:
        return math.inf  # the next steps come with the training
    wait_s = _RESUME_REPORT_S
    if spec.figures.read and not sample.unread and sample.source != Progress.BEAT:
        wait_s = _FIRST_STEP_S if sample.steps is None else _FIRST_STEPS_S
    return (attempt.ready_at_s or 0.0) + wait_s


def _note_resume(context: DecisionContext, name: str, sample: Sample) -> None:
    """Record the step from which an attempt resumes, by its own output, or that this step is unknown."""
    program, attempt = context.present(name)
    if attempt.resumed_step is not None or attempt.resume_unknown:
        return
    by_beats = context.beats(name, sample)
    resumed_step = None if by_beats else sample.figures.get("resumed_step")
    if resumed_step is not None:
        resumed(context, program, sample.token, int(resumed_step))
        return
    final = context.now_s >= _resume_due_s(context, program, attempt, sample)
    if final or (not by_beats and own_checkpoints.first_steps(program, attempt, sample)):
        note_resume(context, name, sample, final=final)


def _note_checkpoint(context: DecisionContext, name: str, sample: Sample) -> None:
    program = context.state.programs[name]
    if sample.ckpt_step is None or (program.ckpt.step is not None and sample.ckpt_step <= program.ckpt.step):
        return
    _, attempt = context.present(name)
    if attempt.saves_again(sample.ckpt_step) or own_checkpoints.is_due(context, program, attempt):
        why = f"checkpoint at step {sample.ckpt_step:,} is durable"
        well = health.is_well(context.memory.watches[name], attempt)
        context.record(
            facts.Checkpointed(why, name, sample.token, sample.ckpt_step, sample.ckpt_stall_s, sample.ckpt_write_s, well)
        )


def _note_unsaved(context: DecisionContext, name: str, sample: Sample) -> None:
    """Record overdue saves once, until the next durable checkpoint.

    A stalled worker is not judged. Time without progress does not count, because the worker does not train then.
    """
    program, attempt = context.present(name)
    spec, since_s = context.settings.program(name), sample.phase_since_s
    if attempt.save_error or attempt.stall is not None or since_s is None or context.blind:
        return
    saves = sample.ckpt_count > 0 and sample.ckpt_at_s is not None
    if not saves and (spec is None or not spec.builtin):  # whether it saves at all is unknown
        return
    if sample.ckpt_at_s is not None:
        since_s = max(since_s, sample.ckpt_at_s)
    interval_s = program.interval_s or context.settings.checkpoint.max_s
    trained_until_s = context.now_s if sample.progress_at_s is None else min(context.now_s, sample.progress_at_s)
    age_s = trained_until_s - absence.moved_on(since_s, context.memory.absences)
    error = unsaved.overdue(age_s, interval_s, sample.steps, sample.ckpt_step if saves else attempt.resumed_step)
    if error:
        context.record(facts.CheckpointFailed(f"{error}; it trains on", name, attempt.token, error))


# --- stalls ----------------------------------------------------------------------------------------------------------------


def reading(context: DecisionContext, program: Program, attempt: Attempt, sample: Sample) -> stall.Reading:
    """The reading of one live worker for `policy/worker/stall.py`. A worker that left the config gets default settings.

    An adopted worker's time to show progress begins with this daemon, which does not know earlier samples. Time in which
    this daemon did not run does not count (`policy/worker/absence.py`).
    """
    absences, begun_s = context.memory.absences, context.first("begun", program.name) or 0.0
    spec = context.settings.program(program.name) or commands.orphan_spec(program.name)
    source, watch = spec.source(sample.source), context.memory.watches[program.name]
    return stall.Reading(
        now_s=context.looked_s,
        spawned_at_s=absence.moved_on(max(attempt.intended_at_s, begun_s, context.state.daemon_since_s or 0.0), absences),
        phase=sample.phase, phase_deadline_s=sample.phase_deadline_s,
        progress_at_s=absence.moved_on_if_known(_progress_at_s(context, spec), absences),
        live_at_s=absence.moved_on_if_known(sample.live_at_s, absences), proc_state=sample.proc_state,
        beats=source is Progress.BEAT and not sample.beat_lost,
        num_envs=spec.num_envs if sample.num_envs is None else sample.num_envs, largest_gap_s=program.gap_s("training"),
        stall_timeout_s=spec.stall_timeout_s, start_timeout_s=spec.start_timeout_s,
        witnessed=context.asks_witnesses(program.name, sample),
        witness_at_s=absence.moved_on_if_known(_newest(watch.sample.witness_at_s, watch.gpu_at_s), absences),
        witness=watch.sample.witness or GPU, silences=fruitless(program.interventions, SILENCE),
        held_child=next((str(each) for each in sample.halted if each.proc_state == "D"), ""),
    )  # fmt: skip


def _newest(*times_s: float | None) -> float | None:
    return max((at_s for at_s in times_s if at_s is not None), default=None)


def _progress_at_s(context: DecisionContext, spec: ProgramSpec) -> float | None:
    """The newest progress. A program without a source of progress always counts as progressing."""
    return context.now_s if spec.progress is Progress.NONE else context.memory.watches[spec.name].progress_at_s


def _ready_due_s(context: DecisionContext, program: Program, attempt: Attempt) -> float:
    rules, spec = context.settings.stall, context.settings.program(program.name)
    if spec is not None and spec.start_s is not None:
        return attempt.intended_at_s + spec.start_s
    watch = context.memory.watch(program.name, attempt.token)
    trains = watch is not None and (len(watch.sample.first_steps) > 1 or watch.sample.steps_per_s is not None)
    died_after_s = None if trains else program.deaths.lived_s
    least_s = ready_after_s(settle_s=rules.settle_s, start_s=rules.start_s, died_after_s=died_after_s)
    return attempt.intended_at_s + least_s


def _note_gpu(context: DecisionContext, name: str, sample: Sample, gpus: Gpus) -> None:
    """Remember when a GPU was last in use by this process tree alone."""
    _, attempt = context.present(name)
    if not context.asks_witnesses(name, sample):
        return
    pids = frozenset(sample.pids if attempt.pid is None else (*sample.pids, attempt.pid))
    in_use = tuple(
        GpuUse(
            frozenset(pid for pid, _ in gpu.processes or ()),
            gpu.utilisation if gpu.utilisation_minute is None else gpu.utilisation_minute.most,
        )
        for gpu in gpus.gpus or ()
    )
    if works_on_gpu(in_use, pids):
        context.keep_observation(name, replace(context.memory.watches[name], gpu_at_s=context.now_s))


def _continue_children(context: DecisionContext, name: str, sample: Sample) -> None:
    """Record processes of the tree that do not run for `continue_s`; send SIGCONT to the stopped ones."""
    _, attempt = context.present(name)
    if attempt.stop is not None or context.blind:
        return
    watch, continue_s = context.memory.watches[name], context.settings.stall.continue_s
    halts = dict(watch.halts)
    for each in sample.halted:
        key, for_s = (each.pid, each.start_ticks, each.proc_state), context.now_s - each.since_s
        recorded_s, sent_s = halts.get(key, (None, None))
        stopped = each.proc_state == "T"
        owned = next((one for one in sample.untouchable if one.startswith(f"{each} ")), "")
        if for_s < continue_s or (sent_s is not None and context.now_s - sent_s < continue_s):
            continue
        if recorded_s is None or context.now_s - recorded_s >= _HALT_FACT_S:
            state = "is stopped" if stopped else "waits inside the kernel or a driver, where no signal reaches it,"
            action = "it is sent SIGCONT" if stopped and not owned else "it is left alone"
            state += f", and extralife may not signal it ({owned})" if owned else ""
            why = f"its process {each} {state} for {span(for_s)} (state {each.proc_state}): {action}"
            context.record(facts.ChildHalted(why, name, attempt.token, each.pid, each.name, each.proc_state))
            recorded_s = context.now_s
        if stopped and not owned:
            context.command(commands.ContinueChild(name, attempt.token, each.pid, each.start_ticks))
        halts[key] = recorded_s, context.now_s
    if halts != watch.halts:
        context.keep_observation(name, replace(watch, halts=halts))


def _rest_s(context: DecisionContext, name: str) -> float:
    """How long the processes that a clean end leaves behind may work on."""
    return (context.settings.program(name) or commands.orphan_spec(name)).stop_grace_s


def _judge_rest(context: DecisionContext, name: str, sample: Sample, left: CommandLeft, before: Observation | None) -> None:
    """Judge the processes that outlive the grace after the clean end of their command (`policy/script/finish.py`)."""
    _, attempt = context.present(name)
    watch = context.memory.watches[name]
    if attempt.stop is not None or attempt.rest == finish.BACKGROUND:
        return
    # A daemon that has started since then does not know the earlier steps: the first that it reads are no new ones.
    unseen = watch.left_steps is None and left.at_s < (context.state.daemon_since_s or 0.0)
    if unseen or before is None or before.sample.left is None:
        watch = replace(watch, left_steps=sample.steps)
        context.keep_observation(name, watch)
    if context.now_s < left.at_s + _rest_s(context, name):
        return
    if not attempt.rest:
        works = sample.steps is not None and sample.steps > (watch.left_steps or 0)
        background = finish.is_background(
            lived_s=left.lived_s, worked=watch.left_steps is not None, works=works, detached=left.detached
        )
        names = ", ".join(left.processes)
        why = f"its command has left, and its work goes on in the background ({names}): {finish.REMEDY}"
        if not background:
            why = f"its command has left; what it left behind is ended after {span(_rest_s(context, name))}: {names}"
        context.record(facts.CommandGone(why, name, attempt.token, left.processes, background))
    if context.present(name)[1].rest != finish.BACKGROUND:
        context.command(commands.AskToLeave(name, attempt.token))


def _judge(context: DecisionContext, name: str, sample: Sample) -> None:
    """One step of healing per sample: record the stall; SIGCONT a stopped process; ask for evidence; then heal.

    Every step needs a fresh sample, never a deadline alone: a daemon that was away would act on an old sample.
    """
    program, attempt = context.present(name)
    if attempt.stop is not None:
        return
    verdict = stall.judge(context.settings.stall, reading(context, program, attempt, sample))
    if verdict is None and sample.health is not None:
        verdict = _unhealthy(context, program, attempt, sample.health)
    quiet, blind = verdict is not None and verdict.action is stall.Action.NOTE_QUIET, context.blind
    if attempt.stalled_at_s is not None and (verdict is None or (quiet and not blind)):
        _revive(context, name, attempt, attempt.stalled_at_s, works=quiet)
    if verdict is None or blind:
        return
    if quiet:
        if attempt.quiet_at_s is None:
            witness = sample.witness or GPU
            context.record(facts.Quiet(verdict.why, name, attempt.token, verdict.age_s, witness))
        return
    watch = context.memory.watches[name]
    if attempt.stall is not None and watch.asked_at_s is not None and not attempt.examined:
        if context.now_s - watch.asked_at_s < _EVIDENCE_WAIT_S:
            return
        context.record(facts.Examined("no evidence arrived in time: healing without it", name, attempt.token, {}))
    elif attempt.stall != verdict.kind or not attempt.examined:
        _examine(context, name, attempt, watch, verdict)
        return
    if verdict.action is not stall.Action.REPORT:
        why = f"stops the stalled worker ({attempt.stall})"
        grace_s = context.settings.stall.grace_s
        stop(context, *context.present(name), reason="stall", by="extralife", why=why, grace_s=grace_s)


def _unhealthy(context: DecisionContext, program: Program, attempt: Attempt, found: Checked) -> stall.StallVerdict | None:
    """The verdict on the health checks of a service (`policy/script/service_health.py`); None: nothing to heal."""
    spec = context.settings.program(program.name)
    if spec is None or spec.health is None or found.failing_since_s is None:
        return None
    why = service_health.unhealthy(spec.health, found, now_s=context.now_s, spawned_at_s=attempt.intended_at_s)
    if not why:
        return None
    limit_s = spec.health.failures * spec.health.every_s
    return stall.StallVerdict(UNHEALTHY, stall.Action.HEAL, context.now_s - found.failing_since_s, limit_s, why)


def _examine(context: DecisionContext, name: str, attempt: Attempt, watch: Observation, verdict: stall.StallVerdict) -> None:
    """Ask for evidence; for a stopped process, send SIGCONT first and wait."""
    if attempt.stall != verdict.kind:
        time_spent.record_tally(context, name, stalls=True)
        context.record(facts.Stalled(verdict.why, name, attempt.token, verdict.kind, verdict.age_s, verdict.limit_s))
        watch = replace(watch, continued_at_s=None)
    if verdict.action is stall.Action.CONTINUE:
        if watch.continued_at_s is None:
            context.keep_observation(name, replace(watch, continued_at_s=context.now_s, asked_at_s=None))
            context.command(commands.SendSignal(((name, attempt.token),), "SIGCONT"))
            return
        if context.now_s - watch.continued_at_s <= context.settings.stall.continue_s:
            return  # wait for the effect of SIGCONT
    context.keep_observation(name, replace(watch, asked_at_s=context.now_s))
    context.command(commands.TakeEvidence(name, attempt.token))


def _revive(context: DecisionContext, name: str, attempt: Attempt, stalled_at_s: float, *, works: bool = False) -> None:
    """Record that a stalled attempt recovered: by new progress, or with `works` by signs of work alone."""
    watch = context.memory.watches[name]
    moved_s = _newest(watch.progress_at_s, watch.sample.witness_at_s, watch.gpu_at_s) if works else watch.progress_at_s
    if attempt.stall == UNHEALTHY:
        moved_s = None if watch.sample.health is None else watch.sample.health.ok_at_s
    if moved_s is None or moved_s <= stalled_at_s:
        return
    after_s = context.now_s - stalled_at_s
    how = "after SIGCONT" if attempt.stall == "stopped" else "by itself"
    does = "answers" if attempt.stall == UNHEALTHY else "works" if works else "makes progress"
    context.record(facts.Revived(f"{does} again {how}, {span(after_s)} after the stall", name, attempt.token, after_s))
    context.keep_observation(name, replace(watch, continued_at_s=None, asked_at_s=None))


def on_evidence(context: DecisionContext, item: EvidenceTaken) -> None:
    """Record the evidence; the next sample decides about healing."""
    found = context.live(item.program, item.token)
    if found is None or found[1].examined or (found[1].stall is None and found[1].slow is None):
        return
    when = "while slow" if found[1].stall is None else "before healing"
    why = f"evidence taken {when}: {', '.join(sorted(item.evidence)) or 'nothing could be read'}"
    context.record(facts.Examined(why, item.program, item.token, item.evidence))


def on_deadlines(context: DecisionContext) -> None:
    """Kill attempts that did not exit in time, but not right after an absence: their exits may not be read yet."""
    if context.blind:
        return
    for name in sorted(context.state.live):
        _, attempt = context.present(name)
        asked = attempt.stop
        if asked is None or asked.not_ended or context.now_s < kill_due_s(asked):
            continue
        waited_s = context.now_s - asked.asked_at_s
        watch = context.memory.watch(name, attempt.token)
        proc_state, untouchable = (None, ()) if watch is None else (watch.sample.proc_state, watch.sample.untouchable)
        held = ending.is_held(proc_state=proc_state, stall=attempt.stall, killed=asked.kills > 0)
        refused = context.first("refused", name)
        why = ending.not_ended(kills=asked.kills, untouchable=untouchable, held=held, refused=refused)
        if why:
            context.record(facts.NotEnded(why, name, attempt.token))
            context.answer_waiting(name, FAILED, why)
            continue
        why = f"did not exit within {span(waited_s)}: SIGKILL to its whole process tree"
        if asked.grace_s == 0:
            why = "SIGKILL to its whole process tree at once, without time to save"
        if untouchable:
            why += f", of which extralife may not signal {', '.join(untouchable)}"
        if held:
            why += f"; {ending.HELD}"
            context.answer_waiting(name, FAILED, why)
        context.record(facts.KillIntended(why, name, attempt.token, waited_s))
        context.command(commands.KillTree(name, attempt.token))


# --- health -----------------------------------------------------------------------------------------------------------


def _end_streak(context: DecisionContext, name: str) -> None:
    """End the streak of deaths after `healthy_s` of training with *progress*; uptime alone is not enough."""
    program, attempt = context.present(name)
    if program.deaths.streak == 0 or attempt.ready_at_s is None or attempt.stall is not None:
        return
    settings = context.settings.restart
    healthy_s = context.now_s - attempt.ready_at_s
    progress_at_s = _progress_at_s(context, context.settings.program(name) or commands.orphan_spec(name))
    watch = context.memory.watches[name]
    if context.asks_witnesses(name, watch.sample):
        progress_at_s = _newest(progress_at_s, watch.sample.witness_at_s, watch.gpu_at_s)
    if healthy_s < settings.healthy_s or progress_at_s is None:
        return
    if progress_at_s - attempt.ready_at_s < settings.healthy_s - context.settings.stall.floor_s:
        return
    why = f"made progress for {span(healthy_s)}: earlier deaths no longer count"
    context.record(facts.Recovered(why, name, attempt.token, healthy_s))


def _choose_interval(context: DecisionContext, name: str, sample: Sample) -> None:
    program, attempt = context.present(name)
    spec = context.settings.program(name)
    if program.phase is not Phase.RUNNING or spec is None or spec.source(sample.source) is not Progress.BEAT:
        return
    chosen_at_s = context.memory.intervals_at_s.get(name)
    if chosen_at_s is not None and context.now_s - chosen_at_s < _INTERVAL_FACT_S:
        return
    cost_s = sample.ckpt_stall_s if sample.ckpt_count else program.ckpt.stall_s
    verdict = checkpointing.choose(
        context.settings.checkpoint, history(context, program, attempt), cost_s=cost_s, current_s=program.interval_s
    )
    if verdict is None:
        return
    context.memory = replace(context.memory, intervals_at_s={**context.memory.intervals_at_s, name: context.now_s})
    context.record(facts.IntervalChosen(verdict.why, name, verdict.interval_s))
    set_control(context, name, sample.token)


def history(context: DecisionContext, program: Program, attempt: Attempt) -> checkpointing.History:
    """The failures and uptimes of this program and of the present level, including the present uptime."""
    running_s = 0.0 if attempt.ready_at_s is None else context.now_s - attempt.ready_at_s
    level, since_s = context.state.levels.get(context.state.level, LevelRecord()), context.state.climb.changed_at_s
    uptime_s = None if context.memory.boot_at_s is None else context.now_s - max(context.memory.boot_at_s, since_s or 0.0)
    return checkpointing.History(
        program_failures=program.restarts, program_exposure_s=program.exposure_s + running_s, reboots=level.reboots,
        level_exposure_s=level.up_s + (uptime_s or 0.0), uptimes_s=level.uptimes_s, uptime_s=uptime_s,
    )  # fmt: skip


def _note_slowness(context: DecisionContext, name: str, sample: Sample) -> None:
    """Record slowness once until it is over; `policy/worker/slowness.py` decides what follows."""
    watch, (program, attempt) = context.memory.watches[name], context.present(name)
    still, slow = _stands_still(watch), attempt.slow
    rate, settings = 0.0 if still else sample.steps_per_s, context.settings.stall
    own, known = slowness.usual(watch.rates), program.at(program.pace_level(context.settings.level.name)).rate
    usual = max((each for each in (known, own) if each is not None), default=None)
    if still or (slow is not None and slow.step is not None):
        spec = context.settings.program(name)
        has_own_limit = spec is None or spec.stall_timeout_s is not None  # of the operator, for the longest healthy silence
        usual = None if has_own_limit else slowness.usual(watch.rates, slowness.STEPS_NEEDED) or program.rate
    if rate is None or usual is None or attempt.stall is not None or attempt.stop is not None:
        return
    since_s = watch.slow_since_s
    anew = not still and known is not None and slowness.is_slow(settings, rate=max(watch.rates, default=0.0), usual=known)
    moves_again = not still and slow is not None and slow.step is not None
    if moves_again or not slowness.is_slow(settings, rate=rate, usual=usual):
        since_s = None
        if slow is not None:
            after_s = context.now_s - slow.at_s
            why = f"{_pace(rate)} again, after {span(after_s)} of slowness"
            context.record(facts.PaceRegained(why, name, sample.token, rate, usual, after_s))
            if moves_again and after_s >= settings.slow_restart_s and fruitless(program.interventions, STILL):
                context.record(facts.Helped("its steps came again by themselves", name, sample.token, STILL))
        elif own is not None and slowness.is_new_pace(own, known):
            _record_pace(context, program, own)
    elif since_s is None:
        since_s = context.now_s
    elif slow is not None and slowness.becomes_usual(
        settings, rate=rate, known=known, slow_s=context.now_s - slow.at_s, anew=slow.anew or context.beats(name, sample)
    ):
        _record_pace(context, program, rate)
    elif slow is None and context.now_s - since_s >= slowness.after_s(settings, anew=anew):
        _record_slowness(context, name, rate, usual, since_s=since_s, still=still, anew=anew)
        context.command(commands.TakeEvidence(name, sample.token))
    recorded = context.present(name)[1].slow is not None
    if (since_s, recorded) != (watch.slow_since_s, watch.slow_recorded):
        context.keep_observation(name, replace(watch, slow_since_s=since_s, slow_recorded=recorded))
    _end_slowness(context, name)


def _record_pace(context: DecisionContext, program: Program, rate: float) -> None:
    level = program.pace_level(context.settings.level.name)
    why = f"its usual rate is {_pace(rate)}"
    context.record(facts.PaceLearned(why, program.name, level, rate, program.at(level).save_gap_s))


def _record_slowness(
    context: DecisionContext, name: str, rate: float, usual: float, *, since_s: float, still: bool, anew: bool
) -> None:
    (program, attempt), pace = context.present(name), context.memory.watches[name].pace
    why = f"{_pace(rate)} for {span(context.now_s - since_s)}, usually {_pace(usual)}"
    if anew:
        why += " in earlier attempts; if that is usual now, use extralifectl restart"
    step = made = None
    if still and pace.step is not None:
        step, first = pace.step, pace.first if attempt.resumed_step is None else attempt.resumed_step
        made = None if first is None else max(0, step - first)
        why = f"no step beyond {step:,} for {span(context.now_s - pace.at_s)}, usually {_pace(usual)}: it stands still"
        if not may_repeat(program.interventions, STILL):
            why += f"; {stall.NOT_HEALED[stall.LEFT_ALONE]}"
    context.record(facts.Slowed(why, name, attempt.token, rate, usual, step, made, anew))


def _pace(rate: float) -> str:
    """`1000 steps/s`, or `0.49 steps/s`."""
    return f"{rate:.0f} steps/s" if rate >= 100 else f"{rate:.3g} steps/s"


def _stands_still(watch: Observation) -> bool:
    """Whether it makes no steps although some are left, also of a later epoch. Steps that cannot be read are unknown."""
    sample, last = watch.sample, watch.sample.target if watch.sample.target_kind == "env_steps" else None
    left = last is None or (sample.steps or 0) < last or (sample.fall is not None and sample.fall.furthest >= last)
    return watch.silent and sample.steps is not None and not sample.unread and left


def _note_help(context: DecisionContext, name: str) -> None:
    """Record the effect of earlier interventions, once this attempt shows it (`policy/worker/intervention.py`)."""
    program, attempt = context.present(name)
    for before in program.interventions:
        if before.fruitless and attempt.slow is None and (effect := _effect(context, name, before)):
            context.record(facts.Helped(f"the {_DONE[before.kind]} has helped: {effect}", name, attempt.token, before.kind))


_DONE = {STILL: "restart", SLOW: "restart", ROLLBACK: "rollback", SILENCE: "restart"}


def _effect(context: DecisionContext, name: str, before: Intervention) -> str:
    """What shows that an intervention has helped, as a clause; empty: nothing does so far."""
    (program, attempt), watch = context.present(name), context.memory.watches[name]
    pace, at = watch.pace, f"step {before.step or 0:,}"
    if before.kind == STILL:
        first = pace.first if attempt.resumed_step is None else attempt.resumed_step
        trained_s = context.now_s - (attempt.ready_at_s or context.now_s)
        passed = slowness.has_passed(before, first=first, step=pace.step, trained_s=trained_s)
        return f"its steps ended at {at}, and it has passed that" if passed else ""
    if before.kind == SLOW:
        return "its rate is usual again" if slowness.usual(watch.rates) is not None else ""
    # A worker with beats says itself whether a checkpoint was saved while it was well.
    if before.kind != ROLLBACK or context.beats(name, watch.sample) or before.step is None or program.ckpt.step is None:
        return ""
    well = watch.losses.finite and not watch.losses.bad and program.ckpt.step > before.step
    return f"a checkpoint is beyond {at}, and losses are finite" if well else ""


def _end_slowness(context: DecisionContext, name: str) -> None:
    (program, attempt), watch = context.present(name), context.memory.watches[name]
    still, slow = _stands_still(watch), attempt.slow
    if slow is None or not (still or context.beats(name, watch.sample)):
        return  # a low rate of printed lines is not reliable
    others = [other.attempt for other in context.state.live.values() if other.name != name and other.attempt is not None]
    others_slow = sum(each.slow is not None and each.slow.step is None for each in others)  # the box may be the cause
    if slowness.restart_due(
        context.settings.stall, now_s=context.now_s, since_s=slow.at_s, others_slow=others_slow,
        done=program.interventions, still=still,
    ):  # fmt: skip
        why = f"slow for {span(context.now_s - slow.at_s)} while no other program is: saves and restarts"
        if still:
            why = f"no step for {span(context.now_s - watch.pace.at_s)}: it is asked to save, and restarts"
        stop(context, program, attempt, reason="slow", by="extralife", why=why)


def _note_divergence(context: DecisionContext, name: str) -> None:
    """Stop a worker that makes progress and has diverged: a rollback follows. Report one whose loss was never finite."""
    (program, attempt), losses = context.present(name), context.memory.watches[name].losses
    settings = context.settings.divergence
    if losses.finite and health_rule.NO_LOSS in attempt.illnesses:
        context.record(facts.Healed("a loss is finite", name, attempt.token, health_rule.NO_LOSS))
    if attempt.stop is not None:
        return
    for_s = span(context.now_s - (losses.since_s or context.now_s))
    if divergence.has_diverged(settings, losses, context.now_s):
        why = f"none of its {losses.bad:,} losses of the last {for_s} was finite, and earlier ones were"
        context.record(facts.Diverged(why, name, attempt.token, losses.fine_step))
        stop(context, program, attempt, reason="diverged", by="extralife", why=why)
    elif health_rule.NO_LOSS not in attempt.illnesses and divergence.never_finite(settings, losses, context.now_s):
        why = f"none of its {losses.bad:,} losses was finite, for {for_s}: it may not learn yet, so it trains on"
        context.record(facts.Sickened(why, name, attempt.token, health_rule.NO_LOSS, health_rule.TELL, None, {}))
