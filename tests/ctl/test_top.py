"""`top` on a real pseudo-terminal, read by a terminal emulator: what is seen, keys, sizes, and every way to end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import pyte
import pytest
from fake_backend import FakeBackend, daemon, known_to, program
from running import CTL, Terminal, ctl, environment
from serving import served

from supervisor.ctl import text
from supervisor.ctl.outcome import READER_LEFT, Options
from supervisor.ctl.screen import keys
from supervisor.ctl.session import Session
from supervisor.ctl.top import Feed, _cores, over_window
from supervisor.ctl.top_frame import Answers, Display, bar, chosen, frame, pressed, spark
from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.recording import Row
from supervisor.policy.upkeep import refresh

PLAIN = text.Paint(on=False)
NOW_S = 1_763_700_000.0
BEGINS, ENDS = "\x1b[?2026h", "\x1b[?2026l"  # of a frame


class Seen(Terminal):
    """A terminal with a screen."""

    def __init__(self, *args: str, socket: Path, columns: int = 120, rows: int = 24, **env: str) -> None:
        self.screen, self._fed = pyte.Screen(columns, rows), ""
        self._stream = pyte.Stream(self.screen)
        super().__init__(*args, socket=socket, columns=columns, rows=rows, **env)

    def shows(self, what: str, timeout_s: float = 30) -> list[str]:
        """The lines of the screen once this text is on it, in a frame that has come to its end."""
        deadline = time.monotonic() + timeout_s
        while self._fed.rfind(BEGINS) > self._fed.rfind(ENDS) or not any(what in line for line in self.screen.display):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"waited in vain for {what!r}:\n" + "\n".join(self.screen.display)
            if select.select([self.master], [], [], left_s)[0]:
                come = self._decode(os.read(self.master, 65536))
                self._fed += come
                self._stream.feed(come)
        return [line.rstrip() for line in self.screen.display]

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.master)


@pytest.fixture
def box(backend: FakeBackend) -> FakeBackend:
    """Two programs, one of which trains, with an hour of speeds."""
    backend.change("Pong", steps_per_s=512.0, mean_return=18.0, ckpt_age_s=61.0, memory_bytes=2 * 10**9, pid=4242)
    backend.add(program("Alien", "FATAL", why="exit code 78: bad config"))
    backend.journal = [Stamped(1, 0.0, NOW_S, "b" * 32, facts.LevelChosen("set", "light", 2))]
    told = {"env_steps": 1.0, "mean_return": 1.0}
    backend.rows = [
        Row(16.0 * n, NOW_S, ("Pong", "a"), (None,) * 3, {**told, "steps_per_s": float(n)}) for n in range(60)
    ]  # fmt: skip
    return backend


# --- on a terminal ---------------------------------------------------------------------------------------------------------


def test_programs_live(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api, columns=140) as top:
        lines = top.shows("▁▂▃▃▄▅▆▆▇█")
        assert "level light: 2 slots, 32 environments, batch 512" in lines[0]
        assert "1 of 3 train · 1 FATAL · 1 QUEUED" in lines[1]
        rows = [line.split()[0] for line in lines[4:7]]
        assert rows == ["Alien", "Pong", "Breakout"]  # what is broken first
        assert "exit code 78" in lines[4]
        assert {"RUNNING", "512.0", "18.0", "1m", "1s", "2GB"} <= {*lines[5].split()}
        box.change("Pong", steps_per_s=777.0)
        top.shows("777.0")
        top.type("q")
        assert top.end()[1] == 0


def test_keys(api: Path, box: FakeBackend) -> None:
    box.add(*(program(f"Game{n:02}", steps_per_s=float(n)) for n in range(30)))
    with Seen("top", socket=api, rows=16) as top:
        assert "1 to 11 of 33" in top.shows("of 33")[3]
        top.type("\x1b[Bj")
        top.shows("3 to 13 of 33")
        top.type("\x1b[F")
        top.shows("23 to 33 of 33")
        top.type("k")
        top.shows("22 to 32 of 33")
        top.type(">>")
        assert top.shows("sorted by STEPS/S")[4].startswith("Pong")
        top.type("r")
        top.shows("reversed")
        top.type("/game0")
        assert "1 to 10" not in "".join(top.shows("filter: game0_"))
        top.type("x\x7f\r")
        top.shows("only 'game0'")
        top.type("\x1b")
        top.shows("of 33")
        top.type("?")
        top.shows("scroll; page up")
        top.type("?q")
        assert top.end()[1] == 0


def test_a_terminal_that_changes_its_size(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api, columns=120) as top:
        assert "RETURN" in "".join(top.shows("exit code 78"))
        top.resize(40, 8)
        top.shows("q end · ? keys · / filter · sorted by S…")
        assert "RETURN" not in "".join(top.screen.display)
        top.resize(120, 24)
        top.shows("RETURN")


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_is_as_it_was_whatever_ends_it(api: Path, box: FakeBackend, number: signal.Signals) -> None:
    with Seen("top", socket=api) as top:
        before = None
        top.shows("Alien")
        before, during = top.modes(), top.modes()[3]
        assert not during & termios.ICANON
        os.killpg(top.process.pid, number)
        text_, code = top.end()
        assert code == (0 if number == signal.SIGINT else 128 + number)
        assert text_.endswith("\x1b[?25h\x1b[?1049l")
        assert before is not None


def test_its_modes_are_given_back(api: Path, box: FakeBackend) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [*CTL, "-s", f"unix://{api}", "top"], stdin=slave, stdout=slave, stderr=slave, env=environment(), start_new_session=True
    )  # fmt: skip
    while termios.tcgetattr(slave)[3] & termios.ICANON:
        select.select([master], [], [], 0.1)
    os.write(master, b"q")
    with contextlib.suppress(OSError):
        while process.poll() is None:
            if select.select([master], [], [], 0.1)[0]:
                os.read(master, 65536)
    assert termios.tcgetattr(slave) == before
    os.close(slave)
    os.close(master)


def test_it_ends_with_its_terminal(api: Path, box: FakeBackend) -> None:
    """SIGHUP is ignored, as below nohup: the hang-up itself must tell it."""
    master, slave = pty.openpty()
    shell = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *CTL, "-s", f"unix://{api}", "top"]
    process = subprocess.Popen(
        shell, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    os.close(slave)
    assert os.read(master, 1)
    os.close(master)
    assert process.wait(30) == READER_LEFT


def test_ctrl_z_and_back(api: Path, box: FakeBackend) -> None:
    with Seen("top", socket=api) as top:
        top.shows("Alien")
        top.screen.reset()
        os.killpg(top.process.pid, signal.SIGTSTP)
        top.shows("Alien")  # the whole frame anew; a group without a shell is not stopped (POSIX: it is orphaned)
        top.type("q")
        assert top.end()[1] == 0


class _Dear(Session):
    """Its page takes 20 ms of CPU."""

    def page(self, name: str, **query: Any) -> dict[str, Any]:
        ends_s = time.thread_time() + 0.02
        while time.thread_time() < ends_s:
            pass
        return {"programs": [], "daemon": daemon(), "wall_s": NOW_S}


def test_looks_that_cost_much_come_less_often() -> None:
    feed = Feed(_Dear(Options()), lambda: None)
    feed.frame_s = 0.005
    assert feed.period_s == refresh.SHORTEST_S
    feed.poll()
    assert feed.period_s >= (0.02 + 0.005) / 0.01, "at most 1 % of a core"


# --- elsewhere -------------------------------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_one_frame_is_printed(api: Path, box: FakeBackend) -> None:
    told = ctl("top", socket=api)
    assert told.returncode == 0
    assert "\x1b" not in told.stdout
    assert "exit code 78: bad config" in told.stdout
    assert ctl("top", "Pong", socket=api).stdout == "Error: top takes no names; / filters\n"


def test_no_daemon_at_all(tmp_path: Path) -> None:
    told = ctl("top", socket=tmp_path / "nobody")
    assert (told.stdout, told.returncode) == (f"unix://{tmp_path}/nobody no such file\n", 4)


def test_no_colour_where_none_is_wanted(api: Path, box: FakeBackend) -> None:
    with Terminal("top", socket=api, NO_COLOR="1") as top:
        seen = top.until("sorted by STATE")
    assert not re.findall(r"\x1b\[[\d;]*m", seen)


# --- frames ----------------------------------------------------------------------------------------------------------------


def found(*programs: Any, **header: Any) -> Answers:
    page = {"daemon": daemon(**header), "programs": list(programs), "wall_s": NOW_S, "now_s": 1.0, "worst_gap_s": None}
    return Answers(status=page, at_wall_s=NOW_S)


@pytest.mark.parametrize("columns", [1, 5, 20, 39, 80, 200])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    named = program("漢字" * 40, steps_per_s=1.0, why="x\u202ey\x1b[2J" * 20)
    for rows in (2, 5, 30):
        lines = frame(found(named, program("Pong")), Display(), columns, rows, PLAIN, NOW_S)
        assert max(text.width(line) for line in lines) <= columns


def test_hostile_names_are_spelled_out() -> None:
    lines = frame(found(program("a\x1b]0;b\x07", why="c\u202ed\ne")), Display(filter="\x1b"), None, None, PLAIN, NOW_S)
    assert not [char for line in lines for char in line if not char.isprintable()]


def test_more_programs_than_rows() -> None:
    programs = [program(f"Game{n:03}") for n in range(500)]
    lines = frame(found(*programs), Display(offset=10_000), 120, 30, PLAIN, NOW_S)
    assert len(lines) == 30
    assert any(line.startswith("Game499") for line in lines)


def test_nothing_yet_and_nothing_at_all() -> None:
    assert frame(Answers(), Display(), 80, 3, PLAIN, NOW_S)[0] == "asking the daemon ..."
    assert "no programs" in frame(found(), Display(), 80, 10, PLAIN, NOW_S)
    assert "no program has that text" in frame(found(program("Pong")), Display(filter="x y"), 80, 10, PLAIN, NOW_S)


def test_a_gpu_that_is_lost_and_one_that_works() -> None:
    gpu = {
        "index": 0, "name": "A100", "lost": "", "utilisation": 50.0, "total_bytes": 80e9, "free_bytes": 60e9, "temperature_c": 70.0,
        "power_w": 300.0, "reasons": ["hw_slowdown", "idle"], "processes": [[7, 10**9], [7, 10**9], [8, None]],
    }  # fmt: skip
    lost = {**gpu, "index": 1, "lost": "fell off the bus"}
    shown = found(program("Pong", pid=7), gpu={"error": "", "gpus": [gpu, lost]})
    lines = frame(shown, Display(), None, None, PLAIN, NOW_S)
    assert "GPU 0 A100  [#####     ] 50 %  20GB of 80GB  70 °C  300 W  clocks limited by hw_slowdown" in lines
    assert "GPU 1 A100: lost: fell off the bus" in lines
    assert chosen(shown, Display())[0]["gpu"] == 4 * 10**9
    told = frame(found(gpu={"error": "NVML hangs", "gpus": None}), Display(), None, None, PLAIN, NOW_S)
    assert "GPUs unknown: NVML hangs" in told


def test_what_is_wrong_stands_above() -> None:
    stale = frame(found(program("Pong")), Display(), None, None, PLAIN, NOW_S + 60)
    assert stale[0] == "the daemon answers, but its decision loop has not run for 1m: see maintail"
    journal = known_to(daemon()["journal"], error="no space left")
    assert "no space left" in "".join(frame(found(journal=journal), Display(), None, None, PLAIN, NOW_S))
    refused = {"errors": ["line 3: what"], "in_use": "", "by": "alice", "wall_s": NOW_S}
    assert "line 3: what" in "".join(frame(found(config=refused), Display(), None, None, PLAIN, NOW_S))


def test_unknown_sorts_last_and_is_a_dash() -> None:
    shown = found(program("A"), program("B", steps_per_s=0.0), program("C", steps_per_s=5.0))
    assert [row["name"] for row in chosen(shown, Display(sort="STEPS/S"))] == ["C", "B", "A"]
    assert frame(shown, Display(sort="NAME"), None, None, PLAIN, NOW_S)[-3].split()[2] == "-"


def test_keys_are_told_apart() -> None:
    assert keys("\x1b[A\x1bOBj\x1b[5~\x1b[24~\x1b[1;5Cq\x1b\x00é") == ["up", "down", "j", "page up", "q", "escape", "é"]
    assert pressed(Display(), "x", 5, 10) == Display()
    assert pressed(Display(typing="a", filter="a"), "escape", 5, 10) == Display()
    assert pressed(Display(offset=3), "end", 5, 10).offset == 5
    assert pressed(Display(sort="STATE"), "left", 5, 10).sort == "RESTARTS"


def test_a_time_without_points_is_a_gap() -> None:
    """The page has no points for it, and the small curve closed the gap: ten minutes looked like the whole hour."""
    page = {"since_s": 1000.0, "until_s": 4600.0, "period_s": 60.0}
    at_s = [960.0 + 60.0 * minute for minute in range(60) if not 18 <= minute < 36]
    found = over_window(page, at_s, [2.0] * len(at_s))
    assert spark(found, 10) == "▄▄▄  ▄▄▄▄▄"
    assert spark(over_window(page, at_s[-5:], [1.0, 2.0, None, 4.0, 4.0]), 10) == " " * 9 + "▄"
    assert spark(over_window(page | {"until_s": 1100.0, "period_s": 10.0}, [1005.0, 1025.0], [1.0, 3.0]), 10) == "▁█    "
    assert over_window(page | {"until_s": 1000.0}, [1000.0], [1.0]) == [None], "a journal that has just begun"


def test_sparks() -> None:
    assert spark([1.0, 2.0, None, 4.0], 4) == "▁▃ █"
    assert spark([], 4) == spark([None], 4) == ""
    assert spark([5.0, 5.0], 4) == "▄▄"
    assert len(spark([float(n) for n in range(100)], 10)) == 10
    assert (bar(0.5, 4), bar(None, 4), bar(7.0, 4)) == ("[##  ]", "[    ]", "[####]")


def test_cores_are_those_of_the_same_process() -> None:
    before = {"Pong": (7, 10.0, 100.0), "Alien": (8, 1.0, 100.0)}
    assert _cores(before, {"Pong": (7, 13.0, 102.0), "Alien": (9, 1.0, 102.0), "New": (1, 1.0, 1.0)}) == {"Pong": 1.5}
