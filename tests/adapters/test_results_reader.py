"""The newest whole test of a run, read from what a worker wrote, or from what somebody put in its place."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from leaks import open_below

from supervisor.adapters import state_files
from supervisor.reports.sources import NewestResult
from workers import results
from workers.results import Row
from workers.scores import human_normalised


def row(env_steps: int, episode: int, score: float = 1.0, games: int | None = 2) -> Row:
    return Row("Pong-s4", "Pong", env_steps, episode, score, "ppo", 4, 84, env_steps * 4, 1.5, 900, None, games)


def put(programs: Path, name: str, rows: list[Row]) -> Path:
    (programs / name).mkdir(parents=True)
    results.write(programs / name / results.RESULTS_FILE, rows)
    return programs / name / results.RESULTS_FILE


def test_the_newest_whole_one_counts(tmp_path: Path) -> None:
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


def test_nothing_whole_is_nothing(tmp_path: Path) -> None:
    put(tmp_path, "a", [row(100, 1)])
    put(tmp_path, "b", [])
    assert state_files.newest_results(tmp_path) == []
    assert state_files.newest_results(tmp_path / "not there") == []


def test_the_line_that_the_limit_cuts_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a", [row(100, 1), row(100, 2), row(200, 1, 2.0), row(200, 2, 2.0)])
    size, lines = path.stat().st_size, path.read_bytes().splitlines(keepends=True)
    newest = state_files.newest_result("a", path)
    assert newest is not None
    assert newest.env_steps == 200
    monkeypatch.setattr(state_files, "_TAIL_BYTES", size)
    assert state_files.newest_result("a", path) == newest, "all of it"
    monkeypatch.setattr(state_files, "_TAIL_BYTES", len(lines[-1]) + len(lines[-2]))
    assert state_files.newest_result("a", path) is None, "one of two games is cut off"
    monkeypatch.setattr(state_files, "_TAIL_BYTES", len(lines[-1]) + len(lines[-2]) + 1)
    assert state_files.newest_result("a", path) == newest


def test_a_byte_that_is_no_text_spoils_its_line_alone(tmp_path: Path) -> None:
    path = put(tmp_path, "a", [row(100, 1), row(100, 2)])
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    (found,) = state_files.newest_results(tmp_path)
    assert found.env_steps == 100


def test_a_link_to_results_is_not_followed_and_rubbish_is_left_out(tmp_path: Path) -> None:
    for name in ("link", "rubbish"):
        (tmp_path / name).mkdir()
    secret = tmp_path / "secret"
    secret.write_text(results.text_of([dataclasses.replace(row(1, 1), games=1)]))
    (tmp_path / "link" / results.RESULTS_FILE).symlink_to(secret)
    (tmp_path / "rubbish" / results.RESULTS_FILE).write_bytes(os.urandom(5000))
    assert state_files.newest_results(tmp_path) == []
