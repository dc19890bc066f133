"""The lines of `status` about notices that this box ends."""

from __future__ import annotations

from typing import Any

from supervisor.ctl import text


def lines(daemon: dict[str, Any]) -> list[str]:
    """Notices that this box ends, and the errors of sources that cannot be read."""
    found, lines = daemon.get("notices") or {"standing": [], "errors": {}}, []
    for each in found["standing"]:
        told = f"{text.printable(each['source'])} announced: {text.printable(each['what'])}"
        if each["kind"] == "risk":
            lines.append(f"this box MAY END; {told}; all is saved and copied, and training goes on")
            continue
        when = "" if each["left_s"] is None else f" in {text.duration(each['left_s'])}"
        leaves = "" if each["leaves_s"] is None else f"; the programs leave in {text.duration(each['leaves_s'])}"
        lines.append(f"THIS BOX ENDS{when}; {told}{leaves}")
    errors = found["errors"].items()
    return [*lines, *(f"notices of {text.printable(name)} cannot be read: {text.printable(why)}" for name, why in errors)]
