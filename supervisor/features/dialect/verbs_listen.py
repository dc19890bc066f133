"""`listen`: send the journal's events to a listener written for Supervisor (superlance's httpok, memmon, crashmail).

Supervisor keeps ten events for a slow listener and drops the oldest. Here the journal is the queue: a file in the program's
run directory holds the position of the last event that the listener has answered. So a listener misses no event while it is
down or while the box reboots. Only ticks do not queue: of the ticks that a busy listener misses, it gets the newest.

If a listener breaks the protocol, exits, or does not answer for `--timeout` seconds, this process terminates it and exits
too. The daemon restarts both, with the growing delays of every program. Then the listener gets the unanswered event again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from supervisor.adapters import durable
from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, NOT_FOUND, OK, USAGE, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session, parse_int, parse_options, quote, split_command
from supervisor.features.dialect.describe import STATES
from supervisor.formats import span
from supervisor.model.names import group_of

_LOOK_S: Final = 1.0
_TIMEOUT_S: Final = 600
_ANSWER_BYTES: Final = 1 << 20
_PAGE: Final = 500
_LOG_BYTES: Final = 64 * 1024
_CHANNELS: Final = ("stdout", "stderr")
_TICKS: Final = {"TICK_5": 5, "TICK_60": 60, "TICK_3600": 3600}
TYPES: Final = (
    "EVENT", "PROCESS_STATE", *(f"PROCESS_STATE_{state}" for state in STATES),
    "PROCESS_LOG", "PROCESS_LOG_STDOUT", "PROCESS_LOG_STDERR",
    "SUPERVISOR_STATE_CHANGE", "SUPERVISOR_STATE_CHANGE_RUNNING", "SUPERVISOR_STATE_CHANGE_STOPPING",
    "TICK", *_TICKS, "PROCESS_GROUP", "PROCESS_GROUP_ADDED", "PROCESS_GROUP_REMOVED",
)  # fmt: skip
NEVER: Final = (
    "PROCESS_COMMUNICATION", "PROCESS_COMMUNICATION_STDOUT", "PROCESS_COMMUNICATION_STDERR", "REMOTE_COMMUNICATION",
)  # fmt: skip


class ListenerFailed(Exception):
    """The listener has exited, broken the protocol or not answered. The message is one sentence."""


def listen(session: Session, args: list[str]) -> int:
    """`listen EVENT,.. [--timeout S] [--stdout-of NAME,..] [--stderr-of NAME,..] -- COMMAND ..`.

    Run an event listener written for Supervisor: its READY and RESULT are answered with the journal's facts as
    events such as PROCESS_STATE_EXITED and TICK_60. As the command of a program, it continues where it stopped.
    --stdout-of and --stderr-of: PROCESS_LOG events of these programs only; without them, of all.
    """
    own, command = split_command(args)
    words, options = parse_options(own, valued=("--timeout", *(f"--{each}-of" for each in _CHANNELS)))
    if len(words) != 1 or not command:
        raise Failed("Error: listen requires events and, behind --, a command: listen TICK_60 -- memmon -a 200MB", USAGE)
    wanted = [word.strip().upper() for word in words[0].split(",") if word.strip()]
    for word in wanted:
        if word not in {*TYPES, *NEVER}:
            session.suggest(word, TYPES)
            raise Failed(f"Error: {text.printable(word)} is no event of Supervisor's", USAGE)
        if word in NEVER:
            session.warn(f"{word} never happens here: programs and clients send no events")
    timeout_s = parse_int(options.get("--timeout", str(_TIMEOUT_S)), "--timeout", least=1)
    # If a daemon has started this process, use that one: its runtime directory holds this attempt's beat.
    which, beat = session.options, os.environ.get("EXTRALIFE_BEAT")
    if beat and which.socket is None and which.config_file is None and which.state_dir is None:
        sockets = (at / "supervisor.sock" for at in Path(beat).parents)
        which.socket = next((str(each) for each in sockets if each.exists()), None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        listener = Listener(command, _environment(session), timeout_s)
    except OSError as error:
        raise Failed(f"Error: {text.printable(command[0])} cannot be started: {error.strerror}", NOT_FOUND) from None
    try:
        named = {each: options[f"--{each}-of"].split(",") for each in _CHANNELS if f"--{each}-of" in options}
        Feed(session, listener, wanted, named).run()
    except ListenerFailed as failed:
        session.warn(f"listen: {text.printable(failed)}")
        return GENERIC
    except KeyboardInterrupt:
        return OK
    finally:
        listener.end()
    return OK


def _environment(session: Session) -> dict[str, str]:
    """The environment that Supervisor gives a listener. A listener imports Supervisor's package: PYTHONPATH omits ours."""
    name = os.environ.get("EXTRALIFE_PROGRAM", "listener")
    ours = str(Path(__file__).resolve().parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != ours]
    return os.environ | {
        "SUPERVISOR_ENABLED": "1", "SUPERVISOR_SERVER_URL": session.client.url, "SUPERVISOR_PROCESS_NAME": name,
        "SUPERVISOR_GROUP_NAME": _groups(session).get(name, name), "PYTHONPATH": os.pathsep.join(paths),
    }  # fmt: skip


def _groups(session: Session) -> dict[str, str]:
    """The group of each program; empty while the daemon does not answer."""
    with contextlib.suppress(Unreachable, DaemonRefused):
        return {view["name"]: group_of(view) for view in session.client.get("/api/v1/status")["programs"]}
    return {}


class Listener:
    """The child process, which receives one event at a time."""

    def __init__(self, command: list[str], environment: dict[str, str], timeout_s: float) -> None:
        """Raises OSError."""
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        if self._child.stdin is None or self._child.stdout is None:
            raise OSError("no pipes")
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._pool = environment["SUPERVISOR_PROCESS_NAME"]
        self._timeout_s, self._buffer, self._serial = timeout_s, b"", 0

    def send(self, event: str, payload: str) -> None:
        """Send an event, and repeat it until the listener answers OK. Raises ListenerFailed."""
        body = payload.encode("utf-8", "replace")
        while True:
            line = self._line()
            if line != b"READY":
                only = "only its protocol may go to stdout"
                raise ListenerFailed(f"the listener said {line[:200]!r} in place of READY; {only}")
            self._serial += 1
            head = (
                f"ver:3.0 server:supervisor serial:{self._serial} pool:{self._pool} poolserial:{self._serial} "
                f"eventname:{event} len:{len(body)}\n"
            )
            self._write(head.encode() + body)
            if self._result() == b"OK":
                return
            text.pause(_LOOK_S)  # FAIL: send the same event again, but not in a busy loop

    def _write(self, data: bytes) -> None:
        deadline_s = time.clock_gettime(time.CLOCK_BOOTTIME) + self._timeout_s
        fd = self._in
        os.set_blocking(fd, False)
        while data:
            if not select.select([], [fd], [], max(0.0, deadline_s - time.clock_gettime(time.CLOCK_BOOTTIME)))[1]:
                raise ListenerFailed(f"the listener has not read its event within {span(self._timeout_s)}")
            try:
                data = data[os.write(fd, data) :]
            except BrokenPipeError:
                raise ListenerFailed(self._ended()) from None

    def _result(self) -> bytes:
        line = self._line()
        word, _, size = line.partition(b" ")
        if word != b"RESULT" or not size.isdigit() or int(size) > _ANSWER_BYTES:
            raise ListenerFailed(f"the listener said {line[:200]!r} in place of RESULT")
        while len(self._buffer) < int(size):
            self._read()
        result, self._buffer = self._buffer[: int(size)], self._buffer[int(size) :]
        if result not in {b"OK", b"FAIL"}:
            raise ListenerFailed(f"the listener's result is {result[:200]!r}, neither OK nor FAIL")
        return result

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _ANSWER_BYTES:
                raise ListenerFailed("the listener writes without an end of line")
            self._read()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _read(self) -> None:
        if not select.select([self._out], [], [], self._timeout_s)[0]:
            raise ListenerFailed(f"the listener has not answered for {span(self._timeout_s)}")
        piece = os.read(self._out, 65536)
        if not piece:
            raise ListenerFailed(self._ended())
        self._buffer += piece

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5.0)
        return f"the listener has ended with {self._child.returncode}"

    def gone(self) -> bool:
        return self._child.poll() is not None

    def end(self) -> None:
        """SIGTERM, and SIGKILL after five seconds."""
        self._child.terminate()
        try:
            self._child.wait(5.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Feed:
    """Sends facts of the journal, ticks and lines of logs as events, in order."""

    def __init__(self, session: Session, listener: Listener, wanted: list[str], logs_of: dict[str, list[str]]) -> None:
        """`logs_of`: by channel, the programs whose output makes events. A channel that it lacks: all programs."""
        self._logs_of = logs_of
        self._session, self._listener, self._wanted = session, listener, wanted
        run_dir = os.environ.get("EXTRALIFE_RUN_DIR")
        self._file = Path(run_dir, "listened") if run_dir else None
        self._groups: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._tries: dict[str, int] = {}  # deaths in a row that led to BACKOFF
        self._pids: dict[str, int] = {}
        self._logs: dict[tuple[str, str], tuple[int, str]] = {}
        self._last_ticks = {name: int(text.wall_s()) // period_s for name, period_s in _TICKS.items()}
        self._logs_wanted = [each for each in map(str.upper, _CHANNELS) if self._is_wanted(f"PROCESS_LOG_{each}")]

    def run(self) -> None:
        """Send events for ever. Raises ListenerFailed."""
        after = self._position()
        while True:
            try:
                after = self._facts(after)
                self._send_logs()
            except (Unreachable, DaemonRefused):
                pass  # the daemon is down or restarts: its facts wait in the journal
            for event, period_s in _TICKS.items():
                now = int(text.wall_s()) // period_s
                if now != self._last_ticks[event]:
                    self._last_ticks[event] = now
                    self._send(event, f"when:{now * period_s}")
            if self._listener.gone():
                raise ListenerFailed("the listener has ended by itself")
            text.pause(_LOOK_S)

    def _position(self) -> int:
        """Sequence number of the last answered fact; at the first start, that of the journal's end."""
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):
                return int(self._file.read_text(encoding="utf-8"))
        while True:
            try:
                return self._newest()
            except (Unreachable, DaemonRefused):
                text.pause(_LOOK_S)

    def _newest(self) -> int:
        newest = self._session.client.get("/api/v1/facts?limit=-1")["facts"]
        return newest[-1]["seq"] if newest else 0

    def _facts(self, after: int) -> int:
        """Send the events after this fact. It is asked for too: a journal without it counts from a lower number again."""
        while True:
            found = self._session.client.get(f"/api/v1/facts?after={max(0, after - 1)}&limit={_PAGE + 1}")["facts"]
            if after and not found:
                self._session.warn("listen: the journal has lost its newest facts; their events do not come, later ones do")
                after = self._newest()
                self._keep(after)
                return after
            rows = [row for row in found if row["seq"] > after]
            for row in rows:
                events = self._of(row)
                for event, payload in events:
                    self._send(event, payload)
                after = row["seq"]
                if events:
                    self._keep(after)
            if len(rows) < _PAGE:
                return after

    def _keep(self, after: int) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                durable.replace(self._file, f"{after}\n".encode(), aside=self._file.with_suffix(".new"))

    def _send(self, event: str, payload: str) -> None:
        if self._is_wanted(event):
            self._listener.send(event, payload)

    def _is_wanted(self, event: str) -> bool:
        return any(word in {"EVENT", event} or event.startswith(f"{word}_") for word in self._wanted)

    def _of(self, row: dict[str, Any]) -> list[tuple[str, str]]:
        kind, name, fields = row["kind"], row["program"], row["fields"]
        if kind in {"DaemonStarted", "DaemonStopping"}:
            return [(f"SUPERVISOR_STATE_CHANGE_{'RUNNING' if kind == 'DaemonStarted' else 'STOPPING'}", "")]
        if kind in {"ProgramConfigured", "ProgramRemoved"} and not fields.get("live"):
            event = "ADDED" if kind == "ProgramConfigured" else "REMOVED"
            return [(f"PROCESS_GROUP_{event}", f"groupname:{self._group(name)}\n")]
        if kind == "Spawned":
            self._pids[name] = fields["pid"]
        state = state_of(kind, fields)
        if state is None:
            return []
        before, self._states[name] = self._states.get(name, "UNKNOWN"), state
        if before == state == "BACKOFF":
            return []  # the pause after a failed start that was reported
        # Supervisor's `tries`: how often the program has failed since it last ran or was stopped.
        tries = 0 if state in {"RUNNING", "STOPPED", "FATAL"} else self._tries.get(name, 0) + (state == "BACKOFF")
        self._tries[name] = tries
        more = {
            "STARTING": f" tries:{tries}", "BACKOFF": f" tries:{tries}",
            "EXITED": f" expected:{int(fields.get('cause') == 'done')} pid:{self._pids.get(name, 0)}",
        } | dict.fromkeys(("RUNNING", "STOPPING", "STOPPED"), f" pid:{self._pids.get(name, 0)}")  # fmt: skip
        payload = f"processname:{name} groupname:{self._group(name)} from_state:{before}{more.get(state, '')}"
        return [(f"PROCESS_STATE_{state}", payload)]

    def _group(self, name: str) -> str:
        if name not in self._groups:
            self._groups |= _groups(self._session)
        return self._groups.get(name, name)

    def _send_logs(self) -> None:
        if not self._logs_wanted:
            return
        for view in self._session.client.get("/api/v1/status")["programs"]:
            if view["name"] != os.environ.get("EXTRALIFE_PROGRAM"):
                for channel in self._logs_wanted:
                    if view["name"] in self._logs_of.get(channel.lower(), [view["name"]]):
                        self._send_log(view, channel)

    def _send_log(self, view: dict[str, Any], channel: str) -> None:
        """Send the text added to a log since the previous look. The text at the first look is no event."""
        page, at = f"/api/v1/logs/{quote(view['name'])}/{channel.lower()}", self._logs.get((view["name"], channel))
        query = "tail=0" if at is None else f"offset={at[0]}&file={quote(at[1])}&limit={_LOG_BYTES}"
        try:
            headers, data = self._session.client.read(f"{page}?{query}")
        except DaemonRefused:
            return  # no log yet
        self._logs[view["name"], channel] = int(headers["x-next-offset"]), headers["x-file"]
        if at is not None and data:
            head = (
                f"processname:{view['name']} groupname:{group_of(view)} pid:{view['pid'] or 0} channel:{channel.lower()}\n"
            )
            self._send(f"PROCESS_LOG_{channel}", head + data.decode("utf-8", "replace"))


def state_of(kind: str, fields: dict[str, Any]) -> str | None:
    """Supervisor's state that a program enters by a fact; None if its state does not change.

    A program whose breaker is open, or that was given up, is FATAL, as `status` shows it to Supervisor's clients. An end
    before the program counts as started is a failed start (BACKOFF), of which crashmail sends no mail.
    """
    match kind:
        case "SpawnIntended":
            return "STARTING"
        case "BecameReady":
            return "RUNNING"
        case "StopIntended":
            return "STOPPING"
        case "Exited":
            early = "BACKOFF" if fields.get("early") else "EXITED"
            return "STOPPED" if fields["cause"] == "stopped" else early
        case "BackedOff":
            return "FATAL" if fields["slow"] else "BACKOFF"
        case "GaveUp":
            return "FATAL"
    return None
