"""Examines a stalled worker before any action: what the worker was doing, as far as this machine can see it.

`decide` requests this once per stall (command TakeEvidence); `extralifectl explain` shows the result. It is bounded in time
and size, and does no harm. It requests the worker's Python stacks only if the worker has a handler for that signal, because
SIGUSR1 kills a program that has none. py-spy, where it is installed, reads processes without a handler, as their user:
it opens the files that they name. faulthandler's handler runs in C, so it also answers for a thread that holds the GIL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from supervisor import files
from supervisor.adapters import leftovers, procfs
from supervisor.adapters.process import endings
from supervisor.adapters.process.processes import RunningAttempt
from supervisor.adapters.threads import Tasks
from supervisor.as_user import popen_as
from supervisor.formats import span
from supervisor.model.inputs import EvidenceTaken
from supervisor.model.settings import Paths
from supervisor.ports import Clock, Inbox
from workers import contract

TIMEOUT_S: Final = 5.0
_STACKS_BYTES: Final = 16 * 1024
_FIELD_CHARS: Final = 4000
_MAX_THREADS: Final = 64
_QUIET_S: Final = 0.15  # faulthandler writes thread by thread: after this long without growth it is done
_POLL_S: Final = 0.03
_MOST_PROCESSES: Final = 8  # whose stacks py-spy reads
_MOST_CHARS: Final = 4000  # of one of them
_NO_PY_SPY: Final = "py-spy would show them: pip install 'extralife[stacks]' into extralife's environment"
_PY_SPY_S: Final = 3.0  # together with TIMEOUT_S less than healing waits for evidence (`deciding/healing.py`)


def take(
    program: str, token: str, pid: int, start_ticks: int, *,
    stacks: str, logs: tuple[str, str], logs_from: tuple[int, int] = (0, 0), timeout_s: float = TIMEOUT_S,
) -> dict[str, str]:  # fmt: skip
    """Read all data about exactly this process within `timeout_s`; `logs` are the paths of stdout and stderr."""
    stat = procfs.read_stat(pid)
    if stat is None or stat.start_ticks != start_ticks:
        return {"process": f"{program} (pid {pid}, token {token}) is gone"}
    number, threads = signal.Signals[contract.STACKS_SIGNAL], procfs.threads(pid)
    names = ", ".join(f"{name} {state}" for _, name, state in threads[:_MAX_THREADS])
    evidence = {
        "process": f"pid {pid}, {stat.name}, state {stat.state}",
        "threads": f"{len(threads)}: {names}" if threads else "",
        "wchan": procfs.read_text(pid, "wchan") or "",
        "syscall": procfs.read_text(pid, "syscall") or "",
        "kernel_stack": procfs.read_text(pid, "stack") or "",
        "open_files": str(procfs.open_files(pid) or ""),
        "host": host_pressure(pid),
        "stacks": _python_stacks(pid, start_ticks, stat.state, stacks, timeout_s),
        # Of those processes in the tree that have no handler for the signal.
        "stacks_by_py_spy": stacks_by_py_spy(
            [each for each in (stat, *procfs.descendants([pid])) if not procfs.catches(each.pid, number)], _PY_SPY_S
        ),
        "stdout": "\n".join(endings.last_lines(logs[0], logs_from[0])),
        "stderr": "\n".join(endings.last_lines(logs[1], logs_from[1])),
        "warning": endings.last_warning(logs, logs_from),
    }
    return {name: text[-_FIELD_CHARS:] if name.startswith("std") else text[:_STACKS_BYTES]
            for name, text in evidence.items() if text}  # fmt: skip


def host_pressure(pid: int, root: str = "") -> str:
    """Outside reasons for a slow process: load, pressure (PSI), and whether its cgroup's CPU quota throttles it."""
    parts = [f"load {' '.join(_text(f'{root}/proc/loadavg').split()[:3])} on {os.cpu_count()} CPUs"]
    for name in ("cpu", "memory", "io"):
        some = _text(f"{root}/proc/pressure/{name}").partition("\n")[0].split()
        parts += [f"{name} pressure {' '.join(some[1:3])}"] if len(some) > 2 else []
    for line in _text(f"{root}/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        place = path if not controllers else f"/cpu{path}" if "cpu" in controllers.split(",") else None
        stat = "" if place is None else _text(f"{root}/sys/fs/cgroup{place}/cpu.stat")
        parts += [row for row in stat.splitlines() if row.startswith(("nr_throttled ", "throttled_"))]
    return ", ".join(parts)


def _text(path: str) -> str:
    return files.read_bounded(path, _FIELD_CHARS).decode("utf-8", "replace")


def _python_stacks(pid: int, start_ticks: int, state: str, path: str, timeout_s: float) -> str:
    """The text that faulthandler appends to the stacks file in answer to the signal."""
    number = signal.Signals[contract.STACKS_SIGNAL]
    if not procfs.catches(pid, number):
        reason = f"not asked for: the program has no handler for {contract.STACKS_SIGNAL}"
        return f"{reason}; {_NO_PY_SPY}" if is_python(pid) and py_spy() is None else reason
    if state in "Tt":
        return "not asked for: the process is stopped"
    before = _size(path)
    if not procfs.send_verified(pid, start_ticks, number):
        return "not asked for: the process is gone"
    _wait_until_quiet(lambda: _size(path), before, timeout_s)
    text = files.read_bounded(path, _STACKS_BYTES, before).decode("utf-8", "replace")
    return text.strip("\n") or "asked for, but none were written in time"


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _wait_until_quiet(size: Callable[[], int], before: int, timeout_s: float) -> None:
    """Return once the file has grown and stopped growing, or after the timeout."""
    started_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    last, since_s = before, started_s
    while (at_s := time.clock_gettime(time.CLOCK_BOOTTIME)) - started_s < timeout_s:
        if (now := size()) != last:
            last, since_s = now, at_s
        elif now != before and at_s - since_s >= _QUIET_S:
            return
        time.sleep(_POLL_S)


# --- from outside, with py-spy where it is installed ---------------------------------------------------------------------

# `pip install 'extralife[stacks]'`, or any `py-spy` in PATH. It does not stop the process (`--nonblocking`). If the box does
# not allow a look into other processes (ptrace), the result is one line of explanation.


def py_spy() -> str | None:
    """The path of py-spy, beside this interpreter or in PATH; None: not installed."""
    own = Path(sys.executable).parent / "py-spy"
    return str(own) if os.access(own, os.X_OK) else shutil.which("py-spy")


def is_python(pid: int) -> bool:
    """Whether a process runs an executable with the name of a Python interpreter."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith(("python", "pypy"))
    except OSError:
        return False


def stacks_by_py_spy(found: Iterable[procfs.Stat], timeout_s: float) -> str:
    """The stacks of these processes, as far as the time allows. For a process that cannot be read there is the reason."""
    spy, until_s, texts = py_spy(), time.monotonic() + timeout_s, []
    if spy is None:
        return ""
    for stat in [stat for stat in found if is_python(stat.pid)][:_MOST_PROCESSES]:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            texts.append(f"{stat.name}({stat.pid}): no time was left")
            continue
        texts.append(f"{stat.name}({stat.pid}):\n{_dump(spy, stat.pid, left_s)[:_MOST_CHARS]}")
    return "\n".join(texts)


def _dump(spy: str, pid: int, timeout_s: float) -> str:
    argv = [spy, "dump", "--nonblocking", "--pid", str(pid)]
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "RUST_BACKTRACE": "0"} | leftovers.mark()
    if not (user := procfs.user(pid)):
        return "  it is gone"
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
            encoding="utf-8", errors="replace", cwd="/", **popen_as(user),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"  py-spy was not done within {span(timeout_s)}"
    except OSError as error:
        return f"  py-spy cannot be run: {error.strerror or error}"
    if done.returncode:
        return f"  py-spy cannot read it: {_reason(done.stderr)}"
    return done.stdout.partition("\n\n")[2].strip("\n")  # after the command line and the version


def _reason(stderr: str) -> str:
    """py-spy's sentence and the cause that it names."""
    lines = [line.strip() for line in stderr.partition("Stack backtrace")[0].splitlines() if line.strip()]
    sentence = lines[0].removeprefix("Error: ") if lines else "no reason given"
    causes = [line.partition(": ")[2] for line in lines if line[:1].isdigit()]
    return f"{sentence} ({causes[-1]})" if causes else sentence


# --- of this machine's attempts ------------------------------------------------------------------------------------------


class LocalEvidence:
    """Takes evidence of this machine's attempts, one thread each, and posts EvidenceTaken."""

    def __init__(self, paths: Paths, attempt: Callable[[str], RunningAttempt | None], inbox: Inbox, clock: Clock) -> None:
        """`attempt` returns the running attempt of a token: `LocalLauncher.attempt`."""
        self._paths, self._attempt, self._inbox, self._clock = paths, attempt, inbox, clock
        self._tasks = Tasks("evidence")

    def take(self, program: str, token: str) -> None:
        """Returns at once. Outcome: EvidenceTaken, within little more than `TIMEOUT_S` plus `_PY_SPY_S`."""
        self._tasks.begin(f"evidence-{program}", self._take, program, token)

    def _take(self, program: str, token: str) -> None:
        attempt = self._attempt(token)
        evidence = {"process": f"{program} is gone"}
        if attempt is not None:
            stacks = f"{self._paths.attempt_dir(program, attempt.attempt, token)}/stacks.txt"
            logs = endings.logs_of(self._paths, program, attempt.attempt, token)
            try:
                evidence = take(
                    program, token, attempt.pid, attempt.start_ticks, stacks=stacks, logs=logs, logs_from=attempt.logs_from,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001  healing waits for the outcome, whatever it is
                evidence = {"process": f"could not be examined: {type(error).__name__}: {error}"}
        self._inbox.post(EvidenceTaken(self._clock.now_s(), program, token, evidence))
