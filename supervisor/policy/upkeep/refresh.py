"""How often a live picture is rendered again: the stream of the page `status`, and the screen of `top`.

The rule. Once a second, or less often if that would take more than `share` of a core. The CPU time of the newest
rendering decides, so a box with many programs or a slow core renders less often. At least every five seconds: an older
picture is not live.

Worked example, with a share of 0.25 %: a rendering that took 2 ms of CPU is repeated after 1 s, 8 ms after 3.2 s, 100 ms
after 5 s.
"""

from __future__ import annotations

# No `Final`: `top` imports this before its first frame, and typing takes a tenth of that time.
SHORTEST_S = 1.0
LONGEST_S = 5.0


def period_s(took_s: float, share: float) -> float:
    """Seconds until the next rendering. `took_s`: CPU of the newest one; `share`: the part of a core that all may use."""
    return min(max(SHORTEST_S, took_s / share), LONGEST_S)
