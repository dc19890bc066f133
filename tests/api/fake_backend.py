"""A daemon as the API sees it, without a daemon: programs that change when a test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes import FakeSources

from supervisor.api.port import Json, Result, StatusPage
from supervisor.model.codes import ALREADY_STARTED, BAD_NAME, FAILED, NO_FILE, NOT_RUNNING, SUCCESS
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold_all
from supervisor.model.inputs import Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.state import Program, State
from supervisor.reports.pages import Since, pages
from supervisor.reports.results_view import NewestResult
from supervisor.reports.status_view import status_view
from supervisor.reports.view import program_view

WALL_S = 1_763_700_000.0  # 2025-11-21 04:40 UTC


_PROGRAM = dict.fromkeys(program_view(Program("", Phase.QUEUED, 0.0, 0.0, ""), None, None, State(), now_s=0.0))
_DAEMON = status_view(FakeSources())["daemon"]


def known_to(page: Json, **known: Any) -> Json:
    """A part of the page with other values. Keys that the page has not are a mistake of the test."""
    assert known.keys() <= page.keys(), known.keys() - page.keys()
    return page | known


def program(name: str, phase: str = "RUNNING", **known: Any) -> Json:
    base: Json = {"wanted": "run", "slow_retry": False, "why": "", "rollbacks": 0, "spawn_error": ""}
    base |= {"level": "light", "restarts": 0, "attempt": 1, "priority": 100, "autostart": True}
    if phase in {"STARTING", "RUNNING", "STOPPING"}:
        base |= {"pid": 4242, "uptime_s": 155.0}
    return known_to(_PROGRAM, name=name, phase=phase, **(base | known))


def daemon(**known: Any) -> Json:
    base: Json = {
        "pid": 1234, "version": "0.1.0", "state": "running", "state_dir": "/var/lib/extralife",
        "level": known_to(_DAEMON["level"], name="light", slots=2, num_envs=32, batch_size=512),
        "started_wall_s": WALL_S - 11525, "uptime_s": 11525.0,
        "boot_id": "b" * 32, "boots": 4, "boot_up_s": 50531.0, "reboots_total": 3, "reboots_24h": 3,
        "last_reboot": reboot(WALL_S - 50531), "mtbf_s": 22320.0,
    }  # fmt: skip
    return known_to(_DAEMON, **(base | known))


def reboot(wall_s: float) -> Json:
    return {"wall_s": wall_s, "cause": "unclean", "down_s": 190.0, "level": "light", "ago_s": None}


def journal(**known: Any) -> Json:
    return known_to(_DAEMON["journal"], **known)


@dataclass
class _Sources(FakeSources):
    """With the rows of a recorder and the newest tests."""

    recorded: Sequence[Any] = ()
    tested: Sequence[NewestResult] = ()

    def rows(self, sheet: Any, tier: Any, since_s: float, until_s: float, subjects: Any) -> list[Any]:
        rows = (row for row in self.recorded if len(row.keys) == len(sheet.keys) and since_s <= row.at_s < until_s)
        return [row for row in rows if not subjects or row.keys[0] in subjects]

    def names(self) -> set[str]:
        return {row.keys[1] for row in self.recorded if len(row.keys) == 3}

    def results(self) -> list[NewestResult]:
        return [*self.tested]


@dataclass
class FakeBackend:
    """Fills `api.port.Backend`. `on_ask` decides what a request does; by default it does what was asked at once."""

    programs: dict[str, Json] = field(default_factory=dict)
    header: Json = field(default_factory=daemon)
    journal: list[Stamped] = field(default_factory=list)
    alerted: Json = field(default_factory=lambda: {"targets": [], "queue": [], "held": [], "deliveries": []})
    tried: list[Json] = field(default_factory=list)
    asked: list[tuple[Verb, tuple[str, ...], str, str, int | None]] = field(default_factory=list)
    changes: Json = field(default_factory=lambda: {"added": [], "changed": [], "removed": []})
    settings: list[Json] = field(default_factory=list)
    updates: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    removed: list[tuple[str, str, int | None]] = field(default_factory=list)
    file: list[Json] = field(default_factory=list)
    refusal: list[Result] = field(default_factory=list)  # of a reload
    gate: threading.Event | None = None  # an ask waits for it
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    tested: list[NewestResult] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)  # of the recorder
    reported: Json = field(default_factory=dict)
    windows: list[Since] = field(default_factory=list)  # for which a report was asked
    backed_up: list[Json] = field(default_factory=list)
    ends: list[Json] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    error: Exception | None = None
    wall_s: float | None = None
    now_s: float = 1000.0  # journal time of the newest turn; for the tests' servers it is always 1000 s
    input: list[tuple[str, bytes]] | None = None  # what was sent; None: no program has a standard input
    ladder: Json = field(default_factory=lambda: {"level": "light", "pin": None, "levels": [{"name": "light"}]})
    pins: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, *views: Json) -> None:
        self.programs |= {view["name"]: view for view in views}

    def change(self, name: str, **known: Any) -> None:
        self.programs[name] = known_to(self.programs[name], **known)

    def turn(self) -> object:
        return self.journal

    def snapshot(self) -> StatusPage:
        return StatusPage(self)

    def page_status(self) -> Json:
        views = [self.programs[name] for name in sorted(self.programs)]
        wall_s = time.time() if self.wall_s is None else self.wall_s
        return {"daemon": self.header, "programs": views, "now_s": self.now_s, "wall_s": wall_s, "worst_gap_s": None}

    def ask(self, verb: Verb, names: Any, signal: str, by: str, uid: int | None, timeout_s: float) -> list[Result]:
        if self.error is not None:
            raise self.error
        self.asked.append((verb, tuple(names), signal, by, uid))
        self.waiting.release()
        if self.gate is not None:
            assert self.gate.wait(timeout_s)
        return list(self.refusal) if verb is Verb.RELOAD else [self.do(verb, name) for name in names]

    def do(self, verb: Verb, name: str) -> Result:
        view = self.programs[name]
        up = view["phase"] in {"STARTING", "RUNNING"}
        match verb:
            case Verb.START if up:
                return (name, ALREADY_STARTED, "already started")
            case Verb.START | Verb.RESTART:
                self.change(name, phase="RUNNING", pid=4300, attempt=(view["attempt"] or 0) + 1)
                return (name, SUCCESS, "started")
            case Verb.STOP | Verb.SIGNAL if not up:
                return (name, NOT_RUNNING, "not running")
            case Verb.STOP:
                self.change(name, phase="STOPPED", pid=None)
                return (name, SUCCESS, "stopped")
            case Verb.CLEAR:
                return (name, SUCCESS, "cleared")
            case _:
                return (name, SUCCESS, "signalled")

    def request(
        self, verb: Verb, text: str, names: Any, by: str, uid: int | None, timeout_s: float, for_s: float | None = None
    ) -> Result:  # fmt: skip
        if verb in {Verb.PIN, Verb.UNPIN}:
            return self._pin(names[0] if names else None, for_s, by, uid)
        self.asked.append((verb, tuple(names), text, by, uid))
        if verb is Verb.ROLLBACK and text == "busy":
            return (text, FAILED, "a rollback to b is under way; wait for its end")
        name = "20261121-033000"
        self.ends.append(
            {"name": name, "ok": text != "bad", "text": f"backup {name} {'failed' if text == 'bad' else 'is whole'}"}
        )
        return (name, SUCCESS, "begun") if verb is Verb.BACKUP else (text, SUCCESS, name)

    def page(self, name: str, query: Any) -> Json:
        """What the test has said of it, or what the page makes of the journal and the rows."""
        said = getattr(self, f"page_{name}", None)
        made: Json = pages()[name].of(self.sources(), query) if said is None else said(**pages()[name].arguments(query))
        return made

    def sources(self) -> FakeSources:
        """At 1000 s, or at the newest fact."""
        at_s, wall_s = (self.journal[-1].at_s, self.journal[-1].wall_s) if self.journal else (1000.0, WALL_S)
        now_s = max(at_s, 1000.0)
        known = {"journal": self.journal, "now_s": now_s, "wall_s": wall_s + now_s - at_s}
        return _Sources(fold_all(self.journal), recorded=self.rows, tested=self.tested, **known)

    def newest_fact(self) -> int:
        return self.journal[-1].seq if self.journal else 0

    def page_backups(self, check: str | None) -> Json:
        if check is not None:
            return {"name": check, "error": "Pong: state.json does not match its digest" if check == "bad" else ""}
        return {"backups": self.backed_up, "making": [], "rollback": None, "progress": None, "ends": self.ends}

    def reread(self) -> Json:
        return {"live": [], "sections": [], **self.changes}

    def update(self, names: Any, *, dry_run: bool, by: str, uid: int | None) -> Json:
        self.updates.append((tuple(names), dry_run))
        self.add(*(program(name, "QUEUED", attempt=0) for name in names if name in self.changes["added"]))
        return {**self.reread(), "applied": not dry_run}

    def remove(self, name: str, by: str, uid: int | None) -> Result:
        self.removed.append((name, by, uid))
        del self.programs[name]
        return "", 80, ""

    def configured(self) -> list[Json]:
        return self.file

    def page_config(self) -> Json:
        return {"settings": self.settings}

    def page_level(self) -> Json:
        return self.ladder

    def _pin(self, level: str | None, for_s: float | None, by: str, uid: int | None) -> Result:
        if self.error is not None:
            raise self.error
        if level not in {None, "light", "heavy"}:
            return (str(level), BAD_NAME, f"no such level: {level}; there are light, heavy")
        self.pins.append((level, for_s, by, uid))
        return (level or "light", SUCCESS, "done")

    def send_stdin(self, name: str, data: bytes) -> Result:
        if name not in self.programs:
            return name, BAD_NAME, "no such program"
        if self.programs[name]["pid"] is None:
            return name, NOT_RUNNING, "not running"
        if self.input is None:
            return name, NO_FILE, f"{name} has no standard input: set stdin = true in its section of the configuration"
        self.input.append((name, data))
        return name, SUCCESS, "sent"

    def page_alerts(self) -> Json:
        return self.alerted

    @property
    def acts(self) -> dict[str, Callable[[], Json]]:
        return {"alerts/test": lambda: self.test_alerts()}  # noqa: PLW0108  tests replace it later

    def test_alerts(self) -> Json:
        if self.error is not None:
            raise self.error
        return {"tried": self.tried}

    @staticmethod
    def window(since: str) -> Since:
        made: Since = pages()["report"].arguments({"since": since})["since"]
        return made

    def page_report(self, since: Since, until: Since) -> Json:
        self.windows.append(since)
        return self.reported
