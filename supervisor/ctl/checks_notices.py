"""The check of `doctor` on `[notice]`: it queries each source of notices that announce the end of this box, once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File, Unreadable
from supervisor.adapters.notices.thread import source
from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation
from supervisor.policy.upkeep.notices import COMMAND, FILE

_NAME: Final = "notices"


class _Clock:
    def now_s(self) -> float:
        return text.wall_s()

    def wall_s(self) -> float:
        return text.wall_s()

    def from_boot_ns(self, at_ns: int) -> float:
        return text.wall_s() + (at_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9

    def to_boot_ns(self, at_s: float) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int((at_s - text.wall_s()) * 1e9)


def notices(installation: Installation) -> Iterator[Finding]:
    """Whether the daemon would receive a notice before this box ends."""
    if installation.settings is None:
        return
    rules = installation.settings.notice
    asked = {name: made for name in (COMMAND, FILE) if (made := source(name, rules, _Clock())) is not None}
    program = detect.command(BootFiles.of(os.environ))
    if program and COMMAND not in asked and not installation.settings.launcher.remote:
        provider = program.rpartition("/")[2]
        told = f"this box is of {provider}, and nothing asks {provider} for notices of its end"
        yield Finding(_NAME, "warn", told, f'[notice] command = "{program}"')
    elif not asked:
        yield Finding(_NAME, "ok", "no source of notices is configured, so this box ends without notice (docs/offsite.md)")
    for name, made in asked.items():
        yield _asked(name, made)


def _asked(name: str, source: Command | File) -> Finding:
    try:
        found = source.read()
    except Unreadable as error:
        return Finding(_NAME, "bad", f"{name}: {text.printable(str(error))}", "docs/offsite.md, notices of the end")
    told = "; ".join(f"THIS BOX ENDS: {each.what}" for each in found) or "no end is announced"
    return Finding(
        _NAME, "bad" if found else "ok", f"{name}: {text.printable(told)}", "let it save and copy" if found else ""
    )


ALL: Final = (notices,)
