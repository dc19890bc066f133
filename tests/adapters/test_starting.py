"""How a worker starts: what it gets, what is told of one that cannot, and what is kept of those before; real processes."""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import sys
from pathlib import Path

import pytest
from attempts_kit import BOOT, eventually, kill, python, spec
from checkpoints_kit import commit
from leaks import open_files

from supervisor import users
from supervisor.adapters import procfs
from supervisor.adapters.process import limits, processes, shim_code
from supervisor.model.inputs import Ended, SpawnBroke, SpawnSucceeded
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.placeholders import Template
from workers import contract


def test_the_worker_sees_the_contract_and_nothing_of_systemd(world, monkeypatch):
    for name in contract.STRIPPED_ENV:
        monkeypatch.setenv(name, "the daemon's own")
    monkeypatch.setenv("FROM_DAEMON", "1")
    monkeypatch.setenv("RL_LR", "1")
    monkeypatch.setitem(os.environb, b"ODD", b"\xff")
    monkeypatch.setenv("EXTRALIFE_TOKEN", "of an outer supervisor")
    monkeypatch.setenv("RUNPOD_API_KEY", "for the end of the meter")
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
    assert "RUNPOD_API_KEY" not in env
    assert (env["FROM_DAEMON"], env["FROM_SPEC"], env["PYTHONUNBUFFERED"], env["PYTHONFAULTHANDLER"]) == ("1", "2", "1", "0")
    assert (env["ODD"], env["RL_LR"], env["SUPERVISOR_PROCESS_NAME"]) == ("\udcff", "1", "Pong")
    builtin = processes.worker_env(paths, spec("Pong", ["x"], builtin=True), 7, token, BOOT)
    assert not [name for name in builtin if name.startswith(("RL_", "SUPERVISOR_"))], "its flags say all"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_another_user_gets_the_environment_of_a_login_and_none_of_our_paths(monkeypatch, tmp_path):
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("EXTRALIFE_RUN_DIR", "of an outer daemon")
    nobody, paths = pwd.getpwnam("nobody"), Paths(str(tmp_path), str(tmp_path))
    own = ProgramSpec("Pong", ("x",), "d", user="nobody", env=(("USER", "mine"), ("EXTRALIFE_RUN_DIR", "mine")))
    Path(paths.run_dir("Pong")).mkdir(parents=True)
    order = processes.shim_order(paths, own, 3, "ab", "boot")
    assert order["user"] == {
        "uid": nobody.pw_uid,
        "gid": nobody.pw_gid,
        "groups": list(users.find("nobody").groups),
        "logs": [],
    }
    assert order["env"] == {
        "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "HOME": nobody.pw_dir, "USER": "mine", "LOGNAME": "nobody",
        "SHELL": nobody.pw_shell, "EXTRALIFE_PROGRAM": "Pong", "EXTRALIFE_TOKEN": "ab", "EXTRALIFE_ATTEMPT": "3",
        "EXTRALIFE_BOOT_ID": "boot", "SUPERVISOR_ENABLED": "1", "SUPERVISOR_SERVER_URL": f"unix://{tmp_path}/supervisor.sock",
        "SUPERVISOR_PROCESS_NAME": "Pong", "SUPERVISOR_GROUP_NAME": "Pong",
    }  # fmt: skip


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


def test_a_shim_gets_nothing_but_its_mark_and_the_path_of_libraries(world, monkeypatch):
    def shim(name: str) -> list[str]:
        found = world.run(["sleep", "60"], name=name).shim_pid
        assert Path(f"/proc/{found}/cwd").readlink() == Path("/"), "it keeps no disk from being unmounted"
        return sorted(Path(f"/proc/{found}/environ").read_text().split("\0")[:-1])

    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert shim("Pong") == ["EXTRALIFE_PROGRAM=Pong", f"EXTRALIFE_TOKEN={world.tokens[0]}"]
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    assert shim("Qbert") == ["EXTRALIFE_PROGRAM=Qbert", f"EXTRALIFE_TOKEN={world.tokens[1]}", "LD_LIBRARY_PATH=/nowhere"]


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


def test_few_start_at_once_and_one_that_hangs_delays_the_others_only_for_a_moment(world, monkeypatch):
    monkeypatch.setattr(processes, "_STARTS_AT_ONCE", 1)
    for number in range(3):  # each gives its place to the next
        world.run(["true"], name=f"game{number}")
    monkeypatch.setattr(processes, "_HUNG_START_S", 0.1)
    world.groups.first.clear()
    hangs = world.begin(["true"], name="Hangs")
    assert eventually(lambda: any(asked[:2] == ("begin", "Hangs") for asked in world.groups.asked))
    world.run(["true"], name="Pong")
    world.groups.first.set()
    world.inbox.expect(SpawnSucceeded, hangs)


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
