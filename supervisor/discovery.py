"""What the features add: the modules of their folders in `supervisor/features/`, found by name.

Each room of the kernel imports from every folder only the module whose name it knows: `rm -r` of a folder removes a feature.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, Final, Self, TypeVar

from supervisor.records import replace

T = TypeVar("T")

_FEATURES: Final = "supervisor.features"


def names() -> list[str]:
    """The names of the features, in the order of the alphabet."""
    return sorted(each.name for each in pkgutil.iter_modules(import_module(_FEATURES).__path__))


def modules(name: str) -> list[ModuleType]:
    """The module `name` of each feature that has one."""
    return [import_module(path) for each in names() if find_spec(path := f"{_FEATURES}.{each}.{name}")]


def entries(module: str, table: str) -> Iterator[tuple[str, Any]]:
    """The entries of the dictionary `table` in the module `module` of each feature that has it."""
    for each in modules(module):
        yield from getattr(each, table, {}).items()


class Extended:
    """A dataclass that has one more field for each entry of a table of the features (`extended`)."""

    __slots__ = ()
    FIELDS: ClassVar[dict[type, str]] = {}  # the field's name by its class

    def of(self, kind: type[T]) -> T:
        """The value of this class that a feature has added."""
        value: T = getattr(self, self.FIELDS[kind])
        return value

    def having(self, *values: object) -> Self:
        """A copy with these values of features."""
        changes: Any = {self.FIELDS[type(value)]: value for value in values}
        return replace(self, **changes)  # type: ignore[type-var]  # `extended` takes only dataclasses


def extended(module: str, table: str) -> Callable[[type[T]], type[T]]:
    """Add a field for each entry of the features' tables: its name, and a class whose default is the field's."""

    def decorate(cls: type[T]) -> type[T]:
        added = dict(entries(module, table))
        fields = {name: dataclasses.field(default_factory=kind) for name, kind in added.items()}
        namespace = {"__annotations__": added, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
        extra = {"FIELDS": {kind: name for name, kind in added.items()}, "__doc__": cls.__doc__}
        made: Any = type(cls)(cls.__name__, (cls,), {**namespace, **extra, **fields})  # type: ignore[misc]
        found: type[T] = made if "__dataclass_fields__" in vars(made) else dataclasses.dataclass(frozen=True)(made)
        return found

    return decorate
