"""Changed copies of records, which are frozen dataclasses: `replace`.

The state is a fold over facts, and each fact makes two or three new records of up to 57 fields. `dataclasses.replace` hands
every field to `__init__` by name: 16 us for a program. A record without slots has all fields in one dictionary, which is
copied in 1 us. So the classes that every fact and every sample change have no slots.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # mypy knows the fields and their types
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
