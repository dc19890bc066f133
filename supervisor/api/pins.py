"""How long a level may be pinned: more than 0 s, at most ten years. A pin without a duration holds until further notice."""

from __future__ import annotations

from typing import Final

MOST_PIN_S: Final = 10 * 366 * 86_400.0


def is_span(value: object) -> bool:
    """Whether `value` is a valid duration of a pin in seconds."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= MOST_PIN_S
