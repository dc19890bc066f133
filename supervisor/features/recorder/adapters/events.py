"""Reads old curves from the TensorBoard event files of built-in workers (`workers/metrics.py`).

They fill the time before the recorder began, or time that it has lost. Only the requested numbers are looked up in each
record: a month of points of three curves takes a tenth of a second.

The checksum of the length is verified in every record (`adapters/tfrecord.py`). It finds a torn end or a damaged frame, and
the rest of that file is left out. The checksum of a message is verified only in the newest record of a file: a killed writer
may have torn that one.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Final, NamedTuple

from supervisor.adapters.tfrecord import is_whole, records, varint
from supervisor.features.recorder.rules.recording import Drawn, tag_of

_NAME: Final = re.compile(r"events\.out\.tfevents\.(\d{10})\.extralife")
_DIRECTORY: Final = "tensorboard"
_MOST_BYTES: Final = 64 << 20  # per program: as much as a worker keeps
_LARGEST_FILE: Final = 8 << 20
_WALL: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_LONGEST_RECORD: Final = 1 << 20


class _Record(NamedTuple):
    wall_s: float
    step: int
    begins: bool  # a start of the worker: earlier points from this step on were rolled back
    values: tuple[float | None, ...]


def read(directory: Path, names: Sequence[str], since_wall_s: float, until_wall_s: float) -> Iterator[Drawn]:
    """The points of a program's run directory in a range of the wall clock, oldest file first. There may be none.

    `names` are series of the programs' sheet. Raises OSError.
    """
    tags = tuple(tag_of(name) for name in names)
    start, resumed_step = 0, None
    for path, size, mtime_ns in _files(directory / _DIRECTORY):
        if mtime_ns / 1e9 < since_wall_s:
            continue  # its newest record is older
        for record in _records(path, size, mtime_ns, tags):
            if record.begins:
                start, resumed_step = start + 1, max(0, record.step - 1)
            elif since_wall_s <= record.wall_s < until_wall_s:
                known = {name: value for name, value in zip(names, record.values, strict=True) if value is not None}
                yield Drawn(start, resumed_step, record.wall_s, record.step, known)


def _files(directory: Path) -> list[tuple[Path, int, int]]:
    """The newest files that fit into the bound, oldest first: path, size, time of the last change."""
    try:
        found = sorted((int(name[1]), path) for path in directory.iterdir() if (name := _NAME.fullmatch(path.name)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    chosen, left = [], _MOST_BYTES
    for _, path in reversed(found):
        seen = path.lstat()
        left -= seen.st_size
        if left < 0:
            break
        chosen.append((path, seen.st_size, seen.st_mtime_ns))
    return chosen[::-1]


@functools.lru_cache(maxsize=32)
def _records(path: Path, size: int, _mtime_ns: int, tags: tuple[str, ...]) -> tuple[_Record, ...]:
    """The records of one file.

    They are cached while the file is unchanged, because a page is drawn again every few seconds.
    """
    if size > _LARGEST_FILE or not path.is_file() or path.is_symlink():
        return ()
    with path.open("rb") as file:
        data = file.read(_LARGEST_FILE)
    marks = tuple(_mark(tag) for tag in tags)
    frames = records(data, _LONGEST_RECORD).messages
    if frames and not is_whole(data, *frames[-1]):
        frames.pop()
    return tuple(record for place, end in frames if (record := _record(data, place, end, marks)) is not None)


def _mark(tag: str) -> bytes:
    """The first bytes of a scalar in a summary: field 1, the tag; then the start of field 2, a float."""
    name = tag.encode()
    return b"\x0a" + bytes([len(name)]) + name + b"\x15"


def _record(data: bytes, place: int, end: int, marks: tuple[bytes, ...]) -> _Record | None:
    """An event with its time, its step and the requested scalars; None if it is neither a point nor a start."""
    if end - place < 11 or data[place] != 0x09 or data[place + 9] != 0x10:
        return None  # a point has a time, then a step: the first record of a file does not
    wall_s = _WALL.unpack_from(data, place + 1)[0]
    step, body = varint(data, place + 10, end)
    if body >= end or not isfinite(wall_s):
        return None
    if data[body] == 0x3A:  # field 7: the session log, which a start writes
        return _Record(wall_s, step, begins=True, values=())
    values: list[float | None] = []
    for mark in marks:
        found = data.find(mark, body, end)
        at = found + len(mark)
        value = _FLOAT.unpack_from(data, at)[0] if found >= 0 and at + 4 <= end else nan
        values.append(value if isfinite(value) else None)
    return _Record(wall_s, step, begins=False, values=tuple(values))
