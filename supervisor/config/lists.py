"""Keys that are lists of strings: the commands and choices of [alerts], [when_done] and programs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence

from supervisor.config.validation import Origin, Section, shown
from workers.options import nearest


def choices(section: Section, key: str, words: Sequence[str], known: Collection[str], noun: str) -> tuple[str, ...]:
    """A list of words from `known`, without the unknown ones, which are errors. `noun` says what a word names."""
    for word in words:
        if word not in known:
            hint = nearest(word, known) or f"; there are {', '.join(known)}"
            section.refuse(key, f": {shown(word)} is not a {noun}{hint}")
    return tuple(dict.fromkeys(word for word in words if word in known))


def check_command(section: Section, words: Sequence[str], example: str, absent: Callable[[Origin, str], None]) -> None:
    """Check the list `command`: a program and its arguments. `absent` reports that the program is not found."""
    if words and not words[0]:
        section.refuse("command", f"names no program; write it such as {example}")
    elif words and shutil.which(words[0]) is None:
        absent(section.at("command"), f"{section.label('command')}: {words[0]!r:.80} is not found, or not executable (yet)")
