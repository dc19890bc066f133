"""`extralife.whenDone` of XML-RPC."""

from __future__ import annotations

from supervisor.api.inputs import is_span
from supervisor.api.rpc.calls import Call, method
from supervisor.api.rpc.daemon import TABLE, request
from supervisor.api.rpc.wire import Fault
from supervisor.features.when_done.record import ACTIONS, DELAY
from supervisor.model import codes
from supervisor.model.inputs import Verb


@method(
    TABLE, "extralife.whenDone",
    action="cancel, delay or now", seconds="of a delay; otherwise 0 (or left out)", result="what was done",
)  # fmt: skip
async def when_done(call: Call, action: str, seconds: int = 0) -> str:
    """Cancel, delay or hasten the command that stops the box once its work is over ([when_done])."""
    call.changing()
    if action not in ACTIONS or (action == DELAY) != is_span(seconds):
        raise Fault(codes.INCORRECT_PARAMETERS, f"action must be one of {', '.join(ACTIONS)}, and only delay has seconds")
    return await request(call, Verb.WHEN_DONE, action, [], float(seconds))
