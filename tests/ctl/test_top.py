"""`top` on a real pseudo-terminal, read by a terminal emulator: what is seen, sizes, and every way to end."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import termios
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pyte
import pytest
from fake_backend import FakeBackend, daemon, program
from running import Terminal, hung_up
from serving import served

from supervisor.ctl import text
from supervisor.ctl.outcome import READER_LEFT, Options
from supervisor.ctl.session import Session
from supervisor.ctl.top import Answers, Feed, frame, rows_of, spark
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.policy.upkeep import refresh

PLAIN = text.Paint(on=False)
NOW_S = 1_763_700_000.0


class Seen(Terminal):
    """A terminal with a screen."""

    def __init__(self, *args: str, socket: Path, columns: int = 120, rows: int = 24, **env: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        super().__init__(*args, socket=socket, columns=columns, rows=rows, **env)

    def shows(self, what: str, timeout_s: float = 30) -> list[str]:
        """The lines of the screen once this text is on it, and nothing more comes."""
        deadline = time.monotonic() + timeout_s
        while not any(what in line for line in self.screen.display) or select.select([self.master], [], [], 0.05)[0]:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"waited in vain for {what!r}:\n" + "\n".join(self.screen.display)
            if select.select([self.master], [], [], left_s)[0]:
                self._stream.feed(self._decode(os.read(self.master, 65536)))
        return [line.rstrip() for line in self.screen.display]

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.master)


@pytest.fixture
def box(backend: FakeBackend) -> FakeBackend:
    """Two programs, one of which trains, with an hour of speeds."""
    from supervisor.features.recorder.rules.recording import Row

    backend.change("Pong", steps_per_s=512.0, mean_return=18.0, ckpt_age_s=61.0, memory_bytes=2 * 10**9, pid=4242)
    backend.add(program("Alien", "FATAL", why="exit code 78: bad config"))
    backend.journal = [Stamped(1, 0.0, NOW_S, "b" * 32, facts.LevelChosen("set", "light", 2))]
    told = {"env_steps": 1.0, "mean_return": 1.0}
    backend.rows = [Row(16.0 * n, NOW_S, ("Pong", "a"), (None,) * 3, {**told, "steps_per_s": float(n)}) for n in range(60)]
    return backend


# --- on a terminal ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("recorder")
def test_programs_live(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api, columns=140) as top:
        lines = top.shows("▁▂▃▃▄▅▆▇▇█")
        assert "level light: 2 slots x 32 environments, batch 512" in lines[0]
        assert re.fullmatch(r"\S+ · \d\d:\d\d:\d\d · 1 of 3 train · 1 FATAL · 1 QUEUED · 512.0 steps/s", lines[2])
        rows = [line.split()[0] for line in lines[5:8]]
        assert rows == ["Alien", "Pong", "Breakout"]  # what is broken first
        assert "exit code 78" in lines[5]
        assert {"RUNNING", "512.0", "18.0", "1m", "1s", "2GB"} <= {*lines[6].split()}
        box.change("Pong", steps_per_s=777.0)
        top.shows("777.0")
        top.type("q")
        assert top.end()[1] == 0


def test_programs_that_do_not_fit_are_counted_and_can_be_named(api: Path, box: FakeBackend) -> None:
    box.add(*(program(f"Game{n:02}", steps_per_s=float(n)) for n in range(30)))
    with Seen("top", socket=api, rows=17) as top:
        top.shows("11 of 33 programs; `top NAME ..` shows others · q ends")
    with Seen("top", "Game29", socket=api, rows=17) as top:
        assert not [line for line in top.shows("Game29") if line.startswith("Alien")]
        top.type("q")
        assert top.end()[1] == 0


def test_a_terminal_that_changes_its_size(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api, columns=120) as top:
        assert "WHY" in "".join(top.shows("exit code 78"))
        top.resize(40, 10)
        top.shows("2 of 3 programs; `top NAME ..` shows ot…")
        assert "WHY" not in "".join(top.screen.display)
        top.resize(120, 24)
        top.shows("WHY")


def test_a_daemon_that_goes_and_comes_back(socket_path: Path, box: FakeBackend) -> None:
    with Seen("top", socket=socket_path) as top:
        with served(box, socket_path):
            top.shows("Alien")
        lines = top.shows("no answer for")
        assert any(line.startswith("Alien") for line in lines), "what was known last stays"
        with served(box, socket_path):
            box.change("Pong", steps_per_s=901.0)
            lines = top.shows("901.0")
            assert not [line for line in lines if "no answer" in line]


def test_ages_go_on_while_the_daemon_hangs(api: Path, box: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    hung, make = threading.Event(), box.page_status
    with Seen("top", socket=api) as top:
        top.shows("Alien")
        monkeypatch.setattr(box, "page_status", lambda: hung.wait(60) and make())
        clocks: set[str] = set()
        while len(clocks) < 5:  # more than the polls that may have been under way
            clocks |= {found[0] for line in top.shows(" of 3 train") if (found := re.search(r"\d\d:\d\d:\d\d · ", line))}
        hung.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_is_as_it_was_whatever_ends_it(api: Path, box: FakeBackend, number: signal.Signals) -> None:
    with Seen("top", socket=api) as top:
        top.shows("Alien")
        assert not top.modes()[3] & (termios.ICANON | termios.ECHO)
        os.killpg(top.process.pid, number)
        text_, code = top.end()
        assert code == (0 if number == signal.SIGINT else 128 + number)
        assert text_.endswith("\x1b[?25h\x1b[?1049l")
        assert top.modes()[3] & termios.ICANON
        assert top.modes()[3] & termios.ECHO


def test_it_ends_with_its_terminal(api: Path, box: FakeBackend) -> None:
    assert hung_up(api, "top") == READER_LEFT


def test_ctrl_z_does_not_leave_the_shell_on_its_screen(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api) as top:
        top.shows("Alien")
        top.type("\x1aq")
        assert top.end()[1] == 0


class _Dear(Session):
    """Its page takes 20 ms of CPU."""

    def page(self, name: str, **query: Any) -> dict[str, Any]:
        ends_s = time.thread_time() + 0.02
        while time.thread_time() < ends_s:
            pass
        return {"programs": [], "daemon": daemon(), "wall_s": NOW_S}


def test_looks_that_cost_much_come_less_often() -> None:
    feed = Feed(_Dear(Options()))
    feed.frame_s = 0.005
    assert feed.period_s == refresh.SHORTEST_S
    feed.poll()
    assert feed.period_s >= (0.02 + 0.005) / 0.01, "at most 1 % of a core"


# --- elsewhere -------------------------------------------------------------------------------------------------------------


def test_no_colour_where_none_is_wanted(api: Path, box: FakeBackend) -> None:
    with Terminal("top", socket=api, NO_COLOR="1") as top:
        seen = top.until("q ends")
    assert not re.findall(r"\x1b\[[\d;]*m", seen)


# --- frames ----------------------------------------------------------------------------------------------------------------


def found(*programs: Any, **header: Any) -> Answers:
    page = {"daemon": daemon(**header), "programs": list(programs), "unknown": [], "wall_s": NOW_S, "now_s": 1.0}
    return Answers(status=page, at_wall_s=NOW_S)


def test_hostile_names_are_spelled_out_and_rows_fit_the_screen() -> None:
    hostile = program("a\x1b]0;b\x07" + "漢字" * 40, phase="FATAL", why="c\u202ed\ne")
    lines = frame(found(hostile, *(program(f"Game{n:03}") for n in range(500))), (120, 30), PLAIN)
    assert len(lines) == 30
    assert any(line.startswith("a\\x1b]0;b\\x07漢字") for line in lines)
    assert not [char for line in lines for char in line if not char.isprintable()]


def test_nothing_yet_and_nothing_at_all() -> None:
    assert frame(Answers(), (80, 3), PLAIN)[0] == "asking the daemon ..."
    assert "no programs" in frame(found(), (80, 10), PLAIN)


def test_gpu_memory_is_summed_over_gpus() -> None:
    gpus = [{"processes": [[7, 10**9], [7, 10**9], [8, None]]}, {"processes": [[7, 10**9]]}, {"processes": None}]
    rows = rows_of(found(program("Pong", pid=7), program("Qbert", pid=8), gpu={"error": "", "gpus": gpus}))
    assert [row["gpu"] for row in rows] == [3 * 10**9, None]


def test_a_time_without_points_is_a_gap() -> None:
    """The page has no points for it, and the small curve closed the gap: ten minutes looked like the whole hour."""
    page = {"since_s": 1000.0, "until_s": 4600.0, "period_s": 60.0}
    at_s = [960.0 + 60.0 * minute for minute in range(60) if not 18 <= minute < 36]
    assert spark(page, at_s, [2.0] * len(at_s), 10) == "▄▄▄  ▄▄▄▄▄"
    assert spark(page, at_s[-5:], [1.0, 2.0, None, 4.0, 4.0], 10) == " " * 9 + "▄"
    assert spark(page | {"until_s": 1100.0, "period_s": 10.0}, [1005.0, 1025.0], [1.0, 3.0], 10) == "▁█    "
    assert spark(page | {"until_s": 1000.0}, [1000.0], [1.0], 10) == "", "a journal that has just begun"


def test_cores_are_those_of_a_worker_of_this_box() -> None:
    feed, boot_id = Feed(Session(Options())), Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    view = {"name": "Pong", "pid": os.getpid(), "uptime_s": time.time() - psutil.Process().create_time()}
    page = {"daemon": {"boot_id": boot_id}, "programs": [view], "wall_s": time.time()}
    assert feed._cores(page) == {}, "one look is no difference"
    ends_s = time.thread_time() + 0.05
    while time.thread_time() < ends_s:
        pass
    assert feed._cores(page)["Pong"] > 0
    assert feed._cores({**page, "programs": [{**view, "uptime_s": 1e6}]}) == {}, "of another pid namespace"
    assert feed._cores({**page, "daemon": {"boot_id": "0"}}) == {}
