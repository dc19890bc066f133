"""The actions of supervisorctl by name: on the command line and in its shell."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path

from supervisor.ctl.outcome import GENERIC, NOT_RUNNING, DaemonRefused, Failed, Unreachable
from supervisor.ctl.session import Session


def run(session: Session, words: list[str]) -> int:
    """Run one action and return its exit code. Every failure is printed as one sentence."""
    action, *args = words
    perform = _action(action)
    own = args[: args.index("--")] if "--" in args else args  # after `--` comes another program's command
    if perform is None:
        session.say(f"*** Unknown syntax: {' '.join(words)}")
        session.suggest(action, names())
        return GENERIC
    if "--help" in own or "-h" in own:
        return _help(session, [action])
    try:
        return perform(session, args)
    except Failed as failed:
        return _failed(session, str(failed), failed.code, as_json="--json" in own)
    except Unreachable as gone:
        code = NOT_RUNNING if isinstance(gone.__cause__, FileNotFoundError | ConnectionRefusedError) else GENERIC
        return _failed(session, str(gone), code, as_json="--json" in own)
    except DaemonRefused as refused:
        return _failed(session, f"ERROR: {refused}", GENERIC, as_json="--json" in own)


def _failed(session: Session, sentence: str, code: int, *, as_json: bool) -> int:
    if as_json:
        session.say_json({"error": sentence, "exit_code": code})
    else:
        session.say(sentence)
    return code


_WITHOUT_MODULE = {
    "exit": "exit, quit, Ctrl-D\n  Leave the shell.",
    "help": "help [ACTION]\n  What an action does, and how it is used.",
}
_ACTION = re.compile(
    r'^def ([a-z]\w*)\(session: Session, \w+: list\[str\]\) -> int:\n    """(`.*?)"""', re.MULTILINE | re.DOTALL
)
USAGE = """supervisorctl [options] [action [arguments]]

Talks to extralife's daemon over its control socket. Without an action: an interactive shell.

  -c, --configuration FILE  the daemon's configuration, which says where the socket is
  -s, --serverurl URL       the daemon itself: unix:///path/to/supervisor.sock or http://host:port
  -u, --username NAME       the user of [http], where the daemon asks for one
  -p, --password PASSWORD   and the password; `-p -` asks for it, or reads a line of standard input
      --state-dir DIR       the daemon's state directory
  -i, --interactive         open the shell after the action
  -r, --history-file FILE   the shell's history of commands
  -h, --help                this text
  --json                    the answer as JSON, as after the action
  -v, --version             the version of this client

Actions (`ACTION --help` explains one):

{actions}"""


def names() -> list[str]:
    return sorted({*_actions(), *_WITHOUT_MODULE})


@functools.cache
def _actions() -> dict[str, tuple[str, str]]:
    """(module, docstring) of each action: a function of its name, whose docstring begins with its usage.

    They are read from the sources: `--help` would take seconds to import all actions.
    """
    own = Path(__file__)
    of_features = own.parents[1].glob("features/*/verbs.py")
    paths = [*(each for each in own.parent.glob("*.py") if each != own), *of_features]
    modules = (".".join(path.with_suffix("").parts[len(own.parts) - 3 :]) for path in paths)
    sources = zip(modules, (path.read_text(encoding="utf-8") for path in paths), strict=True)
    # A name that Python or its linters reserve has an underscore at its end.
    return {
        name.rstrip("_").replace("_", "-"): (module, text)
        for module, source in sources
        for name, text in _ACTION.findall(source)
    }


def _action(name: str) -> Callable[[Session, list[str]], int] | None:
    module, _ = _actions().get(name, ("", ""))
    if not module:
        return {"help": _help, "--version": _own_version}.get(name)
    # Only the action's own module. A name that Python or its linters reserve has an underscore at its end.
    found, name = importlib.import_module(module), name.replace("-", "_")
    return getattr(found, name, None) or getattr(found, f"{name}_")  # type: ignore[no-any-return]


def description(name: str) -> str | None:
    """Usage and description of an action, from its docstring: "`USAGE`.", an empty line, the description."""
    if name not in _actions():
        return _WITHOUT_MODULE.get("exit" if name == "quit" else name)
    usage, _, rest = _actions()[name][1].partition("\n\n")
    first = " ".join(usage.split()).removeprefix("`").removesuffix("`.")
    return "\n  ".join([first, *(line.strip() for line in rest.strip().split("\n"))])


def usage(name: str) -> str | None:
    """An action and its arguments in one line; None if there is no such action."""
    text = description(name)
    return None if text is None else text.split("\n", maxsplit=1)[0]


def first_sentence(name: str) -> str:
    words = " ".join((description(name) or "").split("\n")[1:]).split()
    return re.split(r"(?<=[^.])[.;:] |\.$", " ".join(words))[0]


def _help(session: Session, args: list[str]) -> int:
    listed = names()
    wide = max(map(len, listed))
    lines = "" if args else "\n".join(f"  {name:<{wide}}  {first_sentence(name)}" for name in listed)
    told = description(args[0]) if args else USAGE.format(actions=lines)
    if told is None:
        session.say(f"*** No help on {args[0]}")
        session.suggest(args[0], listed)
        return 1
    session.say(f"usage: {told}" if args else told)
    return 0


def _own_version(session: Session, _: list[str]) -> int:
    from importlib.metadata import PackageNotFoundError, version  # takes 15 ms

    try:
        session.say(version("extralife"))
    except PackageNotFoundError:
        session.say("not installed")
    return 0
