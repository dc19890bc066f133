"""The local launcher: starts attempts under shims, watches them, ends their trees, and finds them again.

The deciding thread calls this module. Every call that may touch a disk or wait for a process runs in its own thread, so that
a hung directory delays one program and never the daemon. One watcher thread waits on the shims' pidfds.

The state of an attempt is in four places, from the most to the least volatile: this object; the shim's record on tmpfs; the
lock and the fence in the run directory; the attempt's directory. After a daemon's death `survey` derives the state from
them. If they are not enough, it takes the run directory's lock, which decides: the holder of the lock is alive, and an
attempt whose directory was closed under the lock can never start late.

A pid file and kill(2) would be simpler and wrong: pids are reused, and files outlive boots.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final

import structlog

from supervisor import as_user, files, lack, trust, users
from supervisor.adapters import durable, procfs
from supervisor.adapters.figures.thread import began_wall_s
from supervisor.adapters.process import cgroups, checkpoints, endings, limits, marks, orphans, trees
from supervisor.adapters.process.controls import Controls
from supervisor.adapters.process.shim_code import ShimCode
from supervisor.adapters.threads import Lasting, Tasks, Thread, worker_ended
from supervisor.model.inputs import Ended, Ending, OwnCheckpoint, SpawnBroke, SpawnSucceeded, Survival, Survivor
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script import placeholders
from supervisor.policy.script.figures import Figures
from supervisor.policy.script.placeholders import RESUME
from supervisor.policy.worker.inherited import is_inherited
from supervisor.ports import Clock, Inbox, Launcher, Probes
from supervisor.records import Record
from workers import contract
from workers.exit_record import ExitRecord

log = structlog.get_logger()

KEPT_ATTEMPTS: Final = 20
_SHIM_PATIENCE_S: Final = 1.0  # after that its cgroup is killed as a whole
_KILL_PATIENCE_S: Final = 2.0  # a shim needs milliseconds to end its tree; one that is stopped or stuck gets no more
_MOST_PATIENCE_S: Final = 30.0
_START_PATIENCE_S: Final = 4.0  # a daemon that starts goes on after 1 + 2 + 4 s
_LOCK_WAIT_S: Final = 5.0  # a predecessor that is just ending needs milliseconds; a running one keeps the lock
_HOLDER_PATIENCE_S: Final = 8.0  # more than a shim waits for the lock
_POLL_S: Final = 0.02
_READ_S: Final = 15.0  # at a start, for the output of attempts that have ended: every training waits for it
_REAP_PERIOD_S: Final = 10.0
_STARTS_AT_ONCE: Final = 16
_HUNG_START_S: Final = 5.0
_CLOSE_S: Final = 5.0
_DAEMON_DECIDES_S: Final = 1e8  # years: what a worker leaves behind after a success code works on until the daemon asks
_ATTEMPT_DIR: Final = re.compile(r"([0-9]{1,18})-", re.ASCII)
# For workers that are Python, unless the program's own environment says otherwise: a printed line is in the log at
# once (also the last one before a SIGKILL, and the one that counts as a sign of progress), and a segfault leaves a stack.
_PYTHON_DEFAULTS: Final = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


class RunningAttempt(Record):
    """One attempt that runs, as its shim recorded it: the fields of the shim record."""

    boot_id: str
    program: str
    attempt: int
    token: str
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    stdout_from: int = 0  # sizes of the logs when it began: the bytes before are of earlier attempts
    stderr_from: int = 0
    cgroup: str = ""  # path of its cgroup; empty: none

    @property
    def logs_from(self) -> tuple[int, int]:
        return self.stdout_from, self.stderr_from


@dataclass(slots=True)
class _Live:
    """The launcher's state of one attempt. `attempt` is None until its worker runs."""

    program: str
    number: int
    token: str
    shim_fd: int
    shim: subprocess.Popen[bytes] | None = None  # None: started by an earlier daemon
    attempt: RunningAttempt | None = None
    ending: bool = False  # a task reports its end
    lock_fd: int = -1  # for a run directory that was created again: the shim's lock is on the old one


def make_dir(path: str | Path) -> None:
    """Create a directory that only our user can read, with its parents."""
    path = Path(path)
    if path.is_dir():
        return
    make_dir(path.parent)
    try:
        path.mkdir(mode=0o700, exist_ok=True)  # another start may have created it just now
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def _make_room(paths: Paths, program: str) -> str:
    """Put aside what is in the way of the program's run directory and of extralife's files in it. Returns its path."""
    run_dir = paths.run_dir(program)
    for directory in (paths.programs, run_dir, str(Path(paths.attempt_dir(program, 0, "")).parent)):
        files.make_room(directory, files.DIRECTORY, follow=True)
    logs = (paths.log(program, channel) for channel in ("stdout", "stderr"))
    ours = (contract.LOCK_FILE, contract.FENCE_FILE, f"{contract.FENCE_FILE}.tmp")
    for file in (*logs, *(f"{run_dir}/{name}" for name in ours)):
        files.make_room(file)
    return run_dir


def _make_room_for_logs(paths: Paths, spec: ProgramSpec) -> None:
    """Put aside a log that an earlier release wrote as root, where now the program's user opens it."""
    for place in {paths.log_of(spec, each) for each in ("stdout", "stderr")} - {None}:
        assert place is not None  # noqa: S101  for the type checker
        if as_user.log_user(place, spec.user):
            with as_user.acting_as(spec.user), contextlib.suppress(OSError):  # the shim reports it
                if Path(place).lstat().st_uid == 0 and not os.access(place, os.W_OK, effective_ids=True):
                    files.put_away(place)


def inherited(keys_of_copies: frozenset[str] = frozenset()) -> dict[str, str]:
    """What a program gets of the daemon's environment (`policy/worker/inherited.py`), without systemd's variables.

    It is decoded as UTF-8 with surrogates whatever the daemon's locale, because the shim encodes it so: no byte changes.
    """
    env = {k.decode("utf-8", "surrogateescape"): v.decode("utf-8", "surrogateescape") for k, v in os.environb.items()}
    return {k: v for k, v in env.items() if k not in contract.STRIPPED_ENV and is_inherited(k, keys_of_copies)}


def worker_env(
    paths: Paths, spec: ProgramSpec, attempt: int, token: str, boot_id: str, keys_of_copies: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The worker's whole environment: the inherited part, the program's own, the contract's."""
    env = inherited(keys_of_copies)
    if spec.builtin:  # RL_* became flags of its command line (config/programs.py): the only source, and ps shows it
        env = {name: value for name, value in env.items() if not name.startswith("RL_")}
    login = users.find(spec.user).env if spec.user else {}
    name = spec.name
    supervisors = {} if spec.builtin else {  # what Supervisor gives its programs
        "SUPERVISOR_ENABLED": "1", "SUPERVISOR_SERVER_URL": f"unix://{paths.socket}", "SUPERVISOR_PROCESS_NAME": name,
        "SUPERVISOR_GROUP_NAME": spec.group or name,
    }  # fmt: skip
    env = {**_PYTHON_DEFAULTS, **env, **login, **supervisors, **dict(spec.env)}
    own = {
        contract.ENV_PROGRAM: name, contract.ENV_TOKEN: token, contract.ENV_ATTEMPT: str(attempt),
        contract.ENV_BOOT_ID: boot_id,
    }  # fmt: skip
    if spec.user and users.is_another(spec.user):
        # Another user cannot enter our directories. A client that got their paths could save nothing. Without them it saves
        # by itself, as it does without a daemon.
        return {key: value for key, value in env.items() if key != contract.ENV_RUN_DIR} | own
    return (
        env
        | own
        | {
            contract.ENV_RUN_DIR: paths.run_dir(name),
            contract.ENV_BEAT: paths.beat(name, attempt),
            contract.ENV_CONTROL: paths.control(name, attempt),
            contract.ENV_LEAVE_BY: paths.leave_by(name, attempt),
            contract.ENV_STACKS: f"{paths.attempt_dir(name, attempt, token)}/stacks.txt",
            contract.ENV_NOTIFY: paths.notify_socket(name),
        }
    )


def filled_in(spec: ProgramSpec, run_dir: str) -> ProgramSpec:
    """Fill in the program's placeholders. Reads a whole checkpoint if `{resume}` names one of the contract's.

    Raises OSError while the program's checkpoints are unknown: a start at step 0 would be worse than a later start.
    """
    if spec.template is None:
        return spec
    values = dict(spec.template.values)
    if RESUME not in values and RESUME in placeholders.uses([*spec.argv, *dict(spec.env).values()]):
        if spec.checkpoint_glob:
            raise OSError("its checkpoints cannot be looked at, so {resume} is not known")
        found = checkpoints.newest_good(Path(run_dir))
        values[RESUME] = "" if found is None else str(found.path)
    argv = placeholders.fill_words(spec.argv, spec.template, values)
    return replace(spec, argv=argv, env=placeholders.fill_environment(spec.env, values), template=None)


def shim_order(
    paths: Paths, spec: ProgramSpec, attempt: int, token: str, boot_id: str, cgroup: str = "",
    keys_of_copies: frozenset[str] = frozenset(),
) -> dict[str, Any]:  # fmt: skip
    """The shim's input on stdin (`supervisor/shim.py`, `Order`). Raises ValueError; OSError if a later try may succeed."""
    name, stdout = spec.name, paths.log_of(spec, "stdout") or ""
    user: dict[str, object] | None = None
    if spec.user:
        if refusal := users.refusal(spec.user):
            raise ValueError(refusal)
        found = users.find(spec.user)
        if users.is_another(spec.user):
            if why := trust.why_movable(paths.run_dir(name)):
                raise ValueError(f"{why}, so user {found.name!r} could lead root's hand; chmod go-w")
            logs = [place for each in ("stdout", "stderr") if (place := paths.log_of(spec, each))]
            logs = [place for place in logs if as_user.log_user(place, spec.user)]
            user = {"uid": found.uid, "gid": found.gid, "groups": list(found.groups), "logs": logs}
    return {
        "program": name, "attempt": attempt, "token": token, "boot_id": boot_id, "argv": list(spec.argv),
        "env": worker_env(paths, spec, attempt, token, boot_id, keys_of_copies),
        "cwd": spec.directory or ("/" if spec.user else paths.run_dir(name)),  # another user may not enter the run directory
        "run_dir": paths.run_dir(name), "attempt_dir": paths.attempt_dir(name, attempt, token),
        "stdout": stdout, "stderr": stdout if spec.redirect_stderr else paths.log_of(spec, "stderr") or "",
        "stdin": spec.stdin, "user": user,
        "record": paths.shim_record(name), "umask": int(spec.umask, 8) if spec.umask else procfs.umask(),
        "files": limits.GIVEN_FILES, "lock_wait_s": _LOCK_WAIT_S,
        "cgroup": cgroup, "grace_s": spec.stop_grace_s, "signal_to": spec.stop_signal_to,
        "done_codes": list(spec.done_codes), "rest_s": _DAEMON_DECIDES_S,
        "stop_signal": signal_number(spec.stop_signal), "lock": f"{paths.run_dir(name)}/{contract.LOCK_FILE}",
        "may_claim": True, "end_signal": int(signal.SIGTERM),
    }  # fmt: skip


def read_record(path: str) -> RunningAttempt | None:
    """The shim record in the file; None when the file is missing or holds no record."""
    try:
        return _as_attempt(durable.json_of(files.read_bounded(path, 64 * 1024)))
    except ValueError:
        return None


def _as_attempt(body: Any) -> RunningAttempt | None:
    try:
        record = RunningAttempt(**body)
    except TypeError:
        return None
    kinds = (type(value) for value in asdict(record).values())
    return record if tuple(kinds) == (str, str, int, str, int, int, int, int, int, int, str) else None


class LivesOn(Exception):
    """SIGKILL does not end an attempt. `first` is one of its processes: it may not be signalled, or the kernel holds it."""

    def __init__(self, first: procfs.Stat) -> None:
        super().__init__(f"{first.name}({first.pid})")
        self.first = first


def kill_attempt(
    token: str, shim: tuple[int, int] | None, spare: int | None = None, more: Callable[[], Iterable[int]] = tuple, *,
    waits: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """SIGKILL every process of an attempt and wait until all are gone; returns their names, but not that of pid `spare`.

    The processes are found by the token in their environment, by the shim's session (`shim` is its pid and start ticks), as
    descendants of those, and by `more` (the cgroup, and orphans that became our children). This also waits for a process in
    an uninterruptible wait: until that is gone, its files and its GPU memory are not free. Use this only for trees without a
    shim: with one, SIGTERM to the shim is exact. If not `waits`, it raises LivesOn: at once if we may signal none of its
    processes, else after some seconds.
    """
    ended: dict[int, str] = {}
    patience_s = 1.0
    # A scan may miss a process whose parent ends meanwhile. All parents have ended before the second empty scan.
    while (found := _members(token, shim, more)) or (found := _members(token, shim, more)):
        fds = []
        if not waits and (patience_s > _START_PATIENCE_S or all(trees.untouchable([stat]) for stat in found)):
            raise LivesOn(found[0])
        for stat in found:
            fd = procfs.open_verified(stat.pid, stat.start_ticks)
            if fd is None:
                continue
            fds.append(fd)
            procfs.send(fd, signal.SIGKILL)
            if stat.pid not in (spare, shim[0] if shim else None):
                ended.setdefault(stat.pid, stat.name)
        for fd in fds:
            procfs.wait_gone(fd, patience_s)  # returns as soon as it is gone
            os.close(fd)
        patience_s = min(_MOST_PATIENCE_S, 2 * patience_s)  # state D can last hours: no scan of /proc every second
    return tuple(f"{name}({pid})" for pid, name in ended.items())


def _members(token: str, shim: tuple[int, int] | None, more: Callable[[], Iterable[int]] = tuple) -> list[procfs.Stat]:
    found = {stat.pid: stat for stat in procfs.marked(contract.ENV_TOKEN, [token])[token]}
    found |= {stat.pid: stat for stat in map(procfs.read_stat, more()) if stat is not None and stat.alive}
    leader = procfs.read_stat(shim[0]) if shim else None
    # A session's number is not reused while the session has members: a living leader that is not our shim leads a later one.
    # 0 is no shim: it is the session of the kernel's threads, and of all whose session began outside of this PID namespace.
    if shim and shim[0] > 0 and (leader is None or leader.start_ticks == shim[1]):
        found |= {stat.pid: stat for stat in procfs.scan().processes.values() if stat.session == shim[0]}
    if found:
        found |= {stat.pid: stat for stat in procfs.descendants(found)}
    found.pop(os.getpid(), None)
    return list(found.values())


class ProgramAdapters(Record):
    """The adapters that start and watch programs: those of this machine, or of a feature (`Part.launches`)."""

    paths: Paths
    launcher: Launcher
    probes: Probes
    controls: Controls
    take_evidence: Callable[[str, str], None]


class LocalLauncher:
    """`ports.Launcher` for this machine. Calls return at once; outcomes are posted to the inbox."""

    def __init__(
        self, paths: Paths, boot_id: str, inbox: Inbox, clock: Clock, groups: cgroups.Cgroups = cgroups.NONE,
        adopted_orphans: orphans.Orphans = orphans.NONE,
        shown: Callable[[str, str, float, tuple[int, int]], Figures] = lambda *_: Figures(),
        own: Callable[[str, Ending, Figures], OwnCheckpoint | None] = lambda *_: None,
        keys_of_copies: Callable[[], frozenset[str]] = frozenset,
    ) -> None:  # fmt: skip
        """`shown`: the figures in an attempt's own output, `own`: its newest checkpoint; they may block for some seconds."""
        self._keys_of_copies = keys_of_copies
        self._groups, self._orphans, self._shown = groups, adopted_orphans, shown
        self._own = own
        self._paths, self._boot_id, self._inbox, self._clock = paths, boot_id, inbox, clock
        self._guard = threading.Lock()  # protects `_live` and its pidfds; never held during I/O that can block
        self._live: dict[str, _Live] = {}
        self._taken: set[str] = set()  # tokens of all attempts that start or run: each uses open files
        self._few = threading.BoundedSemaphore(_STARTS_AT_ONCE)
        self._code = ShimCode()
        self._tasks = Tasks("processes", vital=True)
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._watched: dict[int, str] = {}
        self._over = False
        self._watcher = Lasting("shim-watcher", self._watch, lambda: self._over, vital=True)
        self._watcher.start()

    def start(self) -> None:
        """Does nothing: an attempt begins when it is spawned."""

    # --- starting --------------------------------------------------------------------------------------------------------

    def spawn(self, spec: ProgramSpec, attempt: int, token: str) -> None:
        """Start one attempt. Outcome: SpawnSucceeded, later Ended; or SpawnBroke. RuntimeError: no thread starts."""
        self._taken.add(token)
        Thread(f"spawn-{spec.name}", self._spawn, spec, attempt, token).start()

    def refuse(self, program: str, token: str, error: str) -> None:
        self._post_broke(program, token, f"cannot start {program}: {error}")

    def no_room(self) -> str | None:
        return limits.no_room(len(self._taken))

    def _spawn(self, spec: ProgramSpec, attempt: int, token: str) -> None:
        # Only a few at once: 200 threads that start 200 interpreters take longer, and use ten times as many files. A start
        # that hangs on its directory delays the others only for a moment.
        acquired = self._few.acquire(timeout=_HUNG_START_S)
        try:
            self._spawn_now(spec, attempt, token)
        finally:
            if acquired:
                self._few.release()

    def _spawn_now(self, spec: ProgramSpec, attempt: int, token: str) -> None:
        try:
            live = self._start_shim(filled_in(spec, self._paths.run_dir(spec.name)), attempt, token)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._post_broke(spec.name, token, f"cannot start {spec.name}: {where}{error.strerror or error}")
            return
        except (ValueError, TypeError) as error:
            self._post_broke(spec.name, token, f"cannot start {spec.name}: {error}", permanent=True)
            return
        except Exception as error:  # noqa: BLE001  a start without an outcome would block the program for ever
            self._post_broke(spec.name, token, f"cannot start {spec.name}: {type(error).__name__}: {error}")
            return
        assert live.shim is not None  # noqa: S101  for the type checker
        assert live.shim.stdout is not None  # noqa: S101
        answer: Any = {}
        try:
            with live.shim.stdout as stdout, contextlib.suppress(ValueError):  # no line: it ended without one
                answer = durable.json_of(stdout.readline())
            record = _as_attempt(answer)
            if record is not None and not record.cgroup:  # the shim got no cgroup, or could not enter it
                with contextlib.suppress(OSError):
                    Path(self._paths.attempt_dir(spec.name, attempt, token), cgroups.NOTE).unlink()
        except Exception as error:  # noqa: BLE001  whatever this was, its process must not run unwatched
            record, answer = None, {"problem": str(error) or type(error).__name__}
        if record is None:
            self._tasks.begin(f"spawn-{spec.name}", self._fail_start, live, answer if isinstance(answer, dict) else {})
            return
        with self._guard:
            live.attempt = record
        pids = record.pid, record.start_ticks, record.shim_pid, record.shim_start_ticks
        self._inbox.post(SpawnSucceeded(self._clock.now_s(), spec.name, token, *pids))
        self._watch_shim(live)
        prune(self._paths, spec.name, attempt)

    def _start_shim(self, spec: ProgramSpec, attempt: int, token: str) -> _Live:
        paths = self._paths
        run_dir = _make_room(paths, spec.name)
        _make_room_for_logs(paths, spec)
        make_dir(paths.attempt_dir(spec.name, attempt, token))
        endings.note_logs(paths, spec, attempt, token)
        for file in (paths.shim_record(spec.name), paths.beat(spec.name, attempt)):
            make_dir(Path(file).parent)
        cgroup = self._groups.begin(spec.name, token, paths.attempt_dir(spec.name, attempt, token))
        order = shim_order(paths, spec, attempt, token, self._boot_id, cgroup, self._keys_of_copies())
        # The shim's own environment: its mark, so that it is found like any process of its tree, and the variable that an
        # interpreter outside of the system's library path needs to start.
        env = {contract.ENV_TOKEN: token, contract.ENV_PROGRAM: spec.name}
        if "LD_LIBRARY_PATH" in os.environ:
            env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        # A file in memory instead of a pipe: it holds the whole order even if the daemon dies now, and nothing blocks.
        with files.held(os.memfd_create("order", os.MFD_CLOEXEC)) as stdin:
            with open(stdin, "wb", closefd=False) as whole:
                whole.write(json.dumps(order).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            shim = subprocess.Popen(
                [sys.executable, "-S", "-I", "-Xutf8=1", self._code.path, spec.name, str(attempt), run_dir],
                stdin=stdin, stdout=subprocess.PIPE, env=env, cwd="/", pass_fds=(self._code.fd,),
            )  # fmt: skip
        try:
            live = _Live(spec.name, attempt, token, procfs.pidfd(shim.pid), shim)
        except BaseException:  # it must not run unwatched
            shim.terminate()
            shim.wait()
            raise
        with self._guard:
            self._live[token] = live
        return live

    def _fail_start(self, live: _Live, answer: dict[str, Any]) -> None:
        """No worker was started. Wait until the shim is gone and make sure that it left nothing."""
        assert live.shim is not None  # noqa: S101
        if "spawn_error" not in answer:
            procfs.send(live.shim_fd, signal.SIGTERM)  # whatever it does now, we could not watch it
        stat = procfs.read_stat(live.shim.pid)
        shim = live.shim.pid, 0 if stat is None else stat.start_ticks
        status = live.shim.wait()
        if "spawn_error" not in answer:
            kill_attempt(live.token, shim)
        self._forget(live)
        self._groups.end(live.token)
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        error = answer.get("spawn_error") or answer.get("problem")
        error = error or f"the shim of {live.program} ended before the worker ran ({how})"
        self._post_broke(live.program, live.token, str(error), permanent=bool(answer.get("permanent")))

    def _post_broke(self, program: str, token: str, error: str, *, permanent: bool = False) -> None:
        self._taken.discard(token)
        self._inbox.post(SpawnBroke(self._clock.now_s(), program, token, error, permanent=permanent))

    # --- ending ----------------------------------------------------------------------------------------------------------

    def signal(self, program: str, token: str, signal: str) -> str:
        """Signal the worker of this attempt. Returns why it was not signalled, as a clause; empty: it was.

        `signal` is a name such as SIGTERM. Raises ValueError for an unknown name.
        """
        number = signal_number(signal)
        attempt = self.attempt(token)
        if attempt is None or attempt.program != program:
            return "its process is gone"
        if procfs.send_verified(attempt.pid, attempt.start_ticks, number):
            return ""
        owner = procfs.owner_if_untouchable(attempt.pid, attempt.start_ticks)
        return f"process {attempt.pid} is of {owner}, and extralife may not signal it" if owner else "its process is gone"

    def continue_child(self, program: str, token: str, pid: int, start_ticks: int) -> None:
        """Send SIGCONT to one process in the tree of this attempt; does nothing when either is gone."""
        attempt = self.attempt(token)
        if attempt is not None and attempt.program == program:
            procfs.send_verified(pid, start_ticks, signal.SIGCONT)

    def ask_to_leave(self, program: str, token: str) -> None:
        """Ask the whole tree of this attempt to save and exit. Its shim signals each process once (`shim.py`, `_Leaving`).

        A second request changes nothing, so a new daemon may repeat the request of the previous one.
        """
        attempt = self.attempt(token)
        if attempt is None or attempt.program != program:
            return
        if procfs.ignores(attempt.shim_pid, signal.SIGUSR1):  # a shim of an older release can only watch the worker exit
            self.signal(program, token, "SIGCONT")
            self.signal(program, token, "SIGTERM")
            return
        for number in (signal.SIGCONT, signal.SIGUSR1):
            procfs.send_verified(attempt.shim_pid, attempt.shim_start_ticks, number)

    def kill_tree(self, program: str, token: str) -> None:
        self._tasks.begin(f"kill-{program}", self._kill_tree, token)

    def _kill_tree(self, token: str) -> None:
        with self._guard:
            live = self._live.get(token)
            if live is None:
                return  # gone already: its Ended is posted
            fd = os.dup(live.shim_fd)  # the other one closes when the shim is gone
            shim = (live.attempt.shim_pid, live.attempt.shim_start_ticks) if live.attempt else None
        with files.held(fd):
            procfs.send(fd, signal.SIGTERM)  # the shim kills the tree, and records what it held and how it ended
            if procfs.wait_gone(fd, _SHIM_PATIENCE_S):
                return
            self._groups.kill(token)  # a tree that forks faster than it is killed
            if procfs.wait_gone(fd, _KILL_PATIENCE_S):
                return
            if left := trees.untouchable(_members(token, shim)):  # their shim records when they end
                log.warning("not_killed", processes=left, why="they may not be signalled")
                return
            self._groups.kill(token, shim=True)
            self._kill_orphans(token, shim)  # the shim carries the mark too

    def end_all(self) -> None:
        """End every tree at once, without a report: this daemon has lost its state directory to another one."""
        with self._guard:
            for live in self._live.values():
                self._groups.kill(live.token)
                procfs.send(live.shim_fd, signal.SIGTERM)

    # --- watching --------------------------------------------------------------------------------------------------------

    def attempt(self, token: str) -> RunningAttempt | None:
        """The attempt of this token if its worker was started and its end is not known yet."""
        with self._guard:
            live = self._live.get(token)
            return live.attempt if live is not None else None

    def _restore_run_dir(self, live: _Live, attempt: RunningAttempt) -> None:
        """Create the run directory of a running attempt again, with its lock and its fence. Raises OSError.

        The fence comes last: from then on the worker may commit. This daemon holds the lock while the attempt runs, because
        the shim's lock belongs to the removed directory. A directory with another attempt's fence is left alone.
        """
        program, token = live.program, live.token
        run_dir = Path(_make_room(self._paths, program))
        fence = fence_of(self._paths, program)
        if fence not in {"", token}:
            raise FileExistsError(errno.EEXIST, "a run directory with another attempt's fence was put there", str(run_dir))
        make_dir(self._paths.attempt_dir(program, live.number, token))
        self._hold_lock(live, attempt)
        if live.lock_fd < 0 and token not in self._lock_text(program):
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock of the run directory", str(run_dir))
        if not fence:
            aside = run_dir / f"{contract.FENCE_FILE}.tmp"
            durable.replace(run_dir / contract.FENCE_FILE, f"{token}\n".encode("ascii"), aside=aside)

    def _settle(self, live: _Live, attempt: RunningAttempt) -> None:
        """Take the lock for an adopted attempt, and make those of its files again that were removed."""
        try:
            record = Path(self._paths.shim_record(attempt.program))
            if not record.is_file():  # the next daemon finds its worker by it
                make_dir(record.parent)
                text = json.dumps(asdict(attempt)) + "\n"
                durable.replace(record, text.encode(), aside=record.with_name(f"{record.name}.tmp"))
            if fence_of(self._paths, live.program):
                self._hold_lock(live, attempt)
            else:
                self._restore_run_dir(live, attempt)
        except OSError as error:
            if lack.is_lack(error):
                raise
            log.warning("not_restored", program=live.program, error=str(error))

    def _hold_lock(self, live: _Live, attempt: RunningAttempt) -> None:
        """Take the lock of a run directory that was created again, for the shim; does nothing if the shim holds it."""
        if live.lock_fd >= 0 or not Path(self._paths.run_dir(live.program)).is_dir():
            return
        lock = self._try_lock(live.program)
        if lock is None:
            return
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"attempt {live.number}, token {live.token}, shim pid {attempt.shim_pid}\n".encode(), 0)
        with self._guard:
            if live.token in self._live and live.lock_fd < 0:
                live.lock_fd = lock
                return
        os.close(lock)  # the attempt ended meanwhile: its successor needs the lock

    def _watch_shim(self, live: _Live) -> None:
        with self._guard:
            if live.token in self._live:  # not closed meanwhile
                self._watched[live.shim_fd] = live.token
                self._epoll.register(live.shim_fd, select.EPOLLIN)

    def _watch(self) -> None:
        """One wait for ends. The ends come first: reaping needs descriptors, and may fail for lack of one."""
        for fd, _events in self._epoll.poll(_REAP_PERIOD_S):
            if fd == self._wake:
                return
            with self._guard:
                live = self._live.get(self._watched.get(fd, ""))
                if live is not None:
                    worker_ended()
                    self._begin_end(live)
                self._epoll.unregister(fd)
                self._watched.pop(fd, None)
        self._orphans.reap(lambda: {live.shim.pid for live in tuple(self._live.values()) if live.shim is not None})

    def _begin_end(self, live: _Live) -> None:
        if not live.ending:
            self._tasks.begin(f"end-{live.program}", self._finish, live)
            live.ending = True

    def gone(self, tokens: Iterable[str]) -> frozenset[str]:
        """Also those that this launcher does not know: their report was lost, or is being decided on."""
        poller = select.poll()
        with self._guard:
            known = {token: self._live.get(token) for token in tokens}
            fds = {live.shim_fd: token for token, live in known.items() if live is not None and not live.ending}
            for fd in fds:
                poller.register(fd, select.POLLIN)
            ended = {fds[fd] for fd, _ in poller.poll(0)}
        return frozenset(ended | {token for token, live in known.items() if live is None and token not in self._taken})

    def report_end(self, program: str, number: int, token: str) -> None:
        """An attempt that lives is watched again."""
        with self._guard:
            live = self._live.get(token)
            if live is not None:
                self._begin_end(live)
        if live is None:
            self._tasks.begin(f"end-{program}", self._report_lost, program, number, token)

    def _report_lost(self, program: str, number: int, token: str) -> None:
        found = self._survey(program, number, token)
        if found.survival is Survival.ALIVE:
            self.adopt(program, number, found)
        else:
            ending = found.ending or Ending(fate="it has ended, and the cause is unknown")
            self._inbox.post(Ended(self._clock.now_s(), program, token, ending))

    def _finish(self, live: _Live) -> None:
        """The shim is gone: report how the attempt ended, once no process of it is left."""
        attempt = live.attempt
        assert attempt is not None  # noqa: S101  a shim is watched only if it has one
        status: int | None = None  # of a shim that is not our child
        if live.shim is not None:
            status = live.shim.wait()
        else:
            self._reap_orphan(attempt.shim_pid, attempt.shim_start_ticks)
        args = self._paths, live.program, live.number, live.token, attempt.logs_from, self._clock.from_boot_ns
        try:
            ending = endings.read_ending(*args)
            if ending is None:
                leftovers = self._kill_orphans(live.token, (attempt.shim_pid, attempt.shim_start_ticks), attempt.pid)
                how = f" by signal {-status}" if status is not None and status < 0 else ""
                ending = endings.without_record(*args, fate=f"its shim was killed{how}", leftovers=leftovers)
            ending = self._with_figures(ending, live.program, live.token, attempt)
        except Exception as error:  # an end without a report would block the program for ever
            if lack.is_lack(error):  # the same reading succeeds once that has passed
                raise
            ending = Ending(fate=f"its end could not be read: {type(error).__name__}: {error}")
        self._forget(live)
        self._inbox.post(Ended(self._clock.now_s(), live.program, live.token, ending))
        self._groups.end(live.token)

    def _kill_orphans(
        self, token: str, shim: tuple[int, int] | None, worker: int | None = None, *, waits: bool = True
    ) -> tuple[str, ...]:
        """`kill_attempt`, with the processes that have neither mark nor session: by the cgroup, and as our orphans."""

        def more() -> list[int]:
            return [*self._groups.members(token), *([] if shim is None else self._orphans.since(shim[1]))]

        return kill_attempt(token, shim, spare=worker, more=more, waits=waits)

    def _with_figures(self, ending: Ending, program: str, token: str, known: RunningAttempt | None) -> Ending:
        """The ending with the figures of the attempt's own output, if no beat has its step."""
        if ending.steps is not None:
            return ending
        begin = (None, (0, 0)) if known is None else (known.start_ticks, known.logs_from)
        shown = self._shown(program, token, began_wall_s(begin[0]), begin[1])
        return replace(ending, shown=shown, own=self._own(program, ending, shown))

    @staticmethod
    def _reap_orphan(shim_pid: int, start_ticks: int) -> None:
        """Reap a shim that was our child before this daemon re-executed itself; does nothing to another's child."""
        stat = procfs.read_stat(shim_pid)
        if stat is not None and stat.start_ticks == start_ticks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(shim_pid, os.WNOHANG)

    def _forget(self, live: _Live) -> None:
        with self._guard:
            if self._live.pop(live.token, None) is not None:
                os.close(live.shim_fd)
                live.shim_fd = -1
                if live.lock_fd >= 0:
                    os.close(live.lock_fd)
        self._taken.discard(live.token)

    # --- finding again ---------------------------------------------------------------------------------------------------

    def adopt(self, program: str, number: int, survivor: Survivor) -> None:
        record = read_record(self._paths.shim_record(program))
        pids = survivor.pid, survivor.start_ticks, survivor.shim_pid, survivor.shim_start_ticks
        pid, ticks, shim_pid, shim_ticks = (0 if value is None else value for value in pids)
        attempt = RunningAttempt(self._boot_id, program, number, survivor.token, pid, ticks, shim_pid, shim_ticks)
        if record is not None and record.token == survivor.token:
            attempt = replace(attempt, stdout_from=record.stdout_from, stderr_from=record.stderr_from)
        fd = procfs.open_verified(shim_pid, shim_ticks)
        live = _Live(program, number, survivor.token, -1 if fd is None else fd, attempt=attempt)
        if fd is None:  # it ended since the survey: a descriptor that is readable at once replaces the pidfd
            self._reap_orphan(shim_pid, shim_ticks)
            live.shim_fd = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with self._guard:
            self._live[survivor.token] = live
            self._taken.add(survivor.token)
        directory = self._paths.attempt_dir(program, number, survivor.token)
        self._tasks.begin(f"confine-{program}", self._groups.adopt, program, survivor.token, directory)
        self._tasks.begin(f"lock-{program}", self._settle, live, attempt)
        self._watch_shim(live)

    def survey(self, expected: dict[str, tuple[int, str]], *, reads: bool = True) -> dict[str, Survivor]:
        until_s = time.monotonic() + _READ_S
        return {name: self._survey(name, *each, reads=reads, until_s=until_s) for name, each in sorted(expected.items())}

    def unrecorded_workers(self, programs: Iterable[str]) -> dict[str, tuple[int, Survivor]]:
        """(attempt, Survivor) of each of these programs that runs although the journal does not record it.

        They are found by the marks of their processes: all their files may be gone. Of two attempts of a program, the one
        that holds the run directory's lock can be adopted, else the older one.

        An attempt that cannot be adopted is ended: its record has another boot id, its worker is gone, or it hangs. Its
        processes live in this kernel, whatever the boot id says, and no attempt could start beside it.
        """
        wanted, found = set(programs), dict[str, tuple[int, Survivor]]()
        alive = [each for each in marks.attempts(self._paths.programs) if each.program in wanted]
        for each in sorted(alive, key=lambda each: each.token not in self._lock_text(each.program)):
            survivor = None if each.program in found else self._find_alive(each.program, each.token)
            if survivor is not None:
                found[each.program] = each.number, survivor
                continue
            try:
                ended = kill_attempt(each.token, None, more=functools.partial(self._groups.members, each.token), waits=False)
            except LivesOn as left:
                found.setdefault(each.program, (each.number, _watched_by(each.token, left.first)))
                continue
            log.warning("unrecorded_attempt_ended", program=each.program, attempt=each.number, processes=ended)
        return found

    def _survey(self, program: str, number: int, token: str, *, reads: bool = True, until_s: float = inf) -> Survivor:
        patient_until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + _HOLDER_PATIENCE_S
        while True:
            alive = self._find_alive(program, token)
            if alive is not None:
                return alive
            lock = self._try_lock(program)
            if (
                lock is not None
                or time.clock_gettime(time.CLOCK_BOOTTIME) > patient_until_s
                or endings.read_exit(self._paths, program, number, token) is not None
            ):
                # No attempt holds the run directory, or another one does, or ours is over: it has no shim to adopt.
                try:
                    return self._post_mortem(program, number, token, reads=reads, until_s=until_s)
                finally:
                    if lock is not None:
                        os.close(lock)
            time.sleep(_POLL_S)  # a shim that is just starting, or just leaving

    def _find_alive(self, program: str, token: str) -> Survivor | None:
        """Find a living attempt by its shim record, or by its marks if the runtime directory was emptied."""
        record = read_record(self._paths.shim_record(program))
        if record is not None and record.token == token:
            if record.boot_id != self._boot_id or not procfs.is_alive(record.shim_pid, record.shim_start_ticks):
                return None
            return Survivor(token, Survival.ALIVE, record.pid, record.start_ticks, record.shim_pid, record.shim_start_ticks)
        return next((each.survivor for each in marks.attempts(self._paths.programs) if each.token == token), None)

    def _post_mortem(self, program: str, number: int, token: str, *, reads: bool, until_s: float) -> Survivor:
        """The fate of an attempt that has no shim. Ends the processes that it left behind, then reads its output."""
        paths = self._paths
        record = read_record(paths.shim_record(program))
        if record is None or record.token != token:
            record = None
        this_boot = record is not None and record.boot_id == self._boot_id
        shim = (record.shim_pid, record.shim_start_ticks) if record and this_boot else None
        if shim is not None:
            self._reap_orphan(*shim)
        try:
            leftovers = self._kill_orphans(token, shim, record.pid if record else None, waits=False)
        except LivesOn as left:
            return _watched_by(token, left.first)
        self._groups.end(token)
        args = paths, program, number, token, record.logs_from if record else (0, 0), self._clock.from_boot_ns
        ending = endings.read_ending(*args)
        if ending is not None and ending.code is None and ending.signal is None:
            return Survivor(token, Survival.NEVER, ending=ending)
        # The fence names the last attempt that claimed the run directory.
        if ending is None and record is None and not leftovers and fence_of(paths, program) != token:
            self._close_attempt(program, number, token)
            return Survivor(token, Survival.NEVER)
        survival = Survival.VANISHED if ending is None else Survival.ENDED
        skips = time.monotonic() > until_s or not (reads or ending is not None)
        fate = "its shim was killed" if this_boot or leftovers else "no exit record was left"
        ending = ending or endings.without_record(*args, fate=fate, leftovers=leftovers)
        return Survivor(token, survival, ending=ending if skips else self._with_figures(ending, program, token, record))

    def _close_attempt(self, program: str, number: int, token: str) -> None:
        """Write an exit record that keeps a late shim from starting the worker after all."""
        record = ExitRecord(
            token, 0, None, None, core_dumped=False, ended_ns=contract.now_ns(), ended_wall_s=self._clock.wall_s(),
            user_s=0.0, system_s=0.0, max_rss_bytes=0, spawn_error="cancelled by a newer daemon before it started",
        )  # fmt: skip
        path = Path(self._paths.attempt_dir(program, number, token), contract.EXIT_FILE)
        try:
            make_dir(path.parent)
            durable.replace(path, json.dumps(asdict(record)).encode(), aside=path.with_name(f"{path.name}.closed"))
        except OSError as error:  # where we can't write, a late shim can't claim the run directory either
            lack.check(error)

    def _lock_text(self, program: str) -> str:
        return files.read_bounded(f"{self._paths.run_dir(program)}/{contract.LOCK_FILE}", 4096).decode(errors="replace")

    def _try_lock(self, program: str) -> int | None:
        """Take the run directory's lock; None while a shim holds it, or if it cannot be taken (a read-only disk)."""
        path = f"{self._paths.run_dir(program)}/{contract.LOCK_FILE}"
        try:
            make_dir(Path(path).parent)
            fd = files.open_own(path, os.O_RDWR)
        except OSError as error:
            lack.check(error)
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    # --- leaving ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop watching. The attempts continue without this daemon."""
        self._over = True
        os.eventfd_write(self._wake, 1)
        self._watcher.join(_CLOSE_S)
        self._tasks.close()
        with self._guard:
            for live in self._live.values():
                os.close(live.shim_fd)
                if live.lock_fd >= 0:
                    os.close(live.lock_fd)
                if live.shim is not None:
                    live.shim.returncode = 0  # not waited for on purpose; Popen would warn
            self._live.clear()
            self._epoll.close()
            os.close(self._wake)


def _watched_by(token: str, process: procfs.Stat) -> Survivor:
    """An attempt without a shim, of which a process lives on after SIGKILL: it is alive until that process ends."""
    pid, ticks = process.pid, process.start_ticks
    return Survivor(token, Survival.ALIVE, pid, ticks, pid, ticks)


def prune(paths: Paths, program: str, attempt: int, kept: Collection[str] = ()) -> None:
    """Remove all but the newest attempts' directories and beats; the journal still has the others.

    `kept`: tokens of older attempts whose directories are still in use.
    """
    parent = Path(paths.attempt_dir(program, 0, "")).parent
    numbers: dict[Path, int] = {}
    if parent.is_symlink():  # it leads to files that are not the program's: remove nothing there
        return
    with contextlib.suppress(OSError):
        for path in parent.iterdir():
            found = _ATTEMPT_DIR.match(path.name)  # `12-<token>`; there may be other files beside these
            if found is not None and int(found[1]) < attempt and path.name.partition("-")[2] not in kept:
                numbers[path] = int(found[1])
    for path in sorted(numbers, key=numbers.__getitem__, reverse=True)[KEPT_ATTEMPTS - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
        for old in (paths.beat(program, numbers[path]), paths.control(program, numbers[path])):
            with contextlib.suppress(OSError):
                Path(old).unlink()


def fence_of(paths: Paths, program: str) -> str:
    """The token in the program's fence; empty: it names no attempt."""
    return contract.read_fence(Path(paths.run_dir(program)))


def signal_number(name: str) -> int:
    """SIGTERM, TERM or 15 as a number. Raises ValueError with a sentence for anything else."""
    with contextlib.suppress(ValueError, KeyError):
        return int(signal.Signals(int(name)) if name.isdigit() else signal.Signals["SIG" + name.upper().removeprefix("SIG")])
    raise ValueError(f"no such signal: {name!r}")
