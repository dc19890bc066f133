"""Keys that are lists of strings: the commands and choices of [alerts] and [when_done]."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection

from supervisor.config.validation import Origin, Validation, label, shown
from workers.options import nearest


def choices(validation: Validation, section: str, key: str, known: Collection[str], noun: str) -> tuple[str, ...]:
    """A list of words from `known`, without the unknown ones, which are errors. `noun` says what a word names."""
    given, name, origin = validation.table(section).get(key, []), label(section, key), validation.at(section, key)
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        validation.error(origin, f'{name} must be a list such as ["{next(iter(known))}"], not {shown(given)}')
        return ()
    for word in given:
        if word not in known:
            hint = nearest(word, known) or f"; there are {', '.join(known)}"
            validation.error(origin, f"{name}: {shown(word)} is not a {noun}{hint}")
    return tuple(dict.fromkeys(word for word in given if word in known))


def command(
    validation: Validation, section: str, example: str, absent: Callable[[Origin, str], None]
) -> tuple[str, ...]:  # fmt: skip
    """The list `command`: a program and its arguments. `absent` reports that the program is not found."""
    given, name, origin = (
        validation.table(section).get("command", []),
        f"{section}.command",
        validation.at(section, "command"),
    )
    if not isinstance(given, list) or not all(isinstance(word, str) and "\0" not in word for word in given):
        validation.error(origin, f"{name} must be a list such as {example}, not {shown(given)}")
        return ()
    if given and not given[0]:
        validation.error(origin, f"{name} names no program; write it such as {example}")
        return ()
    if given and shutil.which(given[0]) is None:
        absent(origin, f"{name}: {given[0]!r:.80} is not found, or not executable (yet)")
    return tuple(given)
