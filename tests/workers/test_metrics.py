"""The curves, read back as TensorBoard reads them: nothing twice after a resume, bounded, and never in the way."""

import sys
import threading

import pytest
from event_files import curve

from workers import metrics
from workers.metrics import Metrics


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy disk is none of these tests' business."""
    monkeypatch.setattr(metrics, "_CLOSE_S", 60.0)


def write(run_dir, resumed, *points, **options):
    made = Metrics(run_dir, resumed, **options)
    for step, value in points:
        made.offer(step, {"play/mean_return": value})
    made.close()
    assert not made._thread.is_alive()


def test_points_are_read_as_they_were_offered(tmp_path):
    made = Metrics(tmp_path, 0)
    made.offer(100, {"a": 1.5, "b": None, "c": float("nan"), "d": float("inf"), "e": 0})
    made.close()
    assert curve(tmp_path, "a") == [(100, 1.5)]
    assert curve(tmp_path, "e") == [(100, 0.0)]
    assert not curve(tmp_path, "b") + curve(tmp_path, "c") + curve(tmp_path, "d")


def test_steps_that_were_rolled_back_do_not_show_twice(tmp_path):
    write(tmp_path, 0, (100, 1.0), (200, 2.0), (300, 3.0))
    write(tmp_path, 200, (250, 2.5), (300, 3.5))
    assert curve(tmp_path, "play/mean_return") == [(100, 1.0), (200, 2.0), (250, 2.5), (300, 3.5)]


def test_a_torn_end_costs_one_point(tmp_path):
    write(tmp_path, 0, (100, 1.0), (200, 2.0))
    (path,) = (tmp_path / metrics.METRICS_DIR).iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    write(tmp_path, 150, (200, 4.0))
    assert curve(tmp_path, "play/mean_return") == [(100, 1.0), (200, 4.0)]


def test_a_file_that_is_full_is_followed_by_the_next_which_forgets_nothing(tmp_path):
    points = [(step, float(step)) for step in range(100, 2000, 100)]
    write(tmp_path, 0, *points, file_bytes=200)
    assert len(list((tmp_path / metrics.METRICS_DIR).iterdir())) > 3
    assert curve(tmp_path, "play/mean_return") == points


def test_a_disk_that_is_really_full(tmp_path, monkeypatch, capfd):
    (tmp_path / metrics.METRICS_DIR).mkdir()
    (tmp_path / metrics.METRICS_DIR / "events.out.tfevents.0000000001.extralife").symlink_to("/dev/full")
    monkeypatch.setattr(metrics.Path, "touch", lambda *_, **__: None)  # it is there, and that is the point
    numbers = [1, 1, 2]
    monkeypatch.setattr(metrics, "_make_room", lambda _: numbers.pop(0))
    write(tmp_path, 0, (100, 1.0), (200, 2.0), (300, 3.0))
    assert capfd.readouterr().err.count("No space left on device; training continues") == 1
    (tmp_path / metrics.METRICS_DIR / "events.out.tfevents.0000000001.extralife").unlink()
    assert curve(tmp_path, "play/mean_return") == [(300, 3.0)]


def test_a_disk_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    hangs = threading.Event()
    monkeypatch.setattr(metrics._File, "add", lambda *_: hangs.wait(60))
    monkeypatch.setattr(metrics, "_CLOSE_S", 0.05)
    made = Metrics(tmp_path, 0)
    for step in range(1000):
        made.offer(step, {"a": 1.0})
    assert made._points.qsize() <= metrics._WAITING
    made.close()
    assert made._thread.is_alive()
    hangs.set()
    monkeypatch.setattr(metrics, "_CLOSE_S", 60.0)
    made.close()  # the first had no room to say that it is the end
    assert not made._thread.is_alive()


def test_without_the_library_training_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
    monkeypatch.setattr(metrics, "_CLOSE_S", 60.0)
    made = Metrics(tmp_path, 0)
    for step in range(10 * metrics._WAITING):
        made.offer(step, {"a": 1.0})
    made.close()
    assert made._points.empty(), "no end waits for room in a queue that nobody empties"
    assert capfd.readouterr().err.count("training continues without curves") == 1
