"""Examines the whole process tree of every attempt: which processes do not run, and whether the tree works.

One scan of /proc serves all attempts: it reads one file per process of the box, some 10 us each. A full scan is made every
ten seconds. Every two seconds only new processes are read, and those that a tree wants to read again: its children, and the
worker itself when its CPU time is due. If a scan takes more than a hundredth of a core, scans become rarer. The root of a
tree is its shim, which is the sub-reaper of all processes that the worker starts; without a known shim it is the worker.

Witnesses of progress (`policy/worker/witness.py`) are read only for programs that send neither beats nor notifications: CPU
time, else bytes read and written, else the files below its directory. Its file system may hang, so a thread reads it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from supervisor.adapters import procfs
from supervisor.adapters.procfs import ProcessTable, Stat
from supervisor.adapters.threads import Tasks
from supervisor.as_user import acting_as
from supervisor.model.inputs import Halted
from supervisor.policy.worker.witness import TreeUsage, works
from workers import contract

_SCAN_S: Final = 2.0
_WHOLE_S: Final = 10.0
_SCAN_SHARE: Final = 0.01  # of a core
_SCAN_MOST_S: Final = 5.0
_MEASURE_S: Final = 5.0  # between two counts: this averages out a thread that wakes up now and then
_FILES_S: Final = 30.0
_HELD_S: Final = 30.0  # in state D without a tick of CPU time: short waits for a disk are normal
_MOST_ASKED: Final = 64  # processes of one tree whose reads and writes are counted
_MOST_ENTRIES: Final = 2000  # read below one directory
_CUDA: Final = Path("/dev/nvidia-uvm")  # open in each process that uses CUDA, and in none that only reads the GPUs

_OURS: Final = frozenset({contract.ATTEMPTS_DIR, contract.LOCK_FILE, contract.FENCE_FILE})


class Scans:
    """The newest scan of /proc; a new one when it is due."""

    def __init__(self) -> None:
        self._table: ProcessTable | None = None
        self._due_s = self._whole_due_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether the next call of `newest` makes a new scan."""
        return self._table is None or now_s >= self._due_s or self._due_s - now_s > _SCAN_MOST_S

    def newest(self, now_s: float, again: Container[int] = ()) -> ProcessTable:
        """The newest scan; the same object until something has changed. `again`: processes to read again in any case."""
        if self._table is None or self.is_due(now_s):
            began_s = time.thread_time()
            if self._table is None or not 0.0 < self._whole_due_s - now_s <= _WHOLE_S:
                self._table, self._whole_due_s = procfs.scan(), now_s + _WHOLE_S
            else:
                self._table = procfs.scan(self._table, again)
            took_s = time.thread_time() - began_s
            self._due_s = now_s + min(_SCAN_MOST_S, max(_SCAN_S, took_s / _SCAN_SHARE))
        return self._table


@dataclass(slots=True)
class Tree:
    """The last readings of the tree of one attempt."""

    worker: int  # process id
    start_ticks: int | None  # None: it was gone already
    directory: str  # that holds its own files; empty: not examined
    root: int | None = None  # its shim
    table: ProcessTable | None = None  # the scan in which it was last examined
    pids: tuple[int, ...] = ()
    halted: tuple[Halted, ...] = ()
    untouchable: tuple[str, ...] = ()  # by whose start a setuid program such as sudo has changed the user
    uses_cuda: bool = False  # at some time; a container hides the process ids by which the driver names its users
    witness_at_s: float | None = None
    witness: str = ""
    reads_witnesses: bool = False
    leader_gone: bool = False  # its command has ended, and processes that it started run on
    _still: dict[tuple[int, int], tuple[str, float, int]] = field(default_factory=dict)  # state, since, CPU ticks
    _measured: TreeUsage | None = None
    _written_ns: int | None = None
    _files_due_s: float = 0.0
    _looking: bool = False
    user: str = ""  # of the program: its directory is examined as this user

    @property
    def seen(self) -> tuple[object, ...]:
        """All values that go into a sample."""
        return self.pids, self.halted, self.untouchable, self.witness_at_s, self.witness, self.uses_cuda

    def wants(self, now_s: float, state: str | None) -> tuple[int, ...]:
        """Processes that must be read again. `state` is the worker's last known state."""
        measure_due = self._measured is not None and now_s - self._measured.at_s >= _MEASURE_S
        return (*self.pids, self.worker) if measure_due or state == "T" or self.halted else self.pids

    def is_due(self, now_s: float) -> bool:
        """Whether the tree must be examined although nothing in it has changed."""
        measure_due = self.reads_witnesses and (self._measured is None or now_s - self._measured.at_s >= _MEASURE_S)
        return self.table is None or measure_due or bool(self._still)

    def look(self, table: ProcessTable, now_s: float, *, leader: bool, witnesses: bool, tasks: Tasks) -> None:
        """Examine the tree in a new scan. `leader`: judge the worker's own state here too; `witnesses`: read them."""
        self.table, self.reads_witnesses = table, witnesses
        members = self._members(table)
        self.pids = tuple(sorted(process.pid for process in members if process.pid != self.worker))
        self.leader_gone = bool(members) and len(self.pids) == len(members)
        self.uses_cuda = self.uses_cuda or (
            _CUDA.exists() and any(procfs.holds(process.pid, str(_CUDA)) for process in members[:_MOST_ASKED])
        )
        self._note_halted(members, now_s, leader=leader)
        self.untouchable = untouchable(members[:_MOST_ASKED])
        if witnesses:
            self._measure(table, members, now_s, tasks)
        else:
            self._measured, self.witness_at_s, self.witness = None, None, ""

    def _members(self, table: ProcessTable) -> list[Stat]:
        worker = table.processes.get(self.worker)
        if worker is None or worker.start_ticks != self.start_ticks:
            return [] if self.root is None else table.below(self.root)
        return table.below(self.root) if worker.parent == self.root else [worker, *table.below(self.worker)]

    def _note_halted(self, members: list[Stat], now_s: float, *, leader: bool) -> None:
        still: dict[tuple[int, int], tuple[str, float, int]] = {}
        halted = []
        for process in members:
            if process.state not in "TD" or (process.pid == self.worker and not leader):
                continue
            key = process.pid, process.start_ticks
            before = self._still.get(key)
            known = before is not None and before[0] == process.state and before[2] == process.ticks
            since_s = before[1] if before is not None and known else now_s
            still[key] = process.state, since_s, process.ticks
            if process.state == "T" or now_s - since_s >= _HELD_S:
                halted.append(Halted(process.pid, process.start_ticks, process.name, process.state, since_s))
        self._still, self.halted = still, tuple(halted)

    def _measure(self, table: ProcessTable, members: list[Stat], now_s: float, tasks: Tasks) -> None:
        before = self._measured
        if before is not None and now_s - before.at_s < _MEASURE_S:
            return
        # CPU time, with that of ended children. The shim's own count contains orphans that it inherited and reaped.
        shim = None if self.root is None else table.processes.get(self.root)
        ticks = sum(process.ticks + process.ended_ticks for process in members) + (0 if shim is None else shim.ended_ticks)
        now = TreeUsage(now_s, ticks / procfs.TICKS_PER_S)
        by = "" if before is None else works(replace(before, io_bytes=None, written_ns=None), now)
        if not by:
            if self.directory and not self._looking and now_s >= self._files_due_s:
                self._looking, self._files_due_s = True, now_s + _FILES_S
                tasks.begin("files", self._newest_file)
            sizes = [size for each in members[:_MOST_ASKED] if (size := procfs.io_bytes(each.pid)) is not None]
            now = replace(now, io_bytes=sum(sizes) if sizes else None, written_ns=self._written_ns)
            by = "" if before is None else works(before, now)
        if by:
            self.witness_at_s, self.witness = now_s, by
        self._measured = now

    def _newest_file(self) -> None:
        try:
            with acting_as(self.user):
                self._written_ns = newest_ns(self.directory)
        finally:
            self._looking = False


def untouchable(processes: Iterable[Stat]) -> tuple[str, ...]:
    """Those of the living processes that we may not signal, each with its user."""
    owned = ((each, procfs.owner_if_untouchable(each.pid, each.start_ticks)) for each in processes if each.alive)
    return tuple(f"{each.name}({each.pid}) of {owner}" for each, owner in owned if owner)


def changed_roots(before: ProcessTable | None, table: ProcessTable, roots: Container[int]) -> set[int] | None:
    """The roots of the trees in which something has changed; None: any may have changed."""
    if before is None or table.changed is None:
        return None
    found = set()
    for pid in table.changed:
        for processes in (table.processes, before.processes):
            at, process = pid, processes.get(pid)
            while process is not None and at not in roots:
                at, process = process.parent, processes.get(process.parent)
            if at in roots:
                found.add(at)
    return found


def newest_ns(directory: str) -> int | None:
    """The newest modification time below a directory, of its first two thousand entries; None: nothing could be read.

    Links are not followed. The files that extralife itself writes to a run directory are left out.
    """
    newest, left, waiting = None, _MOST_ENTRIES, [directory]
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop(0)) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or entry.name in _OURS:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        newest = max(newest or 0, entry.stat(follow_symlinks=False).st_mtime_ns)
        except OSError:
            continue
    return newest


def own_directory(directory: str, others: Mapping[str, int]) -> str:
    """The directory, if only this program writes there: no other program's, not our home, not near the root; else ""."""
    if not directory or others.get(directory, 0) > 1:
        return ""
    path = Path(directory)
    return "" if len(path.parts) < 3 or path == Path.home() else directory
