"""When to start a program again after its attempt died.

The rule, for deaths that count (crash, stall, lost; never a host reboot, an operator's stop or a config change):

1. **Backoff** by the streak of deaths since the program was last healthy: the first restart is immediate, then 1, 2, 4 ...
   seconds up to a maximum of five minutes.
2. **Forgiveness**: `healthy_s` of *progress* (not of being alive) ends the streak and closes the breaker.
3. **Breaker** over a sliding window: with `window_deaths` deaths in the last `window_s`, however long each attempt had
   lived, the program goes into slow retry: one trial start half an hour later, then an hour, two ... up to six hours. It
   stays there until a trial is healthy. It is never given up.
4. **Progress**: an attempt that has written a checkpoint beyond the one it began with restarts at once, however often, and
   closes the breaker: each start brings the training forward. After the
   second death two starts are five seconds apart.

Worked example with the defaults, a program that dies as soon as it is started: deaths at 0, 0, 1, 3, 7, 15, 31 and 63 s,
because restarts come after 0, 1, 2, 4, 8, 16 and 32 s; the eighth death inside the hour opens the breaker: next start in
30 min, then in 60 min, and so on.

**A start that creates no process** (no more processes or open files, a full disk) is the box's fault, not the program's. It
is no death, and neither the streak nor the breaker counts it. It is tried again after 1, 2, 4 ... seconds up to five
minutes, without end. Example: for a minute no fork succeeds; tries at 0, 1, 3, 7, 15, 31 and 63 s, and the last one runs.

**A program's own `restart`** says after which ends it starts again: `failed` (every end that does not mean "finished"),
`always` (also "finished", for a service or a job that must run again and again) or `never` (then it is EXITED). An end that
means "finished" is no death, whatever its number. The next start follows at once, but five seconds after the last start at
the earliest: a job that ends in 0.1 s must neither use a core nor fill the journal. Example: `always`, and a job that takes
an hour and ends with 0: the next begins at once, for ever.

**A program with `start_retries`** (Supervisor's startsecs, startretries) counts as started once it has lived for `start_s`.
An end before that, whatever its exit code, is a failed start. It is tried again after 1, 2, 3 ... s; after `start_retries`
failed retries in a row the program is given up (FATAL), because its user wants that reported. Example, `start_s = 1`,
`start_retries = 3`: a web server finds its port taken. Its starts at 0, 1, 3 and 6 s fail at once; then it is FATAL.

Why not count only quick deaths, as supervisord does (those within `startsecs`, one second): a program that lives two
seconds, or imports torch for fifteen and then runs out of memory, is restarted at full speed for ever.
"""

from __future__ import annotations

from typing import Final

from supervisor.formats import span
from supervisor.keys import key
from supervisor.records import Record, replace

FAILED, ALWAYS, NEVER = "failed", "always", "never"
RESTARTS: Final = (FAILED, ALWAYS, NEVER)  # a program's `restart`
_STARTS_APART_S: Final = 5.0
_MOST_DOUBLINGS: Final = 64  # beyond any cap; keeps 2.0 ** n finite
STARTS_BEFORE_ALERT: Final = 6  # in a row that fail, over half a minute: a disk that is mounted late is there by then
MOST_DEATHS: Final = 64  # deaths kept for each program: a larger `window_deaths` would never be reached


class RestartSettings(Record):
    """`[restart]` in the config. All times in seconds."""

    first_delay_s: float = key(0.0, "wait after the first death since the program was healthy", low=0)
    base_delay_s: float = key(1.0, "wait after the second death; it grows from there", up_to="max_delay_s")
    factor: float = key(2.0, "growth of the wait from one death to the next", low=1, high=100)
    max_delay_s: float = key(300.0, "longest wait before the breaker opens")
    healthy_s: float = key(600.0, "after this much progress, earlier deaths no longer count")
    window_s: float = key(3600.0, "the breaker counts deaths in a window of this length")
    window_deaths: int = key(
        8, "number of deaths in the window that opens the breaker: one trial start at a time", high=MOST_DEATHS
    )
    slow_retry_s: float = key(1800.0, "wait before the first trial start; it doubles with each", up_to="slow_retry_max_s")
    slow_retry_max_s: float = key(6 * 3600.0, "longest wait between two trial starts")
    poison_deaths: int = key(3, "number of deaths in a row after resuming from one checkpoint that sets it aside")


class DeadEnd(Record):
    """The newest deaths of one kind in a row: the same cause and exit status, and none got beyond the step of the first."""

    cause: str
    status: int | None  # a negative one is a signal
    step: int
    count: int = 1


class Deaths(Record):
    """The deaths of a program that count, since it was last healthy. `at_s`: the newest ones.

    `openings`: how often the breaker has opened. `lived_s`: how long its last attempt lived; None: it did not die by itself.
    """

    at_s: tuple[float, ...] = ()
    streak: int = 0
    openings: int = 0
    dead_end: DeadEnd | None = None
    lived_s: float | None = None

    def after(self, at_s: float, *, lived_s: float | None, saved: bool, kind: tuple[str, int | None], step: int) -> Deaths:
        """With one more death of this kind at this step. `saved`: its attempt has brought the training forward."""
        before = Deaths(streak=self.streak, dead_end=self.dead_end) if saved else self
        end = DeadEnd(*kind, step)
        known = self.dead_end
        if known is not None and (known.cause, known.status) == kind and step <= known.step:
            end = replace(known, count=known.count + 1)
        return Deaths((*before.at_s, at_s)[-MOST_DEATHS:], before.streak + 1, before.openings, end, lived_s)

    @property
    def is_dead_end(self) -> bool:
        """Whether even a trial start of the slow retry died as the death before it, and no later one got further."""
        return self.dead_end is not None and self.dead_end.count > 1 and self.openings > 1


class RestartVerdict(Record):
    """Start again after `delay_s`; `slow` says that the breaker is open and this will be a single trial."""

    delay_s: float
    slow: bool
    why: str


def after_death(
    settings: RestartSettings, deaths: Deaths, *, now_s: float, saved: bool = False, lived_s: float = _STARTS_APART_S
) -> RestartVerdict:
    """The verdict after the last of these deaths. `saved`: its attempt wrote a new checkpoint; it lived for `lived_s`."""
    streak, openings = deaths.streak, deaths.openings
    if saved and streak > 1:
        delay_s = max(settings.first_delay_s, after_clean_end(lived_s))
        when = f"in {span(delay_s)}" if delay_s else "at once"
        return RestartVerdict(delay_s, slow=False, why=f"it has saved since its start: restarts {when}")
    recent = len(recent_deaths(settings, now_s, deaths.at_s))
    if openings or recent >= settings.window_deaths:
        doublings = min(openings, _MOST_DOUBLINGS)
        delay_s = min(settings.slow_retry_max_s, settings.slow_retry_s * 2.0**doublings)
        reason = (
            f"the trial start died too (slow retry {openings + 1})"
            if openings
            else f"{recent} deaths in the last {span(settings.window_s)}"
        )
        return RestartVerdict(delay_s, slow=True, why=f"{reason}: one trial start after {span(delay_s)}")
    if streak <= 1:
        return RestartVerdict(settings.first_delay_s, slow=False, why="first death since it was healthy: restarts at once")
    doublings = min(streak - 2, _MOST_DOUBLINGS)
    delay_s = min(settings.max_delay_s, settings.base_delay_s * settings.factor**doublings)
    return RestartVerdict(delay_s, slow=False, why=f"death {streak} since it was healthy: restarts in {span(delay_s)}")


def after_clean_end(lived_s: float) -> float:
    """Seconds to wait after an end that means "finished", with `restart = "always"`, or of an attempt that has saved."""
    return max(0.0, _STARTS_APART_S - lived_s)


def after_failed_start(settings: RestartSettings, failures: int) -> float:
    """Seconds to wait after `failures` starts in a row that created no process."""
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    return min(settings.max_delay_s, settings.base_delay_s * settings.factor**doublings)


def is_early(*, lived_s: float, start_s: float | None, start_retries: int | None) -> bool:
    return start_retries is not None and start_s is not None and lived_s < start_s


def after_early_end(failures: int, start_retries: int) -> float | None:
    """Seconds until the next start after so many failed ones in a row (this one included); None: it is given up."""
    return None if failures > start_retries else float(failures)


def recent_deaths(settings: RestartSettings, now_s: float, deaths_s: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(at_s for at_s in deaths_s if now_s - at_s <= settings.window_s)
