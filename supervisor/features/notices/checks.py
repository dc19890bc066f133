"""Checks of `doctor` on `[notice]`: each source of notices that announce the end of this box is queried once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.host.clock import SystemClock, boot_s, wall_s
from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation
from supervisor.features.notices.adapters import detect
from supervisor.features.notices.adapters.local import Command, File, Unreadable, source
from supervisor.features.notices.rules import COMMAND, FILE
from supervisor.features.notices.settings import NoticeSettings

_NOTICES: Final = "notices"


def notices(installation: Installation) -> Iterator[Finding]:
    """Whether the daemon would receive a notice before this box ends."""
    rules = installation.settings.of(NoticeSettings)
    wall = SystemClock(wall_s() - boot_s())
    asked = {name: made for name in (COMMAND, FILE) if (made := source(name, rules, wall)) is not None}
    program = detect.command(BootFiles.of(os.environ))
    if program and COMMAND not in asked and not installation.settings.remote:
        provider = program.rpartition("/")[2]
        what = f"this box is of {provider}, and nothing asks {provider} for notices of its end"
        yield Finding(_NOTICES, "warn", what, f'[notice] command = "{program}"')
    elif not asked:
        yield Finding(_NOTICES, "ok", "no source of notices is configured: this box ends without notice (docs/offsite.md)")
    for name, made in asked.items():
        yield _asked(name, made)


def _asked(name: str, source: Command | File) -> Finding:
    try:
        found = source.read()
    except Unreadable as error:
        return Finding(_NOTICES, "bad", f"{name}: {text.printable(str(error))}", "docs/offsite.md, notices of the end")
    what = "; ".join(f"THIS BOX ENDS: {each.what}" for each in found) or "no end is announced"
    return Finding(
        _NOTICES, "bad" if found else "ok", f"{name}: {text.printable(what)}", "let it save and copy" if found else ""
    )
