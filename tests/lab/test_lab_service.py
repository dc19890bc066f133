"""The service on a real systemd: installed from deploy/, two real games, and everything that may happen to its daemon."""

from __future__ import annotations

import json
import re
import signal
import threading

import pytest
from installed import CHECKOUT, CONFIG, CTL, GAMES, STATE, UNIT, Installed
from labbox import until

SHIPPED = (
    "supervisor", "workers", "deploy", "units", "docs", "tests/requirements.lock", "tests/requirements-systemd.lock",
    "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE",
)  # fmt: skip
UNITS = (
    "extralife.service", "extralife-gpu.service", "extralife.slice", "extralife-alert@.service", "extralife-upgrade.service",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _installed(box: Installed) -> None:
    planned = box.install("--dry-run")
    assert "make the user extralife" in planned
    assert box.run("test", "-e", "/opt/extralife", check=False).returncode == 1, "a dry run does nothing"
    assert box.run("id", "extralife", check=False).returncode == 1
    box.write("/etc/extralife/extralife.toml", CONFIG)
    said = box.install()
    assert "start extralife.service" in said
    assert "everything is up to date" in box.install(), "a second time there is nothing to do"
    assert box.show(UNIT, "ActiveState") == "active"


def test_its_units_are_sound_and_shut_in(box: Installed) -> None:
    said = box.run("systemd-analyze", "verify", *(f"/etc/systemd/system/{unit}" for unit in UNITS), check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    told = box.run("systemd-analyze", "security", "--no-pager", UNIT).stdout
    assert float(re.search(r"exposure level for extralife.service: ([0-9.]+)", told)[1]) <= 2.5, told
    owner = box.run("ps", "-o", "user=", "-p", str(box.daemon())).stdout.strip()
    assert owner == "extralif+" or owner == "extralife"


def test_both_games_train_and_say_so(box: Installed) -> None:
    programs = box.wait_until_trains()
    assert {name: len(pids) for name, pids in box.workers().items()} == dict.fromkeys(GAMES, 1)
    assert "2 of 2 programs run" in box.show(UNIT, "StatusText")
    until(lambda: all(box.checkpoints()[name] for name in programs), 60, "a checkpoint of each")


def test_each_worker_has_a_cgroup_of_its_own(box: Installed) -> None:
    box.wait_until_trains()
    told = box.status()["daemon"]["cgroups"]
    assert told["on"], told
    assert told["path"].endswith("/extralife.slice/extralife.service")
    assert cgroup_of(box, box.daemon()).endswith("/extralife.service/daemon")
    for name, pids in box.workers().items():
        assert re.search(rf"/extralife.service/worker-{name}-[0-9a-f]+/tree$", cgroup_of(box, pids[0]))
    until(lambda: all(program["pressure"] for program in box.programs().values()), 60, "pressure to be told")


def cgroup_of(box: Installed, pid: int) -> str:
    lines = box.run("cat", f"/proc/{pid}/cgroup").stdout.splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def test_doctor_finds_it_as_it_was_installed_and_sees_what_was_edited_by_hand(box: Installed) -> None:
    def service() -> tuple[str, str]:
        found = {
            each["name"]: each for each in reversed(json.loads(box.ctl("doctor", "--json"))["findings"])
        }  # the worst of a name
        assert found["games"]["level"] == found["systemd"]["level"] == found["runtime"]["level"] == "ok", found
        assert "a layer of a container" in found["state"]["what"], (
            "the box's root is an overlay, and that is what it is told"
        )
        return found["service"]["level"], found["service"]["what"]

    assert service() == ("ok", f"{UNIT} is active, enabled, as installed")
    box.run("sed", "-i", "s/^WatchdogSec=30/WatchdogSec=3000/", f"/etc/systemd/system/{UNIT}")
    level, what = service()
    assert level == "warn"
    assert "differs from the file of this version" in what or "has changed since systemd read it" in what
    assert f"write /etc/systemd/system/{UNIT}" in box.install(), "an installation puts it right"
    assert service()[0] == "ok"
    box.write(f"/etc/systemd/system/{UNIT}.d/mine.conf", "[Service]\nKillMode=mixed\n")
    box.run("systemctl", "daemon-reload")
    assert service() == ("bad", "KillMode=mixed is in force instead of process: a crash of the daemon ends every training")
    box.run("rm", f"/etc/systemd/system/{UNIT}.d/mine.conf")
    box.run("systemctl", "daemon-reload")
    assert service()[0] == "ok"


def test_a_newer_version_takes_over_in_place(box: Installed) -> None:
    box.wait_until_trains()
    workers, before = box.workers(), box.daemon()
    box.run("mkdir", "/srv/newer")
    box.run("cp", "-r", *(f"{CHECKOUT}/{each}" for each in SHIPPED), "-t", "/srv/newer", "--parents")
    newer = f"/srv/newer{CHECKOUT}"
    box.run("sed", "-i", "s/programs run at level/programs are trained at level/", f"{newer}/supervisor/shell/service.py")
    said = box.install(checkout=newer)
    assert "reload the daemon" in said
    until(lambda: "are trained at level" in box.show(UNIT, "StatusText"), 90, "the newer version to say so")
    assert (box.daemon(), box.workers()) == (before, workers)


def test_a_killed_daemon_is_replaced_and_its_workers_train_on(box: Installed) -> None:
    box.wait_until_trains()
    workers, before = box.workers(), box.daemon()
    box.signal(before, signal.SIGKILL)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(box.run(*CTL, "pid", check=False).returncode))
    asking.start()  # while there is no daemon
    until(lambda: box.daemon() not in {0, before} and box.show(UNIT, "ActiveState") == "active", 60, "another daemon")
    asking.join()
    assert answers == [0], "the socket outlives the daemon: who asks meanwhile waits, and is answered"
    assert box.workers() == workers
    started = box.facts("DaemonStarted")[-1]
    assert started["adopted"] == len(GAMES)
    assert all("/worker-" in cgroup_of(box, pid) for pids in workers.values() for pid in pids)
    assert cgroup_of(box, box.daemon()).endswith("/daemon"), "the next one goes where the one before was"
    assert box.ctl("pid").strip() == str(box.daemon())


def test_a_frozen_daemon_is_replaced_by_the_watchdog(box: Installed) -> None:
    box.write(f"/etc/systemd/system/{UNIT}.d/test.conf", "[Service]\nWatchdogSec=5\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", UNIT)
    box.wait_until_trains()
    workers, before = box.workers(), box.daemon()
    box.signal(before, signal.SIGSTOP)
    until(lambda: box.daemon() not in {0, before} and box.show(UNIT, "ActiveState") == "active", 90, "another daemon")
    assert "Watchdog timeout" in box.run("journalctl", "-u", UNIT, "-o", "cat", "-n", "200", "--no-pager").stdout
    assert box.workers() == workers
    assert box.facts("DaemonStarted")[-1]["adopted"] == len(GAMES)


def test_a_reload_replaces_the_daemon_in_place(box: Installed) -> None:
    box.wait_until_trains()
    workers, before, starts = box.workers(), box.daemon(), len(box.facts("DaemonStarted"))
    box.run("systemctl", "reload", UNIT)
    until(lambda: len(box.facts("DaemonStarted")) > starts, 60, "a new image")
    until(lambda: box.show(UNIT, "ActiveState") == "active", 60, "it to be ready")
    assert box.daemon() == before
    assert box.workers() == workers


def test_a_stop_while_checkpoints_are_written_loses_nothing_and_leaves_nobody(box: Installed) -> None:
    box.wait_until_trains()
    box.run("systemctl", "stop", UNIT)
    assert box.show(UNIT, "Result") == "success"
    assert box.workers() == {name: [] for name in GAMES}
    assert box.facts("DaemonStopped"), "an orderly end is on record"
    assert {exited["cause"] for exited in box.facts("Exited")[-2:]} == {"stopped"}
    saved = box.checkpoints()
    assert all(whole for found in saved.values() for _, whole in found), saved
    assert box.run(*CTL, "pid", check=False).returncode != 0, "it stays down: nothing that asks starts it"
    assert box.show(UNIT, "ActiveState") == "inactive"
    box.run("systemctl", "start", UNIT)
    programs = box.wait_until_trains()
    for name, found in saved.items():
        resumed = [fact for fact in box.facts("Resumed") if fact["program"] == name][-1]
        assert resumed["step"] == found[0][0], "from the very state in which it was stopped"
        assert programs[name]["steps"] >= found[0][0]


def test_shutdown_is_not_undone(box: Installed) -> None:
    box.wait_until_trains()
    box.ctl("shutdown", check=True)
    until(lambda: box.show(UNIT, "ActiveState") == "inactive", 60, "the service to be down")
    assert box.show(UNIT, "NRestarts") == "0"
    assert box.workers() == {name: [] for name in GAMES}
    box.run("systemctl", "start", UNIT)
    box.wait_until_trains()


def test_a_daemon_that_cannot_start_waits_longer_each_time_and_a_stop_still_ends_its_workers(box: Installed) -> None:
    box.run("systemctl", "restart", UNIT)
    box.wait_until_trains()
    workers = box.workers()
    box.configure("[daemon\n")
    box.run("sh", "-c", f"rm -rf {STATE}/last-config*")  # else it would start with the last good one
    box.signal(box.daemon(), signal.SIGKILL)
    until(lambda: "waits" in box.show(UNIT, "StatusText"), 90, "a start that waits")
    assert box.workers() == workers, "nobody is there to tell them anything, so they train"
    until(lambda: any(" DAEMON ends again and again" in line for line in box.alerts()), 90, "an alert")
    box.run("systemctl", "stop", UNIT)
    assert box.workers() == {name: [] for name in GAMES}
    assert all(whole for found in box.checkpoints().values() for _, whole in found)
    box.configure(CONFIG)
    box.run("systemctl", "start", UNIT)
    assert box.show(UNIT, "ActiveState") == "active", "at once: a stop forgets the starts before it"
    box.wait_until_trains()


def test_a_full_disk_stops_no_training(box: Installed) -> None:
    before = box.wait_until_trains()
    workers = box.workers()
    box.run("sh", "-c", f"fallocate -l 64G {STATE}/filler 2>/dev/null || cat /dev/zero >{STATE}/filler 2>/dev/null || true")
    try:
        until(lambda: "cannot save" in box.ctl("status") or "journal" in box.ctl("status"), 90, "the full disk to be told")
    finally:
        box.run("rm", "-f", f"{STATE}/filler")
    after = box.wait_until_trains(least_steps={name: before[name]["steps"] for name in GAMES})
    assert box.workers() == workers
    until(lambda: all(p["ckpt_step"] > after[n]["ckpt_step"] for n, p in box.programs().items()), 60, "checkpoints again")
    assert box.integrity() == "ok"


def test_it_can_be_taken_away_and_what_was_trained_stays(box: Installed) -> None:
    said = box.run(f"{CHECKOUT}/deploy/uninstall.sh").stdout
    assert "kept: /var/lib/extralife" in said
    assert box.workers() == {name: [] for name in GAMES}
    assert box.run("test", "-e", "/opt/extralife", check=False).returncode == 1
    assert box.run("test", "-e", f"{STATE}/journal.sqlite", check=False).returncode == 0
    assert box.run("systemctl", "cat", UNIT, check=False).returncode != 0
