"""`level`: the ladder with the measurements of its levels, the reasons for the current level, and the user's pin."""

from __future__ import annotations

import sys
from typing import Any

from supervisor.ctl import text
from supervisor.ctl.accounts import since_query
from supervisor.ctl.outcome import GENERIC, OK, USAGE, DaemonRefused, Failed
from supervisor.ctl.session import Session, parse_int, parse_options

_WHY = ("LadderLaid", "LevelChosen", "RebootJudged", "NodeFaultJudged", "LevelPinned", "LevelUnpinned", "LevelSettled")
_LAST = 20


def level(session: Session, args: list[str]) -> int:
    """`level [show|why [-n N]|pin LEVEL [--for 6h]|unpin] [--json]`.

    The levels with their measurements; why: the changes of level and their reasons; pin: keep one level; unpin: let
    the rule choose again.
    """
    word, rest = (args[0], args[1:]) if args and not args[0].startswith("-") else ("show", args)
    if word not in {"show", "why", "pin", "unpin"}:
        raise Failed(f"Error: level takes show, why, pin or unpin, not {text.printable(word)}", USAGE)
    valued = {"why": ("-n",), "pin": ("--for",)}
    names, options = parse_options(rest, "--json", valued=valued.get(word, ()))
    if len(names) != (word == "pin"):
        needs = "requires a level's name" if word == "pin" else "accepts no names"
        raise Failed(f"Error: level {word} {needs}", USAGE)
    if word in {"pin", "unpin"}:
        body: dict[str, object] = {"pin": names[0]} if names else {"unpin": True}
        if "--for" in options:
            body["for_s"] = span_s(options["--for"])
        try:
            told = session.client.post("/api/v1/level", body)
        except DaemonRefused as refused:
            raise Failed(f"ERROR: {text.printable(refused)}", GENERIC) from None
        session.show(told, lambda told: [f"{text.printable(told['name'])}: {text.printable(told['text'])}"], options)
        return OK
    last = parse_int(options.get("-n", str(_LAST)), "-n", least=1)
    session.warn_if_dead(to_stdout="--json" not in options)
    view = session.page("level")
    if word == "show":
        session.show(view, lambda view: page(view, text.Paint(on=sys.stdout.isatty())), options)
    else:
        found = {"level": view, "facts": session.facts(last=last, kinds=",".join(_WHY))}
        session.show(found, lambda found: [*head(found["level"]), "", *_changes(found["facts"])], options)
    return OK


def _changes(rows: list[dict[str, Any]]) -> list[str]:
    """The newest changes of level, reboots and requests that led to the current level."""
    about = ("ladder" if row["kind"] == "LadderLaid" else text.printable(row["fields"]["level"]) for row in rows)
    lines = [
        f"{text.when(row['wall_s'])}  {text.pad(name, 12)}  {text.printable(row['why'])}"
        for row, name in zip(rows, about, strict=True)
    ]
    return lines or ["nothing has changed so far"]


def span_s(value: str, name: str = "--for") -> float:
    """`90s`, `45m`, `6h`, `2d`, `1w`, or some of them together, in seconds."""
    try:
        found = since_query(value)
        seconds = float(found[:-1]) if found.endswith("s") else 0.0
    except Failed:
        seconds = 0.0
    if not seconds:
        raise Failed(f"Error: {name} takes a span such as 90s, 45m, 6h or 1h30m, not {value!r}", USAGE)
    return seconds


# --- the page ----------------------------------------------------------------------------------------------------------


def head(view: dict[str, Any]) -> list[str]:
    """The current level, since when, and why."""
    since = "" if view["since_wall_s"] is None else f" since {text.when(view['since_wall_s'])}"
    how = " (on trial)" if view["trial"] else ""
    level, why = (text.printable(view[key] or text.UNKNOWN) for key in ("level", "why"))
    out = [f"level {level}{how}{since}: {why}"]
    if view["said"]:
        out.append(f"now: {text.printable(view['said'])}")
    pin = view["pin"]
    if pin is not None:
        left = "until further notice" if pin["left_s"] is None else f"for another {text.duration(pin['left_s'])}"
        out.append(f"pinned by {text.printable(pin['by'])} at {text.when(pin['wall_s'])}, {left}")
    return out


def page(view: dict[str, Any], paint: text.Paint) -> list[str]:
    """The head, and a row for each level, the highest first."""
    rows = [_cells(level) for level in reversed(view["levels"])]
    titles = list(rows[0]) if rows else []
    right = [place for place, title in enumerate(titles) if title in _RIGHT]
    columns, leave = text.columns(), ("SPEED", "ON RECORD", "MTBF >=", "STEPS/MIN")
    longest = max((len(row["NEXT"]) for row in rows), default=0)
    wide = None if columns is None else columns + max(0, longest - len("NEXT"))  # only NEXT goes on in the next line
    head_line, *lines = text.table([titles, *(list(row.values()) for row in rows)], right, leave, wide) if rows else [""]
    out = [*head(view), "", paint(head_line, "dim")]
    for level, line in zip(reversed(view["levels"]), lines, strict=True):
        fitting = text.fit([line], columns)
        out += [paint(each, "green") for each in fitting] if level["in_force"] else fitting
    return [*out, "", *_foot(view)]


_RIGHT = {"STEPS/MIN", "SPEED", "ON RECORD", "REBOOTS", "MTBF", "MTBF >="}


def _cells(level: dict[str, Any]) -> dict[str, str]:
    load = text.UNKNOWN
    if level["slots"] is not None:
        load = f"{level['slots']} x {level['num_envs']}, batch {level['batch_size']}"
    speed = "" if level["speed_error"] is None else f" +-{100 * level['speed_error']:.0f}"
    failed = f"failed trials: {level['failed_trials']}" if level["failed_trials"] else ""
    if level["shortest_s"] is not None and failed:
        failed += f" (shortest {text.duration(level['shortest_s'])})"
    trial = "" if level["next_trial_s"] is None else f"trial in {text.duration(level['next_trial_s'])} at the earliest"
    veto = f"vetoed: {text.printable(level['veto'])}" if level["veto"] else ""
    return {
        "": "*" if level["in_force"] else "",
        "LEVEL": text.printable(level["name"]),
        "LOAD": load,
        "STEPS/MIN": text.number(level["steps_per_min"]),
        "SPEED": text.UNKNOWN if level["speed"] is None else f"{100 * level['speed']:.0f}{speed} %",
        "ON RECORD": text.duration(level["up_s"]) if level["up_s"] else text.UNKNOWN,
        "REBOOTS": f"{level['reboots']:g}",
        "MTBF": text.duration(level["mtbf_s"]),
        "MTBF >=": text.duration(level["mtbf_bound_s"]),
        "NEXT": "; ".join(part for part in (veto, failed, trial) if part),
    }


def _foot(view: dict[str, Any]) -> list[str]:
    if view["mode"] != "climb":
        return ['one fixed level is in force; [load] mode = "climb" tries higher levels']
    cost, penalty = view["change_cost_s"], text.duration(60.0 * view["reboot_penalty_min"])
    told = "" if cost is None else f"; one change of level costs {text.duration(cost)} of training"
    return [
        "MTBF >=: with 90 % confidence, the mean time between reboots is at least this",
        f"a reboot counts as {penalty} of lost training, besides the steps that it loses{told}",
    ]
