"""The actions of supervisorctl by name: on the command line and in its shell."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.ctl.session import Session


def run(session: Session, words: list[str]) -> int:
    """One action; returns its exit code. Everything that can go wrong is one sentence."""
    from supervisor.ctl.client import Refused, Unreachable
    from supervisor.ctl.outcome import GENERIC, NOT_RUNNING, Failed

    action, *args = words
    perform = _action(action)
    if perform is None:
        session.say(f"*** Unknown syntax: {' '.join(words)}")
        return GENERIC
    try:
        return perform(session, args)
    except Failed as failed:
        session.say(str(failed))
        return failed.code
    except Unreachable as gone:
        session.say(str(gone))
        return NOT_RUNNING if isinstance(gone.__cause__, FileNotFoundError | ConnectionRefusedError) else GENERIC
    except Refused as refused:
        session.say(f"ERROR: {refused}")
        return GENERIC


_VERBS = (
    "start", "stop", "restart", "signal", "clear", "pid", "avail", "reread", "update", "shutdown", "reload", "version",
    "config",
)  # fmt: skip
_MODULES = {  # of each action that is no page, or has no module of its own: where a function of its name is
    **dict.fromkeys(_VERBS, "verbs"),
    **dict.fromkeys(("history", "explain", "reboots", "journal"), "story"),
    **dict.fromkeys(("backup", "backups", "rollback"), "backup"),
    **dict.fromkeys(("tail", "maintail"), "tail"),
    "doctor": "doctor", "export": "export", "metrics": "metrics", "simulate": "simulate", "wait-gpu": "wait_gpu",
}  # fmt: skip
_NO_ACTION = {
    "facts",
    "incidents",
    "timeline",
    "days",
    "curves",
    "recorded",
}  # history, explain, reboots, journal and export show them
_ALONE = {"exit": "exit, quit, Ctrl-D\n  Leave the shell.", "help": "help [ACTION]"}
USAGE = """supervisorctl [options] [action [arguments]]

Talks to extralife's daemon over its control socket. Without an action: an interactive shell.

  -c, --configuration FILE  the daemon's configuration, which says where the socket is
  -s, --serverurl URL       the socket itself: unix:///path/to/supervisor.sock
      --state-dir DIR       the daemon's state directory
  -i, --interactive         open the shell after the action
  -r, --history-file FILE   the shell's history of commands
  -h, --help                this text
  -v, --version             the version of this client

Actions (`help ACTION` explains one): {actions}"""


def names() -> list[str]:
    """All actions, sorted."""
    return sorted({*_modules(), *_ALONE})


def _modules() -> dict[str, str]:
    from supervisor.reports.pages import PAGES

    return {name: name for name in PAGES if name not in _NO_ACTION} | _MODULES


def _action(name: str) -> Callable[[Session, list[str]], int] | None:
    """What an action does."""
    own = {"help": _help, "--version": _own_version}.get(name)
    module = _MODULES.get(name) or _modules().get(name)
    return own if module is None else _of(module, name)


def _of(module: str, name: str) -> Callable[[Session, list[str]], int]:
    """Only the action's own module is imported: a `pid` in a script's loop must not pay for the shell."""
    return getattr(importlib.import_module(f"supervisor.ctl.{module}"), name.replace("-", "_"))  # type: ignore[no-any-return]


def _about(name: str) -> str | None:
    """How an action is used, and what it does, by its docstring: "`USAGE`.", an empty line, and the rest."""
    module = _modules().get(name)
    if module is None:
        return _ALONE.get("exit" if name == "quit" else name)
    perform = _of(module, name)
    usage, _, rest = (perform.__doc__ or "").partition("\n\n")
    first = " ".join(usage.split()).removeprefix("`").removesuffix("`.")
    return "\n  ".join([first, *(line.strip() for line in rest.strip().split("\n"))])


def _help(session: Session, args: list[str]) -> int:
    told = _about(args[0]) if args else USAGE.format(actions=", ".join(names()))
    if told is None:
        session.say(f"*** No help on {args[0]}")
        return 1
    session.say(f"usage: {told}" if args else told)
    return 0


def _own_version(session: Session, _: list[str]) -> int:
    from importlib.metadata import PackageNotFoundError, version

    try:
        session.say(version("extralife"))
    except PackageNotFoundError:
        session.say("not installed")
    return 0
