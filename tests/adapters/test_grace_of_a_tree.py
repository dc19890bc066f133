"""How a tree is asked to leave by its shim: every process that has to save can save, whatever it is wrapped in."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attempts_kit import eventually, gone, kill, python
from shim_kit import Shim
from tools import PYTHON

from supervisor.adapters import procfs
from workers.exit_record import ExitRecord

# One SIGTERM begins the save; a second one would break it off, and so would a pipe that nobody reads any more.
SAVER = """
import os, signal, sys, time
def leave(*_): raise SystemExit(0)
signal.signal(signal.SIGTERM, leave)
try:
    open(sys.argv[1] + ".up", "w").close()
    while True: time.sleep(0.1)  # pause() would miss a signal that comes just before it
finally:
    for part in range(15):
        time.sleep(0.1)
        print("saving", sys.argv[1], part, flush=True)
    if len(sys.argv) > 2: os.kill(int(sys.argv[2]), 0)
    open(sys.argv[1] + ".saved", "w").close()
"""
# As torchrun does it: a handler that passes SIGTERM on, and waits. It is there before the first rank is up.
PASSING = """
import signal, subprocess, sys
ranks = []
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
ranks += [subprocess.Popen([sys.executable, "-S", "saver.py", name]) for name in "ab"]
for rank in ranks: rank.wait()
"""
# A handler that ends the launcher at once and leaves its ranks alone.
LEAVING = PASSING.replace("[rank.terminate() for rank in ranks]", "sys.exit(1)")
# A trainer with a data loader, which has no handler and must live until the save is done.
LOADING = """
import os, subprocess, sys
loader = subprocess.Popen(["sleep", "60"])
sys.argv = ["saver.py", "a", str(loader.pid)]
try: exec(open("saver.py").read())
finally: loader.kill()
"""
PY = f"{PYTHON} -S"
WRAPPED = {
    "pipeline and more": (["bash", "-c", f"{PY} saver.py a 2>&1 | tee log; echo done >> log"], "a"),
    "background job": (["sh", "-c", f"{PY} saver.py a & {PY} saver.py b & wait"], "ab"),
    "environment of its own": (["bash", "-c", f"setsid env -i {PY} saver.py a; :"], "a"),
    "trap that passes it on": (["bash", "-c", f"trap 'kill $!; wait $!' TERM; {PY} saver.py a & wait"], "a"),
    "trap that waits": (["bash", "-c", f"trap 'echo bye' TERM; {PY} saver.py a; :"], "a"),
    "launcher that passes it on": ([sys.executable, "-S", "passing.py"], "ab"),
    "launcher that leaves": ([sys.executable, "-S", "leaving.py"], "ab"),
    "data loader": ([sys.executable, "-S", "loading.py"], "a"),
    "no wrapper": ([sys.executable, "-S", "saver.py", "a"], "a"),
}


@pytest.fixture
def box(tmp_path: Path) -> Path:
    for name, text in {"saver": SAVER, "passing": PASSING, "leaving": LEAVING, "loading": LOADING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def up(box: Path, names: str) -> bool:
    return eventually(lambda: all((box / f"{name}.up").exists() for name in names))


def ask(shim: Shim) -> None:
    shim.process.send_signal(signal.SIGUSR1)


def asked(shim: Shim, box: Path, names: str = "a", times: int = 1) -> ExitRecord:
    """How it ended when its savers were up and it was asked to leave."""
    shim.answer()
    assert up(box, names)
    for _ in range(times):
        ask(shim)
        time.sleep(0.05 if times > 1 else 0.0)
    return shim.exit()


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        pytest.param(*case, marks=[pytest.mark.long] if name == "trap that waits" else [], id=name)
        for name, case in WRAPPED.items()
    ],
)
def test_what_is_asked_to_leave_saves_first(start, box, argv, names):
    shim = start(argv, cwd=str(box), grace_s=60.0)
    record = asked(shim, box, names, times=20 if argv[0] == "bash" else 1)  # asking again changes nothing
    said = Path(shim.order["stderr"]).read_text()
    assert [name for name in names if not (box / f"{name}.saved").exists()] == [], said
    assert record.leftovers == (), "nobody had to be killed"
    if "tee" in str(argv):
        assert (box / "log").read_text().startswith("".join(f"saving a {part}\n" for part in range(15)))


def test_a_program_without_a_handler_leaves_at_once(start):
    shim = start(["bash", "-c", "sleep 60 | cat; echo more"], grace_s=3600.0)
    bash = shim.answer()["pid"]
    # Between fork(2) and exec(2), a child of bash blocks SIGTERM, which looks like a program that waits for it (`handles`).
    assert eventually(lambda: {stat.name for stat in procfs.descendants([bash])} == {"sleep", "cat"})
    ask(shim)
    assert shim.exit().signal == signal.SIGTERM


def test_the_command_after_the_trainer_is_asked_as_well(start, box):
    shim = start(["bash", "-c", f"{PY} saver.py a; sleep 60; echo no >> log"], cwd=str(box))
    assert asked(shim, box).signal == signal.SIGTERM
    assert (box / "a.saved").exists()
    assert not (box / "log").exists()


def test_stopped_processes_are_continued(start, box):
    shim = start(["bash", "-c", f"{PY} saver.py a | tee log"], cwd=str(box))
    pid = shim.answer()["pid"]
    assert up(box, "a")
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for stopped in (*children, pid):
        kill(stopped, signal.SIGSTOP)
    ask(shim)
    shim.exit()
    assert (box / "a.saved").exists()


def test_a_worker_that_leaves_by_itself_leaves_its_children_time_to_save(start, box):
    shim = start(["sh", "-c", f"{PY} saver.py a & while [ ! -e a.up ]; do sleep 0.01; done; exit 5"], cwd=str(box))
    record = shim.exit()
    assert record.code == 5
    assert (box / "a.saved").exists()
    assert [name[:6] for name in record.leftovers] == ["python"]


def test_children_that_ignore_sigterm_are_killed_after_the_grace(start):
    shim = start(["sh", "-c", "trap '' TERM; sleep 60 & exit 3"], grace_s=0.2)
    record = shim.exit()
    assert record.code == 3
    assert len(record.leftovers) == 1
    assert gone(int(record.leftovers[0].rpartition("(")[2][:-1]))


def test_after_a_success_code_children_work_on_until_the_daemon_asks(start, box):
    worker = f"{PY} saver.py a & while [ ! -e a.up ]; do sleep 0.01; done; exit 2"
    shim = start(["sh", "-c", worker], cwd=str(box), done_codes=[0, 2], rest_s=1e8)
    note = Path(shim.order["attempt_dir"], "left.json")
    assert eventually(note.exists)
    assert ExitRecord.from_json(note.read_text()).code == 2
    with pytest.raises(subprocess.TimeoutExpired):
        shim.process.wait(0.5)
    ask(shim)
    record = shim.exit()
    assert (record.code, record.rest) == (2, (0, None))
    assert (box / "a.saved").exists()
    assert [name.partition("(")[0] for name in record.leftovers] == ["python"], "no words from the first option on"


@pytest.mark.parametrize(
    ("rest", "rest_s", "end", "named"),
    [("(sleep 0.5; exit 7)", 60.0, (7, None), []), ("sleep 60", 0.5, (None, signal.SIGTERM), ["sleep 60"])],
)
def test_where_no_daemon_decides_they_work_on_for_the_time_of_the_order(start, rest, rest_s, end, named):
    record = start(["sh", "-c", f"{rest} & exit 0"], done_codes=[0], rest_s=rest_s).exit()
    assert (record.code, record.rest) == (0, end)
    assert [name.partition("(")[0] for name in record.leftovers] == named


def test_a_kill_ends_them_at_once(start):
    shim = start(["sh", "-c", "trap '' TERM; sleep 60 & exit 0"], done_codes=[0], rest_s=1e8)
    assert eventually(Path(shim.order["attempt_dir"], "left.json").exists)
    shim.process.terminate()
    assert shim.exit().rest == (None, signal.SIGKILL)


STAYING = python(
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: open('told', 'a').write('x'))\n"
    "child = subprocess.Popen([sys.executable, '-S', 'saver.py', 'a'])\n"
    "child.wait()\n"
)


@pytest.mark.parametrize(("to", "asked"), [("tree", False), ("leader", False), ("group", True)])
def test_who_is_asked_first_is_a_setting(start, box, to, asked):
    shim = start(STAYING, cwd=str(box), signal_to=to, grace_s=3600.0)
    shim.answer()
    assert up(box, "a")
    ask(shim)
    assert eventually(lambda: (box / "told").exists() and (box / "told").read_text())
    assert eventually((box / "a.saved").exists) if asked else not (box / "a.saved").exists()
    shim.process.terminate()
    shim.exit()
    assert (box / "told").read_text() == "x"


@pytest.mark.long
def test_a_program_is_asked_by_the_signal_that_it_handles(start, box):
    by_int = f"{PY} -c \"import re; exec(open('saver.py').read().replace('SIGTERM', 'SIGINT'))\" a"
    shim = start(["bash", "-c", f"{by_int}; :"], cwd=str(box), stop_signal=int(signal.SIGINT), grace_s=60.0)
    assert asked(shim, box).leftovers == ()
    assert (box / "a.saved").exists()
