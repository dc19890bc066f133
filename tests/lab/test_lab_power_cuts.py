"""Power cuts under two real games, and orderly reboots: what is committed stays, and all goes on by itself.

Every third cut comes while a checkpoint is being written, the others at random times.

3 cuts in the ordinary run, `EXTRALIFE_LAB_CUTS=20 tests/run lab` for more; EXTRALIFE_LAB_SEED repeats a run's times.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from installed import CONFIG, GAMES, INTERVAL_S, STATE, UNIT, Installed
from labbox import until

CUTS = int(os.environ.get("EXTRALIFE_LAB_CUTS", "3"))
SEED = int(os.environ.get("EXTRALIFE_LAB_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
_SLACK_S = 10.0  # a checkpoint that was due is written within this much, on a box whose two cores are not ours alone


@pytest.fixture(scope="module", autouse=True)
def _training(box: Installed) -> None:
    box.write("/etc/extralife/extralife.toml", CONFIG)
    box.show_own_boot_id()
    box.install()
    box.wait_until_trains()
    until(lambda: all(p["ckpt_step"] for p in box.programs().values()), 60, "a checkpoint of each")


def check(box: Installed, before: dict, boots: int, cause: str, kind: str) -> dict:
    """What has to hold after every boot; returns what resumed from where."""
    reboots = box.facts("HostRebooted")
    assert len(reboots) == boots
    assert (reboots[-1]["cause"], reboots[-1]["end"]) == (cause, kind), reboots[-1]
    lines = [line for line in box.alerts() if " REBOOT " in line]
    assert len(lines) == boots
    assert f"cause={cause} kind={kind} " in lines[-1]
    assert box.integrity() == "ok"
    saved = box.checkpoints()
    assert all(whole for found in saved.values() for _, whole in found), saved
    assert {name: len(pids) for name, pids in box.workers().items()} == dict.fromkeys(GAMES, 1), "nobody twice"
    steps = {}
    for name in GAMES:
        resumed = [fact for fact in box.facts("Resumed") if fact["program"] == name][-1]
        committed, rate = before[name]["ckpt_step"], before[name]["steps_per_s"] or 0.0
        assert resumed["step"] >= committed, f"{name}: a committed checkpoint is lost"
        assert before[name]["steps"] - resumed["step"] <= 2 * rate * (INTERVAL_S + _SLACK_S) + 100, name
        assert box.programs()[name]["restarts"] == 0, "a reboot is held against nobody"
        steps[name] = resumed["step"]
    return steps


def test_power_cuts_lose_no_committed_checkpoint_and_need_nobody(box: Installed) -> None:
    chance = random.Random(SEED)
    print(f"EXTRALIFE_LAB_CUTS={CUTS} EXTRALIFE_LAB_SEED={SEED}")
    boots = len(box.facts("HostRebooted"))
    for cut in range(1, CUTS + 1):
        at = ""
        if cut % 3:
            time.sleep(chance.uniform(0.0, 2 * INTERVAL_S))  # not a wait for anything: the time of the cut is what is tried
            before = box.programs()
        else:
            before = box.programs()
            at = "{}'s {} being written, ".format(*box.wait_for_a_commit())
        box.cut_power()
        began_s = time.monotonic()
        up_s = box.boot()
        box.wait_until_trains()
        trains_s = time.monotonic() - began_s
        steps = check(box, before, boots + cut, "unclean", "power")
        known_by = box.facts("HostRebooted")[-1]["evidence"]
        print(
            f"cut {cut}: {at}up {up_s:.1f} s, training again {trains_s:.1f} s after it; resumed {steps}; known by: {known_by}"
        )


def test_orderly_reboots_are_told_apart_and_lose_nothing(box: Installed) -> None:
    boots = len(box.facts("HostRebooted"))
    for reboot in range(1, 4 if CUTS >= 20 else 2):
        before = box.wait_until_trains()
        box.reboot()
        box.wait_until_trains(least_steps={name: before[name]["ckpt_step"] for name in GAMES})
        check(box, before, boots + reboot, "orderly", "orderly")
        # Without polkit the lock is refused, and it is open which of the two comes first.
        refused = "host_shutdown_not_delayed" in box.run("journalctl", "-u", UNIT, "-o", "cat", "--no-pager").stdout
        assert box.facts("DaemonStopping")[-1]["by"] == "the host's shutdown" or refused


def test_a_box_that_hung_is_told_from_a_power_cut(box: Installed) -> None:
    """It says that tasks are stuck, stands still, and is switched off. (A container has no kernel of its own to say so.)"""
    boots = len(box.facts("HostRebooted"))
    before = box.wait_until_trains()
    box.run("logger", "-t", "kernel", "-p", "kern.err", "INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds.")
    box.run("journalctl", "--sync")
    box.freeze()
    time.sleep(5.0)  # not a wait for anything: it stands still for so long
    box.cut_power()
    box.boot()
    box.wait_until_trains()
    check(box, before, boots + 1, "unclean", "hung")
    assert any("jbd2/sda1-8:312" in word for word in box.facts("HostRebooted")[-1]["last_words"])


def test_a_panic_is_known_by_what_the_kernel_saved_of_its_log(box: Installed) -> None:
    boots = len(box.facts("HostRebooted"))
    before = box.wait_until_trains()
    dump = "<0>[ 8122.120001] Kernel panic - not syncing: Fatal exception in interrupt"
    where = "/var/lib/systemd/pstore/17/001"
    box.run("sh", "-c", f"mkdir -p {where} && echo '{dump}' >{where}/dmesg.txt && chmod 0600 {where}/dmesg.txt && sync")
    box.cut_power()
    box.boot()
    box.wait_until_trains()
    check(box, before, boots + 1, "unclean", "panic")


def test_an_orderly_end_of_the_box_counts_as_one_although_the_daemon_had_crashed_before(box: Installed) -> None:
    boots = len(box.facts("HostRebooted"))
    box.wait_until_trains()
    box.configure("[daemon\n")
    box.run("sh", "-c", f"rm -rf {STATE}/last-config*")  # else it would start with the last good one
    box.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", UNIT)
    until(lambda: "waits" in box.show(UNIT, "StatusText"), 90, "a start that waits")
    box.configure(CONFIG)
    box.reboot()
    box.wait_until_trains()
    reboot = box.facts("HostRebooted")[-1]
    assert (len(box.facts("HostRebooted")), reboot["cause"], reboot["end"]) == (boots + 1, "orderly", "orderly"), reboot
