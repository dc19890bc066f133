"""What is recorded of a training: rates between two marks, shares, a line a minute, and what the beat tells."""

import pytest
from event_files import curve, settings_of
from learners import learner, settings

from workers import metrics, records
from workers.contract import Client
from workers.records import Mark, Records
from workers.results import Evaluation, Row
from workers.stopwatch import Stopwatch


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """What `close` has not written on a busy disk would be missing in the curves."""
    monkeypatch.setattr(metrics, "_CLOSE_S", 60.0)


@pytest.fixture
def made():
    found = learner(settings("Catch", algo="ppo", num_envs=8, batch_size=32, n_steps=8))
    found.clock = 0
    found.watch = Stopwatch(lambda: found.clock)
    return found


def evaluation(env_steps, *scores, game="Pong"):
    return Evaluation(tuple(Row(game, game, env_steps, n, s, length=9, games=len(scores)) for n, s in enumerate(scores, 1)))


def test_the_worked_example():
    found = records.rates(Mark(0.0, 0, 0, 0), Mark(60.0, 120_000, 960, 30), 1_000)
    assert found == {
        "speed/steps_per_s": 2_000, "speed/updates_per_s": 16, "speed/episodes_per_hour": 1_800, "learn/replay_ratio": 8,
    }  # fmt: skip
    assert records.rates(Mark(1.0, 0, 0, 0), Mark(1.0, 5, 0, 0), 8) == {}
    assert "learn/replay_ratio" not in records.rates(Mark(0.0, 5, 0, 0), Mark(1.0, 5, 0, 0), 8), "nothing made: not known"


def test_of_a_test():
    assert records.of_test(evaluation(5, 14.6, 14.6)) == {
        "test/return": 14.6,
        "test/hns": pytest.approx(1.0),
        "test/length": 9.0,
    }
    assert records.evaluation_summary(evaluation(5, 14.6)) == "mean return of 1 test games: 14.60, human-normalised 1.00"
    assert records.evaluation_summary(evaluation(5, 1.0, game="Catch")) == "mean return of 1 test games: 1.00"


def test_the_beat_has_the_reported_figures(made, tmp_path):
    """Every name is a field of it: a real client refuses any other."""
    told = Records(made, tmp_path)
    told.begin(0.0, [], evaluation(5, -3.0))
    made.clock += 1
    told.look(30.0, {})
    assert told.for_the_beat()["test_return"] == -3.0
    assert len(told.for_the_beat()) == 7
    Client({}).progress(**told.for_the_beat())
    told.close()


def test_tests_of_before_a_crash_keep_their_points(made, tmp_path):
    first = Records(made, tmp_path)
    first.begin(0.0, [], None)
    first.add_test(evaluation(500, 2.0))
    first.add_test(evaluation(1_000, 4.0))
    first.close()
    made.env_steps = 700
    again = Records(made, tmp_path)
    again.begin(0.0, [evaluation(1_000, 4.0)], evaluation(1_000, 4.0))
    again.close()
    assert curve(tmp_path, "test/return") == [(500, 2.0), (1_000, 4.0)]


def test_each_file_has_the_settings_and_the_curves_to_compare_them_by(made, tmp_path):
    for _ in range(2):
        told = Records(made, tmp_path)
        told.begin(0.0, [evaluation(1_000, 4.0)], None)
        told.close()
    files = sorted((tmp_path / "tensorboard").iterdir())
    assert len(files) == 2
    for file in files:
        values, results = settings_of(file)
        assert results == ["play/mean_return", "test/return"]
        known = {"game": "Catch", "algo": "ppo", "num_envs": 8.0, "lr": made.args.lr}
        assert {name: values[name] for name in known} == known
        assert not {"given", "hours"} & values.keys(), "what is no number or word, or is not set"
