"""An orderly reboot of the host: every worker saves first, and the reboot waits for nothing else."""

from __future__ import annotations

import pytest
from installed import CONFIG, GAMES, UNIT, Installed
from labbox import until

_LONGER_S = 10.0  # than without the service; a daemon that waits in vain for its stop takes 15 s more


@pytest.fixture(scope="module", autouse=True)
def _installed(box: Installed) -> None:
    box.configure(CONFIG)
    box.show_own_boot_id()
    box.install()


def holds_up_the_host(box: Installed) -> bool:
    return "extralife" in box.run("systemd-inhibit", "--list", "--no-pager", check=False).stdout


def test_the_host_waits_for_the_saves_and_for_nothing_else(box: Installed) -> None:
    if box.run("sh", "-c", "command -v pkaction", check=False).returncode != 0:
        pytest.skip("without polkit nobody but root may hold up a shutdown (apt-get install polkitd)")
    box.wait_until_trains()
    until(lambda: holds_up_the_host(box), 60, "the delay lock to be granted")
    took_s = box.go_down()
    box.boot()
    box.wait_until_trains()
    stopping, stopped = box.facts("DaemonStopping")[-1], box.facts("DaemonStopped")[-1]
    assert stopping["by"] == "the host's shutdown"
    assert len(box.facts("DaemonStarted")) == 2, "it was not started again in a box that goes down"
    assert all(whole for found in box.checkpoints().values() for _, whole in found)
    assert {fact["program"] for fact in box.facts("Resumed")} == set(GAMES)
    saved_s = stopped["at_s"] - stopping["at_s"]
    box.run("systemctl", "stop", UNIT)
    bare_s = box.go_down()
    box.boot()
    assert took_s - saved_s - bare_s < _LONGER_S, (took_s, saved_s, bare_s)


def test_each_boot_has_an_id_of_its_own_in_the_record(box: Installed) -> None:
    box.run("systemctl", "start", UNIT)
    box.wait_until_trains()
    box.go_down()
    box.boot()
    box.wait_until_trains()
    started = [fact["boot_id"] for fact in box.facts("DaemonStarted")]
    assert len(set(started)) == len(started) >= 2
    assert started[-1] == box.boot_id().replace("-", "")
    assert all("the boot id changed" in fact["evidence"] for fact in box.facts("HostRebooted"))
