"""deploy/container/entrypoint as a container's first process: it installs once, keeps the daemon alive, and says why it cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig

import pytest
from containerbox import COUNTER, ENTRYPOINT, Box, until


@pytest.fixture
def empty(installed, tmp_path):
    """A volume without anything."""
    made = Box(tmp_path / "volume")
    shutil.rmtree(made.home)
    try:
        yield made
    finally:
        made.close()


def refused(box: Box, *more: str, **options) -> str:
    """The only line that the entrypoint says before it ends with status 1."""
    box.run(*more, **options)
    assert box.ended() == 1
    lines = box.said().splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("entrypoint: ")


def test_without_a_volume_it_refuses(empty, tmp_path):
    assert "/workspace is not on a volume, so all trainings would end with this container" in refused(
        empty, target="/elsewhere"
    )
    assert "/data/x is not on a volume" in refused(empty, "--tmpfs", "/data", "--env", "EXTRALIFE_STATE=/data/x")
    assert refused(empty, volume_mode="ro") == (
        "user 0 cannot write to the volume: cannot create directory '/workspace/extralife': Read-only file system"
    )
    assert "user 12345 cannot write to the volume" in refused(empty, "--user", "12345")
    config = tmp_path / "own.toml"
    config.write_text('[daemon]\nstate_dir = "/var/lib/extralife"\n')
    empty.run("--volume", f"{config}:/own.toml:ro", "--env", "EXTRALIFE_CONFIG=/own.toml")
    assert (empty.ended(), "/var/lib/extralife is not on a volume" in empty.said()) == (1, True)


@pytest.fixture
def small(tmp_path):
    """A box on a disk of 96 MiB."""
    made, image = Box(tmp_path / "small"), tmp_path / "disk"
    subprocess.run(["truncate", "--size", "96M", image], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-m", "0", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, made.volume], check=False, capture_output=True).returncode:
        pytest.skip("this machine has no loop devices")
    try:
        yield made
    finally:
        made.close()
        subprocess.run(["umount", made.volume], check=True)


@pytest.mark.slow
def test_on_a_full_volume_the_container_stays_and_goes_on_once_there_is_room(installed, small):
    shutil.copytree(installed, small.home / "releases", symlinks=True)
    (small.home / "extralife.toml").write_text(COUNTER)
    subprocess.run(["dd", "if=/dev/zero", f"of={small.volume}/filler", "bs=1M"], check=False, capture_output=True)
    small.run()
    until(small.said, 20, "a sentence", small.said)
    said = "entrypoint: only 0 MiB are free on the volume, in /workspace/extralife; 16 MiB are needed to start. Remove something"
    assert small.said().startswith(said)
    small.exec("rm", "/workspace/filler")
    small.trains()
    assert small.said().count("MiB are needed") == 1


@pytest.mark.slow
@pytest.mark.parametrize("needed_mib", [3072, 10240])
def test_an_installation_waits_for_its_room(small, needed_mib):
    with_gpu = ("-v", "/dev/null:/dev/nvidia0", "-e", "EXTRALIFE_PACKAGES=", "-e", "PYTHON=/usr/bin/python3")
    small.run(*(with_gpu if needed_mib > 3072 else ()))
    until(lambda: f"{needed_mib} MiB are needed to install" in small.said(), 60, "a sentence", small.said)
    assert small.stop(10) < 5


def test_an_image_without_a_fitting_python_is_refused(empty, tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.10.12\n')
    old.chmod(0o755)
    assert "Python 3.11 or newer is needed, and /python3 is Python 3.10.12" in refused(
        empty, "--volume", f"{old}:/python3:ro", "--env", "PYTHON=/python3"
    )
    shutil.rmtree(empty.home)
    os.chown(empty.volume, 12345, 12345)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing/__init__.py").write_text("raise ImportError")
    ensurepip = f"{sysconfig.get_path('stdlib')}/ensurepip"
    empty.run("--env", "EXTRALIFE_PACKAGES=", "--user", "12345:12345", "--volume", f"{tmp_path}/nothing:{ensurepip}:ro")
    assert empty.ended() == 1
    lines = empty.said().splitlines()
    assert lines[0].startswith(
        "system-packages: python3-venv is missing and could not be installed here. Install it as root"
    )
    assert lines[-1] == "bootstrap: nothing was installed; the lines above name the missing packages"
    assert not list(empty.home.glob("releases/*/.complete"))


def test_a_stop_at_any_moment_of_the_install_is_quick_and_the_next_start_installs(empty):
    for half in (".holder", "releases/*/supervisor", "releases/*/.venv"):
        empty.run()
        until(lambda half=half: list(empty.home.glob(half)), 10, half, empty.said)
        assert empty.stop(20) < 10
        assert empty.status_of_end() == 143
        assert "Traceback" not in empty.said()
    empty.start()
    until((empty.home / "state/journal.sqlite").exists, 60, "the daemon", empty.said)
    assert 'state_dir = "/workspace/extralife/state"' in (empty.home / "extralife.toml").read_text()


@pytest.mark.slow
def test_an_installation_is_used_again_and_a_damaged_one_made_anew(box):
    [release] = box.home.glob("releases/*")
    made_ns = (release / ".complete").stat().st_mtime_ns
    box.run()
    box.trains()
    assert (release / ".complete").stat().st_mtime_ns == made_ns
    box.kill()
    (release / "supervisor/shell/daemon.py").unlink()
    for each in release.glob("supervisor/shell/__pycache__/daemon.*"):
        each.unlink()
    box.start()
    box.trains()
    assert (release / ".complete").stat().st_mtime_ns != made_ns
    assert "is damaged (the lines above say how): installs again" in box.said()


def test_a_killed_daemon_is_started_again_and_a_shutdown_ends_the_container(box):
    box.run()
    before = box.trains()
    box.exec("sh", "-c", "kill -9 $(/workspace/extralife/extralifectl pid)")
    until(lambda: "the daemon ended (status 137); starts again in 0.5 s" in box.said(), 10, "the entrypoint", box.said)
    assert box.trains()["pid"] == before["pid"], "the worker trains on"
    # What nobody waits for is reaped by the first process.
    box.exec("sh", "-c", "(sleep 0.1 &) ; (sleep 0.1 &)")
    until(lambda: " Z" not in box.exec("ps", "-eo", "comm,stat").stdout, 10, "the orphans to be reaped")
    assert box.exec(ENTRYPOINT).stdout.startswith("entrypoint: extralife already runs in this container")
    assert json.loads(box.exec(ENTRYPOINT, "probe", "live").stdout)["ok"] is True
    second = Box(box.volume)
    second.names = box.names
    first = box.name
    assert "runs extralife on this volume" in refused(second)
    box.names.append(first)
    box.ctl("shutdown")
    assert box.ended() == 0
    assert "extralife was shut down" in box.said()


@pytest.mark.slow
def test_under_an_init_it_stays_after_a_shutdown_where_its_end_would_start_it_again(box):
    box.run("--init", "--env", "EXTRALIFE_AFTER_SHUTDOWN=stay")
    box.trains()
    box.ctl("shutdown")
    until(lambda: "extralife was shut down" in box.said(), 20, "the shutdown")
    assert box.exec(ENTRYPOINT, "probe", "live", check=False).returncode == 1
    assert box.stop(10) < 5


@pytest.mark.slow
def test_try_as_the_command_of_a_container_stays_in_the_foreground(box):
    [release] = box.home.glob("releases/*")
    clone = box.volume / "clone"
    shutil.copytree(release, clone, symlinks=True)
    (clone / "deploy/bootstrap").write_text("#!/bin/sh\n")
    (clone / "extralife.toml").write_text((box.home / "extralife.toml").read_text().replace("extralife/state", "clone/run"))
    box.run(command=("sh", "-c", "cd /workspace/clone && exec deploy/try"))
    ctl = ("sh", "-c", "cd /workspace/clone && .venv/bin/extralifectl pid", "ctl")
    until(lambda: box.exec(*ctl, check=False).returncode == 0, 60, "the daemon", box.said)
    assert box.stop(20) < 15
    assert box.status_of_end() == 0, box.said()
