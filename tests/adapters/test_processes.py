"""The launcher on real processes: start, watch, end, and find again after a daemon's death."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from attempts_kit import BOOT, REPO, BootClock, World, eventually, gone, kill, python, spec
from checkpoints_kit import commit
from leaks import open_files
from structlog.testing import capture_logs
from tools import no_descriptors

from supervisor import users
from supervisor.adapters import procfs, threads
from supervisor.adapters.process import cgroups, endings, limits, processes, shim_code
from supervisor.adapters.process.processes import LocalLauncher
from supervisor.model.inputs import Ended, Ending, SpawnBroke, SpawnSucceeded, Survival, Survivor
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.worker.placeholders import Template
from workers import contract


class Groups(cgroups.Cgroups):
    """Makes no cgroup, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(cgroups.OwnCgroup(None, "of a test"), lambda _name: cgroups.Limits(None, None, 0, 0))
        self.asked: list[tuple[str, ...]] = []
        self.first = threading.Event()  # set: the first start goes on
        self.first.set()
        self.error: Exception | None = None
        self.path = ""  # the cgroup of each attempt

    def begin(self, program: str, token: str, attempt_dir: str) -> str:
        self.asked.append(("begin", program, token, attempt_dir))
        if program == "Hangs":
            self.first.wait(60)
        if self.error is not None:
            raise self.error
        if self.path:
            cgroups._note(attempt_dir, cgroups.Confined(self.path, cgroups.Limits(1, 2, 3, 4), counts_oom=True))
        return self.path

    def adopt(self, program: str, token: str, attempt_dir: str) -> None:
        self.asked.append(("adopt", program, token, attempt_dir))

    def members(self, token: str) -> list[int]:
        self.asked.append(("members", token))
        return []

    def kill(self, token: str, *, shim: bool = False) -> bool:
        self.asked.append(("kill with its shim" if shim else "kill", token))
        return False

    def end(self, token: str) -> None:
        self.asked.append(("end", token))


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, Groups())
    yield world
    world.close()


def test_a_daemon_that_loses_its_state_directory_to_another_host_leaves_no_worker(world):
    pids = [world.run(["sh", "-c", "trap '' TERM; sleep 60"], name=name).pid for name in ("Pong", "Qbert")]
    world.launcher.end_all()
    assert eventually(lambda: all(map(gone, pids)))


# --- starting and ending ---------------------------------------------------------------------------------------------------


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


def test_an_attempt_whose_report_was_lost_is_watched_again_or_reported(world):
    started = world.run(["sleep", "60"])
    launcher, token = world.launcher, started.token
    shim = launcher._live[token].shim

    def forget() -> None:
        launcher._live.pop(token)
        launcher._taken.discard(token)
        assert launcher.gone([token]) == {token}

    forget()
    launcher.report_end("Pong", 1, token)
    assert eventually(lambda: launcher.gone([token]) == frozenset()), "it runs, and is adopted"
    forget()
    kill(started.pid)
    shim.wait()
    launcher.report_end("Pong", 1, token)
    assert world.inbox.expect(Ended).ending.signal == signal.SIGKILL


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


def test_the_worker_sees_the_contract_and_nothing_of_systemd(world, monkeypatch):
    for name in contract.STRIPPED_ENV:
        monkeypatch.setenv(name, "the daemon's own")
    monkeypatch.setenv("FROM_DAEMON", "1")
    monkeypatch.setenv("RL_LR", "1")
    monkeypatch.setitem(os.environb, b"ODD", b"\xff")
    monkeypatch.setenv("EXTRALIFE_TOKEN", "of an outer supervisor")
    for name in ("EXTRALIFE_TEST_PATIENCE", "EXTRALIFE_BOOT_FILES", "EXTRALIFE_MUTANTS_CALLS"):
        monkeypatch.delenv(name, raising=False)
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    token = world.begin(
        python(code), attempt=7, env=(("FROM_SPEC", "2"), ("PYTHONFAULTHANDLER", "0"), ("EXTRALIFE_TOKEN", "x"))
    )
    world.inbox.expect(Ended)
    env = json.loads(world.stdout())
    paths = world.paths
    assert {name: value for name, value in env.items() if name.startswith("EXTRALIFE") or name in contract.STRIPPED_ENV} == {
        contract.ENV_PROGRAM: "Pong",
        contract.ENV_TOKEN: token,
        contract.ENV_ATTEMPT: "7",
        contract.ENV_RUN_DIR: paths.run_dir("Pong"),
        contract.ENV_BEAT: paths.beat("Pong", 7),
        contract.ENV_CONTROL: paths.control("Pong", 7),
        contract.ENV_LEAVE_BY: paths.leave_by("Pong", 7),
        contract.ENV_BOOT_ID: BOOT,
        contract.ENV_STACKS: f"{paths.attempt_dir('Pong', 7, token)}/stacks.txt",
        contract.ENV_NOTIFY: paths.notify_socket("Pong"),
    }
    assert (env["FROM_DAEMON"], env["FROM_SPEC"], env["PYTHONUNBUFFERED"], env["PYTHONFAULTHANDLER"]) == ("1", "2", "1", "0")
    assert (env["ODD"], env["RL_LR"], env["SUPERVISOR_PROCESS_NAME"]) == ("\udcff", "1", "Pong")
    builtin = processes.worker_env(paths, spec("Pong", ["x"], builtin=True), 7, token, BOOT)
    assert not [name for name in builtin if name.startswith(("RL_", "SUPERVISOR_"))], "its flags say all"


def test_a_command_is_filled_in_at_its_start(world, monkeypatch):
    monkeypatch.setenv("EXTRALIFE_LEVEL", "of an outer supervisor")
    template = Template((("num_envs", "32"),))
    words = [
        "sh",
        "-c",
        'echo "$@" ${EXTRALIFE_NUM_ENVS}-${EXTRALIFE_LEVEL-unset}-$MINE',
        "x",
        "{num_envs}",
        "--resume={resume}",
    ]
    checkpoint = commit(Path(world.paths.run_dir("Pong")), 7)
    world.run(words, template=template, env=(("MINE", "{{{num_envs}}}"),))
    world.inbox.expect(Ended)
    assert world.stdout() == f"32 --resume={checkpoint} 32-unset-{{32}}\n"
    (checkpoint / "state.json").write_text("torn")
    world.run(words, attempt=2, template=template, env=(("MINE", ""),))
    world.inbox.expect(Ended)
    assert world.stdout().splitlines()[-1] == "32 32-unset-", "no checkpoint is whole: the word is gone"
    own = spec("Pong", words, template=template, checkpoint_glob="*.pt")
    with pytest.raises(OSError, match=r"^its checkpoints cannot be looked at, so \{resume\} is not known$"):
        processes.filled_in(own, world.paths.run_dir("Pong"))


def test_no_descriptor_of_the_daemon_leaks_into_the_worker(world):
    inheritable = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inheritable, True)  # as some C libraries open their devices
    try:
        world.run(python("import os; print(*sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"))
        world.inbox.expect(Ended)
    finally:
        os.close(inheritable)
    assert world.stdout() == "0 1 2\n"


def test_the_program_runs_in_its_directory_and_with_the_daemons_umask(world, tmp_path):
    before = os.umask(0o027)
    try:
        world.run(["sh", "-c", "pwd; umask"], directory=str(tmp_path))
        world.inbox.expect(Ended)
    finally:
        os.umask(before)
    assert world.stdout() == f"{tmp_path}\n0027\n"


@pytest.mark.parametrize(("argv", "permanent"), [(["no-such-trainer"], True), (["true"], False)])
def test_what_cannot_start_is_said_and_leaves_nothing(world, argv, permanent, tmp_path):
    directory = "" if permanent else str(tmp_path / "unmounted")
    token = world.begin(argv, directory=directory)
    broke = world.inbox.expect(SpawnBroke, token)
    assert broke.permanent is permanent
    assert ("no such command: 'no-such-trainer'" if permanent else "cannot enter the directory") in broke.error
    assert world.launcher.attempt(token) is None
    assert eventually(lambda: not processes._members(token, None))
    assert world.inbox.empty()


def test_an_unusable_state_directory_is_named(world):
    Path(world.paths.state_dir).rmdir()
    Path(world.paths.state_dir).write_text("a file where a directory should be")
    broke = world.inbox.expect(SpawnBroke, world.begin(["true"]))
    assert broke.error == f"cannot start Pong: {world.paths.state_dir}: Not a directory"
    assert not broke.permanent


def test_nothing_of_the_runtime_directory_is_executed(world):
    runtime = Path(world.paths.runtime_dir)
    planted = runtime / f"shim.{sys.implementation.cache_tag}.pyc"  # where an older daemon kept the compiled shim
    planted.write_bytes(b"not code")
    world.run(["sleep", "60"])
    assert planted.read_bytes() == b"not code"
    world.run(["sleep", "60"], name="Breakout")
    assert [each for each in runtime.rglob("*") if each.suffix == ".pyc"] == [planted]


def test_the_compiled_shim_cannot_be_changed_and_is_not_handed_to_the_worker(world):
    world.run(["sh", "-c", "ls -l /proc/$$/fd"])
    code = world.launcher._code
    for change in (lambda: os.pwrite(code.fd, b"x", 0), lambda: os.ftruncate(code.fd, 0)):
        with pytest.raises(PermissionError):
            change()
    world.inbox.expect(Ended)
    assert "/dev/null" in world.stdout()
    assert "memfd" not in world.stdout()


def test_a_second_attempt_never_runs_beside_a_living_first(world, monkeypatch):
    monkeypatch.setattr(processes, "_LOCK_WAIT_S", 0.05)
    first = world.run(["sleep", "60"])
    broke = world.inbox.expect(SpawnBroke, world.begin(["sleep", "60"], attempt=2))
    assert f"attempt 1, token {first.token}, shim pid {first.shim_pid}" in broke.error


# --- what an ending tells ----------------------------------------------------------------------------------------------------

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


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def test_a_worker_of_another_boot_id_that_still_runs_blocks_nobody(world, monkeypatch):
    """Its start is on no record, so nobody expects it; its lock is held, so nothing could start beside it."""
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 600.0)  # it is ended at once
    started = world.run(python(STUBBORN))
    assert eventually(lambda: "up" in world.stdout())
    world.launcher.close()
    other = processes.LocalLauncher(world.paths, "f" * 32, world.inbox, BootClock())
    try:
        with capture_logs() as logged:
            assert other.unrecorded_workers(["Pong", "Nobody"]) == {}
        (entry,) = logged
        assert entry.pop("processes")
        assert entry == {"event": "unrecorded_attempt_ended", "program": "Pong", "attempt": 1, "log_level": "warning"}
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
    fence.write_text("of another attempt\n")
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


# --- signals and killing -----------------------------------------------------------------------------------------------------


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


def test_what_only_the_second_look_finds_is_swept_too():
    """An orphan comes home once its parent has ended: after the first look, maybe."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as orphan:
        assert eventually(lambda: Path(f"/proc/{orphan.pid}/comm").read_text() == "sleep\n")
        looks = iter([(), (orphan.pid,)])
        assert processes.kill_attempt(secrets.token_hex(16), None, more=lambda: next(looks, ())) == (f"sleep({orphan.pid})",)
        assert orphan.wait() == -signal.SIGKILL


TO_BE_ASKED = "trap 'echo asked; exit 75' TERM; echo up; while :; do sleep 0.05; done"


def test_a_shim_that_is_stopped_passes_the_asking_on_all_the_same(world):
    started = world.run(["bash", "-c", TO_BE_ASKED])
    assert eventually(lambda: world.stdout() == "up\n")
    kill(started.shim_pid, signal.SIGSTOP)
    world.launcher.ask_to_leave("Breakout", started.token)  # another program's name: nothing happens
    world.launcher.ask_to_leave("Pong", started.token)
    assert world.inbox.expect(Ended).ending.code == 75
    assert world.stdout() == "up\nasked\n"


def test_a_program_is_asked_to_leave_with_its_own_signal(world):
    started = world.run(["bash", "-c", TO_BE_ASKED.replace("TERM", "INT")], stop_signal="INT", stop_signal_to="leader")
    assert eventually(lambda: world.stdout() == "up\n")
    world.launcher.ask_to_leave("Pong", started.token)
    assert world.inbox.expect(Ended).ending.code == 75


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


def test_a_killed_shim_takes_its_tree_with_it(world):
    # One child in a session of its own with the mark, one with an empty environment in the shim's session.
    started = world.run(["bash", "-c", "setsid sleep 60 & env -i sleep 60 & echo up; wait"])
    assert eventually(lambda: len(procfs.descendants([started.pid])) == 2)
    assert eventually(lambda: {stat.name for stat in procfs.descendants([started.pid])} == {"sleep"})
    tree = [stat.pid for stat in procfs.descendants([started.shim_pid])]
    kill(started.shim_pid)
    ending = world.inbox.expect(Ended).ending
    assert ending.fate == "its shim was killed by signal 9"
    assert (ending.code, ending.signal) == (None, None)
    assert sorted(ending.leftovers) == sorted(f"sleep({pid})" for pid in tree if pid != started.pid)
    assert all(gone(pid) for pid in tree)
    assert world.run(["true"], attempt=2)


# --- a daemon's death ----------------------------------------------------------------------------------------------------------

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


def test_directories_are_made_by_several_starts_at_once(tmp_path):
    places = [tmp_path / str(number) / "a" / "b" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        for made in [pool.submit(processes.make_dir, place / each) for place in places for each in "cdefghij"]:
            made.result()
    assert all((place / each).is_dir() for place in places for each in "cdefghij")


# --- no more threads -----------------------------------------------------------------------------------------------------------


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


def test_two_ends_are_reported_although_no_thread_can_be_begun(world, no_new_threads):
    first, second = world.run(["sleep", "60"]), world.run(["sleep", "60"], name="Breakout")
    no_new_threads()
    kill(first.pid)
    kill(second.pid)
    assert [world.inbox.expect(Ended, each.token).ending.signal for each in (first, second)] == [signal.SIGKILL] * 2


# --- what is handed to a shim, and what it leaves, whole ------------------------------------------------------------------


def test_a_record_is_taken_with_all_its_fields_in_their_types_or_not_at_all(tmp_path):
    path = tmp_path / "record"
    for damaged in ("", "{", "[]", '{"token": 1}', "[" * 10000):
        path.write_text(damaged)
        assert processes.read_record(str(path)) is None
    whole = processes.RunningAttempt("boot", "Pong", 3, "ab" * 16, 10, 11, 12, 13, 14, 15, "/cgroup")
    body = asdict(whole)
    path.write_text(json.dumps(body))
    assert processes.read_record(str(path)) == whole
    assert whole.logs_from == (14, 15)
    for name, value in body.items():
        path.write_text(json.dumps(body | {name: str(value) if type(value) is int else 7}))
        assert processes.read_record(str(path)) is None, name
    path.write_text(json.dumps(body | {"more": 1}))
    assert processes.read_record(str(path)) is None
    del body["cgroup"]
    path.write_text(json.dumps(body))
    assert processes.read_record(str(path)) == replace(whole, cgroup="")


def test_directories_are_for_our_eyes(tmp_path):
    processes.make_dir(tmp_path / "a" / "b")
    assert [mode(tmp_path / each) for each in ("a", "a/b")] == [0o700, 0o700]


def mode(path: Path | str) -> int:
    return Path(path).stat().st_mode & 0o777


# --- starting ------------------------------------------------------------------------------------------------------------


def test_what_is_noted_of_a_cgroup_that_a_shim_could_not_enter_is_forgotten(world, tmp_path):
    world.groups.path = str(tmp_path / "none")
    started = world.run(["sleep", "60"])
    assert world.launcher.attempt(started.token).cgroup == ""
    assert cgroups.read_note(world.paths.attempt_dir("Pong", 1, started.token)) is None, "its counts are not the attempt's"


def test_a_shim_gets_nothing_but_its_mark_and_the_path_of_libraries(world, monkeypatch):
    def shim(name: str) -> list[str]:
        found = world.run(["sleep", "60"], name=name).shim_pid
        assert Path(f"/proc/{found}/cwd").readlink() == Path("/"), "it keeps no disk from being unmounted"
        return sorted(Path(f"/proc/{found}/environ").read_text().split("\0")[:-1])

    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert shim("Pong") == ["EXTRALIFE_PROGRAM=Pong", f"EXTRALIFE_TOKEN={world.tokens[0]}"]
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    assert shim("Qbert") == ["EXTRALIFE_PROGRAM=Qbert", f"EXTRALIFE_TOKEN={world.tokens[1]}", "LD_LIBRARY_PATH=/nowhere"]


@pytest.mark.parametrize(
    ("script", "error", "permanent"),
    [
        ("sys.exit(3)", "the shim of Pong ended before the worker ran (exit code 3)", False),
        ("print('not json', flush=True); time.sleep(60)", "the shim of Pong ended before the worker ran (signal 15)", False),
        ("print('{}', flush=True); time.sleep(60)", "the shim of Pong ended before the worker ran (signal 15)", False),
        ('print(\'{"spawn_error": "no such command", "permanent": true}\')', "no such command", True),
        ('print(\'{"spawn_error": "a hung disk"}\')', "a hung disk", False),
    ],
)
def test_a_shim_that_starts_no_worker_is_told_by_what_it_said_or_how_it_ended(
    world, monkeypatch, tmp_path, script, error, permanent
):
    own = tmp_path / "shim.py"
    # In a session of its own, like the real shim: right after exec(2) the kernel does not show the child's environment yet.
    begin = "import os, subprocess, sys, time\nos.setsid()\nchild = subprocess.Popen(['sleep', '60'], stdout=2)\n"
    own.write_text(f"{script}\n" if "spawn_error" in script else f"{begin}{script}\n")
    monkeypatch.setattr(shim_code, "_SOURCE", own)
    assert world.launcher  # its own files are open
    before = open_files()
    token = world.begin(["true"])
    broke = world.inbox.expect(SpawnBroke)
    assert broke == SpawnBroke(broke.now_s, "Pong", token, error, permanent)
    assert procfs.marked(contract.ENV_TOKEN, [token])[token] == [], "it leaves nobody"
    assert eventually(lambda: open_files() <= before)
    assert world.groups.asked[-1] == ("end", token)


@pytest.mark.parametrize(
    ("error", "told", "permanent"),
    [
        (RuntimeError("odd"), "cannot start Pong: RuntimeError: odd", False),
        (ValueError("a bad word"), "cannot start Pong: a bad word", True),
        (OSError("no room"), "cannot start Pong: no room", False),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "cannot start Pong: /x: No space left on device", False),
    ],
)
def test_whatever_breaks_a_start_is_told(world, error, told, permanent):
    world.groups.error = error
    token = world.begin(["true"])
    broke = world.inbox.expect(SpawnBroke)
    assert broke == SpawnBroke(broke.now_s, "Pong", token, told, permanent)


def test_every_attempt_takes_room_until_it_has_ended_or_could_not_start(world, monkeypatch):
    monkeypatch.setattr(limits, "FILES_PER_PROGRAM", 10**9)
    assert world.launcher.no_room() is None
    started = world.run(["sleep", "60"])
    assert (world.launcher.no_room() or "").startswith("1 programs need all of the ")
    survivor = world.new_launcher().survey({"Pong": (1, started.token)})["Pong"]
    assert world.launcher.no_room() is None
    world.launcher.adopt("Pong", 1, survivor)
    assert world.launcher.no_room() is not None, "an adopted one, too"
    kill(started.pid)
    world.inbox.expect(Ended)
    assert world.launcher.no_room() is None
    world.inbox.expect(SpawnBroke, world.begin(["no-such-trainer"], attempt=2))
    assert world.launcher.no_room() is None


def test_few_start_at_once_and_one_that_hangs_delays_the_others_only_for_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_STARTS_AT_ONCE", 1)
    with contextlib.closing(World(tmp_path, Groups())) as world:
        for number in range(3):  # each gives its place to the next
            world.run(["true"], name=f"game{number}")
        monkeypatch.setattr(processes, "_HUNG_START_S", 0.1)
        world.groups.first.clear()
        hangs = world.begin(["true"], name="Hangs")
        assert eventually(lambda: any(asked[:2] == ("begin", "Hangs") for asked in world.groups.asked))
        world.run(["true"], name="Pong")
        world.groups.first.set()
        world.inbox.expect(SpawnSucceeded, hangs)


# --- what a command is filled in with -------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_another_user_gets_the_environment_of_a_login_and_none_of_our_paths(monkeypatch, tmp_path):
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("EXTRALIFE_RUN_DIR", "of an outer daemon")
    nobody, paths = pwd.getpwnam("nobody"), Paths(str(tmp_path), str(tmp_path))
    own = ProgramSpec("Pong", ("x",), "d", user="nobody", env=(("USER", "mine"), ("EXTRALIFE_RUN_DIR", "mine")))
    order = processes.shim_order(paths, own, 3, "ab", "boot")
    assert order["user"] == {"uid": nobody.pw_uid, "gid": nobody.pw_gid, "groups": list(users.find("nobody").groups)}
    assert order["env"] == {
        "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "HOME": nobody.pw_dir, "USER": "mine", "LOGNAME": "nobody",
        "SHELL": nobody.pw_shell, "EXTRALIFE_PROGRAM": "Pong", "EXTRALIFE_TOKEN": "ab", "EXTRALIFE_ATTEMPT": "3",
        "EXTRALIFE_BOOT_ID": "boot", "SUPERVISOR_ENABLED": "1", "SUPERVISOR_SERVER_URL": f"unix://{tmp_path}/supervisor.sock",
        "SUPERVISOR_PROCESS_NAME": "Pong", "SUPERVISOR_GROUP_NAME": "Pong",
    }  # fmt: skip


# --- signals ------------------------------------------------------------------------------------------------------------


def test_a_signal_is_known_by_its_name_or_number_and_any_other_word_is_quoted():
    assert {processes.signal_number(name) for name in ("SIGTERM", "TERM", "term", "sigterm", "15")} == {15}
    for name in ("SIGNONE", "SIGSIGTERM", "99", "-9", "", "1.5"):
        with pytest.raises(ValueError) as refused:
            processes.signal_number(name)
        assert str(refused.value) == f"no such signal: {name!r}"


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


def test_a_shim_that_is_unknown_has_no_session():
    """Session 0 is that of the kernel's threads, and of all whose session began outside of a container."""
    assert processes._members(secrets.token_hex(16), (0, 0)) == []


# --- ending -------------------------------------------------------------------------------------------------------------


def test_a_start_that_waits_can_be_ended(world, monkeypatch):
    monkeypatch.setattr(processes, "_LOCK_WAIT_S", 600.0)
    monkeypatch.setattr(processes, "_KILL_PATIENCE_S", 0.1)  # a shim that waits for the lock holds SIGTERM back
    world.run(["sleep", "600"])
    token = world.begin(["sleep", "600"], attempt=2)
    assert eventually(lambda: [stat.name for stat in procfs.marked(contract.ENV_TOKEN, [token])[token]] != [])
    assert eventually(lambda: token in world.launcher._live)
    world.launcher.kill_tree("Pong", token)
    error = world.inbox.expect(SpawnBroke, token).error
    assert re.fullmatch(r"the shim of Pong ended before the worker ran \(signal (15|9)\)", error), "9: it waited already"


def test_without_a_beat_the_newest_step_of_its_own_output_is_in_an_ending(world):
    def last_step(program, token):
        assert (program, token) == ("Pong", world.tokens[-1])
        if world.tokens[1:]:
            raise RuntimeError("odd")
        return 7

    launcher = LocalLauncher(world.paths, BOOT, world.inbox, BootClock(), world.groups, last_step=last_step)
    with contextlib.closing(launcher):
        launcher.spawn(spec("Pong", ["true"]), 1, world.token())
        ending = world.inbox.expect(Ended).ending
        assert (ending.steps, ending.shown_steps) == (None, 7)
        launcher.spawn(spec("Pong", ["true"]), 2, world.token())
        ending = world.inbox.expect(Ended).ending
        assert ending == Ending(fate="its end could not be read: RuntimeError: odd"), "it is one all the same"
        assert launcher.attempt(world.tokens[-1]) is None


TRAINS = """
import time
from workers.contract import Client, WorkerPhase
me = Client()
me.phase(WorkerPhase.TRAINING, batch_size=512)
me.committed(40, stall_s=0.0, write_s=0.1)
me.progress(env_steps=44)
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("adopted", [False, True])
def test_the_end_of_a_killed_shim_has_the_last_beat_of_its_worker(world, adopted):
    world.run(["echo", "of an earlier one"])
    world.inbox.expect(Ended)
    started = world.run([sys.executable, "-c", TRAINS], attempt=2, directory=str(Path(__file__).parents[2]))
    assert eventually(lambda: world.stdout().endswith("up\n"))
    if adopted:
        launcher = world.new_launcher()
        launcher.adopt("Pong", 2, launcher.survey({"Pong": (2, started.token)})["Pong"])
    kill(started.shim_pid)
    ending = world.inbox.expect(Ended, started.token).ending
    assert 0.0 < BootClock().now_s() - ending.ckpt_at_s < 600.0
    fate = "its shim was killed" if adopted else "its shim was killed by signal 9"
    assert replace(ending, ckpt_at_s=None) == Ending(last_lines=("up",), steps=44, ckpt_step=40, batch_size=512, fate=fate)


# --- records that are lost --------------------------------------------------------------------------------------------------


def test_a_lost_record_is_written_again_as_it_was(world):
    for name in ("Pong", "Alien"):
        world.run(["sleep", "60"], name=name)
    path, other = (Path(world.paths.shim_record(name)) for name in ("Pong", "Alien"))
    written, kept = json.loads(path.read_text()), other.stat().st_ino
    path.unlink()
    for live in world.launcher._live.values():
        world.launcher._restore_record(live.attempt)
    assert (json.loads(path.read_text()), mode(path)) == (written, 0o600)
    assert other.stat().st_ino == kept, "what is in place stays"
    assert sorted(each.name for each in path.parent.iterdir()) == ["Alien.json", "Pong.json"]


# --- finding again --------------------------------------------------------------------------------------------------------


def test_an_attempt_that_is_over_is_not_waited_for_although_another_holds_its_lock(world, monkeypatch):
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 600.0)
    first = world.run(["sh", "-c", "exit 7"])
    world.inbox.expect(Ended)
    world.run(["sleep", "600"], attempt=2)
    found = world.new_launcher().survey({"Pong": (1, first.token)})["Pong"]
    assert (found.survival, found.ending.code) == (Survival.ENDED, 7)


def test_odd_bytes_in_a_lock_or_a_fence_are_nobodys(world):
    run_dir, started = Path(world.paths.run_dir("Qbert")), world.run(["sleep", "60"])
    processes.make_dir(run_dir)
    for name in ("lock", "fence"):
        (run_dir / name).write_bytes(b"\xff\xfe")
    token = world.token()
    assert world.launcher.unrecorded_workers(["Qbert"]) == {}
    assert world.launcher.survey({"Qbert": (1, token)})["Qbert"] == Survivor(token, Survival.NEVER)
    Path(world.paths.run_dir("Pong"), "fence").write_bytes(b"\xff\xfe")
    with pytest.raises(FileExistsError, match=r"^\[Errno 17\] a run directory with another attempt's fence was put there: "):
        world.launcher._restore_run_dir(live := world.launcher._live[started.token], live.attempt)


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
    assert logged == [{
        "event": "unrecorded_attempt_ended", "log_level": "warning", "program": "Pong", "attempt": 3,
        "processes": (f"{name}({started.shim_pid})",),
    }]  # fmt: skip
    assert gone(started.shim_pid)


def test_a_lock_of_somebody_else_is_waited_for_only_for_a_while(world, monkeypatch):
    monkeypatch.setattr(processes, "_HOLDER_PATIENCE_S", 0.2)
    token, lock, launcher = world.token(), Path(world.paths.run_dir("Pong"), "lock"), world.launcher
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        before = open_files()
        assert launcher.survey({"Pong": (1, token)})["Pong"] == Survivor(token, Survival.NEVER)
        assert launcher.unrecorded_workers(["Pong"]) == {}
        assert open_files() <= before


# --- what is kept of old attempts -------------------------------------------------------------------------------------------


def test_a_start_keeps_the_newest_of_old_attempts_and_those_in_use(world, monkeypatch):
    monkeypatch.setattr(processes, "KEPT_ATTEMPTS", 3)
    paths = world.paths
    for number in range(1, 8):
        processes.make_dir(Path(paths.attempt_dir("Pong", number, "ab"), "deep"))
        for path in (paths.beat("Pong", number), paths.control("Pong", number)):
            processes.make_dir(Path(path).parent)
            Path(path).touch()
    attempts, beats = Path(paths.attempt_dir("Pong", 0, "")).parent, Path(paths.runtime_dir, "beats")
    (attempts / "notes").mkdir()
    own = f"8-{world.run(['true'], attempt=8).token}"
    assert eventually(lambda: {path.name for path in attempts.iterdir()} == {"6-ab", "7-ab", own, "notes"})
    kept = {f"Pong.{number}.{kind}" for number in (6, 7) for kind in ("beat", "control")}
    assert eventually(lambda: {path.name for path in beats.iterdir()} == kept)
    processes.prune(paths, "Pong", 30, kept=[own[2:]])
    assert {path.name for path in attempts.iterdir()} == {"6-ab", "7-ab", own, "notes"}
    processes.prune(paths, "Nobody", 7)


def test_nothing_is_removed_behind_a_link(tmp_path):
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    for number in range(1, 30):
        (tmp_path / "elsewhere" / f"{number}-ab").mkdir(parents=True)
    Path(paths.run_dir("Pong")).mkdir(parents=True)
    Path(paths.attempt_dir("Pong", 0, "")).parent.symlink_to(tmp_path / "elsewhere")
    processes.prune(paths, "Pong", 40)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 29
