"""Checks `health = { http = "http://127.0.0.1:6006/" }` of a service, and makes the settings of the rule from it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from supervisor.config.scripts import words
from supervisor.config.tables import given, refuse_unknown, settings_of
from supervisor.config.validation import DEFAULT, Origin, Section, shown
from supervisor.policy.worker.service_health import HealthCheck

_ASKS: Final = ("http", "tcp", "command")
_EXAMPLE: Final = '{ http = "http://127.0.0.1:6006/" }'


def health_check(program: Section, *, service: bool) -> HealthCheck | None:
    """The configured health check. Mistakes go into the validation's errors."""
    if "health" not in program:
        program.note("health", None, Origin(DEFAULT))
        return None
    before = len(program.validation.errors)
    if not isinstance(program.body["health"], dict):
        program.refuse("health", f"must be a table such as {_EXAMPLE}, not {shown(program.body['health'])}")
        return None
    if not service:
        program.refuse("health", 'is for services; set kind = "service", or remove it')
    section, settings = program.inner("health"), settings_of(HealthCheck)
    refuse_unknown(section, settings, f"there are {', '.join(settings)}")
    if len(section.body.keys() & set(_ASKS)) != 1:
        section.refuse(None, f"must have exactly one of http, tcp and command, such as {_EXAMPLE}")
    values = given(section, settings, {"http": _url, "tcp": _port, "command": lambda value: words(value, '["pg_isready"]')})
    program.note("health", dict(section.body))
    return None if len(program.validation.errors) > before else HealthCheck(**values)


def _url(value: str) -> str:
    try:
        place = urlsplit(value)
        if place.scheme in ("http", "https") and place.hostname and place.port != 0 and value.isascii():
            return value
    except ValueError:
        pass
    raise ValueError


def _port(value: str) -> str:
    host, _, port = value.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 65536:
        return value
    raise ValueError
