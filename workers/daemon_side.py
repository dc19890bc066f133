"""The daemon's side of the contract: it reads beats and writes control records.

The client does not need it, so its wheel is without this file. The layout of the records is private to the two sides: this
file and `contract.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from workers.contract import (
    _BEAT_MAGIC,
    _BODY_AT,
    _CONTROL,
    _CONTROL_MAGIC,
    _EXTRA_AT,
    _EXTRA_HEADER,
    _FIXED,
    _HEADER,
    _MEASURED,
    _MOVING,
    _MOVING_NAMES,
    _OWN_AT,
    _READ_TRIES,
    _SEQ,
    _SEQ_AT,
    _TOKEN_AT,
    _VERSION,
    RECORD_BYTES,
    UNKNOWN,
    Beat,
    Control,
    TargetKind,
    WorkerPhase,
    read_record,
)

_LACK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

if TYPE_CHECKING:
    from collections.abc import Mapping


def unpack_measured(data: bytes) -> dict[str, float]:
    """The fields beyond the body of a whole record, as far as writer and reader know them."""
    extra = _part(data, _EXTRA_AT)
    values = (value for (value,) in struct.iter_unpack("<d", extra[: len(extra) // 8 * 8]))
    return dict(zip(_MEASURED, values, strict=False))  # a writer of another version has more or fewer


def unpack_own(data: bytes) -> dict[str, float]:
    """The finite figures with the script's own names in a whole record."""
    found = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(_part(data, _OWN_AT) or b"{}", parse_int=float)
    known = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in known if isinstance(value, float) and math.isfinite(value)}


def _part(data: bytes, at: int) -> bytes:
    """The bytes of a part beyond the body; empty if it is torn, damaged or absent."""
    if len(data) < at + _EXTRA_HEADER.size:
        return b""
    crc, length = _EXTRA_HEADER.unpack_from(data, at)
    part = data[at + _EXTRA_HEADER.size :][:length]
    return part if len(part) == length and crc32(part) == crc else b""


def unpack_beat(body: bytes, live_ns: int, more: Mapping[str, Any] | None = None) -> Beat:
    """The inverse of `pack_beat`. Raises ValueError for another version, an unknown phase or a wrong length."""
    if len(body) != _FIXED.size + _MOVING.size:
        raise ValueError(f"beat record has {len(body)} bytes, expected {_FIXED.size + _MOVING.size}")
    version, _, attempt, pid, boot_id, token, ticks = _FIXED.unpack_from(body)
    if version != _VERSION:
        raise ValueError(f"beat record of version {version}, this side speaks {_VERSION}")
    moving = dict(zip(_MOVING_NAMES, _MOVING.unpack_from(body, _FIXED.size), strict=True))
    del moving[""]
    moving["phase"], moving["target_kind"] = WorkerPhase(moving["phase"]), TargetKind(moving["target_kind"])
    moving.update(more or {})
    return Beat(
        attempt=attempt, pid=pid, boot_id=boot_id.hex(), token=token.hex(), start_ticks=ticks, live_ns=live_ns, **moving
    )


def read_beat(path: str | os.PathLike[str]) -> Beat | None:
    """The newest whole beat in the file, or None when there is none: absent, torn by a death in mid-write, damaged.

    While a write is in progress, it reads again, a bounded number of times.
    """
    for _ in range(_READ_TRIES):
        data = _read_mapped(path)
        record = read_record(data, _BEAT_MAGIC)
        if record is not None:
            with contextlib.suppress(ValueError):
                return unpack_beat(record[2], record[1], {**unpack_measured(data), "own": unpack_own(data)})
            return None
        if len(data) < _BODY_AT or data[:8] != _BEAT_MAGIC:
            return None
    return None


def beat_defect(path: str | os.PathLike[str], token: str) -> str:
    """The defect of an attempt's beat file, as a clause; empty when it is whole, or being written."""
    data = _read_mapped(path)
    if not data:
        return "it is gone"
    if len(data) < _BODY_AT + _FIXED.size or data[:8] != _BEAT_MAGIC:
        return "it is not a beat record any more"
    if data[_BODY_AT + _TOKEN_AT : _BODY_AT + _TOKEN_AT + 16].hex() != token:
        return "it is of another attempt"
    seq = _SEQ.unpack_from(data, _SEQ_AT)[0]
    if seq & 1 or read_beat(path) is not None:
        return ""
    return "its checksum is wrong"


def _read_mapped(path: str | os.PathLike[str]) -> bytes:
    """One record's bytes, or none. No file that a worker puts in its place costs the reader time or memory.

    It follows no link, waits for no FIFO (`O_NONBLOCK`) and reads no more than a record of a file of gigabytes. Raises
    OSError for a lack of descriptors or memory.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except ValueError:
        return b""
    except OSError as error:
        if error.errno in _LACK:
            raise
        return b""
    try:
        return os.read(fd, RECORD_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


class ControlWriter:
    """The daemon's side of a control record.

    Written with pwrite(2), not through a mapping: a worker that cuts its file short would kill a daemon that stores into
    a page beyond the end (SIGBUS). Here the file merely grows again. Controls are rare, so the speed does not matter.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            os.ftruncate(self._fd, RECORD_BYTES)
            self._seq = _SEQ.unpack(os.pread(self._fd, _SEQ.size, _SEQ_AT))[0] | 1
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, control: Control) -> None:
        body = _CONTROL.pack(
            _VERSION, 0, control.save_now, bytes.fromhex(control.token),
            control.interval_ms, control.offset_ms, control.leave_by_ns,
        )  # fmt: skip
        odd = (self._seq | 1) & UNKNOWN
        header = _HEADER.pack(_CONTROL_MAGIC, odd, 0, crc32(body), len(body))
        os.pwrite(self._fd, header + body, 0)  # odd while the body is being written: a reader reads again
        self._seq = (odd + 1) & UNKNOWN
        os.pwrite(self._fd, _SEQ.pack(self._seq), _SEQ_AT)

    def close(self) -> None:
        os.close(self._fd)
