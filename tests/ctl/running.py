"""extralifectl as people run it: a process of its own, with or without a terminal."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import forked

from supervisor.ctl import text

ROOT = Path(__file__).resolve().parents[2]
CTL = [sys.executable, "-m", "supervisor.ctl"]


def environment(**more):
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("EXTRALIFE_", "NO_COLOR", "XDG_"))}
    return {**keep, "PYTHONPATH": str(ROOT), "TERM": "xterm", "TZ": "UTC", "LANG": "C.UTF-8", **more}


def ctl(*args, socket=None, cwd=None, stdin="", **env):
    options = [] if socket is None else ["-s", f"unix://{socket}"]
    ours, where = environment(**env), cwd or Path("/")
    if {"PYTHONPATH", "LANG"} & env.keys():  # what an interpreter looks at when it starts
        return subprocess.run(
            [*CTL, *options, *args], capture_output=True, text=True, timeout=60, check=False, env=ours, cwd=where,
            input=stdin,
        )  # fmt: skip
    return forked.ctl([*options, *args], env=ours, cwd=where, stdin=stdin)


class Terminal:
    """extralifectl on a pseudo-terminal of a chosen size. Ends with its block, however the test ends."""

    def __init__(self, *args, socket, columns=120, rows=30, argv=None, **env):
        """`argv`: another program than extralifectl."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            argv or [*CTL, "-s", f"unix://{socket}", *args], stdin=slave, stdout=slave, stderr=slave, cwd="/",
            env=environment(**env), start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # what has come may end within a character

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def until(self, what, timeout_s=30):
        """All output up to and including `what`, which is then taken as read."""
        deadline = time.monotonic() + timeout_s
        while what not in self.seen:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"waited in vain for {what!r}; there was: {self.seen!r}")
            if select.select([self.master], [], [], left_s)[0]:
                try:
                    self.seen += self._decode(os.read(self.master, 65536))
                except OSError as error:  # the other end is closed
                    raise AssertionError(f"it ended without {what!r}; there was: {self.seen!r}") from error
        found, _, self.seen = self.seen.partition(what)
        return found + what

    def type(self, keys):
        os.write(self.master, keys.encode())

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def interrupt_at_prompt(self, until):
        """Ctrl-C, pressed again each second like a person would: between CPython's look for signals and its wait for
        input lies a moment in which one is only noted, and acted on with the next key."""
        for _ in range(30):
            self.interrupt()
            with contextlib.suppress(TimeoutError):
                return self.until(until, timeout_s=1)
        raise AssertionError(f"Ctrl-C in vain, no {until!r}; there was: {self.seen!r}")

    def end(self):
        """(everything until it closes the terminal, exit code)."""
        with contextlib.suppress(OSError):
            while piece := os.read(self.master, 65536):
                self.seen += self._decode(piece)
        return self.seen, self.process.wait(30)


def hung_up(socket, *args):
    """The exit code of extralifectl whose terminal goes away once it has written. SIGHUP is ignored, as below nohup: nothing
    but the hang-up itself tells it."""
    master, slave = pty.openpty()
    shell = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *CTL, "-s", f"unix://{socket}", *args]
    process = subprocess.Popen(
        shell, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    os.close(slave)
    assert os.read(master, 1)
    os.close(master)
    return process.wait(30)


def too_wide(*words, socket, columns=60):
    """The lines of an answer that do not fit the terminal and could have been broken; an answer has lines."""
    with Terminal(*words, socket=socket, columns=columns) as terminal:
        told, _ = terminal.end()
    lines = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", told).replace("\r", "").splitlines()
    assert len(lines) > 1, lines
    assert "Traceback" not in told
    return [line for line in lines if text.width(line) > columns and " " in line.strip()]
