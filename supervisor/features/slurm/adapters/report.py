"""The files between the daemon and a job's node (`node.py`): the node's last report about its attempt, and the controls."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import Any, Final, get_args, get_type_hints

from supervisor.adapters.durable import json_of
from supervisor.adapters.process.controls import Controls
from supervisor.files import read_bounded
from supervisor.model.commands import SetControl
from supervisor.model.settings import Paths
from supervisor.records import Record
from workers import contract

_MOST_BYTES: Final = contract.RECORD_BYTES + 64 * 1024
_SUM: Final = 8  # hex digits
_CLOCKS_S: Final = 5.0  # allowed difference of a node's clock and the file server's: `doctor` warns above it
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")  # 100 on every current Linux, so also on each host of a cluster


class NodeReport(Record):
    """`at_ns` is the node's CLOCK_BOOTTIME at the moment of writing, `wall_s` its wall clock at the same moment."""

    token: str
    job: str
    restart: int
    node: str
    asked: str
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    stdout_from: int
    stderr_from: int
    at_ns: int
    wall_s: float
    state: str | None = None
    cpu_s: float | None = None
    io_bytes: int | None = None

    @property
    def since_wall_s(self) -> float:
        """When its worker began, at the earliest, by the file server's wall clock."""
        return self.wall_s - (self.at_ns / 1e9 - self.start_ticks / _TICKS_PER_S) - 1.0 / _TICKS_PER_S - _CLOCKS_S

    @property
    def logs_from(self) -> tuple[int, int]:
        return self.stdout_from, self.stderr_from


_KINDS: Final = {name: get_args(kind) or (kind,) for name, kind in get_type_hints(NodeReport).items()}


def read(paths: Paths, program: str, attempt: int, token: str) -> NodeReport | None:
    """The newest complete report of this attempt. None if there is none, or if it is being written at the moment."""
    found = of_file(paths.beat(program, attempt))
    return found if found is not None and found.token == token else None


def of_file(path: str) -> NodeReport | None:
    """The report in a file, for any attempt."""
    data = read_bounded(path, _MOST_BYTES)[contract.RECORD_BYTES :]
    text = data[_SUM + 1 :].rstrip(b"\n")
    try:
        if int(data[:_SUM], 16) != zlib.crc32(text):
            return None
        body: Any = json_of(text)
    except ValueError:
        return None
    if not isinstance(body, dict) or any(type(body.get(name)) not in kinds for name, kinds in _KINDS.items()):
        return None
    known: dict[str, Any] = {name: body.get(name) for name in _KINDS}
    return NodeReport(**known)


class SlurmControls(Controls):
    """Control records of jobs, on the shared file system. Each node copies its own from there.

    Closes each record after every write, because other hosts see the new content only then. `leave_by_s` is a stamp of this
    host's clock and has no meaning on another host, so it is not written: a signal asks a job to leave.
    """

    def write(self, command: SetControl) -> None:
        """Raises OSError when the shared file system cannot be written."""
        super().write(replace(command, leave_by_s=None))
        self._close(command.token)
