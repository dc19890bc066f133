"""supervisor.* methods about programs: status, start, stop, signal, logs, standard input.

A request for several programs goes to the daemon as one request. So the daemon stops them in parallel, and no queued
program takes the slot of one that has just stopped.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from supervisor.api import starting
from supervisor.api.inputs import signal_name
from supervisor.api.port import Json, Result, StatusPage
from supervisor.features.dialect import describe
from supervisor.features.dialect.calls import Call, Method, Parameter, Table, method, named, of_group, one
from supervisor.features.dialect.wire import Fault
from supervisor.model import codes
from supervisor.model.inputs import Verb
from supervisor.model.names import by_priority, group_of

TABLE: Final[Table] = {}

Structs = list[dict[str, Any]]
_STRUCTS: Final = "structs {name, group, status, description}"


# --- status --------------------------------------------------------------------------------------------------------------


@method(
    TABLE, "supervisor.getProcessInfo",
    name="the program (or 'group:name')",
    result="name, group, start, stop, now, state, statename, spawnerr, exitstatus, logfile, stdout_logfile, stderr_logfile, "
    "pid, description",
)  # fmt: skip
async def get_process_info(call: Call, name: str) -> dict[str, Any]:
    """Get info about a program.

    The description is `pid N, uptime H:MM:SS` and what is known of the training; state is one of Supervisor's.
    """
    snapshot = call.snapshot()
    return describe.info(one(name, snapshot), snapshot)


@method(TABLE, "supervisor.getAllProcessInfo", result="structs as of getProcessInfo")
async def get_all_process_info(call: Call) -> Structs:
    """Get info about all programs, sorted by name."""
    snapshot = call.snapshot()
    return [describe.info(view, snapshot) for view in snapshot.programs]


# --- start, stop, signal -------------------------------------------------------------------------------------------------


Perform = Callable[[Call, StatusPage, list[str], Any], Awaitable[list[Result]]]


def request(
    verb: str, option: Parameter, *, group_text: str, all_text: str, idle: Callable[[Json], bool]
) -> Callable[[Perform], Perform]:
    """Add a verb's three methods to the table: for a program (help text: the docstring), for a group, for all programs.

    `option` is the last parameter of each method. As in Supervisor, the methods for a group and for all programs skip
    `idle` programs, because these need no action.
    """

    def enter(perform: Perform) -> Perform:
        async def process(call: Call, name: str, value: Any = True) -> bool | Structs:
            snapshot = call.changing()
            views, whole = named(snapshot, name)
            if whole:
                return await each(call, snapshot, views, value)
            return _true(name, await perform(call, snapshot, [views[0]["name"]], value))

        async def group(call: Call, name: str, value: Any = True) -> Structs:
            snapshot = call.changing()
            if verb == "stop" and name.startswith("["):
                return []  # a section of the configuration, in the form that reloadConfig lists
            return await each(call, snapshot, of_group(snapshot, name), value)

        async def every(call: Call, value: Any = True) -> Structs:
            snapshot = call.changing()
            return await each(call, snapshot, snapshot.programs, value)

        async def each(call: Call, snapshot: StatusPage, views: Iterable[Json], value: Any) -> Structs:
            names = [view["name"] for view in by_priority(views) if not idle(view)]
            return _structs(snapshot, await perform(call, snapshot, names, value) if names else [])

        name = Parameter("string", "name", "the program (or 'group:name', or 'group:*')")
        whole = Parameter("string", "name", "the group")
        none = f"{_STRUCTS}; none when there is nothing to do"
        text = inspect.getdoc(perform) or ""
        TABLE[f"supervisor.{verb}Process"] = Method(process, text, (name, option), "boolean", "always true unless error")
        TABLE[f"supervisor.{verb}ProcessGroup"] = Method(group, group_text, (whole, option), "array", none)
        TABLE[f"supervisor.{verb}AllProcesses"] = Method(
            every, all_text, (option,), "array", f"{_STRUCTS}, by priority, then by name"
        )
        return perform

    return enter


@request(
    "start", Parameter("boolean", "wait", "wait until the outcome is known", required=False),
    group_text="Start every program of a group. A program without one is a group of its own.",
    all_text="Start every program that does not run.",
    idle=lambda view: view["phase"] in {"STARTING", "RUNNING", "BACKOFF"},
)  # fmt: skip
async def _start(call: Call, snapshot: StatusPage, names: list[str], wait: bool) -> list[Result]:
    """Start a program, and keep it running from now on.

    Answers once its process has lived for half a second, or trains. A program without a free slot is queued, which
    counts as success. A group ('group:*') is answered as by startProcessGroup.
    """
    done = await call.ask(Verb.START, names)
    if wait:
        done = await starting.wait_for_starts(call.snapshot, starting.attempts(snapshot), done)
    return [(name, start_code(code, text), text) for name, code, text in done]


def start_code(code: int, text: str) -> int:
    """Supervisor's code for the result of a start; the stock client knows no other codes.

    Example: `spawn error: no such file: '/x'` is NO_FILE (exit code 1), other spawn errors are SPAWN_ERROR (7).
    """
    if code == codes.NOT_RUNNING:
        return codes.ABNORMAL_TERMINATION  # somebody stopped it meanwhile
    if code == codes.ABNORMAL_TERMINATION:
        return codes.SPAWN_ERROR  # it ended within Supervisor's `startsecs`
    if code == codes.SPAWN_ERROR and "no such " in text:
        return codes.NO_FILE
    if code == codes.SPAWN_ERROR and ("permission denied" in text or "neither a program" in text):
        return codes.NOT_EXECUTABLE
    return code


@request(
    "stop", Parameter("boolean", "wait", "wait until it has exited", required=False),
    group_text="Stop every program of a group. A program without one is a group of its own.",
    all_text="Stop every program that runs, waits for a slot, or would be started again.",
    idle=lambda view: view["phase"] in {"STOPPED", "DONE", "EXITED", "FATAL"},
)  # fmt: skip
async def _stop(call: Call, snapshot: StatusPage, names: list[str], wait: bool) -> list[Result]:
    """Stop a program: it saves and exits, and stays down over restarts of daemon and host until it is started."""
    down = {view["name"] for view in snapshot.programs if view["phase"] in {"STOPPED", "DONE"}}
    if down.issuperset(names):
        return [(name, codes.NOT_RUNNING, "not running") for name in names]  # the journal would record a request
    if wait:
        return await call.ask(Verb.STOP, names)
    call.later(call.ask(Verb.STOP, names))
    return [(name, codes.SUCCESS, "OK") for name in names]


@request(
    "signal", Parameter("signal", "signal", "as name ('HUP', 'SIGHUP') or number ('1')"),
    group_text="Send a signal to every program of a group. A program without one is a group of its own.",
    all_text="Send a signal to every worker.",
    idle=lambda view: view["pid"] is None,
)  # fmt: skip
async def _signal(call: Call, _: StatusPage, names: list[str], signal: str) -> list[Result]:
    """Send a signal to the worker of a program."""
    full = signal_name(signal)
    if full is None:
        return [(name, codes.BAD_SIGNAL, signal) for name in names]
    return await call.ask(Verb.SIGNAL, names, full)


# --- logs and standard input ---------------------------------------------------------------------------------------------


@method(
    TABLE, "supervisor.clearProcessLogs", "supervisor.clearProcessLog",
    name="the program (or 'group:name')", result="always true unless error",
)  # fmt: skip
async def clear_process_logs(call: Call, name: str) -> bool:
    """Empty the stdout and stderr logs of a program. Rotated copies stay."""
    view = one(name, call.changing())
    return _true(name, await call.ask(Verb.CLEAR, [view["name"]]))


@method(TABLE, "supervisor.clearAllProcessLogs", result=f"{_STRUCTS}, by priority, then by name")
async def clear_all_process_logs(call: Call) -> Structs:
    """Empty the logs of every program. Rotated copies stay."""
    snapshot = call.changing()
    names = [view["name"] for view in snapshot.programs]
    return _structs(snapshot, await call.ask(Verb.CLEAR, names) if names else [])


@method(
    TABLE, "supervisor.sendProcessStdin",
    name="the program (or 'group:name')", chars="what is sent", result="always true unless error",
)  # fmt: skip
async def send_process_stdin(call: Call, name: str, chars: str) -> bool:
    """Send characters to the standard input of a program with `stdin = true`. Others read an empty one."""
    view = one(name, call.changing())
    return _true(name, [await call.wait(call.backend.send_stdin, view["name"], chars.encode("utf-8", "surrogatepass"))])


# --- results -------------------------------------------------------------------------------------------------------------


def _true(spec: str, results: list[Result]) -> bool:
    for _, code, text in results:
        if code != codes.SUCCESS:
            raise Fault(code, spec if code != codes.FAILED else f"{spec}: {text}")
    return True


def _structs(snapshot: StatusPage, results: list[Result]) -> Structs:
    groups = {view["name"]: group_of(view) for view in by_priority(snapshot.programs)}
    places = {name: place for place, name in enumerate(groups)}
    return [
        {
            "name": name, "group": groups.get(name, name), "status": int(code),
            "description": "OK" if code == codes.SUCCESS else f"{codes.NAMES[code]}: {name}: {text}",
        }
        for name, code, text in sorted(results, key=lambda result: (places.get(result[0], len(places)), result[0]))
    ]  # fmt: skip
