"""system.* methods: they list and describe all methods, and run several calls in one request."""

from __future__ import annotations

from typing import Any, Final

from supervisor.api.rpc.calls import Call, Table, dispatch, method
from supervisor.api.rpc.faults import Fault
from supervisor.model import codes

TABLE: Final[Table] = {}


@method(TABLE, "system.listMethods", result="names, sorted")
async def list_methods(call: Call) -> list[str]:
    """Return an array listing the available method names."""
    return sorted(call.table)


@method(TABLE, "system.methodHelp", name="the name of the method", result="the documentation")
async def method_help(call: Call, name: str) -> str:
    """Return a string showing the method's documentation."""
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return call.table[name].help


@method(TABLE, "system.methodSignature", name="the name of the method", result="types")
async def method_signature(call: Call, name: str) -> list[str]:
    """Return an array describing the method's signature: the type of its result, then those of its parameters."""
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return call.table[name].signature


@method(TABLE, "system.multicall", calls="the calls", result="the results")
async def multicall(call: Call, calls: list[Any]) -> list[Any]:
    """Process an array of calls, one after the other, and return an array of their results.

    Calls are structs {'methodName': string, 'params': array}. A result is the value itself, or a struct {'faultCode':
    int, 'faultString': string}.
    """
    results: list[Any] = []
    for item in calls:
        try:
            results.append(await dispatch(call, *_parse_call(item)))
        except Fault as fault:
            results.append({"faultCode": fault.code, "faultString": fault.text})
    return results


def _parse_call(item: object) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(item, dict) or not isinstance(item.get("methodName"), str):
        raise Fault(codes.INCORRECT_PARAMETERS, "No methodName")
    if item["methodName"] == "system.multicall":
        raise Fault(codes.INCORRECT_PARAMETERS, "Recursive system.multicall forbidden")
    params = item.get("params", [])
    if not isinstance(params, list):
        raise Fault(codes.INCORRECT_PARAMETERS, "params must be an array")
    return item["methodName"], tuple(params)
