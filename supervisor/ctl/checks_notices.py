"""The check of `doctor` on `[notice]`: it queries each source of notices that announce the end of this box, once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File
from supervisor.adapters.notices.metadata import PROVIDERS, Source
from supervisor.adapters.notices.web import Unreadable, Web
from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation
from supervisor.policy.upkeep.notices import AUTO, COMMAND, FILE, NoticeSettings

_NAME: Final = "notices"
_LEAST_S: Final = 5.0  # the first answer of Azure's service takes longer than later ones


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
    sources = _sources(rules)
    if not sources:
        yield Finding(_NAME, "ok", "no provider is known, so this box ends without notice (docs/offsite.md)")
    for name, source in sources.items():
        yield _asked(name, source)


def _sources(rules: NoticeSettings) -> dict[str, Source]:
    provider = detect.provider(BootFiles.of(os.environ)) if rules.provider == AUTO else rules.provider
    found: dict[str, Source] = {}
    if provider in PROVIDERS:
        found[provider] = PROVIDERS[provider](Web(rules.endpoint, max(_LEAST_S, rules.timeout_s)), _Clock())
    if rules.command:
        found[COMMAND] = Command(rules.command, rules.timeout_s, _Clock())
    if rules.file:
        found[FILE] = File(rules.file, _Clock())
    return found


def _asked(name: str, source: Source) -> Finding:
    try:
        found = source.read()
    except Unreadable as error:
        return Finding(_NAME, "bad", f"{name}: {text.printable(str(error))}", "docs/offsite.md, notices of the end")
    told = "; ".join(f"THIS BOX ENDS: {each.what}" for each in found) or "no end is announced"
    return Finding(
        _NAME, "bad" if found else "ok", f"{name}: {text.printable(told)}", "let it save and copy" if found else ""
    )


ALL: Final = (notices,)
