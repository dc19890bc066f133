"""Every key of the configuration, as its field declares it (`supervisor/keys.py`), and the reading of a table of them.

The checks and docs/config.md use these settings.
"""

from __future__ import annotations

import functools
import re
import shutil
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final

from supervisor import keys
from supervisor.config import foreign_names
from supervisor.config.validation import DEFAULT, Origin, Section, shown
from supervisor.model.settings import SECTIONS, CommandKeys, Level, Paths, ProgramSpec
from supervisor.policy.script.figures import Sources
from supervisor.records import Record
from workers.options import Option, nearest

TOP: Final = (*SECTIONS, "levels", "training", "program")
_MOST: Final = 2**63 - 1
_SCALARS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}

Parsers = Mapping[str, Callable[[Any], Any]]
_NONE: Final[Parsers] = {}


class Setting(Record):
    """One key: what its field declares. `option` checks a plain value; a list is checked here, other values by parsers."""

    option: Option
    declared: keys.Declaration
    default: Any
    is_secret: bool = False
    complex: str = ""  # its type, for the docs; empty: a plain value
    positive: bool = False  # 0 itself is refused

    @classmethod
    def plain(cls, option: Option) -> Setting:
        """An option of a built-in game."""
        return cls(option, keys.Declaration(option.help), option.default)

    def check(self, value: object, *, text: bool = False) -> Any:
        """The checked value. `text`: it came as a string.

        Raises ValueError with a sentence that lacks the key before it; without one: `refusal` is the sentence.
        """
        if self.complex:
            if isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value):
                return tuple(value)
            raise ValueError
        if isinstance(value, int) and abs(value) > _MOST:
            raise ValueError("does not fit into 64 bits; write a smaller number")
        if not text and (isinstance(value, dict | list) or (self.option.kind is str and not isinstance(value, str))):
            raise ValueError
        try:
            made = self.option.parse(value) if text and isinstance(value, str) else self.option.check(value)
        except ValueError as error:
            raise ValueError(str(error).removeprefix(f"{self.option.name} ")) from None
        if self.positive and made == 0:
            raise ValueError("must be more than 0")
        if isinstance(made, str) and "\0" in made:
            raise ValueError("must not hold a NUL character")
        if self.declared.pattern and not re.fullmatch(self.declared.pattern, str(made), re.ASCII):
            raise ValueError
        return made

    def refusal(self, value: object) -> str:
        choices = f"one of {', '.join(self.option.choices)}" if self.option.choices else ""
        form = choices or self.declared.form or _SCALARS[self.option.kind]
        return f"must be {form}" if self.is_secret else f"must be {form}, not {shown(value)}"


_LIST: Final = "list of strings"
_ONE_OR_MORE: Final = "string or list of strings"


# --- what there is -------------------------------------------------------------------------------------------------------


@functools.cache
def settings_of(cls: Any) -> dict[str, Setting]:
    """The keys of a table that fills this class, by their names in the file. Those of a record in it belong to the table."""
    hints, declared = typing.get_type_hints(cls), keys.declared(cls)
    found: dict[str, Setting] = {}
    for field in fields(cls):
        if field.name in declared:
            default = None if field.default is MISSING else field.default
            name = declared[field.name].name or field.name
            found[name] = _setting(name, declared[field.name], hints[field.name], default, is_secret=not field.repr)
        elif is_dataclass(hints[field.name]):
            found |= settings_of(hints[field.name])
    return found


@functools.cache
def program_settings(*, command: bool) -> dict[str, Setting]:
    """The keys that any program may have, or those that only a program with a command has."""
    of_commands = settings_of(CommandKeys) if command else {}
    return of_commands | {name: each for name, each in settings_of(ProgramSpec).items() if each.declared.script is command}


def _setting(name: str, declared: keys.Declaration, hint: Any, default: Any, *, is_secret: bool) -> Setting:
    if isinstance(hint, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    kind = str if isinstance(hint, type) and issubclass(hint, str) else hint
    if kind not in _SCALARS:
        return Setting(Option(name, str, None, declared.meaning), declared, default, is_secret, _type(declared, hint))
    low, high = declared.low, declared.high
    if high is None and kind is float and name.endswith("_s"):
        high = keys.YEAR_S
    positive = low is None and kind is float
    low = {int: 1, float: 0.0}.get(kind) if low is None else low
    option = Option(name, kind, default, declared.meaning, low=low, high=high, choices=declared.choices)
    return Setting(option, declared, default, is_secret, positive=positive)


def _type(declared: keys.Declaration, hint: Any) -> str:
    """The type of a value that is not plain, for people."""
    item = typing.get_args(hint)[0] if typing.get_args(hint) else None
    if item is int:
        return f"list of {declared.low:g} to {declared.high:g}"
    if item is not str:
        return "table" if item is None else "table of strings"
    if declared.choices:
        return "list of " + ", ".join(f"`{word}`" for word in declared.choices)
    return _ONE_OR_MORE if " or a list" in declared.form else _LIST


FIGURE_KEYS: Final = tuple(settings_of(Sources))
DIRECTORIES: Final = tuple(settings_of(Paths))
OF_LEVEL: Final = {name: each for name, each in settings_of(Level).items() if name != "name"}  # its section has the name


# --- reading a table -----------------------------------------------------------------------------------------------------


def refuse_unknown(section: Section, known: Mapping[str, Any] | tuple[str, ...], otherwise: str = "") -> None:
    """Report each key that does not exist, with the nearest that does."""
    otherwise = otherwise or f"[{section.label()}] has {', '.join(known)}"
    for key in section.body:
        if key not in known:
            gone = foreign_names.GONE.get(section.label(key))
            saves = foreign_names.hint(key, ()) if key == "save_dir" else ""  # the nearest name is another directory's
            hint = f" any more; {gone}" if gone else saves or nearest(key, known)
            section.refuse(key, f"is not a setting{hint or f'; {otherwise}'}")


def given(section: Section, settings: Mapping[str, Setting], parsers: Parsers = _NONE) -> dict[str, Any]:
    """The keys that the table has, with their checked values. A wrong value is an error, and is left out."""
    found: dict[str, Any] = {}
    for key, value in section.body.items():
        if key not in settings:
            continue
        try:
            checked = value if key in parsers and settings[key].complex else settings[key].check(value)
            found[key] = parsers[key](checked) if key in parsers else checked
        except ValueError as error:
            section.refuse(key, str(error) or settings[key].refusal(value))
    return found


def read(
    section: Section, settings: Mapping[str, Setting], parsers: Parsers = _NONE, quiet: tuple[str, ...] = ()
) -> dict[str, Any]:
    """All keys of the table with their values, noted with their origins; of `quiet` keys, only those that it has."""
    found = given(section, settings, parsers)
    for key, setting in settings.items():
        if key in found:
            section.note(key, found[key])
        elif key not in quiet:
            section.note(key, setting.default, Origin(DEFAULT))
    return {key: setting.default for key, setting in settings.items()} | found


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
    elif words and (why := no_command(words[0])):
        absent(section.at("command"), f"{section.label('command')}: {words[0]!r:.80} {why}")


def no_command(program: str) -> str:
    """Why the daemon cannot run this program of a `command`, as a clause; empty: it can."""
    if "/" in program and not program.startswith("/"):
        return "is no whole path, and it is run in /"
    return "" if shutil.which(program) else "is not found, or not executable"
