"""The ownership of a repository: a small file on this box, and a lease in the repository.

restic has no compare-and-swap. A lease is a snapshot whose tags hold token and generation. A box that writes a lease reads
all of them back. The lease with the highest generation counts, and among equal generations the newest
(`rules.py`). If two boxes write at the same moment, both see the same winner before their next copy at the
latest.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from supervisor.adapters import durable
from supervisor.features.offsite.adapters.restic import COPY_TAG, Restic, ResticSnapshot
from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.rules import judge, newest

LEASE_FILE: Final = "lease.json"


def read(offsite_dir: Path) -> Lease | None:
    """The lease that this state directory holds, or is about to write. None: no lease, or a file that cannot be parsed."""
    try:
        body = durable.read_json(offsite_dir / LEASE_FILE)
        return Lease(
            str(body["token"]), int(body["generation"]), str(body["box"]), float(body["since_s"]), place=str(body["place"])
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(offsite_dir: Path, lease: Lease) -> None:
    """Write the lease file. Raises OSError."""
    body = {key: getattr(lease, key) for key in ("token", "generation", "box", "since_s", "place")}
    offsite_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = offsite_dir / LEASE_FILE
    durable.replace(path, json.dumps(body).encode(), aside=path.with_name(f"{LEASE_FILE}.new"))


def in_repository(restic: Restic) -> Lease | None:
    """The lease that counts in the repository. Raises ResticError."""
    return _newest(restic, restic.snapshots())


def _newest(restic: Restic, snapshots: list[ResticSnapshot]) -> Lease | None:
    current = newest(lease for each in snapshots if (lease := each.lease) is not None)
    return None if current is None else replace(current, place=restic.place)


def claim(
    restic: Restic, offsite_dir: Path, known: Lease | None, box: str, wall_s: float,
    snapshots: list[ResticSnapshot] | None = None, moved_with: str | None = None,
) -> tuple[Claim, Lease]:  # fmt: skip
    """Returns this box's claim and the lease that counts. If the repository has no lease yet, this writes one first.

    `known` is the lease in the journal, for a box whose own file is missing. `snapshots`: the repository's, if the caller
    has just listed them. `moved_with`: as of `OffsiteCopy`. Raises ResticError, OSError.
    """
    snapshots = restic.snapshots() if snapshots is None else snapshots
    mine, current = read(offsite_dir) or known, _newest(restic, snapshots)
    ours = mine if mine is not None and mine.place == restic.place else None
    verdict = judge(ours, current)
    # A lease that is not on record yet was made here, by the restore: the copy before it cannot be on record either.
    recorded = known is not None and ours is not None and known.token == ours.token
    if verdict is Claim.HELD and current is not None and moved_with is not None and recorded:
        if [each.id for each in snapshots if COPY_TAG in each.tags][-1:] not in ([], [moved_with]):
            return Claim.LOST, current
        return _written(
            restic, offsite_dir, Lease(uuid.uuid4().hex, current.generation + 1, box, wall_s, place=restic.place)
        )
    if current is None or verdict is Claim.WRITE:
        return _written(restic, offsite_dir, ours or Lease(uuid.uuid4().hex, 1, box, wall_s, place=restic.place))
    if verdict is Claim.HELD:
        restic.gone = frozenset(each.host for each in snapshots if each.generation == current.generation)
    return verdict, current


def take_over(
    restic: Restic, offsite_dir: Path, box: str, wall_s: float, known: list[ResticSnapshot] | None = None
) -> tuple[Claim, Lease]:  # fmt: skip
    """Write a lease with a higher generation than all others, and read it back. Raises ResticError, OSError.

    `known`: the repository's snapshots, as listed some time ago. Reading our lease back also finds a lease that was written
    since then.
    """
    restic.gone = None
    ours, current = read(offsite_dir), _newest(restic, restic.snapshots() if known is None else known)
    generation = 1 + max(0 if each is None else each.generation for each in (ours, current))
    return _written(restic, offsite_dir, Lease(uuid.uuid4().hex, generation, box, wall_s, place=restic.place))


def _written(restic: Restic, offsite_dir: Path, ours: Lease) -> tuple[Claim, Lease]:
    """Write the lease to the file first, then to the repository.

    After a crash between these steps, the next claim writes the same lease into the repository.
    """
    write(offsite_dir, ours)
    restic.write_lease(ours)
    current = in_repository(restic)
    if current is None:
        return Claim.WRITE, ours
    return judge(ours, current), current
