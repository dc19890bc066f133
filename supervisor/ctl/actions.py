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
_MODULES = {  # of each action: where a function of its name is
    **dict.fromkeys(_VERBS, "verbs"),
    **dict.fromkeys(("history", "explain", "reboots", "journal"), "story"),
    **dict.fromkeys(("backup", "backups", "rollback"), "backup"),
    **dict.fromkeys(("tail", "maintail"), "tail"),
    **{name: name for name in ("accounts", "alerts", "cost", "doctor", "level", "results", "simulate", "status")},
    "wait-gpu": "wait_gpu",
}


def _action(name: str) -> Callable[[Session, list[str]], int] | None:
    """What an action does. Only its own module is imported: a `pid` in a script's loop must not pay for the shell."""
    if name in _MODULES:
        module = importlib.import_module(f"supervisor.ctl.{_MODULES[name]}")
        return getattr(module, name.replace("-", "_"))  # type: ignore[no-any-return]
    return {"help": _help, "--version": _own_version}.get(name)


def _help(session: Session, args: list[str]) -> int:
    from supervisor.ctl import help as helps

    told = helps.about(args[0]) if args else helps.usage()
    session.say(f"*** No help on {args[0]}" if told is None else told)
    return 0 if told is not None else 1


def _own_version(session: Session, _: list[str]) -> int:
    from importlib.metadata import PackageNotFoundError, version

    try:
        session.say(version("extralife"))
    except PackageNotFoundError:
        session.say("not installed")
    return 0
