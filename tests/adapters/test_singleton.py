"""One daemon per state directory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from attempts_kit import REPO

from supervisor.adapters.foundations import of_path
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


def test_a_second_daemon_is_refused_and_told_the_first_ones_pid(tmp_path, other_daemon):
    with pytest.raises(Taken) as taken:
        hold(str(tmp_path / "lock"))
    then = "stop that one first, or choose another state_dir"
    assert str(taken.value) == f"another supervisord (pid {other_daemon.pid}) runs on {tmp_path}: {then}"
    (tmp_path / "lock").write_text("no number")
    with pytest.raises(Taken) as taken:
        hold(str(tmp_path / "lock"))
    assert str(taken.value) == f"another supervisord (pid unknown) runs on {tmp_path}: {then}"


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


def test_a_removed_lock_is_locked_anew_under_its_name(tmp_path):
    lock = hold(str(tmp_path / "lock"))
    (tmp_path / "lock").unlink()
    lock.restore()
    assert of_path(tmp_path / "lock") == lock.identity()
    with pytest.raises(Taken, match=rf"pid {os.getpid()}\)"):
        hold(str(tmp_path / "lock"))
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]
    lock.release()


def test_an_empty_file_in_its_place_becomes_the_lock(tmp_path):
    lock = hold(str(tmp_path / "lock"))
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").touch()
    lock.restore()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert of_path(tmp_path / "lock").same(lock.identity())
    lock.release()


def test_a_lock_that_another_daemon_took_meanwhile_stays_its_own(tmp_path):
    lock = hold(str(tmp_path / "lock"))
    (tmp_path / "lock").unlink()
    args = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(args, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(OSError, match=rf"\] another supervisord \(pid {other.pid}\) has locked it$"):
            lock.restore()
        other.kill()
    lock.release()


def test_no_lock_is_made_in_another_directory(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    lock = hold(str(state / "lock"))
    state.rename(tmp_path / "away")
    state.mkdir()
    with pytest.raises(OSError, match=r"\] the state directory is not the one with which extralife started$"):
        lock.restore()
    assert not list(state.iterdir())
    lock.release()


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
