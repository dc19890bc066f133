"""The page `report` in about ten lines of text, for the daily report (`[alerts] report_at`). `extralifectl` uses parts.

Names and errors of programs are untrusted text: they go through `printable`.
"""

from __future__ import annotations

from typing import Any

from supervisor.formats import UNKNOWN, count, duration, few, number, percent, usd, when
from supervisor.policy.upkeep.alarm import DO, NOTHING
from supervisor.printable import printable
from supervisor.reports.pages import pages
from supervisor.reports.sources import Sources

_MATTERS = 1.05
_PROGRAMS, _CAUSES, _NEEDS = 4, 3, 3  # most entries of each kind
_WHY_CHARS = 120


def daily_report(sources: Sources) -> str:
    """The report of the last 24 hours."""
    return "\n".join(lines(pages()["report"].of(sources, {"since": "86400s"})))


def lines(found: dict[str, Any]) -> list[str]:
    """The lines of the report: what the operator must do, headline, training, failures, outlook, and levels."""
    trained = [_program(row) for row in found["programs"]]
    broke = [_cause(group) for group in found["broke"]]
    needs = _first([printable(each)[:_WHY_CHARS] for each in found["needs"]], _NEEDS, "")
    opening = [f"{DO}{'; '.join(needs)}", headline(found)] if needs else [f"{NOTHING}. {headline(found)}"]
    return [
        *opening, *_first(trained, _PROGRAMS, "programs"), *(_first(broke, _CAUSES, "causes") or ["nothing broke"]),
        *take_overs(found),
        f"next: {until_done(found['next'])}", *other_levels(found["levels"]),
    ]  # fmt: skip


def _first(every: list[str], most: int, what: str) -> list[str]:
    return every if len(every) <= most else [*every[:most], f"... and {len(every) - most} more {what}".rstrip()]


def _program(row: dict[str, Any]) -> str:
    name, phase = printable(row["name"]), printable(row["phase"])
    scored = "" if row["last_return"] is None else f", return {returns(row)}"
    lost = "" if not row["lost_steps"] else f", {number(row['lost_steps'])} lost"
    return f"{name}: {phase}, {number(round(row['kept_steps']))} steps kept{lost}{scored}"


def take_overs(found: dict[str, Any]) -> list[str]:
    """A line for each box whose trainings this one continued. An older daemon does not send them."""
    out = []
    for each in found.get("take_overs", ()):
        until = "training here" if each["trains"] else "now: nothing trains here yet"
        if each["seconds"] is None:
            length = f"for how long nothing trained until {until} is not known"
        else:
            length = f"{duration(each['seconds'])} from its last known sign of life to {until}"
        price = "" if each["usd"] is None else f"; {usd(each['usd'])} of the cost if it was charged meanwhile, else saved"
        out.append(f"box {printable(each['box'])} was lost or left: {length}{price}")
    return out


def returns(row: dict[str, Any]) -> str:
    """The first and the newest return of the window: `-20.1 -> 18.2`."""
    known = [row[key] for key in ("first_return", "last_return") if row[key] is not None]
    return UNKNOWN if row["last_return"] is None else " -> ".join(f"{each:.1f}" for each in known)


def _cause(group: dict[str, Any]) -> str:
    where = f" ({', '.join(map(printable, group['programs'][:_PROGRAMS]))})" if group["programs"] else ""
    return f"broke: {group['count']} x {printable(group['what'])}{where}: {printable(group['why'])[:_WHY_CHARS]}"


def headline(found: dict[str, Any]) -> str:
    """Such as `Since 19:00:00 (12h 0m): 6 of 6 trained, 41M steps kept (93% of paid time useful), 2 reboots, $7.20`."""
    trained = sum((row["trained_s"] or 0) > 0 for row in found["programs"])
    useful = found["useful_share"]
    share = "" if useful is None else f" ({percent(useful)} of paid time useful)"
    parts = [
        f"{trained} of {len(found['programs'])} trained",
        f"{number(round(found['kept_steps']))} steps kept{share}",
        count(found["reboots"], "reboot") if found["reboots"] else "no reboots",
    ]
    if found["usd"] is not None:
        parts.append(usd(found["usd"]))
    since = when(found["since_wall_s"], found["until_wall_s"])
    return f"Since {since} ({duration(found['length_s'])}): {', '.join(parts)}"


def until_done(found: dict[str, Any]) -> str:
    """The time until all programs are done at the level in force, or why it is unknown; then the state of the level."""
    if found["days"] is None:
        end = f"when all is done is not known: {printable(found['why'])}"
    else:
        dollars = "" if found["usd"] is None else f" for {usd(found['usd'])}"
        but = found.get("but") or {}  # an older daemon does not send this key
        all_ = f"all but {few(list(map(printable, but)))} are" if but else "all is"
        said = [f"{printable(name)}{': ' if why.startswith('it') else ' '}{printable(why)}" for name, why in but.items()]
        when_ = f"{all_} done in {days(found)}{dollars} at level {printable(found['level'])}"
        end = "; ".join([when_, *_first(said, _CAUSES, "")])
    return f"{end}; {printable(found['line'])}" if found["line"] else end


def days(found: dict[str, Any]) -> str:
    """Such as `3d 5h`, or `3d 5h +-10h` if the range of the rate is known."""
    more = found.get("days_more")  # an older daemon does not send this key
    return f"{duration(86400.0 * found['days'])}{'' if more is None else f' +-{duration(86400.0 * more)}'}"


def other_levels(levels: list[dict[str, Any]]) -> list[str]:
    """Steps that the best other level would have kept in the same time, if over 5 % more; and levels never measured."""
    here = next((level["kept_steps"] for level in levels if level["in_force"]), None) or 0.0
    others = [level for level in levels if level["kept_steps"] is not None and not level["in_force"]]
    best = max(others, key=lambda level: level["kept_steps"], default=None)
    parts = []
    if best is not None and best["kept_steps"] > _MATTERS * here:
        least = best["kept_steps_least"]
        bound = "" if least is None else f" (at least {number(round(least))})"
        than = f"; {number(round(here))} are expected of the level in force" if here else ""
        parts.append(
            f"{printable(best['name'])} would have kept {number(round(best['kept_steps']))} steps in this time{bound}{than}"
        )
    unknown = [printable(level["name"]) for level in levels if level["why"] == "never measured"]
    parts += [f"never measured: {', '.join(unknown)}"] if unknown else []
    return [f"levels: {'; '.join(parts)}"] if parts else []
