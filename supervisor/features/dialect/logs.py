"""supervisor.* methods that read logs. Offsets count bytes. Bytes that are not UTF-8 are replaced and cause no error.

One call reads at most one MiB, counted from the caller's offset.
"""

from __future__ import annotations

from typing import Final

from supervisor.api import logfiles
from supervisor.features.dialect.calls import Call, Table, method, one
from supervisor.features.dialect.wire import Fault
from supervisor.model import codes

TABLE: Final[Table] = {}


@method(
    TABLE, "supervisor.readLog", "supervisor.readMainLog",
    offset="offset to start reading from", length="number of bytes to read", result="bytes of log",
)  # fmt: skip
async def read_log(call: Call, offset: int, length: int) -> str:
    """Read from the daemon's own log. A negative offset with length 0 reads the last bytes; length 0 reads to the end."""
    return await _read(call, call.snapshot().daemon["main_log"], offset, length)


@method(TABLE, "supervisor.clearLog", result="never: FAILED")
async def clear_log(call: Call) -> bool:
    """Refused: the daemon's own log is rotated, and not to be emptied by a client."""
    call.changing()
    raise Fault(codes.FAILED, "extralife keeps its own log and rotates it ([daemon] log_max_bytes, log_backups)")


def _enter(channel: str, *, older: bool = False) -> None:
    """Add the two methods that read one log of a program. `older`: also under older names, which do not name the log."""
    log = f"Process{channel.capitalize()}Log"
    program, begin = "the program (or 'group:name')", "offset to start reading from"

    @method(
        TABLE, f"supervisor.read{log}", *["supervisor.readProcessLog"] * older,
        text=f"Read from a program's {channel} log. A negative offset with length 0 reads the last bytes.",
        name=program, offset=begin, length="number of bytes to read; 0: to the end", result="bytes of log",
    )  # fmt: skip
    async def read(call: Call, name: str, offset: int, length: int) -> str:
        return await _read(call, one(name, call.snapshot())[f"{channel}_log"], offset, length)

    @method(
        TABLE, f"supervisor.tail{log}", *["supervisor.tailProcessLog"] * older,
        text=f"Follow a program's {channel} log: what begins at `offset`, or its last `length` bytes if it has grown beyond "
        "that.",
        name=program, offset=begin, length="maximum number of bytes to return",
        result="[string bytes, int size of the log, bool overflow]",
    )  # fmt: skip
    async def tail(call: Call, name: str, offset: int, length: int) -> list[object]:
        path = one(name, call.snapshot())[f"{channel}_log"]
        if path is None:
            return ["", 0, False]
        try:
            data, size = await call.read(logfiles.read_part, path, lambda size: window(size, offset, length)[:2])
        except FileNotFoundError:
            return ["", 0, False]
        except OSError:
            return ["", offset, False]
        return [str(data, "utf-8", "replace"), size, window(size, offset, length)[2]]


_enter("stdout", older=True)
_enter("stderr")


async def _read(call: Call, path: str | None, offset: int, length: int) -> str:
    if length < 0 or (offset < 0 and length):
        raise Fault(codes.BAD_ARGUMENTS)

    def part(size: int) -> tuple[int, int]:
        if offset < 0:
            begin = max(0, size - min(-offset, logfiles.MOST_BYTES))
            return begin, size - begin
        return offset, length or max(0, size - offset)

    if path is None:
        raise Fault(codes.NO_FILE)
    try:
        data, _ = await call.read(logfiles.read_part, path, part)
    except FileNotFoundError:
        raise Fault(codes.NO_FILE, path) from None
    except OSError as error:
        raise Fault(codes.FAILED, f"cannot read the log: {error}") from None
    return str(data, "utf-8", "replace")


def window(size: int, offset: int, length: int) -> tuple[int, int, bool]:
    """(begin, length, overflow) as Supervisor's `tailFile` computes them.

    Example, (offset, length) in a log of 100 bytes: (90, 20) gives its last 20 bytes and no overflow, (0, 20) its last 20
    bytes and an overflow, (100, 20) nothing, because the caller has read everything.
    """
    overflow = size > offset + length
    if overflow:
        offset = size - 1
    if offset + length > size:
        if offset > size - 1:
            length = 0
        offset = size - length
    return max(0, offset), max(0, length), overflow
