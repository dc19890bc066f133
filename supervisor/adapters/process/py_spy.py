"""Reads the Python stacks of processes without a handler for them, from outside, with py-spy where it is installed.

`pip install 'extralife[stacks]'`, or any `py-spy` in PATH. py-spy does not stop the process (`--nonblocking`). If the box
does not allow a look into other processes (ptrace), the result is one line of explanation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from supervisor.adapters import leftovers, procfs
from supervisor.formats import span

_MOST_PROCESSES: Final = 8
_MOST_CHARS: Final = 4000  # of one process
MISSING: Final = "py-spy would show them: pip install 'extralife[stacks]' into extralife's environment"


def program() -> str | None:
    """The path of py-spy, beside this interpreter or in PATH; None: not installed."""
    own = Path(sys.executable).parent / "py-spy"
    return str(own) if os.access(own, os.X_OK) else shutil.which("py-spy")


def is_python(pid: int) -> bool:
    """Whether a process runs an executable with the name of a Python interpreter."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith(("python", "pypy"))
    except OSError:
        return False


def stacks(found: Iterable[procfs.Stat], timeout_s: float) -> str:
    """The stacks of these processes, as far as the time allows. For a process that cannot be read there is the reason."""
    spy, until_s, texts = program(), time.monotonic() + timeout_s, []
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
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"  py-spy was not done within {span(timeout_s)}"
    except OSError as error:
        return f"  py-spy cannot be run: {error.strerror}"
    if done.returncode:
        return f"  py-spy cannot read it: {_reason(done.stderr)}"
    return done.stdout.partition("\n\n")[2].strip("\n")  # after the command line and the version


def _reason(stderr: str) -> str:
    """py-spy's sentence and the cause that it names."""
    lines = [line.strip() for line in stderr.partition("Stack backtrace")[0].splitlines() if line.strip()]
    sentence = lines[0].removeprefix("Error: ") if lines else "no reason given"
    causes = [line.partition(": ")[2] for line in lines if line[:1].isdigit()]
    return f"{sentence} ({causes[-1]})" if causes else sentence
