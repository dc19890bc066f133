"""The frames of `top` as lines, and the effect of its keys. Pure functions."""

from __future__ import annotations

import sys
import time
from itertools import pairwise

from supervisor.ctl import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

_STALE_S = 10.0
_GAP = "  "
_HELP = (
    "q, Ctrl-C      end",
    "up down j k    scroll; page up, page down, home, end",
    "left right     sort by another column (also < >)",
    "r              reverse the order",
    "/              show only rows that have this text; escape shows all again",
    "?              this, and back",
)


class _Record:
    """A value with named fields, never changed in place. dataclasses would take a fifth of the time to the first frame."""

    def __init__(self, **known: Any) -> None:
        for name, value in known.items():
            getattr(type(self), name)  # raises AttributeError for an unknown field
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self.__annotations__
        )

    def __hash__(self) -> int:
        return hash(type(self))

    def replaced(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})


class Answers(_Record):
    """The newest answers. `error` says why there is no newer one."""

    status: dict[str, Any] | None = None
    at_wall_s: float = 0.0  # time of the newest status
    error: str = ""
    cpu: Mapping[str, float] | None = None  # cores by program
    ticks: Mapping[str, tuple[int, float, float]] | None = None  # (pid, CPU seconds, time of the poll) by program
    speeds: Mapping[str, Sequence[float | None]] | None = None  # steps/s of the last hour, by program
    returns: Mapping[str, Sequence[float | None]] | None = None  # mean returns of the last twelve hours, by program

    @property
    def dead(self) -> bool:
        return self.status is not None and self.status["daemon"]["state"] == "dead"


# --- keys ----------------------------------------------------------------------------------------------------------------


class Display(_Record):
    """The user's view: sorting, scrolling, filter. `typing` is the filter while it is being typed."""

    sort: str = "STATE"
    reversed_order: bool = False
    offset: int = 0
    filter: str = ""
    typing: str | None = None
    help: bool = False


def pressed(display: Display, key: str, page: int, count: int) -> Display:
    """`display` after a key. `page` is the number of rows of a page, `count` the number of all rows."""
    if display.typing is not None:
        return _typed(display, key)
    moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, "home": -(10**6), "end": 10**6}
    if key in moves:
        return display.replaced(offset=max(0, min(display.offset + moves[key], count - page)))
    if key in {"left", "<", ",", "right", ">", "."}:
        step = -1 if key in {"left", "<", ","} else 1
        titles = list(_SORTS)
        sort = titles[(titles.index(display.sort) + step) % len(titles)]
        return display.replaced(sort=sort, reversed_order=False, offset=0)
    changes: dict[str, dict[str, Any]] = {
        "r": {"reversed_order": not display.reversed_order}, "/": {"typing": display.filter, "offset": 0},
        "?": {"help": not display.help}, "escape": {"filter": "", "help": False},
    }  # fmt: skip
    return display.replaced(**changes.get(key, {}))


def _typed(display: Display, key: str) -> Display:
    typing = display.typing or ""
    if key == "enter":
        return display.replaced(typing=None)
    if key == "escape":
        return display.replaced(typing=None, filter="")
    typing = typing[:-1] if key == "backspace" else typing + key if len(key) == 1 else typing
    return display.replaced(typing=typing, filter=typing, offset=0)


# --- one frame -----------------------------------------------------------------------------------------------------------


_ORDER = ("FATAL", "GONE", "EXITED", "BACKOFF", "STOPPING", "STARTING", "RUNNING", "GATED", "QUEUED", "STOPPED", "DONE")
_STATE_COLOURS = {
    "RUNNING": "green", "STARTING": "yellow", "STOPPING": "yellow", "BACKOFF": "yellow", "QUEUED": "blue", "GATED": "blue",
    "DONE": "cyan", "STOPPED": "dim", "FATAL": "red", "GONE": "red", "EXITED": "red",
}  # fmt: skip
_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {  # numbers: the largest first, unknown last
    "STATE": lambda row: _ORDER.index(row["phase"]) if row["phase"] in _ORDER else -1,
    "NAME": lambda row: row["name"],
    "STEPS/S": lambda row: _falling(row["steps_per_s"]),
    "RETURN": lambda row: _falling(row["mean_return"]),
    "STEPS": lambda row: _falling(row["steps"]),
    "CKPT": lambda row: _falling(row["ckpt_age_s"]),
    "CPU": lambda row: _falling(row["cpu"]),
    "MEM": lambda row: _falling(row["mem"]),
    "GPU": lambda row: _falling(row["gpu"]),
    "RESTARTS": lambda row: _falling(row["restarts"]),
}
_RIGHT = {"STEPS/S", "RETURN", "STEPS", "CKPT", "CPU", "MEM", "GPU", "RESTARTS"}
# The order in which a narrow terminal loses columns.
_EXPENDABLE = ("SPEED 1H", "RESTARTS", "GPU", "STEPS", "NEXT", "CPU", "RETURN 12H", "MEM", "CKPT", "RETURN")
_WHY_LEAST = 20
_SPARK_1H, _SPARK_12H = 10, 16


def _falling(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def frame(
    answers: Answers, display: Display, columns: int | None, rows: int | None, paint: text.Paint, now_wall_s: float
) -> list[str]:  # fmt: skip
    """Every line of the screen, none wider than it. Without a size: all rows and columns."""
    lines = [_cut(line, columns, paint, colour) for line, colour in _header(answers, columns, now_wall_s)]
    page = None if rows is None else _page(rows, len(lines))
    if display.help:
        lines += ["", *(_cut(line, columns, paint, "") for line in _HELP)]
    elif answers.status is not None:
        lines += ["", *_table(answers, display, columns, page, paint)]
    if rows is None:
        return lines
    foot = f"filter: {text.printable(display.typing)}_" if display.typing is not None else _foot(display)
    lines = [*lines[: rows - 1], *[""] * (rows - 1 - len(lines))]
    return [*lines, _cut(foot, columns, paint, "" if display.typing is not None else "dim")]


def room(answers: Answers, columns: int | None, rows: int, now_wall_s: float) -> int:
    """The number of programs that fit on the screen."""
    return _page(rows, len(_header(answers, columns, now_wall_s)))


def _page(rows: int, header: int) -> int:
    return max(1, rows - header - 3)  # 3: an empty line, the titles, the foot


def _foot(display: Display) -> str:
    filtered = f"only {text.printable(display.filter)!r} (escape: all) · " if display.filter else ""
    order = ", reversed" if display.reversed_order else ""
    return f"{filtered}q end · ? keys · / filter · sorted by {display.sort}{order}"


def _cut(line: str, columns: int | None, paint: text.Paint, colour: str) -> str:
    return paint(line if columns is None else text.clip(line, columns), colour)


def _header(answers: Answers, columns: int | None, now_wall_s: float) -> list[tuple[str, str]]:
    """(line, colour) of each line above the programs."""
    status = answers.status
    if status is None:
        return [(text.printable(answers.error) or "asking the daemon ...", "red" if answers.error else "dim")]
    daemon, programs = status["daemon"], status["programs"]
    lines = [(line, "bold") for line in _flowing(_box_parts(daemon, now_wall_s), columns)]
    lines += [(line, "") for line in _flowing(_counts(daemon, programs), columns)]
    age_s = now_wall_s - status["wall_s"]
    if answers.dead:
        lines.insert(0, (f"{text.printable(daemon['says'])}; reconnecting", "red"))
    elif answers.error:
        ago = text.duration(now_wall_s - answers.at_wall_s)
        lines.insert(0, (f"no answer for {ago}: {text.printable(answers.error)}; showing the last known state", "red"))
    elif age_s > _STALE_S:
        lines.insert(
            0, (f"the daemon answers, but its decision loop has not run for {text.duration(age_s)}: see maintail", "red")
        )
    error = daemon["journal"]["error"]
    lines += [(f"the journal cannot be written: {text.printable(error)}", "red")] if error else []
    lines += [(text.printable(each["why"]), "red") for each in daemon["foundations"]]
    if daemon.get("config"):
        lines.append((f"the configuration cannot be used: {text.printable(daemon['config']['errors'][0])}", "red"))
    return [*lines, *_gpu_lines(daemon)]


def _flowing(parts: Sequence[str], columns: int | None) -> list[str]:
    """The parts on as many lines as the width requires."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        lines[-1:] = [longer] if columns is None or text.width(longer) <= columns else [lines[-1], part]
    return lines


def _box_parts(daemon: dict[str, Any], now_wall_s: float) -> list[str]:
    level = daemon["level"]
    how = ", ".join(word for word, key in (("on trial", "trial"), ("pinned", "pinned")) if level.get(key))
    size = [f"{text.number(level['slots'])} slots"]
    size += [f"{level['num_envs']} environments"] if level["num_envs"] is not None else []
    size += [f"batch {level['batch_size']}"] if level["batch_size"] is not None else []
    box = text.printable((daemon.get("box") or {}).get("hostname") or "")
    parts = ["extralife" + (f" on {box}" if box else ""), time.strftime("%H:%M:%S", time.localtime(now_wall_s))]
    parts.append(f"level {text.printable(level['name'] or text.UNKNOWN)}{f' ({how})' if how else ''}: {', '.join(size)}")
    if daemon["boot_up_s"] is not None:
        parts.append(f"box up {text.duration(daemon['boot_up_s'])}")
    return parts


def _counts(daemon: dict[str, Any], programs: Sequence[dict[str, Any]]) -> list[str]:
    counts = dict.fromkeys(_ORDER, 0)
    trainings = [view for view in programs if not view.get("service")]
    for view in trainings:
        if view["phase"] in counts:
            counts[view["phase"]] += 1
    parts = [f"{counts.pop('RUNNING')} of {len(trainings)} train"]
    parts += [f"{count} {phase}" for phase, count in counts.items() if count]
    speeds = [view["steps_per_s"] for view in programs if view["steps_per_s"] is not None]
    parts += [f"{text.number(float(sum(speeds)))} steps/s"] if speeds else []
    reboots = daemon["reboots_24h"]
    if reboots is not None:
        last = daemon["last_reboot"]
        ago = "" if last is None else f" (last {text.duration(last['ago_s'])} ago, {text.printable(last['cause'])})"
        parts.append(f"{reboots} reboot{'' if reboots == 1 else 's'} in 24 h{ago}")
    if daemon["mtbf_s"] is not None:
        parts.append(f"MTBF {text.duration(daemon['mtbf_s'])}")
    return parts


def _gpu_lines(daemon: dict[str, Any]) -> list[tuple[str, str]]:
    gpu = daemon.get("gpu") or {}
    lines = [(f"GPUs unknown: {text.printable(gpu['error'])}", "red")] if gpu.get("error") else []
    for each in gpu.get("gpus") or []:
        name = f"GPU {each['index']} {text.printable(each['name'])}".rstrip()
        if each["lost"]:
            lines.append((f"{name}: lost: {text.printable(each['lost'])}", "red"))
            continue
        busy = None if each["utilisation"] is None else each["utilisation"] / 100.0
        total, free = each["total_bytes"], each["free_bytes"]
        used = None if total is None or free is None else total - free
        parts = [f"{bar(busy, 10)} {_percent(busy)}", f"{text.size(used)} of {text.size(total)}"]
        parts += [f"{each['temperature_c']:.0f} °C"] if each["temperature_c"] is not None else []
        parts += [f"{each['power_w']:.0f} W"] if each["power_w"] is not None else []
        held = set(each["reasons"] or ()) - {"idle", "clocks_setting"}
        parts += [f"clocks limited by {text.printable(', '.join(sorted(held)))}"] if held else []
        lines.append((f"{name}  {'  '.join(parts)}", "yellow" if held else ""))
    return lines


def _percent(share: float | None) -> str:
    return text.UNKNOWN if share is None else f"{100 * share:.0f} %"


def _table(answers: Answers, display: Display, columns: int | None, page: int | None, paint: text.Paint) -> list[str]:
    rows = chosen(answers, display)
    if not rows:
        return [_cut("no program has that text" if display.filter else "no programs", columns, paint, "dim")]
    most = len(rows) if page is None else page
    offset = max(0, min(display.offset, len(rows) - most))
    names_wide = max(text.width(text.printable(row["name"])) for row in rows)  # of all rows: scrolling moves no column
    rows, part = rows[offset : offset + most], _part(offset, most, len(rows))
    cells = [_cells(row) for row in rows]
    titles = list(cells[0])
    widths = {title: max(text.width(title), *(text.width(cell[title]) for cell in cells)) for title in titles}
    widths["NAME"] = max(widths["NAME"], names_wide)
    fixed = [title for title in titles if title != "WHY"]
    if columns is not None:
        for title in _EXPENDABLE:
            if _total(widths, fixed) + _WHY_LEAST <= columns:
                break
            fixed.remove(title)
    lines = (_row(row["phase"], cell, fixed, widths, columns, paint) for row, cell in zip(rows, cells, strict=True))
    return [_titles(fixed, widths, display, columns, paint, part), *lines]


def _part(offset: int, most: int, count: int) -> str:
    """The range of visible rows; empty if all are visible."""
    return "" if count <= most else f"{offset + 1} to {min(offset + most, count)} of {count}"


def _titles(
    fixed: list[str], widths: dict[str, int], display: Display, columns: int | None, paint: text.Paint, part: str
) -> str:  # fmt: skip
    """The line of titles. The title of the sort column is bold, the others are dim."""
    left, pieces = 10**6 if columns is None else columns, []
    for title in (*fixed, part or "WHY"):
        if left <= 0:
            break
        piece = text.clip(text.pad(title, widths.get(title, 0), right=title in _RIGHT), left)
        left -= text.width(piece) + len(_GAP)
        pieces.append(paint(piece, "bold" if title == display.sort else "dim"))
    return _GAP.join(pieces)


def _row(
    phase: str, cell: dict[str, str], fixed: list[str], widths: dict[str, int], columns: int | None, paint: text.Paint
) -> str:
    """The line of one program. It is cut before it is coloured, because colour codes have no width."""
    left, parts = 10**6 if columns is None else columns, []
    for title in fixed:
        piece = text.clip(text.pad(cell[title], widths[title], right=title in _RIGHT), left)
        left -= text.width(piece) + len(_GAP)
        parts.append(paint(piece, _STATE_COLOURS.get(phase, "")) if title == "STATE" else piece)
        if left <= 0:
            return _GAP.join(parts)
    return (_GAP.join(parts) + _GAP + text.clip(cell["WHY"], left)).rstrip()


def _total(widths: dict[str, int], fixed: list[str]) -> int:
    return sum(widths[title] + len(_GAP) for title in fixed)


def chosen(answers: Answers, display: Display) -> list[dict[str, Any]]:
    """The rows that pass the filter, sorted."""
    status = answers.status
    if status is None:
        return []
    held = _gpu_bytes(status["daemon"])
    rows = [
        {
            **view, "cpu": (answers.cpu or {}).get(view["name"]), "gpu": held.get(view["pid"]) if view["pid"] else None,
            "mem": view["memory_bytes"] if view["memory_bytes"] is not None else view["rss_bytes"],
            "speeds": (answers.speeds or {}).get(view["name"], ()) if view["pid"] else (),
            "returns": (answers.returns or {}).get(view["name"], ()),
        }
        for view in status["programs"]
    ]  # fmt: skip
    wanted = display.filter.lower()
    rows = [row for row in rows if wanted in f"{row['name']} {row['phase']} {row['why']}".lower()]
    rows.sort(key=lambda row: row["name"])
    rows.sort(key=_SORTS[display.sort])
    return rows[::-1] if display.reversed_order else rows


def _gpu_bytes(daemon: dict[str, Any]) -> dict[int, int]:
    """GPU memory by pid, over all GPUs."""
    found: dict[int, int] = {}
    for gpu in (daemon.get("gpu") or {}).get("gpus") or []:
        for pid, size_bytes in gpu["processes"] or ():
            if size_bytes is not None:
                found[pid] = found.get(pid, 0) + size_bytes
    return found


def _cells(row: dict[str, Any]) -> dict[str, str]:
    from supervisor.ctl.status import cells

    known = cells(row)
    return {
        "NAME": known["NAME"],
        "STATE": known["STATE"],
        "STEPS/S": known["STEPS/S"],
        "SPEED 1H": spark(row["speeds"], _SPARK_1H),
        "RETURN": known["RETURN"],
        "RETURN 12H": spark(row["returns"], _SPARK_12H),
        "STEPS": known["STEPS"],
        "CKPT": known["CKPT"],
        "CPU": text.UNKNOWN if row["cpu"] is None else f"{100 * row['cpu']:.0f} %",
        "MEM": text.size(row["mem"]),
        "GPU": text.size(row["gpu"]),
        "RESTARTS": known["RESTARTS"],
        "NEXT": known["NEXT"],
        "WHY": known["WHY"],
    }


# --- small pictures ------------------------------------------------------------------------------------------------------


def _blocks() -> str:
    """The characters from least to most; ASCII if the terminal has no blocks."""
    return "▁▂▃▄▅▆▇█" if "utf" in (sys.stdout.encoding or "").lower() else "_.-=+*%#"


def spark(values: Sequence[float | None], wide: int) -> str:
    """The values as a line of blocks, the newest at the right, each the mean of its stretch. Unknown stays a gap.

    Example: 1, 2, unknown, 4 in 4 columns is `▁▃ █`.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    blocks, stretches = _blocks(), _stretches(values, wide)
    means = [_mean(stretch) for stretch in stretches]
    least, most = min(m for m in means if m is not None), max(m for m in means if m is not None)
    if most - least <= 1e-9 * max(abs(most), abs(least)):
        return "".join(" " if mean is None else blocks[3] for mean in means)
    return "".join(
        " " if mean is None else blocks[round((mean - least) / (most - least) * (len(blocks) - 1))] for mean in means
    )


def _stretches(values: Sequence[float | None], wide: int) -> list[Sequence[float | None]]:
    count = min(wide, len(values))
    bounds = [place * len(values) // count for place in range(count + 1)]
    return [values[low:high] for low, high in pairwise(bounds)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def bar(share: float | None, wide: int) -> str:
    """`[####      ]`."""
    full = 0 if share is None else round(max(0.0, min(1.0, share)) * wide)
    return f"[{'#' * full}{' ' * (wide - full)}]"
