"""How the launcher finds attempts again that ran or ended without a daemon: real processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from attempts_kit import BootClock, eventually, gone, kill, python, spec
from structlog.testing import capture_logs

from supervisor.adapters import procfs
from supervisor.adapters.process import endings, processes
from supervisor.model.inputs import Ended, SpawnBroke, SpawnSucceeded, Survival, Survivor
from workers import contract

VANISHED = {
    "the state directory": ("state",),
    "the runtime directory": ("runtime",),
    "both": ("state", "runtime"),
    "both, and the lock of another is there": ("runtime", "run_dir"),
    "lock": ("runtime", "lock"),
    "fence": ("runtime", "fence"),
    "lock and fence": ("runtime", "lock", "fence"),
    "attempts": ("runtime", "lock", "fence", "attempts"),
    "record": ("record",),
    "record and lock": ("record", "lock"),
    "nothing": (),
}


@pytest.mark.parametrize("recorded", [True, False], ids=["journal", "no-journal"])
@pytest.mark.parametrize("vanished", VANISHED.values(), ids=VANISHED)
def test_whatever_vanished_while_no_daemon_ran_a_living_worker_is_adopted(world, vanished, recorded):
    """Else a second worker of the same program would be started beside it."""
    started = world.run(["sleep", "60"], attempt=3)
    world.launcher.close()
    world._launcher = None
    paths, run_dir = world.paths, Path(world.paths.run_dir("Pong"))
    places = {
        "state": Path(paths.state_dir), "runtime": Path(paths.runtime_dir), "run_dir": run_dir,
        "record": Path(paths.shim_record("Pong")), "lock": run_dir / contract.LOCK_FILE,
        "fence": run_dir / contract.FENCE_FILE, "attempts": run_dir / contract.ATTEMPTS_DIR,
    }  # fmt: skip
    for name in vanished:
        place = places[name]
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    launcher = world.new_launcher()
    Path(paths.state_dir).mkdir(exist_ok=True)
    Path(paths.journal).touch()
    survivor = launcher.survey({"Pong": (3, started.token)})["Pong"] if recorded else None
    number, found = launcher.unrecorded_workers(["Pong"])["Pong"]
    assert survivor in (None, found)
    assert (number, found.survival, found.token) == (3, Survival.ALIVE, started.token)
    assert (found.pid, found.start_ticks, found.shim_pid) == (started.pid, started.start_ticks, started.shim_pid)
    launcher.adopt("Pong", 3, found)
    fence = places["fence"]
    assert eventually(lambda: fence.exists() and fence.read_text().strip() == started.token), "it may save again"
    assert eventually(lambda: launcher._try_lock("Pong") is None)
    launcher.kill_tree("Pong", started.token)
    assert world.inbox.expect(Ended).token == started.token


def test_of_two_workers_without_any_file_the_older_is_adopted_and_the_other_ended(world):
    first = world.run(["sleep", "60"])
    shutil.rmtree(world.paths.state_dir)
    second = world.run(["sleep", "60"], attempt=2)
    world.launcher.close()
    world._launcher = None
    shutil.rmtree(world.paths.state_dir)
    shutil.rmtree(world.paths.runtime_dir)
    launcher = world.new_launcher()
    assert launcher.unrecorded_workers(["Qbert"]) == {}, "only those of the programs in question"
    number, found = launcher.unrecorded_workers(["Pong"])["Pong"]
    assert (number, found.token) == (1, first.token)
    assert gone(second.pid)


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def test_a_worker_of_another_boot_id_that_still_runs_blocks_nobody(world, monkeypatch):
    """Its start is on no record, so nobody expects it; its lock is held, so nothing could start beside it."""
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 600.0)  # it is ended at once
    started = world.run(python(STUBBORN))
    assert eventually(lambda: "up" in world.stdout())
    world.launcher.close()
    other = processes.LocalLauncher(world.paths, "f" * 32, world.inbox, BootClock())
    try:
        assert other.unrecorded_workers(["Pong", "Nobody"]) == {}
        assert gone(started.pid)
        token = world.token()
        other.spawn(spec("Pong", python("print('again')")), 2, token)
        assert world.inbox.expect(Ended, token).ending.code == 0
    finally:
        other.close()
    world._launcher = None


def test_a_worker_whose_run_directory_was_removed_is_found_by_every_later_daemon(world):
    """Its shim's lock went with the directory. Nobody expects it: a damaged journal has lost its start."""
    started = world.run(python(STUBBORN))
    assert eventually(lambda: "up" in world.stdout())
    shutil.rmtree(world.paths.run_dir("Pong"))
    fence = Path(world.paths.run_dir("Pong"), contract.FENCE_FILE)
    fence.parent.mkdir()
    fence.write_text(f"{'0' * 32}\n")
    with pytest.raises(FileExistsError) as refused:
        make_again(world, started.token)
    assert refused.value.args == (errno.EEXIST, "a run directory with another attempt's fence was put there")
    fence.unlink()
    with (fence.parent / contract.LOCK_FILE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            make_again(world, started.token)
        assert not fence.exists(), "the attempt that holds the lock may be about to write its own"
    shutil.rmtree(fence.parent)
    make_again(world, started.token)
    assert fence.read_text() == f"{started.token}\n"
    lock = Path(world.paths.run_dir("Pong"), contract.LOCK_FILE)
    assert is_held(lock), "by the daemon, for the shim"
    for _ in range(2):
        again = world.new_launcher()
        assert not is_held(lock), "the daemon that held it is gone"
        number, survivor = again.unrecorded_workers(["Pong"])["Pong"]
        assert (number, survivor.token, survivor.pid) == (1, started.token, started.pid)
        again.adopt("Pong", number, survivor)
        # A look at the lock takes it for a moment, and the daemon tries once.
        assert eventually(lambda again=again: again._live[started.token].lock_fd >= 0)
        assert is_held(lock)
    kill(started.pid)
    assert world.inbox.expect(Ended, started.token).ending.signal == signal.SIGKILL
    assert eventually(lambda: not is_held(lock)), "the next attempt wants it"
    assert world.launcher.unrecorded_workers(["Pong"]) == {}


def make_again(world, token):
    live = world.launcher._live[token]
    world.launcher._restore_run_dir(live, live.attempt)


def is_held(lock):
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_end_of_an_attempt_between_survey_and_adoption_is_not_missed(world):
    started = world.run(["sleep", "60"])
    launcher = world.new_launcher()
    survivor = launcher.survey({"Pong": (1, started.token)})["Pong"]
    kill(started.pid)
    assert eventually(lambda: gone(started.shim_pid))
    launcher.adopt("Pong", 1, survivor)
    assert world.inbox.expect(Ended).ending.signal == signal.SIGKILL
    assert procfs.read_stat(started.shim_pid) is None


def test_a_shim_that_ended_while_its_daemon_re_executed_itself_leaves_no_zombie(world):
    started = world.run(["sleep", "60"])
    launcher = world.new_launcher()  # in the same process: the shim stays our child
    kill(started.pid)
    assert eventually(lambda: gone(started.shim_pid))
    assert launcher.survey({"Pong": (1, started.token)})["Pong"].survival is Survival.ENDED
    assert procfs.read_stat(started.shim_pid) is None


def test_an_attempt_whose_shim_was_killed_meanwhile_has_vanished_and_its_rest_is_ended(world):
    started = world.run(["bash", "-c", "setsid sleep 60 & echo up; wait"])
    assert eventually(lambda: {s.name for s in procfs.descendants([started.pid])} == {"sleep"})
    assert eventually(lambda: world.stdout() == "up\n"), "that is said after the sleep has begun"
    (sleeper,) = procfs.descendants([started.pid])
    launcher = world.new_launcher()
    kill(started.shim_pid)
    assert eventually(lambda: gone(started.pid))
    survivor = launcher.survey({"Pong": (1, started.token)})["Pong"]
    assert (survivor.survival, survivor.ending.fate) == (Survival.VANISHED, "its shim was killed")
    assert survivor.ending.leftovers == (f"sleep({sleeper.pid})",)
    assert survivor.ending.last_lines == ("up",)
    assert gone(sleeper.pid)


def test_a_record_of_another_boot_names_no_living_process(world):
    started = world.run(["sleep", "60"])
    record = processes.read_record(world.paths.shim_record("Pong"))
    world.launcher.kill_tree("Pong", started.token)
    world.inbox.expect(Ended)
    Path(world.paths.attempt_dir("Pong", 1, started.token), "exit.json").unlink()  # a power cut leaves none
    me = procfs.read_stat(os.getpid())
    elsewhere = replace(record, boot_id="ff" * 16, shim_pid=me.pid, shim_start_ticks=me.start_ticks)
    Path(world.paths.shim_record("Pong")).write_text(json.dumps(asdict(elsewhere)))
    survivor = world.new_launcher().survey({"Pong": (1, started.token)})["Pong"]
    assert (survivor.survival, survivor.pid) == (Survival.VANISHED, None)
    assert survivor.ending.fate == "no exit record was left"


def test_an_attempt_that_was_only_intended_never_ran_and_never_will(world):
    token = world.token()
    assert world.launcher.survey({"Pong": (1, token)})["Pong"].survival is Survival.NEVER
    left = endings.read_ending(world.paths, "Pong", 1, token)
    assert (left.code, left.signal, left.fate) == (None, None, "cancelled by a newer daemon before it started")
    world.launcher.spawn(spec("Pong", ["sleep", "60"]), 1, token)  # the dead daemon's shim, late
    assert "was cancelled before it started" in world.inbox.expect(SpawnBroke).error


def test_a_shim_that_is_just_starting_is_waited_for(world, monkeypatch):
    monkeypatch.setattr(processes, "_LOCK_WAIT_S", 60.0)  # this test may stand still while it has the lock
    looked, go_on = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        looked.set()
        go_on.wait(60)

    monkeypatch.setattr(processes.time, "sleep", sleep)
    processes.make_dir(world.paths.run_dir("Pong"))
    found: list[Survivor] = []
    with Path(world.paths.run_dir("Pong"), "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        token = world.begin(["sleep", "60"])
        survey = threading.Thread(target=lambda: found.append(world.launcher.survey({"Pong": (1, token)})["Pong"]))
        survey.start()
        assert looked.wait(60)
    started = world.inbox.expect(SpawnSucceeded, token)
    go_on.set()
    survey.join()
    assert (found[0].survival, found[0].pid) == (Survival.ALIVE, started.pid)


def test_an_attempt_that_is_over_is_not_waited_for_although_another_holds_its_lock(world, monkeypatch):
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 600.0)
    first = world.run(["sh", "-c", "exit 7"])
    world.inbox.expect(Ended)
    world.run(["sleep", "600"], attempt=2)
    found = world.new_launcher().survey({"Pong": (1, first.token)})["Pong"]
    assert (found.survival, found.ending.code) == (Survival.ENDED, 7)


def test_a_hung_holder_of_a_lock_is_ended_and_named(world, monkeypatch):
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 0.2)
    started = world.run(["sleep", "60"], attempt=3)
    again = world.new_launcher()
    kill(started.shim_pid, signal.SIGSTOP)
    Path(world.paths.shim_record("Pong")).unlink()
    kill(started.pid)
    assert eventually(lambda: gone(started.pid))
    name = procfs.read_stat(started.shim_pid).name
    with capture_logs() as logged:
        assert again.unrecorded_workers(["Pong"]) == {}
    assert [(each["event"], each["attempt"], each["processes"]) for each in logged] == [
        ("unrecorded_attempt_ended", 3, (f"{name}({started.shim_pid})",))
    ]  # fmt: skip
    assert gone(started.shim_pid)
