"""When the trainings are copied off the box, when the newest copy is too old, and which box may continue them.

The rule of when. Without a `repository`, or while another box holds it, the box makes no copies. Otherwise:

1. A reason is answered at once: another level, a rollback, the operator, a notice of the end, the end of the work.
2. If a program has trained since the newest copy began: `every_s` after that moment. The first copy comes 60 s after the
   daemon's start. A box on which no program trains makes no copies: the newest one has everything. But a copy that promised
   the next one is followed by it in time, and one that said that none follows is replaced once that is untrue. A copy
   promises the next one if a program is to train. Else it says why none follows: the work is over, no program is to train,
   or every program has left because this box ends.
3. After a failure, neither comes before 60, 120, 240 ... seconds, at most `every_s`. Only the operator, a reboot and a
   notice of the end do not wait so long: their copy is tried again after two seconds. A copy that the operator asked for
   is tried once.

Worked example, every_s = 900: a copy begins at 2:00. At 2:07 the level changes: the next one begins at 2:07, and the one
after it at 2:22. The repository cannot be reached then: it is tried again at 2:23, 2:25, 2:29, 2:37, 2:52 ...

The rule of age. The age of a copy counts from the moment at which its files were collected. The copy is too old `late_s`
after that moment, if a program has trained since: one alert, until a copy succeeds.

The rule of the lease. The repository names the one box that continues its trainings: a token, and a generation that grows
by one with each take-over. Of several leases the highest generation counts, then the newest. A box that finds a lease
with its own token continues. A box that held this repository and finds another box's lease is fenced: its programs stop.
A box that never held it copies nothing, and its programs run: a mistyped repository must not cost a night. Example: box A
holds generation 1 and vanishes; a restore on box B takes over with generation 2; A comes back, reads 2, and starts no
program.

The rule of the first look. After a reboot, a box that held the repository reads the lease before it starts a program,
because another box may have taken over meanwhile. It waits for the answer at most 10 s. A repository that cannot be reached
costs these seconds and stops no program.

A disk that is cloned, or moved to other hardware (a volume of a pod), carries the token with it. There it continues only if
its own record knows the newest copy: then no other box has continued meanwhile, and it takes over with a new token, so that
the other box stops if it still runs. A newer copy was made by another box, which continues: this one stops.

Another repository proves nothing about these trainings, unless the very box that has taken over holds it: a fenced box
that is given another repository stays fenced until that repository can be read.

The rule of retention. `keep_*` says which copies stay; restic judges by their time. Three kinds stay whatever it says: the
newest copy; the newest one before the last take-over; and for each configured program the newest copy with a checkpoint of
it, and the one with its furthest checkpoint. So a program that begins from scratch, or whose files can no longer be copied,
loses no checkpoint by that. "Newest" counts the copies, not the time: copies of a box whose clock was ahead stay the last
in time, so `keep_last` alone would drop the true newest one. Example: Pong is at step 9,000 in copy 7 and, after a loss, at
50 in copy 8: copy 7 stays until a copy has Pong at 9,000 again.

The rule of locks. restic locks the repository while it copies, prunes or checks. A lock whose process is gone would keep all
others out for 30 minutes, restic's own limit. A lock of this host is abandoned if that process runs no restic. A lock of
another host is abandoned if the lease says that nobody is there: this box takes over, or that host had this box's own lease
(a container with a new name). Example: box A dies in `prune`. B restores without a lock, and its take-over removes A's. The
lock of a check on the owner's laptop is waited for.

Why not by the age of a lease (a holder that is silent for an hour has lost it): if a provider's network failed for two
hours, a training would stop that no other box continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.policy.upkeep.copies import (
    URGENT,
)
from supervisor.records import Record

_COPIES: Final = {
    "s3": frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}),
    "b2": frozenset({"B2_ACCOUNT_ID", "B2_ACCOUNT_KEY"}),
    "azure": frozenset({"AZURE_ACCOUNT_NAME", "AZURE_ACCOUNT_KEY", "AZURE_ACCOUNT_SAS"}),
    "gs": frozenset({"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_ACCESS_TOKEN"}),
    "swift": frozenset({"OS_PASSWORD", "OS_AUTH_TOKEN", "OS_APPLICATION_CREDENTIAL_SECRET", "ST_KEY"}),
}
_FIRST_S: Final = 60.0
_FIRST_RETRY_S: Final = 60.0
_URGENT_RETRY_S: Final = 2.0
_FIRST_LOOK_S: Final = 10.0
_OLD_LOCK_S: Final = 1800.0  # restic's own limit
_LAST_COPY_S: Final = 2.0  # with less time, no last copy begins


class Copies(Record):
    """The data for the rules of when and of age. Times are journal time in seconds; None: there was none."""

    began_s: float | None  # start of the daemon
    newest_s: float | None  # the moment of the newest copy
    asked: str = ""  # the reason that waits for a copy
    trained: bool = False  # a program trains, or has trained since the newest copy
    failures: int = 0  # in a row
    failed_s: float | None = None
    promised_s: float | None = None  # the newest copy says that the next one comes so long after it; None: it does not


def due_s(rules: OffsiteSettings, copies: Copies) -> float | None:
    """When the next copy begins; a time that has passed means now. None: no copy is needed."""
    if not rules.on:
        return None
    if copies.asked:
        wanted_s = 0.0
    elif not copies.trained and copies.promised_s is None:
        return None
    elif copies.newest_s is None:
        wanted_s = (copies.began_s or 0.0) + min(_FIRST_S, rules.every_s)
    else:
        wanted_s = copies.newest_s + min(rules.every_s, rules.every_s if copies.promised_s is None else copies.promised_s)
    if copies.failed_s is None or not copies.failures:
        return wanted_s
    wait_s = _URGENT_RETRY_S if copies.asked in URGENT else retry_s(rules, copies.failures)
    return max(wanted_s, copies.failed_s + wait_s)


def retry_s(rules: OffsiteSettings, failures: int) -> float:
    """Seconds until the next try, by the number of failures in a row. Example: 60, 120, 240, 480, 900, 900 s."""
    return float(min(rules.every_s, _FIRST_RETRY_S * 2.0 ** min(failures - 1, 20)))


def last_copy_s(rules: OffsiteSettings, left_s: float | None) -> float:
    """The longest time for a copy after all programs have left; 0: none. `left_s`: until the announced end of the box.

    The box may end at any moment after an unannounced SIGTERM (`docker stop` waits 10 s). A copy that is cut off then costs
    nothing. Examples, reboot_s = 20: 20 s; 8 s before the announced end: 8 s.
    """
    limit_s = rules.reboot_s if left_s is None else min(rules.reboot_s, left_s)
    return limit_s if limit_s >= min(_LAST_COPY_S, rules.reboot_s) else 0.0


def late_at_s(rules: OffsiteSettings, copies: Copies) -> float | None:
    """When the newest copy becomes too old; None: never, because no program has trained since."""
    since_s = copies.began_s if copies.newest_s is None else copies.newest_s
    if not rules.on or not copies.trained or since_s is None:
        return None
    return since_s + rules.late_s


def first_look_until_s(rules: OffsiteSettings, *, rebooted: bool, held: bool, now_s: float) -> float | None:
    """Until when a starting daemon waits for the lease before it starts a program; None: it does not wait."""
    return now_s + _FIRST_LOOK_S if rules.on and rebooted and held else None


def verified(read_percent: int | None) -> str:
    """What a check without an error has shown. None: an earlier version did not record how much it read.

    Example, 5: `no errors in its structure and in 5 % of its data; the other data was not read`.
    """
    if read_percent is None:
        return "no errors"
    if not read_percent:
        return "no errors in its structure; its data was not read"
    rest = "; the other data was not read" if read_percent < 100 else ""
    return f"no errors in its structure and in {read_percent} % of its data{rest}"


# --- the lease ---------------------------------------------------------------------------------------------------------


def newest(leases: Iterable[Lease]) -> Lease | None:
    """The lease that counts; None: there is none."""
    return max(leases, key=lambda each: (each.generation, each.since_s, each.id), default=None)


def judge(ours: Lease | None, found: Lease | None) -> Claim:
    """This box's claim on a repository whose newest lease is `found`. `ours`: the lease that it holds or wants to write."""
    if found is None:
        return Claim.WRITE
    if ours is None:
        return Claim.FOREIGN
    if ours.token == found.token:
        return Claim.HELD
    return Claim.WRITE if ours.generation > found.generation else Claim.LOST


# --- locks -------------------------------------------------------------------------------------------------------------


class Lock(Record):
    """A lock of a repository. restic renews it every five minutes."""

    host: str
    pid: int
    renewed_wall_s: float


def is_abandoned(lock: Lock, *, here: str, runs: bool, gone: frozenset[str] | None, wall_s: float) -> bool:
    """Whether nobody holds the lock any more. `runs`: this host has a restic with its process id.

    `gone`: hosts of which the lease says that nobody is there; None: every other host.
    """
    if wall_s - lock.renewed_wall_s >= _OLD_LOCK_S:
        return True
    if lock.host == here:
        return not runs
    return gone is None or lock.host in gone


# --- retention -----------------------------------------------------------------------------------------------------------


class Kept(Record):
    """A copy in the repository, and the step of each program's checkpoint in it (None: not known)."""

    id: str
    generation: int
    steps: Mapping[str, int | None]


def indispensable(copies: Sequence[Kept], programs: Iterable[str]) -> set[str]:
    """The ids of the copies that stay whatever `keep_*` says. `copies`: the oldest first."""
    spared = [*copies[-1:], *[each for each in copies if each.generation < copies[-1].generation][-1:]]
    for name in programs:
        having = [each for each in copies if name in each.steps]
        furthest = max(having, key=lambda each: -1 if (step := each.steps[name]) is None else step, default=None)
        spared += [*having[-1:], *([] if furthest is None else [furthest])]
    return {each.id for each in spared}


def keys_of_copies(repository: str, env_file: str) -> frozenset[str]:
    """The variables from which restic takes the keys of this repository. Example: `s3:h/b` -> AWS_ACCESS_KEY_ID ..."""
    return frozenset() if env_file else _COPIES.get(repository.partition(":")[0], frozenset())
