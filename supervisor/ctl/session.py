"""One run of extralifectl: its options, the connection to the daemon, and the fallback without a daemon."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote as quoted

from supervisor.ctl import text
from supervisor.ctl.locate import socket_path, state_dir
from supervisor.ctl.outcome import NOT_RUNNING, USAGE, Failed, Options, Unreachable
from supervisor.model.names import members, plain
from supervisor.printable import printable

if TYPE_CHECKING:
    from supervisor.ctl.client import Client
    from supervisor.ctl.offline import DeadDaemon

# The format version of every object that `--json` prints, errors included. A new key does not change it. A removed key, or a
# new meaning or unit of a key, does.
JSON_VERSION = 1
_PAGE = 5000
_GONE = (FileNotFoundError, ConnectionRefusedError)


class Session:
    """Finds the daemon when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            from supervisor.ctl.client import Client  # HTTP and TLS are half of the time of `--help`

            self._client = Client(self.options.socket or socket_path(self.options), _login(self.options))
        return self._client

    def connect(self, place: str) -> None:
        """Talk to the daemon at a path or a URL from now on."""
        self.options.socket, self.options.config_file, self.options.state_dir = place, None, None
        self._client = None

    def say(self, line: str = "") -> None:
        print(line)

    def say_json(self, found: dict[str, Any]) -> None:
        """The answer of a verb with `--json`: one object, whose `version` is the version of its format."""
        print(json.dumps({"version": JSON_VERSION, **found}, indent=2))

    def show(self, found: dict[str, Any], page: Callable[[dict[str, Any]], Iterable[str]], options: dict[str, str]) -> None:
        """The answer of a verb: as JSON with `--json`, else the lines that `page` makes of it."""
        if "--json" in options:
            self.say_json(found)
            return
        self.say_lines(page(found))

    def say_lines(self, lines: Iterable[str]) -> None:
        """Lines that fit the terminal."""
        for line in text.fit(lines, text.columns()):
            self.say(line)

    def suggest(self, given: str, known: Iterable[str]) -> None:
        """`did you mean Pong?` on standard error: standard output keeps Supervisor's words."""
        import difflib  # not needed by most

        near = difflib.get_close_matches(given, list(known), 1)
        if near:
            self.warn(f"did you mean {near[0]}?")

    def warn(self, line: str) -> None:
        """Print to standard error, because a program may be reading standard output."""
        sys.stdout.flush()
        print(line, file=sys.stderr, flush=True)

    def page(self, name: str, **query: str | int | None) -> dict[str, Any]:
        """A page of `reports/pages.py`; without a daemon, made from the files that it left. A None in `query` is omitted."""
        asked = {key: str(value) for key, value in query.items() if value is not None}
        target = "&".join(f"{key}={quote(value)}" for key, value in asked.items())
        try:
            found: dict[str, Any] = self.client.get(f"/api/v1/{name}?{target}" if target else f"/api/v1/{name}")
        except Unreachable as gone:
            return self.dead_daemon(gone).page(name, asked)
        if "not_counted" in found:
            self.warn(found["not_counted"])
        return found

    def program(self, spec: str) -> str:
        """The name of the program that `spec` means. An unknown name stays as it is, because the error shows it.

        Only the status knows the groups: `Pong:Pong-s4` is the program Pong-s4 if Pong is its group.
        """
        if ":" not in spec:
            return spec
        found = members(spec, self.page("status")["programs"])
        return found[0] if len(found) == 1 else plain(spec)

    def view(self, name: str) -> dict[str, Any]:
        """The view of a program. Raises Failed."""
        views = self.page("status")["programs"]
        for view in views:
            if view["name"] == name:
                return dict(view)
        self.suggest(name, [view["name"] for view in views])
        raise Failed(f"{printable(name)}: ERROR (no such process)")

    def facts(self, after: int = 0, program: str | None = None, last: int | None = None, kinds: str = "") -> list[Any]:
        """Rows of the journal, oldest first: all after `after`, or the newest `last` of them.

        If `last` exceeds the limit of one answer, this reads all rows and keeps the newest.
        """
        rows: list[Any] = []
        whole = last is not None and last <= _PAGE
        while True:
            limit = -last if last is not None and whole else _PAGE
            page = self.page("facts", after=after, limit=limit, kinds=kinds, program=program)["facts"]
            rows = (rows + page)[-last:] if last is not None else rows + page
            if whole or len(page) < _PAGE:
                return rows
            after = page[-1]["seq"]

    def warn_if_dead(self, *, to_stdout: bool) -> None:
        """If the daemon is dead, say so first: only the journal can answer. Without `to_stdout` (JSON), print to stderr."""
        try:
            self.client.read("/healthz")
        except Unreachable as gone:
            (self.say if to_stdout else self.warn)(self.dead_daemon(gone).last_sign()["says"])
        except Exception as error:  # noqa: BLE001  a daemon with a fault still answers requests
            self.warn(str(error))

    def dead_daemon(self, gone: Unreachable) -> DeadDaemon:
        """The files that a dead daemon has left. Raises `gone` if it may live, Failed if there is no journal."""
        self.require_dead(gone)
        found = state_dir(self.options)
        if found is None or not os.path.exists(f"{found}/journal.sqlite"):  # noqa: PTH110
            raise Failed(str(gone), NOT_RUNNING) from gone
        from supervisor.ctl.offline import DeadDaemon  # takes longer than most actions

        return DeadDaemon(self.options, found, gone)

    @staticmethod
    def require_dead(gone: Unreachable) -> Unreachable:
        """Return `gone` if the daemon is dead: its socket does not exist or has no listener. Else raise `gone`."""
        if isinstance(gone.__cause__, _GONE):
            return gone
        raise gone


def _login(options: Options) -> tuple[str, str] | None:
    """(user, password) from -u and -p. Every user of the box can read a command line, so `-p -` prompts for the password."""
    if options.username is None and options.password is None:
        return None
    user, password = options.username or "", options.password
    if password in {None, "-"}:
        if sys.stdin.isatty():
            import getpass  # not needed by most

            password = getpass.getpass(f"password of {user or 'the daemon'}: ")
        else:
            password = sys.stdin.readline().rstrip("\n")
    return user, password or ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Failed(f"Error: {message}; see extralifectl --help", USAGE)


def parse(argv: list[str]) -> tuple[Options, list[str]]:
    """(options before the action, the action and its arguments). Raises Failed."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flags in (("-r", "--history-file"), ("-u", "--username"), ("-p", "--password"), ("--state-dir",)):
        parser.add_argument(*flags)
    parser.add_argument("-c", "--configuration", dest="config_file")
    parser.add_argument("-s", "--serverurl", dest="socket")
    parser.add_argument("-i", "--interactive", action="store_true")
    parser.add_argument("--json", dest="of_action", action="append_const", const="--json", default=[])
    parser.add_argument("-h", "--help", dest="own", action="store_const", const="help")
    parser.add_argument("-v", "--version", dest="own", action="store_const", const="--version")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = vars(parser.parse_args(argv))
    words, of_action, own = given.pop("words"), given.pop("of_action"), given.pop("own")
    options = Options(**given)
    if own is not None:
        return options, [own]
    if options.socket is not None:
        options.socket = place_of(options.socket, "-s")
    return options, [*words[:1], *of_action, *words[1:]]


def place_of(url: str, what: str) -> str:
    """The path of a unix:// URL; http:// and https:// URLs unchanged. Raises Failed."""
    scheme, _, place = url.partition("://")
    if scheme not in {"unix", "http", "https"} or not place.strip("/"):
        raise Failed(f"Error: {what} takes unix:///path/to/socket or http://host:port, not {url!r}", USAGE)
    return place if scheme == "unix" else url


def quote(text: str) -> str:
    """Escape text for a page's path or query."""
    return quoted(text, safe="", errors="surrogateescape")


def split_command(args: list[str]) -> tuple[list[str], list[str]]:
    """(the arguments before `--`, the command behind it)."""
    at = args.index("--") if "--" in args else len(args)
    return args[:at], args[at + 1 :]


def parse_options(
    args: list[str], *flags: str, valued: tuple[str, ...] = (), repeated: Mapping[str, list[str]] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Split a command's arguments into plain ones and options; `--name=value` works too. Raises Failed.

    The values of options that may be given more than once are added to the lists in `repeated`.
    """
    plain: list[str] = []
    found: dict[str, str] = {}
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        name, given, value = arg.partition("=")
        if name in valued or name in (repeated or ()):
            if not given and not rest:
                raise Failed(f"Error: {name} needs a value", USAGE)
            value = value if given else rest.pop(0)
            if repeated and name in repeated:
                repeated[name].append(value)
            else:
                found[name] = value
        elif arg in flags:
            found[arg] = ""
        elif arg.startswith("-") and len(arg) > 1:
            known = ", ".join((*flags, *valued)) or "none"
            raise Failed(f"Error: unknown option {arg}; there are: {known}", USAGE)
        else:
            plain.append(arg)
    return plain, found


def parse_int(text: str, what: str, *, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise Failed(f"Error: {what} must be a whole number from {least}, not {text!r}", USAGE)
    return int(text)
