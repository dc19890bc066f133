"""Options before the action on the command line of supervisorctl."""

from __future__ import annotations

import argparse
from typing import NoReturn

from supervisor.ctl.outcome import USAGE, Failed, Options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Failed(f"Error: {message}; see supervisorctl --help", USAGE)


def parse(argv: list[str]) -> tuple[Options, list[str]]:
    """(options, the action and its arguments). Raises Failed."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--configuration", dest="config_file")
    parser.add_argument("-s", "--serverurl", dest="socket")
    parser.add_argument("--state-dir")
    parser.add_argument("-r", "--history-file")
    parser.add_argument("-u", "--username")
    parser.add_argument("-p", "--password")
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
