"""The state directory's mount fails at a start, and is repaired later: the service waits for it, reports it, and goes on."""

from __future__ import annotations

import pytest
from installed import STATE, UNIT, Installed
from labbox import until

MOUNT = "var-lib-extralife.mount"
GOOD = f"[Mount]\nWhat=tmpfs\nWhere={STATE}\nType=tmpfs\n"
BAD = f"[Mount]\nWhat=/dev/no-such-disk\nWhere={STATE}\nType=ext4\n"
CONFIG = f"""
[daemon]
state_dir = "{STATE}"
runtime_dir = "/run/extralife"
[alerts]
command = ["sh", "-c", "cat >>/run/extralife/told; echo >>/run/extralife/told"]
[program.sleeper]
command = ["sleep", "1000"]
progress = "none"
"""


def mount(box: Installed, unit: str) -> None:
    box.write(f"/etc/systemd/system/{MOUNT}", unit)
    box.run("systemctl", "daemon-reload")


@pytest.fixture(scope="module", autouse=True)
def _installed(box: Installed) -> None:
    box.run("mkdir", "-p", STATE)
    mount(box, GOOD)
    box.run("systemctl", "start", MOUNT)
    box.configure(CONFIG)
    box.install("--no-start")
    box.run("systemctl", "start", UNIT)


def test_a_mount_that_fails_is_waited_for_and_told_and_nothing_is_written_below_it(box: Installed) -> None:
    until(lambda: box.programs().get("sleeper", {}).get("phase") == "RUNNING", 60, "the program to run")
    assert STATE not in box.show(UNIT, "RequiresMountsFor").split()
    box.run("systemctl", "stop", UNIT)
    box.run("systemctl", "stop", MOUNT)
    mount(box, BAD)
    assert box.run("systemctl", "start", MOUNT, check=False).returncode != 0
    box.run("systemctl", "start", "--no-block", UNIT)
    until(lambda: "nothing is mounted there" in box.tail(), 60, "the refusal")
    until(lambda: "ends again and again" in box.run("cat", "/run/extralife/told", check=False).stdout, 120, "the alert")
    assert box.run("test", "-e", f"{STATE}/journal.sqlite", check=False).returncode == 1
    assert box.run("pgrep", "-x", "sleep", check=False).stdout == ""
    mount(box, GOOD)
    box.run("systemctl", "start", MOUNT)
    until(lambda: box.programs().get("sleeper", {}).get("phase") == "RUNNING", 120, "it to go on by itself")
