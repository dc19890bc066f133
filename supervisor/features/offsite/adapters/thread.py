"""The thread that makes copies off the box. It has a low priority of its own, and so has restic (`restic.py`).

An urgent command (the operator, a reboot, a notice of the end) ends the running one, which starts again later.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.copies.store import BackupError
from supervisor.adapters.copies.thread import CopyThread, Task
from supervisor.adapters.process.own_checkpoints import ShownBy, places_of
from supervisor.features.offsite.adapters import code, hardware, staging
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import COPY_TAG, Restic, ResticError
from supervisor.features.offsite.adapters.restoring import origin
from supervisor.features.offsite.messages import (
    Claim,
    Lease,
    LeaseFound,
    OffsiteCopy,
    OffsiteDone,
    OffsiteTakeOver,
    OffsiteTend,
)
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.settings import Paths, Settings
from supervisor.policy.upkeep.copies import DONE
from supervisor.ports import Clock, Inbox

log = structlog.get_logger()

OffsiteCommand = OffsiteCopy | OffsiteTakeOver | OffsiteTend
_NICE: Final = 10


class Offsite(CopyThread[OffsiteCommand]):
    """Carries out the commands of `decide.py`."""

    def __init__(
        self, paths: Paths, settings: Callable[[], Settings], inbox: Inbox, clock: Clock, version: str,
        box: Callable[[], str] = socket.gethostname, shown: ShownBy = lambda *_: None,
    ) -> None:  # fmt: skip
        """`box` returns this box's display name."""
        super().__init__("offsite", inbox)
        self._paths, self._settings, self._clock = paths, settings, clock
        self._version, self._box, self._shown = version, box, shown
        self._dir = Path(paths.offsite)

    def perform(self, command: OffsiteCommand) -> None:
        if isinstance(command, OffsiteCopy) and command.urgent:
            self.interrupt()
        super().perform(command)

    def _outcome(self, command: OffsiteCommand, task: Task) -> OffsiteDone:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        began_s, operation, read_percent = time.monotonic(), _operation_of(command), None
        restic = Restic(self._settings().of(OffsiteSettings), self._dir / "cache", over=task.over, at_terminal=False)
        cause = command.cause if isinstance(command, OffsiteCopy) else ""
        due_wall_s = command.due_wall_s if isinstance(command, OffsiteTend) else None
        try:
            match command:
                case OffsiteCopy():
                    restic.deadline_s = began_s + command.limit_s
                    return self._copy(command, restic, task)
                case OffsiteTakeOver():
                    self._post_lease(*leases.take_over(restic, self._dir, self._box(), self._clock.wall_s()))
                case OffsiteTend(what="forget"):
                    restic.forget(spec.name for spec in self._settings().programs)
                case _:
                    read_percent = restic.check()
            return OffsiteDone(self._clock.now_s(), operation, due_wall_s=due_wall_s, read_percent=read_percent)
        except (ResticError, BackupError) as error:
            message = str(error)
        except (OSError, sqlite3.Error) as error:
            message = f"the files could not be collected: {error}"
        except Exception as error:
            log.exception("offsite_failed", command=type(command).__name__)
            message = f"it stopped at a bug ({type(error).__name__}); see the daemon's log"
        log.warning("offsite_failed", what=operation, error=message)
        missing = self._missing() if operation == "look" else None
        return OffsiteDone(self._clock.now_s(), operation, cause, message, due_wall_s=due_wall_s, missing=missing)

    def _post_lease(self, claim: Claim, lease: Lease) -> Claim:
        self._inbox.post(LeaseFound(self._clock.now_s(), claim, lease, origin(self._dir), self._missing()))
        return claim

    def _missing(self) -> dict[str, str]:
        return {} if origin(self._dir) is None else code.missing(self._settings(), self._paths)

    def _copy(self, command: OffsiteCopy, restic: Restic, task: Task) -> OffsiteDone:
        began_s, now_s, wall_s = time.monotonic(), self._clock.now_s(), self._clock.wall_s()
        operation = _operation_of(command)
        known = Lease(command.token, command.generation, self._box(), place=command.place) if command.token else None
        snapshots = restic.snapshots()
        claim, lease = leases.claim(restic, self._dir, known, self._box(), wall_s, snapshots, command.moved_with)
        self._post_lease(claim, lease)
        if claim is not Claim.HELD or command.look_only:
            message = "" if claim is Claim.HELD else foreign(lease)
            return OffsiteDone(self._clock.now_s(), operation, command.cause, message)
        about = {
            "box": self._box(), "generation": lease.generation, "token": lease.token, "extralife": self._version,
            "state_dir": self._paths.state_dir, "config_file": self._paths.config_file, "cause": command.cause,
            "hardware": hardware.here(), "at_s": now_s,
        }  # fmt: skip
        try:
            found = staging.collect(
                self._paths, command.programs, about, wall_s=wall_s,
                with_replay=self._settings().of(OffsiteSettings).with_replay, task=task,
                places=places_of(self._settings(), self._paths, command.programs, self._shown),
                also=self._settings().of(OffsiteSettings).also,
            )  # fmt: skip
            number = 1 + max((each.number for each in snapshots), default=0)
            steps = (f"step={name}:{'' if step is None else step}" for name, step in sorted(found.steps.items()))
            then = (f"then={command.then}", *hardware.instance_tags())
            tags = (COPY_TAG, f"generation={lease.generation}", f"number={number}", f"cause={command.cause}", *then, *steps)
            summary, unread = restic.copy(found.directory, host=self._box(), tags=tags)
            missed = {**found.missed, **staging.lacking(unread)}
            if command.cause == DONE:
                restic.check(0)
        finally:
            staging.clear(self._paths)
        return OffsiteDone(
            self._clock.now_s(), operation, command.cause, "", str(summary["snapshot_id"])[:8], now_s, wall_s, found.steps,
            int(summary.get("total_bytes_processed", 0)), int(summary.get("data_added", 0)), time.monotonic() - began_s,
            missed, then=command.then,
        )  # fmt: skip


def foreign(lease: Lease) -> str:
    """The message that says why nothing is copied into another box's repository."""
    return (
        f"the repository belongs to box {lease.box}, and this box never held it; name another repository, or "
        f"`extralifectl offsite take-over`"
    )


def _operation_of(command: OffsiteCommand) -> str:
    match command:
        case OffsiteCopy(look_only=look_only):
            return "look" if look_only else "copy"
        case OffsiteTakeOver():
            return "take-over"
        case _:
            return command.what
