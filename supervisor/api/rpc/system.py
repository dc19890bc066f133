"""system.*: what methods there are, and several calls in one."""

from __future__ import annotations

from typing import Any, Final

from supervisor.api.rpc.calls import Call, Table, dispatch, method
from supervisor.api.rpc.faults import Fault
from supervisor.model import codes

TABLE: Final[Table] = {}


@method(TABLE, "system.listMethods", returns="array")
async def list_methods(call: Call) -> list[str]:
    """Return an array listing the available method names.

    @return array result     names, sorted
    """
    return sorted(call.table)


@method(TABLE, "system.methodHelp", returns="string", takes=("string",))
async def method_help(call: Call, name: str) -> str:
    """Return a string showing the method's documentation.

    @param string name       the name of the method
    @return string result    the documentation
    """
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return call.table[name].help


@method(TABLE, "system.methodSignature", returns="array", takes=("string",))
async def method_signature(call: Call, name: str) -> list[str]:
    """Return an array describing the method's signature: the type of its result, then those of its parameters.

    @param string name       the name of the method
    @return array result     types
    """
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return ["string" if kind == "signal" else kind for kind in call.table[name].signature]


@method(TABLE, "system.multicall", returns="array", takes=("array",))
async def multicall(call: Call, calls: list[Any]) -> list[Any]:
    """Process an array of calls, one after the other, and return an array of their results.

    Calls are structs {'methodName': string, 'params': array}. A result is the value itself, or a struct {'faultCode':
    int, 'faultString': string}.

    @param array calls       the calls
    @return array result     the results
    """
    results: list[Any] = []
    for item in calls:
        try:
            results.append(await dispatch(call, *_asked(item)))
        except Fault as fault:
            results.append({"faultCode": fault.code, "faultString": fault.text})
    return results


def _asked(item: object) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(item, dict) or not isinstance(item.get("methodName"), str):
        raise Fault(codes.INCORRECT_PARAMETERS, "No methodName")
    if item["methodName"] == "system.multicall":
        raise Fault(codes.INCORRECT_PARAMETERS, "Recursive system.multicall forbidden")
    params = item.get("params", [])
    if not isinstance(params, list):
        raise Fault(codes.INCORRECT_PARAMETERS, "params must be an array")
    return item["methodName"], tuple(params)
