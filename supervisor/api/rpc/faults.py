"""Supervisor's faults: clients and plugins decide by the code and show the text, which begins with the code's name."""

from __future__ import annotations

import enum
from typing import Final


class Code(enum.IntEnum):
    """All that the stock client knows. Its `start` and `stop` raise on a code that is not among them."""

    UNKNOWN_METHOD = 1
    INCORRECT_PARAMETERS = 2
    BAD_ARGUMENTS = 3
    SIGNATURE_UNSUPPORTED = 4
    SHUTDOWN_STATE = 6
    BAD_NAME = 10
    BAD_SIGNAL = 11
    NO_FILE = 20
    NOT_EXECUTABLE = 21
    FAILED = 30
    ABNORMAL_TERMINATION = 40
    SPAWN_ERROR = 50
    ALREADY_STARTED = 60
    NOT_RUNNING = 70
    SUCCESS = 80
    ALREADY_ADDED = 90
    STILL_RUNNING = 91
    CANT_REREAD = 92


class Fault(Exception):
    """A call that is refused. `NAME: detail` is its text."""

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}" if detail else code.name)
        self.code: Final = code
        self.text: Final = str(self)
