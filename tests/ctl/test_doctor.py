"""doctor finds what stands in the way, says what to do, and never takes what it could not see for well."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from running import ctl

from supervisor import config
from supervisor.ctl import checks, checks_training, doctor
from supervisor.ctl.checks import Finding, Patient
from supervisor.ctl.session import Options, Session


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    """Two games, and a host that is made of files below `tmp_path`."""
    for directory in ("state", "run", "root/proc/sys/kernel", "root/proc/self", "root/dev"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "root/proc/self/mounts").write_text("/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n")
    (tmp_path / "config.toml").write_text(
        f'[daemon]\nstate_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n'
        '[training]\nreplay_size = 50_000\n[program.Pong]\n[program.Breakout]\nalgo = "ppo"\n'
    )
    loaded = config.load(str(tmp_path / "config.toml"), {}, look=False)
    return Patient(loaded.settings, root=str(tmp_path / "root"))


def levels(found) -> list[str]:
    return [each.level for each in found]


def test_mistakes_in_the_settings_are_told_and_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[daemon]\nalive_period_s = true\n[program.Pong]\n")
    done = ctl("-c", str(tmp_path / "bad.toml"), "doctor", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found[0]["level"] == "bad"
    assert found[0]["name"] == "settings"
    assert "daemon.alive_period_s" in found[0]["what"]
    assert found[0]["do"]
    assert {"kernel panic", "other supervisors"} <= {each["name"] for each in found}


def test_doctor_takes_no_names() -> None:
    done = ctl("doctor", "Pong")
    assert done.returncode == 1
    assert "doctor takes no names" in done.stderr + done.stdout


def test_a_check_that_fails_is_unknown_and_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(_who: Patient):
        raise ZeroDivisionError("what a host")
        yield

    monkeypatch.setattr(checks, "ALL", (odd, lambda _who: [Finding("b", "bad", "broken", "mend it")]))
    monkeypatch.setattr(checks_training, "ALL", ())
    found = doctor.examine(Session(Options()))
    assert levels(found) == ["bad", "unknown"], "the worst first"
    assert "ZeroDivisionError: what a host" in found[1].what
    lines = doctor.page(found)
    assert lines[0].split() == ["bad", "b", "broken"]
    assert lines[1].strip() == "-> mend it"
    assert lines[-1] == "1 bad, 0 warn, 1 unknown, 0 ok"


@pytest.mark.parametrize(("value", "level"), [("0", "warn"), ("10", "ok"), ("-1", "ok"), (None, "unknown")])
def test_a_kernel_that_panics_has_to_reboot(patient: Patient, value: str | None, level: str) -> None:
    if value is not None:
        Path(f"{patient.root}/proc/sys/kernel/panic").write_text(f"{value}\n")
    panic, watchdog = checks.boot_enabled_watchdog(patient)
    assert panic.level == level
    assert bool(panic.do) == (level == "warn")
    assert watchdog.level == "unknown"


def test_a_state_directory_on_a_disk_is_well_and_one_in_memory_is_not(patient: Patient, tmp_path: Path) -> None:
    assert levels(checks.directories(patient)) == ["ok", "warn"], "the runtime directory of this test is on the disk"
    Path(f"{patient.root}/proc/self/mounts").write_text(f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    state, *_ = checks.directories(patient)
    assert state.level == "bad"
    assert "a reboot takes it" in state.what


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_somebody_else_in_the_state_directory(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "state" / "journal.sqlite").touch()
    os.chown(tmp_path / "state" / "journal.sqlite", 12345, 12345)
    state = next(iter(checks.directories(patient)))
    assert state.level == "bad"
    assert "journal.sqlite belongs to another user" in state.what
    assert "chown" in state.do


def test_a_state_directory_that_is_not_there_yet(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "state").rmdir()
    assert levels(checks.directories(patient)) == ["warn"]
    assert levels(checks.fsync(patient)) == []


def test_how_long_a_durable_write_takes(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(0.0 < each < 30.0 for each in checks.sync_times(tempfile.gettempdir()))
    monkeypatch.setattr(checks, "sync_times", lambda _directory: [0.2, 0.3, 0.4])
    (slow,) = checks.fsync(patient)
    assert slow.level == "warn"
    assert "300.0 ms, at worst 400.0 ms of 3" in slow.what


def test_without_systemd_nothing_starts_it_at_boot(patient: Patient) -> None:
    (found,) = checks.service(patient)
    assert (found.level, found.do) == ("warn", "have something else start it, always (docs/box.md)")


def test_a_unit_that_was_edited_by_hand_is_told(tmp_path: Path) -> None:
    ours = Path(checks.__file__).parents[2] / "units" / checks.UNIT
    installed = tmp_path / "extralife.service"
    installed.write_text(ours.read_text().replace("/opt/extralife/", f"{ours.parents[3]}/"))
    assert checks._drift(installed) == ""
    installed.write_text(installed.read_text().replace("WatchdogSec=30", "WatchdogSec=3000"))
    assert "differs from the one that came with this version" in checks._drift(installed)


def test_another_supervisord_is_told_and_our_own_is_not(patient: Patient, tmp_path: Path) -> None:
    for pid, words in {
        7: "python3 /usr/bin/supervisord -n",
        8: "python -P -m supervisor -c x",
        9: "vi supervisord.conf",
    }.items():
        (tmp_path / f"root/proc/{pid}").mkdir()
        (tmp_path / f"root/proc/{pid}/cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    (tmp_path / "state" / "lock").write_text("8\n")
    (found,) = checks.other_supervisors(patient)
    assert found.what == "another supervisord runs: pid 7"


def test_what_room_the_programs_take(patient: Patient) -> None:
    pong, breakout = (patient.settings.program(name) for name in ("Pong", "Breakout"))
    extra = checks_training.needs_bytes(pong) - checks_training.needs_bytes(breakout)
    assert extra == 50_000 * 84 * 84, "ppo keeps no replay"
    assert checks_training.needs_bytes(replace(pong, builtin=False)) == 0
    (found,) = checks_training.room(patient)
    assert "all that is kept comes to" in found.what


def test_too_little_room_is_bad(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        total, free = 2**40, 2**20

    monkeypatch.setattr(checks_training.shutil, "disk_usage", lambda _place: Disk)
    (found,) = checks_training.room(patient)
    assert found.level == "bad"
    assert "smaller replay_size" in found.do


def test_packages_that_do_not_answer_are_bad(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks_training.probe(["Pong"], timeout_s=0.01) is None
    monkeypatch.setattr(checks_training, "probe", lambda _games: None)
    (found,) = checks_training.packages_and_games(patient)
    assert found.level == "bad"
    assert found.do


@pytest.mark.timeout(300)  # importing torch is all that it waits for
def test_the_real_packages_answer_and_a_game_that_is_none_is_told() -> None:
    found = checks_training.probe(["Catch", "Pongg"])
    assert found["torch"]["version"]
    assert found["game Catch"] == 1
    assert "game Pongg_error" in found


@pytest.mark.parametrize(
    ("torch", "gpus", "error", "level", "says"),
    [
        ({"version": "2.13.0", "cuda": None, "available": False}, [], "", "ok", "trains on the CPU"),
        ({"version": "2.13.0", "cuda": "13.0", "available": True}, ["A100 (driver 580)"], "", "ok", "CUDA 13.0"),
        ({"version": "2.13.0", "cuda": "13.0", "available": False}, ["A100 (driver 470)"], "", "bad", "does not get on"),
        ({"version": "2.13.0+cpu", "cuda": None, "available": False}, ["A100 (driver 580)"], "", "bad", "a build for CPU"),
        ({"version": "2.13.0", "cuda": "13.0", "available": False}, [], "Driver Not Loaded", "bad", "does not answer"),
        (None, [], "", "bad", "cannot be loaded: it says nothing"),
    ],
)
def test_torch_and_the_driver_have_to_fit(torch, gpus, error, level, says) -> None:
    (found,) = checks_training._torch({} if torch is None else {"torch": torch}, gpus, error)
    assert found.level == level
    assert says in found.what
    assert bool(found.do) == (level == "bad")


def test_devices_without_a_driver_are_told(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")

    def gone() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", gone)
    assert checks_training.nvidia(patient) == ([], ""), "no devices, no driver: a box without a GPU"
    Path(f"{patient.root}/dev/nvidia0").touch()
    gpus, error = checks_training.nvidia(patient)
    assert gpus == []
    assert "Driver Not Loaded" in error


@pytest.mark.parametrize(
    ("mounts", "own", "on", "expected"),
    [
        ("", "/a", "", ("ok", "there is no cgroup v2 here")),
        ("v2", "", "", ("unknown", "no daemon runs")),
        ("v2", "/a.service", "", ("warn", "was not given a part of the tree")),
        ("v2", "/a.service/daemon", "cpu pids", ("warn", "without memory: such limits are not enforced")),
        ("v2", "/a.service/daemon", "cpu memory pids", ("ok", "/sys/fs/cgroup/a.service, with cpu, memory, pids")),
        ("v2", "/b.service/daemon", None, ("unknown", "No such file")),
    ],
)
def test_cgroups(patient: Patient, mounts: str, own: str, on: str | None, expected: tuple[str, str]) -> None:
    root = Path(patient.root)
    line = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" if mounts else ""
    (root / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n" + line)
    (root / "proc/7").mkdir()
    (root / "proc/7/cgroup").write_text(f"4:memory:/x\n0::{own}\n" if own else "4:memory:/x\n")
    (root / "sys/fs/cgroup/a.service").mkdir(parents=True)
    if on is not None:
        (root / "sys/fs/cgroup/a.service/cgroup.subtree_control").write_text(f"{on}\n")
    Path(patient.settings.paths.lock).write_text("7\n")
    found = list(checks.cgroups(patient))
    assert [each.level for each in found] == [expected[0]]
    assert expected[1] in found[0].what
    assert bool(found[0].do) is (found[0].level == "warn")
