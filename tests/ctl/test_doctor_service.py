"""doctor on what starts and holds the daemon: systemd and its units, cgroups, and the other program of the same name."""

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
from supervisor.features.dialect import checks as dialect_checks

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


def test_another_supervisord_is_reported_and_our_own_is_not(installation, tmp_path):
    for pid, words in {
        7: "python3 /usr/bin/supervisord -n",
        8: "python -P -m supervisor -c x",
        9: "vi supervisord.conf",
    }.items():
        (tmp_path / f"root/proc/{pid}").mkdir()
        (tmp_path / f"root/proc/{pid}/cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    (tmp_path / "state" / "lock").write_text("8\n")
    (found,) = dialect_checks.other_supervisors(installation)
    assert found.what == "another supervisord runs: pid 7"


def test_a_daemon_of_another_configuration_is_called_so(installation):
    """The daemon was started with --config elsewhere, and doctor looks at the default configuration."""
    write(installation, "proc/8/cmdline", "python\0-P\0-m\0supervisor\0--config\0/srv/mine.toml\0")
    (found,) = dialect_checks.other_supervisors(installation)
    assert found.what == "another extralife daemon runs with another state directory: pid 8 with -c /srv/mine.toml"
    assert "extralifectl -c /srv/mine.toml doctor" in found.do


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user: run as root")
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


SUPERVISORD = """
[supervisord]
nodaemon=true
[include]
files = conf.d/*.conf
"""


@pytest.mark.parametrize(
    ("section", "same"),
    [
        ("[program:atari]\ncommand=/opt/x/bin/python -m workers --program Pong ; mine\n", True),
        ("[program:night]\ncommand=/usr/local/bin/train --out {state}/programs/Pong\n", True),
        ("[program:el]\ncommand=/opt/extralife/current/.venv/bin/python -m supervisor\n", True),
        ("[program:web]\ncommand=/usr/bin/nginx\n", False),
        ("this is no configuration\n", False),
    ],
)
def test_supervisors_own_configuration_is_looked_through_for_the_same_trainings(installation, section, same):
    write(installation, "etc/supervisor/supervisord.conf", SUPERVISORD)
    write(installation, "etc/supervisor/conf.d/a.conf", section.format(state=installation.settings.paths.state_dir))
    (found,) = dialect_checks.other_supervisors(installation)
    assert found.level == ("bad" if same else "ok")
    assert ("a.conf starts" in found.what) is same


def test_a_running_supervisord_is_asked_for_by_the_configuration_that_it_was_given(installation, tmp_path):
    write(installation, "srv/mine.conf", "[program:Pong]\ncommand=python -m workers --program Pong\n")
    write(installation, "proc/7/cmdline", "python3\0/usr/bin/supervisord\0-c\0/srv/mine.conf\0")
    found = list(dialect_checks.other_supervisors(installation))
    assert levels(found) == ["bad", "warn"]
    assert "srv/mine.conf starts Pong" in found[0].what
    assert found[1].what == "another supervisord runs: pid 7"


def test_supervisor_that_is_started_at_boot_is_reported(installation):
    write(installation, "etc/systemd/system/multi-user.target.wants/supervisor.service")
    (found,) = dialect_checks.other_supervisors(installation)
    assert (found.level, "started at boot" in found.what) == ("warn", True)


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
