"""Formats for human readers: numbers, durations, times, colours. Also makes untrusted text printable.

Unknown is `-` everywhere, never 0.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
import unicodedata
from collections.abc import Container, Iterable, Sequence

from supervisor.formats import UNKNOWN, clock, count, duration, mib, number, percent, signed, size, usd, when
from supervisor.printable import printable

__all__ = [  # and the names defined here
    "UNKNOWN", "clock", "count", "duration", "mib", "number", "percent", "printable", "signed", "size", "usd", "when",
]  # fmt: skip

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "dim": "2", "bold": "1"}


def wall_s() -> float:
    """The time of day, for display only: the age of an event, and whether a snapshot is old."""
    return time.time()  # noqa: TID251  no decision uses it


def pause(seconds: float) -> None:
    """Sleep between two looks at something that sends no event: a file of a program, a page of the daemon."""
    select.select([], [], [], seconds)


def pause_while_read(seconds: float) -> None:
    """Sleep while standard output has a reader. Raises BrokenPipeError as soon as it has none.

    A follower that has nothing to write would otherwise not notice a closed terminal, and run for ever.
    """
    if reader_left(seconds):
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")


def reader_left(within_s: float = 0.0) -> bool:
    """Whether standard output has lost its reader: its pipe is closed at the other end, or its terminal is gone."""
    watcher = select.poll()
    watcher.register(sys.stdout.fileno(), 0)  # request no event; poll always reports hang-up and error
    return bool(watcher.poll(within_s * 1000.0))


def is_screen() -> bool:
    """Whether standard output is a terminal on which a page can be drawn in place."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def clip(text: str, columns: int) -> str:
    """`text` in at most `columns`, with an ellipsis at the end if it was cut."""
    if width(text) <= columns:
        return text
    kept = text
    while kept and width(kept) > columns - 1:
        kept = kept[:-1]
    return f"{kept}…" if columns > 0 else ""


def middle(text: str, columns: int) -> str:
    """`text` in at most `columns`, with an ellipsis in its middle if it was cut: the ends of names differ."""
    if width(text) <= columns:
        return text
    head = clip(text, columns // 2)
    end = ""
    while width(text[len(text) - len(end) - 1 :]) <= columns - width(head):
        end = text[len(text) - len(end) - 1 :]
    return head + end


def pad(text: str, columns: int, *, right: bool = False) -> str:
    gap = " " * max(0, columns - width(text))
    return gap + text if right else text + gap


def columns() -> int | None:
    """The width of the terminal on standard output; None: it is no terminal, so lines may have any length."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except OSError:
        return None


def fit(lines: Iterable[str], columns: int | None) -> list[str]:
    """The lines, those wider than the terminal broken between words. A longer word, such as a path, stays whole."""
    if columns is None:
        return list(lines)
    import textwrap  # not needed by most

    wrapper = textwrap.TextWrapper(columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    filled = ("".join(char + "\0" * (width(char) - 1) for char in line) for line in lines)  # as many characters as columns
    parts = (part for line in filled for part in ([line] if len(line) <= columns or "\x1b" in line else wrapper.wrap(line)))
    return [part.replace("\0", "") for part in parts]


def table(
    rows: Sequence[Sequence[str]], right: Container[int] = (), leave: Sequence[str] = (), columns: int | None = None
) -> list[str]:
    """Rows of cells as lines, in columns of equal width; `right` are the numbers of right-aligned columns.

    While they are wider than the terminal (`columns`), the columns with the titles of `leave` are left out, in that order.
    """
    widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
    shown = [*range(len(widths))]
    for title in leave:
        if columns is None or sum(widths[place] + 2 for place in shown) - 2 <= columns:
            break
        shown.remove([*rows[0]].index(title))
    return ["  ".join(pad(row[place], widths[place], right=place in right) for place in shown).rstrip() for row in rows]


class Paint:
    """Colours for a terminal. There are none with NO_COLOR (no-color.org), with TERM=dumb, or without a tty."""

    def __init__(self, *, on: bool) -> None:
        self.on = on and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.on and colour else text
