"""When a daemon that was asked to shut down ends although jobs may still run.

The rule: each job is asked to save and leave, and the daemon waits until all have ended, as long as the cluster answers.
If the cluster is unreachable (two calls in a row have failed, or none has succeeded for 25 s), the daemon ends without them
`PATIENCE_S` after the request, and names the jobs that are left. SIGTERM ends it at once. The next daemon adopts these jobs
and asks them again.

Worked example: asked at 100 s, and the controller has been away since 40 s: the daemon ends at 115 s.

Why not wait for the controller: it may be away for days, and the daemon's own job, or the user at the terminal, would wait
with it.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 15.0


def ends_at_s(*, asked_at_s: float, unreachable_since_s: float | None) -> float | None:
    """When the daemon ends without its jobs; None: it waits for them, because the cluster answers."""
    return None if unreachable_since_s is None else max(asked_at_s + PATIENCE_S, unreachable_since_s)
