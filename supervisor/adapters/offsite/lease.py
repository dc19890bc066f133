"""Who holds a repository: a small file of this box's own, and a lease in the repository.

restic has no compare-and-swap. A lease is a snapshot whose tags say token and generation; whoever writes one reads all of
them back, and the highest generation, then the newest, counts (`policy/upkeep/offsite.py`). Two boxes that write at the
same moment both see the same winner at the latest before their next copy.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from supervisor.adapters import durable
from supervisor.adapters.files import open_regular
from supervisor.adapters.offsite.restic import Restic
from supervisor.policy.upkeep.offsite import Claim, Lease, judge, newest

LEASE_FILE: Final = "lease.json"
_MOST_BYTES: Final = 4096


def read(offsite_dir: Path) -> Lease | None:
    """The lease that this state directory holds, or means to write; None: none, or one that cannot be understood."""
    import os

    try:
        with os.fdopen(open_regular(offsite_dir / LEASE_FILE), "rb") as file:
            body = json.loads(file.read(_MOST_BYTES))
        return Lease(
            str(body["token"]), int(body["generation"]), str(body["box"]), float(body["since_s"]), place=str(body["place"])
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(offsite_dir: Path, lease: Lease) -> None:
    """Raises OSError."""
    body = {
        "token": lease.token, "generation": lease.generation, "box": lease.box, "since_s": lease.since_s,
        "place": lease.place,
    }  # fmt: skip
    offsite_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = offsite_dir / LEASE_FILE
    durable.replace(path, json.dumps(body).encode(), aside=path.with_name(f"{LEASE_FILE}.new"))


def found(restic: Restic) -> Lease | None:
    """The lease that counts in the repository. Raises ResticError."""
    there = newest(lease for each in restic.snapshots() if (lease := each.lease) is not None)
    return None if there is None else replace(there, place=restic.place)


def claim(restic: Restic, offsite_dir: Path, known: Lease | None, *, box: str, wall_s: float) -> tuple[Claim, Lease]:
    """This box's claim, after writing a lease where there is none yet; and the lease that counts.

    `known` is the one of the journal, for a box whose own file is gone. Raises ResticError, OSError.
    """
    mine, there = read(offsite_dir) or known, found(restic)
    ours = mine if mine is not None and mine.place == restic.place else None
    verdict = judge(ours, there)
    if verdict is Claim.WRITE:
        ours = ours or Lease(uuid.uuid4().hex, 1, box, wall_s, place=restic.place)
        return _written(restic, offsite_dir, ours)
    if there is None:
        raise AssertionError("a claim on nothing is one to write")
    return verdict, there


def take_over(restic: Restic, offsite_dir: Path, *, box: str, wall_s: float) -> tuple[Claim, Lease]:
    """Write a lease that counts more than all others, and read it back. Raises ResticError, OSError."""
    ours, there = read(offsite_dir), found(restic)
    generation = 1 + max(0 if each is None else each.generation for each in (ours, there))
    return _written(restic, offsite_dir, Lease(uuid.uuid4().hex, generation, box, wall_s, place=restic.place))


def _written(restic: Restic, offsite_dir: Path, ours: Lease) -> tuple[Claim, Lease]:
    """The file first: after a crash in between, the next look writes the same lease into the repository."""
    write(offsite_dir, ours)
    restic.write_lease(ours)
    there = found(restic)
    if there is None:
        return Claim.WRITE, ours
    return judge(ours, there), there
