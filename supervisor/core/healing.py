"""From readings to healing: the one look a second at every live attempt, and the ladder that follows a stall.

The ladder: evidence first (stacks, kernel stack, last lines), for a stopped process SIGCONT, then SIGTERM with a short
grace, SIGKILL for the whole tree, and only when that tree is gone the next start. A worker that moves again by itself in
between is left alone.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.core import commands, facts
from supervisor.core.attempts import on_report, set_control, stop
from supervisor.core.inputs import EvidenceTaken, Sample, Sampled
from supervisor.core.lifecycle import Phase
from supervisor.core.memory import Watch
from supervisor.core.settings import Progress
from supervisor.core.state import Attempt, Program
from supervisor.core.turn import EVIDENCE_WAIT_S, Turn, kill_due_s
from supervisor.policy import checkpointing, stall

_LOOK_GAP_PERIODS = 5.0  # a loop that did not look for this many periods was itself away
_LEAST_LOOK_GAP_S = 5.0
_CKPT_FACT_S = 60.0
_INTERVAL_FACT_S = 30.0
_GAP_GROWTH = 1.2
_LEAST_GAP_S = 1.0
_EXEMPT_MOVES = 5
_RATES_KEPT = 600
_RATES_NEEDED = 60


def on_sampled(turn: Turn, item: Sampled) -> None:
    """One look at everything."""
    _notice_own_absence(turn)
    for name, token, report in item.reports:
        on_report(turn, name, token, report)
    for name, sample in sorted(item.samples.items()):
        found = turn.live(name, sample.token)
        if found is not None:
            _look(turn, name, sample)


def _notice_own_absence(turn: Turn) -> None:
    """A daemon that did not run (SIGSTOP, suspend, starvation) must not judge the workers by its own absence."""
    looked_at_s = turn.memory.looked_at_s
    turn.memory = replace(turn.memory, looked_at_s=turn.now_s)
    if looked_at_s is None:
        return
    gap_s = turn.now_s - looked_at_s
    if gap_s > max(_LEAST_LOOK_GAP_S, _LOOK_GAP_PERIODS * turn.settings.daemon.sample_period_s):
        until_s = turn.now_s + turn.settings.stall.floor_s
        grace_s = turn.settings.stall.floor_s
        why = f"the deciding loop did not look for {gap_s:.0f} s: nobody is called stalled for {grace_s:.0f} s"
        turn.memory = replace(turn.memory, blind_until_s=until_s)
        turn.record(facts.DaemonSuspended(why, gap_s, until_s))


def _look(turn: Turn, name: str, sample: Sample) -> None:
    before = turn.memory.watch(name, sample.token)
    moved = before is not None and _moved(before.sample, sample)
    watch = _watch(before, sample, turn.now_s, moved=moved)
    if before is not None and moved:
        _learn_gap(turn, name, before, sample)
    turn.memory = turn.memory.with_watch(name, watch)
    if sample.steps_per_s is not None and sample.steps_per_s > 0:
        turn.memory = replace(turn.memory, rates={**turn.memory.rates, name: sample.steps_per_s})
    _become_ready(turn, name, sample)
    _note_checkpoint(turn, name, sample)
    _judge(turn, name, sample, watch)
    _forgive(turn, name, sample)
    _choose_interval(turn, name, sample)
    _note_slowness(turn, name, sample, watch)


def _moved(old: Sample, new: Sample) -> bool:
    return new.progress_at_s is not None and (old.progress_at_s is None or new.progress_at_s > old.progress_at_s)


def _watch(before: Watch | None, sample: Sample, now_s: float, *, moved: bool) -> Watch:
    if before is None:
        return Watch(sample.token, sample, now_s)
    rates = before.rates
    if sample.phase == "training" and sample.steps_per_s is not None and moved:
        rates = (*rates, sample.steps_per_s)[-_RATES_KEPT:]
    return replace(before, sample=sample, seen_s=now_s, moves=before.moves + moved, rates=rates)


def _become_ready(turn: Turn, name: str, sample: Sample) -> None:
    program, attempt = turn.state.programs[name], turn.state.programs[name].attempt
    if program.phase is not Phase.STARTING or attempt is None or not sample.ready:
        return
    after_s = turn.now_s - attempt.intended_at_s
    turn.record(facts.BecameReady(f"trains, {after_s:.1f} s after its start", name, attempt.token, after_s))


def _learn_gap(turn: Turn, name: str, before: Watch, sample: Sample) -> None:
    """The largest healthy gap in training, from the age of progress at the look before it moved again.

    The first few moves are exempt (compilation, first batches), and so is whatever followed a stall, a SIGSTOP or our
    own absence: a fault must not widen the limit that is there to catch it.
    """
    old = before.sample
    attempt = turn.state.programs[name].attempt
    if attempt is None or attempt.stall is not None or before.continued_at_s is not None or _blind(turn):
        return
    if old.phase != "training" or sample.phase != "training" or before.moves < _EXEMPT_MOVES:
        return
    if old.progress_at_s is None or old.proc_state in {"T", "t"}:
        return
    gap_s = before.seen_s - old.progress_at_s
    known_s = turn.state.programs[name].gap_s("training") or 0.0
    if gap_s >= _LEAST_GAP_S and gap_s > _GAP_GROWTH * known_s:
        why = f"went {gap_s:.1f} s without progress and was healthy; its stall limit follows"
        turn.record(facts.GapLearned(why, name, "training", gap_s))


def _blind(turn: Turn) -> bool:
    return turn.memory.blind_until_s is not None and turn.now_s < turn.memory.blind_until_s


def _note_checkpoint(turn: Turn, name: str, sample: Sample) -> None:
    program = turn.state.programs[name]
    if sample.ckpt_step is None or sample.ckpt_count == 0:
        return
    if program.ckpt_step is not None and sample.ckpt_step <= program.ckpt_step:
        return
    first = program.ckpt_at_s is None or program.quarantined_since_ckpt
    if first or turn.now_s - (program.ckpt_at_s or 0.0) >= _CKPT_FACT_S:
        why = f"checkpoint at step {sample.ckpt_step:,} is durable"
        turn.record(facts.Checkpointed(why, name, sample.token, sample.ckpt_step, sample.ckpt_stall_s, sample.ckpt_write_s))


# --- stalls ----------------------------------------------------------------------------------------------------------------


def reading(turn: Turn, program: Program, attempt: Attempt, sample: Sample) -> stall.Reading:
    """What `policy/stall.py` needs of one live worker."""
    spec = turn.spec(program.name)
    never = spec is not None and spec.progress is Progress.NONE
    return stall.Reading(
        now_s=turn.now_s,
        spawned_at_s=attempt.intended_at_s,
        phase=sample.phase,
        phase_since_s=sample.phase_since_s,
        phase_deadline_s=sample.phase_deadline_s,
        progress_at_s=turn.now_s if never else sample.progress_at_s,
        live_at_s=sample.live_at_s,
        proc_state=sample.proc_state,
        num_envs=sample.num_envs if sample.num_envs is not None else (spec.num_envs if spec is not None else None),
        largest_gap_s=program.gap_s("training"),
        stall_timeout_s=spec.stall_timeout_s if spec is not None else None,
        start_timeout_s=spec.start_timeout_s if spec is not None else None,
    )


def _judge(turn: Turn, name: str, sample: Sample, watch: Watch) -> None:
    program, attempt = turn.state.programs[name], turn.state.programs[name].attempt
    if attempt is None or attempt.stop is not None or _blind(turn):
        return
    verdict = stall.judge(turn.settings.stall, reading(turn, program, attempt, sample))
    if verdict is None:
        _revive(turn, program, attempt, sample)
        return
    if verdict.action is stall.Action.CONTINUE:
        if watch.continued_at_s is None:
            _declare(turn, name, attempt, verdict)
            turn.memory = turn.memory.with_watch(name, replace(watch, continued_at_s=turn.now_s))
            turn.command(commands.SendSignal(name, attempt.token, "SIGCONT"))
            return
        if turn.now_s - watch.continued_at_s <= turn.settings.stall.continue_s:
            return  # SIGCONT is on its way
    if attempt.stall == verdict.kind and (attempt.examined or watch.examining):
        return
    _declare(turn, name, attempt, verdict)
    turn.memory = turn.memory.with_watch(name, replace(watch, examining=True))
    turn.command(commands.TakeEvidence(name, attempt.token))


def _declare(turn: Turn, name: str, attempt: Attempt, verdict: stall.StallVerdict) -> None:
    if attempt.stall != verdict.kind:
        turn.record(facts.Stalled(verdict.why, name, attempt.token, verdict.kind, verdict.age_s, verdict.limit_s))


def _revive(turn: Turn, program: Program, attempt: Attempt, sample: Sample) -> None:
    if attempt.stall is None or attempt.stalled_at_s is None or sample.progress_at_s is None:
        return
    if sample.progress_at_s > attempt.stalled_at_s:
        after_s = turn.now_s - attempt.stalled_at_s
        how = "after SIGCONT" if attempt.stall == "stopped" else "by itself"
        turn.record(facts.Revived(f"moves again {how}, {after_s:.1f} s later", program.name, attempt.token, after_s))
        watch = turn.memory.watch(program.name, attempt.token)
        if watch is not None:
            turn.memory = turn.memory.with_watch(program.name, replace(watch, continued_at_s=None, examining=False))


def on_evidence(turn: Turn, item: EvidenceTaken) -> None:
    found = turn.live(item.program, item.token)
    if found is None or found[1].stall is None or found[1].examined:
        return
    why = f"examined before healing: {', '.join(sorted(item.evidence)) or 'nothing could be read'}"
    turn.record(facts.Examined(why, item.program, item.token, item.evidence))
    _heal(turn, item.program)


def on_deadlines(turn: Turn) -> None:
    """What is due by the clock: evidence that never came, kills of those that did not leave."""
    for name, program in sorted(turn.state.live.items()):
        attempt = program.attempt
        if attempt is None:
            continue
        if attempt.stop is not None:
            _kill_if_due(turn, name, attempt)
        elif (
            attempt.stalled_at_s is not None
            and not attempt.examined
            and turn.now_s >= attempt.stalled_at_s + EVIDENCE_WAIT_S
        ):
            turn.record(facts.Examined("no evidence came in time; healing without", name, attempt.token, {}))
            _heal(turn, name)


def _heal(turn: Turn, name: str) -> None:
    """End the stalled attempt, unless it has moved since or no signal can reach it."""
    program = turn.state.programs[name]
    attempt = program.attempt
    if attempt is None or attempt.stop is not None:
        return
    watch = turn.memory.watch(name, attempt.token)
    if watch is not None and stall.judge(turn.settings.stall, reading(turn, program, attempt, watch.sample)) is None:
        _revive(turn, program, attempt, watch.sample)
        return
    if attempt.stall == "uninterruptible":
        return
    stop(
        turn, program, reason="stall", by="extralife", why=f"ends the stalled worker ({attempt.stall})",
        grace_s=turn.settings.stall.grace_s,
    )  # fmt: skip


def _kill_if_due(turn: Turn, name: str, attempt: Attempt) -> None:
    watch = turn.memory.watch(name, attempt.token)
    sent_at_s = watch.kill_sent_at_s if watch is not None else None
    due_s = kill_due_s(attempt, sent_at_s)
    if due_s is None or turn.now_s < due_s or attempt.stop is None:
        return
    waited_s = turn.now_s - attempt.stop.asked_at_s
    if watch is not None:
        turn.memory = turn.memory.with_watch(name, replace(watch, kill_sent_at_s=turn.now_s))
    why = f"did not leave within {waited_s:.1f} s: SIGKILL for its whole tree"
    turn.record(facts.KillIntended(why, name, attempt.token, waited_s))
    turn.command(commands.KillTree(name, attempt.token))


# --- health ------------------------------------------------------------------------------------------------------------------


def _forgive(turn: Turn, name: str, sample: Sample) -> None:
    """Healthy minutes *of progress* end the restart streak."""
    program, attempt = turn.state.programs[name], turn.state.programs[name].attempt
    if attempt is None or attempt.ready_at_s is None or attempt.recovered or attempt.stall is not None:
        return
    healthy_s = turn.now_s - attempt.ready_at_s
    if program.streak == 0 or healthy_s < turn.settings.restart.healthy_s or sample.progress_at_s is None:
        return
    if sample.progress_at_s - attempt.ready_at_s < turn.settings.restart.healthy_s - turn.settings.stall.floor_s:
        return
    why = f"healthy for {healthy_s / 60:.0f} min of progress: earlier deaths are forgiven"
    turn.record(facts.Recovered(why, name, attempt.token, healthy_s))


def _choose_interval(turn: Turn, name: str, sample: Sample) -> None:
    program = turn.state.programs[name]
    spec = turn.spec(name)
    if program.phase is not Phase.RUNNING or spec is None or spec.progress is not Progress.BEAT:
        return
    chosen_at_s = turn.memory.intervals_at_s.get(name)
    if chosen_at_s is not None and turn.now_s - chosen_at_s < _INTERVAL_FACT_S:
        return
    cost_s = sample.ckpt_stall_s if sample.ckpt_count else program.ckpt_stall_s
    verdict = checkpointing.choose(
        turn.settings.checkpoint, history(turn, program), cost_s=cost_s, current_s=program.interval_s
    )
    if verdict is None:
        return
    turn.memory = replace(turn.memory, intervals_at_s={**turn.memory.intervals_at_s, name: turn.now_s})
    turn.record(facts.IntervalChosen(verdict.why, name, verdict.interval_s))
    set_control(turn, name, sample.token)


def history(turn: Turn, program: Program) -> checkpointing.History:
    """What the box has shown of this program and of the present level, the running uptime included."""
    attempt = program.attempt
    running_s = 0.0
    if attempt is not None and attempt.ready_at_s is not None:
        running_s = turn.now_s - attempt.ready_at_s
    level = turn.state.levels.get(turn.state.level)
    uptime_s = None if turn.memory.boot_at_s is None else turn.now_s - turn.memory.boot_at_s
    return checkpointing.History(
        program_failures=program.failures,
        program_exposure_s=program.exposure_s + running_s,
        reboots=level.reboots if level is not None else 0,
        level_exposure_s=(level.up_s if level is not None else 0.0) + (uptime_s or 0.0),
        uptimes_s=level.uptimes_s if level is not None else (),
        uptime_s=uptime_s,
    )


def _note_slowness(turn: Turn, name: str, sample: Sample, watch: Watch) -> None:
    """SLOW is an incident, told once until it is over."""
    if sample.phase != "training" or len(watch.rates) < _RATES_NEEDED:
        return
    usual = sorted(watch.rates)[int(0.9 * len(watch.rates))]
    slow = sample.steps_per_s is not None and sample.steps_per_s < turn.settings.stall.slow_ratio * usual
    since_s = (watch.slow_since_s if watch.slow_since_s is not None else turn.now_s) if slow else None
    told = watch.slow_told and slow
    if slow and not told and since_s is not None:
        told = stall.is_slow(turn.settings.stall, rate=sample.steps_per_s, usual=usual, since_s=turn.now_s - since_s)
        if told and sample.steps_per_s is not None:
            why = f"{sample.steps_per_s:.0f} steps/s, usually {usual:.0f}, for {turn.now_s - since_s:.0f} s"
            turn.record(facts.Slowed(why, name, sample.token, sample.steps_per_s, usual))
    newest = turn.memory.watch(name, sample.token) or watch
    turn.memory = turn.memory.with_watch(name, replace(newest, slow_since_s=since_s, slow_told=told))
