"""How an attempt ends: what is told of its end, who gets a signal, and that nothing of its tree stays; real processes."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from attempts_kit import BOOT, REPO, BootClock, eventually, gone, kill, python, spec
from leaks import open_files
from tools import no_descriptors

from supervisor.adapters import procfs, threads
from supervisor.adapters.process import processes, shim_code
from supervisor.adapters.process.processes import LocalLauncher
from supervisor.model.inputs import Ended, Ending, Survival, Survivor
from supervisor.policy.script.figures import Figures


def test_an_attempt_starts_runs_and_ends(world):
    started = world.run(["sh", "-c", "echo working; echo failing >&2; exit 3"])
    ended = world.inbox.expect(Ended)
    assert (started.program, started.token) == (ended.program, ended.token) == ("Pong", world.tokens[0])
    ending = ended.ending
    assert (ending.code, ending.signal, ending.fate, ending.leftovers) == (3, None, "", ())
    assert ending.last_lines == ("working", "failing")
    assert ending.max_rss_bytes > 0
    assert (ending.steps, ending.ckpt_step) == (None, None)
    assert 0 < started.now_s <= ended.now_s
    assert procfs.read_stat(started.shim_pid) is None, "no zombie stays"


CONTRACT_WORKER = """
import os
from workers.contract import Client, WorkerPhase
me = Client()
me.report("resumed", step=10)
with open(f"{os.environ['EXTRALIFE_RUN_DIR']}/attempts/1-{me.token}/reports.jsonl", "a") as reports:
    reports.write('{"kind": 3}\\n[]\\nnot json\\n{"kind": "odd", "x": NaN}\\n' + "[" * 100000 + "\\n")
me.phase(WorkerPhase.TRAINING)
me.committed(40, stall_s=0.0, write_s=0.1)
me.progress(env_steps=44)
print("\\x1b]0;evil\\x07 first\\rlast\\u202e form", "x" * 1000, sep="\\n", flush=True)
os.kill(os.getpid(), 9)
"""


def test_an_ending_carries_the_last_beat_the_reports_and_the_exact_last_lines(world):
    world.run([sys.executable, "-c", CONTRACT_WORKER], directory=str(REPO))
    ending = world.inbox.expect(Ended).ending
    assert ending.signal == signal.SIGKILL
    assert (ending.steps, ending.ckpt_step) == (44, 40)
    assert 0.0 <= ending.ended_at_s - ending.ckpt_at_s < 30.0, "both in journal time"
    assert [(report.kind, report.fields.get("step")) for report in ending.reports] == [("resumed", 10), ("odd", None)]
    assert ending.last_lines == ("last\u202e form", "x" * 400)


def test_without_a_beat_the_newest_step_of_its_own_output_is_in_an_ending(world):
    odd = [RuntimeError("odd")]

    def shown(program, token, _since_wall_s, _logs_from):
        assert (program, token) == ("Pong", world.tokens[-1])
        if world.tokens[1:] and odd:
            raise odd.pop()
        return Figures(steps=7, target=9)

    launcher = LocalLauncher(world.paths, BOOT, world.inbox, BootClock(), world.groups, shown=shown)
    with contextlib.closing(launcher):
        launcher.spawn(spec("Pong", ["true"]), 1, world.token())
        ending = world.inbox.expect(Ended).ending
        assert (ending.steps, ending.shown.steps, ending.shown.target) == (None, 7, 9)
        launcher.spawn(spec("Pong", ["true"]), 2, world.token())
        ending = world.inbox.expect(Ended).ending
        assert ending == Ending(fate="its end could not be read: RuntimeError: odd"), "it is one all the same"
        assert launcher.attempt(world.tokens[-1]) is None
        found = launcher.survey({"Pong": (2, world.tokens[-1])}, reads=False)["Pong"]
        assert (found.survival, found.ending.shown.steps) == (Survival.ENDED, 7), "a reboot hides no end that is on record"


TRAINS = """
import time
from workers.contract import Client, TargetKind, WorkerPhase
me = Client()
me.phase(WorkerPhase.TRAINING, batch_size=512)
me.committed(40, stall_s=0.0, write_s=0.1)
me.progress(env_steps=44, target=9, target_kind=TargetKind.EPISODES)  # 9 episodes are no steps to reach
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("adopted", [False, True])
def test_the_end_of_a_killed_shim_has_the_last_beat_of_its_worker(world, adopted):
    world.run(["echo", "of an earlier one"])
    world.inbox.expect(Ended)
    started = world.run([sys.executable, "-c", TRAINS], attempt=2, directory=str(REPO))
    assert eventually(lambda: world.stdout().endswith("up\n"))
    if adopted:
        launcher = world.new_launcher()
        launcher.adopt("Pong", 2, launcher.survey({"Pong": (2, started.token)})["Pong"])
    kill(started.shim_pid)
    ending = world.inbox.expect(Ended, started.token).ending
    assert 0.0 < BootClock().now_s() - ending.ckpt_at_s < 600.0
    fate = "its shim was killed" if adopted else "its shim was killed by signal 9"
    assert replace(ending, ckpt_at_s=None) == Ending(last_lines=("up",), steps=44, ckpt_step=40, batch_size=512, fate=fate)


def test_leftovers_are_told(world):
    world.run(["sh", "-c", "setsid sleep 60 & exit 1"])
    ending = world.inbox.expect(Ended).ending
    assert ending.code == 1
    assert len(ending.leftovers) == 1
    assert gone(int(ending.leftovers[0].rpartition("(")[2][:-1]))


_SHARES_MEMORY = """
import os, sys, time
from multiprocessing import shared_memory
own, both = (shared_memory.SharedMemory(name=name, create=True, size=8192) for name in sys.argv[1:])
os.fork()
print("up", flush=True)
time.sleep(600)
"""


def test_shared_memory_that_only_a_killed_tree_had_mapped_is_removed(world):
    own, both = f"xl-own-{os.getpid()}", f"xl-both-{os.getpid()}"
    started = world.run([*python(_SHARES_MEMORY), own, both])
    assert eventually(lambda: world.stdout() == "up\nup\n")
    with (Path("/dev/shm") / both).open("r+b") as file, mmap.mmap(file.fileno(), 0):
        world.launcher.kill_tree("Pong", started.token)
        leftovers = world.inbox.expect(Ended).ending.leftovers
    Path("/dev/shm", both).unlink()  # the test had mapped it, so it was still here
    assert not Path("/dev/shm", own).exists()
    assert [each for each in leftovers if each.startswith("/")] == [f"/dev/shm/{own} (8192 bytes)"]


def test_an_end_that_cannot_be_read_for_lack_of_descriptors_is_read_after_it(world):
    started = world.run(["sh", "-c", "sleep 0.5; exit 3"])
    shim = os.pidfd_open(started.shim_pid)
    with no_descriptors():
        assert procfs.wait_gone(shim, 60.0)
        assert eventually(lambda: "end-Pong" in [each.name for each in threads.failing()])
        assert world.inbox.empty(), "an exit record that cannot be opened is not missing"
    assert world.inbox.expect(Ended).ending.code == 3
    assert "end-Pong" not in [each.name for each in threads.failing()]
    os.close(shim)


def test_an_end_that_the_watcher_has_missed_is_found_and_reported(world):
    started = world.run(["sleep", "60"])
    launcher, token = world.launcher, started.token
    with launcher._guard:
        launcher._watched.pop(next(iter(launcher._watched)))
        launcher._epoll.unregister(launcher._live[token].shim_fd)
    assert launcher.gone([token]) == frozenset()
    kill(started.pid)
    assert eventually(lambda: launcher.gone([token]) == {token})
    launcher.report_end("Pong", 1, token)
    assert world.inbox.expect(Ended).ending.signal == signal.SIGKILL


@pytest.fixture
def no_new_threads(world, monkeypatch):
    """From the moment that it is called, no thread can be begun in this process."""
    assert world.launcher  # its own threads run already, as a daemon's do

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading.Thread, "start", refused)


def test_a_worker_is_ended_although_no_thread_can_be_begun(world, no_new_threads):
    started = world.run(["sleep", "60"])
    no_new_threads()
    world.launcher.kill_tree("Pong", started.token)
    assert world.inbox.expect(Ended, started.token).ending.signal == signal.SIGKILL
    assert gone(started.pid)


# --- signals ---------------------------------------------------------------------------------------------------------------


def test_a_signal_goes_to_the_worker_alone(world):
    script = "trap 'echo got it' USR2; sleep 60 & echo up; while :; do wait; done"
    started = world.run(["bash", "-c", script])
    assert eventually(lambda: world.stdout() == "up\n")
    world.launcher.signal("Pong", started.token, "SIGUSR2")
    assert eventually(lambda: world.stdout() == "up\ngot it\n")
    (sleeper,) = procfs.descendants([started.pid])
    # Before it has become sleep it is a bash that catches the signal, as its parent does.
    assert eventually(lambda: Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n")
    assert procfs.is_alive(sleeper.pid, sleeper.start_ticks)
    world.launcher.signal("Pong", started.token, "9")
    assert world.inbox.expect(Ended).ending.signal == signal.SIGKILL
    world.launcher.signal("Pong", started.token, "SIGTERM")  # gone: nothing happens


def test_only_the_programs_own_attempt_is_signalled_and_no_descriptor_stays_open(world):
    started = world.run(["bash", "-c", "sleep 60 & echo up; wait"])
    assert eventually(lambda: world.stdout() == "up\n")
    (child,) = procfs.descendants([started.pid])
    before = open_files()
    others = (("Qbert", started.token), ("Pong", "ab" * 16))
    for program, token in others:
        world.launcher.signal(program, token, "KILL")
    world.launcher.signal("Pong", started.token, "CONT")
    with pytest.raises(ValueError, match=r"^no such signal: 'NONE'$"):
        world.launcher.signal("Qbert", started.token, "NONE")
    kill(child.pid, signal.SIGSTOP)
    assert eventually(lambda: procfs.read_stat(child.pid).state == "T")
    for program, token in others:
        world.launcher.continue_child(program, token, child.pid, child.start_ticks)
    world.launcher.continue_child("Pong", started.token, child.pid, child.start_ticks + 1)
    assert procfs.read_stat(child.pid).state == "T"
    world.launcher.continue_child("Pong", started.token, child.pid, child.start_ticks)
    assert eventually(lambda: procfs.read_stat(child.pid).state != "T")
    assert procfs.is_alive(started.pid, started.start_ticks)
    assert open_files() <= before


def test_a_reused_pid_is_never_signalled(world):
    with subprocess.Popen(["sleep", "60"], env={}) as stranger:
        stat = procfs.read_stat(stranger.pid)
        token = world.token()
        pids = stranger.pid, stat.start_ticks + 1, stranger.pid, stat.start_ticks + 1
        world.launcher.adopt("Pong", 1, Survivor(token, Survival.ALIVE, *pids))
        world.launcher.signal("Pong", token, "SIGKILL")
        world.launcher.kill_tree("Pong", token)
        assert world.inbox.expect(Ended, token).ending.fate == "its shim was killed"
        assert procfs.is_alive(stranger.pid, stat.start_ticks)
        stranger.kill()


TO_BE_ASKED = "trap 'echo asked; exit 75' TERM; echo up; while :; do sleep 0.05; done"


def test_a_shim_that_is_stopped_passes_the_asking_on_all_the_same(world):
    started = world.run(["bash", "-c", TO_BE_ASKED])
    assert eventually(lambda: world.stdout() == "up\n")
    kill(started.shim_pid, signal.SIGSTOP)
    world.launcher.ask_to_leave("Breakout", started.token)  # another program's name: nothing happens
    world.launcher.ask_to_leave("Pong", started.token)
    assert world.inbox.expect(Ended).ending.code == 75
    assert world.stdout() == "up\nasked\n"


def test_a_worker_under_the_shim_of_an_older_release_is_asked_by_the_daemon(world, monkeypatch, tmp_path):
    older = tmp_path / "shim.py"
    text = shim_code._SOURCE.read_text()
    for now, then in (("_signal.SIGUSR2, _ASK}", "_signal.SIGUSR2}"), ("_signal.SIGPIPE)", "_signal.SIGPIPE, _ASK)")):
        assert text.count(now) == 1, "it ignored the signal that asks it now"
        text = text.replace(now, then)
    older.write_text(text)
    monkeypatch.setattr(shim_code, "_SOURCE", older)
    started = world.run(["bash", "-c", TO_BE_ASKED])
    assert eventually(lambda: world.stdout() == "up\n")
    assert procfs.ignores(started.shim_pid, signal.SIGUSR1)
    kill(started.pid, signal.SIGSTOP)
    world.launcher.ask_to_leave("Pong", started.token)
    assert world.inbox.expect(Ended).ending.code == 75


# --- killing ---------------------------------------------------------------------------------------------------------------


def test_a_daemon_that_loses_its_state_directory_to_another_host_leaves_no_worker(world):
    pids = [world.run(["sh", "-c", "trap '' TERM; sleep 60"], name=name).pid for name in ("Pong", "Qbert")]
    world.launcher.end_all()
    assert eventually(lambda: all(map(gone, pids)))


def test_a_tree_whose_shim_is_stopped_is_ended_all_the_same(world, monkeypatch):
    monkeypatch.setattr(processes, "_KILL_PATIENCE_S", 0.1)
    started = world.run(["sh", "-c", "setsid sleep 60 & echo up; wait"])
    assert eventually(lambda: world.stdout() == "up\n")
    tree = [stat.pid for stat in procfs.descendants([started.shim_pid])]
    assert len(tree) == 2, "the shell and its sleep"
    kill(started.shim_pid, signal.SIGSTOP)
    world.launcher.kill_tree("Pong", started.token)
    assert world.inbox.expect(Ended).ending.fate == "its shim was killed by signal 9"
    assert all(gone(pid) for pid in tree)
    assert eventually(lambda: ("end", started.token) in world.groups.asked)
    assert ("kill with its shim", started.token) in world.groups.asked


HOME = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from attempts_kit import World, eventually, gone, kill
from supervisor.adapters import procfs, threads
from supervisor.adapters.process import orphans, processes
from supervisor.model.inputs import Ended
processes._REAP_PERIOD_S = 0.05
home = orphans.Orphans()
if sys.argv[3] == "home": assert home.adopt()
world = World(Path(sys.argv[2]), home=home)
helper = subprocess.Popen(["sleep", "60"])  # of the daemon's own session
said = lambda: Path(sys.argv[2], "hidden").exists() and Path(sys.argv[2], "hidden").read_text().split()
hide = f"setsid -f env -i sh -c 'echo $$ >> {sys.argv[2]}/hidden; exec sleep 60'"
other = world.run(["sh", "-c", "sleep 60 & wait"], name="Other")
started = world.run(["sh", "-c", f"{hide}; {hide}; wait; sleep 60"])
assert eventually(lambda: len(said() or ()) == 2)
hidden = [int(word) for word in said()]
assert eventually(lambda: all(procfs.read_stat(pid).name == "sleep" for pid in hidden))
later = world.run(["sh", "-c", "sleep 60 & wait"], name="Later")
kill(started.shim_pid)
ending = world.inbox.expect(Ended, started.token).ending
left = [pid for pid in hidden if not gone(pid)]
alive = [helper.poll() is None, *(procfs.is_alive(each.shim_pid, each.shim_start_ticks) for each in (other, later))]
reaped = sys.argv[3] != "home" or eventually(lambda: not any(map(procfs.read_stat, hidden)))
kill(later.pid, signal.SIGTERM)  # its shim's end is told by Popen, whatever the reaper does
code = world.inbox.expect(Ended, later.token).ending.signal
for pid in left: kill(pid)
helper.kill()
world.close()
told = {"fate": ending.fate, "leftovers": ending.leftovers, "hidden": hidden, "left": left}
print(json.dumps(told | {"alive": alive, "reaped": reaped, "signal": code}), flush=True)
"""


@pytest.mark.parametrize("home", ["home", "pid 1"])
def test_the_orphans_of_a_killed_shim_come_home_to_the_daemon_and_are_ended(tmp_path, home):
    """In a session and an environment of their own: without a sub-reaper nothing finds them (the second case)."""
    args = [sys.executable, "-c", HOME, str(Path(__file__).parent), str(tmp_path), home]
    told = json.loads(subprocess.run(args, cwd=REPO, stdout=subprocess.PIPE, timeout=120, check=True).stdout)
    assert told["fate"] == "its shim was killed by signal 9"
    assert told["alive"] == [True] * 3, "neither the daemon's helpers nor other attempts are touched"
    assert told["reaped"], "no zombie stays"
    assert told["signal"] == signal.SIGTERM
    if home == "home":
        assert told["left"] == []
        assert {f"sleep({pid})" for pid in told["hidden"]} <= set(told["leftovers"])
    else:
        assert told["left"] == told["hidden"]


def test_a_session_whose_number_was_given_away_is_not_swept():
    """A shim's pid is another process' by now, which leads a session of its own: it and its children are strangers."""
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo up; wait"], env={"PATH": os.environ["PATH"]}, start_new_session=True,
                          stdout=subprocess.PIPE) as stranger:  # fmt: skip
        stranger.stdout.readline()
        (child,) = procfs.descendants([stranger.pid])
        assert eventually(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
        ticks = procfs.read_stat(stranger.pid).start_ticks
        token = secrets.token_hex(16)  # nobody's: it is looked for on the whole machine
        assert processes.kill_attempt(token, (stranger.pid, ticks - 1)) == ()
        assert procfs.is_alive(stranger.pid, ticks)
        assert procfs.is_alive(child.pid, child.start_ticks)
        assert processes.kill_attempt(token, (stranger.pid, ticks)) == (f"sleep({child.pid})",), "with the right ticks it is"
