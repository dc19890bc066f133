"""`backup`, `backups` and `rollback`: copy the checkpoints of all games, list the copies, and return to one of them."""

from __future__ import annotations

import sys
from typing import Any

from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.model.codes import SUCCESS

_LOOK_S = 0.2


def backup(session: Session, args: list[str]) -> int:
    """`backup [NAME ..|all] [--label TEXT] [--no-wait]`.

    Make a verified copy of each program's newest complete checkpoint. Ctrl-C stops the display, not the backup.
    """
    names, options = parse_options(args, "--no-wait", valued=("--label",))
    asked: dict[str, object] = {"names": [] if "all" in names else names, "label": options.get("--label", "")}
    result = session.client.post("/api/v1/backup", asked)
    if result["code"] != SUCCESS:
        raise Failed(f"backup: ERROR ({text.printable(result['text'])})")
    if "--no-wait" in options:
        session.say(f"{text.printable(result['name'])}: started")
        return OK
    return _follow(session, result["name"])


def rollback(session: Session, args: list[str]) -> int:
    """`rollback BACKUP [NAME ..|all] [--no-wait]`.

    Verify a backup, then let programs save, exit and resume from it; their state before is kept as a backup.
    """
    words, options = parse_options(args, "--no-wait")
    if not words:
        raise Failed("Error: rollback requires the name of a backup; `backups` lists them", USAGE)
    name, *names = words
    asked: dict[str, object] = {"backup": name, "names": [] if "all" in names else names}
    result = session.client.post("/api/v1/rollback", asked)
    if result["code"] != SUCCESS:
        raise Failed(f"{text.printable(name)}: ERROR ({text.printable(result['text'])})")
    if "--no-wait" in options:
        session.say(
            f"{text.printable(name)}: extralife verifies it; "
            f"the present state will be backup {text.printable(result['text'])}"
        )
        return OK
    return _follow(session, result["text"])


def _follow(session: Session, name: str) -> int:
    """Wait until the backup or rollback has ended. On a terminal, show its progress. Ctrl-C ends only the display."""
    tty, shown = sys.stdout.isatty(), ""
    try:
        while True:
            found = session.client.get("/api/v1/backups")
            end = next((end for end in reversed(found["ends"]) if end["name"] == name), None)
            if end is not None:
                _line(" " * text.width(shown), tty=tty)
                _line("", tty=tty)
                session.say(text.printable(end["text"]))
                return OK if end["ok"] else GENERIC
            rollback = found["rollback"]
            if name not in found["making"] and (rollback is None or rollback["kept_as"] != name):
                raise Failed(f"{text.printable(name)}: its result is unknown; see history and backups")
            shown = _progress(found["progress"])
            _line(shown, tty=tty)
            text.pause(_LOOK_S)
    except KeyboardInterrupt:
        session.say(f"\n{text.printable(name)} continues in the background")
        return OK


def _progress(progress: dict[str, Any] | None) -> str:
    """`20261121-0330: Pong, 120MB of 540MB`, padded to 60 characters, so that it overwrites the previous text."""
    if progress is None:
        return f"{'waits':<60}"
    program = f"{text.printable(progress['program'])}, " if progress["program"] else ""
    size = f"{text.size(progress['done_bytes'])} of {text.size(progress['total_bytes'])}"
    return f"{text.printable(progress['name'])}: {program}{size}".ljust(60)


def _line(line: str, *, tty: bool) -> None:
    if tty:
        sys.stdout.write(f"\r{line}")
        sys.stdout.flush()


def backups(session: Session, args: list[str]) -> int:
    """`backups [BACKUP ..] [--check] [--json]`.

    Every backup: when, why, which programs; --check verifies every byte now.
    """
    names, options = parse_options(args, "--check", "--json")
    found = session.page("backups")
    if names:
        known = [each["name"] for each in found["backups"]]
        for name in names:  # a script that checks one backup must not take a pruned one for a complete one
            if name not in known:
                session.suggest(name, known)
                raise Failed(f"{text.printable(name)}: ERROR (no such backup)")
        found["backups"] = [each for each in found["backups"] if each["name"] in names]
    if "--check" in options:
        for each in found["backups"]:
            each["error"] = session.page("backups", check=each["name"])["error"]
            each["checked"] = True
    session.show(found, page, options)
    return GENERIC if any(each["error"] for each in found["backups"]) else OK


def page(found: dict[str, Any]) -> list[str]:
    """One line per backup, the newest first."""
    if not found["backups"]:
        return ["no backups yet: `supervisorctl backup` makes one"]
    now_s = text.wall_s()
    rows = [("BACKUP", "WHEN", "WHY", "SIZE", "COMPLETE", "LABEL", "PROGRAMS")]
    for each in found["backups"]:
        programs = ", ".join(f"{text.printable(game['name'])} {text.number(game['steps'])}" for game in each["programs"])
        whole = "DAMAGED" if each["error"] else "yes, now" if each.get("checked") else "when made"
        when = text.when(each["created_wall_s"], now_s)
        size = f"{text.size(each['size_bytes'])} {each['method']}".strip()
        label = text.printable(each["label"]) or text.UNKNOWN
        rows.append((text.printable(each["name"]), when, each["cause"] or text.UNKNOWN, size, whole, label, programs))
        if each["error"]:
            rows[-1] = (*rows[-1][:-1], text.printable(each["error"]))
    return text.table(rows)
