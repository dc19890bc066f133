"""Declares a setting once, at its field: `floor_s: float = key(30.0, "shortest time without progress", low=1.0)`.

The field's name and type are those of the key in the file. `config` reads, checks and documents every key by these
declarations, so a new field is a key of the configuration at once.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from typing import Any, Final, TypeVar

from supervisor.records import dataclass

REQUIRED: Final[Any] = MISSING
YEAR_S: Final = 366 * 86_400.0
_NAME: Final = "key"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a type does not express. The bounds are inclusive.

    Without `low`, whole numbers are at least 1 and other numbers more than 0. Without `high`, times (`_s`) are at
    most a year.
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unset: str = ""  # description of the default, where there is no plain one
    up_to: str = ""  # another key of the section, which must not be less


def key(
    default: _T, meaning: str, *, low: float | None = None, high: float | None = None,
    choices: tuple[str, ...] = (), unset: str = "", up_to: str = "", is_shown: bool = True,
) -> _T:  # fmt: skip
    """A field that is a key of the configuration. A secret is not shown in the record's `repr`."""
    metadata = {_NAME: Declaration(meaning, low, high, choices, unset, up_to)}
    made: _T = field(default=default, repr=is_shown, metadata=metadata)
    return made


def declared(cls: Any) -> dict[str, Declaration]:
    """The keys that the fields of a class declare."""
    return {each.name: each.metadata[_NAME] for each in fields(cls) if _NAME in each.metadata}
