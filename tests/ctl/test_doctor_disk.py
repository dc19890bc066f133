"""doctor on the disk: durable writes, throughput beside what checkpoints need, room."""

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from patients import told

from supervisor.ctl import checks_disk

MB = 2**20


def fill(file):
    while True:
        file.write(bytes(MB))


@pytest.fixture
def small_disk(installation):
    """The state directory is a file system of 20 MiB of its own."""
    state = installation.settings.paths.state_dir
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "small", state], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield installation
    finally:
        subprocess.run(["umount", state], check=True)


def test_how_long_a_durable_write_takes(installation, monkeypatch):
    times_s = checks_disk.sync_times(tempfile.gettempdir())
    assert len(times_s) >= 3
    assert all(0.0 < each < 30.0 for each in times_s)
    monkeypatch.setattr(checks_disk, "sync_times", lambda _directory: [0.2, 0.3, 0.4])
    (slow,) = checks_disk.fsync(installation)
    assert slow.level == "warn"
    assert "300.0 ms, at worst 400.0 ms of 3" in slow.what


@pytest.mark.parametrize(("per_s", "level"), [(1000 * MB, "ok"), (4 * MB, "warn"), (2 * MB, "bad")])
def test_checkpoints_that_are_written_together_have_to_fit_into_a_stop(installation, monkeypatch, per_s, level):
    monkeypatch.setattr(checks_disk, "throughput", lambda _directory: (float(per_s), float(per_s)))
    (found,) = checks_disk.disk_speed(installation)
    assert found.level == level
    assert "2 checkpoints at once, 62.9MB" in found.what
    assert bool(found.do) is (level != "ok")


def test_on_a_full_disk_nothing_is_tried(small_disk):
    (found,) = checks_disk.disk_speed(small_disk)
    assert (found.level, "not tried" in found.what) == ("unknown", True)
    with (
        (Path(small_disk.settings.paths.state_dir) / "filler").open("wb", buffering=0) as file,
        pytest.raises(OSError, match="No space"),
    ):
        fill(file)
    (found,) = checks_disk.fsync(small_disk)
    assert (found.level, "No space left on device" in found.what) == ("bad", True)


def test_a_disk_that_cannot_be_written_is_not_measured(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk.settings.paths.state_dir], check=True)
    assert "Read-only file system" in told(checks_disk.fsync(small_disk))


def test_what_room_the_programs_take(installation):
    pong, breakout = (installation.settings.program(name) for name in ("Pong", "Breakout"))
    extra = checks_disk.needs_bytes(pong) - checks_disk.needs_bytes(breakout)
    assert extra == 50_000 * 84 * 84, "ppo keeps no replay"
    assert checks_disk.needs_bytes(replace(pong, builtin=False)) == 0
    larger = replace(pong, argv=(*pong.argv, "--resolution=96", "--replay-size=60000"))
    assert checks_disk.needs_bytes(larger) - checks_disk.needs_bytes(breakout) == 60_000 * 96 * 96
    (found,) = checks_disk.room(installation)
    assert "the full state needs" in found.what


def test_too_little_room_is_bad(installation, monkeypatch):
    class Disk:
        total, free = 2**40, 2**20

    monkeypatch.setattr(checks_disk.shutil, "disk_usage", lambda _place: Disk)
    (found,) = checks_disk.room(installation)
    assert found.level == "bad"
    assert "smaller replay_size" in found.do
