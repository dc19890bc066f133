"""The verbs that change something, and the small ones: Supervisor's words, texts and exit codes."""

from __future__ import annotations

import json

from supervisor.ctl import text
from supervisor.ctl.client import Refused
from supervisor.ctl.outcome import GENERIC, NOT_RUNNING, OK, USAGE, Failed
from supervisor.ctl.session import Session, take
from supervisor.model import codes
from supervisor.model.names import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEAD = {codes.ABNORMAL_TERMINATION, codes.SPAWN_ERROR, codes.NOT_RUNNING}  # exit code 7
_ERRORS = {
    codes.SHUTDOWN_STATE: "shutting down", codes.BAD_NAME: "no such process", codes.BAD_SIGNAL: "bad signal name",
    codes.NO_FILE: "no such file", codes.NOT_EXECUTABLE: "file is not executable",
    codes.ALREADY_STARTED: "already started", codes.NOT_RUNNING: "not running",
}  # fmt: skip


def start(session: Session, args: list[str]) -> int:
    """`start NAME ..|all`.

    Start programs; `started` means that the process runs. `status` shows whether it trains.
    """
    if not args:
        raise Failed("Error: start requires a process name", USAGE)
    return _told(session, _ask(session, "start", args), forgiven=codes.ALREADY_STARTED)


def stop(session: Session, args: list[str]) -> int:
    """`stop NAME ..|all`.

    Each program saves and exits, and stays down until `start`, also over restarts of daemon and host.
    """
    if not args:
        raise Failed("Error: stop requires a process name")
    return _told(session, _ask(session, "stop", args), forgiven=codes.NOT_RUNNING)


def restart(session: Session, args: list[str]) -> int:
    """`restart NAME ..|all`.

    Each program saves, exits and starts again.
    """
    # One request, so that a client that dies half-way leaves nothing stopped. Supervisor's client stops, then starts; what
    # it prints is printed here too.
    if not args:
        raise Failed("Error: restart requires a process name")
    had = {view["name"] for view in session.client.get("/api/v1/status")["programs"] if view["pid"] is not None}
    results = _ask(session, "restart", args)
    for result in results:
        if result["code"] == codes.SUCCESS:
            session.say(f"{result['name']}: {'stopped' if result['name'] in had else 'ERROR (not running)'}")
    return _told(session, results, forgiven=codes.ALREADY_STARTED)


def signal(session: Session, args: list[str]) -> int:
    """`signal SIGNAL NAME ..|all`.

    Send a signal to the workers: HUP, SIGHUP or 1.
    """
    if len(args) < 2:
        raise Failed("Error: signal requires a signal name and a process name")
    return _told(session, _ask(session, "signal", args[1:], signal=args[0]))


def clear(session: Session, args: list[str]) -> int:
    """`clear NAME ..|all`.

    Empty the logs of programs; rotated copies stay.
    """
    if not args:
        raise Failed("Error: clear requires a process name")
    return _told(session, _ask(session, "clear", args))


def _ask(session: Session, verb: str, names: list[str], signal: str = "") -> list[Any]:
    body: dict[str, object] = {"verb": verb, "names": names, "signal": signal}
    results: list[Any] = session.client.post("/api/v1/ask", body)["results"]
    return results


def _told(session: Session, results: list[Any], forgiven: int | None = None) -> int:
    """One line each; the exit code is that of the last failure, as Supervisor's."""
    exit_code = OK
    for result in results:
        fault, name = result["code"], text.harmless(result["name"])
        said = text.harmless(result["text"])
        if fault == codes.SUCCESS:
            session.say(f"{name}: {said}")
            continue
        session.say(f"{name}: ERROR ({_ERRORS.get(fault, said)})")
        if fault != forgiven:
            exit_code = NOT_RUNNING if fault in _DEAD else GENERIC
    return exit_code


def pid(session: Session, args: list[str]) -> int:
    """`pid [NAME ..|all]`.

    The process id of the daemon, or of programs; 0 for a program that is down.
    """
    status = session.client.get("/api/v1/status")
    if not args:
        session.say(str(status["daemon"]["pid"]))
        return OK
    pids = {view["name"]: view["pid"] or 0 for view in status["programs"]}
    exit_code = OK
    for name in sorted(pids) if "all" in args else [plain(name) for name in args]:
        if name not in pids:
            session.say(f"No such process {text.harmless(name)}")
            exit_code = GENERIC
            continue
        session.say(str(pids[name]))
        if not pids[name]:
            exit_code = NOT_RUNNING
    return exit_code


def avail(session: Session, args: list[str]) -> int:
    """`avail`.

    Every configured program: in use or not, auto or manual start, priority.
    """
    _none(args, "avail")
    for view in session.client.get("/api/v1/status")["programs"]:
        auto = {True: "auto", False: "manual", None: text.UNKNOWN}[view["autostart"]]
        priority = text.UNKNOWN if view["priority"] is None else view["priority"]
        session.say(f"{text.harmless(view['name']):<32} {'in use':<9} {auto:<9} {priority}:{priority}")
    try:
        added = session.client.post("/api/v1/reread", {})["added"]
    except Refused:
        added = []  # a broken edit has no programs yet; `reread` says what is wrong with it
    for name in added:
        session.say(f"{text.harmless(name):<32} {'avail':<9} {text.UNKNOWN:<9} {text.UNKNOWN}:{text.UNKNOWN}")
    return OK


def reread(session: Session, args: list[str]) -> int:
    """`reread`.

    Read the configuration and say what `update` would change. Changes nothing.
    """
    _none(args, "reread")
    changes = _changes(session, "/api/v1/reread", {})
    if changes is None:
        return GENERIC
    _say_changes(session, changes, {"added": "available", "changed": "changed", "removed": "disappeared"})
    return OK


def update(session: Session, args: list[str]) -> int:
    """`update [--dry-run] [NAME ..]`.

    Read the configuration and apply its changes; other programs keep running.
    """
    names, options = take(args, "--dry-run")
    dry_run = "--dry-run" in options
    known = {view["name"] for view in session.client.get("/api/v1/status")["programs"]}
    changes = _changes(session, "/api/v1/update", {"names": names, "dry_run": dry_run})
    if changes is None:
        return GENERIC
    wanted = [] if "all" in names else [plain(name) for name in names]
    changes = {key: [name for name in found if not wanted or name in wanted] for key, found in changes.items()}
    words = {"added": "would be added", "changed": "would be updated", "removed": "would be removed"}
    done = {"added": "added process group", "changed": "updated process group", "removed": "removed process group"}
    if any(changes.values()) or dry_run:
        _say_changes(session, changes, words if dry_run else done)
    nobody = [name for name in wanted if name not in known and name not in changes["added"]]
    for name in nobody:
        session.say(f"ERROR: no such group: {text.harmless(name)}")
    return GENERIC if nobody else OK


def _changes(session: Session, page: str, body: dict[str, object]) -> dict[str, list[str]] | None:
    try:
        told = session.client.post(page, body)
    except Refused as refused:
        if refused.status != 422:
            raise
        session.say(f"ERROR: CANT_REREAD: {text.harmless(refused)}")
        return None
    return {key: told[key] for key in ("added", "changed", "removed")}


def _say_changes(session: Session, changes: dict[str, list[str]], words: dict[str, str]) -> None:
    lines = sorted((name, words[key]) for key, names in changes.items() for name in names)
    for name, what in lines:
        session.say(f"{text.harmless(name)}: {what}")
    if not lines:
        session.say("No config updates to processes")


def shutdown(session: Session, args: list[str]) -> int:
    """`shutdown`.

    Every worker saves and exits, then the daemon ends.
    """
    _none(args, "shutdown")
    if session.options.interactive and not _really("shut the remote supervisord process down"):
        return OK
    _ask(session, "shutdown", [])
    session.say("Shut down")
    return OK


def reload(session: Session, args: list[str]) -> int:
    """`reload`.

    The daemon restarts with its newest code; workers keep running.
    """
    _none(args, "reload")
    if session.options.interactive and not _really("restart the remote supervisord process"):
        return OK
    _ask(session, "reload", [])
    session.say("Restarted supervisord")
    return OK


def _really(what: str) -> bool:
    try:
        return input(f"Really {what} y/N? ").lower().startswith("y")
    except EOFError:
        return False


def version(session: Session, args: list[str]) -> int:
    """`version`.

    The daemon's version.
    """
    _none(args, "version")
    session.say(session.client.get("/api/v1/status")["daemon"]["version"])
    return OK


def config(session: Session, args: list[str]) -> int:
    """`config --explain [--json]`.

    Every setting with its value and where it comes from.
    """
    names, options = take(args, "--explain", "--json")
    if names or "--explain" not in options:
        raise Failed("Error: config requires --explain")
    rows = session.page("config")["settings"]
    if "--json" in options:
        session.say(json.dumps(rows, indent=2))
        return OK
    wide = max((len(row["key"]) for row in rows), default=0)
    for row in rows:
        value = json.dumps(row["value"])
        session.say(f"{row['key']:<{wide}} = {text.harmless(value)}  ({text.harmless(row['origin'])})")
    return OK


def _none(args: list[str], verb: str) -> None:
    if args:
        raise Failed(f"Error: {verb} accepts no arguments")
