"""The examination of a stalled worker: it tells what there is, in bounded time, and harms nobody."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from attempts_kit import BootClock, World, eventually, kill, python
from tools import PATIENCE

from supervisor.adapters import procfs
from supervisor.adapters.process import evidence
from supervisor.model.inputs import Ended, EvidenceTaken

# What a built-in worker does: faulthandler answers in C, whatever the interpreter is busy with.
REGISTER = """
import faulthandler, os, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, open(os.environ["EXTRALIFE_STACKS"], "a"), all_threads=True)
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    # A busy machine may take longer than healing waits, and stand still in the middle of a stack.
    monkeypatch.setattr(evidence, "take", functools.partial(evidence.take, timeout_s=60.0))
    monkeypatch.setattr(evidence, "_PY_SPY_S", 60.0)
    monkeypatch.setattr(evidence, "_QUIET_S", 1.0)
    world = World(tmp_path)
    yield world
    world.close()


def examine(world: World, argv: list[str], state: str = "") -> tuple[dict[str, str], str]:
    started = world.run(argv)
    assert eventually(lambda: "up" in world.stdout())
    assert not state or eventually(lambda: procfs.read_stat(started.pid).state == state)
    evidence.LocalEvidence(world.paths, world.launcher.attempt, world.inbox, BootClock()).take("Pong", started.token)
    taken = world.inbox.expect(EvidenceTaken, started.token)
    assert procfs.is_alive(started.pid, started.start_ticks)
    return taken.evidence, started.token


def test_the_stacks_of_all_threads_are_in_it(world):
    code = REGISTER + (
        "def wait_for_frames(): print('up', flush=True); time.sleep(600)\n"
        "def side_thread(): begun.set(); threading.Event().wait(600)\n"
        "begun = threading.Event()\n"
        "threading.Thread(target=side_thread, daemon=True).start()\n"
        "begun.wait(); print('the last word', file=sys.stderr, flush=True)\n"
        "wait_for_frames()"
    )
    found, _ = examine(world, python(code), "S")
    assert "in wait_for_frames" in found["stacks"]
    assert "in side_thread" in found["stacks"]
    assert ", state S" in found["process"]
    assert found["threads"].startswith("2: ")
    assert (found["stdout"], found["stderr"]) == ("up", "the last word")
    assert int(found["open_files"]) >= 3
    assert not found["stacks"].startswith("\n")
    assert not found["stacks"].endswith("\n")


def test_a_loop_that_never_lets_go_of_the_interpreter_still_answers(world):
    # One call into C that holds the GIL for minutes: a Python signal handler would not run.
    code = REGISTER + "def spin(): print('up', flush=True); max(iter(int, 1))\nspin()"
    found, _ = examine(world, python(code), "R")
    assert "in spin" in found["stacks"]
    assert ", state R" in found["process"]


def take(world: World, started, timeout_s: float = 30.0) -> dict[str, str]:
    logs = world.paths.log("Pong", "stdout"), world.paths.log("Pong", "stderr")
    stacks = str(Path(world.paths.attempt_dir("Pong", 1, started.token), "stacks.txt"))
    return evidence.take(
        "Pong", started.token, started.pid, started.start_ticks, stacks=stacks, logs=logs, timeout_s=timeout_s
    )


def may_look() -> bool:
    """Whether this box lets a process look into one of the same user that is not its child."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except FileNotFoundError:
        return True
    return scope == "0" or (scope != "3" and os.geteuid() == 0)


@pytest.mark.skipif(not may_look(), reason="this box allows no ptrace (kernel.yama.ptrace_scope)")
def test_scripts_without_a_handler_are_read_by_py_spy_wherever_they_are_in_the_tree(world):
    child = "import time\ndef hangs(): print('up', flush=True); time.sleep(60)\nhangs()"
    found, _ = examine(world, ["sh", "-c", f'"{sys.executable}" -c "$0"; :', child])
    assert "hangs (<string>:2)" in found["stacks_by_py_spy"]
    assert found["stacks_by_py_spy"].startswith("python")


def test_without_py_spy_it_is_said_how_to_get_it(world, monkeypatch):
    monkeypatch.setattr(evidence, "py_spy", lambda: None)
    found, _ = examine(world, python("import time; print('up', flush=True); time.sleep(60)"))
    hint = "py-spy would show them: pip install 'extralife[stacks]' into extralife's environment"
    assert found["stacks"] == f"not asked for: the program has no handler for SIGUSR1; {hint}"
    assert "stacks_by_py_spy" not in found


def test_what_the_kernel_tells_of_a_process_is_in_it_whole(world):
    world.run(["sh", "-c", "echo of an earlier one; echo of an earlier one >&2"])
    world.inbox.expect(Ended)
    started = world.run(["sh", "-c", "echo up; echo; echo on; echo no >&2; echo never >&2; exec sleep 60"], attempt=2)
    assert eventually(lambda: (stat := procfs.read_stat(started.pid)).name == "sleep" and stat.state == "S")
    taker = evidence.LocalEvidence(world.paths, world.launcher.attempt, world.inbox, BootClock())
    taker.take("Pong", started.token)
    taken = world.inbox.expect(EvidenceTaken)
    assert (taken.program, taken.token) == ("Pong", started.token)
    assert 0.0 <= BootClock().now_s() - taken.now_s < 600.0
    host = taken.evidence.pop("host")
    assert host.startswith("load ")
    assert taken.evidence.pop("wchan", None) in {procfs.read_text(started.pid, "wchan"), "0"}, "0: it just woke up"
    kernels = {"syscall": "syscall", "kernel_stack": "stack"}
    told = {name: procfs.read_text(started.pid, file) for name, file in kernels.items()}
    assert taken.evidence == {name: text for name, text in told.items() if text} | {
        "process": f"pid {started.pid}, sleep, state S", "threads": "1: sleep S", "open_files": "3",
        "stacks": "not asked for: the program has no handler for SIGUSR1", "stdout": "up\non",
        "stderr": "no\nnever",
    }  # fmt: skip


def test_a_stopped_worker_is_reported_as_stopped(world):
    started = world.run(python(REGISTER + "print('up', flush=True); time.sleep(60)"))
    assert eventually(lambda: "up" in world.stdout())
    kill(started.pid, signal.SIGSTOP)
    assert eventually(lambda: procfs.read_stat(started.pid).state == "T")
    found = take(world, started)
    assert ", state T" in found["process"]
    assert found["stacks"] == "not asked for: the process is stopped"


def test_a_worker_that_never_answers_is_not_waited_for_longer_than_allowed(world):
    started = world.run(
        python("import signal, time; signal.signal(10, lambda *_: None); print('up', flush=True); time.sleep(60)")
    )
    assert eventually(lambda: "up" in world.stdout())
    before = time.monotonic()
    found = take(world, started, timeout_s=0.2)
    assert found["stacks"] == "asked for, but none were written in time"
    assert time.monotonic() - before < 10 * PATIENCE


@pytest.mark.fault("slow")
def test_what_slows_a_process_from_outside_is_reported(tmp_path):
    files = {
        "proc/loadavg": "9.10 8.00 7.00 3/400 1234\n",
        "proc/pressure/cpu": "some avg10=55.00 avg60=40.00 avg300=1.00 total=5\nfull avg10=0.00 avg60=0.00\n",
        "proc/pressure/memory": "some avg10=1.00 avg60=2.00 avg300=0.00 total=5\n",
        "proc/pressure/io": "some avg10=2.00 avg60=3.00",
        "proc/7/cgroup": "3:cpuset:/z\n2:cpu,cpuacct:/x\n1:memory:/y\nodd\n0::/ser:vice\n",
        "sys/fs/cgroup/ser:vice/cpu.stat": "usage_usec 5\nnr_throttled 12\nthrottled_usec 900\n",
        "sys/fs/cgroup/cpu/x/cpu.stat": "nr_throttled 3\nthrottled_time 8\n",
        "sys/fs/cgroup/cpu/z/cpu.stat": "nr_throttled 4\n",
        "sys/fs/cgroup/y/cpu.stat": "nr_throttled 5\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = evidence.host_pressure(7, str(tmp_path))
    assert told == (
        f"load 9.10 8.00 7.00 on {os.cpu_count()} CPUs, cpu pressure avg10=55.00 avg60=40.00, "
        "memory pressure avg10=1.00 avg60=2.00, io pressure avg10=2.00 avg60=3.00, nr_throttled 3, throttled_time 8, nr_throttled 12, throttled_usec 900"
    )
    (tmp_path / "proc/pressure/io").write_text("some avg10=2.00\n")
    assert evidence.host_pressure(8, str(tmp_path)) == told.partition(", io ")[0], "of a process without a cgroup"
    assert evidence.host_pressure(8, str(tmp_path / "none")) == f"load  on {os.cpu_count()} CPUs"
