"""Fakes at the few seams, for tests that step time instead of waiting for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from supervisor.model.facts import Stamped
from supervisor.model.inputs import Input, Sample
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import Attempt, State
from supervisor.policy.box.readings import Gpu, Gpus, Spread, Xid
from supervisor.reports.incidents import Incident, incidents
from supervisor.reports.lanes import LaneReading, Lanes
from supervisor.reports.ledger import Ledger, fold_accounts
from supervisor.reports.sources import NewestResult

READINGS = {each.name for each in fields(Sample)}


def sample(token, **told):
    """One look at a worker; what it reports and `Sample` has no field for is one of its `figures`."""
    readings = {name: told.pop(name) for name in [*told] if name in READINGS}
    return Sample(token, **readings, figures=told)


@dataclass
class FakeClock:
    """`ports.Clock` in a box whose time is an attribute. Journal time is CLOCK_BOOTTIME here: the offset is zero."""

    at_s: float = 1_000.0
    at_wall_s: float = 1_700_000_000.0

    def now_s(self) -> float:
        return self.at_s

    def wall_s(self) -> float:
        return self.at_wall_s

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9

    def to_boot_ns(self, at_s: float) -> int:
        return int(at_s * 1e9)

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        self.at_s += seconds
        self.at_wall_s += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.at_wall_s += seconds


class OneClock(FakeClock):
    """Its wall clock is journal time and `at_wall_s`, so a test may set `at_s` alone."""

    def wall_s(self) -> float:
        return self.at_wall_s + self.at_s


class ListInbox:
    """What was posted, in `items`."""

    def __init__(self) -> None:
        self.items: list[Input] = []

    def post(self, item: Input) -> None:
        self.items.append(item)


T = TypeVar("T")


@dataclass
class FakeSources:
    """`reports.sources.Sources` of a state and a journal that a test has, with one backup and one run on its disk."""

    state: State = field(default_factory=State)
    settings: Settings | None = None
    memory: Memory = field(default_factory=Memory)
    journal: Sequence[Stamped] = ()
    now_s: float = 1_000.0
    wall_s: float = 1_800_000_000.0
    alive: bool = True
    worst_gap_s: float | None = None
    version: str | None = "0.1.0"
    release: str | None = None
    state_dir: str = "/state"
    confinement: dict[str, Any] | None = None
    port: dict[str, Any] | None = None
    asked_of: Any = None

    def zone(self, wall_s: float) -> tuple[str, float]:
        return "XLT", 7200.0

    def last_sign(self) -> dict[str, Any]:
        return {} if self.alive else {"last_sign_wall_s": self.wall_s, "says": "daemon is not running"}

    def http(self) -> dict[str, Any] | None:
        return self.port

    def cgroups(self) -> dict[str, Any] | None:
        return self.confinement

    def corrected(self, program: dict[str, Any], attempt: Attempt | None) -> dict[str, Any]:
        return program if self.alive or attempt is None else {**program, "phase": "GONE"}

    def closed(self) -> tuple[Ledger, float]:
        return fold_accounts(self.journal).closed(self.now_s), self.wall_s

    def incidents(self, since_s: float, until_s: float, program: str | None, view: Callable[[Iterable[Incident]], T]) -> T:
        return view(incidents(self.journal, program))

    def lanes(self, now_s: float, since_s: float, until_s: float) -> Lanes:
        reading = LaneReading()
        for stamped in self.journal:
            reading.add(stamped)
        return reading.lanes(now_s, since_s, until_s)

    def facts(self, after_seq: int, *_: Any) -> list[Stamped]:
        return [item for item in self.journal if item.seq > after_seq]

    def of(self, _: type) -> Any:
        """The rows of a recorder: of features, it alone reads files of its own."""
        return self

    def rows(self, sheet: Any, tier: Any, since_s: float, until_s: float, subjects: Sequence[str]) -> list[Any]:
        from supervisor.features.recorder.rules.recording import Row

        self.asked_of = tier
        moments = (10.0, 20.0, 20.0, 30.0) if sheet.name == "programs" else ()
        rows = [Row(at_s, self.wall_s, ("Pong", "a"), (None,) * 3, {"env_steps": at_s}) for at_s in moments]
        return [row for row in rows if since_s <= row.at_s < until_s]

    def held(self, *_: Any) -> list[Any]:
        from supervisor.features.recorder.rules.resolution import TIERS, Held

        return [Held(0.0, 0)] * len(TIERS)

    def names(self) -> set[str]:
        return set()

    def drawn(self, program: str, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> list[Any]:
        return []

    def results(self) -> list[NewestResult]:
        return [NewestResult("Pong", "Pong", "ppo", 84, 4, 1000, 30, 12.0, 0.93)]

    def backups(self) -> list[dict[str, Any]]:
        return [{"name": "b1"}]

    def backup_progress(self) -> None:
        return None

    def check_backup(self, name: str) -> str:
        return f"there is no backup {name!r}"

    def config(self) -> dict[str, Any]:
        return {"settings": [{"key": "level.slots", "value": 2, "origin": "extralife.toml"}], "errors": []}


_TOTAL_BYTES = 81_559 * 2**20
_REASONS = {4: "sw_power_cap", 8: "hw_slowdown", 32: "sw_thermal_slowdown", 64: "hw_thermal_slowdown"}


class FakeGpu:
    """`ports.Gpu` without a driver: it plays the scenarios of tests/nvml/nvml.c, and every line is true at once."""

    def __init__(self) -> None:
        self.gpu = self
        self._lines: list[list[str]] = []

    def plays(self, *lines: str) -> None:
        self._lines = [line.split() for line in lines]

    def start(self) -> None: ...

    def close(self) -> None: ...

    def newest(self) -> Gpus | None:
        count, gpus, xids = 0, {}, []
        for key, *words in self._lines:
            if key == "hang":
                return Gpus(None, f"{words[0]} has not answered for 9s", 9.0)
            if key == "gpus":
                count = int(words[0])
                gpus = {index: _gpu(index, _TOTAL_BYTES) for index in range(count)}
            elif key == "lost":
                gpus[int(words[0])] = Gpu(int(words[0]), lost="it has fallen off the bus")
            elif key == "xid":
                xids.append(Xid(len(xids) + 1, int(words[0]), int(words[1])))
            elif key == "set":
                index, name, value = int(words[0]), words[1], int(words[2])
                if name == "free":
                    gpus[index] = _gpu(index, value)
                elif name == "reasons":
                    gpus[index] = replace(gpus[index], reasons=tuple(word for bit, word in _REASONS.items() if value & bit))
                else:
                    gpus[index] = replace(gpus[index], **{f"{name}_c": float(value)})
        return Gpus(tuple(gpus[index] for index in range(count)), xids=tuple(xids))


def _gpu(index: int, free_bytes: int) -> Gpu:
    used = float(_TOTAL_BYTES - free_bytes)
    return Gpu(
        index, f"GPU-{index}", "Fake GPU", "", _TOTAL_BYTES, free_bytes, (free_bytes,), Spread(used, used, used),
        slowdown_c=90.0, temperature_c=50.0, reasons=(),
    )  # fmt: skip
