"""The state, and `fold`, the only function that changes it.

The state is a fold over the journal and nothing else. So the same code serves after a crash of the daemon, an upgrade, a
host reboot, and in a replay by a test. Volatile data (newest beats, pending requests) is *not* here, but in `memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from supervisor.model import cluster_record, facts, snapshot
from supervisor.model.alert_record import AlertRecord, alerted
from supervisor.model.backup_record import BackupRecord, recorded
from supervisor.model.clock_times import with_times
from supervisor.model.cluster_record import ClusterRecord
from supervisor.model.counts import Counts, advanced, counted
from supervisor.model.facts import Stamped
from supervisor.model.lifecycle import EDGE_OF, HAS_PROCESS, IllegalTransition, Phase, step
from supervisor.model.notice_record import NoticeRecord
from supervisor.model.notice_record import recorded as notice_recorded
from supervisor.model.offsite_record import OffsiteRecord, wanting
from supervisor.model.offsite_record import recorded as offsite_recorded
from supervisor.policy.box import wall_clock
from supervisor.policy.box.box_identity import MACHINE
from supervisor.policy.upkeep import offsite
from supervisor.policy.worker.loss import furthest
from supervisor.policy.worker.restart import MOST_DEATHS
from supervisor.policy.worker.stall import SILENT
from supervisor.records import dataclass, replace

_UPTIMES_KEPT: Final = 50
_REBOOTS_KEPT: Final = 200
_BAD_KEPT: Final = 20
_COSTS_KEPT: Final = 20
_BOXES_KEPT: Final = 10
_CLOCKS_KEPT: Final = 50


@dataclass(frozen=True, slots=True)
class Stop:
    """extralife asked the attempt to leave."""

    reason: str
    asked_at_s: float
    grace_s: float
    killed_at_s: float | None = None


@dataclass(frozen=True)
class Attempt:
    """One start of a program, from the intent to the moment its whole tree is gone."""

    number: int
    token: str
    intended_at_s: float
    digest: str
    pid: int | None = None
    start_ticks: int | None = None
    shim_pid: int | None = None
    shim_start_ticks: int | None = None
    ready_at_s: float | None = None
    resumed_step: int | None = None
    resumed_at_s: float | None = None
    resume_unknown: bool = False  # a fact says that the step at which it resumed is unknown
    from_path: str | None = None  # its own newest whole checkpoint at its start, empty for none; None: not looked at
    from_step: int | None = None  # the step of that checkpoint
    from_sure: bool = False  # it surely resumes from that checkpoint
    from_torn: bool = False  # a newer checkpoint was torn
    stall: str | None = None
    stalled_at_s: float | None = None
    examined: bool = False
    quiet_at_s: float | None = None  # since then it works without a sign of progress
    reports: tuple[str, ...] = ()  # keys of the reports that are facts already
    fine_step: int | None = None  # last step before it diverged or became sick
    illnesses: tuple[str, ...] = ()  # present illnesses
    ill: str = ""  # the illness because of which it is ended ...
    illness_action: str = ""  # ... and the action afterwards
    slow_at_s: float | None = None  # when it became slow; None: it is not slow
    save_error: str = ""  # why its last checkpoint could not be written ...
    save_failed_step: int | None = None  # ... and at which step
    stop: Stop | None = None

    def saves_again(self, step: int) -> bool:
        """Whether a checkpoint at this step shows that saves succeed again after a failed one."""
        return self.save_error != "" and (self.save_failed_step is None or step >= self.save_failed_step)


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The largest measured memory of a program at a level, on its GPU and on the host; None: not measured."""

    level: str
    gpu_bytes: int | None = None
    host_bytes: int | None = None


@dataclass(frozen=True)
class Program:
    """The durable record of one program."""

    name: str
    phase: Phase
    since_s: float
    since_wall_s: float
    digest: str
    wanted: bool = True
    attempts: int = 0
    attempt: Attempt | None = None
    started_wall_s: float | None = None  # of the newest attempt
    retry_at_s: float | None = None
    slow: bool = False
    slot_since_s: float | None = None  # since then it has had its slot, restarts and reboots included
    interrupted: bool = False  # queued because its process was ended for an outside reason: a reboot, an update, a restart
    deaths_s: tuple[float, ...] = ()
    death_resumes: tuple[int | None, ...] = ()  # the step at which each of those attempts had resumed
    streak: int = 0  # deaths since it was last healthy
    openings: int = 0  # how often the breaker has opened in this streak
    silences: int = 0  # kills for silence since it was last healthy
    died_after_s: float | None = None  # how long its last attempt lived; None: it did not die by itself
    restarts: int = 0
    steps: int | None = None  # the last known position in environment steps
    rate: float | None = None  # steps a second, as last reported
    steps_exact: bool = False  # `steps` was read after the newest attempt had ended, so it is exact
    began_step: int | None = None  # the step at which the attempt that computed `steps` had begun
    ckpt_step: int | None = None
    ckpt_at_s: float | None = None
    ckpt_stall_s: float | None = None
    ckpt_path: str = ""  # path of the newest whole checkpoint that it wrote itself
    ckpt_bytes: int | None = None
    torn_path: str = ""  # a torn checkpoint that was newer than that one at the newest start ...
    torn_deaths: int = 0  # ... and the deaths that count against it
    condemned: tuple[str, ...] = ()  # its own checkpoints to set aside before the next start ...
    roll_from: int | None = None  # checkpoints from this step on are to be set aside before the next start
    bad_checkpoints: tuple[str, ...] = ()
    quarantined_since_ckpt: bool = False
    quarantined_step: int | None = None  # its step; a resume from that step shows that it was never set aside
    rollbacks: int = 0
    divergences: int = 0  # number without a checkpoint beyond the step of the first
    diverged_step: int | None = None
    needs: tuple[MemoryPeak, ...] = ()  # measured memory, by level
    batches: tuple[tuple[str, int], ...] = ()  # (level, its lowered batch there, after it ran out of memory)
    service: bool = False  # it uses no slot and is no training
    own_digest: str = ""  # digest of its settings without those of the level; empty: unknown
    slow_restart_at_s: float | None = None
    interval_s: float | None = None
    gaps_s: tuple[tuple[str, float], ...] = ()
    exposure_s: float = 0.0
    failures: int = 0
    why: str = ""
    exit_cause: str = ""
    exit_code: int | None = None
    exit_wall_s: float | None = None
    asked_at_s: float | None = None  # when the newest ended attempt had been asked to leave; None: it was not asked
    ended_at_s: float | None = None  # when the newest attempt ended, which may be before the daemon noticed
    spawn_error: str = ""
    spawn_failures: int = 0  # in a row
    has_run: bool = False  # a process of its present configuration has run
    early_ends: int = 0  # in a row: its `start_retries` counts them
    counts: Counts = field(default_factory=Counts)

    @property
    def takes_level(self) -> bool:
        """Whether it uses settings of the level. A program that uses none is no evidence about the level."""
        return self.own_digest != ""

    def gap_s(self, phase: str) -> float | None:
        """The largest healthy gap seen in a phase."""
        return dict(self.gaps_s).get(phase)

    def held(self, level: str) -> MemoryPeak:
        """Its largest measured memory at this level."""
        return next((held for held in self.needs if held.level == level), MemoryPeak(level))

    def batch_size(self, level: str) -> int | None:
        """Its lowered batch at this level; None: the configured batch."""
        return dict(self.batches).get(level)


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """The box's record at one level."""

    up_s: float = 0.0
    reboots: int = 0
    uptimes_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Veto:
    """A pre-check that forbids every level above `cap`, a level's name."""

    rule: str
    cap: str
    why: str
    since_s: float
    since_wall_s: float


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """The record of the GPUs. `most`: the largest number this box ever had; `unknown_since_s`: unreadable since then."""

    count: int | None = None
    most: int = 0
    lost: tuple[int, ...] = ()
    unknown_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """The level that the operator has pinned; the load rule does not change it."""

    level: str
    by: str
    wall_s: float
    until_s: float | None = None


@dataclass(frozen=True)
class Climb:
    """The level in force, its reason, and the state of the load rule: `deciding/levels.py`."""

    load: str = ""  # the state of the load rule, as JSON
    ladder: tuple[tuple[str, str], ...] = ()  # (name, shape) of each level in `load`
    reviewed_at_s: float | None = None  # `load` includes the training up to this time
    level_since_s: float | None = None  # start of the level in force, within this boot
    changed_at_s: float | None = None
    changed_wall_s: float | None = None
    before: str = ""  # the previous level
    trial: bool = False
    why: str = ""  # reason for the level in force
    said: str = ""  # the newest verdict, which may have changed nothing
    pin: Pin | None = None
    costs_s: tuple[float, ...] = ()  # costs of the last changes of level


@dataclass(frozen=True, slots=True)
class Reboot:
    """One host reboot, for `status` and `reboots`."""

    at_s: float
    wall_s: float
    cause: str
    down_s: float | None
    up_s: float | None
    level: str
    sign_wall_s: float | None = None  # the last sign of life before it


@dataclass(frozen=True, slots=True)
class Box:
    """The box to which the recorded levels and reboots belong."""

    hostname: str
    witnesses: dict[str, str]
    since_s: float
    since_wall_s: float
    outlived: int = 0  # reboots that its machine-id has survived


@dataclass(frozen=True, slots=True)
class FormerBox:
    """A box that this state directory was on before, with its record."""

    hostname: str
    since_wall_s: float
    until_wall_s: float
    reboots: int
    levels: dict[str, LevelRecord]


@dataclass(frozen=True, slots=True)
class Damage:
    """The newest damage of the journal, for `status`. `lost`: number of lost facts; None: unknown."""

    wall_s: float
    error: str
    kept_as: str
    kept: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """The configuration cannot be used. `in_use` is the saved one used instead; empty: the present settings stay."""

    wall_s: float
    errors: tuple[str, ...]
    in_use: str
    by: str


@dataclass(frozen=True)
class State:
    """The whole state: the fold of all facts in the journal."""

    at_s: float = 0.0
    wall_s: float = 0.0
    boot_id: str = ""
    boots: int = 0
    salt: str = ""
    daemon_pid: int | None = None
    daemon_since_wall_s: float | None = None
    daemon_since_s: float | None = None
    stopping: bool = False
    clean: bool | None = None  # whether the last daemon ended in order; None: there was none yet
    level: str = ""
    slots: int = 0
    climb: Climb = field(default_factory=Climb)
    programs: dict[str, Program] = field(default_factory=dict)
    former: dict[str, int] = field(default_factory=dict)  # number of attempts of programs that have left the config
    levels: dict[str, LevelRecord] = field(default_factory=dict)
    reboots: tuple[Reboot, ...] = ()  # the newest ones
    reboots_total: int = 0
    reboots_by_cause: dict[str, int] = field(default_factory=dict)  # on all boxes; a count never falls
    box: Box | None = None
    former_boxes: tuple[FormerBox, ...] = ()  # the newest ones
    clock_steps: dict[str, float] = field(default_factory=dict)  # by boot: the step in seconds that set a wrong clock
    oom_kills: int | None = None  # OOM kill count of our cgroup up to which ended attempts explain the kills
    gpus: GpuRecord = GpuRecord()
    vetoes: dict[str, Veto] = field(default_factory=dict)  # by rule
    damage: Damage | None = None
    config: ConfigFault | None = None  # as long as the configuration is refused
    backups: BackupRecord = field(default_factory=BackupRecord)
    alerts: AlertRecord = field(default_factory=AlertRecord)
    offsite: OffsiteRecord = field(default_factory=OffsiteRecord)
    notices: NoticeRecord = field(default_factory=NoticeRecord)
    cluster: ClusterRecord = field(default_factory=ClusterRecord)
    gaps: int = 0  # how often a damaged journal lost facts: with one or more, all counts are "at least"

    def cap(self, levels: Sequence[str]) -> tuple[int, str] | None:
        """The highest of these levels (by index, the lightest is 0) that no veto forbids, and why; None: all are allowed.

        A veto that names a level which is not on the ladder any more has no effect.
        """
        caps = [(levels.index(veto.cap), f"{veto.rule}: {veto.why}") for veto in self.vetoes.values() if veto.cap in levels]
        return min(caps, default=None)

    @property
    def live(self) -> dict[str, Program]:
        """The programs that have an attempt, by name."""
        return {name: program for name, program in self.programs.items() if program.attempt is not None}


def fold_all(stamped: Iterable[Stamped], state: State | None = None) -> State:
    """The state after all of these facts."""
    state = State() if state is None else state
    for item in stamped:
        state = fold(state, item)
    return state


def replay(stamped: Iterable[Stamped]) -> tuple[State, int]:
    """The state from a journal, and the number of facts that did not fit. Facts before the newest snapshot are not folded.

    In a complete journal every fact fits. If a damaged disk lost rows, an edge may lack the edge before it. That fact is
    skipped, because a daemon that refuses to start helps nobody.
    """
    items = list(stamped)
    first = next((n for n in reversed(range(len(items))) if isinstance(items[n].fact, facts.Snapshot)), 0)
    state, misfits = State(), 0
    for item in items[first:]:
        try:
            state = fold(state, item)
        except IllegalTransition:
            misfits += 1
    return state, misfits


def fold(state: State, stamped: Stamped) -> State:
    """The state after one more fact. Raises IllegalTransition for an edge that its phase does not allow."""
    fact = stamped.fact
    if isinstance(fact, facts.Snapshot):
        state = snapshot.decoded(State, fact.state)
    boots = state.boots + 1 if stamped.boot_id != state.boot_id else state.boots
    state = replace(state, at_s=stamped.at_s, wall_s=stamped.wall_s, boot_id=stamped.boot_id, boots=boots)
    if isinstance(fact, facts.Exited) and fact.oom_kills is not None:
        state = replace(state, oom_kills=fact.oom_kills)
    cluster = cluster_record.recorded(state.cluster, stamped)
    if cluster is not state.cluster:
        state = replace(state, cluster=cluster)
    if isinstance(fact, facts.ProgramFact):
        return _with_program(state, stamped, fact)
    return _box(state, stamped, fact)


def _box(state: State, stamped: Stamped, fact: facts.Fact) -> State:
    match fact:
        case facts.DaemonStarted(pid=pid, salt=salt):
            return replace(
                state, daemon_pid=pid, salt=salt, daemon_since_s=stamped.at_s, daemon_since_wall_s=stamped.wall_s,
                stopping=False, clean=False, config=None,
            )  # fmt: skip
        case facts.DaemonStopping(keep_workers=keep):
            return replace(state, stopping=not keep, clean=True if keep else state.clean)
        case facts.DaemonStopped():
            return replace(state, clean=True, daemon_pid=None, stopping=False)
        case facts.HostRebooted() | facts.BoxIdentified() | facts.ClockSet():
            return _new_boot(state, stamped, fact)
        case facts.LevelChosen():
            return _level_chosen(state, stamped, fact)
        case facts.LadderLaid() | facts.Reviewed() | facts.RebootJudged() | facts.NodeFaultJudged() | facts.LevelSettled():
            # A new ladder may have other levels with the same names: each has a first trial again.
            backups = replace(state.backups, tried=()) if isinstance(fact, facts.LadderLaid) else state.backups
            return replace(state, climb=_climbed(state.climb, stamped, fact), backups=backups)
        case facts.LevelPinned() | facts.LevelUnpinned():
            return replace(state, climb=_pinned(state.climb, stamped, fact))
        case facts.BackupFact() | facts.OffsiteFact() | facts.AlertFact():
            return _upkeep(state, stamped, fact)
        case facts.EndAnnounced() | facts.EndCalledOff():
            return replace(state, notices=notice_recorded(state.notices, stamped, fact))
        case facts.Vetoed() | facts.VetoLifted():
            return _vetoed(state, stamped, fact)
        case facts.ConfigRefused() | facts.ConfigMended() | facts.JournalSalvaged():
            return _trouble(state, stamped, fact)
        case _:
            return replace(state, gpus=_gpus(state.gpus, stamped.at_s, fact))


def _upkeep(state: State, stamped: Stamped, fact: facts.BackupFact | facts.OffsiteFact | facts.AlertFact) -> State:
    match fact:
        case facts.BackupFact():
            return _backups(state, stamped, fact)
        case facts.OffsiteFact():
            return replace(state, offsite=offsite_recorded(state.offsite, stamped, fact))
        case _:
            return replace(state, alerts=alerted(state.alerts, stamped, fact))


def _trouble(
    state: State, stamped: Stamped, fact: facts.ConfigRefused | facts.ConfigMended | facts.JournalSalvaged
) -> State:
    """Faults of extralife's own files: its configuration, its journal."""
    match fact:
        case facts.ConfigRefused(errors=errors, in_use=in_use, by=by):
            return replace(state, config=ConfigFault(stamped.wall_s, errors, in_use, by))
        case facts.ConfigMended():
            return replace(state, config=None)
    damage = Damage(stamped.wall_s, fact.error, fact.kept_as, fact.kept, fact.lost)
    return replace(state, damage=damage, gaps=state.gaps + (fact.lost != 0))


def _gpus(gpus: GpuRecord, at_s: float, fact: facts.Fact) -> GpuRecord:
    match fact:
        case facts.GpusFound(count=count):
            return replace(gpus, count=count, most=max(gpus.most, count), lost=())
        case facts.GpusUnknown():
            return replace(gpus, unknown_since_s=at_s)
        case facts.GpusKnown():
            return replace(gpus, unknown_since_s=None)
        case facts.GpuLost(gpu=gpu):
            return replace(gpus, lost=tuple(sorted({*gpus.lost, gpu})))
        case facts.GpuBack(gpu=gpu):
            return replace(gpus, lost=tuple(each for each in gpus.lost if each != gpu))
        case _:
            return gpus


def _vetoed(state: State, stamped: Stamped, fact: facts.Vetoed | facts.VetoLifted) -> State:
    vetoes = {rule: veto for rule, veto in state.vetoes.items() if rule != fact.rule}
    if isinstance(fact, facts.Vetoed):
        vetoes[fact.rule] = Veto(fact.rule, fact.cap, fact.why, stamped.at_s, stamped.wall_s)
    return replace(state, vetoes=vetoes)


def _backups(state: State, stamped: Stamped, fact: facts.BackupFact) -> State:
    """The record of backups. A program that was rolled back to one continues from its step."""
    state = replace(state, backups=recorded(state.backups, fact))
    if isinstance(fact, facts.RolledBackTo):
        state = replace(state, offsite=wanting(state.offsite, offsite.ROLLBACK, stamped.at_s))
    steps = fact.steps if isinstance(fact, facts.RolledBackTo | facts.RollbackFailed) else {}
    programs = {
        name: replace(
            _fresh(state.programs[name]), ckpt_step=step_, ckpt_at_s=None, quarantined_step=None,
            quarantined_since_ckpt=False, roll_from=None,
        )
        for name, step_ in steps.items() if name in state.programs
    }  # fmt: skip
    return replace(state, programs={**state.programs, **programs})


def _level_chosen(state: State, stamped: Stamped, fact: facts.LevelChosen) -> State:
    """A change of level: the previous level's time in this boot is recorded, and the new level's time begins."""
    climb = replace(state.climb, trial=fact.trial, why=fact.why)
    if fact.level == state.level:
        return replace(state, slots=fact.slots, climb=climb)
    levels = state.levels
    if climb.level_since_s is not None:
        record = levels.get(state.level, LevelRecord())
        levels = {**levels, state.level: replace(record, up_s=record.up_s + stamped.at_s - climb.level_since_s)}
    climb = replace(
        climb, before=state.level, level_since_s=stamped.at_s, changed_at_s=stamped.at_s,
        changed_wall_s=stamped.wall_s,
    )  # fmt: skip
    copies = wanting(state.offsite, offsite.LEVEL, stamped.at_s) if state.level else state.offsite
    return replace(state, level=fact.level, slots=fact.slots, levels=levels, climb=climb, offsite=copies)


def _climbed(
    climb: Climb,
    stamped: Stamped,
    fact: facts.LadderLaid | facts.Reviewed | facts.RebootJudged | facts.NodeFaultJudged | facts.LevelSettled,
) -> Climb:
    match fact:
        case facts.LadderLaid():
            return replace(climb, load=fact.load, ladder=tuple(zip(fact.levels, fact.shapes, strict=False)))
        case facts.LevelSettled(cost_s=cost_s):
            return replace(climb, costs_s=(*climb.costs_s, cost_s)[-_COSTS_KEPT:])
        case _:
            return replace(climb, load=fact.load, said=fact.why, reviewed_at_s=stamped.at_s)


def _pinned(climb: Climb, stamped: Stamped, fact: facts.LevelPinned | facts.LevelUnpinned) -> Climb:
    if isinstance(fact, facts.LevelUnpinned):
        return replace(climb, pin=None)
    climb = replace(climb, pin=Pin(fact.level, fact.by, stamped.wall_s, fact.until_s))
    return replace(climb, load=fact.load, reviewed_at_s=stamped.at_s) if fact.load else climb


def _new_boot(
    state: State, stamped: Stamped, fact: facts.HostRebooted | facts.BoxIdentified | facts.ClockSet
) -> State:  # fmt: skip
    if isinstance(fact, facts.HostRebooted):
        return _rebooted(state, stamped, fact)
    if isinstance(fact, facts.BoxIdentified):
        return _identified(state, stamped, fact)
    return _clock_set(state, stamped, fact)


def _clock_set(state: State, stamped: Stamped, fact: facts.ClockSet) -> State:
    """Correct every wall-clock time of this boot, everywhere in the state."""
    steps = dict([*state.clock_steps.items(), (stamped.boot_id, fact.step_s)][-_CLOCKS_KEPT:])
    state = replace(with_times(state, lambda wall_s: wall_clock.mended(wall_s, fact.step_s)), clock_steps=steps)
    if fact.reboot_wall_s is None or not state.reboots:
        return state
    return replace(state, reboots=(*state.reboots[:-1], replace(state.reboots[-1], down_s=fact.down_s)))


def _rebooted(state: State, stamped: Stamped, fact: facts.HostRebooted) -> State:
    """Count the reboot against the level that it happened at, unless it was an orderly one."""
    since_s, last_s = state.climb.level_since_s, fact.last_sign_s
    if fact.up_s is not None and since_s is not None and last_s is not None:  # the level may have begun within that boot
        fact = replace(fact, up_s=min(fact.up_s, max(0.0, last_s - since_s)))
    climb = replace(state.climb, level_since_s=stamped.at_s)
    reboot = Reboot(stamped.at_s, stamped.wall_s, fact.cause, fact.down_s, fact.up_s, fact.level, fact.last_sign_wall_s)
    record = state.levels.get(fact.level, LevelRecord())
    unclean = fact.cause == "unclean"
    uptimes = record.uptimes_s + ((fact.up_s,) if unclean and fact.up_s is not None else ())
    record = LevelRecord(
        up_s=record.up_s + (fact.up_s or 0.0),
        reboots=record.reboots + (1 if unclean else 0),
        uptimes_s=uptimes[-_UPTIMES_KEPT:],
    )
    by_cause = state.reboots_by_cause
    if fact.cause != "moved":
        by_cause = {**by_cause, fact.cause: by_cause.get(fact.cause, 0) + 1}
    programs = {name: _seen_at(program, fact.steps.get(name)) for name, program in state.programs.items()}
    return replace(
        state,
        levels={**state.levels, fact.level: record},
        climb=climb,
        reboots=(*state.reboots, reboot)[-_REBOOTS_KEPT:],
        reboots_total=state.reboots_total + (fact.cause != "moved"),
        reboots_by_cause=by_cause,
        box=state.box and replace(state.box, outlived=state.box.outlived + 1),
        programs=programs,
        notices=notice_recorded(state.notices, stamped, fact),
    )


def _seen_at(program: Program, step_: int | None) -> Program:
    """The program with its step at the last sign of life before a reboot."""
    steps = furthest(program.steps, step_)
    return replace(program, steps=steps, counts=advanced(program.counts, program.steps, steps))


def _identified(state: State, stamped: Stamped, fact: facts.BoxIdentified) -> State:
    """The same box with other witnesses, or another box: then the record of levels, reboots and hardware begins anew.

    The measured memory of programs and their lowered batches belong to the other hardware, so they go. The pin goes too.
    """
    before = state.box
    same_machine = before is not None and before.witnesses.get(MACHINE) == fact.witnesses.get(MACHINE)
    box = Box(fact.hostname, fact.witnesses, stamped.at_s, stamped.wall_s, before.outlived if before and same_machine else 0)
    if not fact.another:
        if before is not None:
            box = replace(box, since_s=before.since_s, since_wall_s=before.since_wall_s)
        return replace(state, box=box)
    former = FormerBox(
        before.hostname if before else "", before.since_wall_s if before else stamped.wall_s, stamped.wall_s,
        state.reboots_total, state.levels,
    )  # fmt: skip
    programs = {name: replace(program, needs=(), batches=()) for name, program in state.programs.items()}
    return replace(
        state, box=box, former_boxes=(*state.former_boxes, former)[-_BOXES_KEPT:], levels={}, reboots=(), reboots_total=0,
        climb=Climb(level_since_s=stamped.at_s), gpus=GpuRecord(), vetoes={}, programs=programs, oom_kills=None,
    )  # fmt: skip


def _with_program(state: State, stamped: Stamped, fact: facts.ProgramFact) -> State:
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
    if edge is not None:
        program = _moved(program, step(program.phase, edge), stamped, fact)
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
    if phase is program.phase:
        return program
    attempt = program.attempt if phase in HAS_PROCESS else None
    rotated = isinstance(fact, facts.Requeued) and fact.handed_on
    interrupted = phase is Phase.QUEUED and program.phase in HAS_PROCESS and not rotated
    keeps_slot = interrupted or phase is Phase.BACKOFF or phase in HAS_PROCESS
    return replace(
        program, phase=phase, since_s=stamped.at_s, since_wall_s=stamped.wall_s, why=fact.why, attempt=attempt,
        retry_at_s=program.retry_at_s if phase is Phase.BACKOFF else None,
        slow=program.slow if phase is Phase.BACKOFF else False,
        interrupted=interrupted, slot_since_s=program.slot_since_s if keeps_slot else None,
    )  # fmt: skip


# `wanted` follows from the operator's request (`Wanted`), and also from the facts that the request caused. In a complete
# journal that changes nothing. In a journal that has lost `Wanted`, it keeps a stopped program from starting again.


def _program(program: Program, stamped: Stamped, fact: facts.ProgramFact) -> Program:
    match fact:
        case facts.ProgramConfigured():
            return _configured(program, fact)
        case facts.Wanted(run=True):
            # The operator's request is a fresh start: earlier failures do not count any more.
            return replace(_fresh(program), wanted=True)
        case facts.Wanted(run=False) | facts.StayedDown():
            return replace(program, wanted=False)
        case facts.Requeued():
            return replace(program, wanted=True)
        case facts.SpawnIntended(attempt=number, token=token, digest=digest):
            attempt = Attempt(number, token, stamped.at_s, digest)
            since_s = stamped.at_s if program.slot_since_s is None else program.slot_since_s
            return replace(
                program, attempt=attempt, attempts=number, started_wall_s=stamped.wall_s, spawn_error="", wanted=True,
                slot_since_s=since_s,
            )  # fmt: skip
        case facts.BackedOff(until_s=until_s, slow=slow):
            openings = program.openings + (1 if slow else 0)
            return replace(program, retry_at_s=until_s, slow=slow, openings=openings, why=fact.why)
        case facts.IntervalChosen(interval_s=interval_s):
            return replace(program, interval_s=interval_s)
        case facts.GapLearned(phase=phase, gap_s=gap_s):
            return replace(program, gaps_s=tuple(sorted({**dict(program.gaps_s), phase: gap_s}.items())))
        case facts.CheckpointQuarantined(step=step_):
            older = None if step_ is not None and program.ckpt_step == step_ else program.ckpt_step
            own = (fact.path,) if fact.path else ()
            return replace(
                program, quarantined_since_ckpt=True, quarantined_step=step_, ckpt_step=older, death_resumes=(),
                condemned=(*program.condemned, *own), torn_deaths=0,
            )  # fmt: skip
        case facts.RolledBack():
            return _rolled_back(program, fact)
        case _:
            return _learned(program, fact)


def _learned(program: Program, fact: facts.ProgramFact) -> Program:
    """Facts about its memory."""
    match fact:
        case facts.NeedLearned(level=level, gpu_bytes=gpu_bytes, host_bytes=host_bytes):
            others = (held for held in program.needs if held.level != level)
            needs = (*others, MemoryPeak(level, gpu_bytes, host_bytes))
            return replace(program, needs=tuple(sorted(needs, key=lambda held: held.level)))
        case facts.BatchLowered(level=level, batch_size=batch_size):
            return replace(program, batches=tuple(sorted({**dict(program.batches), level: batch_size}.items())))
        case _:
            return program


def _forgiven(program: Program) -> Program:
    return replace(
        program,
        streak=0,
        openings=0,
        silences=0,
        died_after_s=None,
        deaths_s=(),
        death_resumes=(),
        early_ends=0,
        torn_deaths=0,
    )


def _fresh(program: Program) -> Program:
    """The program after an operator's request, in the config or by a command: its earlier failures have no effect."""
    return replace(_forgiven(program), divergences=0, diverged_step=None, batches=(), slow_restart_at_s=None)


def _configured(program: Program, fact: facts.ProgramConfigured) -> Program:
    program = replace(program, own_digest=fact.own_digest, service=fact.service)
    if fact.digest == program.digest:
        return program
    if fact.moved:
        return replace(program, digest=fact.digest)
    batches, needs = (program.batches, program.needs) if fact.level_only else ((), ())
    has_run = program.has_run and fact.level_only
    return replace(_fresh(program), digest=fact.digest, batches=batches, needs=needs, has_run=has_run)


def _rolled_back(program: Program, fact: facts.RolledBack) -> Program:
    """The newest checkpoint is unknown until the next attempt reports it."""
    known = [step for step in (program.diverged_step, fact.step) if step is not None]
    aside = fact.from_step is not None
    return replace(
        program, rollbacks=fact.total, divergences=fact.number, diverged_step=max(known, default=None), death_resumes=(),
        ckpt_step=None if aside else program.ckpt_step, quarantined_since_ckpt=aside or program.quarantined_since_ckpt,
        roll_from=fact.from_step,
    )  # fmt: skip


def _rolled_to_older(program: Program) -> Program:
    """An attempt ran, so the checkpoints were set aside before: a rollback comes before its start, and newer ones are good.

    A program's own checkpoints are set aside by its next start itself (`facts.StartsFrom`).
    """
    return program if program.ckpt_path else replace(program, roll_from=None)


def _attempt(program: Program, attempt: Attempt, stamped: Stamped, fact: facts.AttemptFact) -> Program:
    """Apply a fact about an attempt. Some of these facts also change the program; the others change only the attempt."""
    match fact:
        case facts.Resumption(step=resumed):
            program = _resumed(program, resumed) if isinstance(fact, facts.Resumed) else replace(program, steps=resumed)
        case facts.Spawned():
            program = replace(_rolled_to_older(program), spawn_failures=0, has_run=True)
        case facts.Recovered():
            program = _forgiven(program)
        case facts.StopIntended(reason="slow"):
            program = replace(program, slow_restart_at_s=stamped.at_s)
        case facts.StopIntended(reason="stall") if attempt.stall == SILENT:
            program = replace(program, silences=program.silences + 1)
        case facts.Checkpointed() | facts.StartsFrom() | facts.CheckpointSeen():
            return _with_checkpoint(program, attempt, stamped, fact)
        case facts.Tallied(steps=steps, rate=rate):
            return replace(
                program, rate=program.rate if rate is None else rate,
                # Until its `Resumed`, the position of the previous attempt counts: lost steps are measured from it.
                steps=program.steps if steps is None or attempt.resumed_step is None else steps,
            )  # fmt: skip
        case facts.CheckpointBad(path=path):
            return replace(program, bad_checkpoints=(*program.bad_checkpoints, path)[-_BAD_KEPT:])
        case facts.SpawnFailed(error=error):
            failures = program.spawn_failures + 1
            return replace(program, attempt=None, spawn_error=error, spawn_failures=failures, why=fact.why)
        case facts.Exited():
            return _exited(_rolled_to_older(program), attempt, stamped, fact)
        case facts.StopIntended(reason="operator"):
            program = replace(program, wanted=False)
        case _:
            pass
    return replace(program, attempt=_changed(attempt, stamped.at_s, fact))


def _resumed(program: Program, step_: int) -> Program:
    """The worker resumed from the newest whole checkpoint: if the state had a newer one, that is gone."""
    newest = None if step_ == program.quarantined_step else step_ or None
    if newest == program.ckpt_step:
        return replace(program, steps=step_)
    return replace(program, steps=step_, ckpt_step=newest, ckpt_at_s=None)


def _with_checkpoint(
    program: Program, attempt: Attempt, stamped: Stamped, fact: facts.Checkpointed | facts.StartsFrom | facts.CheckpointSeen
) -> Program:
    match fact:
        case facts.Checkpointed(step=step_, stall_s=stall_s, well=well):
            beyond = well and program.diverged_step is not None and step_ > program.diverged_step
            program = replace(program, divergences=0, diverged_step=None) if beyond else program
            return replace(
                program, attempt=_saved(attempt, step_), ckpt_step=step_, ckpt_at_s=stamped.at_s,
                ckpt_stall_s=stall_s, quarantined_since_ckpt=False,
                quarantined_step=None, steps=max(program.steps or 0, step_),
            )  # fmt: skip
        case facts.StartsFrom():
            return program if fact.error else _starts_from(program, attempt, fact)
    return _saved_itself(program, attempt, stamped, fact)


def _starts_from(program: Program, attempt: Attempt, fact: facts.StartsFrom) -> Program:
    """The program with the checkpoints on the disk, which replace those of the previous look."""
    attempt = replace(
        attempt, from_path=fact.path, from_step=fact.step, from_sure=fact.sure, from_torn=fact.torn != ""
    )  # fmt: skip
    return replace(
        program, attempt=attempt, ckpt_path=fact.path, ckpt_step=fact.step, ckpt_at_s=fact.saved_at_s,
        ckpt_bytes=fact.size_bytes, condemned=fact.left, roll_from=None,
        torn_path=fact.torn, torn_deaths=program.torn_deaths if fact.torn == program.torn_path else 0,
    )  # fmt: skip


def _saved_itself(program: Program, attempt: Attempt, stamped: Stamped, fact: facts.CheckpointSeen) -> Program:
    at_s = stamped.at_s if fact.saved_at_s is None else min(stamped.at_s, fact.saved_at_s)
    return replace(
        program, attempt=replace(attempt, save_error="", save_failed_step=None), ckpt_path=fact.path, ckpt_step=fact.step,
        ckpt_at_s=at_s, ckpt_bytes=fact.size_bytes, quarantined_since_ckpt=False, quarantined_step=None,
        steps=program.steps if fact.step is None else max(program.steps or 0, fact.step),
    )  # fmt: skip


def _changed(attempt: Attempt, at_s: float, fact: facts.AttemptFact) -> Attempt:
    match fact:
        case facts.Spawned(pid=pid, start_ticks=ticks, shim_pid=shim_pid, shim_start_ticks=shim_ticks):
            return replace(attempt, pid=pid, start_ticks=ticks, shim_pid=shim_pid, shim_start_ticks=shim_ticks)
        case facts.BecameReady():
            return replace(attempt, ready_at_s=at_s)
        case facts.Resumption(step=resumed):
            return replace(attempt, resumed_step=resumed, resumed_at_s=at_s)
        case facts.ResumeUnknown():
            return replace(attempt, resume_unknown=True)
        case facts.Stalled(stall=stall):
            return replace(attempt, stall=stall, stalled_at_s=at_s, examined=False)
        case facts.Examined():
            return replace(attempt, examined=True)
        case facts.Revived():
            return replace(attempt, stall=None, stalled_at_s=None, examined=False)
        case facts.StopIntended(reason=reason, grace_s=grace_s):
            return replace(attempt, stop=Stop(reason, at_s, grace_s))
        case facts.KillIntended() if attempt.stop is not None:
            return replace(attempt, stop=replace(attempt.stop, killed_at_s=at_s))
        case facts.Reported(key=key):
            return replace(attempt, reports=(*attempt.reports, key))
        case _:
            return _ailing(attempt, at_s, fact)


def _saved(attempt: Attempt, step: int) -> Attempt:
    """The attempt after a save. A checkpoint at an earlier step than the failed one does not show that saves succeed."""
    return replace(attempt, save_error="", save_failed_step=None) if attempt.saves_again(step) else attempt


def _ailing(attempt: Attempt, at_s: float, fact: facts.AttemptFact) -> Attempt:
    """Faults of a worker that continues to train."""
    match fact:
        case facts.Slowed():
            return replace(attempt, slow_at_s=at_s, examined=False)
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
            return replace(attempt, slow_at_s=None)
        case facts.Quiet():
            return replace(attempt, quiet_at_s=at_s)
        case facts.CheckpointFailed(error=error, step=step, key=key):
            return replace(attempt, save_error=error, save_failed_step=step, reports=(*attempt.reports, key))
        case _:
            return attempt


def _exact(program: Program, attempt: Attempt, fact: facts.Exited) -> bool:
    """Whether the position after this end is exact. An attempt that restored nothing does not change it."""
    if fact.steps is None:
        return program.steps_exact and attempt.resumed_step is None
    return fact.cause != "reboot" and not fact.at_least


def _exited(program: Program, attempt: Attempt, stamped: Stamped, fact: facts.Exited) -> Program:
    """The attempt is over: its running time is added to the exposure, and a death that counts is recorded."""
    ended_at_s = stamped.at_s if fact.ended_at_s is None else fact.ended_at_s
    ran_s = 0.0 if attempt.ready_at_s is None else max(0.0, ended_at_s - attempt.ready_at_s)
    program = replace(
        program, attempt=None, exit_cause=fact.cause, exit_code=fact.code, exit_wall_s=stamped.wall_s, why=fact.why,
        exposure_s=program.exposure_s + ran_s, ended_at_s=ended_at_s,
        asked_at_s=None if attempt.stop is None else attempt.stop.asked_at_s,
        steps=program.steps if fact.steps is None else fact.steps, steps_exact=_exact(program, attempt, fact),
        began_step=program.began_step if attempt.resumed_step is None else attempt.resumed_step,
        early_ends=program.early_ends + 1 if fact.early else 0,
    )  # fmt: skip
    if fact.checkpoint_step is not None and fact.checkpoint_step > (program.ckpt_step or -1):
        program = replace(  # None: its age is unknown. The time of the previous checkpoint would be wrong.
            program, ckpt_step=fact.checkpoint_step, ckpt_at_s=fact.checkpoint_at_s, quarantined_since_ckpt=False,
            quarantined_step=None,
        )  # fmt: skip
    elif fact.checkpoint_step is not None and fact.checkpoint_step == program.ckpt_step and fact.checkpoint_at_s is not None:
        program = replace(program, ckpt_at_s=fact.checkpoint_at_s)  # it was recorded some time after it was durable
    if not fact.counted:
        return program
    return replace(
        program,
        died_after_s=ended_at_s - attempt.intended_at_s if attempt.stop is None else None,
        deaths_s=(*program.deaths_s, stamped.at_s)[-MOST_DEATHS:],
        death_resumes=(*program.death_resumes, attempt.resumed_step)[-MOST_DEATHS:],
        streak=program.streak + 1,
        torn_deaths=program.torn_deaths + attempt.from_torn,
        failures=program.failures + 1,
        restarts=program.restarts + 1,
    )
