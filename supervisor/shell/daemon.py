"""Builds and runs the whole daemon, from the lock of the state directory to the last answer.

The order matters. The lock comes first: a second daemon must not even read the state. Then come the journal, the search for
surviving workers and the first turn. Only then systemd gets READY: by that time survivors are adopted and resumes have
begun. The API's answers and the calendar come last, with their libraries: no training waits for them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import structlog

from supervisor import config, filesystems, image
from supervisor.adapters import last_config, leftovers, next_image, singleton, threads
from supervisor.adapters.copies.kept_copy import KeptCopies
from supervisor.adapters.copies.put_back import put_back
from supervisor.adapters.figures.thread import FigureReader
from supervisor.adapters.foundations import Foundations
from supervisor.adapters.host import boot, clock, known_mount, last_words, starts
from supervisor.adapters.host import reboot_log as alerts
from supervisor.adapters.host.boot import AliveMark, AliveWriter, BootFiles
from supervisor.adapters.host.box_identity import witnesses
from supervisor.adapters.host.gpu_nvml import NvmlGpu
from supervisor.adapters.host.host import LocalHost
from supervisor.adapters.host.logind import HostWatch
from supervisor.adapters.host.systemd import Notifier, passed_fds
from supervisor.adapters.journal.sqlite import Journal, open_or_salvage
from supervisor.adapters.parts import World
from supervisor.adapters.parts import parts as make_parts
from supervisor.adapters.process import cgroups, checkpoints, limits, marks, orphans
from supervisor.adapters.process.cgroups import OwnCgroup
from supervisor.adapters.process.controls import Controls
from supervisor.adapters.process.evidence import LocalEvidence
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.own_scans import OwnCheckpoints
from supervisor.adapters.process.probes import LocalProbes
from supervisor.adapters.process.processes import LocalLauncher, ProgramAdapters, make_dir
from supervisor.api.listener import Listener, listen, refuse_if_alive, take_over
from supervisor.as_user import note_logs
from supervisor.model.commands import AlertClock, AlertReboot
from supervisor.model.fold import replay
from supervisor.model.inputs import Began, BootEvidence, ConfigFaulty, OwnCheckpoint, SupervisionLooked, Terminated, Verb
from supervisor.model.settings import Settings
from supervisor.model.state import State
from supervisor.policy.box import reboot_cause
from supervisor.policy.worker import confinement
from supervisor.policy.worker.loss import furthest
from supervisor.records import Record
from supervisor.shell import exit_codes, foundations, logs
from supervisor.shell.backend import DaemonBackend
from supervisor.shell.inbox import Inbox
from supervisor.shell.loop import Loop
from supervisor.shell.perform import Performer
from supervisor.shell.replies import Replies
from supervisor.shell.sampler import Sampler
from supervisor.shell.service import Service, status_line

if TYPE_CHECKING:
    from supervisor.adapters.housekeeping import Housekeeping
    from supervisor.adapters.lease import DaemonLease
    from supervisor.adapters.main_log import MainLog
    from supervisor.api.server import Server
    from supervisor.api.tcp import TcpPort

log = structlog.get_logger()

_ENV_NAME_FD: Final = "EXTRALIFE_NAME_FD"  # the name that keeps other daemons out (`singleton.py`), likewise
_CONTROL: Final = "control"  # the control socket's name in the service manager's store
_OPEN_S: Final = 120.0  # the most time of one step of a start: a journal of years
_READ_S: Final = 15.0  # for reading checkpoints before the first decision
_GOES_DOWN_S: Final = 15.0  # less than the service manager's watchdog period
_STEP_S: Final = 0.05
_YIELD_S: Final = 0.0001  # how long a thread that makes a page keeps the interpreter from one that heals
_RELOAD_S: Final = 60.0  # from SIGHUP to the end of this image


class Start(Record):
    """How this image was started (arguments, version, interpreter), to start the next one; and where it may print."""

    argv: tuple[str, ...]
    version: str
    executable: str = sys.executable  # `image.pin_release` may replace it
    to_stdout: bool = True
    instead: last_config.Instead | None = None  # used in place of a configuration that could not be used

    @property
    def command(self) -> list[str]:
        """The command line of the next image."""
        return image.again(self.executable, self.argv)


class Reported(Record):
    """Steps and newest checkpoints of attempts, by token."""

    steps: dict[str, int] = field(default_factory=dict)
    ckpt_steps: dict[str, int] = field(default_factory=dict)


class Daemon:
    def __init__(self, loaded: config.Loaded, reload: Callable[[], config.Loaded], start: Start) -> None:
        self._loaded, self._reload, self._start = loaded, reload, start
        self._settings: Settings = loaded.settings
        note_logs(self._settings.log_users)
        self._paths = loaded.settings.paths
        self._notifier = Notifier(os.environ)
        self._service = Service(self._notifier, self._awaits_stop)
        self._signalled = False  # a signal or the host's shutdown ends it, not `extralifectl shutdown`
        self._terminated = False  # SIGTERM or SIGINT was received
        self._tasks = threads.Tasks("signals")
        self._hangup = threads.OneAtATime(lambda: self.backend.ask(Verb.RELOAD, (), "", "SIGHUP", None, _RELOAD_S))
        self._host_watch: HostWatch | None = None
        self._housekeeping: Housekeeping | None = None
        self._tcp: TcpPort | None = None
        self._local: LocalLauncher | None = None

    def run(self) -> int:
        """Serve until the end. Returns the exit status.

        Raises singleton.Taken, SocketTaken or OSError if it cannot start.
        """
        cache = known_mount.cache_dir(os.environ)
        known_mount.refuse_if_missing(self._paths.state_dir, cache)
        # Before anything is created in place of a removed directory.
        witness = singleton.claim(self._paths.state_dir, os.environ.pop(_ENV_NAME_FD, ""))
        make_dir(self._paths.state_dir)
        foundations.make_trusted(self._paths.runtime_dir)
        lock = singleton.hold(self._paths.lock, witness)
        foundations.make_room(self._paths)
        lease = self._lease()
        limits.raise_files()
        sys.setswitchinterval(_YIELD_S)
        main_log = logs.configure(self._paths.main_log, self._settings.daemon, to_stdout=self._start.to_stdout)
        # Like Supervisor: SIGUSR2 reopens the log after another program has rotated it. Without a handler, SIGUSR1 sent by
        # mistake would end the daemon. SIG_IGN does not do, because every worker would inherit it.
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGUSR2, lambda *_: self._tasks.begin("reopen", _reopen, main_log))
        if ended := leftovers.end():
            log.warning("leftovers_ended", processes=ended, why="the daemon that started them has ended")
        listener = self._listener()
        if listener.trouble:
            log.error("control_socket_without_group", why=listener.trouble)
        self._notifier.busy("reads the journal", _OPEN_S)
        mark = boot.read_mark(Path(self._paths.alive))
        seen_seq = 0 if mark is None else mark.seq
        journal, facts, salvage = open_or_salvage(self._paths.journal, wall_s=clock.wall_s(), seen_seq=seen_seq)
        if salvage is not None:
            log.critical("journal_damaged", told=str(salvage))
            self._tell(alerts.journal_line(salvage.fact(), clock.wall_s()))
        if why := known_mount.remember(self._paths.state_dir, cache):
            log.warning("mount_point_not_noted", error=why)
        state, misfits = replay(facts)
        if misfits:
            log.critical("facts_passed_over", count=misfits, why="they do not fit what a damaged journal has kept")
        self._build(journal, state)
        self.foundations.watch(*foundations.rows(self._paths, lock, main_log))
        self.backend.summaries.begin()
        try:
            self._serve(listener)
        finally:
            self._close(journal)
        if self.performer.reexec:
            self._become_next_image(listener, lock)
            return exit_codes.REFUSED
        self._let_host_go()
        if lease is not None:
            lease.release()
        self._notifier.remove_fd(_CONTROL)
        listener.close()
        starts.forget(os.environ)
        lock.release()
        if self.loop.memory.trouble is not None:
            return exit_codes.REFUSED
        kept = self._notifier.has_service_manager or os.environ.get(exit_codes.ENV_KEPT)
        return exit_codes.SHUT_DOWN if kept and not self._signalled else exit_codes.STOPPED

    def _lease(self) -> DaemonLease | None:
        """If several hosts may share the state directory, let only this host run its daemon. Raises Taken or OSError.

        Two containers may mount one network volume. Each of them sees only its own locks.
        """
        if not (self._settings.remote or filesystems.shared(filesystems.kind_of(Path(self._paths.state_dir)))):
            return None
        from supervisor.adapters.lease import DaemonLease

        self._notifier.busy("waits for another host's daemon to be gone", _OPEN_S)
        lease = DaemonLease(self._paths.state_dir, boot.read_boot(BootFiles.of(os.environ)).boot_id)
        lease.take()
        lease.keep(self._lose)
        return lease

    def _lose(self) -> None:
        """Another daemon owns the state directory now: end as if killed, and let no process of this host train on."""
        if self._local is not None:
            self._local.end_all()
        os._exit(exit_codes.REFUSED)

    # --- building ------------------------------------------------------------------------------------------------------

    def _listener(self) -> Listener:
        group = self._settings.daemon.socket_group
        handed_on = os.environ.pop(image.ENV_LISTEN_FD, "")
        kept = int(handed_on) if handed_on.isdigit() else passed_fds(os.environ, os.getpid()).get(_CONTROL)
        if kept is not None:
            if Path(self._paths.socket).is_socket():
                return take_over(kept, self._paths.socket, group)
            os.close(kept)  # no client can find it any more
        return listen(self._paths.socket, group)

    def _build(self, journal: Journal, state: State) -> None:
        settings, paths = self._settings, self._paths
        this_boot = boot.read_boot(BootFiles.of(os.environ))
        mark = boot.read_mark(Path(paths.alive))
        boot_now_s, wall_now_s = clock.moment()
        offset_s = clock.journal_offset(
            mark, same_boot=mark is not None and mark.boot_id == this_boot.boot_id, journal_at_s=state.at_s,
            boot_now_s=boot_now_s, wall_now_s=wall_now_s,
        )  # fmt: skip
        system_clock = clock.SystemClock(offset_s)
        inbox, replies = Inbox(), Replies()
        pool = threads.begun(4, "worker")
        groups = cgroups.Cgroups(
            cgroups.find(settings.cgroups.parent) if settings.cgroups.use else OwnCgroup(None, "cgroups.use is false"),
            lambda name: _limits(loop.settings, name),
        )
        groups.set_up()
        log.info("cgroups", **groups.view())
        come_home = orphans.Orphans()
        if not come_home.adopt():
            log.warning("no_subreaper", consequence="a process in a session of its own outlives a shim that is killed")
        figures = FigureReader(
            paths, system_clock, lambda name: loop.settings.program(name),  # noqa: PLW0108  the settings change
            lambda: loop.settings.programs, lambda: loop.state,
        )  # fmt: skip
        wake = threading.Event()  # set by notifications, awaited by the sampler
        notify_sockets = NotifySockets(paths.notify_socket, wake.set)

        def newest_own(name: str, pids: Iterable[int], progress_at_s: float | None) -> OwnCheckpoint | None:
            spec = loop.settings.program(name)
            return None if spec is None else own.newest(spec, pids, progress_at_s)

        def look(state: State) -> SupervisionLooked:
            tokens = [program.attempt.token for program in state.live.values() if program.attempt is not None]
            return SupervisionLooked(0.0, threads.failing(), launcher.gone(tokens))

        world = World(
            paths, lambda: loop.settings, inbox, system_clock, self._start.version,
            lambda: (loop.state.box.hostname if loop.state.box is not None else "") or socket.gethostname(),
            lambda: backend.sources(), lambda *program: own.shown(*program),  # noqa: PLW0108  it is made below
        )  # fmt: skip
        parts = make_parts(world)
        adapters = next((made for part in parts if (made := part.launches(settings, newest_own, figures)) is not None), None)
        if adapters is None:
            local = self._local = LocalLauncher(
                paths, this_boot.boot_id, inbox, system_clock, groups, come_home, figures.last,
                lambda name, *end: own.last(loop.settings.program(name), *end),
                lambda: frozenset(key for part in parts for key in part.secrets()),
            )  # fmt: skip
            looks = LocalProbes(paths, system_clock, notify_sockets, groups, newest_own, figures)
            adapters = ProgramAdapters(
                paths, local, looks, Controls(paths, system_clock),
                LocalEvidence(paths, local.attempt, inbox, system_clock).take,
            )  # fmt: skip
        launcher, probes = adapters.launcher, adapters.probes
        own = OwnCheckpoints(
            adapters.paths, system_clock, inbox, KeptCopies(), put_back, figures.shown, shared=settings.remote
        )
        gpu = NvmlGpu(
            doing=probes.doing, awaited=lambda: any(each.gpu_lost for each in loop.state.programs.values())
        )  # fmt: skip
        host = LocalHost(paths.state_dir, looks={name: look for part in parts for name, look in part.looks.items()})
        sampler = Sampler(
            probes, system_clock, inbox, settings.daemon.sample_period_s, wake,
            clock_moved=self._clock_moved, gpu=gpu, host=host,
        )  # fmt: skip
        backend = DaemonBackend(
            inbox, replies, system_clock, self._loaded, self._reload, self._start.version,
            {name: show for part in parts for name, show in part.shows.items()},
            {page: act for part in parts for page, act in part.acts.items()}, groups.view, self._next_image,
            self._keep_config,
        )  # fmt: skip
        watched = Foundations(inbox, system_clock, self._restart_fails)
        performer = Performer(
            paths=adapters.paths, launcher=launcher, probes=probes, notify_sockets=notify_sockets,
            controls=adapters.controls, replies=replies, pool=pool, take_evidence=adapters.take_evidence,
            alert=self._alert, foundations=watched, own=own, parts=parts,
        )  # fmt: skip
        loop = Loop(
            settings=settings, state=state, clock=system_clock, boot_id=this_boot.boot_id, journal=journal, inbox=inbox,
            performer=performer, publish=lambda loop: self._publish(backend, loop), watchdog=self._notifier.watchdog,
            pause=_pause, look=look,
            # An idle loop must ping three times per watchdog period. It must also notice within 2 s that it did not run.
            longest_wait_s=min(2.0, (self._notifier.watchdog_period_s or inf) / 3),
        )  # fmt: skip
        reported = _reported_before(mark, state) if mark is not None and mark.boot_id == this_boot.boot_id else Reported()
        alive = AliveWriter(
            Path(paths.alive), lambda: self._mark(this_boot, system_clock, loop, journal.last_seq, reported),
            settings.daemon.alive_period_s, lambda error: log.error("sign_of_life_failed", error=error),
        )  # fmt: skip
        self.boot, self.clock, self.inbox, self.replies, self.notify_sockets = (
            this_boot, system_clock, inbox, replies, notify_sockets,
        )  # fmt: skip
        self.launcher, self.probes, self.figures, self.sampler, self.gpu = launcher, probes, figures, sampler, gpu
        self.host, self.alive, self.backend, self.performer, self.loop = host, alive, backend, performer, loop
        self.pool, self.foundations, self.features = pool, watched, parts

    def _publish(self, backend: DaemonBackend, loop: Loop) -> None:
        if self._tcp is not None and loop.settings is not self._settings:
            self._tcp.want(loop.settings.http)
        if loop.settings is not self._settings:
            note_logs(loop.settings.log_users)
        self._settings = loop.settings
        backend.publish(loop)
        if self._notifier.has_service_manager:
            self._service.after_turn(loop.state, loop.clock.now_s(), loop.memory.end_waits_until_s)

    @staticmethod
    def _mark(
        this_boot: boot.Boot, system_clock: clock.SystemClock, loop: Loop, last_seq: int, reported: Reported
    ) -> AliveMark:
        """The current sign of life. The loop swaps its references as a whole, so this sees the values of a single turn.

        `reported`: the previous daemon's last reports about attempts that still run. They are the newest known values until
        the first sample.
        """
        state, memory = loop.state, loop.memory
        known = {n: (p.steps, reported.steps.get(p.attempt.token)) for n, p in state.live.items() if p.attempt is not None}
        steps = {name: max(s for s in both if s is not None) for name, both in known.items() if both != (None, None)}
        newest = {n: w.sample.steps for n, w in memory.watches.items() if n in state.live and w.sample.steps is not None}
        boot_s, wall_s = clock.moment()
        return AliveMark(
            this_boot.boot_id, this_boot.pid1_ticks, boot_s + system_clock.offset_s, wall_s, boot_s,
            state.level, {**steps, **newest}, last_seq, _foreign_checkpoints(loop, reported.ckpt_steps),
            this_boot.first, this_boot.root,
        )  # fmt: skip

    def _next_image(self) -> list[str]:
        unfinished = next_image.wait_until_written(self._loaded.given.path, os.environ)
        return next_image.mistakes(self._start.command) if unfinished is None else [unfinished]

    def _restart_fails(self) -> list[str]:
        """Why a restart of its own would fail. It takes the last good configuration in place of a bad one, if it can."""
        command, given = self._start.command, self._loaded.given
        found = next_image.mistakes(command)
        if not found or next_image.mistakes(command, fine=(exit_codes.BAD_CONFIG,)):
            return found
        try:
            return found if last_config.in_place(found, given.path, os.environ, given.flags) is None else []
        except config.ConfigError as error:
            return error.errors

    def _keep_config(self, loaded: config.Loaded) -> None:
        """Keep the configuration for a start that finds a bad one. Skips one of another state directory."""
        if replace(loaded.settings.paths, config_file=None) != replace(self._paths, config_file=None):
            return
        error = last_config.keep(self._paths, loaded.given, os.environ, clock.wall_s())
        if error:
            log.error("config_not_kept", error=error)

    def _report_last_good_config(self) -> None:
        """Report that another configuration is in use than the requested one."""
        instead = self._start.instead
        if instead is None:
            return
        log.critical("config_refused", errors=instead.errors, in_use=instead.where)
        self._tell(alerts.config_line(instead.errors, instead.where, clock.wall_s()))
        self.loop.turn(ConfigFaulty(max(self.clock.now_s(), self.loop.state.at_s), instead.errors, instead.where, "start"))

    def _alert(self, command: AlertReboot | AlertClock) -> None:
        if isinstance(command, AlertClock):
            line = alerts.clock_line(command, clock.wall_s())
            log.warning("clock_set", line=line)
        else:
            line = alerts.reboot_line(command, clock.wall_s())
            log.warning("host_rebooted", line=line)
        self._tell(line)

    def _tell(self, line: str) -> None:
        error = alerts.append(Path(self._paths.alert_log), line)
        if error:
            log.error("alert_not_written", error=error)

    # --- running -------------------------------------------------------------------------------------------------------

    def _serve(self, listener: Listener) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        for noted in image.early:
            self._on_signal(noted, None)
        self._notifier.busy("looks for workers that still run", _OPEN_S)
        began = self._first_input()
        self.launcher.start()
        self.loop.turn(began)
        if not self.loop.memory.ended and self.loop.state.daemon_pid != os.getpid():
            raise OSError("the journal cannot be written, and extralife does not start without it; see the main log")
        self._report_last_good_config()
        boot.leave_marker(Path(self._paths.marker), self.boot)
        self.foundations.watch(*foundations.runtime_rows(self._paths, refuse_if_alive))
        self.alive.write()
        self.alive.start()
        self.gpu.start()
        self.host.start()
        self.sampler.start()
        self.foundations.start()
        for part in self.features:
            part.start()
        self._host_watch = HostWatch(self._host_goes_down)
        self._host_watch.start()
        self._notifier.ready(status_line(self.loop.state))
        self._notifier.remove_fd(_CONTROL)  # it holds this socket, and no other, for the next daemon
        self._notifier.store_fd(listener.sock.fileno(), _CONTROL)
        if self._start.instead is None:
            self._keep_config(self._loaded)
        server = self._open(listener)
        try:
            self.loop.run()
        finally:
            if not self.performer.reexec:
                self._service.ends(extend_s=30.0)
            self.replies.abandon()
            server.stop()

    def _open(self, listener: Listener) -> Server:
        """Start the calendar and the API. Clients that connected since the socket exists are answered now."""
        from supervisor.adapters.housekeeping import Housekeeping
        from supervisor.api.server import Server

        housekeeping = Housekeeping(
            lambda: self.loop.settings, self.inbox, self.clock,
            lambda: (work for part in self.features for work in part.calendar()),
        )  # fmt: skip
        housekeeping.start()
        self._housekeeping = housekeeping
        self.foundations.watch(foundations.journal_row(self._paths, lambda: housekeeping.journal_defect))
        server = Server(self.backend, listener, self.clock.now_s, self._settings.daemon.host_names.split())
        server.start()
        self.backend.http = server.tcp.view
        self._tcp = server.tcp
        server.tcp.want(self.loop.settings.http)
        log.info("serving", socket=listener.path, pid=os.getpid(), version=self._start.version)
        return server

    def _clock_moved(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.clock_moved()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Runs in the main thread, which is also the deciding one. The inbox's lock is reentrant for that reason."""
        now_s = self.clock.now_s()
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            # Not here: the check of the next image takes a second, and this thread decides.
            self._tasks.begin("reload", self._hangup)
        else:
            self._signalled = True
            self._terminated = True
            self.inbox.post(Terminated(now_s, by=name))

    def _host_goes_down(self) -> None:
        """Logind has announced the shutdown, and waits for this daemon."""
        self._signalled = True
        log.warning("host_goes_down")
        self.inbox.post(Terminated(self.clock.now_s(), by="the host's shutdown", host=True))

    def _awaits_stop(self) -> bool:
        """Whether the host goes down and SIGTERM is still to come. The service manager does not restart us after it."""
        watch = self._host_watch
        if watch is None or not self._notifier.has_service_manager or self._terminated:
            return False
        return watch.announced and not watch.cancelled.is_set()

    def _let_host_go(self) -> None:
        """All work is saved and recorded: let the host shut down, then wait for the service manager's SIGTERM.

        If the daemon ended before that signal, systemd would start it again, and it would start every training on a box that
        is going down.
        """
        watch = self._host_watch
        if watch is None:
            return
        watch.release()
        waited_s = 0.0
        while self._awaits_stop() and waited_s < _GOES_DOWN_S:
            _pause(_STEP_S)
            waited_s += _STEP_S
        watch.stop()

    def _first_input(self) -> Began:
        """The first input of the deciding thread. It may take a while: leftovers are ended, digests are read."""
        state = self.loop.state
        boot_now_s, wall_now_s = clock.moment()
        evidence = boot.examine(
            self.boot, boot.read_mark(Path(self._paths.alive)), marker=Path(self._paths.marker), clean=state.clean,
            wall_now_s=wall_now_s, boot_now_s=boot_now_s, journal_boot_id=state.boot_id, journal_at_s=state.at_s,
            lives=lambda: next(iter(marks.attempts(self._paths.programs)), None) is not None,
        )  # fmt: skip
        if self._settings.remote:  # a reboot of this host ends no job, and shows nothing about any node
            evidence = replace(evidence, rebooted=None if evidence.rebooted is None else False)
        else:
            evidence = replace(evidence, box=witnesses(BootFiles.of(os.environ)))
        expected = {n: (p.attempt.number, p.attempt.token) for n, p in state.live.items() if p.attempt is not None}
        if evidence.rebooted:
            evidence = _with_cause(evidence, state)
            newest = self._newest_steps(self.pool, list(expected))
            # Of the sign of life, or newer ones that the journal has recorded since.
            recorded = {name: program.ckpt.step for name, program in state.programs.items()}
            seen = {name: max(step, recorded.get(name) or step) for name, step in evidence.ckpt_steps.items()}
            evidence = replace(evidence, ckpt_steps={**seen, **newest})
        survivors = self.launcher.survey(expected, reads=not evidence.rebooted)
        found = self.launcher.unrecorded_workers(spec.name for spec in self._settings.programs)
        known = {token for _, token in expected.values()}
        unrecorded = {name: (number, each) for name, (number, each) in found.items() if each.token not in known}
        for program in (*expected, *unrecorded):
            try:
                self.notify_sockets.bind(program)
            except OSError as error:  # its process state, log and beats are still readable
                log.warning("notify_socket_not_bound", program=program, error=str(error))
        now_s = max(self.clock.now_s(), state.at_s)
        salt = uuid.uuid4().hex
        before = last_config.loaded_before(self._paths, self._loaded.given, os.environ)
        return Began(
            now_s, self._settings, evidence, survivors, os.getpid(), self._start.version, salt, unrecorded,
            None if before is None else before.settings,
            () if before is None else config.differences(before, self._loaded),
        )  # fmt: skip

    def _newest_steps(self, pool: ThreadPoolExecutor, programs: list[str]) -> dict[str, int]:
        """The steps of the newest whole checkpoints, for the reboot alert; without those that take too long to read.

        Every training waits for this: without a limit, 100 GB of checkpoints would outlast the service manager.
        """
        until_s = time.monotonic() + _READ_S

        def newest(name: str) -> checkpoints.CheckpointInfo | None:
            with contextlib.suppress(OSError):
                return checkpoints.newest_good(Path(self._paths.run_dir(name)), until_s)
            return None

        found = pool.map(newest, programs)
        return {name: info.env_steps for name, info in zip(programs, found, strict=True) if info is not None}

    # --- the end ---------------------------------------------------------------------------------------------------------

    def _close(self, journal: Journal) -> None:
        if self._housekeeping is not None:
            self._housekeeping.stop()
        self.foundations.stop()
        self.sampler.stop()
        self.gpu.stop()
        self.host.stop()
        self.alive.stop()
        self.notify_sockets.close()
        self.launcher.close()
        self.figures.stop()
        for part in self.features:
            part.stop()
        self.pool.shutdown(wait=True)
        journal.close()

    def _become_next_image(self, listener: Listener, lock: singleton.Singleton) -> None:
        """Replace this program image: same pid, same control socket, workers untouched. Returns only if that fails."""
        self._notifier.reloading()
        argv = self._start.command
        log.info("reexec", argv=argv)
        os.environ[image.ENV_LISTEN_FD], os.environ[_ENV_NAME_FD] = listener.hand_on(), lock.hand_on()
        sys.stdout.flush()
        limits.restore_files()
        image.begin_again(argv)


def _foreign_checkpoints(loop: Loop, reported: dict[str, int]) -> dict[str, int]:
    """The newest checkpoints of programs that are not built in: after a reboot their beats are gone, their files unknown."""
    found: dict[str, int] = {}
    for name, program in loop.state.live.items():
        spec, attempt = loop.settings.program(name), program.attempt
        if spec is None or spec.builtin or attempt is None:
            continue
        watch = loop.memory.watch(name, attempt.token)
        sample = None if watch is None else watch.sample
        own = None if sample is None or sample.own is None else sample.own.step
        seen = sample.ckpt_step if sample is not None and sample.ckpt_count else own
        newest = furthest(seen, reported.get(attempt.token))
        if newest is not None:
            found[name] = newest
    return found


def _with_cause(evidence: BootEvidence, state: State) -> BootEvidence:
    """Add the box's own traces of its end. It may have gone down in order although the daemon did not, or overheated."""
    traces = last_words.read(
        state.boot_id, evidence.boot_id, own_stop=state.clean, since_wall_s=evidence.last_sign_wall_s,
        boot_wall_s=evidence.boot_wall_s, before_wall_s=state.reboots[-1].wall_s if state.reboots else None,
    )  # fmt: skip
    found = reboot_cause.judge(traces)
    cause = {reboot_cause.ORDERLY: "orderly", reboot_cause.THERMAL: "unclean"}.get(found.kind, evidence.cause)
    if evidence.kind:  # the kernel goes on, so only an order to a system within the container can be told
        orderly = found.kind == reboot_cause.ORDERLY
        return replace(evidence, cause="orderly" if orderly else evidence.cause, last_words=found.words if orderly else ())
    words = tuple(dict.fromkeys((found.why, *found.words))) if found.kind else ()
    return replace(evidence, cause=cause, kind=found.kind, last_words=words)


def _limits(settings: Settings, program: str) -> confinement.Limits:
    """The limits of an attempt that starts now: those of the level and of the program."""
    spec = settings.program(program)
    weight = None if spec is None else spec.cpu_weight
    return confinement.limits(settings.cgroups, memory_mb=settings.level.memory_mb, cpu_weight=weight)


def _reopen(main_log: MainLog) -> None:
    try:
        main_log.reopen()
    except OSError as error:
        log.error("log_not_reopened", error=str(error))  # noqa: TRY400  a full disk needs no traceback


def _pause(seconds: float) -> None:
    signal.sigtimedwait([], seconds)


def _reported_before(mark: AliveMark, state: State) -> Reported:
    """The values in an earlier daemon's sign of life, for attempts that were running when it was written."""
    live = {
        name: program.attempt.token
        for name, program in state.live.items()
        if program.attempt is not None and program.attempt.intended_at_s <= mark.at_s
    }
    return Reported(
        {token: mark.steps[name] for name, token in live.items() if name in mark.steps},
        {token: mark.ckpt_steps[name] for name, token in live.items() if name in mark.ckpt_steps},
    )
