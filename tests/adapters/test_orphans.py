"""Orphans that come home: real processes below a sub-reaper of their own, which tells what it sees."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from attempts_kit import REPO

# One child of each kind; all but the helper lead sessions of their own, as orphans do. The last one is a grandchild whose
# parent has ended.
HOME = """
import json, os, subprocess, sys, threading
from supervisor.adapters import leftovers, procfs
from supervisor.adapters.process import orphans
from supervisor.adapters.process.orphans import Orphans
from workers import contract

def begin(*argv, session=True, **env):
    return subprocess.Popen(argv or ["sleep", "60"], env=env, start_new_session=session).pid

home = Orphans()
before = begin()
mark = {"FIRST": "1", contract.ENV_TOKEN: "ab"}
began = {"orphan": begin(SAYS="a " + contract.ENV_TOKEN + "=ab"), "attempt": begin(**mark), "helper": begin(session=False)}
began["child"] = begin(FIRST="1", **leftovers.mark())
from_other = threading.Thread(target=lambda: began.update(thread=begin()))
from_other.start()
from_other.join()
assert home.since(0) == [], "nothing comes home before"
homeless = [orphans.NONE.since(0), home.adopt(), orphans.NONE.since(0)]
reading, writing = os.pipe()
middle = subprocess.Popen(["sh", "-c", "setsid env -i sleep 60 & echo $! >&%d" % writing], pass_fds=[writing])
middle.wait()
began["grandchild"] = int(os.read(reading, 100))
while procfs.read_stat(began["grandchild"]).name != "sleep": pass
names = {pid: name for name, pid in began.items()} | {before: "before"}
told = lambda ticks: sorted(names.get(pid, str(pid)) for pid in home.since(ticks))
found = {"all": told(0)}
ticks = procfs.read_stat(began["grandchild"]).start_ticks
found["since"], found["after"] = told(ticks), told(ticks + 1000)
scanned, procfs.pids = procfs.pids, list
found["without a scan"], procfs.pids = told(0), scanned
listed, os.listdir = os.listdir, lambda path: listed("/none" if path == "/proc/self/task" else path)
found["without lists"], os.listdir = told(0), listed

def dead(pid):
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

awaited = dead(began["orphan"])
for name in ("thread", "grandchild", "helper"): dead(began[name])
zombies = lambda: sorted(names[pid] for pid in names if procfs.read_stat(pid).state == "Z")
is_there = lambda pid: procfs.read_stat(pid) is not None
found["dead"] = told(0)
there = []
for _ in range(3):
    home.reap(lambda: [awaited])
    there.append(sorted(name for name, pid in began.items() if is_there(pid)))
home.reap(list)
found["reaped"] = [*there, is_there(awaited)]
for pid in (before, began["attempt"], began["child"]): os.kill(pid, 9)
print(json.dumps(found | {"homeless": homeless}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    told = subprocess.run([sys.executable, "-c", HOME], cwd=REPO, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout))


def test_orphans_are_children_in_other_sessions_without_a_mark(found: dict[str, Any]) -> None:
    assert found["all"] == ["before", "grandchild", "orphan", "thread"]
    assert found["without a scan"] == found["all"], "the kernel lists the children of each thread"
    assert found["without lists"] == found["all"], "a kernel that does not list children"
    assert found["homeless"] == [[], True, []]


def test_only_those_count_that_began_since_then_and_live(found: dict[str, Any]) -> None:
    assert "grandchild" in found["since"]
    assert found["after"] == []
    assert found["dead"] == ["before"]


def test_only_what_nobody_awaits_is_reaped_and_at_the_second_look(found: dict[str, Any]) -> None:
    everybody = ["attempt", "child", "grandchild", "helper", "orphan", "thread"]
    left = ["attempt", "child", "helper", "orphan"]
    assert found["reaped"] == [everybody, left, left, False]
