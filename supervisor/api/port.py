"""What the API needs of the daemon: its pages, and a few calls that may block.

The loop publishes what pages are made of at each turn and swaps one reference; readers never take a lock and never see half
of a turn. Everything that changes the world goes through `Backend.ask` into the inbox, so only one thread decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from supervisor.model.inputs import Verb
from supervisor.reports.exposition import Family

Json = dict[str, Any]
Result = tuple[str, int, str]  # program, one of `model/codes.py`, text


class StatusPage:
    """The page `status`, as the API itself reads it."""

    def __init__(self, backend: Backend) -> None:
        page = backend.page("status", {})
        self.daemon: Json = page["daemon"]
        self.programs: Sequence[Json] = page["programs"]
        self.wall_s: float = page["wall_s"]
        self.worst_gap_s: float | None = page["worst_gap_s"]

    def program(self, name: str) -> Json | None:
        return next((view for view in self.programs if view["name"] == name), None)


class Backend(Protocol):
    """The daemon's side. Only an instant page is made on the server's own thread; everything else may block a while."""

    def page(self, name: str, query: Mapping[str, str]) -> Json:
        """A page of `reports.pages.PAGES`. Raises BadQuery, and what reading its sources raises.

        Until the loop turns, an instant page without a query is one and the same object: nobody may change it.
        """
        ...

    def newest_fact(self) -> int:
        """The number of the newest fact that the pages are made of."""
        ...

    def turn(self) -> object:
        """Another object after each turn of the loop: what was made of the same one is still true."""
        ...

    def metrics(self) -> list[Family]:
        """What monitoring is shown (`reports/metrics_view.py`). It reads no disk."""
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
        """The same, with "applied": bool, once the new settings are in force. No names: all. A section is `[level]`."""
        ...

    def remove(self, name: str, by: str, uid: int | None) -> Result:
        """Take a program out of what is supervised; the file stays as it is, so an update brings it back."""
        ...

    def configured(self) -> list[Json]:
        """Every program of the file (of what is supervised, when the file is wrong): its settings by name."""
        ...

    def ask_backups(self, verb: Verb, text: str, names: Sequence[str], by: str, uid: int | None, timeout_s: float) -> Result:
        """BACKUP with a label, ROLLBACK with a backup's name, OFFSITE with what to do; no names: all.

        Answered once it is begun, or refused.

        The result's name, and of a rollback its text, is that by which the page of backups tells how it ended.
        """
        ...

    def pin(self, level: str | None, for_s: float | None, by: str, uid: int | None, timeout_s: float) -> Result:
        """Pin a level for so long (None: until further notice), or, with None, end the pin: (level, code, text)."""
        ...

    def send_stdin(self, name: str, data: bytes) -> Result:
        """Write to a program's standard input: (name, code, text). A program that does not read it may take seconds."""
        ...

    def test_alerts(self) -> list[Json]:
        """Send one to every target now: {"target", "ok", "error", "took_s"} of each. Takes up to `alerts.timeout_s`."""
        ...
