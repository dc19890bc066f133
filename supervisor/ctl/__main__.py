"""supervisorctl: `python -m supervisor.ctl`, or the installed script."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.ctl.session import Options, Session

_VALUED = {
    "-c": "config_file", "--configuration": "config_file", "-s": "socket", "--serverurl": "socket",
    "--state-dir": "state_dir", "-r": "history_file", "--history-file": "history_file",
}  # fmt: skip


def main() -> int:
    """The installed script's entry point."""
    from supervisor.ctl.session import Failed, Session

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding still shows the rest
    try:
        options, words = parse(sys.argv[1:])
        session = Session(options)
        if not words or options.interactive:
            from supervisor.ctl.shell import shell

            return shell(session, words)
        return run(session, words)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return failed.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has left (`supervisorctl history | head`): nothing to complain about, nor at the final flush.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def parse(argv: list[str]) -> tuple[Options, list[str]]:
    """(options, the action and its arguments). argparse would take a third of the time that `status` takes."""
    from supervisor.ctl.session import USAGE, Failed, Options

    options, rest = Options(), list(argv)
    while rest and rest[0].startswith("-"):
        arg = rest.pop(0)
        name, given, value = arg.partition("=")
        if arg in {"-h", "--help"}:
            return options, ["help"]
        if arg in {"-v", "--version"}:
            return options, ["--version"]
        if arg in {"-i", "--interactive"}:
            options.interactive = True
        elif name in _VALUED:
            if not given and not rest:
                raise Failed(f"Error: {name} needs a value", USAGE)
            setattr(options, _VALUED[name], value if given else rest.pop(0))
        else:
            raise Failed(f"Error: unknown option {arg}; see supervisorctl --help", USAGE)
    if options.socket is not None:
        if not options.socket.startswith("unix://") or len(options.socket) == len("unix://"):
            raise Failed(f"Error: -s takes unix:///path/to/socket, not {options.socket!r}", USAGE)
        options.socket = options.socket.removeprefix("unix://")
    return options, rest


def run(session: Session, words: list[str]) -> int:
    """One action; returns its exit code. Everything that can go wrong is one sentence."""
    from supervisor.ctl.client import Refused, Unreachable
    from supervisor.ctl.session import GENERIC, NOT_RUNNING, Failed

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


if __name__ == "__main__":
    sys.exit(main())
