"""Records are frozen dataclasses: `dataclass` creates their classes cheaply, `replace` creates changed copies of them.

The daemon has four hundred such classes. The standard decorator compiles six methods for each, which is half of the import
time of a start. But a daemon uses few of these methods in its first hour. So here, the standard decorator compiles a method
when it is first called: its behaviour and speed are the same.

The state is a fold over facts, and each fact creates two or three new records of up to 57 fields. `dataclasses.replace`
passes every field to `__init__` by name: 16 us for a program. A record without slots has all fields in one dictionary, which
is copied in 1 us. So the classes that every fact and every sample change have no slots.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["Record", "dataclass", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, replace  # so that mypy knows the fields and their types
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        return lambda cls: cls

    def dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type], type]:
        """`dataclasses.dataclass`, with methods that are compiled at their first call."""

        def make(cls: type) -> type:
            own = set(vars(cls))
            cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the standard decorator derives it from `__init__`, slowly
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            for name in ("__init__", "__repr__", "__eq__", *(["__hash__"] if frozen else [])):
                if name not in own:
                    setattr(made, name, _compiled_later(made, name, frozen=frozen))
            if frozen:
                made.__setattr__, made.__delattr__ = _refuse_change, _refuse_removal
                made.__setstate__ = _set_state  # for copies and pickles
            elif "__hash__" not in own:
                made.__hash__ = None  # unhashable: the fields that decide equality may change
            return made

        return make

    def replace(record: Any, /, **changes: Any) -> Any:
        """A copy of `record` with other values in some fields. A class without slots must have no `__post_init__`."""
        before = getattr(record, "__dict__", None)
        if before is None:
            return dataclasses.replace(record, **changes)
        copy = object.__new__(type(record))
        copy.__dict__.update(before, **changes)
        if len(copy.__dict__) != len(before):
            raise TypeError(f"{type(record).__name__} has no field {', '.join(sorted(changes.keys() - before.keys()))}")
        return copy


def _compiled_later(cls: type, name: str, *, frozen: bool) -> Any:
    def method(self: Any, *args: Any, **named: Any) -> Any:
        compiled = _compiled(cls, name, frozen=frozen)
        setattr(cls, name, compiled)
        return compiled(self, *args, **named)

    return method


def _compiled(cls: Any, name: str, *, frozen: bool) -> Any:
    """The method that the standard decorator creates for a class with these fields."""
    like = dataclasses.make_dataclass(
        cls.__name__, [(each.name, each.type, each) for each in dataclasses.fields(cls)], frozen=frozen,
        init=name == "__init__", repr=name == "__repr__", eq=name in {"__eq__", "__hash__"},
        namespace={"__doc__": cls.__doc__, **({"__post_init__": None} if hasattr(cls, "__post_init__") else {})},
    )  # fmt: skip
    return vars(like)[name]


def _refuse_change(_record: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_removal(_record: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(record: object, state: Any) -> None:
    """Restore the state that `copy` and `pickle` saved: a dictionary, or with slots the second item of a pair."""
    for name, value in (state[1] if isinstance(state, tuple) else state).items():
        object.__setattr__(record, name, value)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class _RecordType(type):
    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        return made if "__slots__" in namespace else dataclass(frozen=True, slots=True)(made)


class Record(metaclass=_RecordType):
    """Each class below this one is a frozen dataclass with slots, without a decorator of its own."""
