"""How things are written for people: numbers, durations, times, colours; and how strange text is made harmless.

Unknown is `-` everywhere, never 0.
"""

from __future__ import annotations

import os
import select
import time
import unicodedata

UNKNOWN = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "dim": "2", "bold": "1"}


def wall_s() -> float:
    """The time of day, for people: how long ago something was, and whether a snapshot is old."""
    return time.time()  # noqa: TID251  nothing is decided by it


def pause(seconds: float) -> None:
    """Between two looks at something that cannot be awaited: a file of a program, a page of the daemon."""
    select.select([], [], [], seconds)


def number(value: float | None) -> str:
    """12,345,678 is `12.3M`, 950 is `950`, 3.14159 is `3.1`: three figures are what one compares at a glance."""
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
    """A mean return: -18.2."""
    return (
        UNKNOWN
        if value is None
        else f"{value:.2f}"
        if abs(value) < 10
        else f"{value:.1f}"
        if abs(value) < 1e4
        else number(value)
    )


def duration(seconds: float | None) -> str:
    """Two units at most: `42s`, `1m 5s`, `3h 5m`, `2d 4h`."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    for unit, letter, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit}{letter} {rest}{smaller}" if rest else f"{whole // unit}{letter}"
    return f"{whole}s"


def clock(seconds: float | None) -> str:
    """An uptime as Supervisor writes it: `0:02:35`, `1 day, 2:03:04`. Scripts read it with a pattern."""
    if seconds is None:
        return UNKNOWN
    days, rest = divmod(max(0, int(seconds)), 86400)
    text = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return text if not days else f"{days} day{'s' if days > 1 else ''}, {text}"


def when(wall_s: float | None, now_wall_s: float | None = None) -> str:
    """A moment in local time; only the time of day when it lies less than half a day back."""
    if wall_s is None:
        return UNKNOWN
    near = now_wall_s is not None and 0 <= now_wall_s - wall_s < 43200
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M:%S", time.localtime(wall_s))


def size(size_bytes: float | None) -> str:
    return UNKNOWN if size_bytes is None else f"{number(size_bytes)}B"


def harmless(text: object, *, lines: bool = False) -> str:
    """Text that came from a program, with everything that a terminal would obey made visible.

    A worker's last words may hold escape sequences that move the cursor, set the title or hide what follows. With
    `lines`, line ends and tabs stay as they are.
    """
    found = str(text)
    if found.isprintable():
        return found
    if lines:
        found = found.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else " " if char in "\n\t\r" else _visible(char)
        for char in found
    )


def _visible(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def clip(text: str, columns: int) -> str:
    """`text` in at most `columns`, with an ellipsis where something was left out."""
    if width(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width(kept + char) > columns - 1:
            break
        kept += char
    return f"{kept}…" if columns > 0 else ""


def pad(text: str, columns: int, *, right: bool = False) -> str:
    gap = " " * max(0, columns - width(text))
    return gap + text if right else text + gap


class Paint:
    """Colours, if the terminal is to have them: NO_COLOR (no-color.org), TERM=dumb and anything but a tty have none."""

    def __init__(self, *, on: bool) -> None:
        self.on = on and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.on and colour else text
