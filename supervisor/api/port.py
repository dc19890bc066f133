"""The interface between the API and the daemon: pages, and a few calls that may block.

In each turn, the loop publishes the data of the pages by swapping one reference. Readers never take a lock and never see
half of a turn. Every request that changes something goes through `Backend.ask` into the inbox, so only one thread decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from supervisor.model.inputs import Verb
from supervisor.reports.exposition import Family

Json = dict[str, Any]
ASK_WAIT_S: Final = 600.0  # longest wait for the reply to a request, unless the client gives its own
Result = tuple[str, int, str]  # program, one of `model/codes.py`, text


class StatusPage:
    """The page `status`, as the API itself reads it."""

    def __init__(self, backend: Backend) -> None:
        page = backend.page("status", {})
        self.daemon: Json = page["daemon"]
        self.programs: Sequence[Json] = page["programs"]
        self.wall_s: float = page["wall_s"]
        self.now_s: float = page["now_s"]
        self.worst_gap_s: float | None = page["worst_gap_s"]

    def program(self, name: str) -> Json | None:
        return next((view for view in self.programs if view["name"] == name), None)


class Backend(Protocol):
    """The daemon's side. Only instant pages are made in the server's own thread; everything else may block for a while."""

    acts: Mapping[str, Callable[[], Json]]  # what features do at a request, by its page: `alerts/test`

    def page(self, name: str, query: Mapping[str, str]) -> Json:
        """A page of `reports.pages.pages`. Raises BadQuery, and any error from reading its sources.

        During one loop turn, an instant page without a query is always the same object: callers must not modify it.
        """
        ...

    def newest_fact(self) -> int:
        """The number of the newest fact that the pages contain."""
        ...

    def turn(self) -> object:
        """An object that each loop turn replaces. Anything computed under the same object is still valid."""
        ...

    def metrics(self) -> list[Family]:
        """The metrics for monitoring (`reports/metrics_view.py`). Reads no disk."""
        ...

    def ask(self, verb: Verb, names: Sequence[str], signal: str, by: str, uid: int | None, timeout_s: float) -> list[Result]:
        """Post a request and wait for its reply, at most `timeout_s`; after that, return FAILED with a text that says so.

        `names` are existing program names at the time of the call; `signal` is a full name such as SIGHUP. When the
        daemon ends, every waiting call returns at once. RELOAD of an invalid configuration is refused with CANT_REREAD
        and every mistake.
        """
        ...

    def reread(self) -> Json:
        """What `update` would do: {"added": [..], "changed": [..], "removed": [..]} or {"errors": [sentence, ..]}.

        It also lists the changes that need no restart: `live` programs, and `sections` such as `[level]`.
        """
        ...

    def update(self, names: Sequence[str], *, dry_run: bool, by: str, uid: int | None) -> Json:
        """The same with "applied": bool, once the new settings are in force. No names: all. Sections are named `[level]`."""
        ...

    def remove(self, name: str, by: str, uid: int | None) -> Result:
        """Stop supervising a program. The configuration file does not change, so an update adds the program again."""
        ...

    def configured(self) -> list[Json]:
        """The settings by name of every program of the file. If the file is invalid: of every supervised program."""
        ...

    def request(
        self, verb: Verb, text: str, names: Sequence[str], by: str, uid: int | None, timeout_s: float,
        for_s: float | None = None,
    ) -> Result:  # fmt: skip
        """A request with one result, once the work has begun or is refused.

        BACKUP with a label, ROLLBACK with a backup's name; no names: all programs. The page of backups later shows the
        outcome under the result's name; for a rollback, under the result's text. OFFSITE or WHEN_DONE with an action. PIN
        with a level as its name, for `for_s` (None: until further notice); UNPIN.
        """
        ...

    def send_stdin(self, name: str, data: bytes) -> Result:
        """Write to a program's standard input: (name, code, text). May take seconds if the program does not read."""
        ...
