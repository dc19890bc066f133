"""The page of `status` and `top`: a header on daemon and box, and a row for each program, aligned."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Sequence
from typing import Any

from supervisor import discovery
from supervisor.ctl import text
from supervisor.ctl.outcome import DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session
from supervisor.model.names import expand

_COLOURS = {
    "RUNNING": "green", "STARTING": "yellow", "STOPPING": "yellow", "BACKOFF": "yellow", "QUEUED": "blue",
    "GATED": "blue",
    "DONE": "cyan", "STOPPED": "dim", "FATAL": "red", "GONE": "red", "EXITED": "red",
}  # fmt: skip
_STALE_S = 20.0  # the decision loop runs at least every 5 s
_WHY_LEAST = 24
_NAME_LEAST = 24
_DAMAGE_SHOWN_S = 86_400.0
_GAP = "  "
_LABELS = {
    "JOB": "job", "STEPS/S": "steps/s", "STEPS": "steps", "EPISODES": "episodes", "RETURN": "return",
    "CKPT": "checkpoint age", "RESTARTS": "restarts", "NEXT": "next", "WHY": "why",
}  # fmt: skip
# The order in which a narrow terminal loses columns. Columns without a single known value are removed before all others.
_EXPENDABLE = ("PROCESS", "EPISODES", "RESTARTS", "WHY", "JOB", "CKPT", "NEXT", "STEPS/S", "RETURN", "STEPS")
_CALM = {"RUNNING", "DONE", "STOPPED"}
ORDER = ("FATAL", "GONE", "EXITED", "BACKOFF", "STOPPING", "STARTING", "RUNNING", "GATED", "QUEUED", "STOPPED", "DONE")


def choose(views: list[Any], names: list[str]) -> tuple[list[Any], list[str]]:
    """(the programs named, in that order; the names without a program)."""
    if not names or "all" in names:
        return views, []
    known = {view["name"]: view for view in views}
    wanted = expand(names, views)
    return [known[name] for name in wanted if name in known], [name for name in wanted if name not in known]


def worst_first(views: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Programs that need a look come first, a running one with a trouble among those that start again; then by name."""
    rank = {phase: place for place, phase in enumerate(ORDER)}

    def place(view: dict[str, Any]) -> int:
        return min(rank.get(view["phase"], -1), rank["BACKOFF"] if view["trouble"] else len(ORDER))

    return sorted(views, key=lambda view: (place(view), view["name"]))


def loud(views: Iterable[dict[str, Any]]) -> set[str]:
    """The programs whose reason is always shown."""
    return {text.printable(view["name"]) for view in views if view["phase"] not in _CALM or view["trouble"]}


def page(status: dict[str, Any], names: list[str], columns: int | None, paint: text.Paint) -> list[str]:
    """All lines. `columns` is the terminal's width; None: no limit."""
    chosen, bad = choose(status["programs"], names)
    lines = [f"{text.printable(name)}: ERROR (no such process)" for name in bad]
    dead = status["daemon"]["state"] == "dead"
    if not names or dead:
        lines += text.fit(header(status, columns), columns)
        lines.append("")
    if chosen and (columns is not None or not names):
        chosen = chosen if columns is None or names else worst_first(chosen)
        lines += table([cells(view) for view in chosen], columns, paint, noted=loud(chosen))
        if columns is not None and (worst := next((view for view in chosen if view["phase"] in {"FATAL", "EXITED"}), None)):
            hint = f"extralifectl explain {worst['name']}: why; extralifectl tail {worst['name']} stderr: its last lines"
            lines += ["", *(paint(line, "dim") for line in text.fit([text.printable(hint)], columns))]
    elif chosen:
        lines += labelled(chosen)
    elif not names:
        lines.append("no programs: the configuration names none")
    return lines


def header(status: dict[str, Any], columns: int | None) -> list[str]:
    """Daemon, level, boots and stability, on as many lines as the terminal's width requires."""
    daemon, now_s, lines = status["daemon"], text.wall_s(), _notes(status)
    level = daemon["level"]
    how = ", ".join(word for word, key in (("on trial", "trial"), ("pinned", "pinned")) if level.get(key))
    load = f"{text.UNKNOWN} slots" if level["slots"] is None else text.count(level["slots"], "slot")
    load += f" x {level['num_envs']} environments" if level["num_envs"] is not None else ""
    load += f", batch {level['batch_size']}" if level["batch_size"] is not None else ""
    parts = [f"level {text.printable(level['name'] or text.UNKNOWN)}{f' ({how})' if how else ''}: {load}"]
    if daemon["state"] != "dead":
        state = "" if daemon["state"] == "running" else f" ({daemon['state']})"
        parts.append(f"daemon pid {daemon['pid']} up {text.clock(daemon['uptime_s'])}{state}")
    boot = f"boot up {text.clock(daemon['boot_up_s'])}" if daemon["boot_up_s"] is not None else ""
    reboots = daemon["reboots_24h"]
    told = "" if reboots is None else f"{text.count(reboots, 'reboot')} in 24h"
    if told and _lately_damaged(daemon.get("journal"), now_s) and daemon["journal"]["damage"]["lost"] != 0:
        told = f"at least {told}"
    last = daemon["last_reboot"]
    if last is not None and told:
        down = f", down {text.duration(last['down_s'])}" if last["down_s"] is not None else ""
        ago_s = last.get("ago_s")  # an older daemon does not send this key
        ago = text.duration(now_s - last["wall_s"] if ago_s is None else ago_s)
        told += f" (last {ago} ago, {last['cause']}{down})"
    line = text.printable(level.get("line") or "") if level.get("mode") == "climb" else ""
    if told and daemon["mtbf_s"] is not None and "MTBF" not in line:  # one figure, the level's, is enough
        told += f", one unclean in {text.duration(daemon['mtbf_s'])} up"
    parts += [part for part in (boot, told) if part]
    if daemon.get("cost"):
        parts.append(daemon["cost"])
    joined = parts[0]
    for part in parts[1:]:
        longer = f"{joined} · {part}"
        if columns is not None and text.width(longer) > columns:
            lines.append(joined)
            longer = part
        joined = longer
    return [*lines, joined, *([line] if line else [])]


def _notes(status: dict[str, Any]) -> list[str]:
    """What the operator should know of daemon and box."""
    daemon, now_s, lines = status["daemon"], text.wall_s(), []
    if daemon["state"] == "dead":
        lines.append(daemon["says"])
    elif now_s - status["wall_s"] > _STALE_S:
        age = text.duration(now_s - status["wall_s"])
        lines.append(f"the daemon answers, but its decision loop has not run for {age}: see maintail")
    lines += _config(daemon.get("config"), now_s)
    lines += _journal(daemon.get("journal"), now_s)
    for trouble in daemon.get("foundations") or ():
        lines.append(f"trouble for {text.duration(now_s - trouble['since_wall_s'])}: {text.printable(trouble['why'])}")
    lines += _hardware(daemon, now_s)
    if (port := daemon.get("http")) and port["error"]:
        lines.append(f"the TCP port {port['listen']} of [http] is not open: {text.printable(port['error'])}")
    unmet = (daemon.get("cgroups") or {}).get("unmet")
    lines += [text.printable(unmet)] if unmet else []
    lines += _box(daemon.get("box"), now_s)
    lines += [line for feature in discovery.modules("lines") for line in feature.lines(daemon)]
    above = "\n".join(lines)
    for held in daemon.get("held") or ():
        if (why := text.printable(held["why"])) not in above:  # another line may say so already
            who = "nothing starts" if held["programs"] is None else f"{', '.join(held['programs'])} cannot start"
            lines.append(f"{who}: {why}")
    if daemon.get("reboot_pattern"):
        lines.append(f"reboots form a pattern: {text.printable(daemon['reboot_pattern'])}")
    return lines


def _config(fault: dict[str, Any] | None, now_s: float) -> list[str]:
    """The fault of an unusable configuration, with each reason, until the daemon has loaded a correct one."""
    if fault is None:
        return []
    since = text.duration(now_s - fault["wall_s"])
    if fault["in_use"]:
        first = f"THE CONFIGURATION CANNOT BE USED: the daemon started {since} ago with the last good one, {fault['in_use']}"
    else:
        first = (
            f"the configuration cannot be used: {fault['by']} asked to load it {since} ago; the previous one stays in use"
        )
    reasons = [f"  {error}" for error in fault["errors"]]
    return [text.printable(line) for line in (first, *reasons, "  correct it, then: extralifectl update")]


def _journal(journal: dict[str, Any] | None, now_s: float) -> list[str]:
    """Faults of the journal itself, present or within the last day."""
    lines = []
    if journal is not None and journal["error"]:
        since = text.duration(now_s - journal["error_since_wall_s"])
        lines.append(
            f"the journal has not been writable for {since} ({text.printable(journal['error'])}): "
            "workers train on; nothing else starts until it is writable again"
        )
    if journal is not None and _lately_damaged(journal, now_s):
        damage = journal["damage"]
        lost = "an unknown number of" if damage["lost"] is None else damage["lost"]
        ago = text.duration(now_s - damage["wall_s"])
        lines.append(
            f"the journal was damaged {ago} ago: {lost} facts lost, {damage['kept']} kept; "
            + (
                f"the damaged file is {text.printable(damage['kept_as'])}"
                if damage["kept_as"]
                else "the damaged file is gone"
            )
        )
    return lines


def _hardware(daemon: dict[str, Any], now_s: float) -> list[str]:
    """A line per GPU and one per veto; no GPU lines on a box without GPUs."""
    gpu = daemon.get("gpu") or {}
    out = []
    if gpu.get("error"):
        out.append(f"GPUs unknown: {text.printable(gpu['error'])}; decisions ignore them")
    for each in gpu.get("gpus") or []:
        out.append(_gpu(each))
        out += _minute(each)
    for veto in daemon.get("vetoes") or []:
        since, cap = text.duration(now_s - veto["since_wall_s"]), text.printable(veto["cap"])
        above = veto.get("forbids", True)  # an older daemon does not send this key
        what = f"levels above {cap} are vetoed, {since} so far" if above else f"pre-check for {since}"
        out.append(f"{what} ({text.printable(veto['rule'])}): {text.printable(veto['why'])}")
    return out


def _gpu(gpu: dict[str, Any]) -> str:
    name = f"GPU {gpu['index']}" + (f" {text.printable(gpu['name'])}" if gpu["name"] else "")
    if gpu["lost"]:
        return f"{name}: lost: {text.printable(gpu['lost'])}"
    busy, heat, limit = gpu["utilisation"], gpu["temperature_c"], gpu["slowdown_c"]
    parts = [f"{text.mib(gpu['free_bytes'])} of {text.mib(gpu['total_bytes'])} free"]
    parts += [f"{busy:.0f} % busy"] if busy is not None else []
    if heat is not None:
        parts.append(f"{heat:.0f} C" + (f" (slows down at {limit:.0f})" if limit is not None else ""))
    parts += [f"{gpu['power_w']:.0f} W"] if gpu.get("power_w") is not None else []
    parts += (
        [f"clocks limited by {', '.join(gpu['reasons'])}"] if set(gpu["reasons"] or ()) - {"idle", "clocks_setting"} else []
    )
    return f"{name}: {', '.join(parts)}"


def _minute(gpu: dict[str, Any]) -> list[str]:
    """One line on the last minute, for each phase of the workers: the most memory, and the mean utilisation."""
    parts = []
    for each in gpu.get("by_phase") or []:
        used, busy = each["used"], each["utilisation"]
        shown = [f"up to {text.mib(used['most'])}"] if used else []
        shown += [f"{busy['mean']:.0f} % busy"] if busy else []
        parts += [f"{text.printable(each['phase'])} {', '.join(shown)}"] if shown else []
    return [f"  in the last minute: {'; '.join(parts)}"] if parts else []


def _box(box: dict[str, Any] | None, now_s: float) -> list[str]:
    if not box or not box["former"] or now_s - box["since_wall_s"] > _DAMAGE_SHOWN_S:
        return []
    names = text.printable(box["hostname"] or text.UNKNOWN), text.printable(box["former"][-1]["hostname"] or text.UNKNOWN)
    ago = text.duration(now_s - box["since_wall_s"])
    return [f"the box changed {ago} ago: {names[0]} (before: {names[1]}), with a new record of levels and reboots"]


def _lately_damaged(journal: dict[str, Any] | None, now_s: float) -> bool:
    damage = journal["damage"] if journal is not None else None
    return damage is not None and now_s - damage["wall_s"] <= _DAMAGE_SHOWN_S


def labelled(views: list[Any]) -> list[str]:
    """Named programs for a script: Supervisor's three columns, then each known value with its label."""
    rows = [cells(view) for view in views]
    wide = max(text.width(row["NAME"]) for row in rows)
    lines = []
    for row in rows:
        known = [f"{_LABELS[title]} {row[title]}" for title in _LABELS if row.get(title, text.UNKNOWN) != text.UNKNOWN]
        parts = (text.pad(row["NAME"], wide), text.pad(row["STATE"], 8), ", ".join([row["PROCESS"], *known]))
        lines.append(_GAP.join(parts).rstrip())
    return lines


def table(
    rows: Sequence[dict[str, str]], columns: int | None, paint: text.Paint, expendable: Sequence[str] = _EXPENDABLE,
    noted: Container[str] = (),
) -> list[str]:  # fmt: skip
    """The rows below their titles, aligned, cut to `columns`. `expendable`: the order in which columns are left out.

    If WHY is left out, the programs in `noted` have it on a line of its own. A long name is cut in its middle.
    """
    rows, names = [dict(row) for row in rows], [row["NAME"] for row in rows]
    if columns is not None:
        for row in rows:
            row["NAME"] = text.middle(row["NAME"], max(_NAME_LEAST, columns // 3))
    widths = {title: max(text.width(title), *(text.width(row[title]) for row in rows)) for title in rows[0]}
    shown = list(widths)
    if columns is not None:
        widths["WHY"] = min(widths["WHY"], _WHY_LEAST)
        leave = [title for title in expendable if title in widths]
        unknown = [title for title in leave if all(row[title] in {"", text.UNKNOWN} for row in rows)]
        for title in dict.fromkeys((*unknown, *leave)):
            if sum(widths[each] + len(_GAP) for each in shown) - len(_GAP) <= columns:
                break
            shown.remove(title)
    head = _GAP.join(text.pad(title, widths[title], right=title in _RIGHT) for title in shown).rstrip()
    lines = [paint(_cut(head, columns), "dim")]
    for name, row in zip(names, rows, strict=True):
        cells = {title: text.pad(row[title], widths[title], right=title in _RIGHT) for title in shown if title != "WHY"}
        room = None if columns is None else columns - sum(text.width(cell) + len(_GAP) for cell in cells.values())
        cells["STATE"] = paint(cells["STATE"], _COLOURS.get(row["STATE"], ""))
        why = [_cut(row["WHY"], room)] if "WHY" in shown else []
        lines.append(_GAP.join([*cells.values(), *why]).rstrip())
        if "WHY" not in shown and name in noted:
            lines.append(_cut(f"    {row['WHY']}", columns))
    return lines


_RIGHT = {"STEPS/S", "STEPS", "EPISODES", "RETURN", "CKPT", "RESTARTS", "CPU", "MEM", "GPU"}


def _cut(line: str, columns: int | None) -> str:
    return line if columns is None else text.clip(line, columns)


def cells(view: dict[str, Any]) -> dict[str, str]:
    """One program as text, by column."""
    of_steps = view["target"] if view["target_kind"] == "env_steps" else None
    of_episodes = view["target"] if view["target_kind"] == "episodes" else None
    phase, why = view["worker_phase"], text.printable(view["why"] or "")
    busy = text.printable(phase) if phase is not None and (phase != "training" or not why) else ""
    return {
        "NAME": text.printable(view["name"]),
        "STATE": text.printable(view["phase"]),
        "PROCESS": _process(view),
        **{key: cell for of in discovery.modules("lines") if hasattr(of, "cells") for key, cell in of.cells(view).items()},
        "STEPS/S": text.number(view["steps_per_s"]),
        "STEPS": _of(view["steps"], of_steps),
        "EPISODES": _of(view["episodes"], of_episodes),
        "RETURN": text.signed(view["mean_return"]),
        "CKPT": text.duration(view["ckpt_age_s"]),
        "RESTARTS": text.number(view["restarts"]),
        "NEXT": _next(view),
        "WHY": " · ".join(part for part in (busy, why) if part) or text.UNKNOWN,
    }


def _of(done: float | None, target: float | None) -> str:
    return text.number(done) if target is None else f"{text.number(done)}/{text.number(target)}"


def _process(view: dict[str, Any]) -> str:
    if view["pid"] is not None:
        return f"pid {view['pid']}, uptime {text.clock(view['uptime_s'])}"
    return text.UNKNOWN if view["since_wall_s"] is None else f"since {text.when(view['since_wall_s'], text.wall_s())}"


def _next(view: dict[str, Any]) -> str:
    """Time until the next automatic event: the next try, or the end of the training."""
    if view["retry_in_s"] is not None:
        return f"{'slow ' if view['slow_retry'] else ''}retry in {text.duration(view['retry_in_s'])}"
    return text.UNKNOWN if view["eta_s"] is None else f"done in {text.duration(view['eta_s'])}"


def add_cost(session: Session, status: dict[str, Any]) -> None:
    """Add a short summary of the cost. It takes a second request, which is sent only if a price is set."""
    if status["daemon"].get("usd_per_hour") is not None:
        from supervisor.ctl.cost import short  # not needed by most

        with contextlib.suppress(Failed, DaemonRefused, Unreachable):  # without the cost, show the rest of the page
            status["daemon"]["cost"] = short(session.page("cost"))
