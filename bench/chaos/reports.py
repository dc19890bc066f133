"""Reports of the daemon: facts over its API, its log, its status. They are only compared with the injected faults."""

from __future__ import annotations

import http.client
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from chaos.world import World

Row = dict[str, Any]
_NEWEST = 400


class Reports(threading.Thread):
    """Collects every fact once, as soon as it is readable. A new journal is read from its beginning."""

    def __init__(self, world: World) -> None:
        super().__init__(name="reports", daemon=True)
        self._world = world
        self._over = threading.Event()
        self._seen: set[tuple[Any, ...]] = set()
        self.rows: list[Row] = []

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.read()

    def read(self) -> None:
        if self._world.systemd.alive() is None:
            return
        try:
            code, answer = self._world.request("GET", f"/api/v1/facts?limit=-{_NEWEST}", timeout_s=5.0)
        except (OSError, http.client.HTTPException):
            return
        if code != 200 or not isinstance(answer, dict):
            return
        for row in answer["facts"]:
            key = row["seq"], row["kind"], row["at_s"], row["wall_s"]
            if key not in self._seen:
                self._seen.add(key)
                self.rows.append(row | {"received_s": time.monotonic()})

    def close(self) -> None:
        self._over.set()
        self.join()


@dataclass(slots=True)
class View:
    """The reports about an injection's subject since that injection."""

    world: World
    reports: Reports
    program: str
    from_row: int
    from_byte: int
    claimed: set[int]  # ids of rows that are the report of an earlier injection
    answers: list[str] = field(default_factory=list)  # answers to the fault's own requests
    statuses: list[str] = field(default_factory=list)  # answers of `status` since the injection

    def fact(self, kind: str, *, why: str = "", of_program: bool = True, **fields: Any) -> str | None:
        """The text of the first unclaimed fact of that kind with these fields; the fact is then claimed."""
        for row in self.reports.rows[self.from_row :]:
            if row["kind"] != kind or (of_program and row["program"] != self.program) or id(row) in self.claimed:
                continue
            if all(row["fields"].get(key) == value for key, value in fields.items()) and re.search(why, row["why"]):
                self.claimed.add(id(row))
                return f"{kind}: {row['why']}"
        return None

    def log(self, pattern: str) -> str | None:
        """The first matching line of the daemon's log since the injection."""
        with self.world.daemon_log.open("rb") as file:
            file.seek(self.from_byte)
            text = file.read().decode(errors="replace")
        found = re.search(f".*(?:{pattern}).*", text)
        return None if found is None else f"log: {found[0][:300]}"

    def answered(self, pattern: str) -> str | None:
        """The first matching answer to the fault's own requests, or output of its process."""
        found = next((text for text in self.answers if re.search(pattern, text)), None)
        return None if found is None else f"answer: {found[:300]}"

    def shown(self, pattern: str) -> str | None:
        """The first match in an answer of `status`."""
        found = next((each for text in self.statuses if (each := re.search(f'[^"]*(?:{pattern})[^"]*', text))), None)
        return None if found is None else f"status: {found[0][:300]}"

    def anywhere(self, pattern: str) -> str | None:
        """The first match in a fact about the daemon or the program, in the log, in an answer or in `status`."""
        for row in self.reports.rows[self.from_row :]:
            if re.search(pattern, f"{row['kind']} {row['why']}") and row["program"] in {None, self.program}:
                return f"{row['kind']}: {row['why']}"
        return self.log(pattern) or self.answered(pattern) or self.shown(pattern)
