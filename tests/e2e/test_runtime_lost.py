"""The runtime directory, or what lies in it, is removed under a running daemon: logind does so at a logout."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from pathlib import Path

import pytest
from box import FLOOR_S, ROOT, Box, remove, until


def in_place(box: Box) -> bool:
    return (box.runtime / "supervisor.sock").is_socket() and box.ctl("status").returncode in {0, 3}


@pytest.mark.fault("runtime-removed")
def test_a_removed_runtime_directory_is_made_again_with_all_that_was_in_it(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"), floor_s=FLOOR_S)
    box.start()
    before = {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"}
    remove(box.runtime)
    until(lambda: in_place(box), 20, "the control socket to be back")
    until(lambda: not box.status()["daemon"]["foundations"], 20, "nothing to be amiss any more")
    assert box.runtime.stat().st_mode & 0o077 == 0
    for file in ("boot-marker", "notify/a", "notify/b", "shims/a.json", "shims/b.json"):
        until(lambda file=file: (box.runtime / file).exists(), 20, file)
    steps = box.program("a")["steps"] or 0
    until(lambda: (box.program("a")["steps"] or 0) > steps, 20, "its beats to be read again")
    assert "extralife restarts itself, which restores: runtime directory" in box.ctl("history").stdout
    assert [fact["adopted"] for fact in box.facts("DaemonStarted")] == [0, 2]
    box.ctl("restart", "b")  # everything that a start needs is there
    until(
        lambda: (now := box.program("b")) and now["phase"] == "RUNNING" and now["pid"] != before["b"], 30, "another worker"
    )
    assert box.program("a")["pid"] == before["a"]
    assert not box.facts("Stalled")


def test_a_removed_control_socket_is_listened_on_again_and_another_ones_file_is_kept(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    path = box.runtime / "supervisor.sock"
    aside = box.runtime / "aside"  # in its place at once: the daemon may listen there again as soon as it is gone
    aside.write_text("somebody's")
    aside.replace(path)
    until(lambda: in_place(box), 20, "the control socket to be back")
    assert (box.runtime / "supervisor.sock.found").read_text() == "somebody's"
    path.unlink()
    assert box.daemon is not None
    box.daemon.send_signal(signal.SIGHUP)
    until(lambda: in_place(box), 20, "it to be back after a reload too")
    box.kill_daemon()
    box.start()
    assert box.program("a")["restarts"] == 0


def test_a_start_waits_while_the_runtime_directory_has_no_room(box: Box) -> None:
    """Its worker could not make its beat file: eight such deaths would be a slow retry."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(box.runtime)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here: that needs root")
    try:
        box.config(box.trainer("a"))
        box.start()
        worker = box.wait_phase("a", "RUNNING")["pid"]
        ballast = box.runtime / "ballast"
        with pytest.raises(OSError, match="No space left on device"):
            ballast.write_bytes(bytes(1 << 20))
        full = f"the runtime directory's file system {box.runtime} is damaged (it is full); no worker is started"
        until(lambda: any(full in each["why"] for each in box.status()["daemon"]["held"]), 20, "it to hold all starts")
        os.kill(worker, signal.SIGKILL)
        box.wait_fact("Exited", "a")
        ballast.unlink()
        until(lambda: box.program("a")["phase"] == "RUNNING", 20, "the next attempt")
        assert [each["signal"] for each in box.facts("Exited")] == [signal.SIGKILL]
    finally:
        box.close()
        subprocess.run(["umount", "-l", str(box.runtime)], check=True)


@pytest.mark.fault("runtime-removed")
def test_a_daemon_started_after_the_removal_adopts_and_nobody_is_ended_as_silent(box: Box) -> None:
    box.config(box.trainer("a"), floor_s=FLOOR_S)
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    box.kill_daemon()
    remove(box.runtime)
    box.start()
    program = box.wait_phase("a", "RUNNING")
    assert program["pid"] == worker
    until(lambda: list(Path(box.runtime, "beats").glob("a.*.beat")), 20, "the worker to make its beat file again")
    steps = until(lambda: box.program("a")["steps"], 20, "its beats")
    until(lambda: box.program("a")["steps"] > steps, 20, "it to get on")
    assert not box.facts("Stalled")


def test_another_kind_of_file_under_a_name_of_the_daemon_stops_neither_it_nor_the_next(box: Box) -> None:
    box.config(box.trainer("a"), floor_s=FLOOR_S)
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    running = {box.state / "extralife.log": os.mkfifo, box.state / "lock": os.mkfifo, box.runtime / "boot-marker": os.mkdir}
    for path, make in running.items():
        path.unlink()
        make(path)
    for path in running:
        until(path.is_file, 20, str(path))
        assert path.with_name(f"{path.name}.found").exists()
    until(lambda: not box.status()["daemon"]["foundations"], 20, "nothing to be amiss any more")
    assert "extralife.log was replaced (by a FIFO" in box.ctl("history").stdout
    os.mkfifo(box.state / "journal.sqlite.rebuilt")
    box.kill_daemon()
    for name in ("extralife.log", "lock", "alive", "last-config", "reboot_alerts.log", "journal-archive", "backups"):
        if (path := box.state / name).exists():
            path.rename(path.with_name(f"{name}.before"))
        os.mkfifo(path)
    for name in ("boot-marker", "supervisor.sock"):
        (box.runtime / name).unlink()
        (box.runtime / name).mkdir()
    box.start()
    assert box.wait_phase("a", "RUNNING")["pid"] == worker
    until(lambda: "file alive" in box.ctl("history").stdout, 20, "it to be reported")


@pytest.mark.fault("beat-damaged")
def test_an_overwritten_beat_is_told_as_such_and_is_no_stall(box: Box) -> None:
    box.config(box.trainer("a"), floor_s=FLOOR_S)
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    (beat,) = Path(box.runtime, "beats").glob("a.*.beat")
    with beat.open("r+b") as file:
        file.write(b"\xff" * 200)
    steps = box.program("a")["steps"] or 0
    until(lambda: (box.program("a")["steps"] or 0) > steps + 5, 20, "its beats to be read again")
    assert box.program("a")["pid"] == worker
    assert not box.facts("Stalled")


def test_no_restart_while_the_next_image_could_not_start(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    python = box.directory / "python"
    python.symlink_to(Path(sys.executable).resolve())
    box.env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *site.getsitepackages()])
    box.under = ["env"]
    monkeypatch.setattr(sys, "executable", str(python))
    box.config(box.trainer("a"))
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    python.rename(box.directory / "aside")
    (box.state / "lock").unlink()
    (trouble,) = until(lambda: box.status()["daemon"]["foundations"], 20, "the trouble")
    assert f"restoring it failed ({python} cannot be started: No such file or directory)" in trouble["why"]
    (box.directory / "aside").rename(python)
    until((box.state / "lock").exists, 60, "the restart")
    assert box.wait_phase("a", "RUNNING")["pid"] == worker


def test_no_restart_while_neither_the_configuration_nor_the_last_good_one_can_be_used(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    worker = box.wait_phase("a", "RUNNING")["pid"]
    box.runtime.chmod(0o777)  # both refuse it
    (box.state / "lock").unlink()
    (trouble,) = until(lambda: box.status()["daemon"]["foundations"], 20, "the trouble")
    assert "restoring it failed" in trouble["why"]
    assert "daemon.runtime_dir" in trouble["why"]
    box.runtime.chmod(0o700)
    box.config_file.write_text("[daemon")
    until((box.state / "lock").exists, 60, "the restart with the last good one")
    assert box.wait_phase("a", "RUNNING")["pid"] == worker


def test_a_daemon_with_closed_standard_streams_trains_and_none_of_its_files_takes_their_place(box: Box) -> None:
    box.config(box.trainer("a"))
    box.under = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    daemon = box.start()
    box.wait_phase("a", "RUNNING")
    assert {os.readlink(f"/proc/{daemon.pid}/fd/{number}") for number in range(3)} == {os.devnull}
