"""`accounts` as people run it: a page that adds up, JSON, windows, many programs, and no daemon at all."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import fakes
import pytest
from fake_backend import FakeBackend, program
from running import Terminal, ctl

from supervisor.adapters.host.boot import AliveMark, AliveWriter
from supervisor.adapters.journal.sqlite import Journal
from supervisor.ctl import text
from supervisor.ctl.accounts import since_query, until_query
from supervisor.ctl.outcome import Failed
from supervisor.model import facts
from supervisor.model.facts import Fact, Stamped
from supervisor.reports.ledger import fold_accounts

TOKEN, AGAIN = "1" * 32, "2" * 32
DAY: tuple[tuple[float, Fact], ...] = (
    (0, facts.DaemonStarted("first", 7, "0.1.0", clean=True, salt="s")),
    (0, facts.LevelChosen("the config's", "light", 2)),
    (0, facts.ProgramConfigured("new", "Pong", "d")),
    (0, facts.ProgramConfigured("new", "Q\x1b[2Jbert", "d", autostart=False)),
    (0, facts.SpawnIntended("free", "Pong", TOKEN, 1, "d", "light")),
    (30, facts.BecameReady("trains", "Pong", TOKEN, 30.0)),
    (30, facts.Resumed("begins", "Pong", TOKEN, 0, None)),
    (3000, facts.Checkpointed("c", "Pong", TOKEN, 29_700, 0.004, 0.1)),
    (3600, facts.Stalled("no progress for 40 s", "Pong", TOKEN, "hang", 40.0, 30.0)),
    (3602, facts.Exited("stalled", "Pong", TOKEN, "stalled", None, 9, 35_300, 29_700, counted=True)),
    (3602, facts.BackedOff("at once", "Pong", 3602.0, 0.0, slow=False)),
    (3602, facts.SpawnIntended("now", "Pong", AGAIN, 2, "d", "light")),
    (3610, facts.Resumed("resumed", "Pong", AGAIN, 29_700, 5600)),
    (3612, facts.BecameReady("trains", "Pong", AGAIN, 10.0)),
    (7200, facts.OperatorAsked("looked", "status", (), 0)),
)


def day() -> list[Stamped]:
    begin_s = time.time() - 7200
    return [Stamped(number, float(at_s), begin_s + at_s, "b" * 32, fact) for number, (at_s, fact) in enumerate(DAY, 1)]


@pytest.fixture
def shown(backend: FakeBackend) -> FakeBackend:
    backend.journal = day()
    return backend


@pytest.mark.parametrize("verb", ["accounts", "cost", "history"])
def test_a_terminal_of_80_columns_loses_no_number(api: Path, shown: FakeBackend, verb: str) -> None:
    shown.journal.append(
        replace(day()[-1], seq=99, fact=facts.OperatorAsked("looked at " + "every " * 40 + "7", "status", (), 0))
    )
    with Terminal(verb, socket=api, columns=80) as terminal:
        seen = re.sub(r"\x1b\[[0-9;]*m|\r", "", terminal.end()[0])
    assert max(map(text.width, seen.splitlines())) <= 80
    left = {"AVAILABLE", "MTTD"}
    numbers = {word for word in ctl(verb, socket=api).stdout.split() if word in left or re.search(r"\d", word)}
    assert left & numbers if verb == "accounts" else numbers
    assert not {word for word in numbers - {*seen.split()} - left if not re.fullmatch(r"[0-9.]+(%|s)", word)}


def test_a_group_is_its_programs(api: Path, shown: FakeBackend) -> None:
    shown.add(program("Pong", group="Atari"), program("Elsewhere", group="Other"))
    assert ctl("accounts", "Atari:*", socket=api).stdout == ctl("accounts", "Pong", socket=api).stdout
    nobody = ctl("accounts", "Nothing:*", socket=api)
    assert (nobody.returncode, nobody.stdout) == (1, "Nothing:*: ERROR (no such process)\n")


def test_lost_time_that_nobody_knows_is_shown_as_unknown(api: Path, backend: FakeBackend) -> None:
    facts_ = [fact for _, fact in DAY if not isinstance(fact, facts.Resumed | facts.Checkpointed)]
    facts_[10:10] = [facts.Resumed("resumed", "Pong", AGAIN, 29_700, None)]
    unsaid = [Stamped(n, 60.0 * n, time.time() - 7200 + 60 * n, "b" * 32, fact) for n, fact in enumerate(facts_, 1)]
    exited = next(n for n, each in enumerate(unsaid) if isinstance(each.fact, facts.Exited))
    unsaid[exited] = replace(unsaid[exited], fact=replace(unsaid[exited].fact, steps=None))
    backend.journal = unsaid
    done = ctl("accounts", "Pong", socket=api)
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["LOST"][:2] == ["LOST", "+1?"], done.stdout
    assert "the lost time of 1 resume is unknown" in ctl("cost", socket=api).stdout


def test_while_earlier_days_are_not_counted_yet_the_answer_says_so(api, shown, monkeypatch) -> None:
    monkeypatch.setattr(fakes, "fold_accounts", lambda rows: replace(fold_accounts(rows), counted_s=3600.0))
    done = ctl("accounts", "--json", socket=api)
    assert done.stderr.startswith("earlier days are not counted yet")
    assert json.loads(done.stdout)["since_s"] == 3600.0


def test_json_and_windows(api: Path, shown: FakeBackend) -> None:
    hour = json.loads(ctl("accounts", "--since", "1h", "--json", socket=api).stdout)
    assert hour["until_s"] - hour["since_s"] == 3600.0
    assert hour["total"]["seconds"]["RESTARTING"] == 12.0, "the stall was before"
    assert hour["total"]["wall_s"] == 3600.0, "nothing waits for the second slot"
    first = json.loads(ctl("accounts", "--until", "1h", "--json", socket=api).stdout)
    assert first["until_s"] == hour["since_s"]
    assert (
        "--until takes a span (90s, 1h30m), a time or now, not 'boot'"
        in ctl("accounts", "--until", "boot", socket=api).stdout
    )
    assert until_query(None) == until_query("now") is None
    boot = json.loads(ctl("accounts", "--since", "boot", "--json", socket=api).stdout)
    assert boot["since_s"] == 0.0
    half_s = shown.journal[0].wall_s + 1800
    said = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(half_s))
    since = json.loads(ctl("accounts", "Pong", "--json", f"--since={said}", socket=api).stdout)
    assert since["since_s"] == pytest.approx(1800.0, abs=1.0)
    assert [sheet["name"] for sheet in since["programs"]] == ["Pong"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("all", "all"),
        ("boot", "boot"),
        ("90s", "90s"),
        ("1h30m", "5400s"),
        ("2d", "172800s"),
        ("1.5h", "5400s"),
        ("1970-01-02T00:00:00+00:00", "@86400.000"),
    ],
)
def test_words_for_windows(said: str, asked: str) -> None:
    assert since_query(said) == asked


@pytest.mark.parametrize("said", ["yesterday", "", "1", "h", "-1h", "1h 30m", "9" * 30 + "-01-01"])
def test_words_that_are_no_window(said: str) -> None:
    with pytest.raises(Failed) as failed:
        since_query(said)
    assert failed.value.code == 2
    assert "--since takes a span" in str(failed.value)


def test_an_empty_journal(api: Path, backend: FakeBackend) -> None:
    done = ctl("accounts", socket=api)
    assert done.returncode == 0, done.stderr
    assert "0.00 slot-hours booked of 0.00 slot-hours paid, - of them training" in done.stdout


def test_without_a_daemon_the_journal_tells_them(tmp_path: Path) -> None:
    """From the last sign of life on nobody has looked: that time is the daemon's, not the worker's."""
    state = tmp_path / "state"
    state.mkdir()
    journal = Journal(state / "journal.sqlite")
    for stamped in day():
        journal.append([stamped.fact], at_s=stamped.at_s, wall_s=stamped.wall_s, boot_id=stamped.boot_id)
    journal.close()
    (tmp_path / "extralife.toml").write_text(f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{tmp_path / "run"}"\n')
    call = ("-c", str(tmp_path / "extralife.toml"), "accounts", "--json")
    done = ctl(*call)
    assert done.returncode == 0, done.stderr
    assert "daemon is not running" in done.stderr
    found = json.loads(done.stdout)
    assert found["total"]["seconds"]["DOWN"] < 60.0
    assert sum(found["total"]["seconds"].values()) == pytest.approx(found["total"]["wall_s"])
    mark = AliveMark("b" * 32, 1, 7260.0, time.time() - 600.0, 1.0)
    AliveWriter(state / "alive", lambda: mark, 1.0, print).write()
    later = json.loads(ctl(*call, "--since", "20m").stdout)
    assert later["until_s"] == pytest.approx(7860.0, abs=30.0)
    assert later["programs"][0]["seconds"]["DOWN"] == pytest.approx(600.0, abs=30.0)
    assert later["programs"][0]["wall_s"] == pytest.approx(1200.0)
