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
from supervisor.adapters.process.trees import Scans, Tree, changed_roots, newest_ns, own_directory

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""
READS = "import time\nwhile True: open('/dev/zero', 'rb').read(10_000_000); time.sleep(0.05)"
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


def test_the_worker_itself_is_judged_here_only_where_nobody_else_does(grove):
    found = grove(IDLE)
    found.worker.send_signal(signal.SIGSTOP)
    until(lambda: procfs.read_stat(found.worker.pid).state == "T", "it is stopped")
    assert found.step().halted == ()
    assert [each.pid for each in found.step(2.0, leader=True).halted] == [found.worker.pid]


def test_a_child_in_the_kernel_is_named_once_it_has_not_moved_for_long(grove, monkeypatch):
    found = grove(IDLE)
    ticks = 5

    def scan():
        process = procfs.Process(found.child, found.worker.pid, "python3", "D", 9, ticks, 0)
        worker = procfs.Process(found.worker.pid, 1, "python3", "S", found.tree.start_ticks, 0, 0)
        return procfs.ProcessTable({process.pid: process, worker.pid: worker}, {worker.pid: [process], 1: [worker]})

    monkeypatch.setattr(procfs, "scan", scan)
    assert found.step().halted == ()
    assert found.step(29.0).halted == ()
    ticks = 6  # it came out of it in between
    assert found.step(2.0).halted == ()
    assert [each.since_s for each in found.step(30.0).halted] == [1031.0]


def test_a_child_that_computes_is_a_witness_of_its_tree(grove, monkeypatch, tmp_path):
    found = grove("while True: sum(range(100_000))", str(tmp_path))
    assert found.step().witness == ""
    began = procfs.cpu_ticks(found.child)
    until(lambda: procfs.cpu_ticks(found.child) >= began + 15, "it computes")
    for dear in ("_io_bytes", "newest_ns"):
        monkeypatch.delattr(trees, dear)  # neither is looked at where the CPU time says enough
    assert (found.step(5.0).witness, found.tree.witness_at_s) == ("cpu", 1005.0)
    assert found.step(2.0).witness_at_s == 1005.0, "counted every five seconds"
    assert found.step(3.0, witnesses=False).witness_at_s is None, "it reports its progress itself now"


def test_a_child_that_does_nothing_is_none(grove):
    found = grove(IDLE)
    for _ in range(4):
        found.step(5.0)
    assert (found.tree.witness, found.tree.witness_at_s) == ("", None)


def test_what_its_ended_children_used_counts(grove):
    found = grove(
        "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-S', '-c', 'sum(range(2_000_000))'])"
    )
    found.step()
    began = procfs.scan().processes[found.child].ended_ticks
    until(lambda: procfs.scan().processes[found.child].ended_ticks >= began + 15, "its children compute")
    assert found.step(5.0).witness == "cpu"


def test_a_child_that_reads_is_one(grove):
    found = grove(READS)
    found.step()
    found.step(1000.0)  # so much time that its CPU time is next to nothing
    began = procfs.io_bytes(found.child)
    until(lambda: procfs.io_bytes(found.child) >= began + 50_000_000, "it reads")
    assert found.step(1000.0).witness == "io"


def test_a_file_below_its_directory_is_one_and_the_directory_is_looked_at_every_half_minute(grove, tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    file = tmp_path / "runs" / "a" / "weights"
    file.write_text("1")
    os.utime(file, ns=(1, 1))
    found = grove(IDLE, str(tmp_path))
    found.step()
    os.utime(file, ns=(2, 2))
    assert found.step(5.0).witness == "", "it was looked at just now"
    assert found.step(30.0).witness == "files"


def test_only_what_is_a_programs_own_is_looked_at(tmp_path):
    (tmp_path / "attempts").mkdir()
    for name, at_ns in (("lock", 9), ("fence", 9), ("attempts/1", 9), ("model", 5)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, ns=(at_ns, at_ns))
    (tmp_path / "link").symlink_to("/")
    assert newest_ns(str(tmp_path)) == 5
    assert newest_ns(str(tmp_path / "attempts" / "nothing")) is None
    assert own_directory("/data/runs", {"/data/runs": 1}) == "/data/runs"
    assert own_directory("/data/runs", {"/data/runs": 2}) == "", "another program's writing shows nothing of this one"
    assert (
        own_directory("", {}) == own_directory("/", {}) == own_directory("/data", {}) == own_directory(str(Path.home()), {})
    )


def test_a_directory_of_a_hundred_thousand_files_is_looked_through_in_part_only(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "_MOST_ENTRIES", 10)
    for number in range(50):
        (tmp_path / str(number)).write_text("x")
    looked = []
    monkeypatch.setattr(os, "scandir", lambda path, real=os.scandir: looked.append(path) or real(path))
    assert newest_ns(str(tmp_path)) is not None
    assert looked == [str(tmp_path)]


def test_below_a_shim_everything_is_of_the_tree_and_what_it_reaped_counts(grove):
    found = grove(IDLE)
    found.tree.root = os.getpid()
    assert found.child in found.step().pids
    found.worker.kill()
    until(lambda: procfs.read_stat(found.worker.pid).state == "Z", "it is dead")
    found.tree.root = None
    assert found.step(2.0).pids == (), "a number without its process is nobody"


def test_one_scan_serves_all_and_costs_a_hundredth_of_a_core_at_most(monkeypatch):
    scans, asked = Scans(), []
    monkeypatch.setattr(procfs, "scan", lambda *before: asked.append(bool(before)) or procfs.ProcessTable({}, {}))
    first = scans.newest(100.0)
    assert scans.newest(101.9) is first
    assert scans.newest(102.1) is not first
    scans.newest(104.2)
    scans.newest(110.1)
    assert asked == [False, True, True, False], "the whole of it every ten seconds"
    scans.newest(10.0)
    assert asked[4:] == [False], "a clock that goes back does not blind us"
    times = iter([0.0, 0.04, 0.04, 9.0])
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    slow = scans.newest(200.0)
    assert scans.newest(203.9) is slow
    slower = scans.newest(204.1)
    assert scans.newest(209.0) is slower


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


def test_a_tree_says_what_is_to_be_read_again_and_when_it_is_to_be_looked_at(grove):
    found = grove(IDLE)
    assert found.tree.is_due(1000.0)
    found.step(witnesses=False)
    assert not found.tree.is_due(2000.0)
    assert found.tree.wants(2000.0, "S") == (found.child,)
    assert found.tree.wants(2000.0, "T") == (found.child, found.worker.pid)
    found.step()
    assert not found.tree.is_due(found.now_s + 4.9)
    assert found.tree.is_due(found.now_s + 5.0)
    assert found.tree.wants(found.now_s + 5.0, "S") == (found.child, found.worker.pid)
