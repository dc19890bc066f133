"""Methods, calls, the dispatch from a name to a method, and the system.* methods, which list and describe all methods.

A table holds every method; no attribute is ever looked up. (Supervisor looked methods up by walking attributes of its
objects; that was CVE-2017-11610.)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from textwrap import fill
from typing import Any, Concatenate, Final, ParamSpec, get_origin

from supervisor.api.port import ASK_WAIT_S, Backend, Json, Result, StatusPage
from supervisor.features.dialect.wire import Fault
from supervisor.model import codes
from supervisor.model.inputs import Verb
from supervisor.model.names import group_of, is_group, members
from supervisor.records import Record


class Parameter(Record):
    """One parameter of a method. Its type is an XML-RPC type, or `signal`: sent as a string or as an int."""

    type: str
    name: str
    meaning: str
    required: bool = True


class Method(Record):
    """One method: its help text, its parameters, the type and the meaning of its result."""

    perform: Callable[..., Awaitable[Any]]
    text: str
    parameters: tuple[Parameter, ...]
    returns: str
    result: str

    @property
    def signature(self) -> list[str]:
        """The answer of system.methodSignature: the type of the result, then the types of the parameters."""
        return [self.returns, *(_shown(each.type) for each in self.parameters)]

    @property
    def help(self) -> str:
        """The answer of system.methodHelp, in Supervisor's format: its clients print it unchanged."""
        lines = [f"{f'@param {_shown(each.type)} {each.name}':<25}{each.meaning}" for each in self.parameters]
        lines.append(f"{f'@return {self.returns} result':<25}{self.result}")
        return "\n".join([self.text, "", *(fill(line, 110, subsequent_indent=" " * 25) for line in lines)])


def _shown(kind: str) -> str:
    return "string" if kind == "signal" else kind


Table = dict[str, Method]
P = ParamSpec("P")


class Call(Record):
    """One call: the caller (`by` is a name for people, `uid` comes from the kernel), and what the call may use.

    `read` and `wait` run a function in a thread; reads and operators' requests have separate threads. `later` runs a
    coroutine whose result the client does not wait for.
    """

    backend: Backend
    table: Mapping[str, Method]
    read: Callable[..., Awaitable[Any]]
    wait: Callable[..., Coroutine[Any, Any, Any]]
    later: Callable[[Coroutine[Any, Any, Any]], None]
    by: str = "operator"
    uid: int | None = None

    def snapshot(self) -> StatusPage:
        return StatusPage(self.backend)

    def changing(self) -> StatusPage:
        """The snapshot, for a call that changes something: refused while the daemon stops. Reads are still answered."""
        snapshot = StatusPage(self.backend)
        if snapshot.daemon["state"] == "stopping":
            raise Fault(codes.SHUTDOWN_STATE)
        return snapshot

    async def ask(self, verb: Verb, names: list[str], signal: str = "") -> list[Result]:
        """The daemon's answer to a request, one result for each name."""
        done: list[Result] = await self.wait(self.backend.ask, verb, names, signal, self.by, self.uid, ASK_WAIT_S)
        if any(code == codes.SHUTDOWN_STATE for _, code, _ in done):
            raise Fault(codes.SHUTDOWN_STATE)
        return done


def method(
    table: Table, /, *names: str, result: str, text: str = "", **meanings: str
) -> Callable[[Callable[Concatenate[Call, P], Awaitable[Any]]], Callable[Concatenate[Call, P], Awaitable[Any]]]:
    """Add a function to a table under its name and its older names.

    Its docstring (or `text`) is the help text, its annotations give the types. `meanings` has the names and the
    descriptions of the parameters.
    """

    def enter(perform: Callable[Concatenate[Call, P], Awaitable[Any]]) -> Callable[Concatenate[Call, P], Awaitable[Any]]:
        signature = inspect.signature(perform, eval_str=True)
        takes = list(signature.parameters.values())[1:]
        parameters = tuple(
            Parameter(_type(each.annotation), name, meaning, each.default is each.empty)
            for each, (name, meaning) in zip(takes, meanings.items(), strict=True)
        )
        help_text = text or inspect.getdoc(perform) or ""
        entry = Method(perform, help_text, parameters, _type(signature.return_annotation), result)
        table.update(dict.fromkeys(names, entry))
        return perform

    return enter


def _type(annotation: Any) -> str:
    return {str: "string", int: "int", bool: "boolean", list: "array", dict: "struct"}[get_origin(annotation) or annotation]


async def dispatch(call: Call, name: str, params: tuple[Any, ...]) -> Any:
    """Call a method and return its value. Raises Fault."""
    found = call.table.get(name)
    if found is None:
        raise Fault(codes.UNKNOWN_METHOD)
    required = sum(each.required for each in found.parameters)
    if not required <= len(params) <= len(found.parameters):
        raise Fault(codes.INCORRECT_PARAMETERS)
    return await found.perform(
        call, *(_checked(value, each.type) for value, each in zip(params, found.parameters, strict=False))
    )


def _checked(value: Any, wanted: str) -> Any:
    """A parameter, converted to its type. Clients in other languages send 1 for true, and a number for a signal."""
    match wanted, value:
        case "string", str():
            return value
        case "signal", str() | int() if not isinstance(value, bool):
            return str(value)
        case "int", int() if not isinstance(value, bool):
            return value
        case "boolean", int():
            return bool(value)
        case "array", list():
            return value
        case _:
            raise Fault(codes.INCORRECT_PARAMETERS, f"{wanted} expected, not {type(value).__name__}")


def named(snapshot: StatusPage, spec: str) -> tuple[list[Json], bool]:
    """The programs that `spec` names, and whether it names a whole group. Raises Fault.

    `Pong` and `Pong:Pong` name a program, `Pong:*` and `Pong:` the group of that name: its seeds, or Pong alone.
    """
    found = set(members(spec, snapshot.programs))
    if not found:
        raise Fault(codes.BAD_NAME, spec)
    return [view for view in snapshot.programs if view["name"] in found], is_group(spec)


def of_group(snapshot: StatusPage, group: str) -> list[Json]:
    """The programs of a group, or the program of that name: `reloadConfig` names programs. Raises Fault."""
    found = [view for view in snapshot.programs if group_of(view) == group]
    single = snapshot.program(group)
    if not found and single is None:
        raise Fault(codes.BAD_NAME, group)
    return found or [single] if single is not None else found


def one(spec: str, snapshot: StatusPage) -> Json:
    """The program that `spec` names. A group is refused. Raises Fault."""
    views, whole = named(snapshot, spec)
    if whole:
        raise Fault(codes.BAD_NAME, spec)
    return views[0]


# --- system.* -----------------------------------------------------------------------------------------------------------

SYSTEM: Final[Table] = {}


@method(SYSTEM, "system.listMethods", result="names, sorted")
async def list_methods(call: Call) -> list[str]:
    """Return an array listing the available method names."""
    return sorted(call.table)


@method(SYSTEM, "system.methodHelp", name="the name of the method", result="the documentation")
async def method_help(call: Call, name: str) -> str:
    """Return a string showing the method's documentation."""
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return call.table[name].help


@method(SYSTEM, "system.methodSignature", name="the name of the method", result="types")
async def method_signature(call: Call, name: str) -> list[str]:
    """Return an array describing the method's signature: the type of its result, then those of its parameters."""
    if name not in call.table:
        raise Fault(codes.SIGNATURE_UNSUPPORTED)
    return call.table[name].signature


@method(SYSTEM, "system.multicall", calls="the calls", result="the results")
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
