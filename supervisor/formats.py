"""Numbers, durations, moments, sizes and money for people, one format for each, in daemon and client.

Durations and money have the same rules in the dashboard (`features/dashboard/static/text.js`); a test compares them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from supervisor.wall_clock import is_set

UNKNOWN = "-"  # for every unknown value, never 0
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float | None) -> str:
    """12,345,678 is `12.3M`, 950 is `950`, 3.14159 is `3.1`: people compare up to three digits at a glance."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    for unit, letter in _UNITS:
        if size >= unit * 0.9995:  # 999.96k would be printed as 1000k
            scaled = value / unit
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            figures = f"{scaled:.{digits}f}"
            return (figures.rstrip("0").rstrip(".") if "." in figures else figures) + letter
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def signed(value: float | None) -> str:
    """A mean return, such as -18.2."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1e4 else number(value)


_SKEW_S = 300.0  # largest normal difference between two clocks that are both set


def duration(seconds: float | None) -> str:
    """Two units at most: `42s`, `1m 5s`, `3h 5m`, `2d 4h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < -_SKEW_S:  # the start lies in the future: a clock is wrong, so the duration is unknown
        return UNKNOWN
    whole = max(0, round(seconds))
    for unit, letter, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit}{letter} {rest}{smaller}" if rest else f"{whole // unit}{letter}"
    return f"{whole}s"


def span(seconds: float) -> str:
    """A time in a sentence: as `duration`, but exact below ten seconds: `2.5s`, `40ms`, `0s`."""
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.0f}ms" if seconds >= 0.001 else "<1ms"
    return f"{seconds:.1f}".removesuffix(".0") + "s" if 0 < seconds < 9.95 else duration(seconds)


def clock(seconds: float | None) -> str:
    """An uptime in Supervisor's format: `0:02:35`, `1 day, 2:03:04`. Scripts parse it with a regular expression."""
    if seconds is None:
        return UNKNOWN
    days, rest = divmod(max(0, int(seconds)), 86400)
    text = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return text if not days else f"{days} day{'s' if days > 1 else ''}, {text}"


def percent(share: float | None) -> str:
    """`89.1%`, `0.42%`, `100%`."""
    if share is None:
        return UNKNOWN
    value = 100.0 * share
    return f"{value:.0f}%" if value >= 99.95 or value == 0 else f"{value:.1f}%" if value >= 0.995 else f"{value:.2f}%"


def size(size_bytes: float | None) -> str:
    """`2.1GB`, `950B`."""
    return UNKNOWN if size_bytes is None else f"{number(round(size_bytes))}B"


def mib(size_bytes: float | None) -> str:
    """Memory of a GPU, as nvidia-smi has it: `81,559 MiB`."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / 2**20:,.0f} MiB"


def usd(value: float | None) -> str:
    """`$41.20`, `$0.139`, `$0.05`, and `<$0.001` for less."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.001:
        return "<$0.001"
    return f"${value:,.2f}" if value >= 0.9995 or value == 0 else f"${value:.3f}".removesuffix("0")


def count(many: int, noun: str) -> str:
    """`1 reboot`, `3 reboots`."""
    return f"{many} {noun}{'' if many == 1 else 's'}"


def few(names: Sequence[str], most: int = 8) -> str:
    """The first of many names. Example, `most` = 2: a, b and 12 more."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)


def when(wall_s: float | None, now_wall_s: float | None = None) -> str:
    """A moment in local time. A moment in the last half day is shown without its date."""
    if wall_s is None or not is_set(wall_s):  # recorded in a boot whose clock was not set yet
        return UNKNOWN
    near = now_wall_s is not None and 0 <= now_wall_s - wall_s < 43200
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M:%S", time.localtime(wall_s))
