"""Sends one alert to one Apprise URL, and ends: a process of its own, started by `delivery.py`.

Apart from the daemon because importing Apprise takes a second of CPU and 40 MB, and because no time limit of its own holds
for all of its hundred services: a process can be ended at any moment. The URL comes on standard input, never as an argument
that `ps` would show. Standard output is one JSON object: what went wrong, with nothing of the URL in it; empty: sent.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from typing import Any, Final
from urllib.parse import unquote

MISSING: Final = "the package apprise is not installed: pip install 'extralife[alerts]' into extralife's environment"
_TYPES: Final = {"info": "info", "warning": "warning", "critical": "failure"}
_SPARE_S: Final = 5.0
_LEAST_SECRET: Final = 3
_MOST_SAID: Final = 300


class _Said(logging.Handler):
    """The last warning that Apprise logged."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def main() -> int:
    asked: dict[str, Any] = json.load(sys.stdin)
    # Whoever waits for this may have been killed meanwhile: nobody else would end it.
    signal.setitimer(signal.ITIMER_REAL, asked["timeout_s"] + _SPARE_S)
    os.nice(5)
    sys.stdout.write(json.dumps({"error": send(asked)}) + "\n")
    return 0


def send(asked: dict[str, Any]) -> str:
    """Empty when the service has taken it, else one clause."""
    try:
        import apprise
    except ImportError:
        return MISSING
    said, log = _Said(), logging.getLogger("apprise")
    log.addHandler(said)
    log.setLevel(logging.WARNING)
    log.propagate = False
    try:
        service = apprise.Apprise(asset=apprise.AppriseAsset(app_id="extralife", app_desc="extralife", async_mode=False))
        if not service.add(asked["url"]):
            return "Apprise does not know this URL: compare it with Apprise's documentation of that service"
        most_chars = min(each.body_maxlen for each in service) - len(asked["title"])
        sent = service.notify(
            body=fitting(asked["body"], most_chars),
            title=asked["title"],
            notify_type=_TYPES[asked["severity"]],
            body_format="text",
        )
    except Exception as error:  # noqa: BLE001  a hundred services of others: whatever they raise, it was not sent
        return _scrubbed(f"it failed with {type(error).__name__}: {error}", asked["url"])
    return "" if sent else _scrubbed(said.last or "it was not taken", asked["url"])


def fitting(body: str, most_chars: int) -> str:
    """The whole text, or its first line and the last one, which has the id, where a service takes less.

    The daily report has ten lines. As an SMS or on a pager it would be refused, or be ten messages.
    """
    lines = body.splitlines()
    return body if len(body) <= most_chars or len(lines) < 3 else f"{lines[0]}\n{lines[-1]}"


def _scrubbed(text: str, url: str) -> str:
    """`text` without any part of the URL that may be a secret: every word of it but the scheme."""
    rest = url.partition("://")[2]
    words = {word for part in (rest, unquote(rest)) for word in re.split(r"[/?&=:@#,\s]+", part)}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= _LEAST_SECRET:
            text = text.replace(word, "***")
    return text[:_MOST_SAID]


if __name__ == "__main__":
    sys.exit(main())
