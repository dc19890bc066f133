"""Declares a setting once, at its field: `floor_s: float = key(30.0, "shortest time without progress", low=1.0)`.

The field's name and type are those of the key in the file. `config` reads, checks and documents every key by these
declarations, so a new field is a key of the configuration at once.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from typing import Any, Final, TypeVar

from supervisor.records import Record

REQUIRED: Final[Any] = MISSING
YEAR_S: Final = 366 * 86_400.0
_NAME: Final = "key"
_T = TypeVar("_T")


class Declaration(Record):
    """What a type does not express. The bounds are inclusive.

    Without `low`, whole numbers are at least 1 and others more than 0. Without `high`, times (`_s`) are at most a year.
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unset: str = ""  # description of the default, where there is no plain one
    up_to: str = ""  # another key of the section, which must not be less
    form: str = ""  # what the value must be, for messages: "a list of strings"
    pattern: str = ""  # regular expression of the whole text
    name: str = ""  # in the file, where it is not the field's
    script: bool = False  # only a program with a command has it


def key(default: _T, meaning: str, *, is_shown: bool = True, **more: Any) -> _T:
    """A field that is a key of the configuration; `more`: as in `Declaration`. A secret is not shown by `repr`."""
    made: _T = field(default=default, repr=is_shown, metadata={_NAME: Declaration(meaning, **more)})
    return made


def script_key(default: _T, meaning: str, **more: Any) -> _T:
    """A key that only a program with a command has."""
    return key(default, meaning, script=True, **more)


def declared(cls: Any) -> dict[str, Declaration]:
    return {each.name: each.metadata[_NAME] for each in fields(cls) if _NAME in each.metadata}
