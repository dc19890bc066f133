"""extralife.* methods: the ladder of levels, which Supervisor does not know."""

from __future__ import annotations

from typing import Any, Final

from supervisor.api.pins import is_span
from supervisor.api.rpc.calls import ASK_WAIT_S, Call, Table, method
from supervisor.api.rpc.faults import Fault
from supervisor.model import codes

TABLE: Final[Table] = {}


@method(
    TABLE, "extralife.getLevel",
    result="mode, level, trial, why, line, levels (structs by level), and pin where there is one",
)  # fmt: skip
async def get_level(call: Call) -> dict[str, Any]:
    """Return the ladder, what each level has shown, and where the box stands. What is not known is left out."""
    found: dict[str, Any] = _known(await call.read(call.backend.page, "level", {}))
    return found


@method(
    TABLE, "extralife.pinLevel",
    level="its name", seconds="for so long; 0 (or left out): until further notice", result="what was done",
)  # fmt: skip
async def pin_level(call: Call, level: str, seconds: int = 0) -> str:
    """Keep the box at a level, whatever the rule that climbs says."""
    call.changing()
    if seconds != 0 and not is_span(seconds):
        raise Fault(codes.INCORRECT_PARAMETERS, "seconds must not be negative")
    return await _pin(call, level, float(seconds) or None)


@method(TABLE, "extralife.unpinLevel", result="what was done")
async def unpin_level(call: Call) -> str:
    """End the pin; the rule goes on from the level that was pinned."""
    call.changing()
    return await _pin(call, None, None)


async def _pin(call: Call, level: str | None, for_s: float | None) -> str:
    _, code, text = await call.wait(call.backend.pin, level, for_s, call.by, call.uid, ASK_WAIT_S)
    if code != codes.SUCCESS:
        raise Fault(code, text)
    return str(text)


def _known(value: Any) -> Any:
    """`value` without the keys whose value is None: XML-RPC cannot express None."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value
