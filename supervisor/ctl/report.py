"""`report`: the night in one screen: what trained, how well, what broke, what it cost, what comes next."""

from __future__ import annotations

import json
from typing import Any

from supervisor.api.night import headline, other_levels, returns, take_overs, until_done
from supervisor.ctl import files, text
from supervisor.ctl.accounts import since_query, until_query
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import JSON_VERSION, Session, parse_options
from supervisor.formats import few

_NIGHT = "12h"
_TITLES = ("PROGRAM", "STATE", "TRAINED", "KEPT STEPS", "LOST", "FAILURES", "RETURN", "BEST", "DONE IN")
_EXPENDABLE = ("TRAINED", "BEST", "FAILURES", "LOST")  # what a narrow terminal loses first
_FORMATS = ("text", "json", "md")
_NOTHING = ["needs you: nothing"]
_WHY_WIDE = 90


def report(session: Session, args: list[str]) -> int:
    """`report [--since 12h|2d|TIME|boot|all] [--until 1h|TIME] [--format text|json|md] [--out FILE]`.

    The last 12 hours in one screen: what trained, how well, what broke, what it cost, what comes next.
    """
    names, options = parse_options(args, "--json", valued=("--since", "--until", "--format", "--out"))
    if names:
        raise Failed("Error: report takes no names; explain NAME shows one program", USAGE)
    form, out = options.get("--format", "json" if "--json" in options else "text"), options.get("--out", "-")
    if form not in _FORMATS:
        raise Failed(f"Error: --format takes {', '.join(_FORMATS)}, not {form!r}", USAGE)
    session.warn_if_dead(to_stdout=form == "text" and out == "-")
    window = {"since": since_query(options.get("--since", _NIGHT)), "until": until_query(options.get("--until"))}
    found = session.page("report", **window)
    if form == "json" and out == "-":
        session.say_json(found)
        return OK
    if form == "json":
        lines = [json.dumps({"version": JSON_VERSION, **found}, indent=2)]
    else:
        columns = text.columns() if out == "-" else None
        lines = markdown(found) if form == "md" else text.fit(page(found, columns), columns)
    files.write(out, [f"{line}\n" for line in lines])
    return OK


def page(found: dict[str, Any], columns: int | None = None) -> list[str]:
    rows = [_TITLES, *map(_cells, found["programs"])]
    needs = ["needs you:", *(f"  {text.printable(each)}" for each in found["needs"])] if found["needs"] else _NOTHING
    return [
        headline(found), "", *text.table(rows, range(2, len(_TITLES)), _EXPENDABLE, columns), "", *_broke(found),
        *take_overs(found), "",
        f"next: {until_done(found['next'])}", *other_levels(found["levels"]), *needs,
    ]  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    lost = text.number(row["lost_steps"]) + ("+?" if row["lost_unknown"] else "")
    return (
        text.printable(row["name"]), text.printable(row["phase"]), text.duration(row["trained_s"]),
        text.number(round(row["kept_steps"])), lost, text.number(row["failures"]), returns(row),
        text.UNKNOWN if row["best_return"] is None else f"{row['best_return']:.1f}", text.duration(row["eta_s"]),
    )  # fmt: skip


def _broke(found: dict[str, Any]) -> list[str]:
    if not found["broke"]:
        return ["nothing broke"]
    out = ["what broke"]
    for group in found["broke"]:
        where = f" ({few(list(map(text.printable, group['programs'])))})" if group["programs"] else ""
        newest = text.when(group["newest_wall_s"], found["until_wall_s"])
        why = text.clip(text.printable(group["why"]), _WHY_WIDE)
        out.append(f"  {group['count']:>3} x {text.printable(group['what'])}{where}; newest {newest}: {why}")
    return out


# --- Markdown ----------------------------------------------------------------------------------------------------------


def markdown(found: dict[str, Any]) -> list[str]:
    """The report as Markdown: a table of programs, and lists."""
    broke = []
    for group in found["broke"]:
        where = f" ({', '.join(map(_md, group['programs']))})" if group["programs"] else ""
        why = _md(text.clip(text.printable(group["why"]), _WHY_WIDE))
        broke.append(f"- {group['count']} x {_md(group['what'])}{where}: {why}")
    return [
        f"# {_md(headline(found))}", "",
        *("| " + " | ".join(row) + " |" for row in [_TITLES, ("---",) * len(_TITLES)]),
        *("| " + " | ".join(map(_md, _cells(row))) + " |" for row in found["programs"]),
        "", "## What broke", "", *(broke or ["Nothing."]),
        *(f"- {_md(line)}" for line in take_overs(found)),
        "", "## Next", "", *(f"- {_md(line)}" for line in (until_done(found["next"]), *other_levels(found["levels"]))),
        "", "## Needs you", "", *([f"- {_md(each)}" for each in found["needs"]] or ["Nothing."]),
    ]  # fmt: skip


def _md(said: object) -> str:
    """Untrusted text, with all characters of Markdown and HTML escaped."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|!&" else char for char in text.printable(said))
