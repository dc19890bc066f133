"""A full-screen terminal for `top`: keys, sizes, signals. It restores the terminal, however the program ends.

Standard library only. `show` compares each frame with the one before, and writes only the changed lines, in one write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import termios
import tty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, Self

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, so that the old content comes back; no cursor
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_AT_ONCE = "\x1b[?2026h", "\x1b[?2026l"  # terminals that support it show the output in between as one step
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_KEYS = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[1~": "home", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape",
}  # fmt: skip


class Ended(Exception):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """The terminal of standard output, for the time of a `with` block. Keys come from standard input if it is a terminal."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._signals: dict[int, Any] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._shown: list[str] = []
        self._size = (0, 0)

    def __enter__(self) -> Self:
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        for number in (*_ENDS, signal.SIGWINCH, signal.SIGTSTP):
            self._signals[number] = signal.signal(number, self._signalled)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._give_back()
        signal.set_wakeup_fd(-1)
        for number, before in self._signals.items():
            signal.signal(number, before)
        wake_write, self._wake_write = (
            self._wake_write,
            -1,
        )  # a thread that still calls `wake` must not write to another file
        os.close(self._wake_read)
        os.close(wake_write)

    def _take(self) -> None:
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in, termios.TCSADRAIN)  # deliver keys at once, earlier ones too; Ctrl-C stays a signal
        self._shown = []
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the terminal is gone: there is nothing to restore
            self._write(_LEAVE)
        with contextlib.suppress(OSError, termios.error):
            if self._in is not None and self._before is not None:
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if number in _ENDS:
            raise Ended(number)
        if number == signal.SIGTSTP:  # Ctrl-Z: restore the terminal for the shell, and take it again on resume
            self._give_back()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._signalled)
            self._take()

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows)."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return (found.columns or 80, found.lines or 24)

    def show(self, lines: list[str]) -> None:
        """Show exactly these lines. The caller makes them fit the screen."""
        size = self.size
        if size != self._size:  # terminals differ in what they do with old lines after a resize: redraw all
            self._size, self._shown = size, []
        out = [] if self._shown else ["\x1b[2J"]
        for place, line in enumerate(lines):
            if place >= len(self._shown) or self._shown[place] != line:
                out.append(f"\x1b[{place + 1};1H{line}\x1b[K")
        if len(lines) < len(self._shown):
            out.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        if out:
            self._write(f"{_AT_ONCE[0]}{''.join(out)}{_AT_ONCE[1]}")
        self._shown = list(lines)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            raise _gone() from error

    def wake(self) -> None:
        """End `wait` early. Any thread may call this."""
        with contextlib.suppress(OSError):  # full: `wait` ends anyway; closed: the screen has ended
            os.write(self._wake_write, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """Wait for a key, a call of `wake`, or the end of the time. Return the keys; a character is its own name.

        Raises BrokenPipeError once the terminal is gone, and Ended.
        """
        watcher = select.poll()
        watcher.register(self._out, 0)  # hang-up and error only
        watcher.register(self._wake_read, select.POLLIN)
        if self._in is not None:
            watcher.register(self._in, select.POLLIN)
        found = dict(watcher.poll(max(0.0, seconds) * 1000.0))
        if self._wake_read in found:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake_read, 4096):
                    pass
        came = found.get(self._in, 0) if self._in is not None else 0
        if found.get(self._out, 0) & ~select.POLLIN or came & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            raise _gone()
        return keys(self._read()) if came & select.POLLIN else []

    def _read(self) -> str:
        assert self._in is not None  # noqa: S101  for the type checker
        try:
            data = os.read(self._in, 4096)
        except OSError as error:
            raise _gone() from error
        if not data:
            raise _gone()
        return data.decode(errors="replace")


def _gone() -> BrokenPipeError:
    return BrokenPipeError(errno.EPIPE, "the terminal is gone")


def keys(text: str) -> list[str]:
    """The pressed keys: names of `_KEYS`, and printable characters. Unknown escape sequences are dropped."""
    found: list[str] = []
    while text:
        taken = next((known for known in sorted(_KEYS, key=len, reverse=True) if text.startswith(known)), None)
        if taken == "\x1b" and len(text) > 1 and text[1] in "[O":
            text = _after_sequence(text)
            continue
        if taken is not None:
            found.append(_KEYS[taken])
        elif text[0].isprintable():
            found.append(text[0])
        text = text[len(taken or text[0]) :]
    return found


def _after_sequence(text: str) -> str:
    """The text after an escape sequence (ECMA-48: parameters, then one final byte from @ to ~)."""
    place = 2
    while place < len(text) and not "@" <= text[place] <= "~":
        place += 1
    return text[place + 1 :]
