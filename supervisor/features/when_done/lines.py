"""The lines of `status` about a box that costs money while nothing trains, or is about to be stopped."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text


def lines(daemon: dict[str, Any]) -> list[str]:
    return [text.printable(each) for each in daemon.get("for_nothing") or ()]
