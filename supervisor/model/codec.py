"""Facts to and from what the journal stores: a kind, a version and a JSON body.

The kind is the class's name, the body its fields by name. The journal calls this module for every fact that it writes and
for every row that it reads. `supervisorctl journal` prints these same bodies as its lines.

The annotations alone decide the conversion, field by field: str, int, float, bool, None, tuples, dicts with string keys.
The same check runs in both directions, so a fact that could not be read back is refused before it is written.

* A field that the body lacks gets its default: an older daemon wrote the row before the field existed.
* A field that the class lacks is ignored: a newer daemon wrote it, and by the rules of `facts.py` it has a default, so
  its content is optional. The row itself keeps it.
* An unknown kind or another version raises `UnknownFact`. A fold that skipped it would give a state that never existed.
* Any other mismatch raises `MalformedFact`: the row is damaged.

Worked example: `Finished(program="Pong", why="25000 of 25000 episodes")` is the row
`("Finished", 1, '{"why":"25000 of 25000 episodes","program":"Pong"}')`.

Why not pickle: it executes code from the data that it reads, and it ties years of rows to today's module paths. Why no NaN
or infinity: they are not JSON, other readers of the export would fail on them, and in this project unknown is None.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from supervisor.model import facts
from supervisor.model.facts import Fact


class UnknownFact(ValueError):
    """A kind or version that this program does not know: a newer one wrote it."""


class MalformedFact(ValueError):
    """A body that does not match its kind."""


Convert = Callable[[Any], Any]


def kinds() -> dict[str, type[Fact]]:
    """Every concrete fact class by its kind. Bases such as `AttemptFact` are not facts."""
    return dict(_KINDS)


def encode(fact: Fact) -> tuple[str, int, str]:
    """(kind, version, JSON body) of a fact. Raises MalformedFact for a value that could not be read back."""
    kind = type(fact).__name__
    if _KINDS.get(kind) is not type(fact):
        msg = f"{kind} is not a fact of supervisor/model/facts.py"
        raise MalformedFact(msg)
    values = {name: _field(kind, name, convert, getattr(fact, name)) for name, convert in _FIELDS[kind].items()}
    return kind, fact.VERSION, json.dumps(values, separators=(",", ":"), allow_nan=False)


def decode(kind: str, version: int, body: str) -> Fact:
    """The fact of one row. Raises UnknownFact or MalformedFact."""
    cls = _KINDS.get(kind)
    if cls is None:
        msg = f"fact kind {kind!r} is unknown here: a newer extralife wrote it"
        raise UnknownFact(msg)
    if version != cls.VERSION:
        msg = f"fact {kind} has version {version}, this extralife knows version {cls.VERSION}"
        raise UnknownFact(msg)
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        msg = f"fact {kind} is not JSON: {error}"
        raise MalformedFact(msg) from error
    if not isinstance(values, dict):
        msg = f"fact {kind} is not a JSON object: {body[:80]!r}"
        raise MalformedFact(msg)
    found = {name: _field(kind, name, convert, values[name]) for name, convert in _FIELDS[kind].items() if name in values}
    missing = _REQUIRED[kind] - found.keys()
    if missing:
        msg = f"fact {kind} lacks {', '.join(sorted(missing))}"
        raise MalformedFact(msg)
    return cls(**found)


def _field(kind: str, name: str, convert: Convert, value: object) -> Any:
    try:
        return convert(value)
    except MalformedFact as error:
        msg = f"fact {kind}, field {name}: {error}"
        raise MalformedFact(msg) from error


def _exactly(cls: type[str | bool | int]) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not cls:  # not isinstance: True is an int, and a StrEnum would come back as a plain str
            msg = f"{value!r} is not {cls.__name__}"
            raise MalformedFact(msg)
        return value

    return convert


def _number(value: object) -> float:
    if type(value) not in (int, float):
        msg = f"{value!r} is not a number"
        raise MalformedFact(msg)
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError as error:
        msg = "a whole number too large for a float"
        raise MalformedFact(msg) from error
    if not math.isfinite(number):
        msg = f"{number!r} is not finite; unknown is None"
        raise MalformedFact(msg)
    return number


def _tuple_of(item: Convert) -> Convert:
    def convert(value: object) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list):
            msg = f"{value!r} is not a list"
            raise MalformedFact(msg)
        return tuple(item(each) for each in value)

    return convert


def _dict_of(item: Convert) -> Convert:
    text = _exactly(str)

    def convert(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            msg = f"{value!r} is not an object"
            raise MalformedFact(msg)
        return {text(key): item(each) for key, each in value.items()}

    return convert


def _optional(item: Convert) -> Convert:
    return lambda value: None if value is None else item(value)


_PLAIN: Final[dict[object, Convert]] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _number,
}


def converter(annotation: Any, special: Callable[[Any], Convert | None] = lambda _: None) -> Convert:
    """The function that checks a value of this annotation and converts it to its only Python form (a JSON list to a tuple).

    `special` is called first, at every depth: for types that a state may hold but a fact may not (`model/snapshot.py`).
    Raises TypeError for an annotation that facts may not use: at import, not in the middle of a night.
    """
    own = special(annotation)
    if own is not None:
        return own
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _tuple_of(converter(args[0], special))
    if origin is dict and args[0] is str:
        return _dict_of(converter(args[1], special))
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and type(None) in args:
        return _optional(converter(next(each for each in args if each is not type(None)), special))
    msg = f"a fact cannot have a field of type {annotation}: use str, int, float, bool, tuple[X, ...], dict[str, X] or None"
    raise TypeError(msg)


def _concrete() -> dict[str, type[Fact]]:
    # From the module, not from __subclasses__(): that also lists the original, slotless class of a dataclass with slots.
    found = [each for each in vars(facts).values() if isinstance(each, type) and issubclass(each, Fact)]
    bases = {base for each in found for base in each.__mro__[1:]}
    return {each.__name__: each for each in found if each not in bases}


def _converters(cls: type[Fact]) -> dict[str, Convert]:
    hints = typing.get_type_hints(cls)
    return {each.name: converter(hints[each.name]) for each in dataclasses.fields(cls)}


def _required(cls: type[Fact]) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        each.name for each in dataclasses.fields(cls) if each.default is missing and each.default_factory is missing
    )


_KINDS: Final = _concrete()
_FIELDS: Final = {kind: _converters(cls) for kind, cls in _KINDS.items()}
_REQUIRED: Final = {kind: _required(cls) for kind, cls in _KINDS.items()}
