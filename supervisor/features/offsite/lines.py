"""The line of `status` about copies off the box."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text


def lines(daemon: dict[str, Any]) -> list[str]:
    found = daemon.get("offsite")
    if found is None:
        return []
    after = found.get("after")  # an older daemon does not send it
    lost = f"continues the trainings of box {text.printable(after['box'])}" if after else ""
    if after and after["lost_s"] is not None:
        lost += f", {text.duration(after['lost_s'])} after its last known sign of life"
    return [line(found), *([lost] if lost else [])]


def line(found: dict[str, Any]) -> str:
    """One line for `status`: `copied off the box 4m ago (312MB)`."""
    if found["fence"] is not None:
        box = text.printable(found["fence"]["box"])
        return f"box {box} HAS TAKEN OVER: no program runs here; `extralifectl offsite take-over` brings them back"
    copied = found["copied"]
    error = f": {text.printable(found['error'])}" if found["error"] else ""
    if copied is None:
        return f"NOTHING IS COPIED off the box{error}" if found["late"] or error else "no copy off the box yet"
    told = f"copied off the box {text.duration(found['age_s'])} ago ({text.size(copied['size_bytes'])})"
    if copied["missed"]:
        told += f", INCOMPLETE for {', '.join(map(text.printable, sorted(copied['missed'])))} (see `extralifectl offsite`)"
    return f"{told}, TOO OLD{error}" if found["late"] else f"{told}{f'; the newest try failed{error}' if error else ''}"
