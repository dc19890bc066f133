"""`top` and `status --watch`: the lines of `status`, live, with small curves. rich controls the terminal."""

from __future__ import annotations

import contextlib
import os
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
from supervisor.ctl.outcome import OK, STATUS_UNKNOWN, DaemonRefused, Failed, Unreachable
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
# The order in which a narrow terminal loses columns.
_EXPENDABLE = ("SPEED 1H", "RESTARTS", "GPU", "CPU", "RETURN 12H", "MEM", "WHY", "CKPT", "NEXT", "STEPS", "RETURN")


def top(session: Session, args: list[str]) -> int:
    """`top [NAME ..]`.

    Programs live, once a second: states, speeds, returns, ages of checkpoints, CPU and memory, and the box above them.
    Hundreds of programs are shown less often, so that it takes no more than a hundredth of a core. `q` ends it. Where
    standard output is no terminal, one frame is printed.
    """
    names, _ = parse_options(args)
    if text.is_screen():
        return live(session, names)
    feed = Feed(session, names)
    feed.poll()
    for line in frame(feed.answers, (None, None), text.Paint(on=False)):
        session.say(line.rstrip())
    found = feed.answers.status
    whole = found is not None and found["daemon"]["state"] != "dead" and not found["unknown"]
    return OK if whole else STATUS_UNKNOWN


def live(session: Session, names: Sequence[str] = (), least_s: float = refresh.SHORTEST_S, *, wide: bool = False) -> int:
    """Show the page until `q` or Ctrl-C; of these programs, every `least_s` seconds. `wide`: no column is left out."""
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}  # the terminal counts
    feed, paint, shown = Feed(session, names, least_s), text.Paint(on=True), None
    drawing = Live(console=Console(_environ=environ), screen=True, auto_refresh=False)
    threading.Thread(target=feed.run, name="feed", daemon=True).start()
    feed.first.wait(_FIRST_S)
    try:
        with _ended_by_signals(), _keyboard() as keyboard, drawing as screen:
            while True:
                answers, size = feed.answers, (screen.console.width, screen.console.height)
                late_s = max(0, int(text.wall_s() - answers.at_wall_s - feed.period_s))  # the ages that are shown stay true
                if shown != (newest := (answers.number, size, late_s)):
                    began_s, shown = time.thread_time(), newest
                    drawn = "\n".join(frame(answers, size, paint, wide=wide))
                    screen.update(Text.from_ansi(drawn, no_wrap=True, overflow="crop"), refresh=True)
                    feed.frame_s = time.thread_time() - began_s
                if _q_is_pressed(keyboard):
                    return OK
    except KeyboardInterrupt:
        return OK
    finally:
        feed.over.set()


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
    """The descriptor from which keys come at once; None if standard input is no terminal. Ctrl-Z does nothing."""
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


def _q_is_pressed(keyboard: int | None) -> bool:
    """Whether `q` comes in the next moment. Raises BrokenPipeError once the terminal is gone."""
    if keyboard is None:
        text.pause_while_read(_LOOK_S)
        return False
    if not select.select([keyboard], [], [], _LOOK_S)[0]:
        return False
    data = os.read(keyboard, 4096)
    if not data:
        raise BrokenPipeError
    return b"q" in data


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
    """Polls the daemon in its own thread, so that `q` works while the daemon does not answer.

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
            error = f"this version of extralifectl does not understand the daemon: {bug!r}"
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


# --- one frame -----------------------------------------------------------------------------------------------------------


def frame(answers: Answers, size: tuple[int | None, int | None], paint: text.Paint, *, wide: bool = False) -> list[str]:
    """Every line of the screen, none wider than it. Without a size: all rows and columns."""
    columns, height = size
    lines, foot = _header(answers, columns), "q ends"
    if answers.status is not None:
        rows = rows_of(answers)
        most = len(rows) if height is None else max(1, height - len(lines) - 3)  # an empty line, the titles, the foot
        cells = [_cells(row) for row in rows[:most]]
        loud = status_page.loud(rows)
        table = status_page.table(cells, None if wide else columns, paint, _EXPENDABLE, loud) if cells else ["no programs"]
        lines += ["", *table]
        foot = f"{len(cells)} of {len(rows)} programs; `top NAME ..` shows others · {foot}" if len(rows) > most else foot
    if height is None:
        return lines
    lines = [*lines, *[""] * (height - 1 - len(lines))][: height - 1]
    return [*lines, paint(foot if columns is None else text.clip(foot, columns), "dim")]


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
    parts += [f"{phases.count(phase)} {phase}" for phase in status_page.ORDER if phase != "RUNNING" and phase in phases]
    speeds = [view["steps_per_s"] for view in programs if view["steps_per_s"] is not None]
    return " · ".join([*parts, *([f"{text.number(float(sum(speeds)))} steps/s"] if speeds else [])])


def rows_of(answers: Answers) -> list[dict[str, Any]]:
    """The programs with all that is shown of them; those with a fault come first."""
    assert answers.status is not None  # noqa: S101  for the type checker
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
    return status_page.worst_first(rows)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    known = status_page.cells(row)
    shown = {
        "NAME": known["NAME"], "STATE": known["STATE"], "STEPS/S": known["STEPS/S"],
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
