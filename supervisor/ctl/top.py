"""`top` and `status --watch`: box and programs live, with keys. The page is that of `status`; rich controls the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.live import Live
from rich.text import Text

from supervisor.ctl import status_page, text
from supervisor.ctl.outcome import OK, STATUS_UNKNOWN, USAGE, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session, parse_options
from supervisor.policy.upkeep import refresh
from supervisor.records import Record, replace

_SHARE = 0.005  # share of a core for polls and the frames that follow them
_LOOK_S = 0.2  # between two looks at the newest answer and the size of the terminal
_FIRST_S = 0.2  # most daemons answer within this time, so the first frame is complete
_CURVES_S = 60.0
_POINTS = 80
_MOST_CURVES = 60  # as many as a screen has rows
_SPEED_WIDE, _RETURN_WIDE = 10, 16
_CTRL_Z = "\x1a"
_KEYS = "q end · arrows scroll, choose the sort column · r reverse · / filter"
_ORDER = ("FATAL", "GONE", "EXITED", "BACKOFF", "STOPPING", "STARTING", "RUNNING", "GATED", "QUEUED", "STOPPED", "DONE")
_SORTS = {  # the value that a column is sorted by: the largest first, unknown last
    "STATE": "", "NAME": "name", "STEPS/S": "steps_per_s", "RETURN": "mean_return", "STEPS": "steps", "CKPT": "ckpt_age_s",
    "CPU": "cpu", "MEM": "mem", "GPU": "gpu", "RESTARTS": "restarts",
}  # fmt: skip
# The order in which a narrow terminal loses columns.
_EXPENDABLE = ("SPEED 1H", "RESTARTS", "GPU", "CPU", "RETURN 12H", "MEM", "CKPT", "RETURN", "NEXT", "STEPS")
_SEQUENCE = re.compile(r"\x1b[\[O][\d;]*[@-~]|.", re.DOTALL)  # ECMA-48: parameters, then one final byte
_SPECIAL = {
    "A": "up", "B": "down", "C": ">", "D": "<", "H": "home", "1~": "home", "F": "end", "4~": "end", "5~": "page up",
    "6~": "page down",
}  # fmt: skip


def top(session: Session, args: list[str]) -> int:
    """`top`.

    Programs live, once a second: states, speeds, returns, ages of checkpoints, CPU and memory, and the box above them.
    Hundreds of programs are shown less often, so that it takes no more than a hundredth of a core. Keys: q ends, arrows
    scroll and choose the column to sort by, r reverses the order, / filters. Where standard output is no terminal, one
    frame is printed.
    """
    if parse_options(args)[0]:
        raise Failed("Error: top takes no names; / filters", USAGE)
    if text.is_screen():
        return live(session)
    feed = Feed(session)
    feed.poll()
    for line in frame(feed.answers, Display(), (None, None), text.Paint(on=False)):
        session.say(line.rstrip())
    found = feed.answers.status
    return OK if found is not None and found["daemon"]["state"] != "dead" else STATUS_UNKNOWN


def live(session: Session, names: Sequence[str] = (), least_s: float = refresh.SHORTEST_S, *, wide: bool = False) -> int:
    """Show the page until `q` or Ctrl-C; of these programs, every `least_s` seconds. `wide`: no column is left out."""
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}  # the terminal counts
    console, feed, display = Console(_environ=environ), Feed(session, names, least_s), Display(wide=wide)
    threading.Thread(target=feed.run, name="feed", daemon=True).start()
    feed.first.wait(_FIRST_S)
    try:
        while True:
            live = Live(console=console, screen=True, auto_refresh=False)
            with _ended_by_signals(), _keyboard() as keyboard, live as screen:
                display = _until_suspended(screen, keyboard, feed, display)
            signal.raise_signal(signal.SIGSTOP)  # once the shell continues this process, the terminal is taken anew
    except (KeyboardInterrupt, EOFError):
        return OK
    finally:
        feed.over.set()


def _until_suspended(screen: Live, keyboard: int | None, feed: Feed, display: Display) -> Display:
    """Draw each new frame, and act on keys, until Ctrl-Z. Raises EOFError at `q`."""
    paint, shown = text.Paint(on=True), None
    while True:
        answers, size = feed.answers, (screen.console.width, screen.console.height)
        late_s = max(0, int(text.wall_s() - answers.at_wall_s - feed.period_s))  # the ages that are shown stay true
        if shown != (newest := (answers.number, display, size, late_s)):
            began_s, shown = time.thread_time(), newest
            drawn = "\n".join(frame(answers, display, size, paint))
            screen.update(Text.from_ansi(drawn, no_wrap=True, overflow="crop"), refresh=True)
            feed.frame_s = time.thread_time() - began_s
        for key in _pressed_keys(keyboard):
            if key == _CTRL_Z:
                return display
            if key == "q" and not display.typing:
                raise EOFError
            rows = chosen(answers, display)
            display = pressed(display, key, _page(size[1], len(_header(answers, size[0]))), len(rows))


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals that end a process do so by an exception, so that the terminal is restored."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _keyboard() -> Iterator[int | None]:
    """The descriptor from which keys come at once, Ctrl-Z too; None if standard input is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        modes = termios.tcgetattr(fd)
        modes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(fd, termios.TCSADRAIN, modes)
        yield fd
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _pressed_keys(keyboard: int | None) -> list[str]:
    """The keys of the next moment. Raises BrokenPipeError once the terminal is gone."""
    if keyboard is None:
        text.pause_while_read(_LOOK_S)
        return []
    if not select.select([keyboard], [], [], _LOOK_S)[0]:
        return []
    data = os.read(keyboard, 4096)
    if not data:
        raise BrokenPipeError
    return keys(data.decode(errors="replace"))


def keys(typed: str) -> list[str]:
    """The names of the pressed keys; a character is its own name. Unknown escape sequences are dropped."""
    found = _SEQUENCE.findall(typed)
    return [name for each in found if (name := _SPECIAL.get(each[2:], "") if len(each) > 1 else each)]


# --- asking ------------------------------------------------------------------------------------------------------------


class Answers(Record):
    """The newest answers. `error` says why there is no newer one."""

    number: int = 0
    status: dict[str, Any] | None = None
    at_wall_s: float = 0.0  # time of the newest status
    error: str = ""
    cpu: Mapping[str, float] = field(default_factory=dict)  # cores by program
    speeds: Mapping[str, str] = field(default_factory=dict)  # curves of the last hour, by program
    returns: Mapping[str, str] = field(default_factory=dict)  # of the last twelve hours


class Feed:
    """Polls the daemon in its own thread, so that keys work while the daemon does not answer.

    The next poll comes after `period_s`, which bounds the CPU time of polls and their frames.
    """

    def __init__(self, session: Session, names: Sequence[str] = (), least_s: float = refresh.SHORTEST_S) -> None:
        self.answers = Answers()
        self.first, self.over = threading.Event(), threading.Event()
        self.frame_s = 0.0  # CPU time of the newest frame
        self.period_s = self._least_s = least_s
        self._session, self._names = session, list(names)
        self._cost, self._curves_s = "", -_CURVES_S
        self._processes: dict[int, psutil.Process] = {}

    def run(self) -> None:
        while not self.over.wait(self.period_s if self.first.is_set() else 0.0):
            self.poll()
            self.first.set()

    def poll(self) -> None:
        """Poll once, and compute the time until the next poll. Never raises: without an answer, `error` has the reason."""
        began_s, error = time.thread_time(), ""
        try:
            self._ask()
        except (Failed, DaemonRefused, Unreachable) as gone:
            error = str(gone)
        except Exception as bug:  # noqa: BLE001  a page of another version must not print a traceback across the screen
            error = f"this version of supervisorctl does not understand the daemon: {bug!r}"
        self.answers = replace(self.answers, number=self.answers.number + 1, error=error)
        self.period_s = max(self._least_s, refresh.period_s(time.thread_time() - began_s + self.frame_s, _SHARE))

    def _ask(self) -> None:
        found = self._session.page("status")
        found["programs"], found["unknown"] = status_page.choose(found["programs"], self._names)
        live_names = [view["name"] for view in found["programs"] if view["pid"]][:_MOST_CURVES]
        found["daemon"]["cost"] = self._cost
        self.answers = replace(self.answers, status=found, at_wall_s=text.wall_s(), cpu=self._cores(found))
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now_s - self._curves_s >= _CURVES_S and live_names:  # without names, the page would return every curve
            self._curves_s = now_s
            status_page.add_cost(self._session, found)
            self._cost = found["daemon"]["cost"]
            with contextlib.suppress(Exception):  # curves are optional
                speeds = self._curves("steps_per_s", "3600s", live_names, _SPEED_WIDE)
                returns = self._curves("mean_return", "43200s", live_names, _RETURN_WIDE)
                self.answers = replace(self.answers, speeds=speeds, returns=returns)

    def _curves(self, series: str, since: str, names: Sequence[str], wide: int) -> dict[str, str]:
        page = self._session.page("curves", series=series, since=since, points=_POINTS, subjects=",".join(names))
        return {
            each["program"]: spark(page, each["at_s"], each["series"][series]["mean"], wide) for each in page["subjects"]
        }

    def _cores(self, found: dict[str, Any]) -> dict[str, float]:
        """Cores that each worker of this box has used since the last poll. Of another box they are unknown."""
        here = ""
        with contextlib.suppress(OSError):
            here = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip().replace("-", "")
        if found["daemon"]["boot_id"] != here:
            return {}
        before, self._processes, cores = self._processes, {}, {}
        for view in found["programs"]:
            with contextlib.suppress(psutil.Error):
                if not view["pid"]:
                    continue
                process = before.get(view["pid"]) or psutil.Process(view["pid"])
                if abs(found["wall_s"] - process.create_time() - (view["uptime_s"] or 0.0)) > 60.0:
                    continue  # in another pid namespace, this pid is another process
                share = process.cpu_percent() / 100.0
                self._processes[process.pid] = process
                if process.pid in before:
                    cores[view["name"]] = share
        return cores


# --- keys ----------------------------------------------------------------------------------------------------------------


class Display(Record):
    """The user's view: sorting, scrolling, filter; `typing` while the filter is being typed."""

    sort: str = "STATE"
    reversed_order: bool = False
    offset: int = 0
    filter: str = ""
    typing: bool = False
    wide: bool = False


def pressed(display: Display, key: str, page: int, count: int) -> Display:
    """`display` after a key. `page` is the number of rows of a page, `count` the number of all rows."""
    if key == "\x1b":
        return replace(display, typing=False, filter="")
    if display.typing:
        if key in {"\r", "\n"}:
            return replace(display, typing=False)
        letter = key * (len(key) == 1 and key.isprintable())
        typed = display.filter[:-1] if key in {"\x7f", "\b"} else display.filter + letter
        return replace(display, filter=typed, offset=0)
    moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, "home": -count, "end": count}
    if key in moves:
        return replace(display, offset=max(0, min(display.offset + moves[key], count - page)))
    if key in "<,>.":
        titles = list(_SORTS)
        step = 1 if key in ">." else -1
        sort = titles[(titles.index(display.sort) + step) % len(titles)]
        return replace(display, sort=sort, reversed_order=False, offset=0)
    if key == "r":
        return replace(display, reversed_order=not display.reversed_order)
    return replace(display, typing=True, offset=0) if key == "/" else display


# --- one frame -----------------------------------------------------------------------------------------------------------


def frame(answers: Answers, display: Display, size: tuple[int | None, int | None], paint: text.Paint) -> list[str]:
    """Every line of the screen, none wider than it. Without a size: all rows and columns."""
    columns, height = size
    lines, foot = _header(answers, columns), f"sorted by {display.sort}{', reversed' * display.reversed_order} · {_KEYS}"
    if answers.status is not None:
        rows = chosen(answers, display)
        page = len(rows) if height is None else _page(height, len(lines))
        offset = max(0, min(display.offset, len(rows) - page))
        wide = max((text.width(text.printable(row["name"])) for row in rows), default=0)  # scrolling moves no column
        cells = [_cells(row, wide) for row in rows[offset : offset + page]]
        none = ["no program has that text" if display.filter else "no programs"]
        lines += ["", *(status_page.table(cells, None if display.wide else columns, paint, _EXPENDABLE) if cells else none)]
        foot = f"{offset + 1} to {offset + len(cells)} of {len(rows)} · {foot}" if len(rows) > page else foot
    if height is None:
        return lines
    if display.typing:
        foot = f"filter: {text.printable(display.filter)}_"
    elif display.filter:
        foot = f"only {text.printable(display.filter)!r} (escape: all) · {foot}"
    lines = [*lines, *[""] * (height - 1 - len(lines))][: height - 1]
    return [*lines, paint(foot if columns is None else text.clip(foot, columns), "" if display.typing else "dim")]


def _page(height: int, header: int) -> int:
    return max(1, height - header - 3)  # an empty line and the titles above the rows, the foot below them


def _header(answers: Answers, columns: int | None) -> list[str]:
    found = answers.status
    if found is None:
        return [text.printable(answers.error) or "asking the daemon ..."]
    lines = status_page.header(found, columns)
    if answers.error:
        ago = text.duration(text.wall_s() - answers.at_wall_s)
        lines = [f"no answer for {ago}: {text.printable(answers.error)}; showing the last known state", *lines]
    host = text.printable((found["daemon"].get("box") or {}).get("hostname") or "extralife")
    lines += [
        f"{host} · {text.when(text.wall_s(), text.wall_s())} · {_counts(found['programs'])}",
        *(f"{text.printable(name)}: ERROR (no such process)" for name in found["unknown"]),
    ]
    return [line if columns is None else text.clip(line, columns) for line in lines]


def _counts(programs: Sequence[dict[str, Any]]) -> str:
    """`1 of 3 train · 1 FATAL · 512.0 steps/s`."""
    phases = [view["phase"] for view in programs if not view.get("service")]
    parts = [f"{phases.count('RUNNING')} of {len(phases)} train"]
    parts += [f"{phases.count(phase)} {phase}" for phase in _ORDER if phase != "RUNNING" and phase in phases]
    speeds = [view["steps_per_s"] for view in programs if view["steps_per_s"] is not None]
    return " · ".join([*parts, *([f"{text.number(float(sum(speeds)))} steps/s"] if speeds else [])])


def chosen(answers: Answers, display: Display) -> list[dict[str, Any]]:
    if answers.status is None:
        return []
    held: dict[int, int] = {}
    for gpu in (answers.status["daemon"].get("gpu") or {}).get("gpus") or []:
        for pid, size_bytes in gpu["processes"] or ():
            if size_bytes is not None:
                held[pid] = held.get(pid, 0) + size_bytes
    rows = [
        {
            **view, "cpu": answers.cpu.get(view["name"]), "gpu": held.get(view["pid"]) if view["pid"] else None,
            "mem": view["memory_bytes"] if view["memory_bytes"] is not None else view["rss_bytes"],
            "speeds": answers.speeds.get(view["name"], ""), "returns": answers.returns.get(view["name"], ""),
        }
        for view in answers.status["programs"]
    ]  # fmt: skip
    wanted = display.filter.lower()
    rows = [row for row in rows if wanted in f"{row['name']} {row['phase']} {row['why']}".lower()]
    rows.sort(key=lambda row: row["name"])
    rows.sort(key=lambda row: _place(row, _SORTS[display.sort]))
    return rows[::-1] if display.reversed_order else rows


def _place(row: dict[str, Any], key: str) -> tuple[bool, Any]:
    if not key:
        return False, _ORDER.index(row["phase"]) if row["phase"] in _ORDER else -1
    value = row[key]
    return value is None, value if isinstance(value, str) else -(value or 0.0)


def _cells(row: dict[str, Any], name_wide: int) -> dict[str, str]:
    known = status_page.cells(row)
    shown = {
        "NAME": text.pad(known["NAME"], name_wide), "STATE": known["STATE"], "STEPS/S": known["STEPS/S"],
        "SPEED 1H": row["speeds"], "RETURN": known["RETURN"], "RETURN 12H": row["returns"],
    }  # fmt: skip
    cpu = text.UNKNOWN if row["cpu"] is None else f"{100 * row['cpu']:.0f} %"
    own = {"CPU": cpu, "MEM": text.size(row["mem"]), "GPU": text.size(row["gpu"])}
    return (
        shown | {"STEPS": known["STEPS"], "CKPT": known["CKPT"]} | own | {k: known[k] for k in ("RESTARTS", "NEXT", "WHY")}
    )


def spark(page: Mapping[str, Any], at_s: Sequence[float], values: Sequence[float | None], wide: int) -> str:
    """Means of equal parts of the page's window as blocks, the newest at the right; a part without a value is a gap.

    The page has no points for a time in which nothing ran. A part is longer than a period: a part of the running time has a
    point even if the points come a little late. Example: 1, 2, unknown, 4 in 4 columns is `▁▃ █`.
    """
    span_s = page["until_s"] - page["since_s"]
    count = max(1, min(wide, int(span_s / (1.5 * page["period_s"]))))
    parts: list[list[float]] = [[] for _ in range(count)]
    for moment_s, value in zip(at_s, values, strict=True):
        if value is not None and span_s > 0.0:
            parts[max(0, min(count - 1, int((moment_s - page["since_s"]) / span_s * count)))].append(value)
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    blocks = "▁▂▃▄▅▆▇█" if "utf" in (sys.stdout.encoding or "").lower() else "_.-=+*%#"
    least, most = min(known), max(known)
    flat = most - least <= 1e-9 * max(abs(most), abs(least))
    return "".join(" " if m is None else blocks[3 if flat else round((m - least) / (most - least) * 7)] for m in means)
