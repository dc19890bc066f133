"""[offsite]: the repository of copies, and when they are made, checked and removed (`rules.py`)."""

from __future__ import annotations

import hashlib
from typing import Final

from supervisor.keys import key
from supervisor.policy.upkeep.calendars import A_CALENDAR, CALENDARS
from supervisor.records import Record


class OffsiteSettings(Record):
    """`[offsite]` in the config. The two files that it names hold the secrets, never this record."""

    repository: str = key(
        "", "where restic keeps the copies: a directory, `sftp:USER@HOST:/DIR`, `s3:...`; empty: no copies"
    )
    password_file: str = key("", "file with the repository's password, that only its owner may read (mode 0600)")
    env_file: str = key("", "file with the backend's credentials, `NAME=VALUE` a line, that only its owner may read")
    sftp_command: str = key("", "the command that connects to an `sftp:` repository, such as `ssh -i KEY USER@HOST -s sftp`")
    every_s: float = key(900.0, "time between two copies while something trains", low=1)
    late_s: float = key(3600.0, "age of the newest copy from which it is reported as too old")
    timeout_s: float = key(3600.0, "longest time of one copy")
    reboot_s: float = key(
        20.0, "longest time for which an orderly reboot, or SIGTERM, waits for a last copy; 0: it does not wait",
        low=0, high=3600,
    )  # fmt: skip
    upload_kib_s: int = key(0, "KiB a second that a copy may send; 0: no limit", low=0, high=1_000_000_000)
    with_replay: bool = key(False, "whether the replay buffers, which have gigabytes, are copied too")
    also: tuple[str, ...] = key(
        (), "small directories, such as a script's code, that copies have too and the next box gets at the same path",
        unset="none", form='a list such as ["/opt/my-code"]',
    )  # fmt: skip
    forget: str = key(
        "daily 04:15", "when old copies are removed, local time; written as backup.calendar",
        form=A_CALENDAR, pattern=CALENDARS,
    )  # fmt: skip
    keep_last: int = key(8, "number of newest copies that stay (`restic forget --keep-last`)", low=0, high=1_000_000)
    keep_hourly: int = key(
        24, "number of last hours of which the newest copy stays (`restic forget --keep-hourly`)", low=0, high=1_000_000
    )
    keep_daily: int = key(
        14, "number of last days of which the newest copy stays (`restic forget --keep-daily`)", low=0, high=1_000_000
    )
    keep_weekly: int = key(
        8, "number of last weeks of which the newest copy stays (`restic forget --keep-weekly`)", low=0, high=1_000_000
    )
    keep_monthly: int = key(
        12, "number of last months of which the newest copy stays (`restic forget --keep-monthly`)", low=0, high=1_000_000
    )
    check: str = key(
        "weekly sun 05:00", "when the repository is verified (`restic check`), local time; written as backup.calendar",
        form=A_CALENDAR, pattern=CALENDARS,
    )  # fmt: skip
    check_percent: int = key(
        5, "share of the data that `check` reads back, in per cent; 0: only the structure", low=0, high=100
    )

    @property
    def on(self) -> bool:
        return self.repository != ""

    @property
    def place(self) -> str:
        """A name of the repository without its secrets: a hash, so another spelling of the same repository differs."""
        return hashlib.blake2b(self.repository.encode(), digest_size=8).hexdigest() if self.on else ""


SECTIONS: Final = {"offsite": OffsiteSettings}
