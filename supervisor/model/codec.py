"""Records as JSON text: facts for the journal (a kind, a version and a body), and any other record, such as a state.

The kind of a fact is the class's name, the body its fields by name, as `extralifectl journal` prints them.

The annotations alone decide the conversion, field by field: str, int, float, bool, None, tuples, dicts with string keys; in
a state also records, enumerations and tuples of a fixed length. The same check runs in both directions, so a value that
could not be read back is refused before it is written.

* A field that the text lacks gets its default: an older daemon wrote the row before the field existed.
* A record in a state whose fields stood beside it in earlier releases is made of these (its owner says which: `FORMER`).
* A field that the class lacks is ignored: a newer daemon wrote it, and by the rules of `facts.py` it has a default, so
  its content is optional. The row itself keeps it. A field that changes its meaning gets a new name.
* An unknown kind or another version raises `UnknownFact`. A fold that skipped it would give a state that never existed.
* Any other mismatch raises `MalformedFact`: the row is damaged.

Worked example: `GaveUp(program="Pong", why="no such game")` is the row
`("GaveUp", 1, '{"why":"no such game","program":"Pong"}')`.

Why not pickle: it executes code from the data that it reads, and it ties years of rows to today's module paths. Why no NaN
or infinity: they are not JSON, other readers of the export would fail on them, and in this project unknown is None.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

from supervisor.model import facts
from supervisor.model.facts import Fact

Convert = Callable[[Any], Any]
T = TypeVar("T")


class UnknownFact(ValueError):
    """A kind or version that this program does not know: a newer one wrote it."""


class MalformedFact(ValueError):
    """A text or a value that does not match its class."""


def kinds() -> dict[str, type[Fact]]:
    """Every concrete fact class by its kind. Bases such as `AttemptFact` are not facts."""
    return dict(_KINDS)


def encode(fact: Fact) -> tuple[str, int, str]:
    """(kind, version, JSON body) of a fact. Raises MalformedFact for a value that could not be read back."""
    kind = type(fact).__name__
    if _KINDS.get(kind) is not type(fact):
        raise MalformedFact(f"{kind} is not a fact of supervisor/model/facts.py")
    values = {name: _field(kind, name, convert, getattr(fact, name)) for name, convert in _FIELDS[kind].items()}
    return kind, fact.VERSION, json.dumps(values, separators=(",", ":"), allow_nan=False)


def decode(kind: str, version: int, body: str) -> Fact:
    """The fact of one row. Raises UnknownFact or MalformedFact."""
    cls = _KINDS.get(kind)
    if cls is None:
        raise UnknownFact(f"fact kind {kind!r} is unknown here: a newer extralife wrote it")
    if version != cls.VERSION:
        raise UnknownFact(f"fact {kind} has version {version}, this extralife knows version {cls.VERSION}")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedFact(f"fact {kind} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise MalformedFact(f"fact {kind} is not a JSON object: {body[:80]!r}")
    found = {name: _field(kind, name, convert, values[name]) for name, convert in _FIELDS[kind].items() if name in values}
    try:
        return cls(**found)
    except TypeError:  # a field without a default is missing
        required = {each.name for each in dataclasses.fields(cls) if each.default is each.default_factory}
        raise MalformedFact(f"fact {kind} lacks {', '.join(sorted(required - found.keys()))}") from None


def _field(kind: str, name: str, convert: Convert, value: object) -> Any:
    try:
        return convert(value)
    except MalformedFact as error:
        raise MalformedFact(f"fact {kind}, field {name}: {error}") from error


def as_text(state: Any) -> str:
    """A frozen dataclass or a NamedTuple as text. Raises MalformedFact for a value that `of_text` would not restore."""
    try:
        text = json.dumps(as_fields(state), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MalformedFact(f"a {type(state).__name__} that is not JSON: {error}") from error
    if of_text(type(state), text) != state:
        raise MalformedFact(f"a {type(state).__name__} that does not come back as it was")
    return text


def of_text(cls: type[T], text: str) -> T:
    """The value from which `as_text` made the text. Raises MalformedFact."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFact(f"a {cls.__name__} is not JSON: {error}") from error
    made: T = _record(cls)(values)  # type: ignore[arg-type]  # a class is hashable, whatever mypy thinks of type[T]
    return made


def as_fields(value: Any) -> Any:
    """A record as a dict of its fields, at every depth. `dataclasses.asdict` would lose the field names of a NamedTuple."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return [as_fields(each) for each in value] if names is None else dict(zip(names, map(as_fields, value), strict=True))
    if isinstance(value, dict):
        return {key: as_fields(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: as_fields(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _exactly(cls: type[str | bool | int], value: object) -> object:
    if type(value) is not cls:  # not isinstance: True is an int, and a StrEnum would come back as a plain str
        raise MalformedFact(f"{value!r} is not {cls.__name__}")
    return value


def _number(value: object) -> float:
    if type(value) not in (int, float):
        raise MalformedFact(f"{value!r} is not a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError as error:
        raise MalformedFact("a whole number too large for a float") from error
    if not math.isfinite(number):
        raise MalformedFact(f"{number!r} is not finite; unknown is None")
    return number


def _tuple_of(item: Convert, value: object) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise MalformedFact(f"{value!r} is not a list")
    return tuple(item(each) for each in value)


def _dict_of(item: Convert, value: object) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise MalformedFact(f"{value!r} is not an object")
    return {_exactly(str, key): item(each) for key, each in value.items()}


_PLAIN: Final[dict[object, Convert]] = {float: _number} | {cls: functools.partial(_exactly, cls) for cls in (str, int, bool)}


def converter(annotation: Any) -> Convert:
    """The function that checks a value of this annotation and converts it to its only Python form (a JSON list to a tuple).

    Raises TypeError for an annotation that a record may not use: for facts at import, not in the middle of a night.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")):
        return _record(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return functools.partial(_word, annotation)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return functools.partial(_tuple_of, converter(args[0]))
        return functools.partial(_row, tuple(map(converter, args)))
    if origin is dict and args[0] is str:
        return functools.partial(_dict_of, converter(args[1]))
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and types.NoneType in args:
        known = converter(next(each for each in args if each is not types.NoneType))
        return lambda value: None if value is None else known(value)
    raise TypeError(f"a record cannot have a field of type {annotation}")


def _word(cls: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return cls(value)
    except ValueError as error:
        raise MalformedFact(f"{value!r} is no {cls.__name__}") from error


def _row(items: tuple[Convert, ...], value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != len(items):
        raise MalformedFact(f"{value!r} is not a list of {len(items)}")
    return tuple(convert(each) for convert, each in zip(items, value, strict=True))


def _fields(cls: Any) -> dict[str, Convert]:
    hints = typing.get_type_hints(cls)
    names = getattr(cls, "_fields", None) or [field.name for field in dataclasses.fields(cls)]
    return {name: converter(hints[name]) for name in names}


def _mover(cls: Any, former: list[str]) -> Convert:
    """The function that finds the fields of a nested record among those of its owner, by their former names there."""
    names = dict(zip(_fields(cls), former, strict=False))
    return lambda value: {new: value[old] for new, old in names.items() if old in value}


@functools.cache
def _record(cls: Any) -> Convert:
    fields, hints, flat = _fields(cls), typing.get_type_hints(cls), getattr(cls, "FORMER", {})
    former = {name: of if callable(of) else _mover(hints[name], of.split()) for name, of in flat.items()}

    def convert(value: object) -> object:
        if not isinstance(value, dict):
            raise MalformedFact(f"{value!r} is not a {cls.__name__}")
        try:
            value = {**value, **{name: {**of(value), **value.get(name, {})} for name, of in former.items()}}
            return cls(**{name: item(value[name]) for name, item in fields.items() if name in value})
        except MalformedFact:
            raise
        except (TypeError, LookupError, ValueError) as error:  # a field without a default is missing
            raise MalformedFact(f"a {cls.__name__} is not whole: {error}") from error

    return convert


# From the module, not from __subclasses__(): that also lists the original, slotless class of a dataclass with slots.
_CLASSES: Final = [each for each in vars(facts).values() if isinstance(each, type) and issubclass(each, Fact)]
_BASES: Final = {base for each in _CLASSES for base in each.__mro__[1:]}
_KINDS: Final = {each.__name__: each for each in _CLASSES if each not in _BASES}
_FIELDS: Final = {kind: _fields(cls) for kind, cls in _KINDS.items()}
