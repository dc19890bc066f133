"""A state as text, and back: the content of `facts.Snapshot`, so that older facts need not be folded again.

The text is JSON, field by field and by the annotations alone, with the rules of `model/codec.py`: a field that the text
lacks gets its default, a field that the class lacks is ignored, any other mismatch raises MalformedFact. A field that
changes its meaning gets a new name.

Worked example: `State(boots=2)` is `{"at_s":0.0,...,"boots":2,...}`. A newer extralife, whose State has one more field,
gives that field its default: the same as if the older one had folded the facts.

Why not pickle: it executes code from the data that it reads, and ties the text to today's module paths. Why not keep the
facts themselves for ever: ten programs make half a million in a year, and each start of the daemon would fold them all.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from typing import Any, TypeVar

from supervisor.model.codec import Convert, MalformedFact, converter

T = TypeVar("T")


def encoded(state: Any) -> str:
    """A frozen dataclass or a NamedTuple as text. Raises MalformedFact for a value that `decoded` would not restore."""
    try:
        text = json.dumps(as_fields(state), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MalformedFact(f"a {type(state).__name__} that is not JSON: {error}") from error
    if decoded(type(state), text) != state:
        raise MalformedFact(f"a {type(state).__name__} that does not come back as it was")
    return text


def decoded(cls: type[T], text: str) -> T:
    """The value from which `encoded` made the text. Raises MalformedFact."""
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


def _is_named(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _special(annotation: Any) -> Convert | None:
    """Converters for types that a state may hold but a fact may not: other records, enumerations, fixed-length tuples."""
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or _is_named(annotation)):
        return _record(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return functools.partial(_word, annotation)
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and args[-1] is not Ellipsis:
        return functools.partial(_row, tuple(converter(arg, _special) for arg in args))
    if typing.get_origin(annotation) is types.UnionType and types.NoneType not in args:
        raise TypeError(f"a state cannot have a field of type {annotation}")
    return None


def _word(cls: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return cls(value)
    except ValueError as error:
        raise MalformedFact(f"{value!r} is no {cls.__name__}") from error


def _row(items: tuple[Convert, ...], value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != len(items):
        raise MalformedFact(f"{value!r} is not a list of {len(items)}")
    return tuple(convert(each) for convert, each in zip(items, value, strict=True))


@functools.cache
def _record(cls: Any) -> Convert:
    hints = typing.get_type_hints(cls)
    names = cls._fields if _is_named(cls) else [field.name for field in dataclasses.fields(cls)]
    fields = {name: converter(hints[name], _special) for name in names}

    def convert(value: object) -> object:
        if not isinstance(value, dict):
            raise MalformedFact(f"{value!r} is not a {cls.__name__}")
        try:
            return cls(**{name: item(value[name]) for name, item in fields.items() if name in value})
        except TypeError as error:  # a field without a default is missing
            raise MalformedFact(f"a {cls.__name__} is not whole: {error}") from error

    return convert
