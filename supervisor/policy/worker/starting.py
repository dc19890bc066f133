"""The verdict when a program with `start_retries` ends before it counts as started (Supervisor's startsecs, startretries).

The rule. A program counts as started once it has lived for `start_s`. An end before that, whatever its exit code, is a
failed start. The start is tried again after 1, 2, 3 ... s. After `start_retries` failed retries in a row the program is
given up (FATAL). A program that has started begins at zero again; [restart] judges its later deaths.

Worked example with `start_s = 1`, `start_retries = 3`: a web server finds its port taken. Its starts at 0, 1, 3 and 6 s
fail at once; after the fourth it is FATAL, and `status` ends with 3.

Why not for every program: a training whose disk is full for an hour at night would be given up, and nobody is awake to
start it again. A user who sets `start_retries` wants a failed start to be reported.
"""

from __future__ import annotations


def is_early(*, lived_s: float, start_s: float | None, start_retries: int | None) -> bool:
    """Whether this end counts as a failed start."""
    return start_retries is not None and start_s is not None and lived_s < start_s


def after_early_end(failures: int, start_retries: int) -> float | None:
    """Seconds until the next start after so many failed ones in a row (this one included); None: it is given up."""
    return None if failures > start_retries else float(failures)
