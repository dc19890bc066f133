"""From when on a program that sends neither beats nor notifications counts as RUNNING.

The rule. Such a program does not report that it is ready, and a line in its log may be the warning of an import. It
counts as RUNNING from its first sign of progress or of work on, once it has lived

* for `settle_s` (10 s), and
* for a tenth longer than its previous attempt, if that one died within `start_s` (120 s) of its start, and this one's own
  output has not shown two different steps (or its speed, which is known from two).

Worked example: a script imports for 15 s, prints two warnings and dies, again and again. Its first attempt counts as
RUNNING from 10 s to 15 s. All others are STARTING for their 15 s and then back off: a crash looper is never shown as a
training.

Why not the first line of its log: `pygame` prints a greeting, TensorFlow six warnings. Why not a fixed time alone: imports
take one second or sixty.
"""

from __future__ import annotations

_LONGER = 1.1


def ready_after_s(*, settle_s: float, start_s: float, died_after_s: float | None) -> float:
    """The lowest age in seconds. `died_after_s`: how long the previous attempt lived; None: it did not die."""
    if died_after_s is None or died_after_s > start_s:
        return settle_s
    return max(settle_s, _LONGER * died_after_s)
