"""doctor on what starts and holds the daemon: systemd and its units, and cgroups."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from patients import levels, told, write
from running import CTL, ROOT, environment
from serving import until

from supervisor.ctl import checks_service

SHOWN = {
    "LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "NeedDaemonReload": "no", "DropInPaths": "",
    "FragmentPath": "/nowhere/extralife.service", "WatchdogUSec": "30s", "Type": "notify", "KillMode": "process",
    "Restart": "always", "Delegate": "yes",
}  # fmt: skip


@pytest.fixture
def manager(installation, tmp_path, monkeypatch):
    """A systemctl that says what a test wants: the real one needs a machine that was booted with it (tests/lab)."""
    write(installation, "run/systemd/system/.keep")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def says(version="systemd 252 (252.39-1~deb12u2)", **changed):
        shown = "".join(f"{key}={value}\\n" for key, value in (SHOWN | changed).items())
        path = tmp_path / "bin/systemctl"
        path.write_text(f"#!/bin/sh\ncase $1 in --version) echo '{version}' ;; *) printf '{shown}' ;; esac\n")
        path.chmod(0o755)

    return says


def test_a_unit_as_it_was_installed_is_well(installation, manager):
    manager()
    assert levels(checks_service.service(installation)) == ["ok"]
    assert levels(checks_service.systemd(installation)) == ["ok"]


@pytest.mark.parametrize(
    ("changed", "level", "says"),
    [
        ({"KillMode": "control-group"}, "bad", "a crash of the daemon ends every training"),
        ({"Restart": "on-failure"}, "bad", "is not restarted"),
        ({"Delegate": "no"}, "bad", "workers have no cgroups"),
        ({"Type": "simple"}, "bad", "its watchdog is off"),
        ({"WatchdogUSec": "0"}, "bad", "nothing restarts a daemon that freezes"),
        ({"UnitFileState": "disabled"}, "bad", "no start at boot"),
        ({"ActiveState": "failed"}, "bad", "is failed"),
        ({"NeedDaemonReload": "yes"}, "warn", "has changed since systemd read it"),
        ({"DropInPaths": "/etc/systemd/system/extralife.service.d/mine.conf"}, "warn", "mine.conf"),
        ({"LoadState": "not-found"}, "warn", "is not installed"),
    ],
)
def test_what_is_in_force_is_what_counts(installation, manager, changed, level, says):
    manager(**changed)
    found = list(checks_service.service(installation))
    assert level in levels(found)
    assert "ok" not in levels(found)
    assert says in told(found)
    assert all(each.do for each in found if each.level != "unknown")


def test_the_watchdog_of_a_unit_that_does_not_run_is_not_known(installation, manager):
    """systemd shows 0 for it until the unit's first start: it was called turned off."""
    manager(ActiveState="inactive", WatchdogUSec="0")
    found = list(checks_service.service(installation))
    assert "WatchdogSec= not known" in told(found)
    assert "nothing restarts a daemon that freezes" not in told(found)


@pytest.mark.parametrize(
    ("version", "level"), [("systemd 249 (249.11)", "bad"), ("systemd 257~rc1", "unknown"), ("systemd 250 (250)", "ok")]
)
def test_a_systemd_that_is_too_old(installation, manager, version, level):
    manager(version)
    assert levels(checks_service.systemd(installation)) == [level]


def test_without_systemd_nothing_starts_it_at_boot(installation):
    (found,) = checks_service.service(installation)
    assert (found.level, found.do) == ("warn", "let another service manager start it (docs/box.md)")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user: run as root")
@pytest.mark.needs("dialect")
def test_an_ordinary_user_learns_what_is_not_known_and_as_whom_it_is(tmp_path):
    """A real daemon of root's, a real second user, no traceback, and its own daemon is not called another one."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # tmp_path is root's alone
        home = Path(name)
        home.chmod(0o755)
        for each in ("state", "run"):
            (home / each).mkdir(mode=0o700)
        config_file = home / "x.toml"
        config_file.write_text(
            f'[daemon]\nstate_dir = "{home}/state"\nruntime_dir = "{home}/run"\n'
            '[program.a]\ncommand = "sleep 1000"\nprogress = "none"\n'
        )
        env = environment(XDG_STATE_HOME=str(home / "home"))
        doctor = [*CTL, "-c", str(config_file), "doctor", "--json"]
        daemon = subprocess.Popen(
            [sys.executable, "-m", "supervisor", "-c", str(config_file)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=env, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            until((home / "run/supervisor.sock").exists, "the daemon to listen")
            found = {}
            for who in ([], ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]):
                done = subprocess.run([*who, *doctor], capture_output=True, text=True, env=env, cwd=ROOT, check=False)
                found[bool(who)] = json.loads(done.stdout)["findings"]
            mine = [each["what"] for each in found[False] if str(daemon.pid) in each["what"].split()]
            assert mine == [], "root's doctor knows which daemon it is"
            theirs = json.dumps(found[True])
            assert "PermissionError" not in theirs
            assert "no daemon runs" not in theirs
            (cgroups,) = (each for each in found[True] if each["name"] == "cgroups")
            if cgroups["level"] != "ok":  # no cgroup v2 here
                assert (cgroups["level"], "nobody may not read" in cgroups["what"]) == ("unknown", True)
                assert "sudo -u root extralifectl doctor" in cgroups["do"]
            other = [each for each in found[True] if each["name"] == "other supervisors"]
            assert [each["level"] for each in other if str(daemon.pid) in each["what"]] == ["unknown"]
        finally:
            daemon.terminate()
            daemon.wait(60)


@pytest.mark.parametrize(
    ("mounts", "own", "on", "expected"),
    [
        ("", "/a", "", ("ok", "the box has no cgroup v2")),
        ("v2", "", "", ("unknown", "no daemon runs")),
        ("v2", "/a.service", "", ("warn", "no cgroup was delegated to the daemon")),
        ("v2", "/a.service/daemon", "cpu pids", ("warn", "without memory: these limits are not enforced")),
        ("v2", "/a.service/daemon", "cpu memory pids", ("ok", "/sys/fs/cgroup/a.service, with cpu, memory, pids")),
        ("v2", "/b.service/daemon", None, ("unknown", "No such file")),
    ],
)
def test_cgroups(installation, mounts, own, on, expected):
    root = Path(installation.root)
    line = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" if mounts else ""
    (root / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n" + line)
    (root / "proc/7").mkdir()
    (root / "proc/7/cgroup").write_text(f"4:memory:/x\n0::{own}\n" if own else "4:memory:/x\n")
    (root / "sys/fs/cgroup/a.service").mkdir(parents=True)
    if on is not None:
        (root / "sys/fs/cgroup/a.service/cgroup.subtree_control").write_text(f"{on}\n")
    Path(installation.settings.paths.lock).write_text("7\n")
    found = list(checks_service.cgroups(installation))
    assert [each.level for each in found] == [expected[0]]
    assert expected[1] in found[0].what
    assert bool(found[0].do) is (found[0].level == "warn")
