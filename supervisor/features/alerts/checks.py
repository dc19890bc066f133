"""Checks of `doctor` on `[alerts]`: alerts could arrive. They are not sent; `supervisorctl alerts test` does."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor import files
from supervisor.config.secrets import lines_in
from supervisor.ctl.checks import Finding, Installation, command_findings, daemon_user, probed
from supervisor.features.alerts.settings import AlertSettings, target_name

_PROBE_S: Final = 30.0
# Parses the URLs as the daemon would, and sends nothing. The URLs come on standard input, because `ps` shows arguments.
_PROBE: Final = """
import json, logging, sys
logging.disable(logging.CRITICAL)
import apprise
print(json.dumps([apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None for url in json.load(sys.stdin)]))
"""


def alerts(installation: Installation) -> Iterator[Finding]:
    """Alerts have a target, and the daemon can use every configured one."""
    rules = installation.settings.of(AlertSettings)
    if not rules.urls and not rules.urls_file and not rules.command:
        do = "set [alerts] urls_file or command (docs/alerts.md), then: supervisorctl alerts test"
        yield Finding("alerts", "warn", "alerts go nowhere: reboots and abandoned trainings are not reported", do)
        return
    user = daemon_user(installation.settings.paths.state_dir)
    found = [*_urls(rules, user), *command_findings("alerts", rules.command, user, installation.root)]
    yield from found
    if not found:
        targets = f"{len(rules.urls)} URLs" if rules.urls else ""
        targets = " and ".join(filter(None, (targets, "a command" if rules.command else "")))
        yield Finding("alerts", "ok", f"{targets} can be used; to see whether alerts arrive: supervisorctl alerts test")


def _urls(rules: AlertSettings, user: int) -> Iterator[Finding]:
    urls = list(rules.urls)
    if rules.urls_file:
        try:
            there = Path(rules.urls_file).stat()
            urls += [url for _, url in lines_in(files.read(rules.urls_file, 1 << 16).decode("utf-8", "replace"))]
        except PermissionError:
            yield Finding("alerts", "unknown", f"{rules.urls_file} cannot be read by this user", "run doctor as root")
        except OSError as error:
            what = f"alerts.urls_file: {rules.urls_file} cannot be read: {error.strerror}"
            yield Finding("alerts", "bad", what, "correct the path, or make the file: one URL a line, mode 0600")
        else:
            if there.st_mode & 0o077:
                what = f"other users may read {rules.urls_file}, which holds secrets: the daemon refuses it"
                yield Finding("alerts", "bad", what, f"chmod 600 {rules.urls_file}")
            elif user not in {there.st_uid, 0}:
                what = f"{rules.urls_file} belongs to user {there.st_uid}, and the daemon, user {user}, may not read it"
                yield Finding("alerts", "bad", what, f"chown {user} {rules.urls_file}")
    if urls:
        if importlib.util.find_spec("apprise") is None:
            what = "alerts.urls need the package apprise, which is not installed: they get no alerts"
            yield Finding("alerts", "bad", what, f"{sys.executable} -m pip install 'extralife[alerts]'")
            return
        answers = probed(_PROBE, timeout_s=_PROBE_S, given=json.dumps(list(urls)))
        if answers is None:
            yield Finding(
                "alerts", "unknown", "apprise did not answer whether it knows the URLs", "supervisorctl alerts test"
            )
            return
        for number, (url, good) in enumerate(zip(urls, answers, strict=True), 1):
            if not good:
                what = f"URL {number} ({target_name(url)}; not shown) is unknown to apprise: it gets no alerts"
                yield Finding("alerts", "bad", what, "compare it with apprise's documentation of that service")
