"""doctor finds what stands in the way, says what to do, and never takes what it could not see for well."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from patients import levels, with_settings, write
from running import ctl

from supervisor.ctl import checks, checks_disk, checks_training, doctor
from supervisor.ctl.checks import Finding
from supervisor.ctl.outcome import OK, Failed, Options
from supervisor.ctl.session import Session


def test_mistakes_in_the_settings_are_reported_and_the_rest_is_looked_at_all_the_same(tmp_path):
    (tmp_path / "bad.toml").write_text("[daemon]\nalive_period_s = true\n[program.Pong]\n")
    done = ctl("-c", str(tmp_path / "bad.toml"), "doctor", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert found[0]["level"] == "bad"
    assert found[0]["name"] == "settings"
    assert "daemon.alive_period_s" in found[0]["what"]
    assert found[0]["do"]
    assert {"kernel panic", "cgroups"} <= {each["name"] for each in found}


def only(monkeypatch, *few):
    monkeypatch.setattr(doctor, "_checks", lambda: few)


def test_a_check_can_be_left_out(monkeypatch):
    def the_clock(_installation):
        yield Finding("clock", "ok", "it goes")

    def copies(_installation):
        pytest.fail("left out")
        yield

    only(monkeypatch, the_clock, copies)
    session = Session(Options())
    assert [each.name for each in doctor.examine(session, "copies")] == ["clock"]
    assert doctor.doctor(session, ["--json", "--skip", "copies"]) == OK
    with pytest.raises(Failed, match="doctor has no check 'copys'; there are copies, the clock"):
        doctor.examine(Session(Options()), "copys")


def test_a_check_that_fails_is_unknown_and_hides_nothing(monkeypatch):
    def odd(_installation):
        raise ZeroDivisionError("what a host")
        yield

    only(monkeypatch, odd, lambda _installation: [Finding("b", "bad", "broken", "mend it")])
    found = doctor.examine(Session(Options()))
    assert levels(found) == ["bad", "unknown"], "the worst first"
    assert "ZeroDivisionError: what a host" in found[1].what
    lines = doctor.page(found)
    assert lines[0].split() == ["bad", "b", "broken"]
    assert lines[1].strip() == "-> mend it"
    assert lines[-1] == "1 bad, 0 warn, 1 unknown, 0 ok"


@pytest.mark.parametrize(
    ("value", "file", "level", "says"),
    [
        ("0", "", "warn", "hangs until somebody resets it"),
        ("10", "", "warn", "no file sets this again"),
        ("10", "etc/sysctl.d/90-panic.conf:# reboot\nkernel.panic = 10\n", "ok", "reboots 10s after"),
        ("-1", "usr/lib/sysctl.d/50-x.conf:-kernel/panic=-1\n", "ok", "reboots at once"),
        ("5", "proc/cmdline:root=/dev/vda panic=5 quiet\n", "ok", "reboots 5s after"),
        ("10", "etc/sysctl.d/90-panic.conf:#kernel.panic=10\nkernel.panic_on_oops=1\n", "warn", "no file sets this again"),
        (None, "", "unknown", "cannot be read"),
    ],
)
def test_a_kernel_that_panics_has_to_reboot_always(installation, value, file, level, says):
    if value is not None:
        write(installation, "proc/sys/kernel/panic", f"{value}\n")
    if file:
        write(installation, *file.split(":", 1))
    panic, watchdog = checks.boot_enabled_watchdog(installation)
    assert panic.level == level
    assert says in panic.what
    assert bool(panic.do) == (level == "warn")
    assert (watchdog.level, "modprobe" in watchdog.do) == ("unknown", True)


@pytest.mark.parametrize(
    ("kind", "level", "says"),
    [
        ("ext4", "ok", "on ext4"),
        ("nfs4", "bad", "neither the lock against a second daemon nor the journal"),
        ("vfat", "bad", "keeps no owners and modes"),
        ("overlay", "warn", "a layer of a container"),
        ("tmpfs", "bad", "a reboot deletes it"),
    ],
)
def test_what_the_state_directory_lies_on(installation, tmp_path, kind, level, says):
    write(installation, "proc/self/mounts", f"/dev/vda / ext4 rw 0 0\nthere:/x {tmp_path} {kind} rw 0 0\n")
    state = next(iter(checks.directories(installation)))
    assert state.level == level
    assert says in state.what
    assert bool(state.do) == (level != "ok")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_somebody_else_in_the_state_directory(installation, tmp_path):
    (tmp_path / "state" / "journal.sqlite").touch()
    os.chown(tmp_path / "state" / "journal.sqlite", 12345, 12345)
    state = next(iter(checks.directories(installation)))
    assert state.level == "bad"
    assert "journal.sqlite belongs to another user" in state.what
    assert "chown" in state.do


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_a_socket_group_without_the_daemons_user(installation, tmp_path):
    assert installation.settings is not None
    installation = with_settings(installation, daemon=replace(installation.settings.daemon, socket_group="daemon"))
    assert levels(checks.directories(installation)) == ["ok", "warn"], "root may give a file to any group"
    for name in ("state", "run"):
        os.chown(tmp_path / name, 65534, 65534)
    *_, last = checks.directories(installation)
    assert (last.name, last.level) == ("control socket", "bad")
    assert "the user nobody is not in the group daemon" in last.what


def test_a_runtime_directory_that_others_may_write_to(installation, tmp_path):
    (tmp_path / "run").chmod(0o777)
    _, runtime = checks.directories(installation)
    assert (runtime.name, runtime.level) == ("runtime", "bad")
    assert "every user may write to" in runtime.what


def test_a_configuration_that_others_may_write(installation, tmp_path):
    assert installation.settings is not None
    file = tmp_path / "extralife.toml"
    file.touch(mode=0o600)
    installation = with_settings(installation, paths=replace(installation.settings.paths, config_file=str(file)))
    assert levels(checks.directories(installation)) == ["ok", "warn"]
    file.chmod(0o622)
    _, found, _ = checks.directories(installation)
    assert (found.name, found.level, found.do) == ("settings", "warn", "chmod go-w")
    assert f"every user may write to {file} (mode 0622), and so decides which commands run as " in found.what


def test_a_runtime_directory_that_a_logout_takes_away(installation):
    def lingering(owner):
        return list(checks._lingering(Path("/run/user/65534/extralife-1"), owner, installation.root))

    (found,) = lingering(65534)
    assert (found.level, found.do.split(",")[0]) == ("bad", "loginctl enable-linger nobody")
    write(installation, "var/lib/systemd/linger/nobody")
    assert levels(lingering(65534)) == ["ok"]
    assert lingering(0) == [], "root's is not removed"
    assert not list(checks._lingering(Path("/run/extralife"), 65534, installation.root))


def test_a_state_directory_that_is_not_there_yet(installation, tmp_path):
    (tmp_path / "state").rmdir()
    (tmp_path / "run").chmod(0o777)
    state, runtime = checks.directories(installation)
    assert (state.name, state.level) == ("state", "warn")
    assert (runtime.name, runtime.level) == ("runtime", "bad"), "that is known before the first start"
    assert levels(checks_disk.fsync(installation)) == levels(checks_disk.disk_speed(installation)) == []


def test_packages_that_do_not_answer_are_bad(installation, monkeypatch):
    assert checks_training.probe(["Pong"], timeout_s=0.01) is None
    monkeypatch.setattr(checks_training, "probe", lambda _games: None)
    (found,) = checks_training.packages_and_games(installation)
    assert found.level == "bad"
    assert found.do


@pytest.mark.timeout(300)  # importing torch is all that it waits for
def test_the_real_packages_answer_and_a_game_that_is_none_is_reported():
    found = checks_training.probe(["Catch", "Pongg"])
    assert found["torch"]["version"]
    assert found["game Catch"] == 1
    assert "game Pongg_error" in found


def test_doctor_says_whether_the_clock_is_synchronised(installation, monkeypatch):
    for answer, level in ((True, "ok"), (False, "warn"), (None, "unknown")):
        monkeypatch.setattr(checks, "synchronised", lambda answer=answer: answer)
        assert levels(checks.clock(installation)) == [level]
