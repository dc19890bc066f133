"""`import`: a supervisord.conf as extralife's TOML, and a list of what has no counterpart, with what to do instead.

What a program needs before it starts and has no setting of ours (`umask`, `redirect_stderr`, another user, no log) is done
by its command: `sh -c 'umask 022; exec "$@" 2>&1'`, or `setpriv`. `exec` keeps the process id and the signals.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor import config
from supervisor.config.tables import COMMON_KEYS, FOREIGN_KEYS
from supervisor.ctl import files, text
from supervisor.ctl.foreign_config import Section, processes, read
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, take

_KNOWN: Final = {*COMMON_KEYS, *FOREIGN_KEYS}
_CHANNELS: Final = ("stdout", "stderr")
_DEFAULT_LOG_BYTES: Final = 50 << 20
_HOSTS: Final = {"*": "0.0.0.0", "localhost": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104  as the file has it
_SAME: Final = {  # by meaning: keys of [program:x] that need no line of ours
    "startsecs", "startretries", "killasgroup", "serverurl", "stdout_capture_maxbytes", "stderr_capture_maxbytes",
}  # fmt: skip


@dataclass(slots=True)
class Imported:
    """The TOML of each part, and what could not be taken over."""

    programs: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    log_bytes: int = 0
    log_backups: int = 0

    def note(self, section: Section, key: str, why: str) -> None:
        """`[program:web] stopsignal = INT: ...`."""
        value = f" = {section.keys[key]}" if key in section.keys else ""
        self.notes.append(" ".join(f"[{section.name}] {key}{value}: {why}".split()))


def import_(session: Session, args: list[str]) -> int:
    """`import FILE [--out FILE]`.

    A supervisord.conf as extralife's TOML, with a list of what has no counterpart and why; needs no daemon. --out writes
    it; without it, standard output has it and standard error the list.
    """
    words, options = take(args, valued=("--out",))
    if len(words) != 1:
        raise Failed("Error: import requires a supervisord.conf", USAGE)
    found = translated(read(Path(words[0])))
    toml = page(found, words[0])
    _checked(toml)
    out = options.get("--out", "-")
    files.write(out, [toml])
    for note in dict.fromkeys(found.notes):
        session.warn(text.harmless(note))
    if out != "-":
        session.say(f"{out}: {len(found.names)} programs; now: supervisord -c {out} --check")
    return OK


globals()["import"] = import_  # how the table of actions finds it; the word itself cannot name a function


def _checked(toml: str) -> None:
    """What is printed can be used as it is. Raises Failed with what our own check says of it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "extralife.toml")
        file.write_text(toml)
        try:
            config.load(str(file), {}, {"state_dir": f"{directory}/state"}, look=False)
        except config.ConfigError as error:
            raise Failed("Error: what was made of the file cannot be used: " + "; ".join(error.errors)) from None


def page(found: Imported, source: str) -> str:
    """The whole file."""
    lines = [f"# Made of {source} by supervisorctl import."]
    lines += [f"# not taken over: {note}" for note in dict.fromkeys(found.notes)]
    if found.log_bytes:
        lines += ["", "[daemon]", f"log_max_bytes = {found.log_bytes}", f"log_backups = {found.log_backups}"]
    for program in found.programs:
        lines += ["", *program]
    return "".join(f"{line}\n" for line in lines)


def translated(sections: list[Section]) -> Imported:
    """All sections. Raises Failed."""
    found = Imported()
    groups = {
        program.strip(): section
        for section in sections if section.kind == "group"
        for program in section.text("programs").split(",")
    }  # fmt: skip
    daemon = next((section for section in sections if section.name == "supervisord"), None)
    for section in sections:
        if section.kind == "program":
            _program(found, section, groups.pop(section.title, None), daemon)
        elif section.kind == "eventlistener":
            _listener(found, section, daemon)
    for name, section in groups.items():
        found.note(section, "programs", f"there is no [program:{name}]")
    for section in sections:
        _other(found, section)
    return found


def _other(found: Imported, section: Section) -> None:
    """Sections that are no programs."""
    whys = {
        "unix_http_server": "the control socket lies in the runtime directory; for a group of users: [daemon] socket_group",
        "fcgi-program": "extralife opens no socket for its programs; let the program listen itself",
        "ctlplugin": "supervisorctl has no plugins",
    }
    if section.name == "inet_http_server":
        host, _, port = section.text("port").rpartition(":")
        listen = f"{_HOSTS.get(host, host)}:{port}"
        user = section.text("username") or "extralife"
        found.notes.append(
            f"[{section.name}]: a port needs a file with its password that only the daemon's user may read (mode 0600): "
            f"[http] listen = {_text(listen)}, user = {_text(user)}, password_file = FILE (docs/security.md)"
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
        lines = [f"[program.{ours}]", f"command = {_list(_command(found, section, daemon, more))}"]
        if group is not None or several:
            lines.append(f"group = {_text((group or section).title)}")
        lines += _keys(found, section, daemon, more)
        found.programs.append(lines)
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
    """The settings of a program besides its command."""
    directory = section.text("directory", more=more) or (daemon.text("directory") if daemon is not None else "")
    if directory:
        yield f"directory = {_text(os.path.abspath(os.path.expanduser(directory)))}"  # noqa: PTH100, PTH111
    environment = {**(daemon.pairs("environment") if daemon is not None else {}), **section.pairs("environment", more)}
    if environment:
        yield f"env = {{ {', '.join(f'{_text(key)} = {_text(value)}' for key, value in environment.items())} }}"
    if not section.flag("autostart", default=True):
        yield "autostart = false"
    yield f"priority = {min(max(section.whole('priority', 999), 0), 1_000_000)}"
    yield f"stop_grace_s = {float(section.whole('stopwaitsecs', 10))}"
    if not section.flag("stopasgroup", default=False):
        yield 'stop_signal_to = "leader"'
    signal = section.text("stopsignal", "TERM").upper().removeprefix("SIG")
    if signal not in {"TERM", "15"}:
        if "stop_signal" in _KNOWN:
            yield f"stop_signal = {_text(signal)}"
        else:
            found.note(section, "stopsignal", "extralife sends SIGTERM")
    yield from _ends(section)
    yield 'kind = "service"'
    for channel in _CHANNELS:
        found.log_bytes = max(found.log_bytes, min(section.size_bytes(f"{channel}_logfile_maxbytes", 0), 1 << 40))
        found.log_backups = max(found.log_backups, min(section.whole(f"{channel}_logfile_backups", 10), 1000))


def _ends(section: Section) -> Iterator[str]:
    """Which end is followed by a restart."""
    restart = section.text("autorestart", "unexpected").lower()
    if restart != "unexpected":
        yield f"restart = {_text('always' if section.flag('autorestart', default=True) else 'never')}"
        return
    codes = sorted({int(code) for code in section.text("exitcodes", "0").split(",") if code.strip().isdecimal()})
    if codes != [0]:
        yield f"done_codes = {json.dumps([code for code in codes if code <= 255])}"


def _command(found: Imported, section: Section, daemon: Section | None, more: dict[str, str | int]) -> list[str]:
    """The program's argument list, behind what has to be done before it starts."""
    line = section.text("command", more=more)
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise section.wrong("command", str(error)) from None
    if not argv:
        raise section.wrong("command", "is missing")
    mask = section.text("umask") or (daemon.text("umask") if daemon is not None else "")
    if mask and not mask.isdecimal():
        raise section.wrong("umask", f"{mask!r} is no octal number")
    before = [f"umask {mask}"] if mask else []
    after = _redirected(found, section, more)
    if before or after:
        argv = ["sh", "-c", "; ".join([*before, " ".join(['exec "$@"', *after])]), section.title, *argv]
    user = section.text("user", more=more)
    return [*_as_user(found, section, user), *argv] if user else argv


def _redirected(found: Imported, section: Section, more: dict[str, str | int]) -> list[str]:
    """What a shell has to do about the two channels. Extralife's own logs are rotated, and `tail` reads them."""
    one = section.flag("redirect_stderr", default=False)
    words = []
    for channel, none in (("stdout", ">/dev/null"), ("stderr", "2>/dev/null")):
        log = section.text(f"{channel}_logfile", "AUTO", more)
        if channel == "stderr" and one:
            words.append("2>&1")
        elif log.upper() == "NONE":
            words.append(none)
        elif log.startswith("/") and not log.startswith("/dev/"):
            found.note(section, f"{channel}_logfile", f"its log is programs/NAME/{channel}.log in the state directory")
        if section.flag(f"{channel}_syslog", default=False):
            found.note(section, f"{channel}_syslog", "extralife sends no program's output to syslog")
        if section.flag(f"{channel}_events_enabled", default=False):
            found.note(section, f"{channel}_events_enabled", "output makes no events")
    return words


def _as_user(found: Imported, section: Section, user: str) -> list[str]:
    try:
        known = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        found.note(section, "user", "this box has no such user; the program runs as the daemon's")
        return []
    if known.pw_uid == os.geteuid():
        return []
    return ["setpriv", f"--reuid={known.pw_name}", f"--regid={known.pw_gid}", "--init-groups", "--"]


def _listener(found: Imported, section: Section, daemon: Section | None) -> None:
    """An event listener runs below `supervisorctl listen`, which gives it the journal's facts as Supervisor's events."""
    events = section.text("events")
    if not events:
        raise section.wrong("events", "is missing")
    section.used |= {"buffer_size", "result_handler"}
    for name, more in processes(section, section.title):
        ours = _name(found, section, name, section.title)
        command = [*_ourselves(), "listen", events.replace(" ", ""), "--", *_command(found, section, daemon, more)]
        lines = [f"[program.{ours}]", f"command = {_list(command)}", *_keys(found, section, daemon, more)]
        found.programs.append(lines)


def _ourselves() -> list[str]:
    """Our client by the name that is no one else's, or, where no shell finds it, by its interpreter."""
    return ["extralifectl"] if shutil.which("extralifectl") else [sys.executable, "-m", "supervisor.ctl"]


def _list(words: list[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
