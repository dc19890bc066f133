"""The launcher, whole: all that it hands to a shim, writes, reports and closes, to the last field."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import secrets
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from attempts_kit import BOOT, BootClock, World, eventually, gone, kill, spec
from leaks import open_below, open_files
from structlog.testing import capture_logs

from supervisor import users
from supervisor.adapters import procfs
from supervisor.adapters.process import cgroups, limits, processes, shim_code
from supervisor.adapters.process.processes import LocalLauncher
from supervisor.model.inputs import Ended, Ending, SpawnBroke, SpawnSucceeded, Survival, Survivor
from supervisor.model.settings import Paths, ProgramSpec
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


def mode(path: Path | str) -> int:
    return Path(path).stat().st_mode & 0o777


# --- starting ------------------------------------------------------------------------------------------------------------


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
        ("print('[1]', flush=True); time.sleep(60)", "the shim of Pong ended before the worker ran (signal 15)", False),
        ("print('{}', flush=True); time.sleep(60)", "the shim of Pong ended before the worker ran (signal 15)", False),
        ('print(\'{"spawn_error": "no such command", "permanent": true}\')', "no such command", True),
        ('print(\'{"spawn_error": "a hung disk", "permanent": false}\')', "a hung disk", False),
        ('print(\'{"spawn_error": "a hung disk"}\')', "a hung disk", False),
    ],
)
def test_a_shim_that_starts_no_worker_is_told_by_what_it_said_or_how_it_ended(
    world, monkeypatch, tmp_path, script, error, permanent
):
    own = tmp_path / "shim.py"
    # In a session of its own, like the real shim: right after exec(2) the kernel does not show the child's environment yet.
    begin = "import os, subprocess, sys, time\nos.setsid()\nchild = subprocess.Popen(['sleep', '60'], stdout=2)\n"
    own.write_text(f"{begin}{script}\n")
    if permanent or "hung" in error:
        own.write_text(f"{script}\n")
    monkeypatch.setattr(shim_code, "_SOURCE", own)
    assert world.launcher.no_room() is None
    before = open_files()
    token = world.begin(["true"])
    broke = world.inbox.expect(SpawnBroke)
    assert broke == SpawnBroke(broke.now_s, "Pong", token, error, permanent)
    assert 0.0 <= BootClock().now_s() - broke.now_s < 600.0
    assert procfs.marked(contract.ENV_TOKEN, [token])[token] == [], "it leaves nobody"
    assert eventually(lambda: open_files() <= before)
    assert world.groups.asked[-1] == ("end", token)


@pytest.mark.parametrize(
    ("error", "told", "permanent"),
    [
        (RuntimeError("odd"), "cannot start Pong: RuntimeError: odd", False),
        (ValueError("a bad word"), "cannot start Pong: a bad word", True),
        (TypeError("a bad type"), "cannot start Pong: a bad type", True),
        (OSError("no room"), "cannot start Pong: no room", False),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot start Pong: No space left on device", False),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "cannot start Pong: /x: No space left on device", False),
    ],
)
def test_whatever_breaks_a_start_is_told(world, error, told, permanent):
    world.groups.error = error
    token = world.begin(["true"])
    broke = world.inbox.expect(SpawnBroke)
    assert broke == SpawnBroke(broke.now_s, "Pong", token, told, permanent)


def test_every_attempt_takes_room_until_it_has_ended_or_could_not_start(world, monkeypatch):
    monkeypatch.setattr(limits, "most_programs", lambda: 1)
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


@pytest.mark.parametrize("name", ["SIGTERM", "TERM", "term", "sigterm", "15"])
def test_a_signal_is_known_by_its_name_or_number(name):
    assert processes.signal_number(name) == 15


@pytest.mark.parametrize("name", ["SIGNONE", "SIGSIGTERM", "99", "-9", "", "1.5"])
def test_any_other_word_is_quoted(name):
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


def test_a_shim_that_does_not_answer_is_ended_with_its_cgroup(world, monkeypatch):
    monkeypatch.setattr(processes, "_KILL_PATIENCE_S", 0.1)
    started = world.run(["sleep", "60"])
    kill(started.shim_pid, signal.SIGSTOP)
    world.launcher.kill_tree("Pong", started.token)
    world.inbox.expect(Ended)
    # The thread that kills may ask once more for the cgroup's members, after the thread that waits for the end.
    assert eventually(lambda: ("end", started.token) in world.groups.asked)
    asked = list(dict.fromkeys(each for each in world.groups.asked if each[0] != "begin"))
    assert asked == [(what, started.token) for what in ("kill", "kill with its shim", "members", "end")]


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


def launcher_with(world, **more):
    return contextlib.closing(LocalLauncher(world.paths, BOOT, world.inbox, BootClock(), world.groups, **more))


def test_without_a_beat_the_newest_step_of_its_own_output_is_in_an_ending(world):
    asked = []

    def last_step(*args):
        asked.append(args)
        return 7

    with launcher_with(world, last_step=last_step) as launcher:
        token = world.token()
        launcher.spawn(spec("Pong", ["true"]), 1, token)
        ending = world.inbox.expect(Ended).ending
        assert (ending.steps, ending.shown_steps, asked) == (None, 7, [("Pong", token)])
        beats = "from workers.contract import Client, WorkerPhase; Client().phase(WorkerPhase.TRAINING, env_steps=44)"
        own = spec("Pong", [sys.executable, "-c", beats], directory=str(Path(__file__).parents[2]))
        launcher.spawn(own, 2, world.token())
        ending = world.inbox.expect(Ended).ending
        assert (ending.steps, ending.shown_steps, len(asked)) == (44, None, 1)


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


def test_an_end_that_cannot_be_read_is_one_all_the_same(world):
    def last_step(*_args):
        raise RuntimeError("odd")

    with launcher_with(world, last_step=last_step) as launcher:
        launcher.spawn(spec("Pong", ["true"]), 1, world.token())
        ended = world.inbox.expect(Ended)
        assert ended == Ended(
            ended.now_s, "Pong", world.tokens[0], Ending(fate="its end could not be read: RuntimeError: odd")
        )
        assert launcher.attempt(world.tokens[0]) is None


def test_a_launcher_that_is_closed_leaves_no_descriptor(tmp_path):
    before = open_files()
    world = World(tmp_path)
    started = world.run(["sleep", "60"])
    world.run(["true"], name="Qbert")
    world.inbox.expect(Ended)
    world.new_launcher().adopt("Pong", 1, world.launcher.survey({"Pong": (1, started.token)})["Pong"])
    world.launcher.close()
    world._launcher = None
    assert procfs.is_alive(started.pid, started.start_ticks)
    world.close()
    assert eventually(lambda: open_files() <= before)


# --- records that are lost --------------------------------------------------------------------------------------------------


def test_a_lost_record_is_written_again_as_it_was(world):
    for name in ("Qbert", "Pong", "Alien"):
        world.run(["sleep", "60"], name=name)
    paths = [Path(world.paths.shim_record(name)) for name in ("Pong", "Qbert")]
    written = [json.loads(path.read_text()) for path in paths]
    kept = Path(world.paths.shim_record("Alien")).stat().st_ino
    for path in paths:
        path.unlink()
    before = open_files()
    for live in world.launcher._live.values():
        world.launcher._restore_record(live.attempt)
    assert [json.loads(path.read_text()) for path in paths] == written
    assert [path.read_bytes()[-1:] for path in paths] == [b"\n"] * 2
    assert [mode(path) for path in paths] == [0o600] * 2
    assert Path(world.paths.shim_record("Alien")).stat().st_ino == kept, "what is in place stays"
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["Alien.json", "Pong.json", "Qbert.json"]
    assert open_files() <= before


def test_a_run_directory_that_was_made_again_says_whose_it_is(world):
    started = world.run(["sleep", "60"], attempt=3)
    run_dir = Path(world.paths.run_dir("Pong"))
    live = world.launcher._live[started.token]
    world.launcher._settle(live, live.attempt)
    assert open_below(run_dir) == [], "its shim holds the lock"
    run_dir.rename(run_dir.with_name("away"))
    for _ in range(2):
        world.launcher._settle(live, live.attempt)
        assert open_below(run_dir) == ["lock"]
    assert (run_dir / "lock").read_text() == f"attempt 3, token {started.token}, shim pid {started.shim_pid}\n"
    assert (run_dir / "fence").read_text() == f"{started.token}\n"
    assert sorted(path.name for path in run_dir.iterdir()) == ["attempts", "fence", "lock"]
    assert Path(world.paths.attempt_dir("Pong", 3, started.token)).is_dir()
    assert [mode(path) for path in (run_dir, run_dir / "lock")] == [0o700, 0o600]
    kill(started.pid)
    world.inbox.expect(Ended)
    assert eventually(lambda: open_below(run_dir) == [])


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


def test_of_old_attempts_the_newest_and_those_in_use_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "KEPT_ATTEMPTS", 3)
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    for number in range(1, 9):
        processes.make_dir(Path(paths.attempt_dir("Pong", number, "ab"), "deep"))
        for path in (paths.beat("Pong", number), paths.control("Pong", number)):
            processes.make_dir(Path(path).parent)
            Path(path).touch()
    attempts, other = Path(paths.attempt_dir("Pong", 0, "")).parent, "notes"
    (attempts / other).mkdir()
    (attempts / "2-in-use").mkdir()
    processes.prune(paths, "Pong", 7, kept=["in-use"])
    assert {path.name for path in attempts.iterdir()} == {"5-ab", "6-ab", "7-ab", "8-ab", "2-in-use", other}
    left = {path.name for path in (tmp_path / "run" / "beats").iterdir()}
    assert left == {f"Pong.{number}.{kind}" for number in (5, 6, 7, 8) for kind in ("beat", "control")}
    processes.prune(paths, "Nobody", 7)


def test_nothing_is_removed_behind_a_link(tmp_path):
    paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    for number in range(1, 30):
        (tmp_path / "elsewhere" / f"{number}-ab").mkdir(parents=True)
    Path(paths.run_dir("Pong")).mkdir(parents=True)
    Path(paths.attempt_dir("Pong", 0, "")).parent.symlink_to(tmp_path / "elsewhere")
    processes.prune(paths, "Pong", 40)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 29
