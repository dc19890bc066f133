"""[heartbeat], checked. Its addresses are secrets: no message and no page shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.config import secrets
from supervisor.config.validation import Validation
from supervisor.features.heartbeat.rules import LINE
from supervisor.features.heartbeat.settings import HeartbeatSettings

SECTION: Final = "heartbeat"
_EXAMPLE: Final = "an address such as https://hc-ping.com/UUID"


def complete(validation: Validation, made: HeartbeatSettings, _: object = None) -> HeartbeatSettings:
    section = validation.section(SECTION)
    lines = [made.url] if made.url else []
    if made.url and not LINE.fullmatch(made.url):
        section.refuse("url", f"is not {_EXAMPLE} (not shown, because it may be a secret)")
    if made.urls_file:
        made = replace(made, urls_file=secrets.beside(validation, made.urls_file))
        report = section.reporter("urls_file", gently=validation.source.is_kept)
        if validation.look:
            lines += secrets.lines_of(report, made.urls_file, "one address per line", LINE, _EXAMPLE)
    section.note("url", "set, not shown" if made.url else "")
    return replace(made, url="\n".join(lines))
