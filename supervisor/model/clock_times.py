"""Wall-clock times in a state: every field whose name ends in `wall_s`, at any depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def with_times(value: T, change: Callable[[float], float]) -> T:
    """The same value with each known wall-clock time changed. It finds fields by name, so a new field needs no line here."""
    changed: Any = value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        new = {name: _changed(name, item, change) for name, item in fields.items()}
        changed = dataclasses.replace(value, **new) if new != fields else value
    elif isinstance(value, dict):
        changed = {key: with_times(item, change) for key, item in value.items()}
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        changed = tuple(with_times(item, change) for item in value)
    return changed  # type: ignore[no-any-return]


def _changed(name: str, value: Any, change: Callable[[float], float]) -> Any:
    if name.endswith("wall_s") and isinstance(value, float):
        return change(value)
    return with_times(value, change)
