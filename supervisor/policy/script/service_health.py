"""When a running service is unhealthy by its `health` checks, and is restarted.

The rule. A check asks every `every_s`: a page over HTTP, a TCP port, or a command. It fails when the answer is an error,
or does not come within `timeout_s`. A service is unhealthy after `failures` failed checks in a row, if a check has
succeeded since its start, or `grace_s` have passed since then: a service that is still starting is not unhealthy. The
daemon then takes evidence, stops it and starts it again, as it does with a training that hangs. The end counts as a death
for [restart].

A check that could not be made (the name is not resolved, the command is missing) proves nothing: unknown is not
unhealthy. It neither ends nor extends a row of failures.

Worked example with the defaults (30 s, 5 s, 3 failures, 60 s): TensorBoard answers from second 12 on. It deadlocks at
10:00:00; checks fail at 10:00:05, 10:00:40 and 10:01:15: it is stopped then.

Why not after one failed check: a page that takes 6 s once a day is no reason to lose a notebook's kernels.
"""

from __future__ import annotations

from typing import Final

from supervisor.keys import key
from supervisor.records import Record

UNHEALTHY: Final = "unhealthy"


class HealthCheck(Record):
    """`health = { ... }` of a service. One of the first three is set. Times in seconds."""

    http: str = key("", "URL that answers", form="a URL such as http://127.0.0.1:6006/")
    tcp: str = key("", "port that accepts connections", form="HOST:PORT such as 127.0.0.1:5432")
    command: tuple[str, ...] = key((), "command that ends with 0", form="a command, a string or a list of strings")
    every_s: float = key(30.0, "time between two checks", low=0.1)
    timeout_s: float = key(5.0, "longest time for an answer", low=0.1)
    failures: int = key(3, "failed checks in a row after which it is restarted", high=1000)
    grace_s: float = key(60.0, "time after its start in which failures do not count", low=0)

    @property
    def asks(self) -> str:
        """The URL, port or command that is asked, for messages."""
        return self.http or self.tcp or " ".join(self.command)


class Checked(Record):
    """The results of one service's checks so far. Times are journal time."""

    failures: int = 0  # in a row, the newest included
    failing_since_s: float | None = None
    error: str = ""  # of the newest failed check
    ok_at_s: float | None = None  # when a check last succeeded
    unknown: str = ""  # why the newest check could not be made


def unhealthy(check: HealthCheck, found: Checked, *, now_s: float, spawned_at_s: float) -> str:
    """Why the service is unhealthy, as a sentence; empty: it is healthy, or too little is known."""
    if found.failures < check.failures:
        return ""
    if found.ok_at_s is None and now_s - spawned_at_s < check.grace_s:
        return ""
    return f"{found.failures} health checks in a row failed ({check.asks}): {found.error}"
