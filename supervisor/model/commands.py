"""Commands: the actions that `decide` requests. Values only; `shell/perform.py` executes them and posts the outcomes."""

from __future__ import annotations

from supervisor.model.facts import HostRebooted
from supervisor.model.inputs import Survivor
from supervisor.model.settings import ProgramSpec
from supervisor.policy.worker.loss import Loss
from supervisor.records import Record


class Command(Record):
    """Base of all commands."""


class Spawn(Command):
    """Start one attempt under a shim. Outcome: SpawnSucceeded or SpawnBroke; later Ended.

    `batch_size` is the largest batch allowed (None: as configured). `rollbacks` selects the random seed. `when_no_gpu`:
    what the worker does if it finds no GPU (`policy/box/lost_gpu.py`); empty: nothing is said.
    If the program writes its own checkpoints, those in `aside` and those from step `from_step` on are set aside first, and
    those in `back` are put back. Files of an unknown format that were written after `doubt_from_wall_s` may be cut.
    Outcome: CheckpointsFound, before the others.
    """

    spec: ProgramSpec
    attempt: int
    token: str
    batch_size: int | None = None
    rollbacks: int = 0
    when_no_gpu: str = ""
    aside: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    from_step: int | None = None
    doubt_from_wall_s: float | None = None


class SetAside(Command):
    """Set aside these checkpoints of a running program."""

    spec: ProgramSpec
    paths: tuple[str, ...]


class Adopt(Command):
    """Watch an attempt that an earlier daemon had started."""

    spec: ProgramSpec
    attempt: int
    survivor: Survivor


class Watch(Command):
    """Start to sample an attempt."""

    spec: ProgramSpec
    attempt: int
    token: str
    pid: int
    start_ticks: int


class Forget(Command):
    """Stop to sample an attempt: it is over."""

    program: str
    token: str


class SendSignal(Command):
    """Send a signal to workers themselves through their pidfds, then answer the request with `known` and the results."""

    programs: tuple[tuple[str, str], ...]  # (name, token)
    signal: str
    request_id: int = 0  # 0: nobody asked
    known: tuple[tuple[str, int, str], ...] = ()


class ContinueChild(Command):
    """Send SIGCONT to one process of an attempt's tree, identified by its pid and start ticks."""

    program: str
    token: str
    pid: int
    start_ticks: int


class AskToLeave(Command):
    """Ask the whole tree of an attempt to save and leave: SIGCONT, and one SIGTERM for each process that handles it."""

    program: str
    token: str


class KillTree(Command):
    """Send SIGKILL to the whole tree of an attempt. Outcome: Ended."""

    program: str
    token: str


class ReportEnd(Command):
    """Report the end of an attempt whose process is gone, although no thread has reported it. Outcome: Ended."""

    program: str
    attempt: int
    token: str


class TakeEvidence(Command):
    """Examine a stalled worker before any other action. Outcome: EvidenceTaken (bounded time)."""

    program: str
    token: str


class SetControl(Command):
    """Write the attempt's control record. None leaves a field as unknown. `leave_by_s` is journal time."""

    program: str
    token: str
    interval_s: float | None
    offset_s: float
    save_now: int
    leave_by_s: float | None = None


class TellEnd(Command):
    """Write when and why the box ends into the file that an attempt's EXTRALIFE_LEAVE_BY names; `why` empty: remove it.

    `until_wall_s` None: the time is unknown.
    """

    program: str
    token: str
    until_wall_s: float | None
    why: str


class QuarantineCheckpoint(Command):
    """Rename a worker's checkpoint of this step to `.bad`, so that the next attempt resumes from the previous one."""

    program: str
    step: int


class RollBack(Command):
    """Rename the checkpoints from `from_step` on to `.bad`, except the last whole one, so that an older one is used."""

    program: str
    from_step: int


class AlertReboot(Command):
    """Append one line to reboot_alerts.log."""

    reboot: HostRebooted
    number: int
    losses: dict[str, Loss]
    resuming: tuple[str, ...]
    pattern: str = ""  # clause about the pattern of the reboots on record


class AlertClock(Command):
    """Append one line to reboot_alerts.log: the real time of the reboot of that number, now that the clock is set."""

    number: int
    reboot_wall_s: float
    down_s: float | None


class Reply(Command):
    """Answer an operator's request: one (name, code, text) per program. Codes are Supervisor's faults; 80 is success."""

    request_id: int
    results: tuple[tuple[str, int, str], ...]


class ClearLogs(Command):
    """Empty the logs of these programs, then answer the request with `known` and the result for each program."""

    request_id: int
    programs: tuple[tuple[str, tuple[str, ...]], ...]  # (name, paths of its logs)
    known: tuple[tuple[str, int, str], ...] = ()


class EndDaemon(Command):
    """Leave the loop. `reexec`: replace this process image; the workers keep running."""

    reexec: bool


def orphan_spec(name: str) -> ProgramSpec:
    """A minimal spec for a program that left the config while it ran: enough to end it."""
    return ProgramSpec(name=name, argv=(), digest="")
