"""[heartbeat], checked. Its addresses are secrets: no message and no page shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.config import secrets
from supervisor.config.validation import Validation
from supervisor.features.heartbeat.rules import LINE
from supervisor.features.heartbeat.settings import HeartbeatSettings

SECTION: Final = "heartbeat"


def complete(validation: Validation, made: HeartbeatSettings, _: object = None) -> HeartbeatSettings:
    section = validation.section(SECTION)
    lines = [made.url] if made.url else []
    if made.url and not LINE.fullmatch(made.url):
        section.refuse("url", "is not an address such as https://hc-ping.com/UUID (not shown, because it may be a secret)")
    if made.urls_file:
        made = replace(made, urls_file=secrets.beside(validation, made.urls_file))
        report = section.reporter("urls_file", gently=validation.source.is_kept)
        text = secrets.text(report, made.urls_file, "one address per line") if validation.look else ""
        for number, line in secrets.lines_in(text):
            if LINE.fullmatch(line):
                lines.append(line)
            else:
                report(f"line {number} of {made.urls_file} is not an address such as https://hc-ping.com/UUID (not shown)")
    section.note("url", "set, not shown" if made.url else "")
    return replace(made, url="\n".join(lines))
