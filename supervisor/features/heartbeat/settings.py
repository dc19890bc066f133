"""[heartbeat]: the services that get pings (`rules.py`)."""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record


class HeartbeatSettings(Record):
    """`url` has the lines of `urls_file` too, once both are read. They are secrets."""

    url: str = key(
        "", "where pings go: healthchecks.io, Uptime Kuma, Better Stack, Cronitor or any other; empty: nowhere",
        form='an address such as "https://hc-ping.com/UUID"', is_shown=False,
    )  # fmt: skip
    urls_file: str = key("", "file with more of them, one per line, that only its owner may read (mode 0600)")
    every_s: float = key(60.0, "time between two pings; let the service wait for three", low=5)


SECTIONS: Final = {"heartbeat": HeartbeatSettings}
