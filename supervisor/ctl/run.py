"""`run` and `remove`: add a command of this shell to the running daemon as a program, and remove it again.

A file in the state directory holds the program (`config/added.py`). Only the daemon's user and root may write there. So a
user who may only use the control socket cannot start a command of their own.

From the shell's environment, a program gets the variables that the daemon's environment lacks, or that differ in it. `run`
leaves out variables of the session (TERM, SSH_..., PWD). It also leaves out variables whose name looks like a secret, unless
`--env` names them. The file has mode 0600, and the journal holds only a digest of the section.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from supervisor import places
from supervisor.adapters import durable
from supervisor.config import added
from supervisor.config.source import toml
from supervisor.ctl import locate, text
from supervisor.ctl.outcome import GENERIC, OK, USAGE, DaemonRefused, Failed
from supervisor.ctl.session import Session, parse_options, split_command
from supervisor.model.names import members, plain
from supervisor.policy.script.placeholders import escaped

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH|WEBHOOK", re.IGNORECASE)
_SESSION: Final = re.compile(
    r"_|PWD|OLDPWD|SHLVL|SHELL|HOME|USER|LOGNAME|MAIL|HOSTNAME|TERM.*|COLORTERM|COLUMNS|LINES|PS[1-4]|PROMPT.*|LS_COLORS|LESS.*"
    r"|EDITOR|VISUAL|PAGER|DISPLAY|WAYLAND.*|XAUTHORITY|XDG_.*|DBUS_.*|SSH_.*|SUDO_.*|TMUX.*|STY|WINDOW|HIST.*|VSCODE_.*|GIT_.*"
    r"|BASH.*|ZSH.*|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|WATCHDOG_.*|LISTEN_.*|MAINPID|EXTRALIFE_.*|RL_.*"
)


def run(session: Session, args: list[str]) -> int:
    """`run [--name NAME] [--env NAME[=VALUE]] .. [--set KEY=VALUE] .. [--save] [--json] -- COMMAND [ARGUMENT ..]`.

    Put a command under the running daemon: its directory, its program and the environment are those of this shell.
    It is there after a reboot too, until `remove`. --save writes it into the configuration file.
    """
    own, command = split_command(args)
    if not command:
        raise Failed("Error: run needs a command behind --, such as: run -- python train.py", USAGE)
    pairs: dict[str, list[str]] = {"--env": [], "--set": []}
    words, options = parse_options(own, "--save", "--json", valued=("--name",), repeated=pairs)
    if words:
        raise Failed(f"Error: {words[0]} stands before --; the command comes behind it: run -- {words[0]} ...", USAGE)
    state_dir = locate.state_dir(session.options)
    if state_dir is None:
        raise Failed("Error: run writes into the daemon's state directory; name it with -c FILE or --state-dir DIR", USAGE)
    if not os.access(state_dir, os.W_OK | os.X_OK):
        raise Failed(f"ERROR: {state_dir} cannot be written: run this as the user of the daemon, or as root")
    status = session.client.get("/api/v1/status")
    known = {view["name"] for view in status["programs"]}
    name = _name(options.get("--name"), command, known)
    environment, left_out = _environment(pairs["--env"], status["daemon"].get("pid"))
    section = _section(name, _found(command), environment, pairs["--set"])
    path, take_back = _saved(session, section) if "--save" in options else _added(state_dir, name, section)
    try:
        _update(session, name)
    except Failed:
        take_back()
        raise
    if "--json" in options:
        session.say_json({"name": name, "file": str(path), "env": sorted(environment), "left_out": left_out})
        return OK
    session.say(f"{name}: added process group")
    names = ", ".join(sorted(environment)) or "as the daemon has it"
    session.warn(f"{name}: in {path}, directory {text.printable(Path.cwd())}, environment: {names}")
    if left_out:
        session.warn(f"left out, because the name looks like a secret: {', '.join(left_out)}; --env {left_out[0]} passes it")
    return OK


def remove(session: Session, args: list[str]) -> int:
    """`remove NAME .. [--json]`.

    Stop programs in order and take them out of use. What `run` has added is gone for good; a section of the configuration
    file comes back at the next `update`. Checkpoints and logs stay.
    """
    names, options = parse_options(args, "--json")
    if not names:
        raise Failed("Error: remove needs the name of a program", USAGE)
    views = session.client.get("/api/v1/status")["programs"]
    known = {view["name"] for view in views}
    done, unknown = [], []
    for name in dict.fromkeys(name for spec in names for name in members(spec, views) or [plain(spec)]):
        file = _added_file(session, name)
        if file is not None:
            _unlink(file)
            _update(session, name)
        elif name in known:
            answer: dict[str, Any] = session.client.post("/api/v1/remove", {"name": name})
            if answer["text"]:
                session.warn(text.printable(answer["text"]))
        else:
            unknown.append(name)
            continue
        done.append(name)
    if "--json" in options:
        session.say_json({"removed": done, "unknown": unknown})
        return GENERIC if unknown else OK
    for name in done:
        session.say(f"{name}: removed process group")
    for name in unknown:
        session.say(f"ERROR: no such process/group: {text.printable(name)}")
        session.suggest(name, known)
    return GENERIC if unknown else OK


def _added_file(session: Session, name: str) -> Path | None:
    """The file of a program that `run` has added; None if there is none, or if this user may not look."""
    state_dir = locate.state_dir(session.options)
    if state_dir is None or not _NAME.fullmatch(name):
        return None
    file = added.path_of(state_dir, name)
    try:
        file.stat()
    except PermissionError:  # a member of daemon.socket_group
        session.warn(f"{name}: if `run` has added it, it comes back at the next update: this user cannot remove {file}")
    except OSError:
        pass
    else:
        return file
    return None


# --- the request ---------------------------------------------------------------------------------------------------------


def _name(asked: str | None, command: list[str], known: set[str]) -> str:
    """The requested name, or that of the script: `python train.py` becomes `train`, or `train-2` if `train` exists."""
    if asked is not None:
        if not _NAME.fullmatch(asked) or asked == "all":
            raise Failed(f"Error: {asked!r} is no name: 1 to 64 letters, digits, _ . -, not beginning with . or -", USAGE)
        if asked in known:
            raise Failed(f"ERROR: there is a program {asked}; choose another --name, or remove that one first")
        return asked
    script = next((word for word in command[:4] if word.endswith((".py", ".sh"))), command[0])
    base = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(script).stem).strip(".-")[:56] or "run"
    names = (base, *(f"{base}-{number}" for number in range(2, len(known) + 3)))
    return next(name for name in names if name not in known and name != "all")


def _found(command: list[str]) -> list[str]:
    """The command with the full path of its program, because the daemon has another PATH."""
    program = shutil.which(command[0])
    if program is None:
        raise Failed(f"ERROR: {command[0]}: no such program in this shell's PATH")
    return [os.path.abspath(program), *command[1:]]  # noqa: PTH100  Path.absolute keeps the .. of a path


def _environment(asked: list[str], daemon: int | None) -> tuple[dict[str, str], list[str]]:
    """(variables for the program, names that were left out because they look like secrets)."""
    theirs = _environ_of(daemon)
    taken: dict[str, str] = {}
    left_out = []
    for name, value in sorted(os.environ.items()):
        if theirs.get(name) == value or not _VARIABLE.fullmatch(name) or _SESSION.fullmatch(name):
            continue
        if _SECRET.search(name):
            left_out.append(name)
        else:
            taken[name] = value
    for word in asked:
        name, given, value = word.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise Failed(f"Error: --env {word!r} is neither NAME nor NAME=VALUE", USAGE)
        if not given and name not in os.environ:
            raise Failed(f"Error: --env {name}: this shell has no such variable; give --env {name}=VALUE", USAGE)
        taken[name] = value if given else os.environ[name]
    return taken, [name for name in left_out if name not in taken]


def _environ_of(pid: int | None) -> dict[str, str]:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(word).partition("=")[::2] for word in words if word)


def _section(name: str, command: list[str], environment: dict[str, str], settings: list[str]) -> str:
    """The section as TOML. A brace in the shell's command is escaped: it is plain text, not a placeholder."""
    lines = [
        f"[program.{_text(name)}]",
        f"command = [{', '.join(_text(escaped(word)) for word in command)}]",
        f"directory = {_text(escaped(str(Path.cwd())))}",
    ]
    for word in settings:
        key, given, value = word.partition("=")
        if not given or not re.fullmatch(r"[a-z_]+", key) or "\n" in value:
            raise Failed(f"Error: --set {word!r} is not KEY=VALUE, such as --set stop_grace_s=60", USAGE)
        lines.append(f"{key} = {_value(value)}")
    if environment:
        lines.append(f"[program.{_text(name)}.env]")
        lines += [f"{key} = {_text(escaped(value))}" for key, value in environment.items()]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A TOML string. Raises Failed if the value is not valid UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Failed(f"ERROR: {value!r} is not UTF-8, and a configuration cannot hold it") from None
    return toml(value)


def _value(value: str) -> str:
    """The value itself if it is valid TOML, such as 60, true or [0, 3]; else a TOML string."""
    try:
        tomllib.loads(f"value = {value}")
    except ValueError:
        return _text(value)
    return value


# --- the file of the section ---------------------------------------------------------------------------------------------


def _added(state_dir: str, name: str, section: str) -> tuple[Path, Callable[[], None]]:
    """(the file that holds the section now, what removes it again)."""
    path = added.path_of(state_dir, name)
    owner = Path(state_dir).stat()
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700)
            os.chown(path.parent, owner.st_uid, owner.st_gid)
            durable.sync_directory(state_dir)
        durable.replace(
            path, section.encode(), aside=path.with_name(f".{name}.new"),
            before_rename=lambda: os.chown(path.with_name(f".{name}.new"), owner.st_uid, owner.st_gid),
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"ERROR: {path} cannot be written: {error.strerror}") from None
    return path, lambda: _unlink(path)


def _saved(session: Session, section: str) -> tuple[Path, Callable[[], None]]:
    """Append the section to the configuration file; its other content stays unchanged."""
    found = session.options.config_file or places.find_config(os.environ)
    if found is None:
        raise Failed(
            "ERROR: there is no configuration file to save it in; start the daemon with -c FILE, or leave out --save"
        )
    path = Path(os.path.realpath(found))
    try:
        before = path.read_bytes()
        _replace(path, before.rstrip() + b"\n\n" + section.encode())
    except OSError as error:
        raise Failed(f"ERROR: {path} cannot be written: {error.strerror}") from None
    return path, lambda: _replace(path, before)


def _replace(path: Path, data: bytes) -> None:
    """Replace the content atomically, and keep owner and mode."""
    found, aside = path.stat(), path.with_name(f".{path.name}.new")

    def as_before() -> None:
        os.chown(aside, found.st_uid, found.st_gid)
        aside.chmod(found.st_mode & 0o7777)

    durable.replace(path, data, aside=aside, before_rename=as_before)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        durable.sync_directory(path.parent)
    except OSError as error:
        raise Failed(f"ERROR: {path} cannot be removed: {error.strerror}") from None


# --- asking the daemon ---------------------------------------------------------------------------------------------------


def _update(session: Session, name: str) -> None:
    try:
        session.client.post("/api/v1/update", {"names": [name], "dry_run": False})
    except DaemonRefused as refused:
        raise Failed(f"ERROR: {text.printable(refused)}") from None
