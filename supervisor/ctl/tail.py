"""`tail` and `maintail`: the end of a log, and new lines, over rotation, truncation and a daemon's reload. `fg`: typing too.

A file or pipe receives the exact bytes of the log. On a terminal, control characters are made visible: a log may hold
escape sequences that its reader does not expect.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Callable

from supervisor.api import logfiles
from supervisor.api.logfiles import Chunk
from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, OK, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session, quote

_LAST_S = 1.0  # after the last line of a script, wait this long to show the program's answer
_POLL_S = 0.2
_PATIENCE_S = 15.0  # a daemon that reloads is back within a second or two


def tail(session: Session, args: list[str]) -> int:
    """`tail [-f] [-N] NAME [stdout|stderr]`.

    The last N bytes (1600) of a program's log; -f follows it.
    """
    follow, size_bytes, words = _modifiers(args)
    if not words:
        raise Failed("Error: too few arguments")
    if len(words) > 2:
        raise Failed("Error: too many arguments")
    name, channel = words[0], words[1].lower() if len(words) > 1 else "stdout"
    if channel not in {"stdout", "stderr"}:
        raise Failed(f"Error: bad channel {channel!r}")
    return show(session, session.program(name), channel, size_bytes, follow=follow)


def maintail(session: Session, args: list[str]) -> int:
    """`maintail [-f] [-N]`.

    The last N bytes (1600) of the daemon's own log; -f follows it.
    """
    follow, size_bytes, words = _modifiers(args)
    if words:
        raise Failed(f"Error: bad argument {words[0]}")
    return show(session, None, "", size_bytes, follow=follow)


def _modifiers(args: list[str]) -> tuple[bool, int, list[str]]:
    follow, size_bytes, words = False, logfiles.TAIL_BYTES, []
    for arg in args:
        if arg == "-f":
            follow = True
        elif arg.startswith("-"):
            if not arg[1:].isdecimal():
                raise Failed(f"Error: bad argument {arg}")
            size_bytes = int(arg[1:])
        else:
            words.append(arg)
    return follow, size_bytes, words


def show(
    session: Session, name: str | None, channel: str, size_bytes: int = logfiles.TAIL_BYTES, *, follow: bool,
    ended: Callable[[], bool] = lambda: False,
) -> int:  # fmt: skip
    """Print the end of a log and, with `follow`, new lines until Ctrl-C, or until `ended()`."""
    write = _writer()
    try:
        chunk = _end_of(session, name, channel, size_bytes, write)
    except FileNotFoundError:
        session.say(f"{text.printable(name or 'supervisord')}: ERROR (no log file)")
        return GENERIC
    except DaemonRefused as refused:
        unknown = "no such program" in str(refused)
        detail = "no such process name" if unknown else str(refused)
        session.say(f"{text.printable(name or 'supervisord')}: ERROR ({detail})")
        if unknown and name is not None:
            session.suggest(name, [view["name"] for view in session.page("status")["programs"]])
        return GENERIC
    if not follow:
        write(chunk.data)
        if not chunk.data and name is not None and text.columns() is not None:
            other = "stdout" if channel == "stderr" else "stderr"
            session.warn(f"its {channel} is empty; extralifectl tail {text.printable(name)} {other} shows the other log")
        return OK
    session.warn("==> Press Ctrl-C to exit <==")
    try:
        write(chunk.data)
        return _follow(session, name, channel, chunk, write, ended)
    except KeyboardInterrupt:
        return OK


def _end_of(session: Session, name: str | None, channel: str, size_bytes: int, write: Callable[[bytes], None]) -> Chunk:
    """Write the last bytes except their final part, and return that part. One answer has at most 1 MiB, so it may ask again.

    The log may grow meanwhile: this reads up to its original end. If the log is rotated meanwhile, the new log follows.
    """
    chunk = _fetch(session, name, channel, min(size_bytes, logfiles.MOST_BYTES))
    end = chunk.next_offset
    if size_bytes <= logfiles.MOST_BYTES or len(chunk.data) < logfiles.MOST_BYTES:
        return chunk
    file, left = chunk.file_id, min(size_bytes, end)
    chunk = _fetch(session, name, channel, Chunk(b"", file, end - left, ""))
    while chunk.data and chunk.next_offset < end and not chunk.note:
        write(chunk.data)
        chunk = _fetch(session, name, channel, chunk)
    over = chunk.next_offset - end
    if over > 0 and chunk.file_id == file:  # bytes added since the first look: a follower gets them next
        return Chunk(chunk.data[: len(chunk.data) - over], file, end, chunk.note)
    return chunk


def _follow(
    session: Session, name: str | None, channel: str, chunk: Chunk, write: Callable[[bytes], None], ended: Callable[[], bool]
) -> int:
    silent_s = 0.0
    while True:
        try:
            chunk = _fetch(session, name, channel, chunk)
        except (Unreachable, DaemonRefused, Failed, OSError) as gone:
            # The daemon is restarting, or the log has been rotated and has no new line yet. Both are temporary.
            if ended():
                return OK
            if silent_s >= _PATIENCE_S:
                session.warn(f"==> {gone} <==")
                return GENERIC
            silent_s += _POLL_S
            text.pause(_POLL_S)
            continue
        silent_s = 0.0
        if ended():
            return OK
        if chunk.note:
            session.warn(f"==> File {chunk.note} <==")
        write(chunk.data)
        if not chunk.data:
            text.pause_while_read(_POLL_S)


def _fetch(session: Session, name: str | None, channel: str, at: Chunk | int) -> Chunk:
    """The last `at` bytes, or the bytes after a chunk: from the daemon, or from the file while the daemon is dead."""
    page = "/api/v1/mainlog" if name is None else f"/api/v1/logs/{quote(name)}/{channel}"
    query = f"tail={at}" if isinstance(at, int) else f"offset={at.next_offset}&file={quote(at.file_id)}"
    try:
        headers, data = session.client.read(f"{page}?{query}")
    except Unreachable as gone:
        dead = session.dead_daemon(gone)
        path = dead.log_path(name, channel)
        if isinstance(at, int):
            session.warn(dead.last_sign()["says"])
            return logfiles.read_tail(path, at)
        return logfiles.read_from(path, at.file_id, at.next_offset, logfiles.MOST_BYTES)
    if "x-file" not in headers or not headers.get("x-next-offset", "").isdecimal():
        raise session.client.stranger()
    return Chunk(data, headers["x-file"], int(headers["x-next-offset"]), headers.get("x-note", ""))


def _writer() -> Callable[[bytes], None]:
    """A function that writes log bytes to standard output: printable on a terminal, else unchanged."""
    if not sys.stdout.isatty():
        return _write_raw
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")  # a chunk may end within a character

    def write(data: bytes) -> None:
        sys.stdout.write(text.printable(decoder.decode(data), lines=True))
        sys.stdout.flush()

    return write


def _write_raw(data: bytes) -> None:
    sys.stdout.flush()
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def fg(session: Session, args: list[str]) -> int:
    """`fg NAME`.

    Connect to a program with stdin = true: its output is shown, and each line typed goes to its standard input. Ctrl-C
    ends the connection; the program goes on.
    """
    if not args:
        raise Failed("ERROR: no process name supplied")
    if len(args) > 1:
        raise Failed("ERROR: too many process names supplied")
    name = session.program(args[0])
    try:
        view = session.client.get(f"/api/v1/programs/{quote(name)}")
    except DaemonRefused:
        raise Failed("ERROR: bad process name supplied") from None
    if view["phase"] not in {"STARTING", "RUNNING"} or view["pid"] is None:
        raise Failed("ERROR: process not running")
    _send(session, name, "")  # the daemon refuses a program without standard input, before the user types
    over, left = threading.Event(), threading.Event()
    shown = threading.Thread(target=_show, args=(session, name, over, left), daemon=True)
    shown.start()
    try:
        for line in sys.stdin:
            _send(session, name, line)
        over.wait(_LAST_S)
    except KeyboardInterrupt:
        pass
    finally:
        left.set()  # in the shell, the output would otherwise go on between the user's next commands
        shown.join(_LAST_S)
    return OK


def _send(session: Session, name: str, line: str) -> None:
    try:
        session.client.post("/api/v1/stdin", {"name": name, "text": line})
    except DaemonRefused as refused:
        raise Failed(f"ERROR: {refused}", GENERIC) from None


def _show(session: Session, name: str, over: threading.Event, left: threading.Event) -> None:
    try:
        show(session, name, "stdout", follow=True, ended=left.is_set)
    except (Failed, DaemonRefused, Unreachable, OSError) as gone:
        session.warn(f"==> {gone} <==")
    over.set()
