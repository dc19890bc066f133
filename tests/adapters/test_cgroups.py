"""A cgroup for each attempt: the same on the kernel's tree and on files that look like one, and real trees that end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attempts_kit import World, eventually, gone, python
from cgroups_kit import FILES, LIMITS, MB, Files, Kernel, fake_mkdir, fake_rmdir
from structlog.testing import capture_logs

from supervisor.adapters.process import cgroups
from supervisor.adapters.process.cgroups import Cgroups, OwnCgroup, find, read_note
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
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    assert path == tree.base / f"worker-Pong-{TOKEN}"
    assert {each.name for each in path.iterdir() if each.is_dir()} == {"shim", "tree"}
    assert read_note(str(tmp_path)).limits == LIMITS
    assert read_note(str(tmp_path)).path == str(path)
    groups.end(TOKEN)
    assert not path.exists()
    assert groups.read(TOKEN) is None


def test_a_child_of_the_daemon_leaves_the_processors_to_the_programs_for_a_while(files):
    groups, aside = files.groups(), files.base / "aside"
    groups.restore_aside()
    for pid in ("812", "813"):
        groups.put_aside(int(pid))
        (aside / "cpu.weight").write_text("")  # the kernel's file would not keep what was in it
        groups.put_aside(int(pid))
        assert (text(aside, "cgroup.procs"), text(aside, "cpu.weight")) == (pid, "10")
        groups.restore_aside()
        assert text(aside, "cpu.weight") == "100"


def test_where_processors_are_not_shared_by_cgroup_a_child_stays(files):
    (files.base / "cgroup.controllers").write_text("memory pids\n")
    groups = files.groups()
    groups.put_aside(812)
    groups.restore_aside()
    assert not (files.base / "aside").exists()


def test_what_has_none_is_ended_as_it_is_without(tree):
    groups = tree.groups()
    assert (groups.kill(TOKEN), groups.kill(TOKEN, shim=True), groups.members(TOKEN), groups.read(TOKEN)) == (
        False,
        False,
        [],
        None,
    )
    groups.end(TOKEN)
    groups.adopt("Pong", TOKEN, "/nowhere")


def test_the_daemon_goes_below_and_says_so(tree):
    groups = tree.groups()
    assert (tree.base / "daemon" / "cgroup.procs").read_text().split() == [str(os.getpid())]
    assert groups.view()["on"]
    assert groups.view()["path"] == str(tree.base)


def test_pressure_is_read(tree, tmp_path):
    groups = tree.groups()
    groups.begin("Pong", TOKEN, str(tmp_path))
    told = dict(groups.read(TOKEN).pressure)
    if tree.real and not told:
        pytest.skip("this kernel keeps no pressure")
    assert {"cpu some", "memory some", "memory full"} <= set(told)
    assert all(0 <= share <= 100 for share in told.values())
    groups.end(TOKEN)


# --- files: every limit, everything that can be missing ---------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def text(path, name):
    return (path / name).read_text().strip()


def test_no_limit_of_memory_is_max(files, tmp_path):
    path = Path(files.groups(Limits(None, None, 64, 100)).begin("Pong", TOKEN, str(tmp_path)))
    assert [text(path, name)[:3] for name in ("memory.high", "memory.max")] == ["max", "max"]


def test_missing_controllers_are_told_and_cost_their_limits_only(tmp_path):
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
    assert groups.view()["controllers"] == ["cpu"]
    assert groups.view()["lacking"] == ["memory", "pids"]
    path = Path(groups.begin("Pong", TOKEN, str(tmp_path)))
    assert text(path, "cpu.weight").startswith("250")
    assert not read_note(str(tmp_path)).counts_oom
    assert groups.read(TOKEN).memory_bytes is None


def test_a_controller_that_cannot_be_turned_on_is_lacking(files, monkeypatch):
    real = cgroups._write

    def refuse(path, said, **rest):
        if said == "+memory":
            raise OSError(16, "Device or resource busy")
        real(path, said, **rest)

    monkeypatch.setattr(cgroups, "_write", refuse)
    with capture_logs() as logged:
        assert files.groups().view()["lacking"] == ["memory"]
    error = "Device or resource busy"
    assert logged == [
        {"event": "controller_not_on", "path": str(files.base), "controller": "memory", "error": error, "log_level": "warning"}
    ]  # fmt: skip


def test_a_part_that_turns_out_unusable_is_not_used(tmp_path):
    groups = Cgroups(OwnCgroup(str(tmp_path)), lambda _name: LIMITS)
    why = f"{tmp_path} cannot be used: No such file or directory"
    with capture_logs() as logged:
        groups.set_up()  # a directory of a disk: nothing in it is a cgroup
    assert logged == [{"event": "cgroups_not_used", "why": why, "log_level": "warning"}]
    assert groups.view() == {"on": False, "why": why, "path": None, "controllers": [], "lacking": []}
    assert groups.begin("Pong", TOKEN, str(tmp_path)) == ""


def test_one_that_cannot_be_made_costs_its_limits_only(files, tmp_path):
    groups = files.groups()
    path = str(files.base / f"worker-Pong-{TOKEN}")
    with capture_logs() as logged:
        assert groups.begin("Pong", TOKEN, str(tmp_path / "nowhere")) == ""
    error = "No such file or directory"
    assert logged == [
        {"event": "cgroup_not_made", "program": "Pong", "path": path, "error": error, "log_level": "warning"}
    ]  # fmt: skip
    assert not list(files.base.glob("worker-*"))


def test_one_that_can_neither_be_confined_nor_removed_is_told(files, tmp_path, monkeypatch):
    groups = files.groups()
    path = groups.begin("Pong", TOKEN, str(tmp_path))

    def refuse(*_args, **_more):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cgroups, "_write", refuse)
    monkeypatch.setattr(Cgroups, "_remove", lambda _self, _path, patience_s: patience_s < 0)
    monkeypatch.setattr(groups, "_controllers", ())
    with capture_logs() as logged:
        groups.adopt("Pong", TOKEN, str(tmp_path))
        groups.end(TOKEN)
    error = "Read-only file system"
    assert logged == [
        {"event": "cgroup_not_confined", "program": "Pong", "path": path, "error": error, "log_level": "warning"},
        {"event": "cgroup_not_removed", "path": path, "log_level": "warning"},
    ]


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"path": "x", "limits": {"a": 1}, "counts_oom": true}', "\0"])
def test_a_damaged_note_is_none(tmp_path, note):
    (tmp_path / "cgroup.json").write_text(note)
    assert read_note(str(tmp_path)) is None


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


def test_no_second_version_and_a_tree_of_others(tmp_path):
    assert find(root=str(tmp_path)).why == "/proc does not show this process's cgroup"
    world_of(tmp_path / "a", "/../../b")
    assert find(root=str(tmp_path / "a")).why == "its cgroup lies outside of what is mounted here"
    world_of(tmp_path / "b")
    (tmp_path / "b/proc/self/cgroup").write_text("4:memory:/x\n")
    assert find(root=str(tmp_path / "b")).why == "there is no cgroup v2 here"


def test_a_directory_that_the_operator_names(tmp_path):
    assert find(str(tmp_path)).why == f"{tmp_path} is no cgroup of version 2"
    (tmp_path / "cgroup.procs").write_text("")
    assert find(str(tmp_path)) == OwnCgroup(str(tmp_path))


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
    later.adopt("Pong", survivor)
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


def test_what_an_older_version_had_started_beside_the_daemon_is_moved_aside(kernel):
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as other:
        (kernel.base / "cgroup.procs").write_text(str(other.pid))
        groups = kernel.groups()
        assert cgroup_of(other.pid).endswith("/earlier")
        assert groups.view()["on"]
        other.kill()


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
