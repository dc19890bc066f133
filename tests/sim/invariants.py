"""What must hold after every step of the simulated world. Each rule has a name and says what is wrong, or nothing.

A rule is given the world and the step that the daemon has just taken; what it returns is the finding, in a sentence. Rules
look at what a step has changed, so that a year of steps can be checked; what takes the whole journal (`check_at_length`) is
looked at whenever it has doubled, and at the end of a story.
"""

from collections.abc import Callable
from dataclasses import dataclass

import removable
from adding_up import account_errors
from core_kit import check_program, facts

from supervisor.deciding.context import Decision, kill_due_s
from supervisor.deciding.decide import decide
from supervisor.model import commands
from supervisor.model.fold import fold_all
from supervisor.model.lifecycle import HAS_PROCESS, Phase
from supervisor.policy.worker.absence import SETTLE_S

HOLDS_SLOT_S = 30.0
ASKED_TWICE_EVERY = 17  # turns
LOWERS = ("CheckpointQuarantined", "CheckpointBad", "RolledBack")  # facts that say why an older one is taken


class Broken(AssertionError):
    """An invariant does not hold: its name, and what is wrong."""

    def __init__(self, name, said):
        super().__init__(f"{name}: {said}")
        self.name, self.said = name, said


@dataclass(frozen=True)
class Step:
    """One turn of the deciding thread: what it knew, what it was given, what it decided."""

    settings: object
    before: object
    memory: object
    item: object
    decision: Decision
    wall_s: float
    number: int

    @property
    def now_s(self):
        return self.item.now_s

    @property
    def state(self):
        return self.decision.state

    def changed(self):
        """The programs that this step has changed."""
        old = self.before.programs
        return [program for name, program in self.state.programs.items() if old.get(name) is not program]


# --- after every step ---------------------------------------------------------------------------------------------------


def the_journal_gives_the_state(world, step):
    if world.core.folded != step.state:
        return f"{_first_difference(world.core.folded, step.state)} differs between the journal's fold and the live state"
    world.core.folded = step.state  # equal, and faster to compare with next time
    return None


def the_same_again_is_decided_the_same(world, step):
    if step.number % ASKED_TWICE_EVERY:
        return None
    again = decide(step.settings, step.before, step.memory, step.item, wall_s=step.wall_s, boot_id=world.core.boot_id)
    return None if again == step.decision else f"{type(step.item).__name__} was decided in two ways"


def every_fact_says_why(_, step):
    silent = [type(fact).__name__ for fact in step.decision.facts if not fact.why.strip()]
    return f"{', '.join(silent)} without a reason" if silent else None


def a_program_is_whole(_, step):
    """Phase, attempt, deadline and counters fit together (`core_kit.check_program`)."""
    try:
        for program in step.changed():
            check_program(program)
    except AssertionError as error:
        return str(error) or "core_kit.check_program says so"
    return None


def at_most_one_process_a_program(world, step):
    for name in {fact.program for fact in step.decision.facts if isinstance(fact, facts.ProgramFact)}:
        alive = [worker.number for worker in world.alive(name)]
        if len(alive) > 1:
            return f"attempts {alive} of {name} run at once"
    return None


def every_process_is_known(world, step):
    """No process runs that the journal does not call its program's present attempt."""
    if not step.decision.facts:
        return None
    for worker in world.alive():
        program = step.state.programs.get(worker.name)
        if program is None or program.attempt is None or program.attempt.token != worker.token:
            return f"attempt {worker.number} of {worker.name} runs, and the state knows nothing of it"
        if not program.wanted and program.phase is not Phase.STOPPING:
            return f"{worker.name} was stopped by the operator, yet it is {program.phase}"
    return None


def nothing_waits_for_ever(world, step):
    """Every phase has a deadline that wakes the loop, a process, news on its way, or waits for a person."""
    due_s = step.decision.wake_at_s
    ends = step.state.stopping or step.decision.memory.ended
    for program in step.changed():
        said = None
        held = any(each.programs is None or program.name in each.programs for each in step.decision.memory.held)
        if program.phase in HAS_PROCESS:
            said = _unheard_of(world, step, program)
        elif program.phase is Phase.BACKOFF and not (ends or held) and (due_s is None or due_s > program.retry.at_s):
            said = f"{program.name} is to start at {program.retry.at_s:.1f}, and nothing wakes the loop then ({due_s})"
        stop = None if program.attempt is None else program.attempt.stop
        if program.phase is Phase.STOPPING and not step.decision.memory.ended and not stop.not_ended:
            kill_s = max(kill_due_s(program.attempt.stop), _settled_s(step))
            if due_s is None or due_s > kill_s:
                said = f"{program.name} is to be killed at {kill_s:.1f}, and nothing wakes the loop then ({due_s})"
        if said:
            return said
    return None


def _settled_s(step):
    """Until then nobody is killed, because the daemon itself was away (`policy/worker/absence.py`); never for long."""
    return min(step.decision.memory.blind_until_s or 0.0, step.now_s + SETTLE_S)


def _unheard_of(world, step, program):
    token = program.attempt.token
    if any(worker.token == token for worker in world.alive(program.name)) or world.has_news_of(token):
        return None
    if any(isinstance(command, commands.Spawn) and command.token == token for command in step.decision.commands):
        return None
    return f"{program.name} is {program.phase}, but it has no process, and no news of it is on its way"


def all_kept_down(decision, now_s):
    """Whether a feature lets no program start."""
    state, present = decision.state, removable.PRESENT
    return (
        ("offsite" in present and state.offsite.keeps_down(on=decision.settings.offsite.on))
        or ("offsite" in present and (decision.memory.copying.first_look_s or 0.0) > now_s)
        or ("notices" in present and state.notices.keeps_down(now_s))
        or ("when_done" in present and state.when_done.keeps_down)
    )


def is_rolled_back(state, name):
    """Whether it waits until its backup is put back."""
    return "backups" in removable.PRESENT and state.backups.holds(name)


def a_free_slot_is_used(_, step):
    if not step.decision.facts or step.state.stopping or step.decision.memory.ended:
        return None
    if all_kept_down(step.decision, step.now_s):
        return None
    programs, slots = step.state.programs.values(), step.decision.settings.level.slots
    held = {program.name for program in programs if is_rolled_back(step.state, program.name)}
    keeps = {
        name for name in held if step.state.programs[name].phase is Phase.QUEUED and step.state.programs[name].interrupted
    }
    taken = sum(1 for p in programs if p.phase in HAS_PROCESS or p.name in keeps or _holds_slot(p))
    taken += sum(p.phase is Phase.GATED for p in programs)
    settings = step.decision.settings
    if step.decision.memory.gpus is None and any(settings.min_free_mb(spec) for spec in settings.programs):
        return None  # nobody has looked at the GPUs yet: whoever needs their memory waits in the queue
    known = {spec.name for spec in step.decision.settings.programs}
    waiting = [program.name for program in programs if program.phase is Phase.QUEUED and program.name in known - held]
    if not waiting or taken >= slots or _staggered(step):
        return None
    return f"{', '.join(waiting)} wait, {taken} of {slots} slots are taken"


def _staggered(step):
    """Whether a start waits for the one before it, as after a change of level, and the loop is woken for it."""
    due_s, gap_s = step.decision.wake_at_s, step.decision.settings.load.stagger_s
    begun = [program.attempt.intended_at_s for program in step.state.live.values()]
    return bool(
        step.decision.settings.ladder and due_s is not None and due_s - step.now_s <= gap_s
        and begun and step.now_s - max(begun) < gap_s
    )  # fmt: skip


def _holds_slot(program):
    return program.retry.at_s is not None and not program.retry.slow and program.retry.at_s - program.since_s <= HOLDS_SLOT_S


def no_deadline_in_the_past(_, step):
    due_s = step.decision.wake_at_s
    return f"due at {due_s}, now is {step.now_s}: a busy loop" if due_s is not None and due_s <= step.now_s else None


def time_never_goes_back(_, step):
    return None if step.now_s >= step.before.at_s else f"a turn at {step.now_s}, the journal is at {step.before.at_s}"


def nothing_starts_while_all_ends(_, step):
    if not (step.state.stopping or step.decision.memory.ended):
        return None
    starts = [command.spec.name for command in step.decision.commands if isinstance(command, commands.Spawn)]
    return f"{', '.join(starts)} started while the daemon leaves" if starts else None


def no_reboot_is_charged_to_a_program(world, step):
    """Neither when the daemon learns of it nor later: an attempt that died with the host never counts as a death."""
    for fact in step.decision.facts:
        if isinstance(fact, facts.Exited) and fact.token in world.ended_with_host and fact.counted:
            return f"an attempt of {fact.program} ended with the host, and is charged for it ({fact.cause})"
        if isinstance(fact, facts.HostRebooted):
            for name, program in step.state.programs.items():
                old = step.before.programs.get(name)
                if old is not None and _charges(program) > _charges(old):
                    return f"{name} pays for the reboot: {_charges(old)} before, {_charges(program)} after"
    return None


def _charges(program):
    return program.deaths.streak, program.restarts, program.deaths.openings


def each_reboot_is_told_once(world, step):
    """Its line for reboot_alerts.log comes with the fact, under its number, and never again."""
    told = [command.number for command in step.decision.commands if isinstance(command, commands.AlertReboot)]
    recorded = sum(1 for fact in step.decision.facts if isinstance(fact, facts.HostRebooted))
    expected = [world.reboots + 1] if recorded else []
    world.reboots += recorded
    return None if told == expected else f"{recorded} reboots are recorded, told are the numbers {told}, not {expected}"


def no_lower_checkpoint_over_a_higher(world, step):
    """Except after a quarantine or a rewind, which is a fact of its own with its reason."""
    for fact in step.decision.facts:
        if type(fact).__name__ in LOWERS:
            world.lowered.add(fact.program)
        if isinstance(fact, facts.RolledBackTo):
            world.lowered |= set(fact.steps)
    for program in step.changed():
        old = step.before.programs.get(program.name)
        if old is None or old.ckpt.step is None or program.ckpt.step == old.ckpt.step:
            continue
        lower = program.ckpt.step is None or program.ckpt.step < old.ckpt.step
        if lower and program.name not in world.lowered:
            return f"{program.name}: checkpoint {program.ckpt.step} is recorded over {old.ckpt.step}"
    world.lowered -= {fact.program for fact in step.decision.facts if isinstance(fact, facts.Resumed)}
    return None


def who_works_is_never_ended_for_its_silence(world, step):
    """A script prints nothing, ever; it may be ended for a stall only while it does no work."""
    for fact in step.decision.facts:
        if isinstance(fact, facts.StopIntended) and fact.reason == "stall" and fact.program in world.scripts:
            worker = world.living.get(fact.token)
            if worker is not None and worker.stuck_at_s is None:
                return f"{fact.program} works, and is ended: {fact.why}"
    return None


def a_stopped_child_is_continued_and_not_waited_for(world, step):
    """Ten seconds beside the time between two looks, if the daemon was there all the time."""
    for worker in world.alive():
        if worker.child_stopped_at_s is None or worker.name not in step.state.programs:
            continue
        since_s = max(worker.child_stopped_at_s, world.undisturbed_since_s, worker.began_s)
        program = step.state.programs[worker.name]
        watched = world.watched.get(worker.name) == worker.token and program.attempt is not None
        late_s = world.now_s - since_s - 10.0 - 2 * world.look_s
        if late_s > SETTLE_S and watched and program.attempt.stop is None and not step.decision.memory.trouble:
            return f"the child of {worker.name} is stopped since {worker.child_stopped_at_s:.0f}"
    return None


RULES: tuple[Callable[..., str | None], ...] = (
    the_journal_gives_the_state, the_same_again_is_decided_the_same, every_fact_says_why, a_program_is_whole,
    at_most_one_process_a_program, every_process_is_known, nothing_waits_for_ever, a_free_slot_is_used,
    no_deadline_in_the_past, time_never_goes_back, nothing_starts_while_all_ends, no_reboot_is_charged_to_a_program,
    each_reboot_is_told_once, no_lower_checkpoint_over_a_higher, who_works_is_never_ended_for_its_silence,
    a_stopped_child_is_continued_and_not_waited_for,
)  # fmt: skip


def check(world, step):
    """All rules, in order; the first that does not hold raises Broken."""
    for rule in RULES:
        said = rule(world, step)
        if said is not None:
            raise Broken(_name(rule), said)


def hold(name, truth, said):
    """A rule of the world itself, checked where it happens: `truth`, or Broken."""
    if not truth:
        raise Broken(name, said)


def _first_difference(one, other):
    for field in one.__dataclass_fields__:
        if getattr(one, field) != getattr(other, field):
            return field
    return "nothing"


# --- now and then ---------------------------------------------------------------------------------------------------------

STUCK_MOST_S = 2 * 3600.0  # the longest limit of policy/worker/stall.py is an hour
SILENT_MOST_S = 7 * 3600.0  # of one that says nothing, after kills that healed nothing: six hours


def nobody_stays_stuck(world):
    """A stall that a signal can reach is healed within the longest limit there is, if the daemon was there all the time."""
    for worker in world.alive():
        if worker.stuck_at_s is None or worker.state == "D":
            continue
        since_s = max(worker.stuck_at_s, world.undisturbed_since_s)
        most_s = SILENT_MOST_S if worker.is_script else STUCK_MOST_S
        if world.now_s - since_s > most_s:
            return f"{worker.name} is stuck since {worker.stuck_at_s:.0f}, and nobody has done anything for {most_s:.0f} s"
    return None


def the_whole_journal_gives_the_state(world):
    return None if fold_all(world.core.journal) == world.core.folded else "folded from its beginning it gives another one"


def accounts_sum_to_wall_time(world):
    """Every second of every program and slot is booked once, by the whole journal so far (docs/accounts.md)."""
    said = account_errors(world.core.journal, world.core.state.at_s)
    return "; ".join(said[:3]) or None


def check_with_each_look(world):
    """What only time can show."""
    _check_world(world, nobody_stays_stuck)


def check_at_length(world):
    """What takes the whole journal: at intervals, and at the end of a story."""
    _check_world(world, the_whole_journal_gives_the_state)
    _check_world(world, accounts_sum_to_wall_time)


def _check_world(world, rule):
    said = rule(world)
    if said is not None:
        raise Broken(_name(rule), said)


def _name(rule):
    return rule.__name__.replace("_", " ")
