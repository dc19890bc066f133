"""`accounts`: how every second of every program and slot was spent, as a table by state that adds up."""

from __future__ import annotations

import os
import re
import sys
from datetime import datetime
from typing import Any

from supervisor.api.night import take_overs
from supervisor.ctl import text
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.formats import span
from supervisor.model.names import expand

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_COLOURS = {"TRAINING": "green", "LOST": "red", "DOWN": "red", "UNKNOWN": "yellow", "IDLE": "dim"}
_MOST_COLUMNS = 6  # programs shown as columns; if there are more, each gets one line
_BAR = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"


def accounts(session: Session, args: list[str]) -> int:
    """`accounts [NAME ..] [--since 1h|2d|TIME|boot] [--until 1h|TIME] [--json]`.

    How every second was spent, by program and for all slots; the times add up to the time paid.
    """
    names, options = parse_options(args, "--json", valued=("--since", "--until"))
    since, until = since_query(options.get("--since", "all")), until_query(options.get("--until"))
    session.warn_if_dead(to_stdout="--json" not in options)
    found = session.page("accounts", since=since, until=until)
    grouped = any(":" in name for name in names)
    chosen = _choose(found["programs"], expand(names, session.page("status")["programs"]) if grouped else names)
    total, paint, columns = not names or "all" in names, text.Paint(on=sys.stdout.isatty()), text.columns()

    def lines(found: dict[str, Any]) -> list[str]:
        return text.fit(page(found, chosen, total=total, paint=paint, columns=columns), columns)

    session.show({**found, "programs": chosen}, lines, options)
    return OK


def since_query(value: str) -> str:
    """The API's value for the start of a window: `all`, `boot`, `3600s` or `@seconds since the epoch`."""
    if value in {"all", "boot"}:
        return value
    return _moment(value, "--since takes a span (90s, 1h30m, 2d), a time (2026-11-21T08:00), boot or all")


def until_query(value: str | None) -> str | None:
    """The API's value for the end of a window; None means now."""
    return None if value in {None, "now"} else _moment(value or "", "--until takes a span (90s, 1h30m), a time or now")


def _moment(value: str, takes: str) -> str:
    if _SPAN.fullmatch(value):
        return f"{sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(value)):g}s"
    try:
        return f"@{datetime.fromisoformat(value).timestamp():.3f}"
    except (ValueError, OverflowError, OSError):
        raise Failed(f"Error: {takes}, not {value!r}", USAGE) from None


def _choose(programs: list[dict[str, Any]], wanted: list[str]) -> list[dict[str, Any]]:
    """The sheets of the wanted programs. The page also has removed programs, but no groups: those are in `status`."""
    if not wanted or "all" in wanted:
        return programs
    known = {sheet["name"] for sheet in programs}
    for name in wanted:
        if name not in known:
            raise Failed(f"{text.printable(name)}: ERROR (no such process)")
    return [sheet for sheet in programs if sheet["name"] in wanted]


# --- the page ----------------------------------------------------------------------------------------------------------


def page(
    found: dict[str, Any], programs: list[dict[str, Any]], *, total: bool, paint: text.Paint, columns: int | None = None
) -> list[str]:
    """The window, a row for each state with booked time, the sum, and the figures."""
    whole = found["total"]
    length = text.duration(found["until_s"] - found["since_s"])
    out = [f"from {text.when(found['since_wall_s'])} to {text.when(found['until_wall_s'])}, {length}"]
    sheets = [whole, *programs] if total else programs
    plain = text.Paint(on=False)
    fits = columns is None or all(text.width(line) <= columns for line in _table(sheets, plain, columns))
    wide = len(sheets) <= _MOST_COLUMNS and fits
    out += ["", *_table(sheets if wide else [whole], paint, columns)]
    if not wide:
        out += ["", *_lines(programs)]
    if total:
        slots = found["slots"]
        booked_s = sum(whole["seconds"].values())
        now = "" if slots is None else f" ({text.count(slots, 'slot')} now)"
        paid = f"{whole['wall_s'] / 3600:,.2f} slot-hours paid{now}, {text.percent(whole['ettr'])} of them training"
        out += ["", f"{booked_s / 3600:,.2f} slot-hours booked of {paid}", *take_overs(found)]
    figures = [_TITLES, *map(_figure_row, sheets)]
    out += ["", *text.table(figures, range(1, len(_TITLES)), _EXPENDABLE, columns)]
    return out


def _table(sheets: list[dict[str, Any]], paint: text.Paint, columns: int | None) -> list[str]:
    states = [
        state for state in sheets[0]["seconds"]
        if any(sheet["seconds"][state] >= 0.0005 or _unknown(sheet, state) for sheet in sheets)
    ]  # fmt: skip
    heads = [text.printable("ALL SLOTS" if sheet["name"] == "slots" else sheet["name"]) for sheet in sheets]
    rows = [[state, *(_cell(sheet, state) for sheet in sheets), _bar(sheets[0], state)] for state in states]
    sums = [f"{text.duration(sheet['wall_s'])} {'':>6}" for sheet in sheets]
    head, *lines, last = text.table(
        [["STATE", *heads, ""], *rows, ["sum", *sums, ""]], range(1, len(sheets) + 1), ("",), columns
    )
    out = [head]
    for line, (state, *_, bar) in zip(lines, rows, strict=True):
        colour, figures = _COLOURS.get(state, "yellow"), line.removeprefix(state).removesuffix(bar)
        out.append(paint(state, colour) + figures + (paint(bar, colour) if bar and line.endswith(bar) else ""))
    return [*out, last]


def _unknown(sheet: dict[str, Any], state: str) -> int:
    """Number of resumes with unknown lost time. Only LOST has any. An older daemon does not send the key."""
    return int(sheet.get("lost_s_unknown", 0)) if state == "LOST" else 0


def _cell(sheet: dict[str, Any], state: str) -> str:
    seconds, unknown = sheet["seconds"][state], _unknown(sheet, state)
    if unknown:
        known = f"{span(seconds)} " if seconds >= 0.0005 else ""
        return f"{known}+{unknown}? {'':>6}"
    if seconds < 0.0005:
        return f"{text.UNKNOWN} {'':>6}" if not sheet["wall_s"] else f"0s {'':>6}"
    share = seconds / sheet["wall_s"] if sheet["wall_s"] else 0.0
    return f"{span(seconds)} {text.percent(share):>6}"


def _bar(sheet: dict[str, Any], state: str) -> str:
    """The state's share of the first column as a bar, in eighths of a character if the terminal is UTF-8."""
    share = sheet["seconds"][state] / sheet["wall_s"] if sheet["wall_s"] else 0.0
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    if encoding != "utf8" or os.environ.get("TERM") == "dumb":
        return "#" * round(share * _BAR)
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _lines(programs: list[dict[str, Any]]) -> list[str]:
    """One line per program, with its four largest states."""
    wide = max(text.width(text.printable(sheet["name"])) for sheet in programs)
    out = []
    for sheet in programs:
        largest = sorted(sheet["seconds"].items(), key=lambda item: -item[1])[:4]
        told = ", ".join(f"{state} {_cell(sheet, state).strip()}" for state, seconds in largest if seconds > 0)
        out.append(
            f"{text.pad(text.printable(sheet['name']), wide)}  {text.duration(sheet['wall_s'])}: {told or 'nothing yet'}"
        )
    return out


_TITLES = ("", "ETTR", "GOODPUT", "AVAILABLE", "FAILURES", "REBOOTS", "MTTD", "MTTR", "LOST STEPS")
_EXPENDABLE = ("MTTD", "AVAILABLE", "REBOOTS", "MTTR")  # what a narrow terminal loses first


def _figure_row(sheet: dict[str, Any]) -> tuple[str, ...]:
    unknown = f" +{sheet['lost_unknown']} unknown" if sheet["lost_unknown"] else ""
    return (
        text.printable("ALL SLOTS" if sheet["name"] == "slots" else sheet["name"]), text.percent(sheet["ettr"]),
        text.percent(sheet["goodput"]), text.percent(sheet["availability"]), str(sheet["failures"]),
        str(sheet["reboots"]), text.UNKNOWN if sheet["mttd_s"] is None else span(sheet["mttd_s"]),
        text.UNKNOWN if sheet["mttr_s"] is None else span(sheet["mttr_s"]), f"{sheet['lost_steps']:,}{unknown}",
    )  # fmt: skip
