"""The ownership of a repository: a small file on this box, and a lease in the repository.

restic has no compare-and-swap. A lease is a snapshot whose tags hold token and generation. A box that writes a lease reads
all of them back. The lease with the highest generation counts, and among equal generations the newest
(`rules.py`). If two boxes write at the same moment, both see the same winner before their next copy at the
latest.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable
from supervisor.features.offsite.adapters.restic import COPY_TAG, Restic, ResticSnapshot
from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.rules import judge, judge_moved, newest
from supervisor.policy.box.box_identity import Witnesses, compare
from supervisor.records import Record

LEASE_FILE: Final = "lease.json"
_MOST_BYTES: Final = 4096


def read(offsite_dir: Path) -> Lease | None:
    """The lease that this state directory holds, or is about to write. None: no lease, or a file that cannot be parsed."""
    body = _body(offsite_dir)
    try:
        return Lease(
            str(body["token"]), int(body["generation"]), str(body["box"]), float(body["since_s"]), place=str(body["place"])
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


def _body(offsite_dir: Path) -> dict[str, Any]:
    try:
        body = json.loads(files.read(offsite_dir / LEASE_FILE, _MOST_BYTES, follow=False))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def write(offsite_dir: Path, lease: Lease, hardware: Witnesses = MappingProxyType({})) -> None:
    """Write the lease file. Raises OSError.

    `hardware` is that of the box that holds the lease. If it is empty, the first box to start here owns the lease.
    """
    body = {
        "token": lease.token, "generation": lease.generation, "box": lease.box, "since_s": lease.since_s,
        "place": lease.place, "hardware": dict(hardware),
    }  # fmt: skip
    offsite_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = offsite_dir / LEASE_FILE
    durable.replace(path, json.dumps(body).encode(), aside=path.with_name(f"{LEASE_FILE}.new"))


def in_repository(restic: Restic) -> Lease | None:
    """The lease that counts in the repository. Raises ResticError."""
    return _newest(restic, restic.snapshots())


def _newest(restic: Restic, snapshots: list[ResticSnapshot]) -> Lease | None:
    current = newest(lease for each in snapshots if (lease := each.lease) is not None)
    return None if current is None else replace(current, place=restic.place)


class ThisBox(Record):
    """This box: its display name, its clock, its hardware, and the newest copy that it has recorded itself."""

    box: str
    wall_s: float
    hardware: Witnesses = field(default_factory=dict)
    copied: str = ""


def claim(
    restic: Restic, offsite_dir: Path, known: Lease | None, here: ThisBox, snapshots: list[ResticSnapshot] | None = None
) -> tuple[Claim, Lease]:  # fmt: skip
    """Returns this box's claim and the lease that counts. If the repository has no lease yet, this writes one first.

    `known` is the lease in the journal, for a box whose own file is missing. `snapshots`: the repository's, if the caller
    has just listed them. Raises ResticError, OSError.
    """
    snapshots = restic.snapshots() if snapshots is None else snapshots
    mine, current = read(offsite_dir) or known, _newest(restic, snapshots)
    ours = mine if mine is not None and mine.place == restic.place else None
    verdict = judge(ours, current)
    if verdict is Claim.HELD and ours is not None and current is not None:
        verdict = _on_its_hardware(offsite_dir, ours, here, snapshots)
        ours = Lease(uuid.uuid4().hex, current.generation + 1, here.box, here.wall_s, place=restic.place)
    if verdict is Claim.WRITE:
        ours = ours or Lease(uuid.uuid4().hex, 1, here.box, here.wall_s, place=restic.place)
        return _written(restic, offsite_dir, ours, here.hardware)
    if current is None:
        raise AssertionError("a claim on nothing is one to write")
    if verdict is Claim.HELD:
        restic.gone = frozenset(each.host for each in snapshots if each.generation == current.generation)
    return verdict, current


def _on_its_hardware(offsite_dir: Path, ours: Lease, here: ThisBox, snapshots: list[ResticSnapshot]) -> Claim:
    """Whether this box, which finds its own token, is also the box that wrote it. If not, its disk was cloned or moved."""
    wrote = _body(offsite_dir).get("hardware")
    wrote = {str(key): str(value) for key, value in wrote.items()} if isinstance(wrote, dict) else {}
    if not wrote:  # no box has started on this directory yet
        if here.hardware and read(offsite_dir) is not None:
            write(offsite_dir, ours, here.hardware)
        return Claim.HELD
    if not here.hardware or not compare(wrote, here.hardware, same_boot=False, settled=True).another:
        return Claim.HELD
    copies = [each.id for each in snapshots if COPY_TAG in each.tags]
    return judge_moved(known_copy=here.copied, newest_copy=copies[-1] if copies else "")


def take_over(
    restic: Restic, offsite_dir: Path, here: ThisBox, known: list[ResticSnapshot] | None = None
) -> tuple[Claim, Lease]:  # fmt: skip
    """Write a lease with a higher generation than all others, and read it back. Raises ResticError, OSError.

    `known`: the repository's snapshots, as listed some time ago. Reading our lease back also finds a lease that was written
    since then.
    """
    restic.gone = None
    ours, current = read(offsite_dir), _newest(restic, restic.snapshots() if known is None else known)
    generation = 1 + max(0 if each is None else each.generation for each in (ours, current))
    lease = Lease(uuid.uuid4().hex, generation, here.box, here.wall_s, place=restic.place)
    return _written(restic, offsite_dir, lease, here.hardware)


def _written(restic: Restic, offsite_dir: Path, ours: Lease, hardware: Witnesses) -> tuple[Claim, Lease]:
    """Write the lease to the file first, then to the repository.

    After a crash between these steps, the next claim writes the same lease into the repository.
    """
    write(offsite_dir, ours, hardware)
    restic.write_lease(ours)
    current = in_repository(restic)
    if current is None:
        return Claim.WRITE, ours
    return judge(ours, current), current
