"""The verbs that change something, and small read-only ones, with Supervisor's words, messages and exit codes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from supervisor import discovery
from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, NOT_RUNNING, OK, USAGE, DaemonRefused, Failed
from supervisor.ctl.session import Session, parse_options, place_of
from supervisor.ctl.status import status
from supervisor.model import codes
from supervisor.model.names import expand, group_of, plain

_NOT_RUNNING_CODES = {codes.ABNORMAL_TERMINATION, codes.SPAWN_ERROR, codes.NOT_RUNNING}  # exit code 7
_ERRORS = {
    codes.SHUTDOWN_STATE: "shutting down", codes.BAD_NAME: "no such process", codes.BAD_SIGNAL: "bad signal name",
    codes.NO_FILE: "no such file", codes.NOT_EXECUTABLE: "file is not executable",
    codes.ALREADY_STARTED: "already started", codes.NOT_RUNNING: "not running",
}  # fmt: skip


def start(session: Session, args: list[str]) -> int:
    """`start NAME ..|all`.

    Start programs; `started` means that the process runs. `status` shows whether it trains.
    """
    names, as_json = _named(args, "start", code=USAGE)
    return _print_results(session, _request(session, "start", names), codes.ALREADY_STARTED, as_json=as_json)


def stop(session: Session, args: list[str]) -> int:
    """`stop NAME ..|all`.

    Each program saves and exits, and stays down until `start`, also over restarts of daemon and host.
    """
    names, as_json = _named(args, "stop")
    return _print_results(session, _request(session, "stop", names), codes.NOT_RUNNING, as_json=as_json)


def restart(session: Session, args: list[str]) -> int:
    """`restart NAME ..|all`.

    Each program saves, exits and starts again.
    """
    # This is one request, so a client that dies half-way leaves no program stopped. Supervisor's client stops, then starts;
    # this verb prints the same lines.
    names, as_json = _named(args, "restart")
    had = {view["name"] for view in _programs(session) if view["pid"] is not None}
    results = _request(session, "restart", names)
    for result in [] if as_json else results:
        if result["code"] == codes.SUCCESS:
            session.say(f"{result['name']}: {'stopped' if result['name'] in had else 'ERROR (not running)'}")
    return _print_results(session, results, codes.ALREADY_STARTED, as_json=as_json)


def signal(session: Session, args: list[str]) -> int:
    """`signal SIGNAL NAME ..|all`.

    Send a signal to the workers: HUP, SIGHUP or 1.
    """
    (name, *names), as_json = _named(args, "signal", 2, "a signal name and a process name")
    return _print_results(session, _request(session, "signal", names, signal=name), as_json=as_json)


def clear(session: Session, args: list[str]) -> int:
    """`clear NAME ..|all`.

    Empty the logs of programs; rotated copies stay.
    """
    names, as_json = _named(args, "clear")
    return _print_results(session, _request(session, "clear", names), as_json=as_json)


def _named(
    args: list[str], verb: str, least: int = 1, what: str = "a process name", code: int = GENERIC
) -> tuple[list[str], bool]:
    words = [arg for arg in args if arg != "--json"]
    if len(words) < least:
        raise Failed(f"Error: {verb} requires {what}", code)
    return words, "--json" in args


def _programs(session: Session) -> list[Any]:
    programs: list[Any] = session.client.get("/api/v1/status")["programs"]
    return programs


def _request(session: Session, verb: str, names: list[str], signal: str = "") -> list[Any]:
    body: dict[str, object] = {"verb": verb, "names": names, "signal": signal}
    results: list[Any] = session.client.post("/api/v1/ask", body)["results"]
    return results


def _print_results(session: Session, results: list[Any], forgiven: int | None = None, *, as_json: bool = False) -> int:
    """Print one line per result, and return the exit code of the last failure, as Supervisor does."""
    if as_json:
        session.say_json({"results": results})
    else:
        for result in results:
            fault, name, said = result["code"], text.printable(result["name"]), text.printable(result["text"])
            session.say(f"{name}: {said}" if fault == codes.SUCCESS else f"{name}: ERROR ({_ERRORS.get(fault, said)})")
        unknown = [result["name"] for result in results if result["code"] == codes.BAD_NAME]
        if unknown:
            views = _programs(session)
            groups = {group_of(view) for view in views} - {view["name"] for view in views}
            known = [*(view["name"] for view in views), *(f"{group}:*" for group in sorted(groups))]
            for name in unknown:
                session.suggest(name, known)
    exit_code = OK
    for fault in (result["code"] for result in results):
        if fault not in {codes.SUCCESS, forgiven}:
            exit_code = NOT_RUNNING if fault in _NOT_RUNNING_CODES else GENERIC
    return exit_code


def pid(session: Session, args: list[str]) -> int:
    """`pid [NAME ..|all] [--json]`.

    The process id of the daemon, or of programs; 0 for a program that is down.
    """
    given, options = parse_options(args, "--json")
    status = session.client.get("/api/v1/status")
    if not given:
        session.show({"daemon": status["daemon"]["pid"]}, lambda found: [str(found["daemon"])], options)
        return OK
    pids = {view["name"]: view["pid"] or 0 for view in status["programs"]}
    wanted = expand(given, status["programs"])
    if "--json" in options:
        session.say_json({"programs": {name: pids.get(name) or None for name in wanted}})
    exit_code = OK
    for name in wanted:
        if "--json" not in options:
            session.say(str(pids[name]) if name in pids else f"No such process {text.printable(name)}")
        if name not in pids:
            session.suggest(name, pids)
            exit_code = GENERIC
        elif not pids[name]:
            exit_code = NOT_RUNNING
    return exit_code


def avail(session: Session, args: list[str]) -> int:
    """`avail [--json]`.

    Every configured program: in use or not, auto or manual start, priority.
    """
    options = _options(args, "avail")
    views = _programs(session)
    try:
        added = session.client.post("/api/v1/reread", {})["added"]
    except DaemonRefused:
        added = []  # an invalid configuration adds no programs; `reread` reports its mistakes
    rows = [{key: view[key] for key in ("name", "autostart", "priority")} | {"in_use": True} for view in views]
    rows += [{"name": name, "autostart": None, "priority": None, "in_use": False} for name in added]
    session.show({"programs": rows}, lambda found: map(_available, found["programs"]), options)
    return OK


def _available(row: dict[str, Any]) -> str:
    used = "in use" if row["in_use"] else "avail"
    auto = {True: "auto", False: "manual", None: text.UNKNOWN}[row["autostart"]]
    priority = text.UNKNOWN if row["priority"] is None else row["priority"]
    return f"{text.printable(row['name']):<32} {used:<9} {auto:<9} {priority}:{priority}"


def reread(session: Session, args: list[str]) -> int:
    """`reread [--json]`.

    Read the configuration and say what `update` would change. Changes nothing.
    """
    options = _options(args, "reread")
    words = {"added": "available", "changed": "changed", "removed": "disappeared"}
    words |= {"live": "changed, no restart", "sections": "changed"}
    session.show(_changes(session, "/api/v1/reread", {}), lambda changes: _change_lines(changes, words), options)
    return OK


def update(session: Session, args: list[str]) -> int:
    """`update [--dry-run] [NAME ..] [--json]`.

    Read the configuration and apply its changes; other programs keep running.
    """
    names, options = parse_options(args, "--dry-run", "--json")
    dry_run = "--dry-run" in options
    known = {view["name"] for view in _programs(session)}
    changes = _changes(session, "/api/v1/update", {"names": names, "dry_run": dry_run})
    wanted = [] if "all" in names else [plain(name) for name in names]
    changes = {key: [name for name in found if not wanted or name in wanted] for key, found in changes.items()}
    words = {"added": "would be added", "changed": "would be updated", "removed": "would be removed"}
    words |= {"live": "would be updated, no restart", "sections": "would be updated"}
    done = {"added": "added process group", "changed": "updated process group", "removed": "removed process group"}
    done |= {"live": "updated, no restart", "sections": "updated"}
    unknown = [name for name in wanted if name not in {*known, *changes["added"], *changes["sections"]}]
    if "--json" in options:
        session.say_json({**changes, "unknown": unknown, "dry_run": dry_run})
        return GENERIC if unknown else OK
    for line in _change_lines(changes, words if dry_run else done) if any(changes.values()) or dry_run else ():
        session.say(line)
    for name in unknown:
        session.say(f"ERROR: no such group: {text.printable(name)}")
        session.suggest(name, known)
    return GENERIC if unknown else OK


def add(session: Session, args: list[str]) -> int:
    """`add NAME ..`.

    Take new programs of the configuration into use; the others are not touched.
    """
    if not args:
        raise Failed("Error: add requires a process name")
    views = _programs(session)
    active = {name for view in views for name in (view["name"], group_of(view))}
    new = _changes(session, "/api/v1/reread", {})["added"]
    exit_code = OK
    for name in args:
        if name in active:
            session.say("ERROR: process group already active")
        elif name in new:
            _changes(session, "/api/v1/update", {"names": [name], "dry_run": False})
            session.say(f"{text.printable(name)}: added process group")
        else:
            session.say(f"ERROR: no such process/group: {text.printable(name)}")
            session.suggest(name, new)
            exit_code = GENERIC
    return exit_code


def open_(session: Session, args: list[str]) -> int:
    """`open URL`.

    Talk to another daemon from now on, in the shell: unix:///path/to/socket or http://host:port.
    """
    if len(args) != 1:
        raise Failed("Error: open requires a URL", USAGE)
    session.connect(place_of(args[0], "open"))
    return status(session, [])


def _changes(session: Session, page: str, body: dict[str, object]) -> dict[str, list[str]]:
    """The changes that the daemon has made or would make. Raises Failed with all mistakes of an invalid configuration."""
    try:
        answer = session.client.post(page, body)
    except DaemonRefused as refused:
        if refused.status != 422:
            raise
        raise Failed(f"ERROR: CANT_REREAD: {text.printable(refused)}") from None
    return {key: answer[key] for key in ("added", "changed", "removed", "live", "sections")}


def _change_lines(changes: dict[str, list[str]], words: dict[str, str]) -> list[str]:
    lines = sorted((name, words[key]) for key, names in changes.items() for name in names)
    return [f"{text.printable(name)}: {what}" for name, what in lines] or ["No config updates to processes"]


def shutdown(session: Session, args: list[str]) -> int:
    """`shutdown`.

    Every worker saves and exits, then the daemon ends. It does not wait for jobs of a cluster that does not answer.
    """
    _reject_arguments(args, "shutdown")
    if session.options.interactive and not _confirmed("shut the remote supervisord process down"):
        return OK
    status = session.page("status")
    left = [each.left_behind(status) for each in discovery.modules("lines") if hasattr(each, "left_behind")]
    left += [
        f"{text.printable(view['name'])}: {text.printable(view['why'])}; the daemon ends without it"
        for view in status["programs"] if view["trouble"] in {"untouchable", "unended"}
    ]  # fmt: skip
    _request(session, "shutdown", [])
    session.say("Shut down")
    for line in filter(None, left):
        session.warn(line)
    return OK


def reload(session: Session, args: list[str]) -> int:
    """`reload`.

    The daemon restarts with its newest code; workers keep running.
    """
    _reject_arguments(args, "reload")
    if session.options.interactive and not _confirmed("restart the remote supervisord process"):
        return OK
    _request(session, "reload", [])
    session.say("Restarted supervisord")
    return OK


def _confirmed(what: str) -> bool:
    try:
        return input(f"Really {what} y/N? ").lower().startswith("y")
    except EOFError:
        return False


def version(session: Session, args: list[str]) -> int:
    """`version [--json]`.

    The daemon's version.
    """
    options = _options(args, "version")
    found = session.client.get("/api/v1/status")["daemon"]["version"]
    session.show({"daemon": found}, lambda found: [found["daemon"]], options)
    return OK


def config(session: Session, args: list[str]) -> int:
    """`config [--json]`.

    Every setting in force, where it comes from, and what the file says where that is something else.
    """
    options = _options(args, "config")
    session.show(session.page("config"), _settings, options)
    return OK


def _settings(found: dict[str, Any]) -> list[str]:
    rows = found["settings"]
    wide = max((len(row["key"]) for row in rows), default=0)
    lines = [f"the file cannot be used: {text.printable(each)}" for each in found.get("errors") or ()]
    for row in rows:
        other = f"; the file says {text.printable(json.dumps(row['file']))}" if "file" in row else ""
        value = text.printable(json.dumps(row["value"]))
        lines.append(f"{row['key']:<{wide}} = {value}  ({text.printable(row['origin'])}){other}")
    remedies = Counter(row["remedy"] for row in rows if "file" in row)
    return lines + [
        f"The file says something else for {text.count(number, 'setting')}: extralifectl {verb} applies it."
        for verb, number in sorted(remedies.items(), reverse=True)
    ]


def _options(args: list[str], verb: str) -> dict[str, str]:
    names, options = parse_options(args, "--json")
    _reject_arguments(names, verb)
    return options


def _reject_arguments(args: list[str], verb: str) -> None:
    if args:
        raise Failed(f"Error: {verb} accepts no arguments")
