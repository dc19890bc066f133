"""`report`: the night in one screen: what trained, how well, what broke, what it cost, what comes next."""

from __future__ import annotations

from supervisor.ctl import text
from supervisor.ctl.accounts import since_query, until_query
from supervisor.ctl.cost import usd
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NIGHT = "12h"
_TITLES = ("PROGRAM", "STATE", "TRAINED", "KEPT STEPS", "LOST", "FAILURES", "RETURN", "BEST", "DONE IN")
_WHY_WIDE = 90
_MATTERS = 1.05


def report(session: Session, args: list[str]) -> int:
    """`report [--since 12h|2d|TIME|boot|all] [--until 1h|TIME] [--json]`.

    The last 12 hours in one screen: what trained, how well, what broke, what it cost, what comes next.
    """
    names, options = take(args, "--json", valued=("--since", "--until"))
    if names:
        raise Failed("Error: report takes no names; explain NAME tells of one program", USAGE)
    session.warn_if_dead(aloud="--json" not in options)
    window = {"since": since_query(options.get("--since", _NIGHT)), "until": until_query(options.get("--until"))}
    found = session.page("report", **window)
    if "--json" in options:
        session.say_json(found)
        return OK
    for line in page(found):
        session.say(line)
    return OK


def page(found: dict[str, Any]) -> list[str]:
    return [
        headline(found), "", *_trained(found), "", *_broke(found), "",
        f"next: {_next(found['next'])}", *_would_have(found["levels"]), *_needs(found["needs"]),
    ]  # fmt: skip


def headline(found: dict[str, Any]) -> str:
    """Such as `Since 19:00:00 (12h 0m): 6 of 6 trained, 41M steps kept (93% of paid time useful), 2 reboots, $7.20`."""
    trained = sum((row["trained_s"] or 0) > 0 for row in found["programs"])
    parts = [f"{trained} of {len(found['programs'])} trained", _kept(found), _count(found["reboots"], "reboot")]
    if found["usd"] is not None:
        parts.append(usd(found["usd"]))
    since = text.when(found["since_wall_s"], found["until_wall_s"])
    return f"Since {since} ({text.duration(found['length_s'])}): {', '.join(parts)}"


def _kept(found: dict[str, Any]) -> str:
    useful = found["useful_share"]
    share = "" if useful is None else f" ({text.percent(useful)} of paid time useful)"
    return f"{text.number(round(found['kept_steps']))} steps kept{share}"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _trained(found: dict[str, Any]) -> list[str]:
    return text.table([_TITLES, *(_cells(row) for row in found["programs"])], range(2, len(_TITLES)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    lost = text.number(row["lost_steps"]) + ("+?" if row["lost_unknown"] else "")
    return (
        text.harmless(row["name"]), text.harmless(row["phase"]), text.duration(row["trained_s"]),
        text.number(round(row["kept_steps"])), lost, text.number(row["failures"]), _return(row),
        text.UNKNOWN if row["best_return"] is None else f"{row['best_return']:.1f}", text.duration(row["eta_s"]),
    )  # fmt: skip


def _return(row: dict[str, Any]) -> str:
    """From the first to the newest of the window: `-20.1 -> 18.2`."""
    if row["last_return"] is None:
        return text.UNKNOWN
    return f"{row['first_return']:.1f} -> {row['last_return']:.1f}"


def _broke(found: dict[str, Any]) -> list[str]:
    if not found["broke"]:
        return ["nothing broke"]
    out = ["what broke"]
    for group in found["broke"]:
        where = f" ({', '.join(map(text.harmless, group['programs']))})" if group["programs"] else ""
        newest = text.when(group["newest_wall_s"], found["until_wall_s"])
        why = text.clip(text.harmless(group["why"]), _WHY_WIDE)
        out.append(f"  {group['count']:>3} x {text.harmless(group['what'])}{where}; newest {newest}: {why}")
    return out


def _next(coming: dict[str, Any]) -> str:
    """The time to the end at the level in force, or why it is not known; then how the level stands."""
    if coming["days"] is None:
        end = f"when all is done is not known: {coming['why']}"
    else:
        dollars = "" if coming["usd"] is None else f" for {usd(coming['usd'])}"
        end = f"all is done in {coming['days']:.1f} days{dollars} at level {text.harmless(coming['level'])}"
    return f"{end}; {text.harmless(coming['line'])}" if coming["line"] else end


def _would_have(levels: list[dict[str, Any]]) -> list[str]:
    """What another level would have kept in the same time, if that is a twentieth more; and which ones nobody knows."""
    here = next((level["kept_steps"] for level in levels if level["in_force"]), None) or 0.0
    others = [level for level in levels if level["kept_steps"] is not None and not level["in_force"]]
    best = max(others, key=lambda level: level["kept_steps"], default=None)
    told = []
    if best is not None and best["kept_steps"] > _MATTERS * here:
        least = best["kept_steps_least"]
        bound = "" if least is None else f" (at least {text.number(round(least))})"
        than = f"; {text.number(round(here))} are expected of the level in force" if here else ""
        kept = text.number(round(best["kept_steps"]))
        told.append(f"{text.harmless(best['name'])} would have kept {kept} steps in this time{bound}{than}")
    unknown = [text.harmless(level["name"]) for level in levels if level["why"] == "never measured"]
    told += [f"never measured: {', '.join(unknown)}"] if unknown else []
    return [f"levels: {'; '.join(told)}"] if told else []


def _needs(needs: list[str]) -> list[str]:
    if not needs:
        return ["needs you: nothing"]
    return ["needs you:", *(f"  {text.harmless(each)}" for each in needs)]
