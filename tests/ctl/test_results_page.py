"""`results` as people run it: the table, the CSV, JSON, and no daemon at all."""

import csv

import pytest
from running import ctl, too_wide

from supervisor.ctl import results as page
from supervisor.reports.sources import NewestResult


@pytest.fixture
def played(backend):
    backend.tested = [
        NewestResult("Pong-s4", "Pong", "ppo", 84, 4, 1_000_000, 30, 12.0, 0.92, 1.0),
        NewestResult("Pong-s6", "Pong", "ppo", 84, 6, 1_200_000, 30, 14.0, 0.98, 2.0),
        NewestResult("Catch", "Catch", "dqn", None, None, 600, 5, 1.0),
    ]
    return backend


def test_csv_as_a_whole(api, played, tmp_path):
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


def test_a_narrow_terminal(api, played):
    assert too_wide("results", socket=api) == []


def test_mistakes(api, played, tmp_path):
    named = ctl("results", "Pong", socket=api)
    assert (named.returncode, named.stdout) == (1, "Error: results takes no names, not 'Pong'; it compares all runs\n")
    lost = ctl("results", "--csv", str(tmp_path / "not" / "there.csv"), socket=api)
    assert lost.returncode == 1
    assert lost.stdout.endswith("there.csv cannot be written: No such file or directory\n")


def test_before_there_is_anything(api, backend):
    assert ctl("results", socket=api).stdout.startswith("no run has played test games yet")
