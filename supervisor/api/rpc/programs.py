"""supervisor.* methods that are about programs: start, stop, signal, and what is known of them.

A request for several programs is one request to the daemon: it stops them in parallel, and none of the queue takes the
place of one that has just been stopped.
"""

from __future__ import annotations

from typing import Any, Final

from supervisor.api import starting
from supervisor.api.port import Result, Snapshot
from supervisor.api.rpc import describe
from supervisor.api.rpc.calls import Call, Table, method, named, one
from supervisor.api.rpc.faults import Fault
from supervisor.api.signals import signal_name
from supervisor.model import codes
from supervisor.model.inputs import Verb

TABLE: Final[Table] = {}

Structs = list[dict[str, Any]]

# What `all` and a group leave out, as Supervisor does: those for which there is nothing to do.
_UP: Final = {"STARTING", "RUNNING", "BACKOFF"}
_DOWN: Final = {"STOPPED", "DONE", "FATAL"}


# --- what is known -------------------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.getProcessInfo", returns="struct", takes=("string",))
async def get_process_info(call: Call, name: str) -> dict[str, Any]:
    """Get info about a program.

    The description is `pid N, uptime H:MM:SS` and what is known of the training; state is one of Supervisor's.

    @param string name       the program (or 'group:name')
    @return struct result    name, group, start, stop, now, state, statename, spawnerr, exitstatus, logfile,
                             stdout_logfile, stderr_logfile, pid, description
    """
    snapshot = call.snapshot()
    return describe.info(one(name, snapshot), snapshot)


@method(TABLE, "supervisor.getAllProcessInfo", returns="array")
async def get_all_process_info(call: Call) -> Structs:
    """Get info about all programs, sorted by name.

    @return array result     structs as of getProcessInfo
    """
    snapshot = call.snapshot()
    return [describe.info(view, snapshot) for view in snapshot.programs]


# --- start ---------------------------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.startProcess", returns="boolean", takes=("string", "boolean"))
async def start_process(call: Call, name: str, wait: bool = True) -> bool | Structs:
    """Start a program, and want it running from now on.

    Answers once its process has lived for half a second, or trains; for a program that has no slot, that it is queued
    counts as success. A group ('group:*') is answered as by startProcessGroup.

    @param string name       the program (or 'group:name', or 'group:*')
    @param boolean wait      wait until that can be said
    @return boolean result   always true unless error
    """
    snapshot = call.changing()
    view, whole = named(snapshot, name)
    if whole:
        return await _start_each(call, snapshot, [view.name], wait=wait)
    return _true(name, await _start(call, snapshot, [view.name], wait=wait))


@method(TABLE, "supervisor.startProcessGroup", returns="array", takes=("string", "boolean"))
async def start_process_group(call: Call, name: str, wait: bool = True) -> Structs:
    """Start the group of a program. Each program is a group of its own.

    @param string name       the group
    @param boolean wait      wait until it can be said what became of it
    @return array result     structs {name, group, status, description}; none when it runs already
    """
    snapshot = call.changing()
    return await _start_each(call, snapshot, [_group(snapshot, name)], wait=wait)


@method(TABLE, "supervisor.startAllProcesses", returns="array", takes=("boolean",))
async def start_all_processes(call: Call, wait: bool = True) -> Structs:
    """Start every program that does not run.

    @param boolean wait      wait until it can be said what became of each
    @return array result     structs {name, group, status, description}, sorted by name
    """
    snapshot = call.changing()
    return await _start_each(call, snapshot, [view.name for view in snapshot.programs], wait=wait)


async def _start_each(call: Call, snapshot: Snapshot, names: list[str], *, wait: bool) -> Structs:
    down = [view.name for view in snapshot.programs if view.name in names and view.phase not in _UP]
    return _structs(await _start(call, snapshot, down, wait=wait) if down else [])


async def _start(call: Call, snapshot: Snapshot, names: list[str], *, wait: bool) -> list[Result]:
    done = await call.ask(Verb.START, names)
    if wait:
        done = await starting.settled(call.snapshot, starting.attempts(snapshot), done)
    return [(name, start_code(code, text), text) for name, code, text in done]


def start_code(code: int, text: str) -> int:
    """What Supervisor calls it; the stock client knows no other codes for a start.

    Example: `spawn error: no such file: '/x'` is NO_FILE (exit code 1), other spawn errors are SPAWN_ERROR (7).
    """
    if code == codes.NOT_RUNNING:
        return codes.ABNORMAL_TERMINATION  # somebody stopped it meanwhile
    if code == codes.SPAWN_ERROR and "no such " in text:
        return codes.NO_FILE
    if code == codes.SPAWN_ERROR and ("permission denied" in text or "neither a program" in text):
        return codes.NOT_EXECUTABLE
    return code


# --- stop ----------------------------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.stopProcess", returns="boolean", takes=("string", "boolean"))
async def stop_process(call: Call, name: str, wait: bool = True) -> bool | Structs:
    """Stop a program: it saves and leaves, and stays down over restarts of daemon and host until it is started.

    @param string name       the program (or 'group:name', or 'group:*')
    @param boolean wait      wait until it has left
    @return boolean result   always true unless error
    """
    snapshot = call.changing()
    view, whole = named(snapshot, name)
    if whole:
        return await _stop_each(call, snapshot, [view.name], wait=wait)
    if view.phase == "STOPPED":
        raise Fault(codes.NOT_RUNNING, name)
    return _true(name, await _stop(call, [view.name], wait=wait))


@method(TABLE, "supervisor.stopProcessGroup", returns="array", takes=("string", "boolean"))
async def stop_process_group(call: Call, name: str, wait: bool = True) -> Structs:
    """Stop the group of a program. Each program is a group of its own.

    @param string name       the group
    @param boolean wait      wait until it has left
    @return array result     structs {name, group, status, description}; none when it is down already
    """
    snapshot = call.changing()
    if name.startswith("["):
        return []  # a section of the settings, as reloadConfig names it
    return await _stop_each(call, snapshot, [_group(snapshot, name)], wait=wait)


@method(TABLE, "supervisor.stopAllProcesses", returns="array", takes=("boolean",))
async def stop_all_processes(call: Call, wait: bool = True) -> Structs:
    """Stop every program that runs, waits for a slot, or would be started again.

    @param boolean wait      wait until all have left
    @return array result     structs {name, group, status, description}, sorted by name
    """
    snapshot = call.changing()
    return await _stop_each(call, snapshot, [view.name for view in snapshot.programs], wait=wait)


async def _stop_each(call: Call, snapshot: Snapshot, names: list[str], *, wait: bool) -> Structs:
    up = [view.name for view in snapshot.programs if view.name in names and view.phase not in _DOWN]
    return _structs(await _stop(call, up, wait=wait) if up else [])


async def _stop(call: Call, names: list[str], *, wait: bool) -> list[Result]:
    if wait:
        return await call.ask(Verb.STOP, names)
    call.later(call.ask(Verb.STOP, names))
    return [(name, codes.SUCCESS, "OK") for name in names]


# --- signal --------------------------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.signalProcess", returns="boolean", takes=("string", "signal"))
async def signal_process(call: Call, name: str, signal: str) -> bool | Structs:
    """Send a signal to the worker of a program.

    @param string name       the program (or 'group:name', or 'group:*')
    @param string signal     as name ('HUP', 'SIGHUP') or number ('1')
    @return boolean result   always true unless error
    """
    snapshot = call.changing()
    view, whole = named(snapshot, name)
    if whole:
        return await _signal_each(call, snapshot, [view.name], signal)
    return _true(name, await _signal(call, [view.name], signal))


@method(TABLE, "supervisor.signalProcessGroup", returns="array", takes=("string", "signal"))
async def signal_process_group(call: Call, name: str, signal: str) -> Structs:
    """Send a signal to the group of a program. Each program is a group of its own.

    @param string name       the group
    @param string signal     as name ('HUP', 'SIGHUP') or number ('1')
    @return array result     structs {name, group, status, description}; none when it is down
    """
    snapshot = call.changing()
    return await _signal_each(call, snapshot, [_group(snapshot, name)], signal)


@method(TABLE, "supervisor.signalAllProcesses", returns="array", takes=("signal",))
async def signal_all_processes(call: Call, signal: str) -> Structs:
    """Send a signal to every worker.

    @param string signal     as name ('HUP', 'SIGHUP') or number ('1')
    @return array result     structs {name, group, status, description}, sorted by name
    """
    snapshot = call.changing()
    return await _signal_each(call, snapshot, [view.name for view in snapshot.programs], signal)


async def _signal_each(call: Call, snapshot: Snapshot, names: list[str], signal: str) -> Structs:
    live = [view.name for view in snapshot.programs if view.name in names and view.pid is not None]
    return _structs(await _signal(call, live, signal) if live else [])


async def _signal(call: Call, names: list[str], signal: str) -> list[Result]:
    full = signal_name(signal)
    if full is None:
        return [(name, codes.BAD_SIGNAL, signal) for name in names]
    return await call.ask(Verb.SIGNAL, names, full)


# --- logs and standard input ---------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.clearProcessLogs", "supervisor.clearProcessLog", returns="boolean", takes=("string",))
async def clear_process_logs(call: Call, name: str) -> bool:
    """Empty the stdout and stderr logs of a program. Rotated copies stay.

    @param string name       the program (or 'group:name')
    @return boolean result   always true unless error
    """
    view = one(name, call.changing())
    return _true(name, await call.ask(Verb.CLEAR, [view.name]))


@method(TABLE, "supervisor.clearAllProcessLogs", returns="array")
async def clear_all_process_logs(call: Call) -> Structs:
    """Empty the logs of every program. Rotated copies stay.

    @return array result     structs {name, group, status, description}, sorted by name
    """
    names = [view.name for view in call.changing().programs]
    return _structs(await call.ask(Verb.CLEAR, names) if names else [])


@method(TABLE, "supervisor.sendProcessStdin", returns="boolean", takes=("string", "string"))
async def send_process_stdin(call: Call, name: str, _chars: str) -> bool:
    """Refused: a worker's standard input is /dev/null, so that it can outlive the daemon.

    @param string name       the program (or 'group:name')
    @param string chars      what would be sent
    @return boolean result   never: NO_FILE, or NOT_RUNNING
    """
    if one(name, call.snapshot()).pid is None:
        raise Fault(codes.NOT_RUNNING, name)
    raise Fault(codes.NO_FILE, f"{name} reads its standard input from /dev/null")


# --- results -------------------------------------------------------------------------------------------------------------


def _group(snapshot: Snapshot, name: str) -> str:
    if snapshot.program(name) is None:
        raise Fault(codes.BAD_NAME, name)
    return name


def _true(spec: str, results: list[Result]) -> bool:
    """A result about one program as Supervisor answers it: true, or a fault."""
    for _, code, text in results:
        if code != codes.SUCCESS:
            raise Fault(code, spec if code != codes.FAILED else f"{spec}: {text}")
    return True


def _structs(results: list[Result]) -> Structs:
    return [
        {
            "name": name, "group": name, "status": int(code),
            "description": "OK" if code == codes.SUCCESS else f"{codes.NAMES[code]}: {name}: {text}",
        }
        for name, code, text in sorted(results)
    ]  # fmt: skip
