"""The answer when a file or directory that the daemon relies on is no longer the one that it opened or made.

The daemon holds files open and relies on others by their paths: the lock, the logs, the control socket, directories.
`adapters/foundations.py` looks at each by identity (device, inode, kind) every two seconds. For each finding the rule is,
first match wins:

1. It cannot be looked at (no permission, an I/O error, a mount that hangs): trouble, and no restore. Restoring a file that
   still exists could destroy it.
2. It is missing or replaced, and there is no safe way to restore it: trouble.
3. It is missing or replaced, and the last attempt to restore it failed: trouble. The next look tries again.
4. Otherwise it is restored.

Worked example: `systemd-logind` removes an ordinary user's runtime directory at logout. Look 1 finds the control socket
missing: it is restored, and reported.

A finding that comes and goes is recorded at most once in ten minutes (`record_again`).

Why not inotify: it reports nothing for a network file system, an unmount or a mount over the directory, and it loses events
when its queue is full.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from supervisor.formats import span
from supervisor.records import Record

_AGAIN_S: Final = 600.0
JOURNAL: Final = "journal"  # the loop restores and reports it by itself: no fact can be recorded without it


class Look(enum.StrEnum):
    """The result of one look at a path that does not have the expected file."""

    MISSING = "missing"
    REPLACED = "replaced"  # another file, directory or file system has its path
    DAMAGED = "damaged"  # it is the expected file, but damaged: the detail says how
    UNKNOWN = "unknown"  # it could not be looked at
    FAILING = "failing"  # it is no file but a thread of the daemon: what it does has failed


class Answer(enum.StrEnum):
    """The answer to a finding."""

    RESTORE = "restore"
    TROUBLE = "trouble"


class Finding(Record):
    """One watched file or directory with a fault. Without a fault there is no finding."""

    name: str  # of the file or directory, as people read it: "control socket"
    path: str
    look: Look
    detail: str = ""  # why it is unknown, or what is at its path instead
    consequence: str = ""  # what does not work meanwhile
    remedy: str = ""  # what the operator can do, where the daemon can do nothing
    restorable: bool = False
    error: str = ""  # of the newest attempt to restore it
    minor: bool = False  # only its trouble is recorded, not an immediate restore
    holds_starts: bool = False  # no worker may be started while this lasts


class Verdict(Record):
    """The answer to a finding, and the sentence for people."""

    answer: Answer
    why: str


def judge(finding: Finding) -> Verdict:
    """Restore or trouble, with the reason."""
    what = f"the {_what(finding.name, finding.path)} {_state(finding)}"
    if finding.restorable and not finding.error and finding.look is not Look.UNKNOWN:
        return Verdict(Answer.RESTORE, f"{what}: it is restored")
    parts = [what]
    if finding.error:
        parts.append(f"restoring it failed ({finding.error}) and is tried again")
    parts += [part for part in (finding.consequence, finding.remedy) if part]
    return Verdict(Answer.TROUBLE, "; ".join(parts))


def explained(findings: Iterable[Finding]) -> frozenset[str]:
    """The names of findings below a directory that is in trouble itself: the directory's finding explains them.

    Example: the state directory was removed. The finding that its lock is gone adds nothing, and no lock is made there.
    """
    found = list(findings)
    gone = [f"{each.path}/" for each in found if each.look is not Look.UNKNOWN and judge(each).answer is Answer.TROUBLE]
    return frozenset(each.name for each in found if any(each.path.startswith(path) for path in gone))


def _what(name: str, path: str) -> str:
    return f"{name} {path}".rstrip()  # a thread has no path


def _state(finding: Finding) -> str:
    detail = f" ({finding.detail})" if finding.detail else ""
    match finding.look:
        case Look.MISSING:
            return f"was removed{detail}"
        case Look.REPLACED:
            return f"was replaced{detail}"
        case Look.DAMAGED:
            return f"is damaged{detail}"
        case Look.FAILING:
            return f"fails{detail} and is tried again"
        case _:
            return f"cannot be checked{detail}"


def over(name: str, path: str, for_s: float) -> str:
    """The sentence for a finding that is over. Example: `the control socket /run/x/s is in place again, after 2 s`."""
    return f"the {_what(name, path)} is {'in place' if path else 'at work'} again, after {span(for_s)}"


def record_again(recorded_at_s: float | None, now_s: float) -> bool:
    """Whether a new finding about the same path may be recorded. Example: recorded at 100 s: not at 400 s, but at 700 s."""
    return recorded_at_s is None or now_s - recorded_at_s >= _AGAIN_S
