"""Reads TensorBoard event files: TFRecord records, and the scalars in them.

A record consists of its length, a checksum of the length, an `Event` message and a checksum of the message. A file that is
still being written may end with an incomplete record: reading stops there, and the next read finds the record complete.
After a length with a wrong checksum the start of the next record is unknown; `recovered` searches for it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_WALL: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_CASTAGNOLI: Final = 0x82F63B78
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # types of protobuf's fields
_TENSORS: Final = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
_NEGATIVE: Final = 1 << 63


class Records(NamedTuple):
    """The whole records at the beginning of some data."""

    messages: list[tuple[int, int]]  # (from, to) of each message
    end: int  # of the last whole record
    more: int  # size in bytes of the incomplete record at `end`; 0: unknown, its length is cut
    damaged: bool  # `records`: the data at `end` is no record; `recovered`: some data before `end` was none


class Event(NamedTuple):
    wall_s: float
    step: int
    scalars: dict[str, float]


def records(data: bytes, longest: int) -> Records:
    """Cut data into records; a length beyond `longest` is damage."""
    place, found = 0, list[tuple[int, int]]()
    while place + _HEADER.size <= len(data):
        length, crc = _HEADER.unpack_from(data, place)
        end = place + _HEADER.size + length
        if crc != masked_crc(data[place : place + 8]) or length > longest:
            return Records(found, place, 0, damaged=True)
        if end + _CRC.size > len(data):
            return Records(found, place, end + _CRC.size - place, damaged=False)
        found.append((place + _HEADER.size, end))
        place = end + _CRC.size
    return Records(found, place, 0, damaged=False)


def recovered(data: bytes, longest: int) -> Records:
    """Like `records`, for data that are damaged or begin inside a record: it skips to the next record that it can find."""
    place, messages, damaged = 0, list[tuple[int, int]](), False
    while True:
        found = records(data[place:] if place else data, longest)
        messages += [(place + begin, place + end) for begin, end in found.messages]
        if not found.damaged:
            return Records(messages, place + found.end, found.more, damaged)
        damaged = True
        begin = _next_record(data, place + found.end + 1, longest)
        if begin is None:  # the next one may begin in the last bytes
            return Records(messages, max(place + found.end + 1, len(data) - _HEADER.size + 1), 0, damaged)
        place = begin


def _next_record(data: bytes, place: int, longest: int) -> int | None:
    """The start of the first record at or after `place`, found by its length and the length's checksum; None: not found."""
    for at in range(place, len(data) - _HEADER.size + 1):
        length, crc = _HEADER.unpack_from(data, at)
        if length <= longest and crc == masked_crc(data[at : at + 8]):
            return at
    return None


def is_whole(data: bytes, place: int, end: int) -> bool:
    """Whether a message has the checksum that follows it."""
    return bool(_CRC.unpack_from(data, end)[0] == masked_crc(data[place:end]))


def varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    """(number, where the next field begins)."""
    value = shift = 0
    while place < end and shift < 64:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    return value, place


def event(data: bytes, place: int, end: int) -> Event | None:
    """The time, the step and the scalars of a message, whichever library wrote it; None: it has no scalars."""
    wall_s, step, scalars = 0.0, 0, dict[str, float]()
    for number, kind, value, begin, stop in _fields(data, place, end):
        if (number, kind) == (1, _EIGHT_BYTES):
            wall_s = _WALL.unpack_from(data, begin)[0]
        elif (number, kind) == (2, _VARINT):
            step = value
        elif (number, kind) == (5, _LENGTH):
            scalars.update(_summary(data, begin, stop))
    return Event(wall_s, step, scalars) if scalars and step < _NEGATIVE else None


def _summary(data: bytes, place: int, end: int) -> Iterator[tuple[str, float]]:
    for number, kind, _, begin, stop in _fields(data, place, end):
        if (number, kind) != (1, _LENGTH):
            continue
        tag, scalar = "", None
        for field, field_kind, _, at, until in _fields(data, begin, stop):
            if (field, field_kind) == (1, _LENGTH):
                tag = data[at:until].decode("utf-8", "replace")
            elif (field, field_kind) == (2, _FOUR_BYTES):
                scalar = _FLOAT.unpack_from(data, at)[0]
            elif (field, field_kind) == (8, _LENGTH):
                scalar = _tensor(data, at, until)
        if tag and scalar is not None:
            yield tag, scalar


def _tensor(data: bytes, place: int, end: int) -> float | None:
    """The number of a tensor that holds exactly one; None: it holds something else."""
    dtype, scalar = 0, None
    for number, kind, value, begin, stop in _fields(data, place, end):
        if (number, kind) == (1, _VARINT):
            dtype = value
        elif number == 4 and dtype in _TENSORS and stop - begin == struct.calcsize(_TENSORS[dtype]):
            scalar = float(struct.unpack_from(_TENSORS[dtype], data, begin)[0])
        elif number == 5 and stop - begin == _FLOAT.size:  # float_val, packed or not
            scalar = _FLOAT.unpack_from(data, begin)[0]
        elif number == 6 and stop - begin == _WALL.size:
            scalar = _WALL.unpack_from(data, begin)[0]
    return scalar


def _fields(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, type, value of a varint, from, to) of each field of a message, up to the first malformed one."""
    while place < end:
        key, place = varint(data, place, end)
        kind, value, begin = key & 7, 0, place
        if kind == _VARINT:
            value, stop = varint(data, place, end)
        elif kind == _LENGTH:
            length, begin = varint(data, place, end)
            stop = begin + length
        else:
            stop = place + {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind, end)
        if stop > end:
            return
        yield key >> 3, kind, value, begin, stop
        place = stop


@functools.cache
def _table() -> tuple[int, ...]:
    """The CRC-32C (Castagnoli) of every byte value."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


def masked_crc(data: bytes) -> int:
    """The CRC-32C as TFRecord writes it: rotated by 15 bits, and a constant added."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
