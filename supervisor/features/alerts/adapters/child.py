"""Sends one alert to one Apprise URL, and exits. `delivery.py` starts it as a separate process, for two reasons.

Importing Apprise takes a second of CPU and 40 MB. None of Apprise's own time limits holds for all of its hundred services,
but a process can be killed at any moment. The URL arrives on standard input, because `ps` shows arguments.
Standard output is a line when it begins to send, then one JSON object with the error. The error contains no part of the URL,
and is empty if the alert was sent. The time limit counts from that line: before it, on a busy box for a minute, nothing is
sent, and afterwards without an answer the alert may have arrived.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote

MISSING: Final = "the package apprise is not installed: pip install 'extralife[alerts]' into extralife's environment"
_TYPES: Final = {"info": "info", "warning": "warning", "critical": "failure"}
_PRIORITIES: Final = {"info": "low", "critical": "high"}  # a warning has the service's own default
SENDING: Final = "sending"
BEGIN_S: Final = 120.0  # for the interpreter and the import, on a busy box
_LEAST_SECRET: Final = 3
_MOST_ERROR_CHARS: Final = 300


class _LastWarning(logging.Handler):
    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    # The parent process may have been killed meanwhile, and nothing else would end this process.
    signal.setitimer(signal.ITIMER_REAL, BEGIN_S)
    os.nice(5)
    sys.stdout.write(json.dumps({"error": send(request, _begin)}) + "\n")
    return 0


def _begin(timeout_s: float) -> None:
    sys.stdout.write(f"{SENDING}\n")
    sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, timeout_s)  # it ends this process


def send(request: dict[str, Any], begin: Callable[[float], None] = lambda _: None) -> str:
    """Send the alert. Returns one clause with the error, or an empty text when the service has accepted the alert."""
    try:
        import apprise
    except ImportError:
        return MISSING
    last_warning, log = _LastWarning(), logging.getLogger("apprise")
    log.addHandler(last_warning)
    log.setLevel(logging.WARNING)
    log.propagate = False
    try:
        service = apprise.Apprise(asset=apprise.AppriseAsset(app_id="extralife", app_desc="extralife", async_mode=False))
        if not service.add(_fitted(apprise, request)):
            return "Apprise does not know this URL: compare it with Apprise's documentation of that service"
        most_chars = min(each.body_maxlen for each in service) - len(request["title"])
        begin(request["timeout_s"])
        sent = service.notify(
            body=fitting(request["body"], most_chars), title=request["title"], notify_type=_TYPES[request["severity"]],
            body_format="text",
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001  a hundred third-party services: any exception means that it was not sent
        return _scrubbed(f"it failed with {type(error).__name__}: {error}", request["url"])
    return "" if sent else _scrubbed(last_warning.last or "the service did not accept the alert", request["url"])


def _fitted(apprise: Any, request: dict[str, Any]) -> str:
    """The URL with a priority by severity, and with the link, if its service has them and the URL does not name its own."""
    url: str = request["url"]
    plugin = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    takes: dict[str, Any] = {} if plugin is None else plugin.template_args
    known = takes.get("priority", {}).get("values") or ()
    words = known.values() if isinstance(known, dict) else known
    # Apprise waits 4 s for an answer, and calls it a failure. Here the limit of this process comes first.
    rto = str(round(request["timeout_s"]) + 60)
    wanted = {"priority": _PRIORITIES.get(request["severity"], ""), "click": request["link"], "rto": rto}
    if wanted["priority"] not in words:
        del wanted["priority"]
    for name, value in wanted.items():
        if value and name in takes and not re.search(rf"[?&]{name}=", url, re.IGNORECASE):
            url += f"{'&' if '?' in url else '?'}{name}={quote(value, safe='')}"
    return url


def fitting(body: str, most_chars: int) -> str:
    """The whole text, or only its first and last line if the service accepts fewer characters. The last line has the id.

    The daily report has ten lines. An SMS or pager service would refuse it, or split it into ten messages.
    """
    lines = body.splitlines()
    return body if len(body) <= most_chars or len(lines) < 3 else f"{lines[0]}\n{lines[-1]}"


def _scrubbed(text: str, url: str) -> str:
    """`text` with every word of the URL masked, except the scheme: any of these words may be a secret."""
    rest = url.partition("://")[2]
    words = {word for part in (rest, unquote(rest)) for word in re.split(r"[/?&=:@#,\s]+", part)}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= _LEAST_SECRET:
            text = text.replace(word, "***")
    return text[:_MOST_ERROR_CHARS]


if __name__ == "__main__":
    sys.exit(main())
