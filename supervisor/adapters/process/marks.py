"""Finds the attempts of one state directory by the marks of their processes, whatever files are left of them.

Each process of an attempt carries the attempt's token and program in its environment. The command line of a shim ends with
the program, the number of the attempt and the run directory. The environment of a worker has the run directory too, unless
it is another user's; such a worker is found below its shim.

A process in another PID namespace, or with another root, is not ours: a container has a state directory of its own, even if
that has the same path. The containers of a pod may share their processes, but not their roots.

Example: the state directory and the runtime directory of a killed daemon were removed. Shim 90 and its worker 91 of Pong
still run. The next daemon adopts them. Without this search it would start a second Pong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from supervisor import lack
from supervisor.adapters import procfs
from supervisor.model.inputs import Survival, Survivor
from supervisor.records import Record
from workers import contract

_SHIM: Final = "/proc/self/fd/"  # a shim runs its code from a descriptor


class Marked(Record):
    """An attempt with living processes. `survivor` is None if it has no shim or no worker: then it cannot be adopted."""

    program: str
    number: int
    token: str
    since_ticks: int
    survivor: Survivor | None


def attempts(programs_dir: str) -> list[Marked]:
    """The attempts with a run directory below `programs_dir`, the oldest first. One scan of /proc."""
    members: dict[str, list[tuple[procfs.Stat, str]]] = {}  # by token: each process and the run directory that it names
    home, container = os.path.realpath(programs_dir), _container("self")
    for pid in procfs.pids():
        env = procfs.environment(pid)
        token = env.get(contract.ENV_TOKEN)
        stat = procfs.read_stat(pid) if token else None
        if token and stat is not None and stat.alive and _container(pid) == container:
            members.setdefault(token, []).append((stat, env.get(contract.ENV_RUN_DIR, "")))
    found = [_attempt(home, token, sorted(each, key=lambda one: one[0].start_ticks)) for token, each in members.items()]
    return sorted((each for each in found if each is not None), key=lambda each: each.since_ticks)


def _attempt(home: str, token: str, members: list[tuple[procfs.Stat, str]]) -> Marked | None:
    for stat, _ in members:
        program, number = _of_shim(stat.pid, home)
        if program:
            workers = [each for each, _ in members if each.parent == stat.pid and each.group == each.pid]
            survivor = None
            if workers:
                worker = workers[0].pid, workers[0].start_ticks
                survivor = Survivor(token, Survival.ALIVE, *worker, stat.pid, stat.start_ticks)
            return Marked(program, number, token, stat.start_ticks, survivor)
    for stat, run_dir in members:
        if run_dir and os.path.realpath(run_dir).rpartition("/")[0] == home:
            return Marked(run_dir.rpartition("/")[2], 0, token, stat.start_ticks, None)
    return None


def _of_shim(pid: int, home: str) -> tuple[str, int]:
    """The program and the number of a shim's attempt; empty and 0 for a process that is no shim of this state directory."""
    words = (procfs.read_text(pid, "cmdline") or "").split("\0")
    if len(words) < 4 or not words[-4].startswith(_SHIM) or not words[-2].isdecimal():
        return "", 0
    program, number, run_dir = words[-3:]
    return (program, int(number)) if os.path.realpath(run_dir) == f"{home}/{program}" else ("", 0)


def _container(pid: int | str) -> tuple[int, ...]:
    """Tells the processes of one container from those of others: the PID namespace, and the directory that is its root."""
    try:
        root = Path(f"/proc/{pid}/root/").stat()
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino, root.st_dev, root.st_ino
    except OSError as error:  # it has ended
        lack.check(error)
        return ()
