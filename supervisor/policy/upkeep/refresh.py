"""How often a live picture is made anew: the stream of the page `status`, and the screen of `top`.

The rule. Once a second, or less often where that would take more than `share` of a core. The cost of the newest one decides,
so a box with many programs or a slow core is shown less often. Every five seconds at the least: an older picture is not
live.

Worked example, with a share of 0.4 %: one that took 2 ms of CPU is made anew after 1 s, 8 ms after 2 s, 100 ms after 5 s.

Why not a period by the number of programs: what one costs depends on the core, and on what there is to tell of each.
"""

from __future__ import annotations

# No `Final`: `top` imports this before its first frame, and typing takes a tenth of that time.
SHORTEST_S = 1.0
LONGEST_S = 5.0


def period_s(took_s: float, share: float) -> float:
    """Seconds until the next one. `took_s`: CPU of the newest one; `share` of a core is what all may take together."""
    return min(max(SHORTEST_S, took_s / share), LONGEST_S)
