"""`cost`: the cost of the box by use, and the time and money to finish at each level, from measured rates."""

from __future__ import annotations

from typing import Any

from supervisor.api.night import days, take_overs
from supervisor.ctl import text
from supervisor.ctl.accounts import since_query, until_query
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.formats import few, usd


def cost(session: Session, args: list[str]) -> int:
    """`cost [--since 1h|2d|TIME|boot] [--until 1h|TIME] [--json]`.

    What the box has cost, by use, and the days and dollars to finish at each level, from measured rates.
    """
    names, options = parse_options(args, "--json", valued=("--since", "--until"))
    if names:
        raise Failed("Error: cost takes no names; accounts shows the time of each program", USAGE)
    since, until = since_query(options.get("--since", "all")), until_query(options.get("--until"))
    session.warn_if_dead(to_stdout="--json" not in options)
    found = session.page("cost", since=since, until=until)
    columns = text.columns()
    session.show(found, lambda found: text.fit(page(found, columns), columns), options)
    return OK


def short(found: dict[str, Any]) -> str:
    """For the header of `status`: `cost $41.20, 91.3% useful`."""
    useful = "" if found["useful_share"] is None else f", {text.percent(found['useful_share'])} useful"
    return f"cost {usd(found['usd'])}{useful}"


def page(found: dict[str, Any], columns: int | None = None) -> list[str]:
    """The window, the bill by cause, the price of a million useful frames, the levels."""
    length = text.duration(found["until_s"] - found["since_s"])
    price = "" if found["usd_per_hour"] is None else f" at {usd(found['usd_per_hour'])} an hour: {usd(found['usd'])}"
    out = [f"from {text.when(found['since_wall_s'])} to {text.when(found['until_wall_s'])}, {length}{price}"]
    out += [found["says"]] if found["says"] else []
    return [*out, "", *_causes(found), "", *_frames(found), "", *_levels(found, columns), *_jobs(found.get("jobs"))]


def _jobs(found: list[dict[str, Any]] | None) -> list[str]:
    if found is None:
        return []
    if not found:
        return ["", "no job has run in this time"]
    rows = [("ACCOUNT", "PARTITION", "JOBS", "HOURS", "GPU HOURS", "")]
    for each in found:
        gpu_hours = text.UNKNOWN if each["gpu_hours"] is None else f"{each['gpu_hours']:.2f}"
        unknown_s = 3600.0 * each["hours_unknown"]
        unknown = f"at least: the GPUs of {text.duration(unknown_s)} are unknown" if unknown_s else ""
        place = text.printable(each["account"]), text.printable(each["partition"] or text.UNKNOWN)
        rows.append((*place, str(each["jobs"]), f"{each['hours']:.2f}", gpu_hours, unknown))
    return ["", *text.table(rows, right={2, 3, 4})]


def _causes(found: dict[str, Any]) -> list[str]:
    rows = [("SPENT ON", "SLOT HOURS", "SHARE", "COST")]
    rows += [
        (each["name"], f"{each['hours']:.2f}", text.percent(each["share"]), usd(each["usd"])) for each in found["causes"]
    ]
    share = text.percent(None if not found["slot_hours"] else 1.0)
    rows.append(("total", f"{found['slot_hours']:.2f}", share, usd(found["usd"])))
    unknown = found.get("lost_s_unknown", 0)  # an older daemon does not send this key
    least = f"lost work is at least this much: the lost time of {text.count(unknown, 'resume')} is unknown"
    return [*text.table(rows, right={1, 2, 3}), *([least] if unknown else []), *take_overs(found)]


def _frames(found: dict[str, Any]) -> list[str]:
    out = []
    if found["useful_frames"] is not None:
        price = found["usd_per_million_frames"]
        each = "" if price is None else f", {'at most ' if found['frames_unknown'] else ''}{usd(price)} per million"
        out.append(f"useful frames {text.number(found['useful_frames'])}{each}")
    else:
        out.append("useful frames: not known")
    if found["frames_unknown"]:
        names = ", ".join(text.printable(name) for name in found["frames_unknown"])
        out.append(f"without {names}: the frames of one step are unknown")
    return out


def _levels(found: dict[str, Any], columns: int | None) -> list[str]:
    rows = [("LEVEL", "SLOTS", "MEASURED", "KEPT STEPS/S", "TO FINISH", "COST", "")]
    for level in found["levels"]:
        rate = text.UNKNOWN if level["steps_per_s"] is None else text.number(level["steps_per_s"])
        finish = text.UNKNOWN if level["days"] is None else days(level)
        name = text.printable(level["name"] or text.UNKNOWN) + (" (now)" if level["in_force"] else "")
        measured = text.duration(3600.0 * level["paid_hours"]) if level["paid_hours"] else text.UNKNOWN
        without = list(map(text.printable, level.get("without", ())))  # an older daemon does not send this key
        why = f"not known: {text.printable(level['why'])}" if level["why"] else f"without {few(without)}" if without else ""
        rows.append((name, str(level["slots"]), measured, rate, finish, usd(level["usd"]), why))
    out = text.table(rows, {1, 2, 3, 4, 5}, ("",), columns)
    reasons = {row[-1]: [each[0] for each in rows if each[-1] == row[-1]] for row in rows if row[-1]}
    if reasons and not any(next(iter(reasons)) in line for line in out):  # there was no room for them in the table
        out += [f"{', '.join(names)}: {why}" for why, names in reasons.items()]
    apart = sorted(found["left_out"].items())
    for why in dict.fromkeys(why for _, why in apart):
        names = [text.printable(name) for name, each in apart if each == why]
        out.append(f"not counted: {few(names)}, {text.printable(why)}")
    return out
