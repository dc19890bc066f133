"""The line of a program's last output that says why it died.

The rule, first match wins:

1. the newest exception of the rank that failed first, where torchrun's report names that rank, else its signal;
2. the newest exception that is not a launcher's report of its child's end (`ChildFailedError`, `CalledProcessError`);
3. the newest exception;
4. the newest line with a word in it that is no progress bar.

An exception is the first line after the frames of a traceback, a line such as `package.SomeError: text`, or that of C++.
Torch begins each line of a rank with `[rank1]: `.

Worked example, torchrun with two ranks: rank 1 dies of `[rank1]: ValueError: bad shape`, then rank 0 of `[rank0]:
RuntimeError: ... Connection closed by peer`. Then torchrun reports both, and its last line is `=====`. It names rank 1 as
the root cause, so the reason is `ValueError: bad shape`.

Why not the last line: launchers write a report behind the exception, and progress bars are drawn once more at the exit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_RANK: Final = re.compile(r"\[rank(\d+)\]: ?")
_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\)(:| ─+╮)$")  # of Python, or of `rich`, which draws a box
_EXCEPTION: Final = re.compile(
    r"workers: out of memory|terminate called|(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)(?:: |:?\s*$)"
)
_OF_A_LAUNCHER: Final = re.compile(r"(?:\w+\.)*(?:ChildFailedError|CalledProcessError)\b")
_ROOT_CAUSE: Final = "Root Cause"
_ITS_RANK: Final = re.compile(r"\s*rank\s*:\s*(\d+)")
_ITS_SIGNAL: Final = re.compile(r"\s*traceback\s*:\s*(Signal .*)")
# What a shell prints of a command that was killed, before it goes on. `Terminated` is how scripts end their helpers.
_KILLED: Final = re.compile(
    r"(\S+: (line \d+: )? *\d+ )?(Killed|Segmentation fault|Aborted|Bus error)( \(core dumped\)| {2}.*)?"
)
_JOB: Final = re.compile(r"(\S+: line \d+: )? *\d+ (Done|Exit \d+) .*")  # of a pipe in which another command died
_BAR: Final = re.compile(r"\d+%\|.*\| *\d")
_WORD: Final = re.compile(r"\w")
_WARNING: Final = re.compile(r"(?i)warn|falling back|\bnot? [\w ]*(?:cuda|gpu)|(?:cuda|gpu)\b.* not\b")
_DEVICE: Final = re.compile(r"(?i)cuda|gpu|\bcpu\b|device|driver|tpu|rocm|float32")


def plain_text(line: str) -> str:
    """The line without the codes that give a terminal its colours."""
    return _TERMINAL.sub("", line) if "\x1b" in line else line


def find(lines: Sequence[str]) -> str:
    """The line, from lines with the oldest first; empty: no line says anything."""
    lines = [plain_text(line) for line in lines]
    found = exceptions(lines)
    at = next((place for place, line in enumerate(lines) if line.startswith(_ROOT_CAUSE)), len(lines))
    first_rank, signal = (
        next((match[1] for line in lines[at:] if (match := pattern.match(line))), None)
        for pattern in (_ITS_RANK, _ITS_SIGNAL)
    )
    own = [line for rank, line in found if rank == first_rank is not None] or ([] if signal is None else [signal])
    others = [line for _, line in found if not _OF_A_LAUNCHER.match(line)]
    plain = [line.strip() for line in lines if line.strip() and not _JOB.fullmatch(line.strip())]
    spoken = [line for line in plain if _WORD.search(line) and not _BAR.search(line)]
    return next((kind[-1] for kind in (own, others, [line for _, line in found], spoken, plain) if kind), "")


def warning(lines: Sequence[str]) -> str:
    """The newest warning, one about a device first: that tells why a training is slow. Empty: there is none."""
    warnings = [line.strip() for line in map(plain_text, lines) if _WARNING.search(line) and not _BAR.search(line)]
    return next(reversed([line for line in warnings if _DEVICE.search(line)] or warnings), "")


def unhandled(lines: Sequence[str]) -> str:
    """The exception of the last traceback, or a shell's line of a killed command; empty: none, one ignored, or Ctrl-C."""
    lines = [plain_text(line) for line in lines]
    at = max((place for place, line in enumerate(lines) if _TRACEBACK.search(line.rstrip())), default=len(lines))
    ignored = at and lines[at - 1].startswith(("Exception ignored", "Exception in thread"))
    line = next((line for _, line in exceptions(lines[at:])), "")
    if line and not ignored and not line.startswith("KeyboardInterrupt"):
        return line
    return next((line.strip() for line in reversed(lines) if _KILLED.fullmatch(line.strip())), "")


def exceptions(lines: Sequence[str]) -> list[tuple[str | None, str]]:
    """The exceptions, as (rank, line) with the rank None where the line names none."""
    found: list[tuple[str | None, str]] = []
    within: set[str | None] = set()  # ranks whose traceback goes on
    for line in lines:
        head = _RANK.match(line)
        rank, text = (head[1], line[head.end() :]) if head else (None, line)
        if _TRACEBACK.search(text.rstrip()):
            within.add(rank)
        elif text.strip() and not text.startswith((" ", "│", "╰")) and (rank in within or _EXCEPTION.match(text)):
            within.discard(rank)
            found.append((rank, text.strip()))
    return found
