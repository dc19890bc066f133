"""State and runtime directories that cannot be used: on real file systems, as real users."""

import contextlib
import grp
import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tools import MEMORY_DIR, ROOT, mounted

from supervisor.config import directories, source
from supervisor.config.validation import Origin, Validation
from supervisor.model.settings import Paths

PONG = "[program.Pong]\n"
NOBODY = 65534
TELL = """
import sys
from supervisor import config
try:
    for warning in config.load(sys.argv[1], {"EXTRALIFE_RUNTIME_DIR": "MEMORY_DIR/xl-test"}).warnings:
        print("warning:", warning)
except config.ConfigError as error:
    print(*error.errors, sep="\\n")
""".replace("MEMORY_DIR", str(MEMORY_DIR))


def write(place, state_dir):
    place.file.write_text(f'[daemon]\nstate_dir = "{state_dir}"\n{PONG}')


def told(place, *prefix):
    """What a process of its own says of the file, in a namespace with other file systems."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", TELL, str(place.file)], cwd=ROOT, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(place.file), "FILE").replace(str(place.directory), "DIR")


def test_a_missing_parent_may_be_a_disk_that_is_not_mounted(place):
    (error,) = place.errors(PONG, {"EXTRALIFE_STATE_DIR": str(place.directory / "disk" / "state")})
    assert error == (
        f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: {place.directory}/disk does not exist; "
        "create it, mount its disk, or choose with --state-dir"
    )
    (error,) = place.errors(PONG, state_dir=str(place.directory / "a" / "b" / "c"))
    assert error.startswith(f"flag --state-dir: daemon.state_dir: {place.directory}/a/b does not exist")


def test_what_is_no_directory(place):
    (place.directory / "state").write_text("")
    where = "environment variable EXTRALIFE_STATE_DIR: daemon.state_dir"
    sentence = f"{where}: {place.directory}/state is not a directory; choose another place with --state-dir"
    assert place.errors(PONG) == [sentence]
    assert place.errors(PONG, {"EXTRALIFE_STATE_DIR": f"{place.directory}/state/below"}) == [sentence]
    (place.directory / "loop").symlink_to("loop")
    assert "loop is not a directory" in place.errors(PONG, state_dir=f"{place.directory}/loop")[0]
    (error,) = place.errors(PONG, runtime_dir=str(place.directory / "state"))[1:]
    assert error == (
        f"flag --runtime-dir: daemon.runtime_dir: {place.directory}/state is not a directory; "
        "choose another place with --runtime-dir"
    )


def test_the_path_of_a_socket_has_107_bytes(place):
    short = f"{MEMORY_DIR}/" + "x" * (107 - len(f"{MEMORY_DIR}/") - len("/supervisor.sock"))
    assert place.errors(PONG, runtime_dir=short) == []
    (error,) = place.errors(PONG, runtime_dir=short + "x")
    assert error == (
        f"flag --runtime-dir: daemon.runtime_dir makes the path of a socket 108 bytes long, {short}x/supervisor.sock, "
        "and the kernel allows 107; choose a shorter one with --runtime-dir"
    )
    (error,) = place.errors(f'[program.{"n" * 64}]\ncommand = "sleep 1"\n', runtime_dir=short)
    assert f"/notify/{'n' * 64}, and the kernel allows 107" in error, "a long name counts too"
    (error,) = place.errors(PONG, runtime_dir=f"{MEMORY_DIR}/" + "é" * 45)
    assert f"socket {len(str(MEMORY_DIR)) + 107} bytes" in error, "bytes, not characters"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_somebody_elses(place):
    state = place.directory / "state"
    state.mkdir()
    os.chown(state, NOBODY, -1)
    (error,) = place.errors(PONG)
    assert error == (
        f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: {state} belongs to nobody, not to root; "
        "run as nobody or choose with --state-dir"
    )
    os.chown(state, 12345, -1)
    assert place.errors(PONG) == [
        (
            f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: {state} belongs to user 12345, not to root; "
            "run as user 12345 or choose with --state-dir"
        )
    ]
    assert place.load(PONG, look=False).settings.paths.state_dir == str(state), "a client need not own it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_root_checks_the_file_of_a_service_that_has_a_user_of_its_own():
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # pytest's own are root's alone, all the way up
        base = Path(directory)
        base.chmod(0o755)
        state, runtime = base / "state", base / "run"
        file = base / "service.toml"
        file.write_text(f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{runtime}"\n{PONG}')

        def check():
            command = [sys.executable, "-m", "supervisor", "-c", str(file), "--check"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stderr

        assert check() == (0, ""), "before the first start nothing exists"
        state.mkdir(mode=0o750)
        os.chown(state, NOBODY, -1)
        assert check() == (0, ""), "systemd makes the runtime directory at the start"
        runtime.mkdir(mode=0o700)
        code, said = check()
        assert (code, f"{runtime} belongs to root, not to nobody" in said) == (2, True), said
        os.chown(runtime, NOBODY, -1)
        assert check() == (0, "")
        state.chmod(0o550)
        code, said = check()
        assert (code, f"{state} is read-only for nobody" in said) == (2, True), said


def test_a_runtime_directory_that_others_may_change_is_refused(place):
    runtime = place.directory / "run"
    runtime.mkdir()
    assert place.errors(PONG, runtime_dir=str(runtime)) == []
    runtime.chmod(0o777)
    (error,) = place.errors(PONG, runtime_dir=str(runtime))
    assert error == (
        f"flag --runtime-dir: daemon.runtime_dir: {runtime} is not safe: every user may write to {runtime} (mode 0777), "
        "and the daemon trusts the files in it; remove that permission (chmod go-w), "
        "or choose another place with --runtime-dir"
    )
    assert place.load(PONG, look=False, runtime_dir=str(runtime)).warnings == (), "a client does not judge it"


@pytest.mark.parametrize("part", ["file", "directory"])
def test_a_configuration_that_others_may_change_is_a_warning(place, part):
    assert place.load(PONG).warnings == ()
    path = place.file if part == "file" else place.directory
    path.chmod(0o666 if part == "file" else 0o777)
    user = pwd.getpwuid(os.geteuid()).pw_name
    why = f"every user may write to {path} (mode {path.stat().st_mode & 0o7777:04o}), and so decides which commands run as {user}"
    assert f"{place.file}: {why}; chmod go-w" in place.load(PONG).warnings
    assert place.load(PONG, look=False).warnings == ()


def test_a_state_directory_that_others_may_change_is_a_warning(place):
    state = place.directory / "state"
    state.mkdir()
    state.chmod(0o777)
    assert place.load(PONG).warnings == (
        (
            f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: every user may write to {state} (mode 0777); "
            "another user could replace checkpoints; chmod go-w"
        ),
    )


@contextlib.contextmanager
def as_nobody():
    """Real and effective user; root can come back because the saved one stays."""
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_group_that_the_daemons_user_is_not_in_is_refused_where_it_is_configured(place):
    group = next(entry.gr_name for entry in grp.getgrall() if entry.gr_gid not in {0, NOBODY} and not entry.gr_mem)
    text = f'[daemon]\nsocket_group = "{group}"\n{PONG}'
    assert place.errors(text) == [], "root may give a file to any group"
    state = place.directory / "state"
    state.mkdir()
    os.chown(state, NOBODY, -1)
    sentence = (
        f"daemon.socket_group: the user nobody is not in the group {group}; "
        f"add the user to it (usermod -aG {group} USER), or leave it empty"
    )
    assert f"FILE, line 2: {sentence}" in place.errors(text), "root asks about the owner of the state directory"
    assert place.load(text, look=False).warnings == (), "a client does not judge it"
    os.chown(state, 0, -1)
    text = text.replace(f'"{group}"', '"nosuchgroup"')
    assert place.load(text, starting=True).warnings == (
        f"{place.file}, line 2: daemon.socket_group: there is no group 'nosuchgroup'; create it, or leave it empty",
    )


def test_one_that_this_user_cannot_write():
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)  # pytest's own are closed to others on the way
        state = Path(directory, "state")
        state.mkdir(mode=0o500)
        validation, origin = Validation(source.read(None)), Origin("flag", "--state-dir")
        root = os.geteuid() == 0
        if root:
            os.chown(state, NOBODY, -1)
        with as_nobody() if root else contextlib.nullcontext():
            directories.check(validation, Paths(str(state), f"{MEMORY_DIR}/xl-test"), origin, Origin("default"), [])
        (error,) = validation.errors
        assert error.startswith(f"flag --state-dir: daemon.state_dir: {state} is read-only for ")
        assert error.endswith("; change its mode or choose another with --state-dir")


def test_a_read_only_file_system(place):
    disk = place.directory / "disk"
    disk.mkdir()
    write(place, disk / "state")
    assert told(place, *mounted("ro", disk)) == (
        "FILE, line 2: daemon.state_dir: DIR/disk lies on a read-only file system; choose another place with --state-dir\n"
    )


def test_a_full_disk_is_refused_for_a_new_state_and_a_warning_for_an_old_one(place):
    disk = place.directory / "disk"
    disk.mkdir()
    write(place, disk / "state")
    full = (
        "FILE, line 2: daemon.state_dir: only 8 MiB are free for DIR/disk/state, at least 64 MiB are needed; "
        "make room or choose another place with --state-dir\n"
    )
    prefix = mounted("size=8m", disk)
    assert told(place, *prefix) == full
    old = ("sh", "-c", f'mkdir "{disk}/state" && echo > "{disk}/state/journal.sqlite" && exec "$@"', "sh")
    assert told(place, *prefix, *old) == f"warning: {full.replace('8 MiB', '7 MiB')}", "there are trainings to look after"
    assert told(place, *mounted("size=64m", disk)) == "", "just enough"
    assert told(place, *mounted("size=65532k", disk)) == full.replace("8 MiB", "63 MiB")
    no_inode = full.replace("only 8 MiB are free", "no inode is free")
    assert told(place, *mounted("size=80m,nr_inodes=1", disk)) == no_inode
    assert told(place, *mounted("size=80m,nr_inodes=0", disk)) == "", "a file system that counts none"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            "fuse.sshfs",
            "where another machine holds the files, neither the lock against a second daemon nor the journal can be relied on",
        ),
        ("vfat", "it keeps no owners and modes, and a power cut can take what was written and renamed"),
    ],
)
def test_a_file_system_of_another_kind_is_a_warning(place, monkeypatch, kind, says):
    """Which these are cannot be had everywhere; that the kernel's word for them is read is `test_filesystems.py`."""
    monkeypatch.setattr(directories, "kind_of", lambda _path: kind)
    assert place.load(PONG).warnings == (
        (
            f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: {place.directory} lies on {kind}: {says}; "
            "choose a disk of this machine with --state-dir"
        ),
    )


SLURM = '[launcher]\nkind = "slurm"\n'


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
@pytest.mark.needs("slurm")
def test_nodes_of_a_cluster_must_see_the_state_directory(place, monkeypatch, kind):
    monkeypatch.setattr(directories, "kind_of", lambda _path: kind)
    assert place.load(SLURM + PONG).warnings == (
        (
            f"environment variable EXTRALIFE_STATE_DIR: daemon.state_dir: {place.directory} lies on {kind}, which nodes of the "
            "cluster do not see; choose a directory that they share with --state-dir"
        ),
    )


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "fuse.sshfs", ""])
@pytest.mark.needs("slurm")
def test_a_shared_one_is_right_for_a_cluster(place, monkeypatch, kind):
    monkeypatch.setattr(directories, "kind_of", lambda _path: kind)
    assert place.load(SLURM + PONG).warnings == ()
