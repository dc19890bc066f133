"""Records are frozen dataclasses: `Record` is their base class, `replace` creates changed copies of them.

The state is a fold over facts, and each fact creates two or three new records of up to 50 fields. `dataclasses.replace`
passes every field to `__init__` by name: 16 us for a program. A record without slots has all fields in one dictionary, which
is copied in 1 us. So the classes that every fact and every sample change have no slots.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, dataclass_transform

__all__ = ["Record", "replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # so that mypy knows the fields and their types
else:

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


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class _RecordType(type):
    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        return made if "__slots__" in namespace else dataclasses.dataclass(frozen=True, slots=True)(made)


class Record(metaclass=_RecordType):
    """Each class below this one is a frozen dataclass with slots, without a decorator of its own."""
