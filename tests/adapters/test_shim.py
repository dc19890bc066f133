"""The shim alone, as a process: what it starts, what it records, what it ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest
from attempts_kit import eventually, gone, kill, python
from shim_kit import OTHER, TOKEN
from tools import PYTHON, no_descriptors

from supervisor import shim as shim_module
from supervisor.adapters.process import processes
from workers.contract import now_ns
from workers.exit_record import ExitRecord


def test_an_exit_code_is_recorded_with_times_and_usage(start):
    before_ns = now_ns()
    shim = start(python("import sys; x = bytearray(50_000_000); sum(range(2_000_000)); sys.exit(3)"))
    answer, record = shim.answer(), shim.exit()
    assert (record.code, record.signal, record.core_dumped, record.spawn_error) == (3, None, False, None)
    assert (record.pid, record.token, record.leftovers) == (answer["pid"], TOKEN, ())
    assert before_ns < record.ended_ns < now_ns()
    assert record.max_rss_bytes > 50_000_000
    assert record.user_s + record.system_s > 0.02, "their sum is exact, the ticks divide it"


def test_the_answer_is_the_record_and_names_living_processes(start):
    shim = start(["sleep", "60"])
    answer = shim.answer()
    assert answer == json.loads(Path(shim.order["record"]).read_text())
    assert answer["shim_pid"] == shim.process.pid
    for pid, ticks in ((answer["pid"], answer["start_ticks"]), (answer["shim_pid"], answer["shim_start_ticks"])):
        assert processes.procfs.is_alive(pid, ticks)
    assert os.getsid(answer["pid"]) == shim.process.pid
    assert os.getpgid(answer["pid"]) == answer["pid"]
    assert Path(shim.order["run_dir"], "fence").read_text() == TOKEN + "\n"


DAEMONISE = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("up", "w").close()
os.execve("/bin/sleep", ["sleep", "61"], {})
"""


def test_grandchildren_of_any_session_end_with_the_worker_and_are_named(start, tmp_path):
    # The daemonised one clears its environment and its session: only a sub-reaper sees that it belongs here.
    daemonise = f"{PYTHON} -S -c '{DAEMONISE}'; while [ ! -e up ]; do sleep 0.01; done"
    shim = start(["sh", "-c", f"sleep 60 & setsid sleep 60 & {daemonise}; exit 5"], cwd=str(tmp_path))
    record = shim.exit()
    assert record.code == 5
    assert len(record.leftovers) == 3
    for leftover in record.leftovers:
        assert gone(int(leftover.rpartition("(")[2][:-1]))


def test_sigterm_to_the_shim_ends_the_whole_tree_now(start):
    shim = start(["sh", "-c", "trap '' TERM; setsid sleep 60 & echo up; wait; sleep 60"])
    shim.answer()
    assert eventually(lambda: Path(shim.order["stdout"]).read_text() == "up\n")
    shim.process.terminate()
    record = shim.exit()
    assert record.signal == signal.SIGKILL
    assert len(record.leftovers) == 1


def test_the_worker_gets_a_clean_start(start):
    look = """
import os, signal, sys
fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
print(fds[:-1], os.readlink("/proc/self/fd/0"), status["SigBlk"].strip(), int(status["SigIgn"], 16), os.umask(0), os.getcwd())
"""
    # An interpreter ignores SIGPIPE and SIGXFSZ for itself; a shell does not: look from the outside too.
    shim = start(["sh", "-c", f"grep SigIgn /proc/self/status; exec {PYTHON} -S -c '{look}'"], umask=0o027, cwd="/usr")
    shim.answer()
    assert shim.exit().code == 0
    lines = Path(shim.order["stdout"]).read_text().splitlines()
    assert lines[0].split() == ["SigIgn:", "0" * 16]
    ignored = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    assert lines[1] == f"[0, 1, 2] /dev/null {'0' * 16} {ignored} {0o027} /usr"


def test_the_worker_does_not_outlive_a_killed_shim(start):
    shim = start(["sleep", "60"])
    pid = shim.answer()["pid"]
    kill(shim.process.pid)
    assert eventually(lambda: gone(pid))
    assert not Path(shim.order["attempt_dir"], "exit.json").exists()


def test_hangup_and_interrupt_do_not_touch_the_shim(start):
    shim = start(["sleep", "60"])
    pid = shim.answer()["pid"]
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGQUIT, signal.SIGUSR2):
        kill(shim.process.pid, number)
    kill(pid)
    assert shim.exit().signal == signal.SIGKILL


def make(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (lambda at: ["no-such-trainer"], "no such command: 'no-such-trainer' is not in PATH"),
        (lambda at: [f"{at}/none"], "no such file: '{at}/none'"),
        (lambda at: [make(at / "plain", "echo", 0o600)], "'{at}/plain' is not an executable file for this user"),
        (lambda at: [make(at / "lost", "#!/no/python\n", 0o700)], "the interpreter that its first line names is missing"),
        (lambda at: [make(at / "text", "hello\n", 0o700)], "it is neither a program nor a script with a #! line"),
        (lambda at: [str(at)], "is not an executable file"),
        (lambda at: [], "the command is empty"),
        (lambda at: ["true", "a\0b"], "embedded null byte"),
    ],
)
def test_what_can_never_start_is_said_in_one_sentence(start, tmp_path, argv, sentence):
    shim = start(argv(tmp_path))
    answer = shim.answer()
    assert sentence.format(at=tmp_path) in answer["spawn_error"]
    assert answer["permanent"] is True
    assert shim.exit().spawn_error == answer["spawn_error"]
    assert "\n" not in answer["spawn_error"]


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ({"cwd": "{at}/unmounted"}, "cannot enter the directory '{at}/unmounted': No such file or directory"),
        ({"stdout": "{at}/none/out.log"}, "cannot use {at}/none/out.log: No such file or directory"),
    ],
)
def test_what_is_missing_and_may_come_back_is_named(start, tmp_path, field, sentence):
    ((name, place),) = field.items()
    answer = start(["true"], **{name: place.format(at=tmp_path)}).answer()
    assert answer == {"spawn_error": sentence.format(at=tmp_path), "permanent": False}


def test_the_run_directory_of_a_living_attempt_is_refused_and_its_holder_named(start):
    first = start(["sleep", "60"])
    pid = first.answer()["shim_pid"]
    second = start(["true"], attempt=2, token=OTHER, lock_wait_s=0.05)
    sentence = second.answer()["spawn_error"]
    assert "is in use by another attempt" in sentence
    assert f"attempt 1, token {TOKEN}, shim pid {pid}" in sentence
    assert Path(first.order["run_dir"], "fence").read_text().strip() == TOKEN


def test_a_leaving_predecessor_is_waited_for(start):
    first = start(["sleep", "60"])
    first.answer()
    second = start(["sleep", "60"], attempt=2, token=OTHER, lock_wait_s=60.0)
    first.process.terminate()
    assert second.answer()["attempt"] == 2
    assert Path(first.order["run_dir"], "fence").read_text().strip() == OTHER


def test_the_lock_is_held_while_the_tree_lives_and_free_afterwards(start):
    shim = start(["sleep", "60"])
    pid = shim.answer()["pid"]
    with Path(shim.order["run_dir"], "lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill(pid)
        shim.process.wait(60)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_attempt_that_was_given_up_never_starts(start, tmp_path):
    closed = tmp_path / "state/programs/Pong/attempts" / f"1-{TOKEN}" / "exit.json"
    processes.make_dir(closed.parent)
    closed.write_text("{}")
    shim = start(["touch", f"{tmp_path}/started"])
    assert shim.answer()["spawn_error"] == "attempt 1 was cancelled before it started"
    shim.process.wait(60)
    assert not (tmp_path / "started").exists()
    assert closed.read_text() == "{}"


def test_a_full_disk_does_not_cost_the_exit_code(start):
    shim = start(["sh", "-c", 'cd "$EXTRALIFE_RUN_DIR"/attempts/*; mkdir exit.json.tmp; exit 9'])
    shim.answer()
    assert shim.process.wait(60) == 0
    assert ExitRecord.from_json(Path(shim.order["record"] + ".exit").read_text()).code == 9
    assert "cannot write" in Path(shim.order["stderr"]).read_text()


def waits(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "SZ"


@pytest.mark.parametrize("asked", [True, False], ids=["the shim is asked", "the worker leaves"])
def test_a_lack_of_descriptors_costs_neither_the_request_to_save_nor_the_exit_code(start, asked):
    program = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True)"
    shim = start(python(f"{program}\nwhile True: time.sleep(0.1)"))
    worker = shim.answer()["pid"]
    assert eventually(lambda: Path(shim.order["stdout"]).read_text() == "up\n")
    with no_descriptors(shim.process.pid):
        os.kill(*((shim.process.pid, signal.SIGUSR1) if asked else (worker, signal.SIGTERM)))
        assert eventually(lambda: waits(shim.process.pid) if asked else not Path(f"/proc/{worker}").exists())
        assert eventually(lambda: waits(shim.process.pid))
    assert shim.exit().code == 7


def test_logs_are_appended_to_and_where_this_attempt_begins_is_recorded(start):
    shim = start(["echo", "one"])
    assert (shim.answer()["stdout_from"], shim.exit().code) == (0, 0)
    shim = start(["echo", "two"], attempt=2, token=OTHER)
    assert (shim.answer()["stdout_from"], shim.exit().code) == (4, 0)
    assert Path(shim.order["stdout"]).read_text() == "one\ntwo\n"


def test_the_exit_record_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    done: list[str] = []

    class Spied:
        def __getattr__(self, name):
            call = getattr(os, name)

            def spy(*args):
                done.append(name)
                return call(*args)

            return spy if name in ("write", "fsync", "rename") else call

    monkeypatch.setattr(shim_module, "os", Spied())
    shim_module._write_aside(str(tmp_path / "exit.json"), "{}", sync=True, sync_dir=True)
    assert done == ["write", "fsync", "rename", "fsync"]
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


CGROUPS = {
    "v2": (
        {"proc/self/cgroup": "0::/service/a b", "sys/fs/cgroup/service/a b/memory.events": "low 0\noom 4\noom_kill 3\n"},
        3,
    ),
    "v1": (
        {
            "proc/self/cgroup": "4:cpu,memory:/x\n0::/",
            "sys/fs/cgroup/memory/x/memory.oom_control": "under_oom 0\noom_kill 2\n",
        },
        2,
    ),
    "v1, its path not there": (
        {"proc/self/cgroup": "4:memory:/docker/a\n0::/", "sys/fs/cgroup/memory/memory.oom_control": "oom_kill 5\n"},
        5,
    ),
    "v2, its path not there": ({"proc/self/cgroup": "0::/docker/a", "sys/fs/cgroup/memory.events": "oom_kill 6\n"}, 6),
    "a container without a counter": ({"proc/self/cgroup": "0::/docker/a", "proc/vmstat": "oom_kill 7\n"}, None),
    "a service whose cgroup counts nothing": (
        {"proc/self/cgroup": "0::/service", "sys/fs/cgroup/service/cgroup.procs": "", "proc/vmstat": "oom_kill 7\n"},
        7,
    ),
    "another PID namespace": ({"proc/self/cgroup": "0::/", "proc/vmstat": "oom_kill 7\n", "proc/self/ns/pid": ""}, None),
    "root of v2": ({"proc/self/cgroup": "0::/", "proc/vmstat": "nr_free 5\noom_kill 7\n"}, 7),
    "no cgroups": ({"proc/vmstat": "oom_kill 1\n"}, 1),
    "garbage": ({"proc/self/cgroup": "nonsense", "proc/vmstat": "oom_kill many\n"}, None),
    "nothing": ({}, None),
}


@pytest.mark.fault("oom-kill")
@pytest.mark.parametrize(("files", "count"), CGROUPS.values(), ids=CGROUPS)
def test_the_oom_killers_count_is_that_of_its_own_cgroup(tmp_path, files, count):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert shim_module._oom_kills(str(tmp_path)) == count


@pytest.mark.fault("oom-kill")
def test_the_exit_record_holds_the_count_before_and_after(start):
    record = start(["true"]).exit()
    assert record.oom_kills is None or record.oom_kills[0] <= record.oom_kills[1]
