"""Finds out which program writes a file (`policy/script/file_owner.py`), from the process trees of all programs.

A process shows the files that it has open, in /proc/PID/fd, and how many bytes it has written, in /proc/PID/io. Many
scripts open, write and close a file for each row. So the files whose owner is unknown are watched for half a second: a
program that wrote less than a file grew is not its writer.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from supervisor.adapters import procfs
from supervisor.records import Record

WATCH_S: Final = 0.5
_PAUSE_S: Final = 0.01
_PAUSES: Final = 4.0  # each sample may take a fifth of the time
_ENOUGH: Final = 5  # growths of each file
_MOST_PROCESSES: Final = 256  # of one program
_MOST_FILES: Final = 4096  # of one process
_WRITES: Final = os.O_WRONLY | os.O_RDWR

# As TensorBoard names them: the second, the host, the pid, and the number of the writer in this process.
_EVENTS_OF_PID: Final = re.compile(r"/events\.out\.tfevents\.\d{10}\.[^/]+\.(\d+)\.\d+$")

File = tuple[int, int]  # device and inode


class _Seen(Record):
    """One sample. None: unknown."""

    files: dict[str, tuple[int, int] | None]  # by path: inode and size
    written: dict[str, int | None]  # bytes by program


def trees(roots: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    """The processes of each program, from the roots of its tree."""
    table = procfs.scan()
    found = {}
    for name, pids in roots.items():
        members = {
            each for pid in pids for each in (pid, *(below.pid for below in table.below(pid))) if each in table.processes
        }
        found[name] = tuple(sorted(members))[:_MOST_PROCESSES]
    return found


def open_files(members: Mapping[str, Iterable[int]]) -> dict[File, set[str]]:
    """The programs that have a file open for writing, by file."""
    found: dict[File, set[str]] = {}
    for name, pids in members.items():
        for pid in pids:
            for file in _open_for_writing(pid):
                found.setdefault(file, set()).add(name)
    return found


def named(path: str, members: Mapping[str, Iterable[int]]) -> set[str]:
    """The program whose process is named in the path: TensorBoard's files hold the pid of their writer."""
    found = _EVENTS_OF_PID.search(path)
    return set() if found is None else {name for name, pids in members.items() if int(found[1]) in pids}


def _open_for_writing(pid: int) -> Iterable[File]:
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(directory)[:_MOST_FILES]:  # noqa: PTH208  a path object each is waste
            with contextlib.suppress(OSError, ValueError):
                if not os.readlink(f"{directory}/{number}").startswith("/"):  # noqa: PTH115
                    continue
                info = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="utf-8")
                flags = info.partition("flags:")[2].split(None, 1)[0]
                if int(flags, 8) & _WRITES:
                    seen = os.stat(f"{directory}/{number}")  # noqa: PTH116
                    yield seen.st_dev, seen.st_ino


def growths(paths: Iterable[str], roots: Mapping[str, Iterable[int]]) -> dict[str, list[frozenset[str]]]:
    """Watch these files: for each growth of one, the programs that may have written it."""
    paths, members = list(paths), trees(roots)
    samples, until_s = [_sample(paths, members)], time.monotonic() + WATCH_S
    while time.monotonic() < until_s and not all(len(each) >= _ENOUGH for each in _growths(paths, samples).values()):
        began_s = time.monotonic()
        samples.append(_sample(paths, members))
        time.sleep(max(_PAUSE_S, _PAUSES * (time.monotonic() - began_s)))
    after = trees(roots)
    changed = {name for name in members if members[name] != after[name]}  # what an ended process wrote is not known
    return {path: [could | changed for could in each] for path, each in _growths(paths, samples).items()}


def _sample(paths: Iterable[str], members: Mapping[str, Iterable[int]]) -> _Seen:
    files = {path: _inode_and_size(path) for path in paths}
    return _Seen(files, {name: _written(pids) for name, pids in members.items()})


def _inode_and_size(path: str) -> tuple[int, int] | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_ino, seen.st_size


def _written(pids: Iterable[int]) -> int | None:
    sizes = [procfs.io_bytes(pid, written=True) for pid in pids]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _growths(paths: Iterable[str], samples: list[_Seen]) -> dict[str, list[frozenset[str]]]:
    """A file grows shortly before its writer's count does: so the count one sample later, less that two before, counts."""
    found: dict[str, list[frozenset[str]]] = {path: [] for path in paths}
    for at in range(2, len(samples) - 1):
        before, after = samples[at - 2].written, samples[at + 1].written
        for path, looks in found.items():
            was, now = samples[at - 1].files[path], samples[at].files[path]
            if was is not None and now is not None and was != now:
                size = now[1] - was[1] if was[0] == now[0] else now[1]
                looks.append(frozenset(name for name in after if _may_have(before[name], after[name], size)))
    return found


def _may_have(before: int | None, after: int | None, size: int) -> bool:
    return before is None or after is None or after - before >= size
