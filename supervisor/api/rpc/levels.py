"""extralife.* methods: the ladder of levels and the end of the work, which Supervisor does not know."""

from __future__ import annotations

from typing import Any, Final

from supervisor.api.port import ASK_WAIT_S, Result
from supervisor.api.rpc.calls import Call, Table, method
from supervisor.api.rpc.faults import Fault
from supervisor.api.words import MOST_PIN_S, is_span
from supervisor.model import codes
from supervisor.model.inputs import Verb
from supervisor.policy.upkeep.when_done import ACTIONS, DELAY

TABLE: Final[Table] = {}


@method(
    TABLE, "extralife.getLevel",
    result="mode, level, trial, why, line, levels (structs by level), and pin where there is one",
)  # fmt: skip
async def get_level(call: Call) -> dict[str, Any]:
    """Return the ladder, the record of each level and the current level; unknown values are left out."""
    found: dict[str, Any] = _known(await call.read(call.backend.page, "level", {}))
    return found


@method(
    TABLE, "extralife.pinLevel",
    level="its name", seconds="duration of the pin; 0 (or left out): until further notice", result="what was done",
)  # fmt: skip
async def pin_level(call: Call, level: str, seconds: int = 0) -> str:
    """Keep the box at a level, regardless of the climbing rule."""
    call.changing()
    if seconds != 0 and not is_span(seconds):
        raise Fault(codes.INCORRECT_PARAMETERS, f"seconds must be 0 to {MOST_PIN_S:.0f}")
    return await _pin(call, level, float(seconds) or None)


@method(TABLE, "extralife.unpinLevel", result="what was done")
async def unpin_level(call: Call) -> str:
    """End the pin; the climbing rule continues from that level."""
    call.changing()
    return await _pin(call, None, None)


@method(
    TABLE, "extralife.whenDone",
    action="cancel, delay or now", seconds="of a delay; otherwise 0 (or left out)", result="what was done",
)  # fmt: skip
async def when_done(call: Call, action: str, seconds: int = 0) -> str:
    """Cancel, delay or hasten the command that stops the box once its work is over ([when_done])."""
    call.changing()
    if action not in ACTIONS or (action == DELAY) != is_span(seconds):
        raise Fault(codes.INCORRECT_PARAMETERS, f"action must be one of {', '.join(ACTIONS)}, and only delay has seconds")
    ask, for_s = call.backend.ask_backups, float(seconds) or None
    return _text(await call.wait(ask, Verb.WHEN_DONE, action, [], call.by, call.uid, ASK_WAIT_S, for_s))


async def _pin(call: Call, level: str | None, for_s: float | None) -> str:
    return _text(await call.wait(call.backend.pin, level, for_s, call.by, call.uid, ASK_WAIT_S))


def _text(result: Result) -> str:
    _, code, text = result
    if code != codes.SUCCESS:
        raise Fault(code, text)
    return str(text)


def _known(value: Any) -> Any:
    """`value` without the keys whose value is None: XML-RPC cannot express None."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value
