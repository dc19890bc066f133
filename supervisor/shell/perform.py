"""Maps each command to an adapter call. Results come back as inputs; a failing command is logged and never stops the next.

This module makes no decisions. Work that may block (evidence, digests of checkpoints) runs in a small thread pool. All other
work is a few system calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from supervisor.adapters import logs
from supervisor.adapters.foundations import Foundations
from supervisor.adapters.parts import Part
from supervisor.adapters.process import checkpoints
from supervisor.adapters.process.controls import Controls
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.deciding.context import Decision
from supervisor.lack import is_lack
from supervisor.model import commands
from supervisor.model.codes import FAILED, SUCCESS
from supervisor.model.commands import Command
from supervisor.model.inputs import Asked, ConfigLoaded, Input
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.placeholders import for_attempt
from supervisor.policy.upkeep.alarm import Notice
from supervisor.ports import Launcher, Probes
from supervisor.shell.foundations import attempt_rows
from supervisor.shell.replies import Replies
from workers import contract

log = structlog.get_logger()


@dataclass(slots=True)
class Performer:
    paths: Paths
    launcher: Launcher
    probes: Probes
    notify_sockets: NotifySockets
    controls: Controls
    replies: Replies
    pool: Executor
    take_evidence: Callable[[str, str], None]  # (program, token); posts EvidenceTaken
    alert: Callable[[commands.AlertReboot | commands.AlertClock], None]
    foundations: Foundations
    own: OwnCheckpoints
    parts: Sequence[Part]  # of the features
    reexec: bool = field(default=False)
    again: tuple[Command, ...] = ()  # commands that a lack of descriptors, memory or threads has stopped

    def perform(self, decision: Decision) -> None:
        """Perform all commands of one decision, in order, after those that could not be performed before."""
        waiting, self.again = (*self.again, *decision.commands), ()
        for command in waiting:
            try:
                self._one(command)
            except Exception as error:
                if is_lack(error):
                    log.warning("command_waits", command=type(command).__name__, error=str(error))
                    self.again = (*self.again, command)
                elif isinstance(error, OSError):  # a full or read-only directory needs no traceback
                    log.error("command_failed", command=type(command).__name__, error=str(error))  # noqa: TRY400
                else:
                    log.exception("command_failed", command=type(command).__name__)

    def refuse(self, item: Input, text: str) -> None:
        """Answer the request of a dropped input with the reason."""
        if isinstance(item, Asked):
            self.replies.answer(item.request_id, tuple((name, FAILED, text) for name in item.names or ("supervisord",)))
        elif isinstance(item, ConfigLoaded):
            self.replies.answer(item.request_id, (("", FAILED, text),))

    def alarm(self, notice: Notice, ago_s: float | None = None) -> bool:
        """Send an alert although nothing can be recorded; false: the last one, so long ago, was too recent."""
        due = True
        for part in self.parts:
            try:
                due = part.alarm(notice, ago_s) and due
            except Exception:
                log.exception("alarm_failed", alert=notice.kind)
        return due

    def _one(self, command: Command) -> None:  # noqa: C901, PLR0912  one line a command
        match command:
            case commands.Spawn():
                self._spawn(command)
            case commands.Adopt(spec=spec, attempt=attempt, survivor=survivor):
                self.controls.begin(survivor.token, attempt)
                self.probes.watch(spec, attempt, survivor.token, survivor.pid or 0, adopted=True)
                self.launcher.adopt(spec.name, attempt, survivor)  # it makes a run directory that is gone again
                self.foundations.watch(
                    *attempt_rows(self.paths, self.probes, spec, attempt, survivor.token), program=spec.name
                )
            case commands.Watch(spec=spec, attempt=attempt, token=token, pid=pid):
                self.probes.watch(spec, attempt, token, pid)
                self.foundations.watch(*attempt_rows(self.paths, self.probes, spec, attempt, token), program=spec.name)
            case commands.Forget(program=program, token=token):
                self.probes.forget(program, token)
                self.foundations.forget(program)
                self.controls.end(program, token)
            case commands.SetControl():
                self.controls.write(command)
            case commands.TellEnd():
                self.controls.tell_end(command)
            case commands.SendSignal(programs=programs, signal=signal, request_id=request_id, known=known):
                failed = {name: self.launcher.signal(name, token, signal) for name, token in programs}
                done = ((name, FAILED if why else SUCCESS, why or "signalled") for name, why in failed.items())
                self.replies.answer(request_id, (*known, *done))
            case commands.ContinueChild(program=program, token=token, pid=pid, start_ticks=start_ticks):
                self.launcher.continue_child(program, token, pid, start_ticks)
            case commands.AskToLeave(program=program, token=token):
                self.launcher.ask_to_leave(program, token)
            case commands.KillTree(program=program, token=token):
                self.launcher.kill_tree(program, token)
            case commands.ReportEnd(program=program, attempt=attempt, token=token):
                self.launcher.report_end(program, attempt, token)
            case commands.TakeEvidence(program=program, token=token):
                self.take_evidence(program, token)
            case commands.QuarantineCheckpoint(program=program, step=step):
                # Not in the pool: the next attempt starts in this same turn and must not find this checkpoint again.
                checkpoints.quarantine(Path(self.paths.run_dir(program)), step)
            case commands.SetAside(spec=spec, paths=paths):
                self.own.set_aside(spec, paths)
            case commands.RollBack(program=program, from_step=from_step):
                checkpoints.roll_back(Path(self.paths.run_dir(program)), from_step)
            case commands.AlertReboot() | commands.AlertClock():
                self.pool.submit(self.alert, command)
            case commands.Reply(request_id=request_id, results=results):
                self.replies.answer(request_id, results)
            case commands.ClearLogs():
                self.pool.submit(self._clear, command)
            case commands.EndDaemon(reexec=reexec):
                self.reexec = reexec
            case _:
                next(part.performs for part in self.parts if type(command) in part.performs)[type(command)](command)

    def _spawn(self, command: commands.Spawn) -> None:
        """An obstacle to a start is reported as a failed start, which is then retried."""
        name, attempt, token = command.spec.name, command.attempt, command.token
        why = self.launcher.no_room()
        try:
            if why is None:
                self.controls.begin(token, attempt)
                self.notify_sockets.bind(name)
                self.notify_sockets.expect(name, token)
                if command.spec.checkpoint_glob:
                    begin, refuse = partial(self._begin_with, command), partial(self.launcher.refuse, name, token)
                    self.own.before_start(command, begin, refuse)
                else:
                    self.launcher.spawn(_of_this_attempt(command), attempt, token)
        except (OSError, RuntimeError, MemoryError) as error:  # RuntimeError: no thread could be started
            why = str(error) or type(error).__name__
        if why is not None:
            self.launcher.refuse(name, token, why)

    def _begin_with(self, command: commands.Spawn, checkpoint: str | None) -> None:
        """Runs in a separate thread, after the check of the program's own checkpoints."""
        spec = _of_this_attempt(command, checkpoint)
        try:
            self.launcher.spawn(spec, command.attempt, command.token)
        except (OSError, RuntimeError, MemoryError) as error:
            self.launcher.refuse(spec.name, command.token, str(error) or type(error).__name__)

    def _clear(self, command: commands.ClearLogs) -> None:
        done = []
        for name, places in command.programs:
            try:
                for place in places:
                    logs.clear(Path(place))
            except OSError as error:
                done.append((name, FAILED, f"cannot clear its log: {error.strerror or error}"))
            else:
                done.append((name, SUCCESS, "cleared"))
        self.replies.answer(command.request_id, (*command.known, *done))


def _of_this_attempt(command: commands.Spawn, resume: str | None = None) -> ProgramSpec:
    """The spec of one attempt. Differences from the configuration go to its environment (docs/contract.md) or command."""
    spec = command.spec
    more = {contract.ENV_ROLLBACKS: str(command.rollbacks)} if command.rollbacks else {}
    if command.batch_size is not None:
        more[contract.ENV_BATCH_SIZE] = str(command.batch_size)
    if command.when_no_gpu:
        more[contract.ENV_WHEN_NO_GPU] = command.when_no_gpu
    if spec.template is not None:
        template = for_attempt(spec.template, batch_size=command.batch_size, rollbacks=command.rollbacks, resume=resume)
        spec = replace(spec, template=template)
    elif resume is not None:
        more[contract.ENV_RESUME] = resume
    return replace(spec, env=(*spec.env, *more.items())) if more else spec
