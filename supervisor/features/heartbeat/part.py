"""The heartbeat of a running daemon: each ping has a short-lived thread, and a service that hangs delays no other one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import structlog

from supervisor.adapters.host.clock import boot_s
from supervisor.adapters.parts import Part, World
from supervisor.adapters.threads import Thread
from supervisor.api.night import daily_report
from supervisor.features.heartbeat.rules import UP, Ping, Target, request, targets
from supervisor.features.heartbeat.settings import HeartbeatSettings

log = structlog.get_logger()

TIMEOUT_S: Final = 10.0
_LEAVE_S: Final = 3.0
_TEXT_LASTS_S: Final = 600.0  # the report's first line, which takes longer to make than a ping


@functools.cache
def _opener() -> Any:
    from urllib import request as urls  # memory that a daemon without a heartbeat need not have

    class NoRedirect(urls.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """The address is a secret: it goes to nobody else."""

    return urls.build_opener(NoRedirect).open


def send(target: Target, word: str, text: str) -> str:
    """Send one ping. Returns one clause with the error, empty for success, or if the service has no form for this word."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    wanted = request(target, word, text)
    if wanted is None:
        return ""
    headers = {"User-Agent": "extralife", **dict([target.header] if target.header else [])}
    body = wanted.body.encode("utf-8", "replace") if wanted.method == "POST" else None
    try:
        with _opener()(Request(wanted.url, body, headers, method=wanted.method), timeout=TIMEOUT_S) as answer:  # noqa: S310
            answer.read(1)
    except HTTPError as error:
        error.close()
        return f"{target.name} answered with status {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return f"{target.name} cannot be reached: {getattr(error, 'reason', None) or type(error).__name__}"
    return ""


class Pinger:
    """Carries out the commands of `decide.py`. `line`: the first line of the report."""

    def __init__(self, targets: Callable[[], list[Target]], line: Callable[[], str]) -> None:
        self._targets, self._line = targets, line
        self._text, self._made_s = "", -_TEXT_LASTS_S
        self._busy: dict[Target, Thread] = {}
        self._errors: dict[Target, str] = {}

    def perform(self, ping: Ping) -> None:
        for target in self._targets():
            before = self._busy.get(target)
            if before is not None and before.is_alive() and ping.word == UP:
                continue  # it hangs: the next ping goes once its time is over
            (sender := Thread("heartbeat", self._send, target, ping)).start()
            self._busy[target] = sender  # only now: `stop` cannot join a thread that was not started

    def _send(self, target: Target, ping: Ping) -> None:
        if not ping.text and boot_s() - self._made_s >= _TEXT_LASTS_S:
            self._made_s = boot_s()
            self._text = self._line()
        error = send(target, ping.word, ping.text or self._text)
        if error and error != self._errors.get(target):
            log.warning("heartbeat_failed", error=error)
        self._errors[target] = error

    def stop(self) -> None:
        """Wait for the last ping, but not for a service that hangs."""
        until_s = boot_s() + _LEAVE_S
        for each in self._busy.values():
            each.join(max(0.0, until_s - boot_s()))


def part(world: World) -> Part:
    made = Pinger(
        lambda: targets(world.settings().of(HeartbeatSettings).url),
        lambda: daily_report(world.sources()).partition("\n")[0],
    )  # fmt: skip
    return Part({Ping: made.perform}, stop=made.stop)
