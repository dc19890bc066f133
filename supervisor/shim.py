"""The shim: parent, sub-reaper, fence and recorder of one attempt. It outlives the daemon and does not depend on it.

The launcher starts `python -S -I /proc/self/fd/N PROGRAM ATTEMPT RUN_DIR` for every attempt, with the whole order as JSON
on stdin (no secrets in argv; its words are for `ps`). Descriptor N is the compiled shim. The shim locks the run directory,
writes the fence, starts the worker, answers one JSON line on stdout, and then only waits. When no process of the tree is
left, it writes `exit.json` and exits. SIGUSR1 to the shim asks the tree to save and leave (`_Leaving`). SIGTERM kills the
tree at once (SIGUSR2 in a job of a cluster). Processes that a worker leaves behind are asked too, and killed when the
program's grace is over. After a success code they may work on until the daemon asks (`supervisor/policy/script/finish.py`):
the shim writes the worker's own end to `left.json`, and waits.

Example: a worker dies of signal 9 and leaves a daemonised `sleep` in its own session. As sub-reaper the shim inherits the
sleep, ends it, and names it ("sleep(1234)") in the record. It holds the lock until the sleep is reaped, so no second attempt
can run at the same time.

The obvious alternative, the daemon itself as parent, loses logs and exit codes with the daemon. A daemon that died after its
fork but before it recorded the pid would leave an unknown worker behind.

One shim runs next to every worker for weeks, and every restart has to wait for a shim's start. So it is small: it uses `os`,
`json`, `ctypes` and `signal` through their C modules. With the Python modules it would start in 23 ms and take 10.2 MiB;
without them it takes 11 ms and 8.7 MiB; a bare interpreter takes 9 ms and 8.3 MiB. It does not import `typing`, and exits by
`_exit`.
"""

# pathlib and contextlib would cost more than all the rest of the start:
# ruff: noqa: PTH123, SIM105

import _ctypes
import _json
import _signal  # type: ignore[import-not-found]  # no stub: the constants and calls are those of `signal`
import errno
import fcntl
import posix as os
import resource  # os.wait4 imports it too: at the end of the worker a lack of descriptors would cost the exit code
import sys
import time

TYPE_CHECKING = False  # `typing` itself would cost more than the shim
if TYPE_CHECKING:
    from collections.abc import Callable
    from resource import struct_rusage
    from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_NEVER_WORKS = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)
_ASK = _signal.SIGUSR1  # from the daemon: ask the tree to save and leave
_AWAITED = {_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGUSR2, _ASK}
_TIME = _signal.SIGALRM
_SETTLE_S = 1.0  # time for `tee` to write the rest of its pipe, and for a shell to end by itself
_LOOK_LEAST_S, _LOOK_MOST_S = 0.01, 0.5
_LACK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)  # of the machine: it passes (`supervisor/lack.py`)
_LACK_S = 300


class StartRefused(Exception):
    """No worker was started. The message is for the operator. `permanent`: the same order can never work."""

    def __init__(self, sentence: str, *, permanent: bool = False) -> None:
        super().__init__(sentence)
        self.permanent = permanent


class Order:
    """The launcher's order (`shim_order` in `supervisor/adapters/process/processes.py` writes it)."""

    program: str
    attempt: int
    token: str
    boot_id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    run_dir: str
    attempt_dir: str
    stdout: str  # path of the log; both may have the same path; empty: /dev/null
    stderr: str
    stdin: bool  # True: a pipe, which the daemon writes to through the shim's standard input; False: /dev/null
    user: "dict[str, Any] | None"  # `uid`, `gid`, `groups` of the worker, and `logs` that it opens; None: the shim's own
    record: str  # path of the shim record in the runtime directory
    umask: int
    files: int  # soft limit of open files
    # The cgroup to enter, in `shim` and `tree` (`supervisor/adapters/process/cgroups.py`); empty: stay in the current one.
    cgroup: str
    grace_s: float  # for processes that the worker leaves behind: time from SIGTERM to SIGKILL
    done_codes: list[int]  # after these exit codes of the worker, the processes that it leaves behind are not asked ...
    rest_s: float  # ... for this long. On one machine the daemon decides
    signal_to: str  # the program's `stop_signal_to`: tree, leader or group
    stop_signal: int  # the signal that asks a process to leave: the program's `stop_signal`
    lock_wait_s: float
    lock: str  # path of the run directory's lock
    end_signal: int  # kills the tree at once. Not SIGTERM in Slurm: Slurm sends it to the whole job, to save and leave
    may_claim: bool  # whether it writes the fence; else the fence must already have its token (a job of a cluster)

    def __init__(self, fields: dict[str, object]) -> None:
        for name in Order.__annotations__:
            setattr(self, name, fields[name])


class _Scanner:
    """The options that `json.JSONDecoder` would pass to its C scanner."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int
    memo: dict[str, str] = {}  # noqa: RUF012  for the scanner's use


def _to_json(value: object) -> str:
    encode = _json.make_encoder(
        None, repr, _json.encode_basestring_ascii, None, ": ", ", ", False, False, False
    )  # fmt: skip
    return "".join(encode(value, 0))


def _prctl(option: int, argument: int) -> None:
    libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is this process, as for dlopen(3)
    if _ctypes.call_function(_ctypes.dlsym(libc, "prctl"), (option, argument, 0, 0, 0)) != 0:
        raise StartRefused(f"the kernel refused prctl({option}, {argument}), which keeps a worker's processes together")


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def _check(error: OSError) -> None:
    """Raise the error again if the machine lacks something: it says nothing about the process."""
    if error.errno in _LACK:
        raise error


def _write_patiently(path: str, text: str, *, sync: bool) -> None:
    """Replace a file, also while the machine lacks descriptors or memory: nobody else knows what is in it."""
    for left in range(_LACK_S, -1, -1):
        try:
            _write_aside(path, text, sync=sync, sync_dir=sync)
        except OSError as error:
            if error.errno not in _LACK or not left:
                raise
            time.sleep(1.0)
        else:
            break


def _write_aside(path: str, text: str, *, sync: bool, sync_dir: bool = False) -> None:
    """Replace a file: every reader sees the old or the new content.

    `sync`: also after a power cut. `sync_dir`: then it is certainly the new content.
    """
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path)
    if sync_dir:
        fd = os.open(path.rpartition("/")[0], os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# --- before the worker -------------------------------------------------------------------------------------------------


def _lock(order: Order) -> int:
    """Take the exclusive lock of the run directory, held until this process ends. Waits a little for a predecessor."""
    path = order.lock
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def too_long(_signum: int, _frame: object) -> None:
        raise TimeoutError

    _signal.signal(_signal.SIGALRM, too_long)
    _signal.setitimer(_signal.ITIMER_REAL, order.lock_wait_s)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _signal.setitimer(_signal.ITIMER_REAL, 0)
    except TimeoutError:
        holder = os.pread(fd, 4096, 0).decode("utf-8", "replace").strip() or "an unknown process"
        raise StartRefused(f"{order.run_dir} is in use by another attempt, which holds {path}: {holder}") from None
    return fd


def _claim(order: Order, lock: int) -> None:
    """Make the run directory this attempt's. The lock file shows who holds it, the fence who may commit checkpoints."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"attempt {order.attempt}, token {order.token}, shim pid {os.getpid()}\n".encode(), 0)
    if _exists(order.attempt_dir + "/exit.json"):
        # A newer daemon found no trace of this attempt, took the lock and closed the attempt: do not start it late.
        raise StartRefused(f"attempt {order.attempt} was cancelled before it started")
    if order.may_claim:
        _write_aside(order.run_dir + "/fence", order.token + "\n", sync=True)
    elif _read(order.run_dir + "/fence").strip() not in (b"", order.token.encode()):
        raise StartRefused(f"attempt {order.attempt} is not the newest of {order.program}: another one owns {order.run_dir}")


def _as_user(user: "dict[str, Any]", work: "Callable[[], int | list[str]]") -> "Any":
    """Do some work on files with the rights of this user, who may have put a link anywhere on the way to them."""
    own = os.getegid(), os.geteuid(), os.getgroups()
    try:
        os.setgroups(user["groups"])
        os.setegid(user["gid"])
        os.seteuid(user["uid"])
        return work()
    finally:
        os.seteuid(own[1])
        os.setegid(own[0])
        os.setgroups(own[2])
        _prctl(_PR_SET_DUMPABLE, 1)  # the change hides its environment, which marks it, from a daemon without CAP_SYS_PTRACE


def _open_log(path: str, user: "dict[str, Any] | None" = None) -> int:
    """Open a log for appending. Links, FIFOs and devices are refused: a worker may have put one there."""
    if not path:
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
    if user is not None and path in user["logs"]:
        try:
            return _as_user(user, lambda: _open_log(path))  # type: ignore[no-any-return]
        except PermissionError:
            whose = f"user id {user['uid']}, because others than root decide where its path leads"
            raise StartRefused(f"cannot open the log {path} as {whose}: let that user write there, or choose AUTO") from None
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o640)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        fd = -1
    if fd < 0 or os.fstat(fd).st_mode & 0o170000 != 0o100000:  # S_ISREG without the stat module
        raise StartRefused(f"{path} is a link or no regular file, and a log must be one: remove it")
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # the worker's standard output must not have O_NONBLOCK
    return fd


def _enter(cgroup: str, leaf: str) -> bool:
    """Enter a cgroup; all processes started from then on are in it too. Without it, only the limits are missing."""
    if not cgroup:
        return False
    try:
        fd = os.open(f"{cgroup}/{leaf}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)
    except OSError as error:
        _log_error(f"cannot enter {cgroup}/{leaf}: {error.strerror}")
        return False
    return True


def _start(order: Order, stdin: int, out: int, err: int) -> int:
    """Fork and exec the worker. Returns its pid when its own program image runs."""
    if not order.argv:
        raise StartRefused("the command is empty", permanent=True)
    shim_pid = os.getpid()
    result, tell = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError as error:
        raise StartRefused(f"cannot fork: {error.strerror}") from None
    if pid == 0:
        try:
            _become_worker(order, shim_pid, (stdin, out, err))
        except StartRefused as refused:
            os.write(tell, (("P" if refused.permanent else "T") + str(refused)).encode("utf-8", "replace"))
        except BaseException as error:  # noqa: BLE001  after any error, this copy of the shim must not live on
            os.write(tell, f"T{type(error).__name__}: {error}".encode("utf-8", "replace"))
        os._exit(127)
    os.close(tell)
    failure = os.read(result, 1 << 16).decode("utf-8", "replace")  # empty: exec has closed the other end
    os.close(result)
    if failure:
        os.waitpid(pid, 0)
        raise StartRefused(failure[1:], permanent=failure[0] == "P")
    return pid


def _become_worker(order: Order, shim_pid: int, streams: tuple[int, int, int]) -> "NoReturn":
    os.setpgid(0, 0)
    _enter(order.cgroup, "tree")
    now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if now != order.files:  # the daemon has raised its own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (order.files, hard))
    except (OSError, ValueError):
        pass  # the limit stays higher than ordered
    if order.user is not None:  # after all imports: this user may not be able to read the modules
        try:
            os.setgroups(order.user["groups"])
            os.setgid(order.user["gid"])
            os.setuid(order.user["uid"])
        except OSError as error:
            raise StartRefused(f"cannot become user id {order.user['uid']}: {error.strerror}", permanent=True) from None
    _prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)  # after the change of user, which would reset it
    if os.getppid() != shim_pid:  # the shim died before the line above took effect
        os._exit(127)
    for target, fd in enumerate(streams):
        os.dup2(fd, target)  # all other descriptors close on exec
    os.umask(order.umask)
    try:
        os.chdir(order.cwd)
    except OSError as error:
        raise StartRefused(f"cannot enter the directory {order.cwd!r}: {error.strerror}") from None
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _exec(order.argv, order.env)


def _exec(argv: list[str], env: dict[str, str]) -> "NoReturn":
    """Search PATH as execvp(3) does. Returns only by raising StartRefused."""
    name, search = argv[0], env.get("PATH", "/bin:/usr/bin")
    places = [name] if "/" in name else [f"{place or '.'}/{name}" for place in search.split(":")]
    worst: OSError | None = None
    for place in places:
        try:
            os.execve(place, argv, env)
        except ValueError as error:  # a NUL byte, or "=" in a name
            raise StartRefused(f"cannot start {name!r}: {error} in the command or its environment", permanent=True) from None
        except OSError as error:
            if worst is None or error.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = error
                worst.filename = place
    assert worst is not None  # noqa: S101  there is at least one place
    raise StartRefused(_exec_sentence(name, search, worst), permanent=worst.errno in _NEVER_WORKS)


def _exec_sentence(name: str, search: str, error: OSError) -> str:
    place = str(error.filename)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if _exists(place):
            return f"cannot start {name!r}: the interpreter that its first line names is missing"
        return f"no such file: {name!r}" if "/" in name else f"no such command: {name!r} is not in PATH ({search})"
    if error.errno == errno.EACCES:
        return f"cannot start {name!r}: permission denied, {place!r} is not an executable file for this user"
    if error.errno == errno.ENOEXEC:
        return f"cannot start {name!r}: it is neither a program nor a script with a #! line"
    return f"cannot start {name!r}: {error.strerror}"


def _start_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        stat = file.read()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _record(order: Order, pid: int, log_sizes: tuple[int, int]) -> dict[str, object]:
    shim_pid = os.getpid()
    return {
        "boot_id": order.boot_id, "program": order.program, "attempt": order.attempt, "token": order.token,
        "pid": pid, "start_ticks": _start_ticks(pid), "shim_pid": shim_pid, "shim_start_ticks": _start_ticks(shim_pid),
        "stdout_from": log_sizes[0], "stderr_from": log_sizes[1], "cgroup": order.cgroup,
    }  # fmt: skip


def _oom_kills(root: str = "", cgroup: str = "") -> "int | None":
    """The number of kills so far by the kernel's OOM killer in the worker's cgroup; of the box if it has no cgroup at all.

    If the worker has no own cgroup, the shim's cgroup counts, which the worker shares. If the count rose while the worker
    lived, a SIGKILL that the daemon or shim did not send comes from the OOM killer. A container may not see the path of its
    cgroup: then that is the top of the mount. The count of the box has its neighbours' kills, and never stands for its own.
    """
    paths = {}  # by version of the cgroups
    try:
        for line in _read(root + "/proc/self/cgroup").decode("utf-8", "surrogateescape").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                paths["2" if number == "0" else "1"] = path
    except (OSError, ValueError):
        pass  # there are no cgroups here
    places = [f"{cgroup}/tree/memory.events"] if cgroup else []
    try:  # a container has a PID namespace of its own; the first namespace has a fixed inode
        is_container = os.stat(root + "/proc/self/ns/pid").st_ino != 0xEFFFFFFC
    except OSError:
        is_container = False
    for version, mount, file in (
        ("2", "/sys/fs/cgroup", "memory.events"),
        ("1", "/sys/fs/cgroup/memory", "memory.oom_control"),
    ):
        if version in paths:
            places += [f"{root}{mount}{paths[version]}/{file}", f"{root}{mount}/{file}"]
            is_container = is_container or (not _exists(root + mount + paths[version]) and paths[version] != "/")
    if not is_container:
        places.append(root + "/proc/vmstat")
    for place in places:
        try:
            for text in _read(place).splitlines():
                words = text.split()
                if len(words) == 2 and words[0] == b"oom_kill":
                    return int(words[1])
        except (OSError, ValueError):
            pass
    return None


def _read(path: str) -> bytes:
    # A FIFO in place of the fence reads as empty: without O_NONBLOCK, the shim would wait for its other end.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        return file.read()


# --- after the worker --------------------------------------------------------------------------------------------------


class _Process:
    """One descendant of the shim, as /proc shows it."""

    def __init__(self, pid: int, stat: bytes) -> None:
        name_end = stat.rindex(b")")
        fields = stat[name_end + 2 :].split()
        self.pid, self.parent, self.start_ticks = pid, int(fields[1]), int(fields[19])
        self.name = stat[stat.index(b"(") + 1 : name_end].decode("utf-8", "replace")
        self.is_stopped = fields[0] == b"T"
        # A zombie may be a main thread that has ended while other threads live on.
        self.is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1

    def handles(self, number: int) -> bool:
        """Whether the signal makes it act, for example save. A process that blocks it waits for it (sigwait, signalfd)."""
        mask = 0
        try:
            for line in _read(f"/proc/{self.pid}/status").splitlines():
                if line.startswith((b"SigCgt:", b"SigBlk:")):
                    mask |= int(line.split()[1], 16)
        except OSError as error:
            _check(error)
            return False  # it has ended
        return bool(mask >> (number - 1) & 1)

    def command(self) -> str:
        """The first words of its command line, such as `aws s3 sync`: at most three, and no options."""
        try:
            words = _read(f"/proc/{self.pid}/cmdline").decode("utf-8", "replace").split("\0")[:3]
        except OSError:
            words = []
        words[:1] = [word.rpartition("/")[2] for word in words[:1]]
        options = [at for at, word in enumerate(words) if word.startswith("-")]
        return " ".join(words[: options[0] if options else 3]).strip()[:40] or self.name

    def send(self, number: int) -> None:
        """Signal exactly this process. Skips it if another process has taken its pid meanwhile."""
        fd = -1
        try:
            fd = os.pidfd_open(self.pid)
        except OSError as error:
            _check(error)  # it has ended, or a container's seccomp profile refuses the call
        try:
            if _start_ticks(self.pid) == self.start_ticks:
                try:
                    _signal.pidfd_send_signal(fd, number)
                except OSError:
                    os.kill(self.pid, number)  # without a pidfd; the shim is its reaper, or an ancestor is
        except OSError:
            pass  # it has ended, or belongs to another user: then wait until it leaves by itself
        if fd >= 0:
            os.close(fd)


def _shared_memory(pid: int) -> dict[bytes, int]:
    """The files in /dev/shm that a process has mapped, with their inodes (proc_pid_maps(5))."""
    try:
        lines = _read(f"/proc/{pid}/maps").splitlines()
    except OSError as error:
        _check(error)
        return {}  # it has ended, or belongs to another user
    fields = [line.split(None, 5) for line in lines if b" /dev/shm/" in line and not line.endswith(b" (deleted)")]
    return {words[5]: int(words[4]) for words in fields}


def _free(shared: dict[bytes, int], user: "dict[str, Any] | None") -> list[str]:
    """Remove the files that only processes of this tree had mapped, as their user. Returns their paths and sizes.

    Python's resource tracker and NCCL remove such files at a clean end. After a SIGKILL of all, the memory of the box stays
    taken until its next boot.
    """
    try:
        for entry in os.listdir("/proc") if shared else ():
            for path in _shared_memory(int(entry)) if entry.isdigit() else ():
                shared.pop(path, None)
    except OSError:
        return []  # not known who else uses them
    try:
        return _remove(shared) if user is None else _as_user(user, lambda: _remove(shared))
    except (OSError, StartRefused):
        return []


def _remove(shared: dict[bytes, int]) -> list[str]:
    freed = []
    for path, inode in shared.items():
        try:
            found = os.lstat(path)
            if found.st_ino == inode:
                os.unlink(path)
                freed.append(f"{path.decode('utf-8', 'replace')} ({found.st_size} bytes)")
        except OSError:
            pass  # it is gone, or belongs to another user
    return freed


def _descendants() -> list[_Process]:
    """The whole tree, parents before children, including zombies.

    When a parent dies, the sub-reaper inherits its descendants, whatever session they are in. One scan can miss a process
    whose parent dies at that moment, so there is another scan after each death.
    """
    children: dict[int, list[_Process]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            process = _Process(int(entry), _read(f"/proc/{entry}/stat"))
        except OSError as error:
            _check(error)
            continue  # it has ended since the listing
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(os.getpid(), ()))
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


class _Leaving:
    """Ends the tree: asks it to save and leave, each process once and in an order that lets all of them save; or kills it.

    SIGTERM goes to the topmost processes that handle it. They are responsible for the processes below them: torchrun passes
    it on to its ranks, and a trainer still needs its data loaders while it saves. A process without a handler has nothing to
    save, but others may depend on it: a shell, a plain launcher, or the `tee` whose end would cause a SIGPIPE in the middle
    of a save. It is signalled one second after the last process with a handler has left. After half of the grace, the
    processes below a handler are asked too: a shell with a trap does nothing while its foreground child runs.

    If the program has another `stop_signal`, that replaces SIGTERM in all of this.

    Example: `bash -c "python train.py | tee log; echo done"`. Python handles SIGTERM, saves for 3 s and leaves; tee reads
    the end of its input and leaves; bash prints "done" and leaves. No other process was signalled.

    The obvious alternatives lose the save. SIGTERM to the worker alone ends bash, and the processes that it leaves behind
    would have to be killed. SIGTERM to all at once ends tee first, and gives the ranks of a torchrun two signals: the second
    interrupts the save that the first began.
    """

    def __init__(self, order: Order, worker: int) -> None:
        self.worker = worker
        self.ended: dict[int, str] = {}  # names, by pid, of processes that were left behind or killed
        self.shared: dict[bytes, int] = {}  # the files in /dev/shm that those and the worker had mapped, with their inodes
        self._grace_s, self._to, self._signal = order.grace_s, order.signal_to, order.stop_signal
        self._rest_s = order.rest_s
        self._worker_lives = True
        self._began_s: float | None = None
        self._is_left_over = False  # the worker left by itself, and only processes that it left behind remain
        self.is_rest = False  # it had ended well, so they may work on until `_began_s`
        self._is_killing = False
        self._asked: set[tuple[int, int]] = set()
        self._examined: set[tuple[int, bool]] = set()
        self._handled_s: float | None = None  # when a process with a handler was last seen
        self._pause_s = _LOOK_LEAST_S

    def begin(self) -> None:
        """The daemon asks the tree to leave. It also decides when to kill: its grace may have changed since the start."""
        if self._began_s is None or self._rests():
            self._began_s = time.monotonic()

    def kill(self) -> None:
        self._is_killing = True
        self._pause_s = _LOOK_LEAST_S

    def worker_left(self, *, well: bool) -> None:
        self._worker_lives = False
        self._pause_s = _LOOK_LEAST_S
        if self._began_s is None and not self._is_killing:
            self._is_left_over, self.is_rest = True, well
            self._began_s = time.monotonic() + (self._rest_s if well else 0.0)

    def _rests(self) -> bool:
        return self.is_rest and time.monotonic() < (self._began_s or 0.0) and not self._is_killing

    def wait(self) -> int:
        """The next signal; 0 when it is time to check again."""
        if self._began_s is None and not self._is_killing:
            return int(_signal.sigwait(_AWAITED))
        # No sigtimedwait: after a SIGSTOP that outlasts its timeout, CPython returns a signal of random memory.
        pause_s = (self._began_s or 0.0) - time.monotonic() if self._rests() else 0.0
        _signal.setitimer(_signal.ITIMER_REAL, max(self._pause_s, pause_s))
        number = int(_signal.sigwait(_AWAITED | {_TIME}))
        _signal.setitimer(_signal.ITIMER_REAL, 0.0)
        self._pause_s = min(2 * self._pause_s, _LOOK_MOST_S)
        return 0 if number == _TIME else number

    def go_on(self) -> None:
        """Take the next step if one is due."""
        if (self._began_s is None and not self._is_killing) or self._rests():
            return
        now_s = time.monotonic()
        if self._is_left_over and now_s >= (self._began_s or 0.0) + self._grace_s:
            self._is_killing = True
        found = _descendants()
        if self._is_killing or self._is_left_over:
            for process in found:
                look = process.pid, self._is_killing
                if process.is_alive and look not in self._examined:
                    self.shared.update(_shared_memory(process.pid))
                    self._examined.add(look)
                    if process.pid != self.worker:
                        self.ended.setdefault(process.pid, process.command() if self.is_rest else process.name)
        if self._is_killing:
            for process in found:
                process.send(_signal.SIGKILL)
        else:
            self._ask([process for process in found if process.is_alive], now_s)

    def _ask(self, tree: list[_Process], now_s: float) -> None:
        for process in tree:
            if process.is_stopped:
                process.send(_signal.SIGCONT)
        if self._to == "group":
            self._ask_each(tree)
            return
        if self._to == "leader" and self._worker_lives:
            self._ask_each([process for process in tree if process.pid == self.worker])
            return
        began_s = self._began_s or 0.0
        is_late = now_s >= began_s + self._grace_s / 2
        covered: set[int] = set()
        first, others = [], []
        for process in tree:
            if process.parent in covered and not is_late:
                covered.add(process.pid)
            elif process.handles(self._signal):
                covered.add(process.pid)
                first.append(process)
            else:
                others.append(process)
        self._ask_each(first)
        if first:
            self._handled_s = now_s
            if first[0].pid == self.worker and not is_late:  # no need to check earlier: the worker's end sends a signal
                self._pause_s = max(_LOOK_LEAST_S, began_s + self._grace_s / 2 - now_s)
        elif self._handled_s is None or now_s - self._handled_s >= _SETTLE_S:
            self._ask_each(others)

    def _ask_each(self, processes: list[_Process]) -> None:
        for process in processes:
            if (process.pid, process.start_ticks) not in self._asked:
                process.send(self._signal)
                self._asked.add((process.pid, process.start_ticks))


def _wait_for_tree(leaving: _Leaving, order: Order) -> dict[str, object]:
    """Reap until no child is left, which means no descendant. Returns the exit record.

    `rest` in it is how the last other process ended, after a worker that ended well.
    """
    end: dict[str, object] | None = None
    noted = False
    while True:
        number = leaving.wait()
        if number == order.end_signal:
            leaving.kill()
        elif number in {_ASK, _signal.SIGTERM}:
            leaving.begin()
        try:
            while True:
                got, status, usage = os.wait4(-1, os.WNOHANG)
                if got == leaving.worker:
                    end = _exit_record(order, got, status, usage)
                    leaving.worker_left(well=end["code"] in order.done_codes)
                elif got and end is not None and leaving.is_rest:
                    end["rest"] = _end_of(status)
                if got == 0:
                    break
        except ChildProcessError:
            assert end is not None  # noqa: S101  the worker was the first child
            return end | _now()
        if leaving.is_rest and not noted:
            noted = True
            try:
                _write_patiently(order.attempt_dir + "/left.json", _to_json(end or {}) + "\n", sync=False)
            except OSError as error:
                _log_error(f"cannot write {order.attempt_dir}/left.json: {error.strerror}")
        try:
            leaving.go_on()
        except OSError:
            pass  # for lack of descriptors or memory: the next look is soon


def _end_of(status: int) -> tuple[int | None, int | None]:
    """(exit code, signal) of a wait status."""
    return (os.WEXITSTATUS(status), None) if os.WIFEXITED(status) else (None, os.WTERMSIG(status))


def _now() -> dict[str, object]:
    return {"ended_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "ended_wall_s": time.time()}


def _exit_record(order: Order, pid: int, status: int, usage: "struct_rusage | None") -> dict[str, object]:
    code, signal = (None, None) if usage is None else _end_of(status)
    return {
        "token": order.token, "pid": pid, "code": code, "signal": signal,
        "core_dumped": signal is not None and os.WCOREDUMP(status), **_now(),
        "user_s": usage.ru_utime if usage is not None else 0.0,
        "system_s": usage.ru_stime if usage is not None else 0.0,
        "max_rss_bytes": usage.ru_maxrss * 1024 if usage is not None else 0,
        "leftovers": [], "spawn_error": None, "oom_kills": None,
    }  # fmt: skip


def _log_error(sentence: str) -> None:
    try:
        os.write(2, f"extralife shim: {sentence}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # the disk may be full again, and there is no other way to report it


def _write_exit(order: Order, record: dict[str, object]) -> None:
    text = _to_json(record) + "\n"
    try:
        _write_patiently(order.attempt_dir + "/exit.json", text, sync=True)
    except OSError as error:
        # A full disk must not cost the exit code: the runtime directory is on another file system.
        _log_error(f"cannot write {order.attempt_dir}/exit.json: {error.strerror}")
        try:
            _write_aside(order.record + ".exit", text, sync=False)
        except OSError as worse:
            _log_error(f"cannot write {order.record}.exit either: {worse.strerror}")


# --- the whole of it ---------------------------------------------------------------------------------------------------


def _answer(fields: dict[str, object]) -> None:
    try:
        os.write(1, (_to_json(fields) + "\n").encode())
    except OSError:
        pass  # the daemon died meanwhile; the next one reads the record


def _launch(order: Order) -> tuple[int, dict[str, object]]:
    """Do everything up to the running worker. Returns its pid and the shim record. Of the logs, only stderr stays open."""
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _claim(order, _lock(order))
        out, err = _open_log(order.stdout, order.user), _open_log(order.stderr, order.user)
    except OSError as error:
        raise StartRefused(f"cannot use {error.filename or order.run_dir}: {error.strerror}") from None
    sizes = os.fstat(out).st_size, os.fstat(err).st_size
    stdin, writes = os.pipe2(os.O_CLOEXEC) if order.stdin else (os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), -1)
    pid = _start(order, stdin, out, err)
    record = _record(order, pid, sizes)
    os.dup2(err, 2)  # errors of the shim itself go to the program's own log
    os.dup2(writes if writes >= 0 else stdin, 0)
    for fd in (stdin, out, err, *([writes] if writes >= 0 else [])):
        os.close(fd)
    return pid, record


def main() -> None:
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _AWAITED)
    _, inherited, number_of_code = sys.argv[0].rpartition("/proc/self/fd/")
    if inherited:  # the descriptor that this file was read from: the worker would inherit it too
        os.close(int(number_of_code))
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    text = b""
    while chunk := os.read(0, 1 << 16):
        text += chunk
    order = Order(_json.make_scanner(_Scanner)(text.decode(), 0)[0])  # type: ignore[arg-type]  # it needs only the attributes
    os.setsid()
    if not _enter(order.cgroup, "shim"):
        order.cgroup = ""
    oom_kills = _oom_kills(cgroup=order.cgroup)
    try:
        pid, record = _launch(order)
    except StartRefused as refused:
        _answer({"spawn_error": str(refused), "permanent": refused.permanent})
        if not _exists(order.attempt_dir + "/exit.json"):
            _write_exit(order, {**_exit_record(order, 0, 0, None), "spawn_error": str(refused)})
        os._exit(1)
    try:
        _write_aside(order.record, _to_json(record) + "\n", sync=False)
    except OSError as error:
        _log_error(f"cannot write {order.record}: {error.strerror}")
    _answer(record)
    os.dup2(2, 1)
    os.chdir("/")
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {_TIME})  # until here it limited the wait for the lock
    leaving = _Leaving(order, pid)
    result = _wait_for_tree(leaving, order)
    after = _oom_kills(cgroup=order.cgroup)
    result["oom_kills"] = None if oom_kills is None or after is None else [oom_kills, after]
    result["leftovers"] = [f"{name}({number})" for number, name in leaving.ended.items()] + _free(leaving.shared, order.user)
    _write_exit(order, result)
    os._exit(0)


if __name__ == "__main__":
    main()
