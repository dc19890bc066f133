"""`extralifectl status`: what it shows, how it fits, what it answers."""

import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest
from fake_backend import daemon, journal, program, reboot
from running import CTL, ROOT, Terminal, ctl, environment

from supervisor.ctl import text
from supervisor.ctl.status_page import choose
from supervisor.model.state import Damage

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def busy(backend):
    now_s = time.time()
    backend.header = daemon(last_reboot=reboot(now_s - 50531))
    backend.add(
        program(
            "Pong", steps=12_345_678, target=50_000_000, target_kind="env_steps", steps_per_s=1234.5, mean_return=-18.25,
            episodes=1234, ckpt_age_s=42.0, eta_s=11_000.0, worker_phase="training", why="", restarts=2,
        ),
        program("Qbert", "BACKOFF", retry_in_s=42.0, slow_retry=True, restarts=7, why="exit code 1: \x1b[31mbad", since_wall_s=now_s),
        program("Enduro", "STARTING", worker_phase="importing", why="spawned", restarts=None),
    )  # fmt: skip
    return backend


def row(lines, name):
    return re.split(r"\s{2,}", next(line for line in lines.splitlines() if line.startswith(name)))


def ages(before_s, since_wall_s):
    """How a page made between `before_s` and now may tell the age of something: the client looks at its own clock."""
    lasted_s = time.time() - before_s
    return {text.duration(before_s - since_wall_s + more_s) for more_s in range(int(lasted_s) + 2)}


def test_a_pattern_of_reboots_stands_on_a_line_of_its_own(api, busy):
    busy.header = daemon(reboot_pattern="3 in 40m, all at heavy")
    assert "reboots form a pattern: 3 in 40m, all at heavy" in ctl("status", socket=api).stdout.splitlines()


def test_an_open_breaker_is_not_healthy(api, backend):
    """Eight deaths in an hour, the next try in half an hour: a check that reads the exit code has to hear of it."""
    backend.add(program("Pong"), program("Qbert", "BACKOFF", retry_in_s=4.0))
    assert ctl("status", socket=api).returncode == 0, "it starts again within seconds"
    backend.add(program("Qbert", "BACKOFF", retry_in_s=1700.0, slow_retry=True))
    assert ctl("status", socket=api).returncode == 3
    assert ctl("status", "Qbert", socket=api).returncode == 3
    assert ctl("status", "Pong", socket=api).returncode == 0
    backend.add(program("Qbert", "RUNNING", slow_retry=True))
    assert ctl("status", socket=api).returncode == 0, "the trial runs"


def test_another_box_is_said_for_a_day(api, busy):
    former = {"hostname": "alpha", "since_wall_s": 1.0, "until_wall_s": 2.0, "reboots": 3}
    told = "(before: alpha), with a new record of levels and reboots"
    for age_s, former_boxes, shown in ((3600.0, [former], True), (90_000.0, [former], False), (3600.0, [], False)):
        busy.header = daemon(box={"hostname": "beta", "since_wall_s": time.time() - age_s, "former": former_boxes})
        assert (told in ctl("status", socket=api).stdout) is shown


def test_scripts_find_supervisors_words(api, busy):
    """The pattern that scrapers of Supervisor use, on the row of a named program: no header, no titles."""
    told = ctl("status", "Pong", socket=api).stdout
    assert re.fullmatch(r"Pong\s+RUNNING\s+pid (\d+), uptime (\d+:\d\d:\d\d).*\n", told)
    assert told.endswith(
        ", steps/s 1.23k, steps 12.3M/50M, episodes 1.23k, return -18.2, checkpoint age 42s, restarts 2, "
        "next done in 3h 3m, why training\n"
    )
    assert "steps" not in ctl("status", "Enduro", socket=api).stdout, "what is not known has no label"


def test_a_narrow_terminal_first_omits_what_nobody_knows(api, busy):
    for name in ("Pong", "Breakout"):
        busy.change(name, ckpt_age_s=None, episodes=7, eta_s=None)
    for wanted, columns in (({"CKPT", "NEXT", "EPISODES"}, 250), ({"EPISODES"}, 104)):
        with Terminal("status", "Pong", "Breakout", socket=api, columns=columns) as terminal:
            titles = ANSI.sub("", terminal.end()[0]).splitlines()[0].split()
        assert {"CKPT", "NEXT", "EPISODES"} & set(titles) == wanted


@pytest.mark.parametrize(
    ("phases", "names", "wanted"),
    [
        (("RUNNING", "QUEUED"), (), 0),
        (("STARTING", "BACKOFF"), (), 0),
        (("STOPPING", "RUNNING"), (), 0),
        (("RUNNING", "STOPPED"), (), 3),
        (("RUNNING", "DONE"), (), 3),
        (("RUNNING", "FATAL"), (), 3),
        (("RUNNING", "FATAL"), ("a",), 0),
        (("RUNNING", "FATAL"), ("b:b",), 3),
        (("RUNNING", "RUNNING"), ("nobody",), 4),
        (("RUNNING", "STOPPED"), ("nobody", "b:*"), 3),
        (("RUNNING", "STOPPED"), ("all",), 3),
    ],
)
def test_exit_codes_are_supervisors(api, backend, phases, names, wanted):
    backend.programs = {}
    backend.add(program("a", phases[0]), program("b", phases[1]))
    assert ctl("status", *names, socket=api).returncode == wanted


def test_no_programs(api, backend):
    backend.programs = {}
    told = ctl("status", socket=api)
    assert "no programs" in told.stdout
    assert told.returncode == 0


def test_a_daemon_that_decides_nothing_is_said_so(api, busy):
    before_s = time.time()
    busy.wall_s = before_s - 65
    told = ctl("status", socket=api).stdout
    assert told.startswith(
        tuple(f"the daemon answers, but its decision loop has not run for {age}" for age in ages(before_s, busy.wall_s))
    )


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_it_fits_every_terminal_and_the_numbers_of_a_training_stay_longest(api, busy, columns):
    busy.change("Pong", why="a long reason, " * 20)
    busy.change("Breakout", trouble="unsaved", why="training, but cannot save: disk full")
    with Terminal("status", socket=api, columns=columns) as terminal:
        out, code = terminal.end()
    lines = ANSI.sub("", out).replace("\r", "").splitlines()
    assert code == 3, "one of them is in slow retry"
    assert max(map(text.width, lines)) <= columns
    pong = next(line for line in lines if line.startswith("Pong "))
    for cell, least in (
        ("RUNNING", 40),
        ("12.3M/50M", 40),
        ("-18.2", 60),
        ("1.23k", 60),
        ("done in 3h 3m", 80),
        ("  42s", 80),
    ):
        assert cell in pong or columns < least, cell
    if columns <= 80:  # the column WHY has left: what is wrong stands below its program
        below = {lines[place - 1].split()[0]: line for place, line in enumerate(lines) if line.startswith("    ")}
        told = {"Qbert": "    exit code 1: \\x1b[31mbad", "Enduro": "    importing · spawned"}
        assert {name: below[name] for name in told} == told
        assert below["Breakout"].startswith("    training, but cannot save: disk")
        assert "Pong" not in below
    else:
        assert pong.endswith("…")


def test_a_terminal_shows_first_what_needs_a_look_and_cuts_long_names_in_their_middle(api, busy):
    named = [f"sweep-of-pong-with-a-large-network-lr-{rate}" for rate in ("1e-4", "3e-4")]
    busy.add(
        program(named[0]), program(named[1], "FATAL", why="exit code 78"), program("Alien", trouble="stalled", why="stalled")
    )
    with Terminal("status", socket=api, columns=80) as terminal:
        lines = ANSI.sub("", terminal.end()[0]).replace("\r", "").splitlines()
    table = [line.split()[0] for line in lines if re.search("FATAL|BACKOFF|STARTING|RUNNING", line)]
    short = ["sweep-of-pon…twork-lr-1e-4", "sweep-of-pon…twork-lr-3e-4"]
    assert table == [short[1], "Alien", "Qbert", "Enduro", "Pong", short[0]], lines
    assert [row(ctl("status", socket=api).stdout, name)[0] for name in named] == named, "a script reads whole names"


def test_wide_cuts_nothing(api, busy):
    busy.change("Pong", why="a long reason, " * 20 + "the end")
    with Terminal("status", "--wide", socket=api, columns=60) as terminal:
        assert "the end" in terminal.end()[0]


def test_colours_only_where_they_are_wanted(api, busy):
    with Terminal("status", socket=api) as terminal:
        assert "\x1b[32mRUNNING" in terminal.end()[0]
    with Terminal("status", socket=api, NO_COLOR="1") as terminal:
        assert "\x1b" not in terminal.end()[0]
    with Terminal("status", socket=api, TERM="dumb") as terminal:
        assert "\x1b" not in terminal.end()[0]


def test_watch_redraws_in_place_until_ctrl_c(api, busy):
    with Terminal("status", "Pong", "nobody", "--watch", "1", socket=api, columns=150) as terminal:
        first = terminal.until("q end")
        assert "RUNNING" in first
        assert "Breakout" not in first
        assert "nobody: ERROR (no such process)" in first
        busy.change("Pong", phase="FATAL", pid=None, why="gave up")
        terminal.until("gave up")
        terminal.interrupt()
        rest, code = terminal.end()
    assert "\x1b[?25h" in rest, "the cursor is back"
    assert code == 0


def test_watch_without_a_terminal_prints_page_after_page(api, busy):
    with subprocess.Popen(
        [*CTL, "-s", f"unix://{api}", "status", "--watch", "1"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert sum(line.startswith("Pong ") for line in lines) >= 1
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("module", ["supervisor.ctl.actions", "supervisor.ctl.session"])
def test_ctrl_c_while_it_is_loaded_is_no_traceback(module):
    probe = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from supervisor.ctl.__main__ import main\nsys.argv = ['extralifectl', 'history']\nsys.exit(main())"
    )
    told = subprocess.run([sys.executable, "-S", "-c", probe], capture_output=True, text=True, check=False, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "")


# --- pieces ----------------------------------------------------------------------------------------------------------------


def test_wide_characters_are_counted_as_they_are_shown():
    assert text.width("日本") == 4
    assert text.width("e\u0301") == 1
    assert text.clip("日本語です", 5) == "日本…"
    assert text.clip("ab", 2) == "ab"
    assert text.clip("abc", 0) == ""
    assert text.pad("日", 4) == "日  "
    assert text.pad("7", 3, right=True) == "  7"


def test_named_programs_come_in_the_order_asked():
    views = [{"name": name} for name in "abc"]
    assert choose(views, ["c", "a:a", "x", "c:*"]) == ([{"name": "c"}, {"name": "a"}], ["x"])


def test_a_record_that_cannot_be_written_is_said_before_anything_else(api, busy):
    error = "database or disk is full: /s/journal.sqlite"
    before_s = time.time()
    busy.header = daemon(journal=journal(error=error, error_since_wall_s=before_s - 125.0))
    assert ctl("status", socket=api).stdout.splitlines()[0] in {
        f"the journal has not been writable for {age} ({error}): workers train on; "
        "nothing else starts until it is writable again"
        for age in ages(before_s, before_s - 125.0)
    }


@pytest.mark.parametrize(("lost", "said"), [(2, "2 facts lost"), (None, "an unknown number of facts lost")])
def test_a_damaged_journal_is_shown_for_a_day_and_counts_are_at_least(api, busy, lost, said):
    before_s = time.time()
    damage = Damage(before_s - 180.0, "row 42", "/s/journal.sqlite.damaged-17", 98, lost)
    busy.header = daemon(journal=journal(damage=asdict(damage), gaps=1))
    lines = ctl("status", socket=api).stdout.splitlines()
    assert lines[0] in {
        f"the journal was damaged {age} ago: {said}, 98 kept; the damaged file is /s/journal.sqlite.damaged-17"
        for age in ages(before_s, damage.wall_s)
    }
    assert "at least 3 reboots in 24h" in lines[1]
    busy.header = daemon(journal=journal(damage=asdict(replace(damage, wall_s=time.time() - 90_000.0)), gaps=1))
    assert "damaged" not in ctl("status", socket=api).stdout
