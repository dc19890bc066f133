"""A daemon's first turn: what happened to the previous daemon's attempts, and whether the box rebooted.

A host reboot never spends a program's restart budget: its attempts end with the cause `reboot`, uncounted, and every
program that ran goes back to the queue and resumes from its newest valid checkpoint.
"""

from __future__ import annotations

from supervisor.deciding import clocks, levels
from supervisor.deciding.attempts import fill_slots, finish, had_finished, set_control, stop
from supervisor.deciding.context import DecisionContext
from supervisor.deciding.feature import BoxEnd
from supervisor.deciding.reconcile import beside_programs, reconcile
from supervisor.formats import span
from supervisor.model import commands, facts
from supervisor.model.inputs import Began, BootEvidence, Ending, Survival, Survivor
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.model.memory import Away
from supervisor.model.state import Attempt, Program
from supervisor.policy.box import box_identity
from supervisor.policy.box.reboot_cause import CONTAINER, SUDDEN, WORDS
from supervisor.policy.worker.loss import ABOUT, furthest, loss
from supervisor.records import replace

_HOST = "the host's reboot"


def on_began(context: DecisionContext, item: Began) -> None:
    """Record a reboot if there was one, adopt or close every attempt, then fill the slots."""
    context.settings = item.settings
    clean, before_s = context.state.clean, context.state.at_s
    boot_at_s = None if item.boot.boot_wall_s is None else context.now_s - (context.wall_s - item.boot.boot_wall_s)
    context.memory = replace(context.memory, boot_at_s=boot_at_s)
    clocks.notice(context)
    running_before = levels.running_before(context)
    identity = _compared(context, item.boot)
    rebooted = _rebooted(context, item.boot, identity) if item.boot.rebooted else None
    _identify(context, item.boot, identity)
    sign_s = item.boot.last_sign_s
    last_sign_s = None if sign_s is None else min(context.now_s, max(before_s, sign_s))
    if clean is not None and not item.boot.rebooted:
        since_s = before_s if last_sign_s is None else last_sign_s
        context.memory = replace(context.memory, away=Away(since_s, context.now_s, dict(item.boot.steps)))
    alive = sum(1 for survivor in item.survivors.values() if survivor.survival is Survival.ALIVE)
    adopted = 0 if item.boot.rebooted else alive
    restart = ("the container's restart" if item.boot.kind == CONTAINER else _HOST) if item.boot.rebooted else ""
    why = _why(clean=clean, rebooted=restart, adopted=adopted) + beside_programs(item.changed)
    context.record(facts.DaemonStarted(why, item.pid, item.version, clean is not False, item.salt, adopted, last_sign_s))
    for name in sorted(context.state.live):
        _settle_attempt(context, name, item, rebooted=restart, last_sign_s=last_sign_s)
    for program in sorted(context.state.programs.values(), key=lambda each: each.name):
        _fill_hole(context, program)
        # The previous daemon may have died between the record of a rollback and the rollback. To repeat it does no harm.
        if program.ckpt.roll_from is not None and program.attempt is None and not program.ckpt.path:
            context.command(commands.RollBack(program.name, program.ckpt.roll_from))
    levels.apply_level(context)
    if rebooted is not None and not identity.another:
        levels.on_reboot(context, rebooted, running_before)
    before = item.before and item.before.at(context.settings.level.name)
    reconcile(context, why="extralife started", before=before, changed=item.changed)
    for name, (number, unrecorded) in sorted(item.unrecorded_workers.items()):
        _adopt_unrecorded(context, name, number, unrecorded)
    for began in context.hooks("began"):
        began(context, bool(item.boot.rebooted))
    fill_slots(context, staggered=False)
    if rebooted is not None:
        _alert(context, rebooted, item.boot.ckpt_steps)


def _fill_hole(context: DecisionContext, program: Program) -> None:
    """Repair one program's state if the facts after its last known one were lost with a damaged journal."""
    name = program.name
    if program.attempt is None and not program.wanted and program.phase is not Phase.STOPPED:
        context.record(
            facts.StayedDown("the journal has its stop request, but lost what followed when it was damaged", name)
        )
    elif program.phase in HAS_PROCESS and program.attempt is None:
        _requeue(context, name, "the journal has its end, but lost what followed when it was damaged")
    elif program.phase is Phase.STOPPED and program.wanted:
        _requeue(context, name, "the journal has its start request, but lost what followed when it was damaged")


def _why(*, clean: bool | None, rebooted: str, adopted: int) -> str:
    if rebooted:
        return "started after a host reboot" if rebooted == _HOST else f"started after {rebooted}"
    if clean is None:
        return "first start with this state directory"
    how = "started" if clean else "started after the previous daemon ended unexpectedly"
    return f"{how}, {adopted} running worker{'' if adopted == 1 else 's'} adopted" if adopted else how


def _compared(context: DecisionContext, boot: BootEvidence) -> box_identity.Verdict:
    box = context.state.box
    if box is None:
        return box_identity.Verdict(another=False)
    same_boot = not boot.rebooted or boot.boot_id == context.state.boot_id
    return box_identity.compare(box.witnesses, boot.box, same_boot=same_boot, settled=box.outlived > 0)


def _identify(context: DecisionContext, boot: BootEvidence, identity: box_identity.Verdict) -> None:
    """Record which box this is, if that is new."""
    box = context.state.box
    known = {} if box is None or identity.another else box.witnesses
    # Each container of an image has another host name, and its box is the same.
    nameless = {box_identity.HOSTNAME: ""} if known and boot.kind == CONTAINER else {}
    witnesses = box_identity.merged(known, {**boot.box, **nameless})
    if not boot.box or witnesses == known:
        return
    hostname = witnesses.get(box_identity.HOSTNAME, "")
    named = hostname or "a box without a name"
    if box is None:
        why = f"this box is {named}"
    elif identity.another:
        why = f"{_another(context, identity)}: a new record of levels and reboots begins for {named}; the old record is kept"
    elif identity.changed:
        why = f"the same box, now {named}: {identity.why} changed"
    else:
        why = f"the same box, {named}: more of its hardware is known"
    context.record(facts.BoxIdentified(why, hostname, witnesses, another=identity.another))


def _another(context: DecisionContext, identity: box_identity.Verdict) -> str:
    before = context.state.box.hostname if context.state.box is not None else ""
    return f"this is another box than {before or 'before'} ({identity.why} changed)"


def _rebooted(context: DecisionContext, boot: BootEvidence, identity: box_identity.Verdict) -> facts.HostRebooted:
    running = tuple(sorted(context.state.live))
    old_boot_id = context.state.boot_id
    down = "unknown" if boot.down_s is None else span(boot.down_s)
    container = boot.kind == CONTAINER
    ending = f": {WORDS[boot.kind]}" if boot.kind and not container else ""
    cause, kind, words = boot.cause, boot.kind, boot.last_words
    what = "the container was started again" if container else "the host rebooted"
    why = f"{what}, {cause}{ending}, down {down} ({boot.evidence})"
    last_s = context.state.at_s if boot.last_sign_s is None else boot.last_sign_s
    notice: BoxEnd | None = context.first("announced", last_s)
    if notice is not None:
        cause = "preempted"
        why = f"the host ended as {notice.source} had announced ({notice.what}){ending}, down {down} ({boot.evidence})"
    if identity.another:  # its disk was copied or moved: the cause and the log lines are of another box
        kind, words = "", ()
        why = f"{_another(context, identity)}: every program resumes here, down {down}"
        if notice is None:  # no box went down
            cause = "moved"
        else:
            why += f"; {notice.source} had announced the end of the other one: {notice.what}"
    evidence = f"{identity.why} changed" if identity.another else boot.evidence
    fact = facts.HostRebooted(
        why=why, old_boot_id=old_boot_id, new_boot_id=boot.boot_id, cause=cause, evidence=evidence, down_s=boot.down_s,
        up_s=boot.up_s, level=context.state.level, programs=running, steps=_still_true(context, boot),
        last_sign_wall_s=boot.last_sign_wall_s, boot_wall_s=boot.boot_wall_s, last_sign_s=boot.last_sign_s, end=kind,
        last_words=words,
    )  # fmt: skip
    context.record(fact)
    return fact


def _still_true(context: DecisionContext, boot: BootEvidence) -> dict[str, int]:
    """The steps at the last sign of life, without programs that resumed from an older checkpoint after it.

    The loss of their steps is already on record. If these steps stayed the program's position, they would be lost twice.
    """
    resumed_at_s = {
        name: program.attempt.resumed_at_s for name, program in context.state.live.items() if program.attempt is not None
    }
    at_s = boot.mark_at_s
    return {
        name: steps
        for name, steps in boot.steps.items()
        if at_s is None or (since_s := resumed_at_s.get(name)) is None or since_s <= at_s
    }


def _alert(context: DecisionContext, fact: facts.HostRebooted, ckpt_steps: dict[str, int]) -> None:
    """Report a reboot. Lost work is the steps between the last sign of life and the newest complete checkpoint.

    `resuming` lists the programs started in this turn, because after an orderly reboot the last sign of life names none.
    If the starts wait for the lease (`_await_lease`), it lists the programs that ran before the reboot.
    """
    losses = {}
    for name in fact.programs:
        program = context.state.programs.get(name)
        if program is not None and program.phase is Phase.DONE:
            continue
        steps, recorded, began_step, rate = fact.steps.get(name), None, None, None
        if program is not None:
            steps = furthest(steps, program.steps, program.ckpt.step)
            recorded, began_step, rate = program.ckpt.step, program.counting.began_step, program.rate
        newest = ckpt_steps.get(name, recorded)
        made = None if steps is None else furthest(steps, newest)
        found = loss(made, newest, exact=False, saved=False, began_step=began_step, rate=rate)
        spec = context.settings.program(name)
        # Only a built-in worker's checkpoints can be read. Another program may have saved a newer one than the recorded one.
        read = spec is not None and spec.builtin and name in ckpt_steps
        losses[name] = found if read else replace(found, bound=found.bound and ABOUT)
    waits = any(held.until_s is not None for held in context.memory.held)
    resuming = fact.programs if waits else tuple(sorted(context.state.live))
    pattern = context.state.reboot_pattern(context.now_s)
    context.command(commands.AlertReboot(fact, context.state.reboots_total, losses, resuming, pattern))


def _settle_attempt(
    context: DecisionContext, name: str, item: Began, *, rebooted: str, last_sign_s: float | None
) -> None:  # fmt: skip
    """Adopt or close one attempt whose end is not in the journal."""
    (program, attempt), survivor = context.present(name), item.survivors.get(name)
    survival, ending = (survivor.survival, survivor.ending) if survivor is not None else (Survival.NEVER, None)
    if rebooted:
        why = f"ended by {rebooted}"
        ended_at_s = context.state.at_s if last_sign_s is None else last_sign_s
        sudden = item.boot.kind in SUDDEN and item.boot.cause != "orderly"
        if ending is not None and had_finished(context, name, ending, sudden=sudden):
            finish(context, program, attempt, replace(ending, ended_at_s=ended_at_s))
            return
        context.record(
            facts.Exited(
                why, name, attempt.token, "reboot", None, None, program.steps, None, ended_at_s=ended_at_s, at_least=True
            )
        )  # fmt: skip
        _requeue(context, name, f"resumes after {rebooted}")
    elif survivor is not None and survival is Survival.ALIVE:
        _adopt(context, program, attempt, survivor)
    elif survival is Survival.NEVER and attempt.pid is None:
        why = "the previous daemon ended before it could start the process"
        context.record(facts.SpawnFailed(why, name, attempt.token, why))
        _requeue(context, name, "starts now: the previous daemon ended before the start")
    else:
        finish(context, program, attempt, ending or Ending(fate="it ended while no daemon ran: the cause is unknown"))


def _adopt_unrecorded(context: DecisionContext, name: str, number: int, unrecorded: Survivor) -> None:
    """Adopt a worker that runs although the journal does not have its start: a damaged or older journal has lost it.

    A second worker could not take the run directory's lock, and would fail for as long as this one trains. If the last
    known request was to stop the program, the worker is stopped.
    """
    program, spec = context.state.programs.get(name), context.settings.program(name)
    if program is None or spec is None or program.attempt is not None:
        return
    wanted = program.wanted
    if program.phase not in {Phase.QUEUED, Phase.BACKOFF}:
        context.record(facts.Requeued("it runs, but the journal has lost its start", name))
    why = f"runs as pid {unrecorded.pid}, but the journal has lost its start: adopted"
    context.record(facts.SpawnIntended(why, name, unrecorded.token, number, spec.digest, context.state.level))
    _adopt(context, *context.present(name), unrecorded)
    if not wanted:
        why = "the operator had stopped it"
        context.record(facts.Wanted(why, name, run=False, by="the journal"))
        stop(context, *context.present(name), reason="operator", by="the journal", why=why)


def _requeue(context: DecisionContext, name: str, why: str) -> None:
    if context.state.programs[name].wanted:
        context.record(facts.Requeued(why, name))
    else:
        context.record(facts.StayedDown("the operator had stopped it", name))


def _adopt(context: DecisionContext, program: Program, attempt: Attempt, survivor: Survivor) -> None:
    name = program.name
    if survivor.pid is not None and attempt.pid != survivor.pid:
        why = f"adopted, pid {survivor.pid}"
        context.record(
            facts.Spawned(
                why, name, attempt.token, survivor.pid, survivor.start_ticks or 0, survivor.shim_pid or 0,
                survivor.shim_start_ticks or 0, adopted=True,
            )
        )  # fmt: skip
    spec = context.settings.program(name)
    if spec is None:  # it left the config while no daemon ran; `reconcile` asks it to exit
        spec = commands.orphan_spec(name)
    context.command(commands.Adopt(spec, attempt.number, survivor))
    if attempt.stop is None:
        set_control(context, name, attempt.token)
    else:  # the daemon may have died between the fact and the signal
        if context.settings.remote:
            # Or it ended while the cluster gave no answer: the job has its whole grace again.
            asked = attempt.stop
            why = f"asked to leave ({asked.reason}) by the daemon before, which ended first: asked again"
            context.record(facts.StopIntended(why, name, attempt.token, asked.reason, "extralife", asked.grace_s))
        context.command(commands.AskToLeave(name, attempt.token))
