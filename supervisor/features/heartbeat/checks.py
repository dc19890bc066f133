"""Checks of `doctor` on `[heartbeat]`: somebody else notices if this box goes silent."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.adapters.host.clock import boot_s
from supervisor.ctl.checks import Finding, Installation
from supervisor.features.heartbeat.part import send
from supervisor.features.heartbeat.rules import UP, targets
from supervisor.features.heartbeat.settings import HeartbeatSettings
from supervisor.model.settings import Settings


def heartbeat(installation: Installation) -> Iterator[Finding]:
    """Another machine gets pings, and alarms when they stop."""
    rules = installation.settings.of(HeartbeatSettings)
    if rules.url or rules.urls_file:
        names = ", ".join(dict.fromkeys(each.name for each in targets(rules.url))) or "the addresses of urls_file"
        yield Finding("heartbeat", "ok", f"pings every {rules.every_s:g} s: {names}; to send one: extralifectl alerts test")
    else:
        what = "alerts come from this box itself: if it is lost, nobody notices"
        yield Finding("heartbeat", "warn", what, "set [heartbeat] url (docs/alerts.md#heartbeat)")


def tested(settings: Settings) -> list[dict[str, object]]:
    """What `alerts test` prints: one ping to each service, and its result."""
    found = []
    for each in targets(settings.of(HeartbeatSettings).url):
        began_s = boot_s()
        error = "" if each.on_done else send(each, UP, "a test: extralife's heartbeat arrives here")
        found.append({"target": f"heartbeat {each.name}", "ok": not error, "error": error, "took_s": boot_s() - began_s})
    return found
