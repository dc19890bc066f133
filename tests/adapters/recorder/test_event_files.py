"""Old curves from the event files that real workers' code writes: torn, damaged, hostile."""

import time

import pytest
from tensorboardX.record_writer import RecordWriter  # also for a worker's thread: its first import takes seconds

from supervisor.features.recorder.adapters.events import read
from supervisor.features.recorder.rules.recording import tag_of
from workers import metrics as worker_metrics
from workers import records
from workers.metrics import Metrics

NAMES = ("mean_return", "loss", "steps_per_s", "share_act")


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """Two starts: the second resumed at step 300 of 500."""
    monkeypatch.setattr(worker_metrics, "_CLOSE_S", 60.0)  # a busy machine may need longer than a worker waits
    for resumed, steps in ((0, (100, 200, 500)), (300, (400, 600))):
        metrics = Metrics(tmp_path, resumed)
        for step in steps:
            metrics.offer(
                step, {tag_of("mean_return"): step / 10, tag_of("loss"): 0.5, "time/act": 0.25, "learn/loss2": 9.0}
            )
        metrics.offer(steps[-1], {"test/return": 21.0})
        metrics.close()
    return tmp_path


def points(run_dir, names=NAMES):
    return list(read(run_dir, names, 0.0, 1e12))


def test_the_points_of_every_start_with_the_step_that_it_resumed_at(run_dir):
    found = points(run_dir)
    assert [(each.start, each.resumed_step, each.step) for each in found] == [
        (1, 0, 100), (1, 0, 200), (1, 0, 500), (1, 0, 500), (2, 300, 400), (2, 300, 600), (2, 300, 600),
    ]  # fmt: skip
    assert found[0].values == {"mean_return": 10.0, "loss": 0.5, "share_act": 0.25}
    assert found[3].values == {}
    assert points(run_dir, ("test_return",))[3].values == {"test_return": 21.0}
    assert abs(found[0].wall_s - time.time()) < 60.0


def test_a_torn_end_costs_the_torn_record_and_a_damaged_length_the_rest_of_its_file(run_dir):
    whole = points(run_dir)
    second, first = max((run_dir / "tensorboard").iterdir()), min((run_dir / "tensorboard").iterdir())
    data = second.read_bytes()
    for cut in (1, 3, 20, 60):
        second.write_bytes(data[:-cut])
        found = points(run_dir)
        assert found == whole[: len(found)]
        assert len(whole) - 2 <= len(found) < len(whole)
    second.write_bytes(data)
    damaged = bytearray(first.read_bytes())
    at = damaged.index(b"play/mean_return", damaged.index(b"play/mean_return") + 1)
    damaged[at - 40 : at] = bytes(40)
    first.write_bytes(damaged)
    found = points(run_dir)
    assert found[-3:] == whole[-3:]
    assert len(found) < len(whole)
    assert all(each.step == 100 for each in found[:-3])


def write(run_dir, number, *events):
    """An event file as a worker's library writes it, with these `Event`s and nothing else."""
    path = run_dir / "tensorboard" / f"events.out.tfevents.{number:010d}.extralife"
    path.parent.mkdir(exist_ok=True)
    writer = RecordWriter(str(path))
    for event in events:
        writer.write(event.SerializeToString())
    writer.close()
    return path


def test_a_worker_draws_each_series_under_the_name_that_is_looked_up():
    drawn = {f"learn/{name}" for name in ("loss", "q_mean", "grad_norm", "entropy")} | {"play/mean_return", "play/episodes"}
    assert {tag_of(name) for name in ("loss", "q_mean", "grad_norm", "entropy", "mean_return", "episodes")} == drawn
    assert tag_of("steps_per_s") in records.rates(records.Mark(0.0, 0, 0, 0), records.Mark(1.0, 9, 9, 9), 1)
    assert (tag_of("share_learn"), tag_of("test_return")) == ("time/learn", "test/return")
