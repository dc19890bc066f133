"""The control socket's file: access, refusals that leave nothing behind, being restored, and its place in the queue."""

from __future__ import annotations

import errno
import grp
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from fake_backend import FakeBackend
from leaks import nothing_stays_open
from serving import served
from tools import ROOT

from supervisor.api.listener import SocketTaken, listen, take_over

NOBODY = 65534


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def a_group() -> grp.struct_group:
    return next(entry for entry in grp.getgrall() if entry.gr_gid not in {0, NOBODY})


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


@pytest.mark.parametrize(
    ("name", "number", "says"),
    [
        ("none/s", errno.ENOENT, "cannot make the control socket {}: No such file or directory"),
        ("file/s", errno.ENOTDIR, "cannot use {} as control socket: Not a directory"),
    ],
)
def test_a_socket_that_cannot_be_made_leaves_nothing(socket_path: Path, name: str, number: int, says: str) -> None:
    (socket_path.parent / "file").touch()
    path = str(socket_path.parent / name)
    with nothing_stays_open(), pytest.raises(OSError, match=f"^{re.escape(f'[Errno {number}] {says.format(path)}')}$"):
        listen(path)
    assert sorted(each.name for each in socket_path.parent.iterdir()) == ["file"]


def test_a_second_daemon_gets_a_remedy_and_takes_nothing(socket_path: Path) -> None:
    first = listen(str(socket_path))
    says = f"socket taken: another daemon answers on {socket_path}; stop that one first, or choose another state_dir"
    with nothing_stays_open(), pytest.raises(SocketTaken, match=f"^{re.escape(says)}$"):
        listen(str(socket_path))
    assert answers(socket_path)
    first.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group that it is not in")
@pytest.mark.parametrize(("before", "after"), [(0o700, 0o710), (0o750, 0o750), (0o711, 0o711)])
def test_the_group_may_enter_the_directory_of_its_socket(socket_path: Path, before: int, after: int) -> None:
    group = a_group()
    directory = socket_path.parent
    directory.chmod(before)
    listener = listen(str(socket_path), group.gr_name)
    assert (listener.trouble, socket_path.stat().st_gid, mode_of(socket_path)) == ("", group.gr_gid, 0o660)
    opened = before & stat.S_IXOTH
    assert (mode_of(directory), directory.stat().st_gid) == (after, 0 if opened else group.gr_gid)
    listener.close()


def test_a_group_that_is_not_there_costs_the_group_its_access_and_nobody_the_start(socket_path: Path) -> None:
    listener = listen(str(socket_path), "nosuchgroup")
    assert listener.trouble == (
        "daemon.socket_group: there is no group 'nosuchgroup'; only the daemon's own user and root can use the control socket"
    )
    assert mode_of(socket_path) == 0o600
    assert answers(socket_path)
    listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_group_that_the_user_is_not_in_costs_the_group_its_access_and_nobody_the_start() -> None:
    group = next(entry.gr_name for entry in grp.getgrall() if entry.gr_gid not in {0, NOBODY} and not entry.gr_mem)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chown(directory, NOBODY, NOBODY)
        path = Path(directory, "s.sock")
        code = (
            "import os, sys; from supervisor.api.listener import listen; import grp, pwd\n"
            f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); print(listen(*sys.argv[1:]).trouble)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), group], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith(f"daemon.socket_group: the user nobody is not in the group {group}; only"), done.stderr
        assert mode_of(path) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group that it is not in")
def test_a_socket_taken_over_is_given_to_the_group_again(socket_path: Path) -> None:
    """systemd makes the runtime directory, and all that is in it, the service's alone before each start."""
    group = a_group()
    before = listen(str(socket_path), group.gr_name)
    for path in (socket_path, socket_path.parent):
        os.chown(path, 0, 0)
        path.chmod(0o700)
    after = take_over(before.sock.detach(), str(socket_path), group.gr_name)
    assert after.trouble == ""
    assert (socket_path.stat().st_gid, mode_of(socket_path)) == (group.gr_gid, 0o660)
    directory = socket_path.parent.stat()
    assert (directory.st_gid, stat.S_IMODE(directory.st_mode)) == (group.gr_gid, 0o710)
    last = take_over(after.sock.detach(), str(socket_path))
    assert mode_of(socket_path) == 0o600, "the configuration names no group any more"
    last.close()


def test_a_stale_socket_file_is_replaced(socket_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(socket_path))
    left.listen()
    left.close()
    assert socket_path.exists()
    listener = listen(str(socket_path))
    assert answers(socket_path)
    listener.close()


# --- another image of the daemon ---------------------------------------------------------------------------------------------


def test_a_socket_is_handed_on_open_and_taken_over_closed_to_children(socket_path: Path) -> None:
    first = listen(str(socket_path))
    socket_path.chmod(0o666)
    fd = int(first.hand_on())
    assert (fd, os.get_inheritable(fd)) == (first.sock.fileno(), True)
    second = take_over(first.sock.detach(), str(socket_path))
    assert (second.sock.fileno(), os.get_inheritable(fd), second.trouble, second.path) == (fd, False, "", str(socket_path))
    assert mode_of(socket_path) == 0o600
    second.close()
    assert not socket_path.exists()


@pytest.mark.parametrize("foreign", [True, False])
def test_a_socket_that_no_client_can_find_is_not_handed_on(socket_path: Path, foreign: bool) -> None:
    with nothing_stays_open():
        listener = listen(str(socket_path))
        assert listener.hand_on() == str(listener.sock.fileno())
        aside = socket_path.with_name("aside")
        if foreign:
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(aside))
            aside.replace(socket_path)
        else:
            socket_path.unlink()
        assert listener.hand_on() == ""
        listener.close()
        assert socket_path.exists() is foreign


# --- the queue ---------------------------------------------------------------------------------------------------------------


def connected(path: Path, most: int) -> list[socket.socket]:
    """As many as the kernel lets wait: none of them waits here."""
    found = []
    for _ in range(most):
        sock = socket.socket(socket.AF_UNIX)
        found.append(sock)
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            sock.close()
            return found[:-1]
    return found


def test_two_hundred_clients_wait_while_nobody_accepts_them(socket_path: Path) -> None:
    """Before the server starts, and while its thread is busy: asyncio alone would make the queue as short as one of its turns."""
    listener = listen(str(socket_path))
    waiting = connected(socket_path, 200)
    assert len(waiting) == 200
    for sock in waiting:
        sock.close()
    listener.close()
    busy, over = threading.Event(), threading.Event()

    class Stuck(FakeBackend):
        def turn(self) -> object:
            busy.set()
            over.wait(60)
            return super().turn()

    with served(Stuck(), socket_path), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(socket_path))
        first.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert busy.wait(30)
        waiting = connected(socket_path, 200)
        over.set()
        assert len(waiting) == 200
        for sock in waiting:
            sock.close()
