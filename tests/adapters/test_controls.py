"""What the daemon writes into control records is what a worker reads out of them, in the units of the contract."""

from __future__ import annotations

from pathlib import Path

from supervisor.adapters import procfs
from supervisor.adapters.host.clock import SystemClock
from supervisor.adapters.process.controls import Controls
from supervisor.model.commands import SetControl, TellEnd
from supervisor.model.settings import Paths
from workers.contract import UNKNOWN, Control, ControlReader, LeaveBy, read_leave_by

TOKEN, OTHER = "ab" * 16, "cd" * 16


def test_seconds_become_the_units_of_the_record(tmp_path):
    """Journal time runs 1,000 s ahead of CLOCK_BOOTTIME here, as after a reboot."""
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    controls = Controls(paths, SystemClock(1000.0))
    controls.begin(TOKEN, 3)
    controls.write(SetControl("Pong", TOKEN, interval_s=90.5, offset_s=12.25, save_now=2, leave_by_s=1060.5))
    reader = ControlReader(paths.control("Pong", 3), TOKEN)
    assert reader.read() == Control(TOKEN, interval_ms=90_500, offset_ms=12_250, save_now=2, leave_by_ns=60_500_000_000)
    controls.write(SetControl("Pong", TOKEN, interval_s=None, offset_s=0.0, save_now=3))
    assert reader.read() == Control(TOKEN, UNKNOWN, 0, 3, UNKNOWN), "unknown is not zero"
    assert ControlReader(paths.control("Pong", 3), OTHER).read() == Control(OTHER), "it is not that attempt's"


def test_only_attempts_that_were_begun_have_a_record_and_it_ends_with_them(tmp_path):
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    controls = Controls(paths, SystemClock(0.0))
    wish = SetControl("Pong", TOKEN, interval_s=1.0, offset_s=0.0, save_now=0)
    controls.write(wish)
    assert not Path(paths.control("Pong", 3)).exists()
    controls.begin(TOKEN, 3)
    controls.write(wish)
    assert Path(paths.control("Pong", 3)).exists()
    Path(paths.beat("Pong", 3)).touch()
    controls.end("Pong", TOKEN)
    controls.end("Pong", TOKEN)
    assert not Path(paths.control("Pong", 3)).exists()
    assert not Path(paths.beat("Pong", 3)).exists()
    controls.write(wish)
    assert not Path(paths.control("Pong", 3)).exists()


def test_the_end_of_the_box_is_in_a_file_as_long_as_it_is_announced(tmp_path):
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    controls = Controls(paths, SystemClock(0.0))
    path = Path(paths.leave_by("Pong", 3))
    controls.tell_end(TellEnd("Pong", TOKEN, 1_800_000_000.7, "aws: spot terminate"))
    assert not path.exists(), "of nobody"
    controls.begin(TOKEN, 3)
    controls.tell_end(TellEnd("Pong", TOKEN, 1_800_000_000.7, "aws: spot terminate"))
    assert path.read_text() == "1800000000\naws: spot terminate\n"
    assert path.stat().st_mode & 0o777 == 0o644 & ~procfs.umask(), "a program of another user may read it"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name], "nothing is left beside it"
    assert read_leave_by(path) == LeaveBy(1_800_000_000.0, "aws: spot terminate")
    controls.tell_end(TellEnd("Pong", TOKEN, None, "file: größer"))
    assert path.read_bytes() == "unknown\nfile: größer\n".encode()
    assert read_leave_by(path) == LeaveBy(None, "file: größer")
    for _ in range(2):
        controls.tell_end(TellEnd("Pong", TOKEN, None, ""))
        assert read_leave_by(path) is None
    path.write_text("soon\n")
    assert read_leave_by(path) is None, "not understood"
    controls.end("Pong", TOKEN)
    assert not path.exists()
