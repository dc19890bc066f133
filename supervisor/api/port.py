"""What the API needs of the daemon: one published snapshot, and a few calls that may block.

The loop publishes a `Snapshot` at each turn and swaps one reference; readers never take a lock and never see half of a
turn. Everything that changes the world goes through `Backend.ask` into the inbox, so only one thread decides.

None is "not known" everywhere here; it is shown as `-`, never as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Protocol, Self

from supervisor.model.inputs import Verb

Json = dict[str, Any]
Result = tuple[str, int, str]  # program, one of `model/codes.py`, text


@dataclass(frozen=True, slots=True)
class LevelView:
    """The level in force."""

    name: str
    slots: int | None = None
    num_envs: int | None = None
    batch_size: int | None = None
    mode: str | None = None  # fixed or climb
    trial: bool = False
    pinned: bool = False
    line: str = ""  # how it stands, in one line


@dataclass(frozen=True, slots=True)
class RebootView:
    """The newest host reboot."""

    wall_s: float
    cause: str
    down_s: float | None = None
    level: str = ""
    ago_s: float | None = None


@dataclass(frozen=True, slots=True)
class DamageView:
    """The newest damage of the journal; `lost` is None when nobody can know how many facts it took."""

    wall_s: float
    error: str
    kept_as: str
    kept: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class JournalView:
    """How the record itself is: why it cannot be written (empty: it can), what it has lost."""

    error: str = ""
    error_since_wall_s: float | None = None
    damage: DamageView | None = None
    gaps: int = 0  # how often facts were lost: from then on, counts of what has happened are "at least"

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """From `core.view.journal_view`'s dict."""
        damage = view["damage"]
        return cls(**{**view, "damage": None if damage is None else DamageView(**damage)})


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The configuration cannot be used. `in_use` is the kept one in its place; empty: the settings before go on."""

    wall_s: float
    errors: tuple[str, ...]
    in_use: str
    by: str


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The daemon and the box: the header of `status`. `state` is running, stopping or reloading."""

    pid: int | None
    version: str
    state: str
    state_dir: str
    level: LevelView
    started_wall_s: float | None = None
    uptime_s: float | None = None
    config_file: str | None = None
    main_log: str | None = None
    boot_id: str = ""
    boots: int | None = None
    boot_up_s: float | None = None
    reboots_total: int | None = None
    reboots_24h: int | None = None
    last_reboot: RebootView | None = None
    box: Json | None = None  # which box this is, since when, and those before it (`core.view.box_view`)
    reboot_pattern: str = ""  # what the newest ones have in common (`policy/box/reboot_pattern.py`)
    mtbf_s: float | None = None
    journal: JournalView = JournalView()
    foundations: tuple[Json, ...] = ()  # `core.foundations.troubles_view`
    config: ConfigView | None = None
    usd_per_hour: float | None = None
    gpu: Json = field(default_factory=dict)  # `core.hardware_view.gpu_view`
    cgroups: Json | None = None  # `adapters.cgroups.Cgroups.view`, and `unmet`: a limit that nobody holds anyone to
    vetoes: tuple[Json, ...] = ()  # `core.hardware_view.vetoes_view`
    release: str | None = None  # the directory whose code it runs

    @property
    def troubles(self) -> tuple[str, ...]:
        """What keeps extralife from its work just now, one sentence each; empty: nothing."""
        journal = (f"the journal cannot be written: {self.journal.error}",) if self.journal.error else ()
        return (*journal, *(each["why"] for each in self.foundations))

    @classmethod
    def of(cls, box: Mapping[str, Any], **rest: Any) -> Self:
        """From `core.view.box_view`'s dict and whatever else is known of the daemon itself."""
        last, fault = box["last_reboot"], box["config"]
        apart = {"level", "last_reboot", "journal", "vetoes", "config"}
        known = {key: value for key, value in box.items() if key not in apart}
        return cls(
            level=LevelView(**box["level"]), last_reboot=None if last is None else RebootView(**last),
            config=None if fault is None else ConfigView(**fault),
            journal=JournalView.of(box["journal"]), vetoes=tuple(box["vetoes"]), **{**known, **rest},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramView:
    """One program as people see it; the fields of `core.view.program_view`."""

    name: str
    phase: str  # QUEUED GATED STARTING RUNNING BACKOFF STOPPING DONE STOPPED FATAL, and GONE
    wanted: str = "run"  # run or stop
    pid: int | None = None
    attempt: int | None = None
    since_wall_s: float | None = None
    uptime_s: float | None = None
    worker_phase: str | None = None
    level: str | None = None
    steps: int | None = None
    frames: int | None = None
    updates: int | None = None
    episodes: int | None = None
    mean_return: float | None = None
    loss: float | None = None
    best_return: float | None = None
    q_mean: float | None = None
    q_max_abs: float | None = None
    entropy: float | None = None
    grad_norm: float | None = None
    steps_per_s: float | None = None
    target: int | None = None
    target_kind: str | None = None  # env_steps, episodes or seconds_left (of training)
    ckpt_step: int | None = None
    ckpt_age_s: float | None = None
    interval_s: float | None = None
    restarts: int | None = None
    deaths_in_window: int | None = None
    retry_in_s: float | None = None
    slow_retry: bool = False
    eta_s: float | None = None
    why: str = ""
    proc_state: str | None = None
    num_envs: int | None = None
    batch_size: int | None = None
    lowered_batch: int | None = None  # what it gets at this level since it ran out of memory
    rollbacks: int = 0  # after a divergence or an illness
    rss_bytes: int | None = None
    pressure: dict[str, float] | None = None
    memory_bytes: int | None = None
    stdout_log: str | None = None
    stderr_log: str | None = None
    priority: int | None = None
    autostart: bool | None = None
    spawn_error: str = ""
    exit_code: int | None = None
    started_wall_s: float | None = None
    ended_wall_s: float | None = None
    time_shares: dict[str, float] | None = None  # of the training, by what it was spent on
    test_return: float | None = None  # of the newest test

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """From `core.view.program_view`'s dict. What this version of the API does not show is left out."""
        return cls(**{key: value for key, value in view.items() if key in _PROGRAM_FIELDS})


_PROGRAM_FIELDS: Final = frozenset(field.name for field in fields(ProgramView))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that `status` shows, at one moment. `wall_s` is that moment, so that a reader can tell a wedged loop."""

    daemon: DaemonView
    programs: tuple[ProgramView, ...]
    now_s: float
    wall_s: float
    worst_gap_s: float | None = None  # the longest time between two turns, of the last one to two minutes

    def program(self, name: str) -> ProgramView | None:
        return next((view for view in self.programs if view.name == name), None)

    def to_json(self) -> Json:
        return asdict(self)


class Backend(Protocol):
    """The daemon's side. Only `snapshot` is called on the server's own thread; everything else may block a while."""

    def snapshot(self) -> Snapshot:
        """The newest published snapshot. Never blocks."""
        ...

    def page(self, name: str, query: Mapping[str, str]) -> Json:
        """A page of `reports.pages.PAGES`, made now. Raises BadQuery, and what reading its sources raises."""
        ...

    def ask(self, verb: Verb, names: Sequence[str], signal: str, by: str, uid: int | None, timeout_s: float) -> list[Result]:
        """Post a request and wait for its reply, at most `timeout_s`; then FAILED with a text that says so.

        `names` are existing program names at the time of the call; `signal` is a full name such as SIGHUP. When the
        daemon ends, every waiting call returns at once. RELOAD of a configuration that cannot be used is refused with
        CANT_REREAD and every mistake.
        """
        ...

    def reread(self) -> Json:
        """What `update` would do: {"added": [..], "changed": [..], "removed": [..]} or {"errors": [sentence, ..]}.

        Besides, what it would change without a restart: `live` programs, and `sections` such as `[level]`.
        """
        ...

    def update(self, names: Sequence[str], *, dry_run: bool, by: str, uid: int | None) -> Json:
        """The same, with "applied": bool. No names: all. A section is named as `[level]`."""
        ...

    def remove(self, name: str, by: str, uid: int | None) -> None:
        """Take a program out of what is supervised; the file stays as it is, so an update brings it back."""
        ...

    def configured(self) -> list[Json]:
        """Every program of the file (of what is supervised, when the file is wrong): its settings by name."""
        ...

    def ask_backups(self, verb: Verb, text: str, names: Sequence[str], by: str, uid: int | None, timeout_s: float) -> Result:
        """BACKUP with a label, ROLLBACK with a backup's name; no names: all. Answered once it is begun, or refused.

        The result's name, and of a rollback its text, is that by which the page of backups tells how it ended.
        """
        ...

    def pin(self, level: str | None, for_s: float | None, by: str, uid: int | None, timeout_s: float) -> Result:
        """Pin a level for so long (None: until further notice), or, with None, end the pin: (level, code, text)."""
        ...

    def test_alerts(self) -> list[Json]:
        """Send one to every target now: {"target", "ok", "error", "took_s"} of each. Takes up to `alerts.timeout_s`."""
        ...
