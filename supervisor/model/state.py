"""The state: what the journal's facts come to (`fold.py`).

The state is a fold over the journal and nothing else. So the same code serves after a crash of the daemon, an upgrade, a
host reboot, and in a replay by a test. Volatile data (newest beats, pending requests) is *not* here, but in `memory.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from supervisor.discovery import Extended, extended
from supervisor.model.counts import Counts
from supervisor.model.lifecycle import Phase
from supervisor.policy.box.reboot_pattern import Struck, pattern
from supervisor.policy.worker.intervention import Intervention
from supervisor.policy.worker.loss import furthest
from supervisor.policy.worker.restart import Deaths
from supervisor.policy.worker.suspects import Suspicion
from supervisor.records import Record, replace


class Slowness(Record):
    """An attempt is slow. `step`: the step at which it stands still; `made`: the steps of this attempt until then.

    `anew`: it was never as fast as earlier attempts. `warning`: the last warning in its output, once that was read.
    """

    at_s: float
    why: str
    step: int | None = None
    made: int | None = None
    anew: bool = False
    warning: str = ""

    @property
    def words(self) -> str:
        return f"{self.why}; its last warning: {self.warning}" if self.warning else self.why


class Stop(Record):
    """extralife asked the attempt to leave."""

    reason: str
    asked_at_s: float
    grace_s: float
    killed_at_s: float | None = None
    kills: int = 0
    not_ended: str = ""  # why SIGKILL has not ended it; empty: not known


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
    gpus: tuple[int, ...] = ()  # on which it has held memory
    resumed_step: int | None = None
    resumed_at_s: float | None = None
    steps_before: int = 0  # its own count of steps begins anew after so many
    resume_unknown: bool = False  # a fact says that the step at which it resumed is unknown
    from_path: str | None = None  # its own newest whole checkpoint at its start, empty for none; None: not looked at
    from_step: int | None = None  # the step of that checkpoint
    from_sure: bool = False  # it surely resumes from that checkpoint
    stall: str | None = None
    stalled_at_s: float | None = None
    examined: bool = False
    at_exit: bool = False  # its stacks showed the interpreter's exit
    quiet_at_s: float | None = None  # since then it works without a sign of progress
    reports: tuple[str, ...] = ()  # keys of the reports that are facts already
    fine_step: int | None = None  # last step before it diverged or became sick
    illnesses: tuple[str, ...] = ()  # present illnesses
    ill: str = ""  # the illness because of which it is ended ...
    illness_action: str = ""  # ... and the action afterwards
    slow: Slowness | None = None
    save_error: str = ""  # why its last checkpoint could not be written ...
    save_failed_step: int | None = None  # ... and at which step
    rest: str = ""  # processes that outlived its command: `background` or `ended` (`facts.CommandGone`); empty: neither
    stop: Stop | None = None

    def saves_again(self, step: int) -> bool:
        """Whether a checkpoint at this step shows that saves succeed again after a failed one."""
        return self.save_error != "" and (self.save_failed_step is None or step >= self.save_failed_step)


class Checkpoint(Record):
    """The newest durable checkpoint of a program. `at_s` is None if its age is not known.

    `stall_s`: for so long the newest save blocked the training. `path`: of the newest whole one that it wrote itself.
    `quarantined`: a newer one was to be set aside, that of `quarantined_step`; a resume from there shows that it was not.
    `roll_from`: those from this step on are to be set aside before the next start. `bad`: paths of the newest damaged ones.
    """

    step: int | None = None
    at_s: float | None = None
    stall_s: float | None = None
    path: str = ""
    size_bytes: int | None = None
    quarantined: bool = False
    quarantined_step: int | None = None
    roll_from: int | None = None
    bad: tuple[str, ...] = ()

    def wrote(self, step: int | None, at_s: float | None) -> Checkpoint:
        """With a newer one."""
        return replace(self, step=step, at_s=at_s, quarantined=False, quarantined_step=None)


class LastExit(Record):
    """How the newest attempt ended. `at_s` may be before the daemon noticed; `asked_at_s` is None if it was not asked."""

    cause: str = ""
    code: int | None = None
    signal: int | None = None
    wall_s: float | None = None
    at_s: float | None = None
    asked_at_s: float | None = None
    why: str = ""
    looked: bool = False  # at its start, a look had found which of its own checkpoints lay there


class AtLevel(Record):
    """What the attempts of a program have shown at a level; None: not known."""

    gpu_bytes: int | None = None  # the largest measured memory, on its GPU ...
    host_bytes: int | None = None  # ... and on the host
    batch_size: int | None = None  # its lowered batch, after it ran out of memory
    rate: float | None = None  # its usual steps a second
    save_gap_s: float | None = None  # the usual time between two checkpoints that it writes itself


class Counting(Record):
    """How the steps of a program are to be read. `exact`: they were read after its newest attempt had ended.

    `began_step`: the step at which the attempt that computed them had begun. `steps_before`: the own count of the newest
    attempt with a known resume, started at `since_s`, began anew after so many.
    """

    exact: bool = False
    began_step: int | None = None
    steps_before: int = 0
    since_s: float = 0.0


class Starts(Record):
    """How the starts of a program went. `has_run`: a process of its present configuration has run.

    `failures` in a row could not start a process, the newest for this `error`. `early_ends` in a row ended before they
    counted as started: its `start_retries` counts them.
    """

    error: str = ""
    failures: int = 0
    has_run: bool = False
    early_ends: int = 0


class Retry(Record):
    """When a program in BACKOFF is started again. `slow`: it fails again and again, so it keeps no slot until then."""

    at_s: float | None = None
    slow: bool = False


def _by_level(former: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`Program.by_level` of an earlier release, which had three lists."""
    found: dict[str, dict[str, Any]] = {}
    for each in (*former.get("needs", ()), *former.get("usuals", ())):
        found.setdefault(each["level"], {}).update(each)
    for level, batch_size in former.get("batches", ()):
        found.setdefault(level, {})["batch_size"] = batch_size
    return found


@dataclass(frozen=True)
class Program:
    name: str
    phase: Phase
    since_s: float
    since_wall_s: float
    digest: str
    wanted: bool = True
    attempts: int = 0
    attempt: Attempt | None = None
    started_wall_s: float | None = None  # of the newest attempt
    retry: Retry = field(default_factory=Retry)
    slot_since_s: float | None = None  # since then it has had its slot, restarts and reboots included
    interrupted: bool = False  # queued because its process was ended for an outside reason: a reboot, an update, a restart
    deaths: Deaths = field(default_factory=Deaths)
    restarts: int = 0
    steps: int | None = None  # the last known position in environment steps
    rate: float | None = None  # steps a second, as last reported
    counting: Counting = field(default_factory=Counting)
    mean_return: float | None = None  # the last one of its ended attempts
    ckpt: Checkpoint = field(default_factory=Checkpoint)
    suspicion: Suspicion = field(default_factory=Suspicion)
    rollbacks: int = 0
    gpus: tuple[int, ...] | None = None  # GPUs of its newest attempt on one, empty: not shown by NVML; None: never on one
    gpu_lost: str = ""  # it waits for its lost GPU, or looks for it again: who found that (`policy/box/lost_gpu.py`)
    by_level: dict[str, AtLevel] = field(default_factory=dict)
    service: bool = False  # it uses no slot and is no training
    own_digest: str = ""  # digest of its settings without those of the level; empty: unknown
    interval_s: float | None = None
    gaps_s: tuple[tuple[str, float], ...] = ()
    exposure_s: float = 0.0
    why: str = ""
    exit: LastExit = field(default_factory=LastExit)
    starts: Starts = field(default_factory=Starts)
    short_ends: tuple[int, ...] = ()  # steps of ends below its target, none beyond the first (`policy/script/finish.py`)
    interventions: tuple[Intervention, ...] = ()  # the newest of each kind
    counts: Counts = field(default_factory=Counts)
    FORMER: ClassVar = {  # the fields of a nested record, in their order, by their names here in earlier releases
        "deaths": "deaths_s streak openings dead_end died_after_s",
        "ckpt": "ckpt_step ckpt_at_s ckpt_stall_s ckpt_path ckpt_bytes quarantined_since_ckpt quarantined_step "
        "roll_from bad_checkpoints",
        "exit": "exit_cause exit_code exit_signal exit_wall_s ended_at_s asked_at_s",
        "retry": "retry_at_s slow",
        "counting": "steps_exact began_step steps_before counts_since_s",
        "starts": "spawn_error spawn_failures has_run early_ends",
        "by_level": _by_level,
    }

    @property
    def takes_level(self) -> bool:
        """Whether it uses settings of the level. A program that uses none is no evidence about the level."""
        return self.own_digest != ""

    @property
    def waits_for_gpu(self) -> bool:
        """Whether it waits for its lost GPU now."""
        return self.gpu_lost != "" and self.phase is Phase.GATED

    def came_to(self, steps: int | None) -> int | None:
        """Its step at the end of an attempt. Without its own `steps`: that of earlier ones, or of the newest checkpoint."""
        return furthest(self.steps, self.ckpt.step) if steps is None else steps

    def gap_s(self, phase: str) -> float | None:
        """The largest healthy gap seen in a phase."""
        return dict(self.gaps_s).get(phase)

    def at(self, level: str) -> AtLevel:
        return self.by_level.get(level, AtLevel())

    def pace_level(self, level: str) -> str:
        """The level by which its usual rate is kept: empty for a program that uses no setting of a level."""
        return level if self.takes_level else ""

    def gpu_bytes(self, level: str) -> int | None:
        """The most GPU memory that it held with the settings of this level; None: none is known."""
        held = (each.gpu_bytes for name, each in self.by_level.items() if name == level or not self.takes_level)
        return max((size for size in held if size is not None), default=None)


class LevelRecord(Record):
    up_s: float = 0.0
    reboots: int = 0
    uptimes_s: tuple[float, ...] = ()


class Veto(Record):
    """A pre-check that forbids every level above `cap`, a level's name."""

    rule: str
    cap: str
    why: str
    since_s: float
    since_wall_s: float


class GpuRecord(Record):
    """The record of the GPUs. `most`: the largest number this box ever had; `unknown_since_s`: unreadable since then.

    `models`: the names of the GPUs to which the record of levels belongs.
    """

    count: int | None = None
    most: int = 0
    lost: tuple[int, ...] = ()
    unknown_since_s: float | None = None
    models: tuple[str, ...] = ()


class Pin(Record):
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


class Reboot(Record):
    """One host reboot, for `status` and `reboots`."""

    at_s: float
    wall_s: float
    cause: str
    down_s: float | None
    up_s: float | None
    level: str
    sign_wall_s: float | None = None  # the last sign of life before it


class Box(Record):
    """The box to which the recorded levels and reboots belong."""

    hostname: str
    witnesses: dict[str, str]
    since_s: float
    since_wall_s: float
    outlived: int = 0  # reboots that its machine-id has survived


class FormerBox(Record):
    """A box that this state directory was on before, with its record."""

    hostname: str
    since_wall_s: float
    until_wall_s: float
    reboots: int
    levels: dict[str, LevelRecord]


class Damage(Record):
    """The newest damage of the journal, for `status`. `lost`: number of lost facts; None: unknown."""

    wall_s: float
    error: str
    kept_as: str
    kept: int
    lost: int | None


class ConfigFault(Record):
    """The configuration cannot be used. `in_use` is the saved one used instead; empty: the present settings stay."""

    wall_s: float
    errors: tuple[str, ...]
    in_use: str
    by: str


@extended("record", "RECORDS")
@dataclass(frozen=True)
class State(Extended):
    """The whole state: the fold of all facts in the journal, with the records of features (`state.of(BackupRecord)`)."""

    at_s: float = 0.0
    wall_s: float = 0.0
    boot_id: str = ""
    boots: int = 0
    salt: str = ""
    daemon_pid: int | None = None
    daemon_since_wall_s: float | None = None
    daemon_since_s: float | None = None
    restarts_s: tuple[float, ...] = ()  # when a daemon last restarted itself of its own accord
    stopping: bool = False
    clean: bool | None = None  # whether the last daemon ended in order, or was asked to; None: there was none yet
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
    gpus: GpuRecord = field(default_factory=GpuRecord)
    vetoes: dict[str, Veto] = field(default_factory=dict)  # by rule
    damage: Damage | None = None
    config: ConfigFault | None = None  # as long as the configuration is refused
    gaps: int = 0  # how often a damaged journal lost facts: with one or more, all counts are "at least"

    def cap(self, levels: Sequence[str]) -> tuple[int, str] | None:
        """The highest of these levels (by index, the lightest is 0) that no veto forbids, and why; None: all are allowed.

        A veto that names a level which is not on the ladder any more has no effect.
        """
        caps = [(levels.index(veto.cap), f"{veto.rule}: {veto.why}") for veto in self.vetoes.values() if veto.cap in levels]
        return min(caps, default=None)

    def reboot_pattern(self, now_s: float) -> str:
        """The pattern of the reboots on record, in one clause; empty when there is none."""
        struck = [Struck(each.at_s, each.level, each.up_s) for each in self.reboots if each.cause == "unclean"]
        return pattern(struck, now_s=now_s)

    @property
    def live(self) -> dict[str, Program]:
        return {name: program for name, program in self.programs.items() if program.attempt is not None}
