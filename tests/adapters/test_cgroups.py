"""A cgroup for each attempt: the same on the kernel's tree and on files that look like one, and real trees that end."""

import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import World, eventually, gone, python
from cgroups_kit import FILES, LIMITS, MB, Files, Kernel, fake_mkdir, fake_rmdir

from supervisor.adapters.process.cgroups import Cgroups, Confined, Load, OwnCgroup, find, read_note
from supervisor.model.inputs import Ended, Survival
from supervisor.policy.worker.confinement import Limits

TOKEN = "ab" * 16


@pytest.fixture(params=["files", "kernel"])
def tree(request, tmp_path):
    made = Files(tmp_path) if request.param == "files" else Kernel()
    yield made
    made.close()


@pytest.fixture
def kernel():
    made = Kernel()
    yield made
    made.close()


# --- on both ---------------------------------------------------------------------------------------------------------------


def test_an_attempt_gets_a_cgroup_that_is_found_again_and_removed(tree, tmp_path):
    groups = tree.groups()
    assert (tree.base / "daemon" / "cgroup.procs").read_text().split() == [str(os.getpid())], "the daemon goes below"
    assert (groups.view()["on"], groups.view()["path"]) == (True, str(tree.base))
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    assert path == tree.base / f"worker-Pong-{TOKEN}"
    assert {each.name for each in path.iterdir() if each.is_dir()} == {"shim", "tree"}
    assert read_note(str(tmp_path)).limits == LIMITS
    assert read_note(str(tmp_path)).path == str(path)
    groups.end(TOKEN)
    assert not path.exists()
    assert groups.read(TOKEN) is None


# --- files: every limit, everything that can be missing ---------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def text(path, name):
    return (path / name).read_text().strip()


def test_missing_controllers_are_reported_and_cost_their_limits_only(tmp_path):
    def poor(path):
        fake_mkdir(path)
        for name in FILES:
            if name.startswith(("memory.", "pids.")):
                (path / name).unlink()
        (path / "cgroup.controllers").write_text("cpu\n")

    base = tmp_path / "tree"
    poor(base)
    groups = Cgroups(OwnCgroup(str(base)), lambda _name: LIMITS, mkdir=poor, rmdir=fake_rmdir)
    groups.set_up()
    assert groups.view() == {"on": True, "why": "", "path": str(base), "controllers": ["cpu"], "lacking": ["memory", "pids"]}
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    assert text(path, "cpu.weight").startswith("250")
    assert not read_note(str(tmp_path)).counts_oom
    assert groups.read(TOKEN).memory_bytes is None


def test_one_that_cannot_be_made_costs_its_limits_only(files, tmp_path):
    groups = files.groups()
    assert groups.begin("Pong", TOKEN, str(tmp_path / "nowhere")) == ""
    assert not list(files.base.glob("worker-*"))


# --- whose part it is ----------------------------------------------------------------------------------------------------------


def world_of(root, own="/a.slice/a.service", mount="/", at="/sys/fs/cgroup"):
    (root / "proc/self").mkdir(parents=True)
    line = f"30 24 0:26 {mount} {at} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    (root / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n" + line)
    (root / "proc/self/cgroup").write_text(f"4:memory:/\n0::{own}\n")
    path = Path(f"{root}{at}{own}")
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text("")
    return path


# --- the kernel's own: real shims, real trees ----------------------------------------------------------------------------------


@pytest.fixture
def world(kernel, tmp_path):
    made = World(tmp_path, kernel.groups())
    yield made
    made.close()


def cgroup_of(pid):
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.environ.clear()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"], {})
time.sleep(600)
"""


def test_shim_and_worker_are_in_it_from_the_first_instruction_and_it_goes_with_them(world, kernel):
    started = world.run(python("print(open('/proc/self/cgroup').read(), flush=True)"))
    ended = world.inbox.expect(Ended, started.token)
    assert ended.ending.code == 0
    assert f"worker-Pong-{started.token}/tree" in world.stdout()
    assert eventually(lambda: not list(kernel.base.glob("worker-*"))), "an empty cgroup is removed"


def test_the_whole_tree_ends_at_once_and_the_shim_writes_how(world, kernel):
    started = world.run(python(FAMILY))
    assert eventually(lambda: "up" in world.stdout())
    assert cgroup_of(started.shim_pid).endswith("/shim")
    members = world.groups.members(started.token)
    assert len(members) >= 3
    assert started.shim_pid in members
    world.launcher.kill_tree("Pong", started.token)
    ending = world.inbox.expect(Ended, started.token).ending
    assert ending.signal == signal.SIGKILL
    assert all(gone(pid) for pid in members)


def test_what_only_the_cgroup_still_knows_ends_too(world):
    """Its shim is dead, its environment empty, its session its own."""
    started = world.run(python(FAMILY))
    assert eventually(lambda: "up" in world.stdout())
    members = world.groups.members(started.token)
    assert len(members) >= 3
    os.kill(started.shim_pid, signal.SIGKILL)
    world.inbox.expect(Ended, started.token)
    assert all(gone(pid) for pid in members)


def test_a_later_daemon_finds_it_again(world, kernel):
    started = world.run(python("import time; time.sleep(600)"))
    world.groups = kernel.groups()
    later = world.new_launcher()
    survivor = later.survey({"Pong": (1, started.token)})["Pong"]
    assert survivor.survival is Survival.ALIVE
    later.adopt("Pong", 1, survivor)
    assert started.pid in world.groups.members(started.token)
    assert world.groups.read(started.token) is not None
    later.kill_tree("Pong", started.token)
    assert world.inbox.expect(Ended, started.token).ending.signal == signal.SIGKILL
    assert eventually(lambda: not list(kernel.base.glob("worker-*")))


def test_one_that_cannot_be_entered_leaves_the_worker_where_it_was(world, monkeypatch):
    monkeypatch.setattr(Cgroups, "begin", lambda _self, _name, _token, _dir: "/nowhere")
    started = world.run(python("print(open('/proc/self/cgroup').read(), flush=True)"))
    assert world.inbox.expect(Ended, started.token).ending.code == 0
    assert "worker-" not in world.stdout()


def test_controllers_of_this_machine_are_turned_on(kernel, tmp_path):
    there = (kernel.base / "cgroup.controllers").read_text().split()
    if not there:
        pytest.skip("this machine gives no controllers to cgroup v2")
    groups = Cgroups(OwnCgroup(str(kernel.base)), lambda _name: LIMITS, wanted=tuple(there))
    groups.set_up()
    assert set(groups.view()["controllers"]) == set(there), "nobody is left in it whom the kernel would object to"
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    if "memory" in there:
        assert int((path / "memory.max").read_text()) == 110 * MB


def changed(path):
    """The files of a cgroup in which something was written."""
    found = {each.name: each.read_text() for each in path.iterdir() if each.is_file()}
    return {name: text.strip() for name, text in found.items() if text != FILES[name]}


# --- whose part it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "mount", "at", "path"),
    [
        ("/a/b", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/a/b"),
        ("/a/b", "/a", "/cg", "/cg/b"),
        ("/a", "/a", "/cg", "/cg"),
        ("/a", "/", "/c\\040g", "/c g/a"),
        ("/ab", "/a", "/cg", None),
        ("/a/../b", "/", "/cg", None),
    ],
)
def test_where_a_cgroup_is_below_its_mount(tmp_path, monkeypatch, own, mount, at, path):
    world_of(tmp_path, own, mount, at)
    for each in ("/sys/fs/cgroup/a/b", "/cg", "/cg/b", "/c g/a"):
        (tmp_path / each[1:]).mkdir(parents=True, exist_ok=True)
        (tmp_path / each[1:] / "cgroup.procs").touch()
    with (tmp_path / "proc/self/mountinfo").open("ab") as file:
        file.write(b"31 24 8:1 / /odd\xff rw - ext4 /dev/sdb rw\n")
    with (tmp_path / "proc/self/cgroup").open("ab") as file:
        file.write(b"5:name=\xff:/\n")
    monkeypatch.setattr(os, "getxattr", lambda _path, _name: b"1")
    found = OwnCgroup(f"{tmp_path}{path}") if path else OwnCgroup(None, "its cgroup lies outside of what is mounted here")
    assert find(root=str(tmp_path)) == found


@pytest.mark.parametrize(
    ("own", "mark", "at", "owner", "uid", "found"),
    [
        ("/a/service", "user.delegate", "/a/service", 0, 0, "/a/service"),  # either mark of systemd counts
        ("/a/service", "trusted.delegate", "/a/service", 0, 0, "/a/service"),
        ("/a/service", "", "/a/service", 0, 0, None),
        ("/a/service", "", "", 7, 7, "/a/service"),  # what belongs to this user is ours, unless that is root
        ("/a/service", "", "", 7, 8, None),
        ("/a/daemon", "user.delegate", "/a", 0, 0, "/a"),  # the part above, and only from the daemon's own cgroup
        ("/a/daemon", "user.delegate", "", 0, 0, None),  # some other service may be called the same
        ("/a/other", "user.delegate", "/a", 0, 0, None),
    ],
)
def test_a_part_is_used_only_if_it_was_given_to_this_user(tmp_path, monkeypatch, own, mark, at, owner, uid, found):
    if owner and os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    path, cgroup_root = world_of(tmp_path, own), f"{tmp_path}/sys/fs/cgroup"
    (path.parent / "cgroup.procs").touch()
    os.chown(path, owner or -1, -1)

    def getxattr(asked, name):
        if str(asked) == f"{cgroup_root}{at}":
            return b"1" if name == mark else b"0"
        raise OSError(errno.ENODATA, "No data available")

    monkeypatch.setattr(os, "getxattr", getxattr)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    why = f"{own} was not given to it (Delegate=yes in the unit)"
    assert find(root=str(tmp_path)) == (OwnCgroup(f"{cgroup_root}{found}") if found else OwnCgroup(None, why))


@pytest.mark.parametrize("lacking", ["disk", "procs", "directory"])
def test_a_part_that_cannot_be_written_is_not_used(tmp_path, monkeypatch, lacking):
    (tmp_path / "cgroup.procs").touch()
    shut = {"procs": tmp_path / "cgroup.procs", "directory": tmp_path}.get(lacking)
    flags = os.ST_NOSUID | (os.ST_RDONLY if lacking == "disk" else 0)

    monkeypatch.setattr(os, "access", lambda path, mode: path != shut and mode == os.W_OK)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=flags))
    assert find(str(tmp_path)) == OwnCgroup(None, f"{tmp_path} cannot be written")
    monkeypatch.undo()
    assert find(str(tmp_path)) == OwnCgroup(str(tmp_path)), "the operator may name any directory"
    (tmp_path / "cgroup.procs").unlink()
    assert find(str(tmp_path)).why == f"{tmp_path} is no cgroup of version 2"


# --- one attempt --------------------------------------------------------------------------------------------------------


def test_all_that_is_written_for_an_attempt(files, tmp_path):
    path = Path(files.groups().begin("Pong", TOKEN, str(tmp_path)))
    assert changed(path) == {
        "memory.high": "104857600", "memory.max": "115343360", "pids.max": "512", "cpu.weight": "250",
        "cgroup.subtree_control": "+memory",
    }  # fmt: skip
    assert changed(path / "tree") == {"memory.oom.group": "1"}
    assert changed(path / "shim") == {}
    assert read_note(str(tmp_path)) == Confined(str(path), LIMITS, counts_oom=True)
    path = Path(files.groups(Limits(None, None, 64, 100)).begin("Pong", "cd" * 16, str(tmp_path)))
    assert [text(path, name) for name in ("memory.high", "memory.max")] == ["max", "max"], "no limit of memory"


def test_orders_go_to_the_tree_or_to_all_of_an_attempt(files, tmp_path):
    groups = files.groups()
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    fake_mkdir(path / "tree" / "below")
    for where, pids in (("shim", "7\n"), ("tree", "8\n9\n"), ("tree/below", "10\nodd\n")):
        (path / where / "cgroup.procs").write_text(pids)
    assert sorted(groups.members(TOKEN)) == [7, 8, 9, 10]
    assert groups.kill(TOKEN)
    assert [changed(each).get("cgroup.kill") for each in (path, path / "tree", path / "shim")] == [None, "1", None]
    assert groups.kill(TOKEN, shim=True)
    assert [changed(each).get("cgroup.kill") for each in (path, path / "tree", path / "shim")] == ["1", "1", None]
    for each in (path, path / "tree"):
        (each / "cgroup.kill").unlink()
    assert not groups.kill(TOKEN), "Linux before 5.14"
    assert not groups.kill(TOKEN, shim=True)
    assert not (path / "cgroup.kill").exists(), "no file is made that the kernel has not made"


def test_a_reading_of_pressure_and_memory(files, tmp_path):
    groups = files.groups()
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    pressure = (("cpu some", 40.0), ("memory some", 12.5), ("memory full", 3.0))
    assert groups.read(TOKEN) == Load(pressure, 4096)
    (path / "memory.current").write_text("max\n")
    (path / "memory.pressure").write_bytes(b"some avg10=1.00\nfull avg60=x\nodd avg60=1.00\nfull avg60=7.25 \xff\n")
    (path / "io.pressure").write_text("some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n")
    (path / "cpu.pressure").unlink()
    assert groups.read(TOKEN) == Load((("memory full", 7.25), ("io some", 2.0)), None)


def test_a_later_daemon_knows_it_by_its_token_and_writes_its_limits_again(files, tmp_path):
    path = Path(files.groups().begin("Pong", TOKEN, str(tmp_path)))
    (path / "cgroup.events").write_text("populated 1\n")
    limits = [path / name for name in ("memory.high", "memory.max", "pids.max", "cpu.weight")] + [
        path / "tree" / "memory.oom.group"
    ]
    for each in limits:
        each.write_text("")
    later = files.groups(Limits(None, None, 1, 1))
    later.adopt("Pong", TOKEN, str(tmp_path))
    assert [each.read_text() for each in limits] == ["104857600", "115343360", "512", "250", "1"]
    assert later.read("*") is None, "a token is no pattern"
    later.end(TOKEN)
    assert not path.exists()
