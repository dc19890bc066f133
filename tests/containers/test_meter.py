"""A command that ends the meter stops its own container."""

from __future__ import annotations

import pytest
from containerbox import ENTRYPOINT, until

CONFIG = """\
[daemon]
state_dir = "/workspace/extralife/state"
[cost]
usd_per_hour = 1.2
[program.one]
command = ["sleep", "2"]
[when_done]
command = ["sh", "-c", "echo ran >>/workspace/ran; kill -TERM 1"]
after_s = 0
"""


@pytest.mark.slow
def test_a_command_that_stops_its_container_runs_once_and_not_again_when_that_is_started(box):
    (box.home / "extralife.toml").write_text(CONFIG)
    box.run()
    assert box.ended() == 0, box.said()
    ran = box.volume / "ran"
    assert ran.read_text() == "ran\n"
    box.start()
    until(lambda: not box.exec(ENTRYPOINT, "probe", "live", check=False).returncode, 60, "the daemon", box.said)
    assert "this box is stopped in " in box.ctl("when-done"), "an hour without a program costs money: again, later"
    assert ran.read_text() == "ran\n"
    assert box.stop(20) < 15
    assert ran.read_text() == "ran\n"
