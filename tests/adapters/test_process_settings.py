"""How a process runs that has settings of its own: real shims, real pipes, real users."""

from __future__ import annotations

import os
import pwd
import subprocess
import threading
import time
from pathlib import Path

import pytest
from attempts_kit import World, eventually
from leaks import open_files

from supervisor import users
from supervisor.adapters import procfs, stdin
from supervisor.adapters.logs import LogGuard
from supervisor.adapters.process import processes
from supervisor.model.inputs import Ended, SpawnBroke
from supervisor.model.settings import DaemonSettings, Paths, ProgramSpec, Settings

ECHO = ["sh", "-c", "while read -r line; do echo got $line; done; echo the end"]


def test_what_is_sent_arrives_and_the_pipe_outlives_every_sender(world: World) -> None:
    found = world.run(ECHO, stdin=True)
    shim = found.shim_pid, found.shim_start_ticks
    stdin.send(*shim, "größer\n".encode())
    stdin.send(*shim, b"")
    world.new_launcher()
    stdin.send(*shim, b"again\n")
    assert eventually(lambda: world.stdout() == "got größer\ngot again\n"), world.stdout()


def test_the_pid_that_belongs_to_another_process_by_now_gets_no_input(world, monkeypatch):
    """The process ends between the look at it and the open of its pipe, and its pid is given to another one."""
    found = world.run(ECHO, stdin=True)
    ended = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(ended.pid)
    ended.wait()
    monkeypatch.setattr(stdin.procfs, "open_verified", lambda _pid, _ticks: os.dup(pidfd))
    with pytest.raises(stdin.NoInput, match=r"^\[Errno 3\] it is gone$"):
        stdin.send(found.shim_pid, found.shim_start_ticks, b"x")
    monkeypatch.undo()
    stdin.send(found.shim_pid, found.shim_start_ticks, b"to the right one\n")
    os.close(pidfd)
    assert eventually(lambda: "to the right one" in world.stdout())
    assert "x" not in world.stdout()


def test_logs_at_other_places_are_those_whose_last_lines_are_kept(world: World, tmp_path: Path) -> None:
    place = tmp_path / "logs" / "web.log"
    place.parent.mkdir()
    token = world.begin(
        ["sh", "-c", "echo out; echo err >&2; umask; exit 3"], stdout_log=str(place), redirect_stderr=True, umask="027"
    )
    ended = world.inbox.expect(Ended, token)
    assert place.read_text() == "out\nerr\n0027\n"
    assert ended.ending.last_lines == ("out", "err", "0027")
    assert not list(Path(world.paths.run_dir("Pong")).glob("*.log"))


def test_no_log_at_all(world: World) -> None:
    token = world.begin(["sh", "-c", "echo out; echo err >&2; exit 3"], stdout_log="NONE", stderr_log="NONE")
    assert world.inbox.expect(Ended, token).ending.last_lines == ()
    assert not list(Path(world.paths.run_dir("Pong")).glob("*.log"))


def test_a_log_is_rotated_by_its_programs_own_bounds(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    logs = {name: tmp_path / f"{name}.log" for name in ("own", "never", "usual")}
    for path in logs.values():
        path.write_text("x" * 5000)
    own = {"own": {"log_max_bytes": 4096, "log_backups": 1}, "never": {"log_max_bytes": 0}, "usual": {}}
    specs = [ProgramSpec(name, ("x",), "d", stdout_log=str(logs[name]), **more) for name, more in own.items()]
    settings = Settings(paths, tuple(specs), daemon=DaemonSettings(log_max_bytes=4500))
    guard = LogGuard(lambda: settings)
    guard.look()
    assert {name: path.stat().st_size for name, path in logs.items()} == {"own": 0, "never": 5000, "usual": 0}
    assert sorted(path.name for path in tmp_path.glob("*.log.*")) == ["own.log.1", "usual.log.1"]


# --- another user ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_a_process_of_another_user_with_that_users_environment(world: World, tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    nobody = pwd.getpwnam("nobody")
    told = "id -u; id -g; id -G; pwd; echo $HOME $USER; echo $EXTRALIFE_PROGRAM$EXTRALIFE_BEAT$EXTRALIFE_RUN_DIR; exec sleep 100"
    found = world.run(["sh", "-c", told], user="nobody", env=(("USER", "mine"),))
    groups = " ".join(map(str, sorted(users.find("nobody").groups)))
    wanted = [str(nobody.pw_uid), str(nobody.pw_gid), groups, "/", f"{nobody.pw_dir} mine", "Pong"]
    assert eventually(lambda: world.stdout().splitlines() == wanted), world.stdout()
    with Path(f"/proc/{found.pid}/status").open() as status:
        ids = [line.split()[1:] for line in status if line.startswith(("Uid:", "Gid:"))]
    assert ids == [[str(nobody.pw_uid)] * 4, [str(nobody.pw_gid)] * 4], "no way back to root"
    world.launcher.kill_tree("Pong", world.tokens[-1])
    assert world.inbox.expect(Ended, world.tokens[-1]).ending.signal == 9


def test_a_user_that_is_not_there_now_is_tried_again_and_one_who_may_not_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = world.inbox.expect(SpawnBroke, world.begin(["true"], user="no-such-user"))
    assert (broke.error, broke.permanent) == ("cannot start Pong: this box has no user 'no-such-user'", False)
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    broke = world.inbox.expect(SpawnBroke, world.begin(["true"], user="root"))
    assert broke.error == (
        "cannot start Pong: only a daemon that runs as root can start a program as root; this one has user id 65533"
    )
    assert broke.permanent


def test_the_daemons_own_user_needs_no_change(world: World) -> None:
    own = users.find(str(os.getuid())).name
    order = processes.shim_order(world.paths, ProgramSpec("x", ("x",), "d", user=own), 1, "ab", "boot")
    assert order["user"] is None
    found = world.run(["sleep", "100"], user=own)
    assert found.pid


@pytest.fixture
def held():
    """The reading end, and the identity of a process whose standard input is the writing end."""
    reading, writing = os.pipe()
    with subprocess.Popen(["sleep", "60"], stdin=writing) as holder:
        os.close(writing)
        yield reading, holder.pid, procfs.read_stat(holder.pid).start_ticks
        holder.kill()
    os.close(reading)


def test_more_than_a_pipe_holds_arrives_whole(held):
    reading, *holder = held
    data, got = os.urandom(300_000), bytearray()

    def read() -> None:
        while len(got) < len(data):
            got.extend(os.read(reading, 10_000))

    reader = threading.Thread(target=read)
    reader.start()
    before = open_files()
    stdin.send(*holder, data)
    reader.join()
    assert bytes(got) == data
    assert open_files() <= before


def test_one_that_does_not_read_is_told_with_what_it_got(held, monkeypatch):
    reading, *holder = held
    monkeypatch.setattr(stdin, "_PATIENCE_S", 0.05)
    before = open_files()
    for sent in (65_536, 0):
        began_s = time.monotonic()
        with pytest.raises(BlockingIOError) as refused:
            stdin.send(*holder, b"x" * 70_000)
        assert time.monotonic() - began_s > 0.04, "it is given a moment"
        assert str(refused.value) == f"[Errno 11] it is not read: {sent} of 70000 bytes were sent"
    assert open_files() <= before
    assert len(os.read(reading, 100_000)) == 65_536


def test_a_pipe_that_nobody_reads_any_more_is_none():
    reading, writing = os.pipe()
    with subprocess.Popen(["sleep", "60"], stdin=writing) as holder:
        os.close(reading)
        os.close(writing)
        before = open_files()
        with pytest.raises(stdin.NoInput) as refused:
            stdin.send(holder.pid, procfs.read_stat(holder.pid).start_ticks, b"x")
        holder.kill()
    assert str(refused.value) == "[Errno 32] nobody reads it any more"
    assert open_files() <= before
