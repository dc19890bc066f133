"""What a method is, what it is called with, and how it is found: a table, no attribute of anything is ever looked up.

(Supervisor looked methods up by walking attributes of its objects; that was CVE-2017-11610.)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec

from supervisor.api.port import Backend, ProgramView, Result, Snapshot
from supervisor.api.rpc.faults import Fault
from supervisor.model import codes
from supervisor.model.inputs import Verb

ASK_WAIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Method:
    """One method: `signature` is the type of its result, then those of its parameters, of which some may be left out."""

    perform: Callable[..., Awaitable[Any]]
    signature: tuple[str, ...]
    required: int
    help: str


Table = dict[str, Method]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Call:
    """One call: who calls (`by` for people, `uid` from the kernel), and what it may use.

    `read` and `wait` run a function in a thread, reads in a few, requests of operators in others; `later` does one that
    nobody waits for.
    """

    backend: Backend
    table: Mapping[str, Method]
    read: Callable[..., Awaitable[Any]]
    wait: Callable[..., Coroutine[Any, Any, Any]]
    later: Callable[[Coroutine[Any, Any, Any]], None]
    by: str = "operator"
    uid: int | None = None

    def snapshot(self) -> Snapshot:
        return self.backend.snapshot()

    def changing(self) -> Snapshot:
        """The snapshot, for a call that changes something: refused while the daemon ends. Reads go on being answered."""
        snapshot = self.backend.snapshot()
        if snapshot.daemon.state == "stopping":
            raise Fault(codes.SHUTDOWN_STATE)
        return snapshot

    async def ask(self, verb: Verb, names: list[str], signal: str = "") -> list[Result]:
        """The daemon's answer to a request, one result for each name."""
        done: list[Result] = await self.wait(self.backend.ask, verb, names, signal, self.by, self.uid, ASK_WAIT_S)
        if any(code == codes.SHUTDOWN_STATE for _, code, _ in done):
            raise Fault(codes.SHUTDOWN_STATE)
        return done


def method(
    table: Table, *names: str, returns: str, takes: tuple[str, ...] = ()
) -> Callable[[Callable[Concatenate[Call, P], Awaitable[Any]]], Callable[Concatenate[Call, P], Awaitable[Any]]]:
    """Enter a function into a table under its name and its older names."""

    def enter(perform: Callable[Concatenate[Call, P], Awaitable[Any]]) -> Callable[Concatenate[Call, P], Awaitable[Any]]:
        parameters = list(inspect.signature(perform).parameters.values())[1:]
        required = sum(parameter.default is parameter.empty for parameter in parameters)
        entry = Method(perform, (returns, *takes), required, inspect.getdoc(perform) or "")
        table.update(dict.fromkeys(names, entry))
        return perform

    return enter


async def dispatch(call: Call, name: str, params: tuple[Any, ...]) -> Any:
    """The value that a method answers with. Raises Fault."""
    found = call.table.get(name)
    if found is None:
        raise Fault(codes.UNKNOWN_METHOD)
    types = found.signature[1:]
    if not found.required <= len(params) <= len(types):
        raise Fault(codes.INCORRECT_PARAMETERS)
    return await found.perform(call, *map(_checked, params, types))


def _checked(value: Any, wanted: str) -> Any:
    """A parameter as its type. Clients in other languages send 1 for true, and a number for a signal."""
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


def named(snapshot: Snapshot, spec: str) -> tuple[ProgramView, bool]:
    """The program that a name means, and whether the name means its whole group. Raises Fault.

    Each program is its own group: `Pong` and `Pong:Pong` name the program, `Pong:*` and `Pong:` the group of one.
    """
    group, colon, name = spec.partition(":")
    view = snapshot.program(group)
    if view is None or (colon and name not in {"", "*", group}):
        raise Fault(codes.BAD_NAME, spec)
    return view, bool(colon) and name in {"", "*"}


def one(spec: str, snapshot: Snapshot) -> ProgramView:
    """The program that a name means; a group will not do. Raises Fault."""
    view, whole = named(snapshot, spec)
    if whole:
        raise Fault(codes.BAD_NAME, spec)
    return view
