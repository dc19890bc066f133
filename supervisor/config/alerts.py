"""[alerts]: the targets and kinds of alerts. Its URLs hold passwords and tokens: no message and no page shows them.

Everyone who can read the configuration file can read the URLs in it; `urls_file` is a separate file that only its owner may
read. Apprise interprets the URLs only when something is sent (`supervisorctl alerts test`): its import takes longer than
the whole load of the configuration.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from supervisor.config import lists, secrets
from supervisor.config.tables import section_keys
from supervisor.config.validation import DEFAULT, Origin, Validation, label, shown
from supervisor.policy.upkeep.alerting import KINDS, AlertSettings, report_error

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_MISSING: Final = (
    "alerts.urls need the package apprise, which is not installed: pip install 'extralife[alerts]' into extralife's "
    "environment; until then these URLs get no alerts"
)
_NOBODY: Final = (
    "alerts.report_at has no target for the report, so it is only in systemd's journal: set urls, urls_file or command"
)


def complete(validation: Validation, made: AlertSettings, *, read_secrets: bool = True) -> AlertSettings:
    """`made` (the plain keys) with the lists. `read_secrets` is False if the caller may not read the daemon's secrets."""
    table = validation.table("alerts")
    urls = [url for _, url in _urls(validation, table)]
    if made.urls_file:
        path = secrets.beside(validation, made.urls_file)
        made = replace(made, urls_file=path)
        urls += _of_file(validation, path) if read_secrets else []
    kinds = lists.choices(validation, "alerts", "kinds", KINDS, "kind of alert")
    command = lists.command(validation, "alerts", '["/usr/local/bin/page-me"]', validation.warn)
    if urls and importlib.util.find_spec("apprise") is None:
        validation.warn(validation.at("alerts", "urls"), _MISSING)
    if table.get("urls") and _is_open(validation):
        validation.warn(
            validation.at("alerts", "urls"),
            "alerts.urls are secrets, and other users of this box can read this file: move them, one a line, to a file of "
            "mode 0600 and name it as urls_file",
        )
    if (wrong := report_error(made.report_at)) is not None:
        validation.error(validation.at("alerts", "report_at"), f"alerts.report_at {wrong}, not {shown(made.report_at)}")
        made = replace(made, report_at="")
    elif made.report_at and not (urls or command):
        validation.warn(validation.at("alerts", "report_at"), _NOBODY)
    values = {"urls": f"{len(urls)}, not shown" if urls else [], "command": list(command), "kinds": list(kinds)}
    for key, value in values.items():
        validation.note(label("alerts", key), value, validation.at("alerts", key) if key in table else Origin(DEFAULT))
    return replace(made, urls=tuple(dict.fromkeys(urls)), command=command, kinds=kinds)


def usable_part(validation: Validation) -> AlertSettings:
    """The usable part of [alerts] in a file that may be wrong elsewhere: the operator must be alerted about that."""
    values: dict[str, Any] = {}
    for key, rule in section_keys("alerts").items():
        value = validation.table("alerts").get(key, rule.option.default)
        try:
            values[key] = rule.check(value, label("alerts", key))
        except ValueError:
            values[key] = rule.option.default
    return complete(validation, AlertSettings(**values))


def _urls(validation: Validation, table: dict[str, Any]) -> list[tuple[int, str]]:
    given = table.get("urls", [])
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list):
        validation.error(validation.at("alerts", "urls"), 'alerts.urls must be a list of strings, such as ["ntfy://topic"]')
        return []
    found = []
    for number, url in enumerate(given, 1):
        if isinstance(url, str) and _URL.fullmatch(url):
            found.append((number, url))
        else:
            validation.error(
                validation.at("alerts", "urls"),
                f"alerts.urls: entry {number} is not a URL such as ntfy://topic (not shown, because it may be a secret)",
            )
    return found


def _of_file(validation: Validation, path: str) -> list[str]:
    """The URLs of a file, one per line; empty lines and lines that begin with # are left out.

    A kept configuration has no copy of this file, because secrets are not copied. If the file is missing, its URLs are left
    out: the purpose of a kept configuration is that the programs train.
    """
    origin = validation.at("alerts", "urls_file")
    complain = validation.warn if validation.source.is_kept else validation.error
    found = []
    for number, url in urls_in(secrets.text(complain, origin, "alerts.urls_file", path, "one URL per line")):
        if _URL.fullmatch(url):
            found.append(url)
        else:
            complain(origin, f"alerts.urls_file: line {number} of {path} is not a URL such as ntfy://topic (not shown)")
    return found


def urls_in(text: str) -> list[tuple[int, str]]:
    """(line number, line) of each line in a file of URLs, valid or not. Empty lines and comments are left out."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def _is_open(validation: Validation) -> bool:
    try:
        return validation.source.path is not None and bool(Path(validation.source.path).stat().st_mode & 0o004)
    except OSError:
        return False
