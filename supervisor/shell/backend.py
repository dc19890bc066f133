"""The daemon's side of the API (`api/port.py`, `Backend`). It answers from published references and through the inbox.

At each turn the loop publishes immutable values by swapping one reference. The requesting thread builds the snapshot for
people from them. So a turn costs nothing while nobody looks, and two requests never interfere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import field, replace
from typing import Any, Final

import structlog

from supervisor import config, image
from supervisor.adapters import stdin
from supervisor.adapters.presence import corrected
from supervisor.adapters.state_files import StateFiles
from supervisor.adapters.summaries import Summaries
from supervisor.adapters.threads import OneAtATime
from supervisor.api.port import Json, Result
from supervisor.formats import span
from supervisor.model.codes import BAD_NAME, CANT_REREAD, FAILED, NO_FILE, NOT_RUNNING, SUCCESS
from supervisor.model.inputs import Asked, ConfigFaulty, ConfigLoaded, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import Settings
from supervisor.model.state import Attempt, State
from supervisor.ports import Clock
from supervisor.records import Record
from supervisor.reports import view
from supervisor.reports.ledger import Ledger
from supervisor.reports.pages import pages
from supervisor.reports.sources import Sources
from supervisor.shell.inbox import Inbox
from supervisor.shell.loop import Loop
from supervisor.shell.replies import Replies

log = structlog.get_logger()

_WINDOW_S: Final = 60.0
_CHECK_AGAIN_S: Final = 1.0
_APPLY_S: Final = 60.0  # a stalled disk delays a turn; then the caller gets the answer that it may still happen


class Published(Record):
    """The values that the loop published at the end of its newest turn."""

    settings: Settings
    state: State
    memory: Memory
    now_s: float
    wall_s: float
    worst_gap_s: float | None = None
    newest_fact: int = 0
    made: dict[str, Json] = field(default_factory=dict, compare=False)  # cached pages; the first request builds each


class DaemonBackend:
    def __init__(
        self, inbox: Inbox, replies: Replies, clock: Clock, loaded: config.Loaded, reload: Callable[[], config.Loaded],
        version: str, shows: Mapping[str, Callable[[], Any]] | None = None,
        acts: Mapping[str, Callable[[], Json]] | None = None, cgroups: Callable[[], Json] = dict,
        next_image: Callable[[], list[str]] = list, keep_config: Callable[[config.Loaded], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """`reload` reads the configuration again, as at the start. It raises config.ConfigError.

        `next_image` returns the reasons why the image that a reload would start could not start. `keep_config` keeps a
        good configuration.
        """
        self._inbox, self._replies, self.clock = inbox, replies, clock
        self.loaded, self._load, self.version = loaded, reload, version
        self._next_image, self._keep_config = OneAtATime(next_image), keep_config
        self._published: Published | None = None
        self._gap_window_s = 0.0  # start of the current minute
        self._worst_gap_s = self._worst_gap_before_s = 0.0
        self.shows, self.acts, self.cgroups = shows or {}, acts or {}, cgroups
        self.http: Callable[[], Json | None] = lambda: None  # set later: the API is opened last
        self.summaries = Summaries(loaded.settings.paths.journal, writes=True)

    def publish(self, loop: Loop) -> None:
        """Called by the deciding thread at the end of each turn.

        An idle loop turns with each sample, and at least every few seconds. A gap of much more than that shows how a hanging
        disk, a flood of inputs or a busy box delays decisions. The worst of this minute and the one before is published.
        """
        now_s, gap_s = self.clock.now_s(), None
        if self._published is None:
            self._gap_window_s = now_s
        else:
            if now_s - self._gap_window_s >= _WINDOW_S:
                self._gap_window_s, self._worst_gap_before_s, self._worst_gap_s = now_s, self._worst_gap_s, 0.0
            self._worst_gap_s = max(self._worst_gap_s, now_s - self._published.now_s)
            gap_s = max(self._worst_gap_s, self._worst_gap_before_s)
        self._published = Published(
            loop.settings, loop.state, loop.memory, now_s, self.clock.wall_s(), gap_s, loop.journal.last_seq
        )  # fmt: skip

    def page(self, name: str, query: Mapping[str, str]) -> Json:
        sources, page = Running(self._newest(), self), pages()[name]
        if not page.instant:
            return page.of(sources, query)
        made = sources.published.made
        if name not in made:
            made[name] = page.of(sources, query)
        return made[name]

    def turn(self) -> object:
        return self._published

    def newest_fact(self) -> int:
        return self._newest().newest_fact

    def sources(self) -> Sources:
        return Running(self._newest(), self)

    def _newest(self) -> Published:
        if self._published is None:
            raise RuntimeError("nothing is published yet: the API is started after the first turn")
        return self._published

    def ask(self, verb: Verb, names: Sequence[str], signal: str, by: str, uid: int | None, timeout_s: float) -> list[Result]:
        if verb is Verb.RELOAD and (errors := self._reload_errors(timeout_s)):
            log.critical("reload_refused", by=by, errors=errors)
            self._inbox.post(ConfigFaulty(self.clock.now_s(), tuple(errors), by=by))
            return [("", CANT_REREAD, "; ".join(errors))]
        return self._answer(Asked(self.clock.now_s(), verb, 0, tuple(names), signal, by, uid), names, timeout_s)

    def request(
        self, verb: Verb, text: str, names: Sequence[str], by: str, uid: int | None, timeout_s: float,
        for_s: float | None = None,
    ) -> Result:  # fmt: skip
        request = Asked(self.clock.now_s(), verb, 0, tuple(names), "", by, uid, text, for_s)
        about = names[0] if verb is Verb.PIN else text
        return self._only(self._answer(request, [about], timeout_s), about)

    def _answer(self, request: Asked | ConfigLoaded, about: Sequence[str], timeout_s: float) -> list[Result]:
        """The deciding thread's answer. At a timeout, each name of `about` has failed. Empty if the thread has ended."""
        number, waiting = self._replies.open()
        self._inbox.post(replace(request, request_id=number))
        try:
            return list(waiting.result(timeout_s))
        except FutureTimeout:
            self._replies.forget(number)
            return [
                (name, FAILED, f"no answer within {span(timeout_s)}; the request may still be carried out") for name in about
            ]

    @staticmethod
    def _only(results: Sequence[Result], about: str) -> Result:
        return results[0] if results else (about, FAILED, "extralife has ended")

    def _reload_errors(self, timeout_s: float) -> list[str]:
        """Why the daemon would not survive a reload. Empty if it would, or if it is stopping: then its loop answers.

        A check that lacks descriptors or memory says nothing about the next image: it is repeated until `timeout_s`.
        """
        until_s = self.clock.now_s() + timeout_s
        while True:
            published = self._published
            if published is not None and (published.state.stopping or published.memory.ended):
                return []
            try:
                return self._next_image()
            except OSError as error:
                if self.clock.now_s() >= until_s:
                    return [f"the next image cannot be checked: {error.strerror or error}"]
                log.warning("reload_waits", error=str(error))
                time.sleep(_CHECK_AGAIN_S)

    def read_config(self) -> config.Loaded:
        try:
            return self._load()
        except OSError as error:  # for lack of descriptors or memory
            raise config.ConfigError([f"the configuration cannot be read now: {error}; try again"]) from error

    def reread(self) -> Json:
        try:
            new = self.read_config()
        except config.ConfigError as error:
            return {"errors": list(error.errors)}
        changes = config.diff(self._newest().settings, new.settings)
        return {
            "added": list(changes.added), "changed": list(changes.changed), "removed": list(changes.removed),
            "live": list(changes.live), "sections": list(changes.sections),
        }  # fmt: skip

    def update(self, names: Sequence[str], *, dry_run: bool, by: str, uid: int | None) -> Json:
        changes = self.reread()
        if "errors" in changes or dry_run:
            return {**changes, "applied": False}
        try:
            new = self.read_config()
        except config.ConfigError as error:  # the file was edited between the two reads
            return {"errors": list(error.errors), "applied": False}
        running = self._newest()
        if running.memory.trouble is not None:
            message = f"refused, because the journal cannot be written ({running.memory.trouble.error})"
            return {"errors": [message], "applied": False}
        settings = config.applicable(running.settings, new.settings)
        self._keep_config(new)
        waits = config.diff(running.settings, new.settings).restart
        changed = tuple(
            (key, f"{change} at its next start" if key in waits else change)
            for key, change in config.differences(self.loaded, new)
        )
        _, code, text = self._apply(ConfigLoaded(self.clock.now_s(), settings, tuple(names), by, uid, changed=changed))
        if code != SUCCESS:
            return {"errors": [text], "applied": False}
        self.loaded = config.merged(self.loaded, new, tuple(names), waits)
        if names:
            changes = {key: [name for name in value if name in names] for key, value in changes.items()}
        return {**changes, "applied": True}

    def remove(self, name: str, by: str, uid: int | None) -> Result:
        settings = self._newest().settings
        settings = replace(settings, programs=tuple(spec for spec in settings.programs if spec.name != name))
        return self._apply(ConfigLoaded(self.clock.now_s(), settings, (name,), by, uid, of_file=False))

    def _apply(self, change: ConfigLoaded) -> Result:
        """Returns once the settings are in use and published, so that the caller's next request cannot see the old ones."""
        return self._only(self._answer(change, [""], _APPLY_S), "")

    def configured(self) -> list[Json]:
        running = self._newest().settings
        try:
            settings = config.applicable(running, self.read_config().settings)
        except config.ConfigError:
            settings = running
        active = {spec.name for spec in running.programs}
        return [view.spec_view(spec, settings, in_use=spec.name in active) for spec in settings.programs]

    def send_stdin(self, name: str, data: bytes) -> Result:
        published = self._newest()
        program = published.state.programs.get(name)
        if program is None:
            return name, BAD_NAME, "no such program"
        attempt, spec = program.attempt, published.settings.program(name)
        if (
            attempt is None
            or attempt.shim_pid is None
            or attempt.shim_start_ticks is None
            or program.phase is Phase.STOPPING
        ):
            return name, NOT_RUNNING, "not running"
        try:
            stdin.send(attempt.shim_pid, attempt.shim_start_ticks, data)
        except stdin.NoInput:
            more = "" if spec is not None and spec.stdin else ": set stdin = true in its section of the configuration"
            return name, NO_FILE, f"{name} has no standard input{more}"
        except OSError as error:
            return name, FAILED, f"cannot write to the standard input of {name}: {error.strerror or error}"
        return name, SUCCESS, "sent"


class Running(StateFiles):
    """`reports.sources.Sources` of a running daemon: the last published values of its loop, and the files on its disk."""

    alive: Final = True
    release: Final = image.RELEASE

    def __init__(self, published: Published, daemon: DaemonBackend) -> None:
        super().__init__(published.settings.paths, daemon.summaries)
        self.published = published
        self.settings, self.state, self.memory = published.settings, published.state, published.memory
        self.now_s, self.wall_s, self.worst_gap_s = published.now_s, published.wall_s, published.worst_gap_s
        self.version, self.cgroups, self.http = daemon.version, daemon.cgroups, daemon.http
        self._daemon, self.state_dir = daemon, self.paths.state_dir

    def last_sign(self) -> Json:
        return {}

    def corrected(self, program: Json, attempt: Attempt | None) -> Json:
        """The view of a program, corrected while the journal cannot be written: no end of a worker is recorded then."""
        return program if self.memory.trouble is None else corrected(program, attempt, rebooted=False)

    def up_to_now(self, ledger: Ledger) -> tuple[Ledger, float]:
        return ledger.closed(self._daemon.clock.now_s()), self._daemon.clock.wall_s()

    def backup_progress(self) -> Json | None:
        progress: Json | None = self._daemon.shows.get("backups", lambda: None)()
        return progress

    def config(self) -> Json:
        return config.listed(self._daemon.loaded, self.settings, self._daemon.read_config)
