"""Names of signals as operators write them."""

from __future__ import annotations

import signal as signals


def signal_name(value: object) -> str | None:
    """`HUP`, `SIGHUP` or `1` as SIGHUP; None when it is no signal."""
    text = str(value).upper()
    try:
        return (
            signals.Signals(int(text)).name if text.isdecimal() else signals.Signals["SIG" + text.removeprefix("SIG")].name
        )
    except (ValueError, KeyError):
        return None
