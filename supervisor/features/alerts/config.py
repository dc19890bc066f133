"""[alerts]: the targets and kinds of alerts. Its URLs hold passwords and tokens: no message and no page shows them.

Everyone who can read the configuration file can read the URLs in it; `urls_file` is a separate file that only its owner may
read. Apprise interprets the URLs only when something is sent (`extralifectl alerts test`): its import takes longer than
the whole load of the configuration.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from supervisor import places
from supervisor.config import secrets, source
from supervisor.config.tables import Parsers, check_command, choices, given, settings_of
from supervisor.config.validation import Section, Validation
from supervisor.features.alerts.rules import KINDS
from supervisor.features.alerts.settings import AlertSettings

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_MISSING: Final = (
    "alerts.urls need the package apprise, which is not installed: pip install 'extralife[alerts]' into extralife's "
    "environment; until then these URLs get no alerts"
)
_OPEN: Final = (
    "alerts.urls are secrets, and other users of this box can read this file: move them, one a line, to a file of mode 0600 "
    "and name it as urls_file"
)
_NOBODY: Final = (
    "alerts.report_at has no target for the report, so it is only in systemd's journal: set urls, urls_file or command"
)


SECTION: Final = "alerts"


def alone(path: str | None, environ: Mapping[str, str]) -> AlertSettings:
    """The usable part of [alerts] in a file that may be wrong elsewhere: the operator must be alerted about that.

    Raises ConfigError when the file cannot be read at all.
    """
    validation = Validation(source.read(path or places.find_config(environ)))
    keys = given(validation.section("alerts"), settings_of(AlertSettings), PARSERS)
    return complete(validation, AlertSettings(**keys))


def complete(validation: Validation, made: AlertSettings, _: object = None) -> AlertSettings:
    """[alerts], checked, with the URLs of its file."""
    section = validation.section("alerts")
    for number, url in enumerate(made.urls, 1):
        if not _is_url(url):
            section.refuse(
                "urls", f": entry {number} is not a URL such as ntfy://topic (not shown, because it may be a secret)"
            )
    kinds = choices(section, "kinds", made.kinds, KINDS, "kind of alert")
    check_command(section, made.command, '["/usr/local/bin/page-me"]', validation.warn)
    urls = [url for url in made.urls if _is_url(url)]
    if made.urls_file:
        made = replace(made, urls_file=secrets.beside(validation, made.urls_file))
        urls += _of_file(section, made.urls_file) if validation.look else []
    if urls and importlib.util.find_spec("apprise") is None:
        validation.warn(section.at("urls"), _MISSING)
    if section.body.get("urls") and validation.source.path is not None:
        with contextlib.suppress(OSError):
            if Path(validation.source.path).stat().st_mode & 0o004:
                validation.warn(section.at("urls"), _OPEN)
    if made.report_at and not (urls or made.command):
        validation.warn(section.at("report_at"), _NOBODY)
    section.note("urls", f"{len(urls)}, not shown" if urls else [])
    section.note("kinds", kinds)
    return replace(made, urls=tuple(dict.fromkeys(urls)), kinds=kinds)


def _urls(value: object) -> tuple[object, ...]:
    """The entries, right or wrong: the right ones are used even if another is wrong."""
    if isinstance(value, str | list):
        return (value,) if isinstance(value, str) else tuple(value)
    raise ValueError


PARSERS: Final[Parsers] = {"urls": _urls}


def _is_url(url: object) -> bool:
    return isinstance(url, str) and _URL.fullmatch(url) is not None


def _of_file(section: Section, path: str) -> list[str]:
    """The URLs of a file, one per line.

    A kept configuration has no copy of this file, because secrets are not copied. If the file is missing, its URLs are left
    out: the purpose of a kept configuration is that the programs train.
    """
    report = section.reporter("urls_file", gently=section.validation.source.is_kept)
    return secrets.lines_of(report, path, "one URL per line", _URL, "a URL such as ntfy://topic")
