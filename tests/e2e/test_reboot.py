"""The host restarts: noticed, told in one line, everything that ran goes on from its newest checkpoint."""

from __future__ import annotations

import re
import uuid

from box import LONG_S, Box, until

from supervisor.adapters import procfs


def test_after_a_power_cut_everything_that_ran_resumes(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b") + box.trainer("c"))
    box.start()
    for name in "abc":
        box.wait_phase(name, "RUNNING")
    until(lambda: all((box.program(n).get("steps") or 0) > 120 for n in "ab"), 20, "some progress")
    box.ctl("stop", "c", check=False)
    until(lambda: (box.program("a").get("steps") or 0) > 250, 20, "an alive mark with steps")
    box.power_cut()
    box.start()
    reboot = box.wait_fact("HostRebooted")
    assert reboot["cause"] == "unclean"
    assert reboot["programs"] == ["a", "b"]
    assert 0 <= reboot["down_s"] < 60, "from the last sign of life to the start of the new pid 1"
    for name in "ab":
        assert box.wait_phase(name, "RUNNING")["restarts"] == 0, "a reboot is nobody's fault but the box's"
        resumed = box.facts("Resumed", name)[-1]
        assert resumed["step"] >= 100
        assert resumed["cause"] == "reboot"
        assert resumed["lost_steps"] is None or resumed["lost_steps"] > 0, "unknown where no sign of life is newer, never 0"
    assert box.program("c")["phase"] == "STOPPED", "what the operator stopped stays stopped"
    lines = (box.state / "reboot_alerts.log").read_text().splitlines()
    assert len(lines) == 1
    assert re.search(r"\bcause=unclean\b", lines[0])
    assert re.search(r"\bdown=", lines[0])
    assert re.search(r"\blost=.*a", lines[0])
    told = box.ctl("reboots").stdout
    assert "unclean" in told
    assert box.status()["daemon"]["reboots_24h"] == 1
    explained = box.ctl("explain", "a")
    assert explained.returncode == 0, explained.stderr
    assert "host rebooted" in explained.stdout


def test_an_orderly_reboot_is_told_apart(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.stop_daemon() == 0
    assert box.facts("Exited", "a")[-1]["cause"] == "stopped"
    box.power_cut()
    box.start()
    assert box.wait_fact("HostRebooted")["cause"] == "orderly"
    box.wait_phase("a", "RUNNING")


def test_a_copied_box_begins_its_own_record_and_trains_on(box: Box) -> None:
    (box.boot_files / "hostname").write_text("alpha")
    (box.boot_files / "product_uuid").write_text("4c4c4544-0042-3510-8051-b4c04f595931")
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    until(lambda: (box.program("a").get("steps") or 0) > 120, 20, "some progress")
    box.power_cut()
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.wait_fact("HostRebooted")["cause"] == "unclean"
    assert box.status()["daemon"]["reboots_total"] == 1
    (box.boot_files / "hostname").write_text("beta")
    (box.boot_files / "product_uuid").write_text("4c4c4544-0042-3510-8051-b4c04f595932")
    box.power_cut()
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.facts("HostRebooted")[-1]["cause"] == "moved"
    box.wait_fact("Resumed", "a", count=3)
    assert box.facts("Resumed", "a")[-1]["step"] >= 100, "it goes on where the other box was"
    daemon = box.status()["daemon"]
    assert (daemon["reboots_total"], daemon["box"]["hostname"]) == (0, "beta")
    assert daemon["box"]["former"][0]["hostname"] == "alpha"
    assert "the box changed" in box.ctl("status").stdout
    assert " MOVED cause=moved " in (box.state / "reboot_alerts.log").read_text()


def test_what_finished_while_no_daemon_ran_is_not_started_again_after_a_power_cut(box: Box) -> None:
    script = "for i in 1 2 3 4 5; do echo step=$i of 5; sleep 0.6; done"
    box.config(f"[program.t]\ncommand = 'sh -c \"{script}\"'\nlog_regex = 'step=(?P<step>\\d+) of (?P<target>\\d+)'\n")
    box.start()
    box.wait_fact("Spawned", "t")
    box.kill_daemon()
    until(lambda: not box.shims(), LONG_S, "the end of the script")
    box.power_cut()
    box.start()
    assert box.program("t")["phase"] == "DONE"
    assert len(box.facts("Spawned", "t")) == 1


def test_a_worker_that_outlives_its_boot_id_and_its_record_blocks_no_start(box: Box) -> None:
    """A container whose boot id is another one after a restart, and a journal that lost what it had not written out."""
    box.config(box.trainer("a"))
    box.start()
    first = box.wait_phase("a", "RUNNING")
    until(lambda: (box.program("a").get("steps") or 0) > 120, 20, "some progress")
    box.kill_daemon()
    for path in (*box.state.glob("journal.sqlite*"), *box.state.glob("journal-copy/*"), box.state / "alive"):
        path.unlink()
    box.set_boot(uuid.uuid4())
    box.start()
    again = box.wait_phase("a", "RUNNING")
    assert again["pid"] != first["pid"]
    stat = procfs.read_stat(first["pid"])
    assert stat is None or stat.state == "Z", "dead, although pid 1 may not have reaped it yet"
    assert box.wait_fact("Resumed", "a")["step"] >= 50, "from its checkpoint"


def test_a_daemon_restart_is_not_a_reboot(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    box.kill_daemon()
    box.start()
    box.wait_phase("a", "RUNNING")
    assert not box.facts("HostRebooted")
    assert not (box.state / "reboot_alerts.log").exists()
