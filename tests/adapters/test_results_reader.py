"""The newest whole test of a run, read from what a worker wrote, or from what somebody put in its place."""

import pytest
from leaks import open_below

from supervisor.adapters import state_files
from supervisor.reports.sources import NewestResult
from workers import results
from workers.results import Row
from workers.scores import human_normalised


def row(env_steps, episode, score=1.0, games=2):
    return Row("Pong-s4", "Pong", env_steps, episode, score, "ppo", 4, 84, env_steps * 4, 1.5, 900, None, games)


def put(programs, name, rows):
    (programs / name).mkdir(parents=True)
    results.write(programs / name / results.RESULTS_FILE, rows)
    return programs / name / results.RESULTS_FILE


def test_the_newest_whole_one_counts(tmp_path):
    put(tmp_path, "Pong-s4", [row(100, 1), row(100, 2), row(200, 1, 14.0), row(200, 2, 15.2), row(300, 1)])
    (tmp_path / "Qbert").mkdir()
    put(tmp_path, "Alien", [row(50, 1, 3.0), row(50, 2, 4.0)])
    other, found = state_files.newest_results(tmp_path)
    assert found == NewestResult(
        "Pong-s4", "Pong", "ppo", 84, 4, 200, 2, 14.6, human_normalised("Pong", 14.6), hours_trained=1.5
    )
    assert found.hns == pytest.approx(1.0)
    assert (other.program, other.mean_return) == ("Alien", 3.5)
    assert open_below(tmp_path) == []


def test_nothing_whole_is_nothing(tmp_path):
    put(tmp_path, "a", [row(100, 1)])
    put(tmp_path, "b", [])
    assert state_files.newest_results(tmp_path) == []
    assert state_files.newest_results(tmp_path / "not there") == []


def test_a_byte_that_is_no_text_spoils_its_line_alone(tmp_path):
    path = put(tmp_path, "a", [row(100, 1), row(100, 2)])
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    (found,) = state_files.newest_results(tmp_path)
    assert found.env_steps == 100
