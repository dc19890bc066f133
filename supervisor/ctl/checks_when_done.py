"""Checks of `doctor` on `[when_done]`: the command that stops this box."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.ctl.checks import Finding, Installation, command_findings, daemon_user


def when_done(installation: Installation) -> Iterator[Finding]:
    """The daemon can run the command that stops this box."""
    settings = installation.settings
    if not settings.when_done.command:
        return
    user, command = daemon_user(settings.paths.state_dir), settings.when_done.command
    ok = Finding("when_done", "ok", f"{command[0]} stops this box; causes: {', '.join(settings.when_done.when)}")
    yield from list(command_findings("when_done", command, user, installation.root)) or [ok]
