"""`import`: a supervisord.conf as extralife's TOML, and a list of settings without a counterpart, with alternatives.

Every key of a program that Supervisor knows becomes a key of ours with the same meaning, or is listed with the reason why
not (docs/supervisor-compatibility.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor import config, users
from supervisor.config.source import toml
from supervisor.ctl import files, text
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.features.dialect.foreign_config import Section, processes, read
from supervisor.policy.script.placeholders import escaped

_CHANNELS: Final = ("stdout", "stderr")
_LOG_BYTES, _LOG_BACKUPS = 50 << 20, 10  # Supervisor's defaults
_LEAST_LOG_BYTES: Final = 4096
_HOSTS: Final = {"*": "0.0.0.0", "localhost": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104  as the file has it
_SAME: Final = {  # keys of [program:x] whose meaning holds here without a line of ours
    "killasgroup", "serverurl", "stdout_capture_maxbytes", "stderr_capture_maxbytes",
}  # fmt: skip


@dataclass(slots=True)
class Imported:
    """The TOML lines of each program, and notes on the settings that could not be imported."""

    programs: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    directory: str = ""  # where Supervisor ran programs without a `directory`
    log_events: dict[str, list[str]] = field(default_factory=lambda: {channel: [] for channel in _CHANNELS})
    """By channel: the programs whose output makes events."""
    secret: bool = False  # values of environment variables stand in the file

    def note(self, section: Section, key: str, why: str, *, value: bool = True) -> None:
        """`[program:web] stopsignal = INT: ...`."""
        shown = f" = {section.keys[key]}" if value and key in section.keys else ""
        self.notes.append(" ".join(f"[{section.name}] {key}{shown}: {why}".split()))


def import_(session: Session, args: list[str]) -> int:
    """`import FILE [--out FILE]`.

    A supervisord.conf as extralife's TOML, with a list of what has no counterpart and why; needs no daemon. --out writes
    it; without it, standard output has it and standard error the list.
    """
    words, options = parse_options(args, valued=("--out",))
    if len(words) != 1:
        raise Failed("Error: import requires a supervisord.conf", USAGE)
    found = translated(read(Path(words[0])))
    toml = page(found, words[0])
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "extralife.toml")
        file.write_text(toml, encoding="utf-8")
        try:
            config.load(str(file), {}, {"state_dir": f"{directory}/state"}, look=False)
        except config.ConfigError as error:
            raise Failed("Error: what was made of the file cannot be used: " + "; ".join(error.errors)) from None
    out = options.get("--out", "-")
    files.write(out, [toml], secret=found.secret)
    for note in dict.fromkeys(found.notes):
        session.warn(text.printable(note))
    if out != "-":
        session.say(f"{out}: {text.count(len(found.names), 'program')}; now: supervisord -c {out} --check")
    return OK


def page(found: Imported, source: str) -> str:
    lines = [f"# Made of {source} by extralifectl import."]
    lines += [f"# not taken over: {note}" for note in dict.fromkeys(found.notes)]
    for program in found.programs:
        lines += ["", *program]
    return "".join(f"{line}\n" for line in lines)


def translated(sections: list[Section]) -> Imported:
    """Translate all sections. Raises Failed."""
    found, listeners = Imported(), []
    groups = {
        program.strip(): section
        for section in sections if section.kind == "group"
        for program in section.text("programs").split(",")
    }  # fmt: skip
    daemon = next((section for section in sections if section.name == "supervisord"), None)
    found.directory = _directory(daemon, sections[0].file if sections else Path())
    for section in sections:
        if section.kind == "group" and "priority" in section.keys:
            found.note(section, "priority", "a group has no priority here; each program's own sets the order of the starts")
        if section.kind == "program":
            _program(found, section, groups.pop(section.title, None), daemon)
        elif section.kind == "eventlistener":
            listeners.append(section)
    for section in listeners:  # the programs that make events of their output are known now
        _listener(found, section, daemon)
    for name, section in groups.items():
        found.note(section, "programs", f"there is no [program:{name}]")
    for section in sections:
        _other(found, section)
        for key, names in section.from_environment.items():
            found.secret = True
            reason = f"holds the present value of {', '.join(sorted(names))}, so only the owner may read the file (0600)"
            found.note(section, key, reason, value=False)
    return found


def _directory(daemon: Section | None, file: Path) -> str:
    """The working directory of Supervisor's daemon: from its process if it runs, `/` as a service, else where we are."""
    if daemon is not None and (given := daemon.text("directory")):
        return given
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(daemon.text("pidfile") if daemon is not None else "").read_text(encoding="utf-8"))
        if b"supervisord" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return str(Path(f"/proc/{pid}/cwd").readlink())
    return "/" if file.resolve().is_relative_to("/etc") else str(Path.cwd())


def _other(found: Imported, section: Section) -> None:
    whys = {
        "unix_http_server": "the control socket lies in the runtime directory; for a group of users: [daemon] socket_group",
        "fcgi-program": "extralife opens no socket for its programs; let the program listen itself",
        "ctlplugin": "extralifectl has no plugins",
    }
    if section.name == "inet_http_server":
        host, _, port = section.text("port").rpartition(":")
        listen = f"{_HOSTS.get(host, host)}:{port}"
        user = section.text("username") or "extralife"
        found.notes.append(
            f"[{section.name}]: a port needs a file with its password that only the daemon's user may read (mode 0600): "
            f"[http] listen = {toml(listen)}, user = {toml(user)}, password_file = FILE (docs/security.md)"
        )
    if section.kind in whys and (section.kind != "unix_http_server" or {"chown", "chmod", "username"} & section.keys.keys()):
        found.notes.append(f"[{section.name}]: {whys[section.kind]}")
    if section.kind == "rpcinterface" and section.title != "supervisor":
        found.notes.append(f"[{section.name}]: the XML-RPC of Supervisor is built in, and there are no others")
    if section.name == "supervisord":
        for key in section.keys.keys() & {"minfds", "minprocs", "nocleanup", "strip_ansi", "identifier", "user"}:
            found.note(section, key, "set it where the daemon is started (docs/box.md)")


def _program(found: Imported, section: Section, group: Section | None, daemon: Section | None) -> None:
    for name, more in processes(section, group.title if group is not None else section.title):
        several = section.whole("numprocs", 1) > 1
        ours = _name(found, section, name, group.title if group is not None else section.title)
        lines = [f"[program.{ours}]", f"command = {_list(_command(section, more))}"]
        if group is not None or several:
            lines.append(f"group = {toml((group or section).title)}")
        lines += [*_keys(found, section, daemon, more), "stdin = true", *_user(found, section, more)]
        found.programs.append(lines)
        for channel in _CHANNELS:
            if section.flag(f"{channel}_events_enabled", default=False):
                found.log_events[channel].append(ours)
    for key in sorted(section.keys.keys() - section.used - _SAME - {"process_name", "numprocs_start"}):
        found.note(section, key, "has no counterpart")


def _name(found: Imported, section: Section, name: str, group: str) -> str:
    ours = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")[:64] or "program"
    if ours in found.names or ours == "all":
        ours = f"{group}_{ours}"[:64]
    if ours in found.names:
        raise section.wrong("process_name", f"there are two programs of the name {ours}; rename one of them")
    if ours != name:
        found.notes.append(f"[{section.name}]: {name} is called {ours}")
    found.names.add(ours)
    return ours


def _keys(found: Imported, section: Section, daemon: Section | None, more: dict[str, str | int]) -> Iterator[str]:
    directory = section.text("directory", more=more) or found.directory
    yield f"directory = {_literal(os.path.abspath(os.path.expanduser(directory)))}"  # noqa: PTH100, PTH111
    environment = {**(daemon.pairs("environment") if daemon is not None else {}), **section.pairs("environment", more)}
    if environment:
        yield f"env = {{ {', '.join(f'{toml(key)} = {_literal(value)}' for key, value in environment.items())} }}"
    if not section.flag("autostart", default=True):
        yield "autostart = false"
    yield f"priority = {min(max(section.whole('priority', 999), 0), 1_000_000)}"
    yield f"stop_grace_s = {float(section.whole('stopwaitsecs', 10))}"
    if not section.flag("stopasgroup", default=False):
        yield 'stop_signal_to = "leader"'
    signal = section.text("stopsignal", "TERM").upper().removeprefix("SIG")
    if signal not in {"TERM", "15"}:
        yield f"stop_signal = {toml(signal)}"
    restart = section.text("autorestart", "unexpected").lower()
    if restart != "unexpected":
        yield f"restart = {toml('always' if section.flag('autorestart', default=True) else 'never')}"
    else:
        codes = sorted({int(code) for code in section.text("exitcodes", "0").split(",") if code.strip().isdecimal()})
        if codes != [0]:
            yield f"done_codes = {json.dumps([code for code in codes if code <= 255])}"
    yield 'kind = "service"'
    yield f"start_s = {float(max(section.whole('startsecs', 1), 0))}"
    yield f"start_retries = {min(max(section.whole('startretries', 3), 0), 1_000_000)}"
    mask = section.text("umask") or (daemon.text("umask") if daemon is not None else "")
    if mask and not re.fullmatch(r"[0-7]{1,4}", mask):
        raise section.wrong("umask", f"{mask!r} is no octal number")
    if mask:
        yield f"umask = {toml(mask)}"
    yield from _logs(found, section, more)


def _user(found: Imported, section: Section, more: dict[str, str | int]) -> Iterator[str]:
    name = section.text("user", more=more)
    if not name:
        return
    try:
        own = users.find(name).uid == os.geteuid()
    except users.UnknownUser:
        own = False
        found.note(section, "user", "this box has no such user now; the program starts once there is one")
    if not own:
        yield f"user = {toml(name)}"


def _logs(found: Imported, section: Section, more: dict[str, str | int]) -> Iterator[str]:
    one = section.flag("redirect_stderr", default=False)
    if one:
        yield "redirect_stderr = true"
    for channel in _CHANNELS:
        log = section.text(f"{channel}_logfile", "AUTO", more)
        if log == "/dev/null":
            log = "NONE"
        if log.startswith("/dev/"):
            found.note(section, f"{channel}_logfile", f"its log is programs/NAME/{channel}.log in the state directory")
        elif log.upper() != "AUTO" and not (one and channel == "stderr"):
            yield f"{channel}_log = {toml(log if log.upper() == 'NONE' else os.path.abspath(log))}"  # noqa: PTH100
        if section.flag(f"{channel}_syslog", default=False):
            found.note(section, f"{channel}_syslog", "extralife sends no program's output to syslog")
    of = ("stdout",) if one else _CHANNELS
    # One limit applies to both logs here: the larger of those given. Supervisor's default for the other would hide it.
    given = [channel for channel in of if f"{channel}_logfile_maxbytes" in section.keys] or of
    sizes = [section.size_bytes(f"{channel}_logfile_maxbytes", _LOG_BYTES) for channel in given]
    most = 0 if 0 in sizes else min(max(*sizes, _LEAST_LOG_BYTES), 1 << 40)  # 0: never rotated, as with Supervisor
    yield f"log_max_bytes = {most}"
    yield f"log_backups = {min(max(section.whole(f'{channel}_logfile_backups', _LOG_BACKUPS) for channel in of), 1000)}"


def _command(section: Section, more: dict[str, str | int]) -> list[str]:
    line = section.text("command", more=more)
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise section.wrong("command", str(error)) from None
    if not argv:
        raise section.wrong("command", "is missing")
    return argv


def _listener(found: Imported, section: Section, daemon: Section | None) -> None:
    """An event listener becomes a child of `extralifectl listen`, which sends it the journal's facts as events."""
    logs = [word for channel in _CHANNELS for word in (f"--{channel}-of", ",".join(found.log_events[channel]))]
    events = section.text("events")
    if not events:
        raise section.wrong("events", "is missing")
    section.used |= {"buffer_size", "result_handler"}
    # Our client: by the name that only we use, or by its interpreter if PATH lacks that name.
    ourselves = ["extralifectl"] if shutil.which("extralifectl") else [sys.executable, "-P", "-m", "supervisor.ctl"]
    for name, more in processes(section, section.title):
        ours = _name(found, section, name, section.title)
        own = [*_as_user(found, section, section.text("user", more=more)), *_command(section, more)]
        # It reads the journal as the daemon's user.
        command = [*ourselves, "listen", events.replace(" ", ""), *logs, "--", *own]
        lines = [f"[program.{ours}]", f"command = {_list(command)}", *_keys(found, section, daemon, more)]
        found.programs.append(lines)


def _as_user(found: Imported, section: Section, name: str) -> list[str]:
    """A command prefix that starts a listener as another user. The parent, `listen`, remains the daemon's user."""
    if not name:
        return []
    try:
        user = users.find(name)
    except users.UnknownUser:
        found.note(section, "user", "this box has no such user; the listener runs as the daemon's")
        return []
    other = ["setpriv", f"--reuid={user.name}", f"--regid={user.gid}", "--init-groups", "--"]
    return [] if user.uid == os.geteuid() else other


def _literal(value: str) -> str:
    """A TOML string with escaped braces: braces are placeholders here, and plain text in Supervisor."""
    return toml(escaped(value))


def _list(words: list[str]) -> str:
    return f"[{', '.join(map(_literal, words))}]"
