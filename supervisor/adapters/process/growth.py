"""What a program's output tells without being read: its logs grow, its files appear or change.

The same of a process on this machine and of a job, whose files are on a file system that both hosts have.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from supervisor.records import dataclass

if TYPE_CHECKING:
    from supervisor.model.settings import Paths, ProgramSpec

_MOST_FILES: Final = 10_000  # of a glob: a directory that holds more is not looked through further
_CHANNELS: Final = ("stdout", "stderr")

Seen = dict[str, tuple[int, int]]  # file -> (size, modification time in ns; 0 for logs)


@dataclass(slots=True)
class Growth:
    """What was seen of one attempt's output, and when something new was."""

    seen: Seen | None = None
    at_s: float | None = None

    def began(self, logs_from: tuple[int, int]) -> None:
        """The sizes of its logs when it began: a line printed before the first look is progress too."""
        if self.seen is None:
            self.seen = {channel: (size, 0) for channel, size in zip(_CHANNELS, logs_from, strict=True)}

    def note(self, seen: Seen, now_s: float) -> None:
        """Progress is that something new is seen. The first look only tells what was there before."""
        if self.seen is None:
            self.seen = seen
        elif any(_is_new(self.seen.get(file), now) for file, now in seen.items()):
            self.at_s = now_s
        # What is not seen this time is kept: it is not new when it can be read again.
        if len(self.seen) <= 2 * _MOST_FILES:
            self.seen.update(seen)
        else:
            self.seen = seen


def logs(paths: Paths, spec: ProgramSpec) -> Seen:
    """The sizes of its logs, by channel."""
    places = {channel: paths.log_of(spec, channel) for channel in _CHANNELS}
    found = {channel: _size_and_time(place) for channel, place in places.items() if place is not None}
    return {channel: (entry[0], 0) for channel, entry in found.items() if entry is not None}


def files(paths: Paths, spec: ProgramSpec) -> Seen:
    """What matches its `progress_glob`."""
    directory = Path(spec.directory or paths.run_dir(spec.name))
    seen: Seen = {}
    with contextlib.suppress(OSError, ValueError, NotImplementedError):  # the last: an absolute pattern
        for path in itertools.islice(directory.glob(spec.progress_glob or "*"), _MOST_FILES):
            entry = _size_and_time(path)
            if entry is not None:
                seen[str(path)] = entry
    return seen


def _is_new(before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
    """Something was written: a new file, a changed one. One that was only emptied (a rotated log) has not moved on."""
    return now != before and (before is None or now[0] > 0)


def _size_and_time(path: Path | str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116  making a path object takes longer than the call
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns
