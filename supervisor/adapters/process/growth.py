"""Detects progress in a program's output without reading it: its logs grow, its files appear or change.

This works for a process on this machine, and for a cluster job whose files are on a file system that both hosts share.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor.as_user import acting_as, log_at
from supervisor.files import was_at
from supervisor.model.settings import Paths, ProgramSpec

_MOST_FILES: Final = 10_000  # per glob: the rest of a larger directory is not read
_CHANNELS: Final = ("stdout", "stderr")

Seen = dict[str, tuple[int, int]]  # file -> (size, modification time in ns; 0 for logs)


@dataclass(slots=True)
class Growth:
    """The last known state of one attempt's output, and when something new last appeared."""

    seen: Seen | None = None
    at_s: float | None = None

    def began(self, logs_from: tuple[int, int]) -> None:
        """Take the log sizes at the attempt's start, so that a line printed before the first reading counts as progress."""
        if self.seen is None:
            self.seen = {channel: (size, 0) for channel, size in zip(_CHANNELS, logs_from, strict=True)}

    def note(self, seen: Seen, now_s: float) -> None:
        """Compare a reading with the known state: anything new is progress. The first reading is only the starting point."""
        if self.seen is None:
            self.seen = seen
        else:  # a new or a changed file; one that was only emptied (a rotated log) is not new
            known = self.seen
            if any(now != known.get(file) and (file not in known or now[0] > 0) for file, now in seen.items()):
                self.at_s = now_s
        # A file that is not seen this time is kept: it is not new when it can be read again.
        if len(self.seen) <= 2 * _MOST_FILES:
            self.seen.update(seen)
        else:
            self.seen = seen


@dataclass(slots=True)
class Logs:
    """The logs of one attempt on this machine, also where they were taken away under its worker.

    The worker writes into the file that it has opened, whatever is at the path. So a log that was removed, renamed or
    replaced is measured through the worker's descriptor: logrotate without `copytruncate` must not make a worker silent.
    """

    pid: int
    own: dict[str, tuple[int, int]] = field(default_factory=dict)  # device and inode, by channel, once both were the same
    taken: frozenset[str] = frozenset()  # the channels whose logs were taken away

    def sizes(self, paths: Paths, spec: ProgramSpec) -> Seen:
        found, taken = {}, set()
        for number, channel in enumerate(_CHANNELS, start=1):
            place, own = paths.log_of(spec, channel), self.own.get(channel)
            with log_at(place or ""):
                here = None if place is None else _stat(place)
            if place is not None and (own is None or here is None or _identity(here) != own):
                opened = _stat(link := f"/proc/{self.pid}/fd/{number}")
                if own is None and here is not None and opened is not None and _identity(opened) == _identity(here):
                    self.own[channel] = _identity(here)
                elif opened is not None and (_identity(opened) == own if own is not None else was_at(link, place)):
                    self.own[channel], here = _identity(opened), opened
                    taken.add(channel)
            if here is not None:
                found[channel] = here.st_size, 0
        self.taken = frozenset(taken)
        return found


def logs(paths: Paths, spec: ProgramSpec) -> Seen:
    places = {channel: paths.log_of(spec, channel) for channel in _CHANNELS}
    found = {channel: _stat(place) for channel, place in places.items() if place is not None}
    return {channel: (entry.st_size, 0) for channel, entry in found.items() if entry is not None}


def files(paths: Paths, spec: ProgramSpec) -> Seen:
    directory = Path(spec.directory or paths.run_dir(spec.name))
    seen: Seen = {}
    # NotImplementedError: an absolute pattern
    with contextlib.suppress(OSError, ValueError, NotImplementedError), acting_as(spec.user):
        for path in itertools.islice(directory.glob(spec.progress_glob or "*"), _MOST_FILES):
            entry = _stat(path)
            if entry is not None:
                seen[str(path)] = entry.st_size, entry.st_mtime_ns
    return seen


def _stat(path: Path | str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  making a path object takes longer than the call
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
