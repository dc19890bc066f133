"""supervisor.* methods about the daemon itself: identity, state, configuration, shutdown; extralife.* about levels."""

from __future__ import annotations

import shlex
import signal as signals
from typing import Any, Final

from supervisor.api.inputs import MOST_PIN_S, is_span
from supervisor.api.port import ASK_WAIT_S, Json
from supervisor.api.rpc.calls import Call, Table, method, of_group
from supervisor.api.rpc.wire import Fault
from supervisor.model import codes
from supervisor.model.inputs import Verb
from supervisor.model.names import group_of

TABLE: Final[Table] = {}

API_VERSION: Final = "3.0"  # the stock client accepts no other version
SPEAKS: Final = "4.3.0"  # the Supervisor release whose interface this is


@method(TABLE, "supervisor.getAPIVersion", "supervisor.getVersion", result="'3.0'")
async def get_api_version(_: Call) -> str:
    """Return the version of the RPC API."""
    return API_VERSION


@method(TABLE, "supervisor.getSupervisorVersion", result="version id")
async def get_supervisor_version(call: Call) -> str:
    """Return the version of Supervisor's interface, then after the + the version of extralife.

    Tools compare the number; '4.3.0+extralife.0.1.0' is 4.3.0 to them, by PEP 440 and by semver.
    """
    return f"{SPEAKS}+extralife.{call.snapshot().daemon['version']}"


@method(TABLE, "supervisor.getIdentification", result="'extralife'")
async def get_identification(_: Call) -> str:
    """Return the name that distinguishes this daemon from Supervisor."""
    return "extralife"


@method(TABLE, "supervisor.getState", result="statecode, statename")
async def get_state(call: Call) -> dict[str, Any]:
    """Return the state of the daemon: RUNNING 1, RESTARTING 0, SHUTDOWN -1."""
    code, name = {"stopping": (-1, "SHUTDOWN"), "reloading": (0, "RESTARTING")}.get(
        call.snapshot().daemon["state"], (1, "RUNNING")
    )
    return {"statecode": code, "statename": name}


@method(TABLE, "supervisor.getPID", result="process id")
async def get_pid(call: Call) -> int:
    """Return the process id of the daemon."""
    return call.snapshot().daemon["pid"] or 0


@method(TABLE, "supervisor.shutdown", result="always true unless error")
async def shutdown(call: Call) -> bool:
    """Shut the daemon down: every worker saves and exits first."""
    call.changing()
    await call.ask(Verb.SHUTDOWN, [])
    return True


@method(TABLE, "supervisor.restart", result="always true unless error")
async def restart(call: Call) -> bool:
    """Let the daemon replace itself and re-read its configuration. Workers are not touched.

    A configuration with a mistake is refused with CANT_REREAD, and the daemon continues unchanged.
    """
    call.changing()
    refused = await call.ask(Verb.RELOAD, [])
    if refused:
        raise Fault(codes.CANT_REREAD if refused[0][1] == codes.CANT_REREAD else codes.FAILED, refused[0][2])
    return True


@method(TABLE, "supervisor.sendRemoteCommEvent", type="type of the event", data="data of the event", result="never: FAILED")
async def send_remote_comm_event(_: Call, _type: str, _data: str) -> bool:
    """Refused: there are no event listeners that could receive it."""
    raise Fault(codes.FAILED, "there are no event listeners; use the journal instead")


# --- the configuration -----------------------------------------------------------------------------------------------------


@method(TABLE, "supervisor.getAllConfigInfo", result="structs")
async def get_all_config_info(call: Call) -> list[dict[str, Any]]:
    """Get info about every program of the configuration file, in use or not, sorted by name."""
    rows: list[Json] = await call.read(call.backend.configured)
    return sorted(map(_config_info, rows), key=lambda row: str(row["name"]))


def _config_info(row: Json) -> dict[str, Any]:
    """Supervisor's 29 keys. A key without a counterpart here gets the value that matches our behaviour."""
    return {
        "autostart": row["autostart"], "directory": row["directory"] or "none", "uid": row["user"] or "none",
        "command": shlex.join(row["argv"]), "exitcodes": row["done_codes"], "group": group_of(row),
        "group_prio": row["priority"], "inuse": row["in_use"], "killasgroup": True, "name": row["name"],
        "process_prio": row["priority"], "redirect_stderr": row["redirect_stderr"],
        "startretries": row["window_deaths"] if row["start_retries"] is None else row["start_retries"],
        "startsecs": int((row["start_timeout_s"] if row["start_s"] is None else row["start_s"]) or 0),
        "stdout_capture_maxbytes": 0, "stdout_events_enabled": False,
        "stdout_logfile": row["stdout_log"] or "none", "stdout_logfile_backups": row["log_backups"],
        "stdout_logfile_maxbytes": row["log_max_bytes"], "stdout_syslog": False,
        "stopsignal": int(signals.Signals[f"SIG{row['stop_signal']}"]),
        "stopwaitsecs": int(row["stop_grace_s"]), "stderr_capture_maxbytes": 0, "stderr_events_enabled": False,
        "stderr_logfile": row["stderr_log"] or "none", "stderr_logfile_backups": row["log_backups"],
        "stderr_logfile_maxbytes": row["log_max_bytes"], "stderr_syslog": False, "serverurl": f"unix://{row['socket']}",
    }  # fmt: skip


@method(TABLE, "supervisor.reloadConfig", result="[[added, changed, removed]]")
async def reload_config(call: Call) -> list[list[list[str]]]:
    """Read the configuration file, and say what an update would change. Changes nothing.

    `added` also names what changes without a restart: sections such as '[level]', and '[program.NAME]' for a program
    whose limits or priority changed. So a client that adds all that is `added` has applied the whole file. Listed as
    `changed`, it would stop and start a program whose priority changed.
    """
    call.changing()
    planned = await _reread(call)
    return [[[*planned["added"], *_live_changes(planned)], planned["changed"], planned["removed"]]]


@method(TABLE, "supervisor.addProcessGroup", name="the group", result="true if successful")
async def add_process_group(call: Call, name: str) -> bool:
    """Take a program of the configuration file into use, or a section as reloadConfig names it."""
    snapshot = call.changing()
    if snapshot.program(name) is not None:
        raise Fault(codes.ALREADY_ADDED, name)
    planned = await _reread(call)
    if name not in planned["added"] and name not in _live_changes(planned):
        raise Fault(codes.BAD_NAME, name)
    program = name.removeprefix("[program.").removesuffix("]") if name.startswith("[program.") else name
    applied = await call.wait(lambda: call.backend.update([program], dry_run=False, by=call.by, uid=call.uid))
    if applied.get("errors"):
        raise Fault(codes.CANT_REREAD, "; ".join(map(str, applied["errors"])))
    return True


@method(TABLE, "supervisor.removeProcessGroup", name="the group", result="true if successful")
async def remove_process_group(call: Call, name: str) -> bool:
    """Take a program, or a group, that is down out of use. Its checkpoints and logs stay, and the file is not touched."""
    views = of_group(call.changing(), name)
    if any(view["phase"] in {"STARTING", "RUNNING", "STOPPING", "BACKOFF"} for view in views):
        raise Fault(codes.STILL_RUNNING, name)
    for view in views:
        _, code, text = await call.wait(call.backend.remove, view["name"], call.by, call.uid)
        if code != codes.SUCCESS:
            raise Fault(code, text)
    return True


def _live_changes(changes: Json) -> list[str]:
    return [*changes.get("sections", ()), *(f"[program.{name}]" for name in changes.get("live", ()))]


async def _reread(call: Call) -> Json:
    planned: Json = await call.wait(call.backend.reread)
    if planned.get("errors"):
        raise Fault(codes.CANT_REREAD, "; ".join(map(str, planned["errors"])))
    return planned


# --- levels, and the end of the work, which Supervisor does not know ------------------------------------------------------


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
    return await request(call, Verb.PIN, "", [level], float(seconds))


@method(TABLE, "extralife.unpinLevel", result="what was done")
async def unpin_level(call: Call) -> str:
    """End the pin; the climbing rule continues from that level."""
    call.changing()
    return await request(call, Verb.UNPIN, "", [])


async def request(call: Call, verb: Verb, text: str, names: list[str], for_s: float = 0.0) -> str:
    ask, by, uid = call.backend.request, call.by, call.uid
    _, code, text = await call.wait(ask, verb, text, names, by, uid, ASK_WAIT_S, for_s or None)
    if code != codes.SUCCESS:
        raise Fault(code, text)
    return str(text)


def _known(value: Any) -> Any:
    """`value` without the keys whose value is None: XML-RPC cannot express None."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value
