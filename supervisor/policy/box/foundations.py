"""The answer when a file or directory that the daemon relies on is no longer the one that it opened or made.

The daemon holds files open and relies on others by their paths: the lock, the logs, the control socket, directories.
`adapters/foundations.py` looks at each by identity (device, inode, kind) every two seconds. For each finding the rule is,
first match wins:

1. It cannot be looked at (no permission, an I/O error, a mount that hangs): trouble. It may still exist.
2. Its worker or another thread restores it: it is reported. It is trouble if the next look finds it missing again.
3. A start of the daemon restores it: the daemon ends in order and starts its program anew. Workers run on, and the new image
   adopts them. Trouble as long as that start would fail, or after three such restarts within a minute.
4. Otherwise: trouble.

Worked example: `systemd-logind` removes an ordinary user's runtime directory at logout, and only root can make it again:
trouble. The user logs in, and the next look makes the directory: the daemon restarts itself, and listens there.

Why not make each file again while the daemon runs: each needs a second way to be made, which nothing else uses. A finding
that comes and goes is recorded at most once in ten minutes (`record_at_s`), and one that stays is recorded then.

Why not inotify: it reports nothing for a network file system, an unmount or a mount over the directory, and it loses events
when its queue is full.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import inf
from typing import Final

from supervisor.formats import span
from supervisor.records import Record

_AGAIN_S: Final = 600.0
MOST_RESTARTS: Final = 3  # within a minute: each one takes a second of supervision


class Look(enum.StrEnum):
    """The result of one look at a path that does not have the expected file."""

    MISSING = "missing"
    REPLACED = "replaced"  # another file, directory or file system has its path
    DAMAGED = "damaged"  # it is the expected file, but damaged: the detail says how
    UNKNOWN = "unknown"  # it could not be looked at
    FAILING = "failing"  # it is no file but a thread of the daemon: what it does has failed


class Answer(enum.StrEnum):
    RESTORE = "restore"  # somebody else restores it
    RESTART = "restart"
    TROUBLE = "trouble"


class Finding(Record):
    """One watched file or directory with a fault. Without a fault there is no finding."""

    name: str  # of the file or directory, as people read it: "control socket"
    path: str
    look: Look
    detail: str = ""  # why it is unknown, or what is at its path instead
    consequence: str = ""  # what does not work meanwhile
    remedy: str = ""  # what the operator can do, where the daemon can do nothing
    restorable: bool = False  # by its worker or another thread, or it is restored already
    restarts: bool = False  # a start of the daemon puts it right
    error: str = ""  # why it is not restored yet, or why a start would fail
    holds_starts: bool = False  # no worker may be started while this lasts


def judge(finding: Finding, *, may_restart: bool, again: bool = False) -> tuple[Answer, str]:
    """The answer, and the sentence for people. `again`: the look before had found a fault there too."""
    parts = [what := f"the {_named(finding.name, finding.path)} {_state(finding)}"]
    if finding.error:
        parts.append(f"restoring it failed ({finding.error}) and is tried again")
    elif finding.look is not Look.UNKNOWN:
        if finding.restorable and (not again or finding.look is Look.REPLACED):
            return Answer.RESTORE, f"{what}: it is restored"
        if finding.restorable:
            parts.append("it is not restored yet")
        elif finding.restarts and may_restart:
            return Answer.RESTART, f"{what}: extralife restarts itself, which restores it; workers run on"
        elif finding.restarts:
            parts.append(f"extralife has restarted itself {MOST_RESTARTS} times within a minute, and waits for its end")
    parts += [part for part in (finding.consequence, finding.remedy) if part]
    return Answer.TROUBLE, "; ".join(parts)


def may_restart_at_s(restarts_s: Sequence[float]) -> float:
    """From when the daemon may restart itself again, after these restarts. Example: at 0, 20 and 40 s: at 60 s."""
    return restarts_s[-MOST_RESTARTS] + 60.0 if len(restarts_s) >= MOST_RESTARTS else -inf


def explained(findings: Sequence[Finding]) -> frozenset[str]:
    """The names of findings below a directory with a finding of its own, which explains them.

    Example: the state directory was removed. The finding that its lock is gone adds nothing.
    """
    gone = tuple(f"{each.path}/" for each in findings if each.look is not Look.UNKNOWN)
    return frozenset(each.name for each in findings if each.path.startswith(gone))


def _named(name: str, path: str) -> str:
    return f"{name} {path}".rstrip()  # a thread has no path


def _state(finding: Finding) -> str:
    detail = f" ({finding.detail})" if finding.detail else ""
    if finding.look is Look.FAILING:
        return f"fails{detail} and is tried again"
    done = {Look.MISSING: "was removed", Look.REPLACED: "was replaced", Look.DAMAGED: "is damaged"}
    return done.get(finding.look, "cannot be checked") + detail


def over(name: str, path: str, for_s: float) -> str:
    """The sentence for a finding that is over. Example: `the control socket /run/x/s is in place again, after 2 s`."""
    return f"the {_named(name, path)} is {'in place' if path else 'at work'} again, after {span(for_s)}"


def record_at_s(recorded_at_s: float | None) -> float:
    """From when a new finding about the same path may be recorded. Example: recorded at 100 s: from 700 s on."""
    return -inf if recorded_at_s is None else recorded_at_s + _AGAIN_S
