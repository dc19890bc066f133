"""Checks of `doctor` on `[when_done]`: the command that stops this box."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.ctl.checks import Finding, Installation, command_findings, daemon_user
from supervisor.features.when_done.settings import WhenDoneSettings


def when_done(installation: Installation) -> Iterator[Finding]:
    """The daemon can run the command that stops this box."""
    settings = installation.settings
    if not settings.of(WhenDoneSettings).command:
        return
    user, command = daemon_user(settings.paths.state_dir), settings.of(WhenDoneSettings).command
    ok = Finding("when_done", "ok", f"{command[0]} stops this box; causes: {', '.join(settings.of(WhenDoneSettings).when)}")
    yield from list(command_findings("when_done", command, user, installation.root)) or [ok]
