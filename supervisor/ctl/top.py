"""`top`: programs live, with keys. `top_frame.py` makes the frames, `screen.py` controls the terminal."""

from __future__ import annotations

import os
import sys
import threading
import time

from supervisor.ctl import text
from supervisor.ctl.client import DaemonRefused, Unreachable
from supervisor.ctl.outcome import OK, STATUS_UNKNOWN, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.ctl.top_frame import Answers, Display, chosen, frame, pressed, room
from supervisor.policy.upkeep import refresh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

_SHARE = 0.005  # share of a core for polls and the frames that follow them
_LATE_S = 0.5  # if a poll is later than this, the next frame does not wait for it, so the ages that it shows are true
_CURVES_S = 60.0
_FIRST_S = 0.2  # most daemons answer within this time, so the first frame is complete


def top(session: Session, args: list[str]) -> int:
    """`top`.

    Programs live, once a second: states, speeds, returns, ages of checkpoints, CPU and memory, and the box above them.
    Hundreds of programs are shown less often, so that it takes no more than a hundredth of a core. Keys: q ends, arrows
    scroll and choose the column to sort by, r reverses the order, / filters, ? explains. Where standard output is no
    terminal, one frame is printed.
    """
    names, _ = parse_options(args)
    if names:
        raise Failed("Error: top takes no names; / filters", USAGE)
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return _once(session)
    from supervisor.ctl.screen import Ended, Screen

    signals = 128
    try:
        with Screen() as screen, Feed(session, screen.wake) as feed:
            return _live(screen, feed)
    except Ended as ended:
        return signals + ended.number
    except KeyboardInterrupt:
        return OK


def _once(session: Session) -> int:
    answers = polled(Answers(), session)
    if answers.status is not None:
        answers = with_curves(answers, session, _live_names(answers.status))
    for line in frame(answers, Display(), None, None, text.Paint(on=False), text.wall_s()):
        session.say(line.rstrip())
    return OK if answers.status is not None and not answers.dead else STATUS_UNKNOWN


def _live(screen: Any, feed: Feed) -> int:
    display, paint = Display(), text.Paint(on=True)
    feed.first.wait(_FIRST_S)
    while True:
        began_s = time.thread_time()
        answers, now_wall_s, (columns, rows) = feed.answers, text.wall_s(), screen.size
        screen.show(frame(answers, display, columns, rows, paint, now_wall_s))
        feed.frame_s = time.thread_time() - began_s
        for key in screen.wait(feed.period_s + _LATE_S):
            if display.typing is None and key == "q":
                return OK
            display = pressed(display, key, room(answers, columns, rows, now_wall_s), len(chosen(answers, display)))


# --- asking ------------------------------------------------------------------------------------------------------------


def polled(answers: Answers, session: Session) -> Answers:
    """`answers` after another poll. It never raises: without an answer, `error` has the reason."""
    try:
        status = session.page("status")
        ticks = {} if answers.status is None else _cpu_seconds(status)  # the first frame must not wait for it
    except (Failed, DaemonRefused, Unreachable) as gone:
        return answers.replaced(error=str(gone))
    except Exception as error:  # noqa: BLE001  a page of another version must not print a traceback across the screen
        return answers.replaced(error=f"this version of supervisorctl does not understand the daemon: {error!r}")
    cpu = _cores(answers.ticks or {}, ticks)
    return answers.replaced(status=status, at_wall_s=text.wall_s(), error="", ticks=ticks, cpu=cpu)


def _live_names(status: dict[str, Any]) -> list[str]:
    return [view["name"] for view in status["programs"] if view["pid"]][:_MOST_CURVES]


def with_curves(answers: Answers, session: Session, names: Sequence[str]) -> Answers:
    """`answers` with the curves of these programs. Curves are optional: an error leaves `answers` as it is."""
    if not names:  # the page would return the curves of every program that ever existed
        return answers
    try:
        speeds = _curve(session, "steps_per_s", "3600s", names)
        return answers.replaced(speeds=speeds, returns=_curve(session, "mean_return", "43200s", names))
    except Exception:  # noqa: BLE001
        return answers


def _curve(session: Session, series: str, since: str, names: Sequence[str]) -> dict[str, list[float | None]]:
    page = session.page("curves", series=series, since=since, points=_POINTS, subjects=",".join(names))
    return {each["program"]: over_window(page, each["at_s"], each["series"][series]["mean"]) for each in page["subjects"]}


def over_window(page: Mapping[str, Any], at_s: Sequence[float], values: Sequence[float | None]) -> list[float | None]:
    """The means of equal parts of the window; None for a part without a value.

    The page has no points for a time in which nothing ran. A part is longer than a period: a part of the running time has a
    point even if the points come a little late.
    """
    span_s = page["until_s"] - page["since_s"]
    count = max(1, min(_POINTS, int(span_s / (1.5 * page["period_s"]))))
    parts: list[list[float]] = [[] for _ in range(count)]
    for moment_s, value in zip(at_s, values, strict=True):
        if value is not None and span_s > 0.0:
            place = int((moment_s - page["since_s"]) / span_s * count)
            parts[max(0, min(count - 1, place))].append(value)
    return [sum(part) / len(part) if part else None for part in parts]


def _cpu_seconds(status: dict[str, Any]) -> dict[str, tuple[int, float, float]]:
    """CPU time of each worker of this box, from /proc. For another box (through a tunnel) it is unknown."""
    from supervisor.adapters import procfs

    if status["daemon"]["boot_id"] != _boot_id():
        return {}
    found = {}
    hertz = os.sysconf("SC_CLK_TCK")
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    for view in status["programs"]:
        stat = procfs.read_stat(view["pid"]) if view["pid"] else None
        used = None if stat is None else procfs.cpu_ticks(stat.pid)
        if stat is None or used is None or abs(up_s - stat.start_ticks / hertz - (view["uptime_s"] or 0.0)) > 60.0:
            continue  # in another pid namespace, this pid is another process
        found[view["name"]] = (view["pid"], used / hertz, up_s)
    return found


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123  pathlib takes 5 ms to import
            return file.read().strip().replace("-", "")
    except OSError:
        return ""


def _cores(
    before: Mapping[str, tuple[int, float, float]], after: Mapping[str, tuple[int, float, float]]
) -> dict[str, float]:
    """Cores that each program used between two polls."""
    found = {}
    for name, (pid, cpu_s, at_s) in after.items():
        was = before.get(name)
        if was is not None and was[0] == pid and at_s > was[2]:
            found[name] = max(0.0, cpu_s - was[1]) / (at_s - was[2])
    return found


class Feed:
    """Polls the daemon in its own thread, so that keys work while the daemon does not answer.

    The next poll comes after `period_s`, which bounds the CPU time of polls and their frames.
    """

    def __init__(self, session: Session, wake: Callable[[], None]) -> None:
        self.answers = Answers()
        self.first = threading.Event()
        self.frame_s = 0.0  # CPU time of the newest frame
        self.period_s = refresh.SHORTEST_S
        self._curves_s = -_CURVES_S  # time of their last request, in seconds since the boot
        self._session, self._wake = session, wake
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self.poll()
            self._over.wait(self.period_s)

    def poll(self) -> None:
        """Poll once, and compute the time until the next poll."""
        began_s = time.thread_time()
        self.answers = polled(self.answers, self._session)
        self._notify()
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        if self.answers.status is not None and now_s - self._curves_s >= _CURVES_S:
            self.answers, self._curves_s = with_curves(self.answers, self._session, _live_names(self.answers.status)), now_s
            self._notify()
        self.period_s = refresh.period_s(time.thread_time() - began_s + self.frame_s, _SHARE)

    def _notify(self) -> None:
        self.first.set()
        self._wake()


_MOST_CURVES = 60  # as many as a screen has rows
_POINTS = 80
