"""The examination of a stalled worker: it tells what there is, in bounded time, and harms nobody."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from attempts_kit import BootClock, World, eventually, kill, python
from structlog.testing import capture_logs
from tools import PATIENCE

from supervisor.adapters import procfs
from supervisor.adapters.process import evidence, py_spy
from supervisor.adapters.threads import Tasks
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


def test_a_loop_that_never_lets_go_of_the_interpreter_still_answers(world):
    # One call into C that holds the GIL for minutes: a Python signal handler would not run.
    code = REGISTER + "def spin(): print('up', flush=True); max(iter(int, 1))\nspin()"
    found, _ = examine(world, python(code), "R")
    assert "in spin" in found["stacks"]
    assert ", state R" in found["process"]


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


# A py-spy for what the real one does only on other boxes: it is refused ptrace, hangs, or is not to be run.
REFUSED = """echo 'Error: Failed to get process executable name. Check that the process is running.' >&2
echo >&2; echo 'Caused by:' >&2; echo '    0: Permission denied (os error 13)' >&2; echo 'Stack backtrace:' >&2; exit 1"""


CANNOT = "py-spy cannot read it: "


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (REFUSED, f"{CANNOT}Failed to get process executable name. Check that the process is running. (Permission denied"),
        ("exit 1", f"{CANNOT}no reason given"),
        ("exec sleep 60", "py-spy was not done within"),
        (None, "py-spy cannot be run: Exec format error"),
    ],
)  # fmt: skip
def test_a_py_spy_that_fails_costs_a_line(tmp_path, monkeypatch, script, said):
    spy = tmp_path / "py-spy"
    spy.write_text("junk" if script is None else f"#!/bin/sh\n{script}\n")
    spy.chmod(0o755)
    monkeypatch.setattr(py_spy, "program", lambda: str(spy))
    own = procfs.read_stat(os.getpid())
    assert said in py_spy.stacks([own, own], 0.3 if "sleep" in str(script) else 30.0)
    assert py_spy.stacks([own], 0.0).endswith("no time was left")


def test_without_py_spy_it_is_said_how_to_get_it(world, monkeypatch):
    monkeypatch.setattr(py_spy, "program", lambda: None)
    found, _ = examine(world, python("import time; print('up', flush=True); time.sleep(60)"))
    assert found["stacks"].endswith("pip install 'extralife[stacks]' into extralife's environment")
    assert "stacks_by_py_spy" not in found


def test_a_program_without_a_handler_is_not_signalled(world):
    found, _ = examine(world, ["sh", "-c", "echo up; sleep 60; :"])
    assert found["stacks"] == "not asked for: the program has no handler for SIGUSR1"
    assert found["stdout"] == "up"


def test_a_worker_that_ends_before_it_is_asked_is_told_as_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(procfs, "catches", lambda _pid, _number: True)
    monkeypatch.setattr(procfs, "send_verified", lambda _pid, _ticks, _number: False)
    told = evidence._python_stacks(os.getpid(), 1, "S", str(tmp_path / "stacks.txt"), 0.1)
    assert told == "not asked for: the process is gone"


def test_a_stopped_worker_is_told_as_stopped(world):
    started = world.run(python(REGISTER + "print('up', flush=True); time.sleep(60)"))
    assert eventually(lambda: "up" in world.stdout())
    kill(started.pid, signal.SIGSTOP)
    assert eventually(lambda: procfs.read_stat(started.pid).state == "T")
    found = take(world, started)
    assert ", state T" in found["process"]
    assert found["stacks"] == "not asked for: the process is stopped"


def take(world: World, started, timeout_s: float = 30.0) -> dict[str, str]:
    logs = world.paths.log("Pong", "stdout"), world.paths.log("Pong", "stderr")
    stacks = str(Path(world.paths.attempt_dir("Pong", 1, started.token), "stacks.txt"))
    return evidence.take(
        "Pong", started.token, started.pid, started.start_ticks, stacks=stacks, logs=logs, timeout_s=timeout_s
    )


def test_a_worker_that_never_answers_is_not_waited_for_longer_than_allowed(world):
    started = world.run(
        python("import signal, time; signal.signal(10, lambda *_: None); print('up', flush=True); time.sleep(60)")
    )
    assert eventually(lambda: "up" in world.stdout())
    before = time.monotonic()
    found = take(world, started, timeout_s=0.2)
    assert found["stacks"] == "asked for, but none were written in time"
    assert time.monotonic() - before < 10 * PATIENCE


def test_evidence_is_bounded(world):
    flood = "import sys; sys.stdout.write('\\x1b' * 500_000 + '\\n'); sys.stdout.flush(); print('up', flush=True); time.sleep(60)"
    found, _ = examine(world, [sys.executable, "-c", REGISTER + flood])
    assert all(len(text) <= 16 * 1024 for text in found.values())
    assert found["stdout"].startswith("\x1b" * 100), "as it was; it is made harmless where it is printed"


def test_a_worker_that_is_gone_is_told_as_gone(world):
    started = world.run(["true"])
    world.inbox.expect(Ended)
    gone = f"Pong (pid {started.pid}, token {started.token}) is gone"
    assert take(world, started) == {"process": gone}
    evidence.LocalEvidence(world.paths, world.launcher.attempt, world.inbox, BootClock()).take("Pong", started.token)
    assert world.inbox.expect(EvidenceTaken).evidence == {"process": "Pong is gone"}


@pytest.mark.fault("slow")
def test_what_slows_a_process_from_outside_is_told(tmp_path):
    files = {
        "proc/loadavg": "9.10 8.00 7.00 3/400 1234\n",
        "proc/pressure/cpu": "some avg10=55.00 avg60=40.00 avg300=1.00 total=5\nfull avg10=0.00 avg60=0.00\n",
        "proc/7/cgroup": "2:cpu,cpuacct:/x\n1:memory:/y\n0::/service\n",
        "sys/fs/cgroup/service/cpu.stat": "usage_usec 5\nnr_throttled 12\nthrottled_usec 900\n",
        "sys/fs/cgroup/cpu/x/cpu.stat": "nr_throttled 3\nthrottled_time 8\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = evidence.host_pressure(7, str(tmp_path))
    assert told == (
        f"load 9.10 8.00 7.00 on {os.cpu_count()} CPUs, cpu pressure avg10=55.00 avg60=40.00, "
        "nr_throttled 3, throttled_time 8, nr_throttled 12, throttled_usec 900"
    )
    assert evidence.host_pressure(8, str(tmp_path / "none")).startswith("load ")


def test_a_task_that_fails_in_the_spare_thread_ends_no_other(monkeypatch):
    tasks, done = Tasks("spare"), threading.Event()

    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with capture_logs() as logged:
        tasks.begin("first", lambda number: number / 0, 1)
        tasks.begin("second", done.set)
        assert done.wait(30.0)
    assert logged == [{"event": "task_failed", "exc_info": True, "log_level": "error"}]
    tasks.close()


def test_evidence_is_taken_although_no_thread_can_be_begun(world, monkeypatch):
    started = world.run(["sleep", "60"])
    assert eventually(lambda: (stat := procfs.read_stat(started.pid)).name == "sleep" and stat.state == "S"), "it has begun"
    taker = evidence.LocalEvidence(world.paths, world.launcher.attempt, world.inbox, BootClock())

    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    taker.take("Pong", started.token)
    assert ", state S" in world.inbox.expect(EvidenceTaken, started.token).evidence["process"]
