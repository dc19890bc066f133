"""Looks at whole process trees: real processes below a real parent, the clock stepped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools import PATIENCE

from supervisor.adapters import procfs
from supervisor.adapters.process import trees
from supervisor.adapters.process.trees import Tree, newest_ns, own_directory
from supervisor.adapters.procfs import ProcessTable, Stat
from supervisor.model.inputs import Halted

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""
IDLE = "import signal; print('up', flush=True); signal.pause()"


class Now:
    """Tasks that are done at once."""

    def begin(self, _name, target, *args):
        target(*args)


class Grove:
    """A worker with one child, and the tree of it; `step` looks so many seconds later at what happens in real time."""

    def __init__(self, code, directory=""):
        self.worker = subprocess.Popen([sys.executable, "-S", "-c", PARENT, code], stdout=subprocess.PIPE, text=True)
        number, *_ = sorted(self.worker.stdout.readline() for _ in range(2 if code == IDLE else 1))  # "up" may come first
        self.child = int(number)
        stat = procfs.read_stat(self.worker.pid)
        self.tree, self.now_s = Tree(self.worker.pid, stat.start_ticks, directory), 1000.0

    def step(self, seconds=0.0, *, leader=False, witnesses=True):
        self.now_s += seconds
        self.tree.look(procfs.scan(), self.now_s, leader=leader, witnesses=witnesses, tasks=Now())
        return self.tree

    def close(self):
        for pid in (self.child, self.worker.pid):
            os.kill(pid, signal.SIGKILL)
        self.worker.wait()
        self.worker.stdout.close()


@pytest.fixture
def grove():
    made = []

    def plant(*args):
        made.append(Grove(*args))
        return made[-1]

    yield plant
    for each in made:
        each.close()


def until(look, what):
    deadline_s = time.monotonic() + 20 * PATIENCE
    while not look():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def test_a_stopped_child_is_known_by_name_and_since_when(grove):
    found = grove(IDLE)
    assert found.step().pids == (found.child,)
    os.kill(found.child, signal.SIGSTOP)
    until(lambda: procfs.read_stat(found.child).state == "T", "it is stopped")
    (halted,) = found.step(2.0).halted
    assert (halted.pid, halted.proc_state, halted.since_s) == (found.child, "T", 1002.0)
    assert str(halted).startswith("python")
    assert found.step(2.0).halted == (halted,), "the same object of the same moment: nothing new to look at"
    os.kill(found.child, signal.SIGCONT)
    until(lambda: procfs.read_stat(found.child).state != "T", "it runs again")
    assert found.step(2.0).halted == ()


def test_a_tree_in_which_a_process_has_opened_cudas_device_has_used_cuda(grove, monkeypatch, tmp_path):
    device = tmp_path / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(trees, "_CUDA", device)
    assert not grove(IDLE).step().uses_cuda
    found = grove(f"device = open({str(device)!r}); import time; time.sleep(600)")
    until(lambda: found.step().uses_cuda, "it has opened the device")


def test_a_child_that_computes_is_a_witness_of_its_tree(grove, monkeypatch, tmp_path):
    found = grove("while True: sum(range(100_000))", str(tmp_path))
    assert found.step().witness == ""
    began = procfs.read_stat(found.child).ticks
    until(lambda: procfs.read_stat(found.child).ticks >= began + 15, "it computes")
    for module, dear in ((procfs, "io_bytes"), (trees, "newest_ns")):
        monkeypatch.delattr(module, dear)  # neither is looked at where the CPU time says enough
    assert (found.step(5.0).witness, found.tree.witness_at_s) == ("cpu", 1005.0)
    assert found.step(2.0).witness_at_s == 1005.0, "counted every five seconds"
    assert found.step(3.0, witnesses=False).witness_at_s is None, "it reports its progress itself now"


SHIM, WORKER, CHILD, GRANDCHILD, STRANGER = 10, 11, 12, 13, 14
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process(pid, parent, state="S", ticks=0, ended=0, start=5):
    return Stat(pid, parent, f"p{pid}", state, start, ticks, ended)


def table(*processes, changed=None):
    children = {}
    for each in processes:
        children.setdefault(each.parent, []).append(each)
    return ProcessTable({each.pid: each for each in processes}, children, changed)


class Tasks:
    """What was begun, done when the test says so."""

    def __init__(self):
        self.begun = []

    def begin(self, name, target, *args):
        self.begun.append((name, lambda: target(*args)))


class Look:
    """Looks at a tree of which each test says what is in the scan."""

    def __init__(self, root=None, directory=""):
        self.tree, self.tasks = Tree(WORKER, 5, directory, root), Tasks()

    def at(self, now_s, *processes, leader=False, witnesses=False):
        self.tree.look(table(*processes), now_s, leader=leader, witnesses=witnesses, tasks=self.tasks)
        return self.tree


@pytest.fixture
def io(monkeypatch):
    """What each process has read and written; nothing is known of the others."""
    known = {}
    monkeypatch.setattr(procfs, "io_bytes", known.get)
    return known


# --- who belongs to it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "worker", "pids"),
    [
        (None, process(WORKER, 1), (CHILD, GRANDCHILD)),
        (SHIM, process(WORKER, SHIM), (CHILD, GRANDCHILD, STRANGER)),
        (SHIM, process(WORKER, 1), (CHILD, GRANDCHILD)),
        (None, process(WORKER, 1, start=6), ()),
        (SHIM, process(WORKER, 1, start=6), (STRANGER,)),
        (None, None, ()),
        (SHIM, None, (STRANGER,)),
    ],
)  # fmt: skip
def test_the_tree_is_what_is_below_the_shim_or_else_below_the_worker(root, worker, pids):
    others = process(GRANDCHILD, CHILD), process(CHILD, WORKER), process(STRANGER, SHIM), process(SHIM, 1)
    tree = Look(root).at(1.0, *others, *([] if worker is None else [worker]))
    assert tree.pids == pids
    assert tree.seen == (pids, (), (), None, "", False)


# --- what stands still ----------------------------------------------------------------------------------------------------


def test_a_stopped_process_is_reported_at_once_and_since_when():
    look, worker = Look(), process(WORKER, 1, "T")
    assert look.at(1.0, worker, process(CHILD, WORKER, "T")).halted == (Halted(CHILD, 5, "p12", "T", 1.0),)
    assert look.at(9.0, worker, process(CHILD, WORKER, "T")).halted == (Halted(CHILD, 5, "p12", "T", 1.0),)
    assert look.at(10.0, worker, process(CHILD, WORKER, "T", ticks=1)).halted[0].since_s == 10.0, "it ran in between"
    assert look.at(11.0, worker, process(CHILD, WORKER, "T", ticks=1, start=6)).halted[0].since_s == 11.0, "another process"
    assert look.at(12.0, worker, process(CHILD, WORKER, "R", ticks=1, start=6)).halted == ()
    assert look.at(13.0, worker, leader=True).halted == (Halted(WORKER, 5, "p11", "T", 13.0),)


def test_a_process_in_the_kernel_is_reported_after_half_a_minute_without_a_tick():
    look, worker = Look(), process(WORKER, 1)
    for now_s, state, ticks, since_s in (
        (100.0, "D", 0, None), (129.9, "D", 0, None), (130.0, "D", 0, 100.0), (131.0, "D", 1, None), (160.9, "D", 1, None),
        (161.0, "D", 1, 131.0), (162.0, "T", 1, 162.0), (163.0, "D", 1, None), (193.0, "D", 1, 163.0), (194.0, "S", 1, None),
    ):  # fmt: skip
        halted = look.at(now_s, worker, process(CHILD, WORKER, state, ticks)).halted
        assert [each.since_s for each in halted] == ([] if since_s is None else [since_s]), now_s
        assert look.tree.is_due(now_s) is (state != "S"), "it is looked at again until it moves"


# --- witnesses ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "witness"),
    [
        ([process(WORKER, SHIM, ticks=TICKS_PER_S // 10)], "cpu"),  # a fiftieth of five seconds
        ([process(WORKER, SHIM, ticks=TICKS_PER_S // 10 - 1)], ""),
        ([process(WORKER, SHIM, ticks=TICKS_PER_S // 10 - 1), process(CHILD, WORKER, ticks=1)], "cpu"),
        ([process(WORKER, SHIM), process(CHILD, WORKER, ended=TICKS_PER_S)], "cpu"),
        ([process(WORKER, SHIM), process(SHIM, 1, ended=TICKS_PER_S)], "cpu"),
        ([process(WORKER, SHIM), process(SHIM, 1, ticks=TICKS_PER_S)], ""),
        ([process(WORKER, SHIM), process(STRANGER, 1, ticks=TICKS_PER_S)], ""),
    ],
)
def test_the_cpu_time_of_the_tree_counts_with_that_of_ended_children(io, now, witness):
    look = Look(SHIM)
    look.at(100.0, process(WORKER, SHIM), process(SHIM, 1), witnesses=True)
    look.at(104.9, *now, witnesses=True)
    assert look.tree.witness == "", "every five seconds"
    look.at(105.0, *now, witnesses=True)
    assert (look.tree.witness, look.tree.witness_at_s) == (witness, 105.0 if witness else None)


def test_a_witness_stands_until_nobody_asks_for_it(io):
    look = Look()
    look.at(100.0, process(WORKER, 1), witnesses=True)
    look.at(105.0, process(WORKER, 1, ticks=TICKS_PER_S), witnesses=True)
    look.at(110.0, process(WORKER, 1, ticks=TICKS_PER_S), witnesses=True)
    assert (look.tree.witness, look.tree.witness_at_s) == ("cpu", 105.0)
    look.at(111.0, process(WORKER, 1, ticks=TICKS_PER_S))
    assert (look.tree.witness, look.tree.witness_at_s) == ("", None)
    look.at(112.0, process(WORKER, 1, ticks=9 * TICKS_PER_S), witnesses=True)
    assert look.tree.witness == "", "a first look shows nothing"


# --- the files of a directory ---------------------------------------------------------------------------------------------


def put(path: Path, at_ns: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, ns=(1, at_ns))


def test_the_newest_file_is_looked_for_at_all_depths_and_behind_no_link(tmp_path):
    for at_ns, name in enumerate(("a", "b/c", "b/d/e", "z"), 1):
        put(tmp_path / "own" / name, at_ns)
        assert newest_ns(str(tmp_path / "own")) == at_ns
    put(tmp_path / "elsewhere" / "f", 99)
    (tmp_path / "own" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "own" / "file").symlink_to(tmp_path / "elsewhere" / "f")
    for ours in ("attempts/1", "lock", "fence", "b/lock"):
        put(tmp_path / "own" / ours, 98)
    assert newest_ns(str(tmp_path / "own")) == 4
    os.utime(tmp_path / "own" / "a", ns=(1, 9))
    assert newest_ns(str(tmp_path / "own")) == 9
    (tmp_path / "empty").mkdir()
    assert newest_ns(str(tmp_path / "empty")) is None


def test_a_directory_is_a_programs_own_if_nobody_else_writes_there(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for directory, others, own in (
        ("/data/runs", {}, True), ("/data/runs", {"/data/runs": 1, "/data/x": 2}, True), ("/data/runs", {"/data/runs": 2}, False),
        ("/home/me", {}, False), ("/home/me/runs", {}, True), ("/data", {}, False), ("/", {}, False), ("", {}, False),
    ):  # fmt: skip
        assert own_directory(directory, others) == (directory if own else "")
