"""What happened: history, explain, reboots, journal; from a live daemon and from the journal of a dead one."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_backend import FakeBackend, daemon
from running import Terminal, ctl, hung_up, too_wide
from serving import served

from supervisor.adapters import singleton
from supervisor.adapters.host.boot import AliveMark, AliveWriter
from supervisor.adapters.journal.sqlite import Journal
from supervisor.ctl.outcome import READER_LEFT
from supervisor.model import facts
from supervisor.model.facts import Stamped

BOOT = "b" * 32
T1, T2, T3 = "1" * 32, "2" * 32, "3" * 32

NIGHT: tuple[facts.Fact, ...] = (
    facts.DaemonStarted("took over", 7, "0.1.0", clean=True, salt="s"),
    facts.LevelChosen("the config's", "light", 2),
    facts.ProgramConfigured("new in the config", "Pong", "d"),
    facts.ProgramConfigured("new in the config", "Breakout", "d"),
    facts.SpawnIntended("a slot is free", "Pong", T1, 1, "d", "light"),
    facts.Spawned("the process runs", "Pong", T1, 4242, 1, 4241, 1),
    facts.BecameReady("first sign of training after 12s", "Pong", T1, 12.0),
    facts.Checkpointed("step 1000", "Pong", T1, 1000, 0.004, 0.1),
    facts.Stalled("no progress for 32s", "Pong", T1, "hang", 32.0, 30.0),
    facts.Examined("examined before healing", "Pong", T1, {"stacks": "Thread 0x1\n  File x, line 3\x1b[2J", "wchan": "futex"}),
    facts.StopIntended("healing a stall", "Pong", T1, "stall", "extralife", 20.0),
    facts.Exited(
        "ended after a stall (hang), signal 9", "Pong", T1, "stalled", None, 9, 1500, 1000, ("sleep (77)",),
        ("step 1500", "loss \x1b]0;x\x07"), counted=True,
    ),
    facts.BackedOff("first death: 1s", "Pong", 100.0, 1.0, slow=False),
    facts.SpawnIntended("its time has come", "Pong", T2, 2, "d", "light"),
    facts.Spawned("the process runs", "Pong", T2, 4300, 2, 4299, 2),
    facts.Resumed("resumed from step 1000", "Pong", T2, 1000, 500),
    facts.BecameReady("first sign of training after 9s", "Pong", T2, 9.0),
    facts.StopIntended("stopped by ada", "Pong", T2, "operator", "ada", 20.0),
    facts.Exited("stopped on request (operator), exit code 75", "Pong", T2, "stopped", 75, None, 1800, 1800),
    facts.StayedDown("stopped by ada", "Pong"),
    facts.HostRebooted("the boot id changed", "a" * 32, BOOT, "unclean", "boot id", 190.0, 18_720.0, "light", ("Pong",), {"Pong": 9}),
)  # fmt: skip


def stamped() -> list[Stamped]:
    begin_s = time.time() - 600
    return [Stamped(n, float(n), begin_s + n, BOOT, fact) for n, fact in enumerate(NIGHT, 1)]


@pytest.fixture
def night(backend: FakeBackend) -> FakeBackend:
    backend.journal = stamped()
    backend.change("Pong", phase="STOPPED", pid=None, why="stopped by ada", ckpt_step=1800, restarts=1)
    return backend


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The state directory that a killed daemon left behind."""
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    journal = Journal(state_dir / "journal.sqlite")
    for item in stamped():
        journal.append([item.fact], at_s=item.at_s, wall_s=item.wall_s, boot_id=item.boot_id)
    journal.close()
    (state_dir / "programs" / "Pong").mkdir(parents=True)
    (state_dir / "programs" / "Pong" / "stdout.log").write_bytes(b"the last words\n")
    return state_dir


# --- history -------------------------------------------------------------------------------------------------------------


# --- explain -------------------------------------------------------------------------------------------------------------


def test_explain_shows_the_incident_with_its_evidence(api: Path, night: FakeBackend) -> None:
    told = ctl("explain", "Pong", socket=api).stdout
    assert told.splitlines()[0].startswith("Pong: STOPPED")
    assert "why         stopped by ada" in told
    assert "incident 2 of 2" in told, "leaving as asked is no incident"
    for wanted in (
        "no progress for 32s", "stall hang, age 32s, limit 30s", "| Thread 0x1", "wchan: futex", "signal 9",
        "leftovers: sleep (77)", "| step 1500", "first death: 1s", "resumed from step 1000", "lost steps 500",
    ):  # fmt: skip
        assert wanted in told, wanted
    assert "\x1b" not in told
    assert "\\x1b[2J" in told
    assert "stopped by ada" not in told.split("incident 2 of 2")[1]


def test_long_evidence_is_cut_for_people_only(api: Path, night: FakeBackend) -> None:
    stacks = "\n".join(f"line {n}" for n in range(500))
    night.journal = [
        Stamped(1, 1.0, 1.0, BOOT, facts.Stalled("s", "Pong", T1, "hang", 1.0, 1.0)),
        Stamped(2, 2.0, 2.0, BOOT, facts.Examined("e", "Pong", T1, {"stacks": stacks})),
    ]
    assert "440 more lines, see --json" in ctl("explain", "Pong", socket=api).stdout
    assert "line 499" in ctl("explain", "Pong", "--json", socket=api).stdout


def test_of_a_reboot_only_what_befell_the_program_is_reported(api: Path, night: FakeBackend) -> None:
    reboot = facts.HostRebooted("again", "b" * 32, "c" * 32, "unclean", "x", None, None, "light", ("Breakout", "Pong"), {})
    ends = [facts.Exited("ended by the reboot", name, T3, "reboot", None, None, 1, 1) for name in ("Breakout", "Pong")]
    told = [*night.journal, *(Stamped(30 + n, 30.0, time.time(), BOOT, fact) for n, fact in enumerate([reboot, *ends]))]
    night.journal = told
    newest = ctl("explain", "Pong", "-n", "1", socket=api).stdout
    assert newest.count("ended by the reboot") == 1
    assert "incident 3 of 3" in newest
    assert "no progress" not in newest


# --- history -f ----------------------------------------------------------------------------------------------------------


def happens(night: FakeBackend, fact: facts.Fact) -> None:
    last = night.journal[-1]
    night.journal = [*night.journal, Stamped(last.seq + 1, last.at_s + 1, last.wall_s + 1, "c" * 32, fact)]


@pytest.mark.parametrize("words", ["explain Pong", "reboots", "history", "status"])
def test_every_page_knows_the_width_of_its_terminal(api: Path, night: FakeBackend, words: str) -> None:
    assert too_wide(*words.split(), socket=api) == []


def test_history_of_a_time(api: Path, night: FakeBackend) -> None:
    begin_s = night.journal[0].wall_s - 1.0  # the facts are a second apart
    moment = datetime.fromtimestamp(begin_s + 9.5, UTC).isoformat()

    def seqs(*options: str) -> list[int]:
        return [row["seq"] for row in json.loads(ctl("history", "--all", "--json", *options, socket=api).stdout)["facts"]]

    assert seqs("--since", moment) == list(range(10, len(NIGHT) + 1))
    assert seqs("--until", moment) == list(range(1, 10))
    assert seqs("--since", moment, "-n", "2") == [len(NIGHT) - 1, len(NIGHT)]
    assert seqs("--since", "1h") == seqs("--since", "all") == list(range(1, len(NIGHT) + 1))
    assert seqs("--since", "1s") == []


@pytest.mark.parametrize("verb", ["status", "explain", "history", "tail"])
def test_a_name_with_a_typing_error_is_answered_with_the_nearest_one(api: Path, night: FakeBackend, verb: str) -> None:
    assert ctl(verb, "Pnog", socket=api).stderr == "did you mean Pong?\n"


def test_history_follows_what_its_filters_let_through(api: Path, night: FakeBackend) -> None:
    with Terminal("history", "Pong", "-n", "1", "-f", socket=api, columns=200) as terminal:
        terminal.until("\n")
        happens(night, facts.Wanted("of another", "Breakout", run=True, by="alice"))
        happens(night, facts.GapLearned("routine", "Pong", "training", 2.0))
        happens(night, facts.Wanted("of this one", "Pong", run=True, by="alice"))
        seen = terminal.until("of this one")
        assert "of another" not in seen
        assert "routine" not in seen
        terminal.interrupt()
        assert terminal.end()[1] == 0


def test_history_follows_from_now_and_as_json(api: Path, night: FakeBackend) -> None:
    with Terminal("history", "-n", "0", "-f", "--json", socket=api, columns=200) as terminal:
        for _ in range(30):  # what happens before its first look is the past
            happens(night, facts.Wanted("now", "Pong", run=True, by="alice"))
            with contextlib.suppress(TimeoutError):
                assert json.loads(terminal.until("\n", timeout_s=1))["why"] == "now"
                break


def test_history_follows_over_a_restart_of_the_daemon(socket_path: Path, night: FakeBackend) -> None:
    with served(night, socket_path):
        terminal = Terminal("history", "-n", "1", "-f", socket=socket_path, columns=200)
        terminal.until("\n")
    with terminal:
        assert "waiting" in terminal.until("<==\r\n")
        happens(night, facts.Wanted("after the restart", "Pong", run=True, by="alice"))
        with served(night, socket_path):
            terminal.until("after the restart")


def test_a_follower_ends_with_its_terminal_though_it_has_nothing_to_write(api: Path, night: FakeBackend) -> None:
    assert hung_up(api, "history", "-n", "1", "-f") == READER_LEFT


def test_more_facts_than_one_answer_holds(api: Path, night: FakeBackend) -> None:
    night.journal = [Stamped(n, float(n), 1e9, BOOT, facts.ClockStepped(f"step {n}", 1.0)) for n in range(1, 13_001)]
    lines = ctl("history", "-n", "12000", socket=api).stdout.splitlines()
    assert len(lines) == 12_000
    assert lines[0].endswith("step 1001")
    assert lines[-1].endswith("step 13000")


# --- reboots, journal ----------------------------------------------------------------------------------------------------


def test_a_pattern_of_reboots_and_none_at_all(api: Path, night: FakeBackend) -> None:
    night.header = daemon(reboot_pattern="3 in 40m, all at heavy")
    assert ctl("reboots", socket=api).stdout.splitlines()[-1] == "pattern: 3 in 40m, all at heavy"
    night.journal = []
    assert ctl("reboots", socket=api).stdout == "no reboot so far\n"


def test_a_long_journal_comes_page_by_page(api: Path, night: FakeBackend) -> None:
    night.journal = [Stamped(n, float(n), 1e9, BOOT, facts.ClockStepped("w", 1.0)) for n in range(1, 10_002)]
    assert len(ctl("journal", socket=api).stdout.splitlines()) == 10_001


# --- the daemon is dead ----------------------------------------------------------------------------------------------------


def dead_ctl(state_dir: Path, *args: str) -> tuple[str, str, int]:
    told = ctl("--state-dir", str(state_dir), *args, EXTRALIFE_RUNTIME_DIR=str(state_dir / "none"))
    return told.stdout, told.stderr, told.returncode


@pytest.mark.parametrize("args", [("plot", "Pong"), ("export",), ("report",)])
@pytest.mark.needs("recorder")
def test_a_recording_that_cannot_be_read_is_one_sentence(dead: Path, args: tuple[str, ...]) -> None:
    recording = sqlite3.connect(dead / "recording.sqlite")
    recording.execute("CREATE TABLE programs_10 (something_else)")
    recording.close()
    out, err, code = dead_ctl(dead, *args)
    assert code == 1
    assert "Traceback" not in err
    assert out.splitlines()[-1].startswith("ERROR: this cannot be read now: ")


def test_a_daemon_whose_socket_is_gone_is_not_called_dead(dead: Path) -> None:
    name = singleton.claim(str(dead))
    assert name is not None
    with contextlib.closing(name):
        line = dead_ctl(dead, "status")[0].splitlines()[0]
    assert line.startswith(
        f"daemon runs as pid {os.getpid()} and cannot be reached (unix://{dead}/none/supervisor.sock no such file)"
    )
    assert f"kill -HUP {os.getpid()} makes its socket again" in line


def test_the_alive_mark_is_the_newest_sign_of_life(dead: Path) -> None:
    mark = AliveMark(BOOT, 1, 1.0, time.time() - 125, 1.0)
    AliveWriter(dead / "alive", lambda: mark, 5.0, print).write()
    for args in (("status",), ("history",)):
        assert ", 2m " in dead_ctl(dead, *args)[0].splitlines()[0]


def test_logs_outlive_their_daemon(dead: Path) -> None:
    out, err, code = dead_ctl(dead, "tail", "Pong")
    assert (out, code) == ("the last words\n", 0)
    assert err.startswith("daemon is not running")
    assert dead_ctl(dead, "tail", "Pong", "stderr")[0] == "Pong: ERROR (no log file)\n"
    assert dead_ctl(dead, "tail", "../../../etc")[0] == "../../../etc: ERROR (no log file)\n"


def test_a_damaged_journal_is_one_sentence(dead: Path) -> None:
    (dead / "journal.sqlite").write_bytes(b"not a journal" * 1000)
    for name in ("journal.sqlite-wal", "journal.sqlite-shm"):
        (dead / name).unlink(missing_ok=True)
    out, err, code = dead_ctl(dead, "status")
    assert "the journal cannot be read" in out
    assert "Traceback" not in out + err
    assert code == 4


def test_a_live_daemon_is_never_called_dead(api: Path, backend: FakeBackend) -> None:
    backend.header = daemon(state="stopping")
    out = ctl("status", socket=api).stdout
    assert "not running" not in out
    assert "(stopping)" in out
