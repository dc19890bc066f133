"""Reads the traces that the previous boot left, once, at the first start after it (`policy/box/reboot_cause.py`).

Its sources:

* the system's journal of exactly that boot. "The boot before this one" does not work: a journal loses whole boots to power
  cuts. In a container that sees its host's boot id, it reads the entries from about the last sign of life to this boot;
* wtmp;
* the end of the kernel's log, which the kernel saved (pstore);
* the reports of watchdog devices and of the processor about the last reset.

Each source may be missing, damaged, forbidden or slow; then its traces are unknown. All sources together take at most a few
seconds and a few hundred KiB, because every training waits for the first decision.

Only root can read dumps. The systemd unit copies them before the daemon starts (deploy/last-words).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from supervisor.adapters.durable import json_of
from supervisor.policy.box.reboot_cause import Journal, Line, Traces

TIMEOUT_S: Final = 4.0
COPIED: Final = "run/extralife-last-words"
_LINES: Final = 400
_JOURNAL_BYTES: Final = 1024 * 1024
_TEXT_CHARS: Final = 400
_DUMPS: Final = 8
_DUMP_BYTES: Final = 64 * 1024
_MOST_FILES: Final = 200
_BEFORE_S: Final = 900.0
_SLACK_S: Final = 15.0  # the end is at most a period after the last sign of life, and clocks may be set
_FIELDS: Final = "MESSAGE,SYSLOG_IDENTIFIER,_TRANSPORT,_UID"
_UTMP: Final = struct.Struct("<hxxi32s4s32s256shhiii16s20x")
_WTMP_BYTES: Final = 170 * _UTMP.size
_RUN_LEVEL: Final = 1
_CARD_RESET: Final = 0x20  # WDIOF_CARDRESET: this device reset the box
_BOOT_ID: Final = re.compile("[0-9a-f]{32}")
_RESET_REASON: Final = "Previous system reset reason"


def read(
    old_boot_id: str, new_boot_id: str, *, own_stop: bool | None, since_wall_s: float | None,
    boot_wall_s: float | None = None, before_wall_s: float | None = None, root: str = "/",
) -> Traces:  # fmt: skip
    """`since_wall_s` is the last sign of life: older traces belong to an earlier end. Never raises.

    `boot_wall_s` is the beginning of this boot, `before_wall_s` the time when the previous boot was first seen. Where only
    time distinguishes boots, this keeps the orderly end of an earlier boot from counting as the end of the previous one.
    """
    until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + TIMEOUT_S
    journal, reason = Journal.UNKNOWN, ""
    lines: tuple[Line, ...] = ()
    if shutil.which("journalctl") is not None:
        which: tuple[str, ...] = ()
        if old_boot_id == new_boot_id and since_wall_s is not None and boot_wall_s is not None:
            from_s = max(since_wall_s - _BEFORE_S, before_wall_s or 0.0)
            which = f"--since=@{from_s:.0f}", f"--until=@{boot_wall_s:.3f}"
        elif old_boot_id != new_boot_id and _BOOT_ID.fullmatch(old_boot_id):
            which, reason_of = (f"_BOOT_ID={old_boot_id}",), (f"--grep={_RESET_REASON}", f"_BOOT_ID={new_boot_id}")
            told = _ask(until_s, "--output=cat", "--lines=1", *reason_of, "_TRANSPORT=kernel") or ""
            reason = told.partition("]: ")[2].strip()[:_TEXT_CHARS]
        if which:
            journal, lines = _journal(which, until_s)
    return Traces(
        own_stop, journal, lines, _dumps(Path(root), since_wall_s), _went_down(Path(root), since_wall_s),
        _watchdog(Path(root)), reason,
    )  # fmt: skip


# --- the system's journal ----------------------------------------------------------------------------------------------


def _journal(which: tuple[str, ...], until_s: float) -> tuple[Journal, tuple[Line, ...]]:
    """The journal's last lines, and the kernel's last lines, which other messages may have displaced."""
    wanted = ("--output=json", f"--output-fields={_FIELDS}", f"--lines={_LINES}", *which)
    outputs = [_ask(until_s, *wanted), _ask(until_s, *wanted, "_TRANSPORT=kernel")]
    found = {entry[0]: entry for text in outputs if text is not None for entry in _entries(text)}
    if found:
        entries = [found[cursor] for cursor in sorted(found, key=lambda each: found[each][1])]
        end_s = entries[-1][1]
        return Journal.READ, tuple(Line(end_s - at_s, text, kernel) for _, at_s, text, kernel in entries)
    if None in outputs or not _ask(until_s, "--output=cat", "--lines=1", "_UID=0"):
        return Journal.UNKNOWN, ()  # it did not answer, or this user may not read it
    return (Journal.LOST if any(Path("/var/log/journal").glob("*/system*.journal")) else Journal.UNKNOWN), ()


def _entries(text: str) -> Iterator[tuple[str, float, str, bool]]:
    """(cursor, seconds, text, by the kernel) of each line of JSON. Skips other lines."""
    for row in text.splitlines():
        try:
            body: dict[str, Any] = json_of(row)
            at_s = int(body["__REALTIME_TIMESTAMP"]) / 1e6
            message = body["MESSAGE"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(message, str):
            # In a container, the kernel's messages come through syslog, where only root is trusted.
            named = body.get("SYSLOG_IDENTIFIER") == "kernel" and body.get("_UID") == "0"
            by_kernel = body.get("_TRANSPORT") == "kernel" or named
            yield str(body.get("__CURSOR", row)), at_s, message[:_TEXT_CHARS], by_kernel


def _ask(until_s: float, *args: str) -> str | None:
    """The output of journalctl; None if it does not end in time."""
    left_s = until_s - time.clock_gettime(time.CLOCK_BOOTTIME)
    if left_s <= 0:
        return None
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            ["journalctl", "--quiet", "--no-pager", *args], capture_output=True, timeout=left_s, check=False, env=env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[-_JOURNAL_BYTES:].decode("utf-8", "replace")


# --- files ---------------------------------------------------------------------------------------------------------------


def _dumps(root: Path, since_wall_s: float | None) -> tuple[str, ...]:
    """The kernel's saved last messages, only of this end."""
    if since_wall_s is None:
        return ()
    found: dict[str, tuple[str, bytes]] = {}
    for place in (COPIED, "sys/fs/pstore", "var/lib/systemd/pstore"):
        found_there = (Path(where) / name for where, _, names in os.walk(root / place) for name in sorted(names))
        for path in itertools.islice(found_there, _MOST_FILES):
            try:
                if "dmesg" in path.name and path.stat().st_mtime >= since_wall_s - _SLACK_S and path.name not in found:
                    with path.open("rb") as file:
                        found[path.name] = str(path), file.read(_DUMP_BYTES)
            except OSError:
                continue
    newest = sorted(found)[-_DUMPS:]
    return tuple(found[name][1].decode("utf-8", "replace") for name in newest)


def _went_down(root: Path, since_wall_s: float | None) -> bool | None:
    """Whether wtmp has a shutdown since the last sign of life. None if not: wtmp loses boots to power cuts."""
    if since_wall_s is None:
        return None
    try:
        with (root / "var/log/wtmp").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - size % _UTMP.size - _WTMP_BYTES))
            data = file.read(_WTMP_BYTES)
    except OSError:
        return None
    records = _UTMP.iter_unpack(data[: len(data) - len(data) % _UTMP.size])
    down = [r[9] for r in records if r[0] == _RUN_LEVEL and r[4].rstrip(b"\0") == b"shutdown"]
    return True if any(at_s >= since_wall_s - 2.0 for at_s in down) else None


def _watchdog(root: Path) -> bool | None:
    """Whether a watchdog device reports that it reset the box. None if there is no device."""
    statuses = []
    for path in (root / "sys/class/watchdog").glob("watchdog*/bootstatus"):
        try:
            statuses.append(int(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return any(status & _CARD_RESET for status in statuses) if statuses else None
