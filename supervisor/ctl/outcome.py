"""Exit codes of extralifectl, the exceptions that end a command, and the options before the action."""

from __future__ import annotations

from dataclasses import dataclass

# Exit codes, Supervisor's (LSB): scripts and monitoring plugins depend on them.
OK = 0
GENERIC = 1
USAGE = 2
NOT_RUNNING = 7
STATUS_NOT_RUNNING = 3
STATUS_UNKNOWN = 4

# Exit codes of wait-gpu. From sysexits.h: service unavailable, try again later. The other two are the shell's own.
UNKNOWN_GPU = 69
TIMED_OUT = 75
NOT_EXECUTABLE = 126
NOT_FOUND = 127

INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT
READER_LEFT = 141  # 128 + SIGPIPE


class Failed(Exception):
    """Ends a command with one sentence and an exit code."""

    def __init__(self, sentence: str, code: int = GENERIC) -> None:
        super().__init__(sentence)
        self.code = code


class Unreachable(Exception):
    """No daemon answers on the socket: `no such file`, `refused connection` or another error of the kernel."""


class DaemonRefused(Exception):
    """The daemon has refused the request. The message is its answer, one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(slots=True)
class Options:
    """Options before the action on the command line."""

    config_file: str | None = None
    socket: str | None = None  # the path of a socket, or http://host:port
    username: str | None = None
    password: str | None = None  # `-`: the client prompts for it
    state_dir: str | None = None
    history_file: str | None = None
    interactive: bool = False
