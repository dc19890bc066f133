"""[alerts]: the targets of alerts, and which alerts they get (`rules.py`)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from supervisor.keys import key
from supervisor.policy.upkeep.alarm import INFO, SEVERITIES
from supervisor.records import Record

COMMAND: Final = "command"  # the name of the target that is a program
_DAY_S: Final = 86_400.0
_MARK_BYTES: Final = 3
_TIME_OR_NONE: Final = r"(([01]\d|2[0-3]):[0-5]\d)?"
_ADDRESS_OR_NONE: Final = r"(https?://[^\s/]+\S*)?"


class AlertSettings(Record):
    """`[alerts]` in the config. `urls` are secrets: no log, status or argument list contains them."""

    urls: tuple[str, ...] = key(
        (), "targets as URLs of [Apprise](https://github.com/caronc/apprise); never shown anywhere",
        unset="none", form='a list of strings, such as ["ntfy://topic"]', is_shown=False,
    )  # fmt: skip
    urls_file: str = key("", "file with more URLs of Apprise, one per line, that only its owner may read (mode 0600)")
    command: tuple[str, ...] = key(
        (), "a program to run for each alert, which gets it as JSON on standard input; no shell reads it",
        unset="none", form='a list such as ["/usr/local/bin/page-me"]',
    )  # fmt: skip
    kinds: tuple[str, ...] = key((), "kinds of alerts that are sent", unset="all", form='a list such as ["reboot"]')
    min_severity: str = key(INFO, "least severity that is sent", choices=SEVERITIES)
    at_most_per_h: int = key(12, "largest number sent in an hour; the others are counted and sent as one", high=120)
    same_within_s: float = key(
        3600.0, "an alert of the same kind and program is not sent again within this time, only counted", low=0
    )
    timeout_s: float = key(15.0, "time for a target to answer; then the alert is not sent again", low=1, high=300)
    keep_days: int = key(3, "days for which delivery is tried", high=365)
    report_at: str = key(
        "", "when the daily report is sent, such as `08:00`, local time; its window is the day before",
        form='a time of day such as "08:00", or empty for none', pattern=_TIME_OR_NONE,
    )  # fmt: skip
    link: str = key(
        "", "address of the dashboard as your phone reaches it; each alert links to it",
        form='an address such as "https://box.example", or empty for none', pattern=_ADDRESS_OR_NONE,
    )  # fmt: skip

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*map(target_name, self.urls), *([COMMAND] if self.command else [])]))

    def only(self, targets: Collection[str]) -> AlertSettings:
        """The same settings with only these targets, by their names in `targets`."""
        urls = tuple(url for url in self.urls if target_name(url) in targets)
        return replace(self, urls=urls, command=self.command if COMMAND in targets else ())

    @property
    def keep_s(self) -> float:
        return self.keep_days * _DAY_S


def target_name(url: str) -> str:
    """A URL's service, and a hash that tells equal services apart: `json://me:secret@host/x` gives such as `json-1f3a92`."""
    mark = hashlib.blake2b(url.encode("utf-8", "replace"), digest_size=_MARK_BYTES).hexdigest()
    return f"{url.partition('://')[0].lower()}-{mark}"


SECTIONS: Final = {"alerts": AlertSettings}
