"""Sends pings. Each request has a short-lived thread and a time limit, and a service that hangs delays no other one."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import structlog

from supervisor.features.heartbeat.rules import UP, Ping, Target, request

log = structlog.get_logger()

TIMEOUT_S: Final = 10.0
_LEAVE_S: Final = 3.0
_TEXT_LASTS_S: Final = 600.0  # the report's first line, which takes longer to make than a ping


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """The address is a secret: it goes to nobody else."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def send(target: Target, word: str, text: str) -> str:
    """Send one ping. Returns one clause with the error, empty for success, or if the service has no form for this word."""
    wanted = request(target, word, text)
    if wanted is None:
        return ""
    headers = dict([target.header] if target.header else [], **{"User-Agent": "extralife"})
    body = wanted.body.encode("utf-8", "replace") if wanted.method == "POST" else None
    made = urllib.request.Request(wanted.url, body, headers, method=wanted.method)  # noqa: S310  only http and https
    try:
        with _OPENER.open(made, timeout=TIMEOUT_S) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"{target.name} answered with status {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{target.name} cannot be reached: {getattr(error, 'reason', None) or type(error).__name__}"
    return ""


class Pinger:
    """Carries out the commands of `decide.py`. `line`: the first line of the report."""

    def __init__(self, targets: Callable[[], list[Target]], line: Callable[[], str]) -> None:
        self._targets, self._line = targets, line
        self._text, self._made_s = "", -_TEXT_LASTS_S
        self._busy: dict[Target, threading.Thread] = {}
        self._errors: dict[Target, str] = {}

    def perform(self, ping: Ping) -> None:
        for target in self._targets():
            before = self._busy.get(target)
            if before is not None and before.is_alive() and ping.word == UP:
                continue  # it hangs: the next ping goes once its time is over
            self._busy[target] = threading.Thread(target=self._send, args=(target, ping), name="heartbeat", daemon=True)
            self._busy[target].start()

    def _send(self, target: Target, ping: Ping) -> None:
        if not ping.text and time.monotonic() - self._made_s >= _TEXT_LASTS_S:
            self._made_s = time.monotonic()
            self._text = self._line()
        error = send(target, ping.word, ping.text or self._text)
        if error and error != self._errors.get(target):
            log.warning("heartbeat_failed", error=error)
        self._errors[target] = error

    def stop(self) -> None:
        """Wait for the last ping, but not for a service that hangs."""
        until_s = time.monotonic() + _LEAVE_S
        for each in self._busy.values():
            each.join(max(0.0, until_s - time.monotonic()))
