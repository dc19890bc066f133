"""Checks `health = { http = "http://127.0.0.1:6006/" }` of a service, and makes the settings of the rule from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final
from urllib.parse import urlsplit

from supervisor.config.validation import DEFAULT, Origin, Validation, label, shown
from supervisor.keys import YEAR_S
from supervisor.policy.worker.service_health import HealthCheck
from workers.options import nearest

_ASKS: Final = ("http", "tcp", "command")
_TIMES: Final = ("every_s", "timeout_s", "grace_s")
_KEYS: Final = tuple(field.name for field in fields(HealthCheck))
_EXAMPLE: Final = '{ http = "http://127.0.0.1:6006/" }'


def health_check(validation: Validation, name: str, table: Mapping[str, Any], *, service: bool) -> HealthCheck | None:
    """The configured health check. Mistakes go into the validation's errors."""
    key, given = label("program", name, "health"), table.get("health")
    origin = validation.at("program", name, "health")
    if given is None:
        validation.note(key, None, Origin(DEFAULT))
        return None
    before = len(validation.errors)
    if not isinstance(given, dict):
        validation.error(origin, f"{key} must be a table such as {_EXAMPLE}, not {shown(given)}")
        return None
    if not service:
        validation.error(origin, f'{key} is for services; set kind = "service", or remove it')
    for each in given.keys() - set(_KEYS):
        validation.error(origin, f"{key}.{each} is not a setting{nearest(each, _KEYS) or '; there are ' + ', '.join(_KEYS)}")
    if len(given.keys() & set(_ASKS)) != 1:
        validation.error(origin, f"{key} must have exactly one of http, tcp and command, such as {_EXAMPLE}")
    values: dict[str, Any] = {each: given[each] for each in _KEYS if each in given}
    for each, wrong in ((each, _mistake(each, value)) for each, value in values.items()):
        if wrong:
            validation.error(origin, f"{key}.{each} {wrong}, not {shown(values[each])}")
    if len(validation.errors) > before:
        return None
    if "command" in values:
        command = values["command"]
        values["command"] = tuple(shlex.split(command) if isinstance(command, str) else command)
    values |= {each: float(values[each]) for each in _TIMES if each in values}
    validation.note(key, dict(given), origin)
    return HealthCheck(**values)


def _mistake(key: str, value: object) -> str:
    """The requirement that the value breaks; empty if the value is valid."""
    if key == "http":
        return "" if isinstance(value, str) and _is_url(value) else "must be a URL such as http://127.0.0.1:6006/"
    if key == "tcp":
        host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        return "" if host and port.isdecimal() and 0 < int(port) < 65536 else "must be HOST:PORT such as 127.0.0.1:5432"
    if key == "command":
        return "" if _is_command(value) else "must be a command, a string or a list of strings"
    if key == "failures":
        return "" if type(value) is int and 1 <= value <= 1000 else "must be a whole number from 1 to 1000"
    low = 0.0 if key == "grace_s" else 0.1
    good = type(value) in (int, float) and low <= value <= YEAR_S  # type: ignore[operator]  # of these types
    return "" if good else f"must be a number of seconds, at least {low:g}"


def _is_url(value: str) -> bool:
    try:
        place = urlsplit(value)
        return place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0 and value.isascii()
    except ValueError:
        return False


def _is_command(value: object) -> bool:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        return False
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) and "\0" not in word for word in words)
