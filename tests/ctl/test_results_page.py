"""`results` as people run it: the table, the CSV, JSON, and no daemon at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from fake_backend import FakeBackend
from running import ctl

from supervisor.adapters.journal.sqlite import Journal
from supervisor.ctl import results as page
from supervisor.model import facts
from supervisor.reports.sources import NewestResult
from workers import results
from workers.results import Row


@pytest.fixture
def played(backend: FakeBackend) -> FakeBackend:
    backend.tested = [
        NewestResult("Pong-s4", "Pong", "ppo", 84, 4, 1_000_000, 30, 12.0, 0.92, 1.0),
        NewestResult("Pong-s6", "Pong", "ppo", 84, 6, 1_200_000, 30, 14.0, 0.98, 2.0),
        NewestResult("Catch", "Catch", "dqn", None, None, 600, 5, 1.0),
    ]
    return backend


def test_a_table_for_people(api: Path, played: FakeBackend) -> None:
    done = ctl("results", socket=api)
    assert done.returncode == 0, done.stderr
    titles, catch, pong, nothing, overall = done.stdout.splitlines()
    assert titles.split() == ["GAME", "ALGO", "PIXELS", "SEEDS", "STEPS", "GAMES", "RETURN", "STD", "MIN", "MAX", "HNS"]
    assert catch.split() == ["Catch", "dqn", "-", "1", "600", "5", "1.00", "-", "1.00", "1.00", "-"]
    assert pong.split() == [
        "Pong", "ppo", "84", "2", "1,000,000..1,200,000", "60", "13.00", "1.41", "12.00", "14.00", "0.95",
    ]  # fmt: skip
    assert nothing == ""
    assert overall.startswith("ppo at 84 pixels: interquartile mean of the human-normalised scores 0.950 (95 % interval 0.9")
    assert overall.endswith("; 2 runs of 1 game)")


def test_csv_as_a_whole(api: Path, played: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "e1_results.csv"
    file.write_text("an old one")
    done = ctl("results", "--csv", str(file), socket=api)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{file}: 2 rows of games, 1 over all games\n"
    with file.open(newline="") as opened:
        catch, pong, overall = csv.DictReader(opened)
    assert tuple(pong) == page.COLUMNS
    assert (pong["game"], pong["seeds"], pong["return_mean"], pong["hns_iqm"]) == ("Pong", "2", "13", "")
    assert (catch["resolution"], catch["return_std"], catch["hns_mean"]) == ("", "", "")
    assert (overall["game"], overall["seeds"], overall["hns_iqm"], overall["return_mean"]) == ("ALL", "2", "0.95", "")
    assert [path.name for path in tmp_path.iterdir() if "results" in path.name] == ["e1_results.csv"]
    assert ctl("results", "--csv", "-", socket=api).stdout == file.read_text()


def test_json_and_mistakes(api: Path, played: FakeBackend, tmp_path: Path) -> None:
    found = json.loads(ctl("results", "--json", socket=api).stdout)
    assert [len(found[part]) for part in ("rows", "overall", "runs")] == [2, 1, 3]
    named = ctl("results", "Pong", socket=api)
    assert (named.returncode, named.stdout) == (1, "Error: results takes no names, not 'Pong'; it compares all runs\n")
    lost = ctl("results", "--csv", str(tmp_path / "not" / "there.csv"), socket=api)
    assert lost.returncode == 1
    assert lost.stdout.endswith("there.csv cannot be written: No such file or directory\n")


def test_before_there_is_anything(api: Path, backend: FakeBackend) -> None:
    assert ctl("results", socket=api).stdout.startswith("no run has played test games yet")


def test_without_a_daemon_the_files_tell_them(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = state / "programs" / "Breakout"
    run.mkdir(parents=True)
    journal = Journal(state / "journal.sqlite")
    journal.append([facts.DaemonStarted("first", 7, "0.1.0", clean=True, salt="s")], at_s=0.0, wall_s=1e9, boot_id="b" * 32)
    journal.close()
    results.write(
        run / results.RESULTS_FILE, [Row("Breakout", "Breakout", 100, 1, 30.5, "dqn", 1, 84, 400, None, 9, None, 1)]
    )
    (tmp_path / "extralife.toml").write_text(f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{tmp_path / "run"}"\n')
    done = ctl("-c", str(tmp_path / "extralife.toml"), "results", "--json")
    assert done.returncode == 0, done.stderr
    assert "daemon is not running" in done.stderr
    (found,) = json.loads(done.stdout)["runs"]
    assert (found["program"], found["return"], found["hns"]) == ("Breakout", 30.5, 1.0)
