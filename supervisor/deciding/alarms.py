"""Alerts that are no facts: about a journal that cannot be written, or has lost facts."""

from __future__ import annotations

import hashlib

from supervisor.policy.box.prechecks import is_full
from supervisor.policy.upkeep.alarm import CRITICAL, Notice
from supervisor.printable import printable

_MOST_TEXT = 1000


def unwritable(error: str, at_s: float, wall_s: float) -> Notice:
    """The journal cannot be written."""
    text = f"the journal cannot be written ({error}): workers train on, but nothing starts until it can"
    return _alarm("unwritable", "disk" if is_full(error) else "journal", text, at_s, wall_s)


def damaged(text: str, at_s: float, wall_s: float) -> Notice:
    """The journal was rebuilt while the daemon ran, and has lost facts."""
    return _alarm("damaged", "journal", text, at_s, wall_s)


def _alarm(what: str, kind: str, text: str, at_s: float, wall_s: float) -> Notice:
    id_ = hashlib.blake2b(f"{what}/{at_s!r}/{wall_s!r}".encode(), digest_size=8).hexdigest()
    return Notice(id_, kind, CRITICAL, printable(text)[:_MOST_TEXT], wall_s)
