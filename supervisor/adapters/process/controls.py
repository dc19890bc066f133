"""The daemon's side of the control records: one small mapped file per attempt, on tmpfs."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.files import create
from supervisor.model.commands import SetControl, TellEnd
from supervisor.model.settings import Paths
from supervisor.ports import Clock
from workers.contract import UNKNOWN, Control, leave_by_text
from workers.daemon_side import ControlWriter


class Controls:
    """Writes control records; knows which attempt number a token belongs to."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths, self._clock = paths, clock
        self._attempts: dict[str, int] = {}
        self._writers: dict[str, ControlWriter] = {}

    def begin(self, token: str, attempt: int) -> None:
        """Record the number of an attempt that was started or adopted."""
        self._attempts[token] = attempt

    def write(self, command: SetControl) -> None:
        """Raises OSError when the runtime directory cannot be written."""
        attempt = self._attempts.get(command.token)
        if attempt is None:
            return
        control = Control(
            token=command.token, interval_ms=UNKNOWN if command.interval_s is None else int(command.interval_s * 1e3),
            offset_ms=int(command.offset_s * 1e3), save_now=command.save_now,
            leave_by_ns=UNKNOWN if command.leave_by_s is None else self._clock.to_boot_ns(command.leave_by_s),
        )  # fmt: skip
        path = Path(self._paths.control(command.program, attempt))
        try:
            if command.token not in self._writers:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._writers[command.token] = ControlWriter(path)
            self._writers[command.token].write(control)
        except OSError:
            self._close(command.token)
            path.unlink(missing_ok=True)
            raise

    def _close(self, token: str) -> None:
        if (writer := self._writers.pop(token, None)) is not None:
            writer.close()

    def tell_end(self, command: TellEnd) -> None:
        """Write or remove the file that says when this box will be shut down. Raises OSError."""
        attempt = self._attempts.get(command.token)
        if attempt is None:
            return
        path = Path(self._paths.leave_by(command.program, attempt))
        if not command.why:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.new")
        with os.fdopen(create(aside, 0o644), "w", encoding="utf-8") as file:
            file.write(leave_by_text(command.until_wall_s, command.why))
        aside.replace(path)  # a script never reads half of it

    def end(self, program: str, token: str) -> None:
        """Remove the records on tmpfs of an attempt that is over."""
        self._close(token)
        attempt = self._attempts.pop(token, None)
        if attempt is not None:
            for path_of in (self._paths.control, self._paths.beat, self._paths.leave_by):
                Path(path_of(program, attempt)).unlink(missing_ok=True)
