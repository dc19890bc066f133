"""Past events: `history`, `explain`, `reboots` and `journal`, from the daemon or, if it is dead, from its journal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from math import inf
from typing import Any

from supervisor.ctl import text
from supervisor.ctl.accounts import since_query, until_query
from supervisor.ctl.outcome import OK, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session, parse_int, parse_options
from supervisor.ctl.status_page import cells
from supervisor.formats import span
from supervisor.model.codec import kinds as kinds_of_facts
from supervisor.reports.facts_view import word
from workers.contract import FIGURES

_LAST = 50
_NEAR = 5000
_INCIDENTS = 3
_FOLLOW_S = 1.0
_MOST_INCIDENTS = 100
_EVIDENCE_LINES = 60
_WHOLE_TEXTS = 20_000  # characters
# The daemon records these every few minutes for weeks. `history` omits them without --all.
_ROUTINE = {
    "Checkpointed", "IntervalChosen", "GapLearned", "PaceLearned", "Snapshot", "Tallied", "Reviewed", "AlertRaised",
    "AlertHeld", "AlertDelivered", "ReportMade", "CheckpointSeen",
}  # fmt: skip


# --- history ---------------------------------------------------------------------------------------------------------------


def history(session: Session, args: list[str]) -> int:
    """`history [NAME] [-n N] [--since 12h|2d|TIME|boot|all] [--until 2h|TIME] [-f] [--all] [--json]`.

    What happened and why: the newest N facts (50; with --since all of that time); --all includes routine ones. With -f
    also each new one, over restarts of the daemon, until Ctrl-C; with --json one object a line.
    """
    names, options = parse_options(args, "--json", "--all", "-f", valued=("-n", "--since", "--until"))
    if len(names) > 1:
        raise Failed("Error: history takes one program's name, or none")
    follow, as_json = "-f" in options, "--json" in options
    last = parse_int(options.get("-n", str(_LAST)), "-n", least=0 if follow else 1)
    session.warn_if_dead(to_stdout=not as_json)
    program = session.program(names[0]) if names and names[0] != "all" else None
    kinds = "" if "--all" in options else ",".join(sorted(set(kinds_of_facts()) - _ROUTINE))
    if {"--since", "--until"} & options.keys():
        rows = _within(session, options, program, kinds)[-last if "-n" in options else None :]
    else:
        rows = session.facts(program=program, last=last, kinds=kinds) if last else []
    if not rows and program is not None:
        session.view(program)
    if as_json and not follow:
        session.say_json({"facts": rows})
        return OK
    show = json.dumps if as_json else _Table(rows).line
    for row in rows:
        session.say(show(row))
    if follow:
        after = rows[-1]["seq"] if rows else _newest(session) if last == 0 else 0
        return _follow(session, after, show, program=program, kinds=kinds)
    if not rows:
        session.say("nothing has happened yet")
    return OK


def _within(session: Session, options: dict[str, str], program: str | None, kinds: str) -> list[dict[str, Any]]:
    """The facts between two moments, oldest first."""

    def wall_s(query: str) -> float:
        if query == "boot":
            status = session.page("status")
            return float(status["wall_s"]) - float(status["daemon"]["boot_up_s"] or 0.0)
        return -inf if query == "all" else float(query[1:]) if query[0] == "@" else text.wall_s() - float(query[:-1])

    until = until_query(options.get("--until"))
    since_s, until_s = wall_s(since_query(options.get("--since", "all"))), inf if until is None else wall_s(until)
    rows = session.facts(program=program, last=_NEAR, kinds=kinds)
    if len(rows) == _NEAR and rows[0]["wall_s"] > since_s:  # they reach further back
        rows = session.facts(program=program, kinds=kinds)
    return [row for row in rows if since_s <= row["wall_s"] <= until_s]


class _Table:
    """Facts as aligned lines; the column of names grows with the longest one."""

    def __init__(self, rows: list[Any]) -> None:
        self._columns = text.columns()
        self._wide = max((text.width(self._about(row)) for row in rows), default=0)

    @staticmethod
    def _about(row: dict[str, Any]) -> str:
        return text.printable(row["program"] or text.UNKNOWN)

    def line(self, row: dict[str, Any]) -> str:
        self._wide = max(self._wide, text.width(self._about(row)))
        about = text.pad(self._about(row), self._wide)
        line = f"{text.when(row['wall_s'])}  {about}  {text.pad(word(row['kind']), 14)}  {text.printable(row['why'])}"
        return "\n".join(text.fit([line], self._columns))


def _newest(session: Session, after: int = 0) -> int:
    found = session.page("facts", after=after, limit=-1)["facts"]
    return int(found[-1]["seq"]) if found else after


def _follow(
    session: Session, after: int, show: Callable[[dict[str, Any]], str], *, program: str | None = None, kinds: str = ""
) -> int:
    """Print each fact after `after` when it is recorded, over restarts of the daemon, until Ctrl-C or a closed terminal.

    The cursor advances with every fact, shown or not. Otherwise, with a filter that matches nothing, each poll would read
    the journal from its beginning, once per second.
    """
    silent = ""
    try:
        while True:
            try:
                newest = _newest(session, after)
                rows = session.facts(after=after, program=program, kinds=kinds) if newest > after else []
                silent = ""
            except (Unreachable, DaemonRefused, Failed) as gone:  # the daemon restarts, or the journal is being moved
                rows, newest = [], after
                if str(gone) != silent:
                    session.warn(f"==> {gone}; waiting <==")
                silent = str(gone)
            for row in rows:
                session.say(show(row))
                newest = max(newest, row["seq"])
            after = newest
            sys.stdout.flush()
            text.pause_while_read(_FOLLOW_S)
    except KeyboardInterrupt:
        return OK


# --- explain ---------------------------------------------------------------------------------------------------------------


def explain(session: Session, args: list[str]) -> int:
    """`explain NAME [-n N] [--json]`.

    The state of a program and its last N incidents (3) with their evidence.
    """
    names, options = parse_options(args, "--json", valued=("-n",))
    if len(names) != 1:
        raise Failed("Error: explain requires a process name")
    most = parse_int(options.get("-n", str(_INCIDENTS)), "-n", least=1)
    session.warn_if_dead(to_stdout="--json" not in options)
    name = session.program(names[0])
    view = session.view(name)
    found = session.page("incidents", program=name, limit=min(most, _MOST_INCIDENTS), chars=_WHOLE_TEXTS)
    shown = sorted((each for cause in found["causes"] for each in cause["incidents"]), key=lambda each: each["seq"])[-most:]
    if "--json" in options:
        session.say_json({"program": view, "incidents": shown})
        return OK
    session.say_lines(_now(view))
    if not shown:
        session.say(f"\nNothing has gone wrong with {text.printable(name)} so far.")
    for number, incident in zip(range(found["count"], 0, -1), reversed(shown), strict=False):
        session.say(f"\nincident {number} of {found['count']}, {text.when(incident['wall_s'])}")
        for row in incident["story"]:
            if row["program"] in {None, name}:  # a reboot affects other programs too
                for line in _fact_lines(row):
                    session.say_lines([line]) if "        | " not in line else session.say(line)  # a trace stays as it is
    if text.columns() is not None:
        session.say_lines(["", f"extralifectl history {name}: all that happened; extralifectl tail {name} stderr: its log"])
    return OK


def _now(view: dict[str, Any]) -> list[str]:
    cell = cells(view)
    out = [f"{cell['NAME']}: {cell['STATE']}, {cell['PROCESS']}", f"  why         {cell['WHY']}"]
    if view["spawn_error"]:
        out.append(f"  spawn error {text.printable(view['spawn_error'])}")
    deaths = text.number(view["deaths_in_window"])
    out.append(f"  restarts    {cell['RESTARTS']}; deaths that count now: {deaths}; next: {cell['NEXT']}")
    lowered = view["lowered_batch"]
    if lowered is not None:
        out.append(f"  batch       {lowered} at level {text.printable(view['level'])}, since it ran out of memory")
    if view["rollbacks"]:
        out.append(f"  rollbacks   {view['rollbacks']} after a divergence or an illness")
    shares = view.get("time_shares")
    if shares:
        parts = sorted(shares.items(), key=lambda item: -item[1])
        out.append(f"  time        {', '.join(f'{part} {text.percent(share)}' for part, share in parts)}")
    pressure = view.get("pressure")
    if pressure:
        told = ", ".join(f"{kind} {share:.0f} %" for kind, share in sorted(pressure.items()))
        out.append(f"  pressure    {told} of the last minute")
    found = [f"{row.title} {view[name]:.4g}" for name, row in FIGURES.items() if row.title and view.get(name) is not None]
    if found:
        out.append(f"  learner     {', '.join(found)}")
    own = view.get("figures")
    if own:
        out.append(
            f"  figures     {', '.join(f'{text.printable(name)} {value:.4g}' for name, value in sorted(own.items()))}"
        )
    if view.get("test_return") is not None:
        out.append(f"  last test   mean return {view['test_return']:.2f}")
    out.append(f"  checkpoint  step {text.number(view['ckpt_step'])}, {cell['CKPT']} old; now at step {cell['STEPS']}")
    return out


def _fact_lines(row: dict[str, Any]) -> list[str]:
    """One fact of an incident, with its evidence below it."""
    out = [f"  {text.when(row['wall_s'])}  {text.pad(row['word'], 22)}  {text.printable(row['why'])}"]
    measured = [_measured(key, value) for key, value in row["measured"].items()]
    if measured:
        out.append(f"      {', '.join(measured)}")
    for each in row["evidence"]:
        out += _block(each["title"].replace("_", " "), each["text"])
    return out


def _measured(key: str, value: object) -> str:
    """`free_bytes 2e9` as `free 2.0 GB`, `write_s 3.25` as `write 3.2s`."""
    name, _, unit = key.rpartition("_")
    if isinstance(value, int | float) and not isinstance(value, bool) and unit in {"s", "bytes"}:
        return f"{name.replace('_', ' ')} {span(value) if unit == 's' else text.size(value)}"
    return f"{key.replace('_', ' ')} {'yes' if value is True else 'no' if value is False else _value(value)}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return text.printable(", ".join(map(str, value)))
    return text.printable(value)


def _block(title: str, body: object) -> list[str]:
    lines = text.printable(body, lines=True).strip("\n").split("\n")
    more = len(lines) - _EVIDENCE_LINES
    cut = [*lines[:_EVIDENCE_LINES], f"... {more} more lines, see --json"] if more > 0 else lines
    if len(cut) == 1:
        return [f"      {text.printable(title)}: {cut[0]}"]
    return [f"      {text.printable(title)}:", *(f"        | {line}" for line in cut)]


# --- reboots ---------------------------------------------------------------------------------------------------------------


def reboots(session: Session, args: list[str]) -> int:
    """`reboots [-f] [--json]`.

    Every reboot of the host: when, why, how long it was down, what ran.
    """
    names, options = parse_options(args, "-f", "--json")
    if names:
        raise Failed("Error: reboots takes no names")
    session.warn_if_dead(to_stdout="--json" not in options)
    if "-f" in options:
        return _follow(session, 0, json.dumps if "--json" in options else _reboot, kinds="HostRebooted")
    rows = session.facts(kinds="HostRebooted")
    if "--json" in options:
        session.say_json({"facts": rows})
        return OK
    session.say_lines(map(_reboot, rows))
    if not rows:
        session.say("no reboot so far")
        return OK
    pattern = session.page("status")["daemon"].get("reboot_pattern")
    if pattern:
        session.say(f"pattern: {text.printable(pattern)}")
    return OK


def _reboot(row: dict[str, Any]) -> str:
    fields = row["fields"]
    up = fields["up_s"]
    cause, kind = str(fields["cause"]), fields.get("end")
    cause += f" ({kind})" if kind and kind != cause else ""
    return "  ".join(
        (
            text.when(row["wall_s"]),
            text.pad(text.printable(cause), 18),
            text.pad(f"down {text.duration(fields['down_s'])}", 12),
            text.pad(f"after {text.duration(up)} up", 16),
            text.pad(f"level {text.printable(fields['level'] or text.UNKNOWN)}", 12),
            f"ran: {_value(fields['programs']) or 'nothing'}",
            f"({text.printable('; '.join([fields['evidence'], *fields.get('last_words', [])[:1]]))})",
        )
    )


# --- journal ---------------------------------------------------------------------------------------------------------------


def journal(session: Session, args: list[str]) -> int:
    """`journal [--after N]`.

    Every fact, one JSON object a line, oldest first.
    """
    names, options = parse_options(args, valued=("--after",))
    if names:
        raise Failed("Error: journal takes no names; history NAME shows one program")
    after = parse_int(options.get("--after", "0"), "--after")
    session.warn_if_dead(to_stdout=False)
    for row in session.facts(after=after):
        session.say(json.dumps(row))
    return OK
