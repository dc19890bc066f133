"""Collects the results of one load: every error, every warning, and the origin of each value.

All errors are reported at once: an operator who edits a configuration at midnight needs one list, not one error per try.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from supervisor.printable import printable
from supervisor.records import Record

DEFAULT: Final = "default"
FILE: Final = "file"
ENVIRONMENT: Final = "environment"
FLAG: Final = "flag"
DERIVED: Final = "derived"

_BARE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_SENTENCE: Final = 600
_SHOWN_VALUE: Final = 80


class ConfigError(Exception):
    """The configuration cannot be used; `errors` holds every reason, one sentence each."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


class Origin(Record):
    """Where a value came from: `default`, `extralife.toml:7`, `environment RL_LR`, `flag --slots`, `cores / slots`."""

    kind: str
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.kind == FILE:
            return self.name if self.line is None else f"{self.name}:{self.line}"
        if self.kind == DERIVED:
            return self.name
        if self.kind == DEFAULT:
            return f"default of {self.name}" if self.name else "default"
        return f"{self.kind} {self.name}"

    @property
    def place(self) -> str:
        """The beginning of an error message."""
        if self.kind == FILE and self.line is not None:
            return f"{self.name}, line {self.line}"
        return f"environment variable {self.name}" if self.kind == ENVIRONMENT else str(self)


class Source(Record):
    """One parsed configuration file, or the embedded default. `is_kept`: the last good one replaces a bad one."""

    where: str
    path: str | None
    body: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]
    text: str = ""
    is_kept: bool = False
    added: Mapping[str, str] = field(default_factory=dict)  # a program that `extralifectl run` added -> its file


@dataclass(slots=True)
class Validation:
    """The results of one load so far. The default replaces a refused value, so that the check can continue."""

    source: Source
    look: bool = True  # whether files that the configuration names are read and checked: other users may not read them
    starting: bool = False  # at the daemon's own start, mistakes that cost no training are warnings
    remote: bool = False  # whether programs run on other hosts
    environ: Mapping[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    made_of: dict[str, str] = field(default_factory=dict)  # a program without its own section -> the section that made it

    def at(self, *path: str) -> Origin:
        """The place of a key in the file: its own line, or that of the nearest table around it."""
        if path[:1] == ("program",) and path[1:2] and path[1] in self.source.added:
            return Origin(FILE, self.source.added[path[1]])
        for end in range(len(path), 0, -1):
            if path[:end] in self.source.lines:
                return Origin(FILE, self.source.where, self.source.lines[path[:end]])
        return Origin(FILE, self.source.where)

    def error(self, origin: Origin, what: str) -> None:
        self.add(f"{origin.place}: {what}")

    def refuse(self, path: tuple[str, ...], what: str) -> None:
        """Add an error about a key. The sentence begins with the key; `what` may begin with a colon or a comma."""
        self.error(self.at(*path), f"{label(*path)}{'' if what[:1] in ':,' else ' '}{what}")

    def add(self, sentence: str) -> None:
        self._tell(sentence, self.errors)  # ten programs may share one wrong default

    def warn(self, origin: Origin, what: str) -> None:
        self._tell(f"{origin.place}: {what}", self.warnings)  # each level repeats the warnings of a program

    def _tell(self, sentence: str, told: list[str]) -> None:
        """A section's mistake is reported once, not for each of its programs."""
        for made in sorted(self.made_of, key=len, reverse=True):
            sentence = sentence.replace(made, self.made_of[made])
        sentence = _cut(printable(sentence))
        if sentence not in told:
            told.append(sentence)

    def note(self, key: str, value: object, origin: Origin) -> None:
        self.origins[key], self.values[key] = origin, value

    def forget(self, prefix: str) -> None:
        """Remove the notes on keys that turn out to have no effect."""
        for key in [key for key in self.origins if key.startswith(prefix)]:
            del self.origins[key], self.values[key]

    def section(self, *path: str) -> Section:
        """A table of the file; empty if it is absent, or if the value is not a table, which is an error."""
        value: Any = self.source.body
        for part in path:
            value = value.get(part, {})
            if not isinstance(value, dict):
                self.refuse(path, f"must be a section, [{label(*path)}], not {shown(value)}")
                return Section(self, path, {})
        return Section(self, path, value)


class Section(Record):
    """A table of the file, with the place and the name of each mistake in it."""

    validation: Validation
    path: tuple[str, ...]
    body: Mapping[str, Any]

    def __contains__(self, key: str) -> bool:
        return key in self.body

    @property
    def name(self) -> str:
        """The last name of its path: of the section, the program or the level."""
        return self.path[-1]

    def label(self, *keys: str) -> str:
        return label(*self.path, *keys)

    def at(self, *keys: str) -> Origin:
        return self.validation.at(*self.path, *keys)

    def inner(self, key: str) -> Section:
        return Section(self.validation, (*self.path, key), self.body[key])

    def refuse(self, key: str | None, what: str) -> None:
        """Add an error about a key; None: about the table itself."""
        self.validation.refuse(self.path if key is None else (*self.path, key), what)

    def warn(self, key: str, what: str) -> None:
        self.validation.warn(self.at(key), f"{self.label(key)}: {what}")

    def reporter(self, key: str, *, gently: bool) -> Callable[[str], None]:
        """Report a mistake of a file that a key names: `gently`, as a warning."""
        report = self.validation.warn if gently else self.validation.error
        return lambda what: report(self.at(key), f"{self.label(key)}: {what}")

    def note(self, key: str, value: object, origin: Origin | None = None) -> None:
        """Note a value; without an origin, where the table has it, else the default."""
        if origin is None:
            origin = self.at(key) if key in self.body else Origin(DEFAULT)
        self.validation.note(self.label(key), list(value) if isinstance(value, tuple) else value, origin)


def label(*path: str) -> str:
    """A key as it is written in TOML: `program.Pong.lr`; odd names are quoted, so that no message breaks a terminal."""
    return ".".join(map(_part, path))


@functools.lru_cache(1024)  # the keys of all programs at all levels are made of the same few names
def _part(name: str) -> str:
    return name if _BARE.fullmatch(name) else _cut(json.dumps(name), _SHOWN_VALUE)


def shown(value: object) -> str:
    """Any value for a message: short, on one line."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return "a number of more than 64 bits"  # repr of a huge one raises
    if isinstance(value, list):
        return _cut(f"[{', '.join(shown(item) for item in value[:8])}{', ...' if len(value) > 8 else ''}]", _SHOWN_VALUE)
    return _cut(repr(value), _SHOWN_VALUE)


def _cut(text: str, longest: int = _LONGEST_SENTENCE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
