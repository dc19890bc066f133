"""Values as clients write them: names of signals, durations of a pin."""

from __future__ import annotations

import signal as signals
from typing import Final

MOST_PIN_S: Final = 10 * 366 * 86_400.0  # a pin without a duration holds until further notice


def is_span(value: object) -> bool:
    """Whether `value` is a valid duration of a pin in seconds."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= MOST_PIN_S


def signal_name(value: object) -> str | None:
    """`HUP`, `SIGHUP` or `1` as SIGHUP; None when it is no signal."""
    text = str(value).upper()
    try:
        return (signals.Signals(int(text)) if text.isdecimal() else signals.Signals["SIG" + text.removeprefix("SIG")]).name
    except (ValueError, KeyError):
        return None
