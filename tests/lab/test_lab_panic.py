"""A kernel that panics or stands still: the box comes back by itself, and is told what it died of as far as that is known.

In the emulated box (`qemubox.py`), whose firmware keeps the kernel's last words (ERST) and which has a hardware watchdog.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from installed import CTL, STATE, UNIT
from qemubox import QemuBox, until

CONFIG = """
[daemon]
state_dir = "/var/lib/extralife"
runtime_dir = "/run/extralife"
sample_period_s = 2.0
[program.sleeper]
command = ["/bin/sleep", "1000000"]
progress = "none"
"""
FILES = {
    "etc/sysctl.d/90-panic.conf": "kernel.panic = 5\n",
    # Far more than its processor ever stands still for, on a machine that has other things to do.
    "etc/systemd/system.conf.d/watchdog.conf": "[Manager]\nRuntimeWatchdogSec=90\n",
}
# The crash is in the kernel of the box, by its own hand: a NULL pointer.
CRASH = "sync; sleep 1; echo c >/proc/sysrq-trigger"


def ready(box: QemuBox) -> None:
    until(lambda: box.show(UNIT, "ActiveState") == "active", 900, "the service to be ready")


def crash(box: QemuBox) -> dict[str, Any]:
    """The kernel dies, whatever follows; the one reboot that is told when the box is there again."""
    known = len(box.facts("HostRebooted"))
    before = box.read("/proc/sys/kernel/random/boot_id").strip()
    box.tell(CRASH)
    box.wait_up(other_than=before)
    ready(box)
    told = box.facts("HostRebooted")
    assert len(told) == known + 1
    print(told[-1])
    return told[-1]


def last_alert(box: QemuBox) -> str:
    return box.read(f"{STATE}/reboot_alerts.log").splitlines()[-1]


@pytest.fixture(scope="module")
def box(own_kernel: QemuBox) -> QemuBox:
    ready(own_kernel)
    return own_kernel


def test_a_panic_reboots_the_box_and_is_told_as_one(box: QemuBox) -> None:
    told = crash(box)
    assert (told["cause"], told["end"]) == ("unclean", "panic")
    assert any("sysrq triggered crash" in line for line in told["last_words"])
    assert "cause=unclean kind=panic" in last_alert(box)
    assert box.sh("find /var/lib/systemd/pstore -type f").strip(), "systemd keeps what the kernel had saved"


def test_a_kernel_that_stands_still_is_reset_by_the_watchdog_and_that_is_reported(box: QemuBox) -> None:
    """Where nothing keeps the last words: a dump would say that it was a panic, which it is too."""
    box.run("systemctl", "stop", UNIT)
    box.run("sync")
    box.cut_power()
    box.boot(pstore=False)
    ready(box)
    box.run("sysctl", "-q", "-w", "kernel.panic=0")
    told = crash(box)
    assert (told["cause"], told["end"]) == ("unclean", "watchdog")
    assert box.read("/sys/class/watchdog/watchdog0/bootstatus").strip() == "32"


def test_a_panic_that_could_leave_nothing_is_not_made_up(box: QemuBox) -> None:
    told = crash(box)
    assert (told["cause"], told["end"]) == ("unclean", "power")


def test_doctor_sees_that_a_panic_reboots_and_who_feeds_the_watchdog(box: QemuBox) -> None:
    found = {each["name"]: each for each in json.loads(box.run(*CTL, "doctor", "--json", check=False).stdout)["findings"]}
    assert (found["kernel panic"]["level"], found["kernel panic"]["what"]) == (
        "ok", "the box reboots 5s after a kernel panic",
    )  # fmt: skip
    assert found["hardware watchdog"]["what"] == "systemd feeds it, limit 1min 30s"
    assert found["cgroups"]["level"] == "ok", found["cgroups"]
