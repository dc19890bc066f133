"""What a ping says, and in which form each service takes it.

The rule. Every `every_s` a ping says `up`. The deciding loop orders each one, and no thread repeats it: if the loop stands
still, or the journal cannot be written, no ping is sent and the service alarms. `fail` says at once that supervision is
blind. `start` is the first ping of a daemon. `done` says that this box is stopped on purpose: the work is over, the
provider has announced the end, or extralife was shut down. The service would alarm all the same once its period is over. So
`done` also goes to the addresses that have `done ` before them: those that pause the check, where the service has one.

Worked example, `every_s = 60`: `start` and `up` at 2:00:00, `up` at 2:01:00. At 2:01:30 the provider announces the end:
`done` at once, and again at 2:02:30. Then the box is gone, and the paused check pages nobody.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from supervisor.model.commands import Command
from supervisor.records import Record

UP, START, FAIL, DONE = "up", "start", "fail", "done"
LINE: Final = re.compile(r"(?:(done) +)?(https?://(?:\[[\da-f:]+\]|[^\s/?#[\]]+)(?:[/?#:]\S*)?)(?: +([A-Za-z-]+): *(\S.*))?")
_MOST_CHARS: Final = 200  # of a text in an address


class Ping(Command):
    """Send one ping to every service. Outcome: none."""

    word: str
    text: str = ""  # why, if it is not `up`


class Target(Record):
    """One line of the settings: an address, whether only `done` goes there, and a header such as a key."""

    url: str
    on_done: bool = False
    header: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """Its host: the rest of the address is a secret."""
        return urlsplit(self.url).hostname or "?"


class Request(Record):
    method: str
    url: str
    body: str = ""


def targets(lines: str) -> list[Target]:
    found = [LINE.fullmatch(line.strip()) for line in lines.splitlines()]
    return [Target(each[2], each[1] is not None, (each[3], each[4]) if each[3] else None) for each in found if each]


def request(target: Target, word: str, text: str) -> Request | None:
    """The request of this ping; None: this service has no form for it."""
    parts = urlsplit(target.url)
    host, path = (parts.hostname or "").lower(), parts.path
    if target.on_done:
        return Request("POST", target.url) if word == DONE else None
    if "/api/push/" in path:
        return _get(target.url, status="down" if word == FAIL else "up", msg=text)
    if host.removeprefix("www.") in {"cronitor.link", "cronitor.io"}:
        state = {FAIL: "fail", DONE: "complete"}.get(word)
        return _get(target.url, **({} if state is None else {"state": state}), message=text)
    is_healthchecks = host == "hc-ping.com" or "/ping/" in path
    if word == FAIL or (word == START and is_healthchecks):
        known = is_healthchecks or host.endswith(("betterstack.com", "betteruptime.com"))
        ending = urlunsplit(parts._replace(path=f"{path.rstrip('/')}/{word}"))
        return Request("POST", ending, text) if known else None
    return Request("POST", target.url, text)


def _get(url: str, **more: str) -> Request:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | {name: text[:_MOST_CHARS] for name, text in more.items()}
    return Request("GET", urlunsplit(parts._replace(query=urlencode(query))))
