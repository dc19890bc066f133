"""Looks at whole process trees: real processes below a real parent, the clock stepped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tools import PATIENCE

from supervisor.adapters import procfs
from supervisor.adapters.process import trees
from supervisor.adapters.process.trees import Tree, changed_roots

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
    for dear in ("_io_bytes", "newest_ns"):
        monkeypatch.delattr(trees, dear)  # neither is looked at where the CPU time says enough
    assert (found.step(5.0).witness, found.tree.witness_at_s) == ("cpu", 1005.0)
    assert found.step(2.0).witness_at_s == 1005.0, "counted every five seconds"
    assert found.step(3.0, witnesses=False).witness_at_s is None, "it reports its progress itself now"


def test_a_scan_between_reads_what_is_new_and_what_is_asked_for(grove):
    found = grove(IDLE)
    whole = procfs.scan()
    os.kill(found.child, signal.SIGSTOP)
    until(lambda: procfs.read_stat(found.child).state == "T", "it is stopped")
    between = procfs.scan(whole)
    assert between.processes[found.child].state != "T", "nobody asked"
    asked = procfs.scan(between, {found.child})
    assert asked.processes[found.child].state == "T"
    assert found.child in asked.changed
    assert found.worker.pid in changed_roots(between, asked, {found.worker.pid})
    assert changed_roots(whole, whole, {found.worker.pid}) is None
    again = procfs.scan(asked, {found.child})
    assert again is asked or found.child not in again.changed
    late = subprocess.Popen(["sleep", "100"])
    began = procfs.scan(asked)
    assert late.pid in began.changed
    assert os.getpid() in changed_roots(asked, began, {os.getpid()})
    late.kill()
    late.wait()
    gone = procfs.scan(began)
    assert late.pid in gone.changed
    assert os.getpid() in changed_roots(began, gone, {os.getpid()})
