"""One key of a table of the file, checked by its row in `tables.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.config.tables import Key
from supervisor.config.validation import DEFAULT, Origin, Validation, label
from workers.options import Value


def read_key(validation: Validation, rule: Key, path: tuple[str, ...], table: Mapping[str, Any]) -> Value | None:
    """One key of a table of the file, checked and noted; None when it is absent or wrong."""
    key, name = path[-1], label(*path)
    if key not in table:
        validation.note(name, rule.option.default, Origin(DEFAULT))
        return None
    try:
        value = rule.check(table[key], name)
    except ValueError as error:
        validation.error(validation.at(*path), str(error))
        return None
    validation.note(name, value, validation.at(*path))
    return value
