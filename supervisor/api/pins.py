"""How long a level may be pinned: more than nothing, less than ten years; longer than that is until further notice."""

from __future__ import annotations

from typing import Final

MOST_PIN_S: Final = 10 * 366 * 86_400.0


def is_span(value: object) -> bool:
    """Whether it is a number of seconds that a pin may last."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= MOST_PIN_S
