"""One daemon per state directory."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest
from attempts_kit import REPO
from leaks import open_files

from supervisor.adapters.singleton import Taken, _name, claim, hold

HOLDER = (
    "import sys; from supervisor.adapters.singleton import hold; s = hold(sys.argv[1]); print(flush=True); sys.stdin.read()"
)


@pytest.fixture
def other_daemon(tmp_path):
    args = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(args, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_the_lock_goes_with_the_daemon_however_it_ends(tmp_path, other_daemon):
    other_daemon.kill()
    other_daemon.wait()
    lock = hold(str(tmp_path / "lock"))
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    hold(str(tmp_path / "lock")).release()


def test_workers_do_not_inherit_it(tmp_path):
    lock = hold(str(tmp_path / "lock"))
    with subprocess.Popen(["sleep", "60"], close_fds=False) as worker:
        lock.release()
        hold(str(tmp_path / "lock")).release()
        worker.kill()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(
        OSError,
        match=f"cannot use {tmp_path}/none as state directory: No such file or directory; create it or choose another state_dir$",
    ):
        hold(str(tmp_path / "none" / "lock"))


def test_a_name_in_the_kernel_outlives_every_file(tmp_path):
    state = tmp_path / "state"
    witness = claim(str(state))
    assert witness is not None
    with pytest.raises(Taken, match=rf"another supervisord \(pid {os.getpid()}\) runs on {state}: stop"):
        claim(str(state))
    other = claim(str(tmp_path / "other"))
    assert other is not None, "another state directory is another name"
    other.close()
    witness.close()
    again = claim(str(state))
    assert again is not None, "it goes with the process that held it"
    again.close()


def test_the_name_is_handed_on_to_the_next_image_of_the_same_state_directory(tmp_path):
    before = open_files()
    lock = hold(str(tmp_path / "lock"), claim(str(tmp_path)))
    fd = os.dup(int(lock.hand_on()))  # as after the exec
    assert os.get_inheritable(int(lock.hand_on()))
    lock.release()
    with pytest.raises(Taken):
        claim(str(tmp_path))
    again = claim(str(tmp_path), str(fd))
    assert (again.fileno(), os.get_inheritable(fd)) == (fd, False)
    other = claim(str(tmp_path / "other"), str(again.detach()))
    assert other.fileno() >= 0
    claim(str(tmp_path)).close()
    other.close()
    lock = hold(str(tmp_path / "lock"))
    assert lock.hand_on() == ""
    lock.release()
    assert open_files() <= before


def test_the_lock_file_is_its_owners_alone_and_who_is_refused_leaves_nothing_open(tmp_path, no_umask):
    before = open_files()
    lock = hold(str(tmp_path / "lock"), claim(str(tmp_path)))
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    for refused in (lambda: hold(str(tmp_path / "lock")), lambda: claim(str(tmp_path))):
        with pytest.raises(Taken):
            refused()
    assert open_files() <= before + 2, "the lock and the name in the kernel"
    lock.release()
    assert lock.identity() is None
    assert open_files() <= before


def test_a_file_system_without_locks_is_an_error_and_leaves_nothing_open(tmp_path, monkeypatch):
    lock = hold(str(tmp_path / "lock"))
    (tmp_path / "lock").unlink()
    before = open_files()

    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    for failing in (lock.refuse_if_held, lambda: hold(str(tmp_path / "lock"))):
        with pytest.raises(OSError, match="No locks available"):
            failing()
    assert open_files() <= before
    monkeypatch.undo()
    lock.refuse_if_held()
    assert open_files() <= before
    lock.release()


@pytest.mark.root
def test_a_name_that_another_user_has_taken_says_nothing(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    name = _name(str(tmp_path))
    script = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.bind(bytes.fromhex(sys.argv[1]));"
        "s.listen(1); print(flush=True); sys.stdin.read()"
    )
    args = [sys.executable, "-c", script, name.hex()]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert claim(str(tmp_path)) is None
        other.kill()
