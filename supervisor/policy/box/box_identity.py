"""Whether this is the box that the record belongs to, or the disk was copied or moved to another box.

The witnesses on record are compared with the present ones, each only where both are known. First match wins:

1. The boot is the same as before: the same box, even if a name has changed.
2. The mainboard's or virtual machine's UUID (DMI): equal: the same box; different: another one.
3. A network card or a GPU is still there: the same box, with parts exchanged.
4. At least two of these differ: machine-id, host name, network cards, GPUs, CPU and memory: another box. The machine-id
   counts only once it has survived a reboot: a stateless image makes a new one at each boot.
5. Else the same box.

Worked examples. A virtual machine is cloned: its UUID differs: another box. A disk is put into another computer: no card,
no GPU is the same: another box.

Why not machine-id alone: images are cloned with it, containers lack it, stateless systems make a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.records import Record

PRODUCT, MACHINE, HOSTNAME, CARDS, GPUS, HARDWARE = "product", "machine", "hostname", "cards", "gpus", "hardware"
WITNESSES: Final = {
    PRODUCT: "the mainboard's UUID",
    MACHINE: "the machine-id",
    HOSTNAME: "the host name",
    CARDS: "the network cards",
    GPUS: "the GPUs",
    HARDWARE: "CPU and memory",
}
_PARTS: Final = (CARDS, GPUS)  # of which there may be several, separated by commas
_ENOUGH: Final = 2

Witnesses = Mapping[str, str]  # a witness that is missing or empty is unknown


class Verdict(Record):
    """`changed`: the witnesses that differ, in words."""

    another: bool
    changed: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        return " and ".join([", ".join(self.changed[:-1]), self.changed[-1]] if len(self.changed) > 1 else self.changed)


def compare(before: Witnesses, now: Witnesses, *, same_boot: bool, settled: bool) -> Verdict:
    """Whether this is another box. `settled`: the machine-id on record has survived a reboot."""
    both = [key for key in WITNESSES if before.get(key) and now.get(key)]
    differ = [key for key in both if before[key] != now[key]]
    changed = tuple(WITNESSES[key] for key in differ)
    if same_boot:
        return Verdict(another=False, changed=changed)
    if PRODUCT in both:
        return Verdict(another=PRODUCT in differ, changed=changed)
    if any(set(before[key].split(",")) & set(now[key].split(",")) for key in _PARTS if key in both):
        return Verdict(another=False, changed=changed)
    votes = [key for key in differ if key != MACHINE or settled]
    return Verdict(another=len(votes) >= _ENOUGH, changed=changed)


def merged(before: Witnesses, now: Witnesses) -> dict[str, str]:
    """The witnesses for the new record: a witness that cannot be read now keeps its old value."""
    return {key: now.get(key) or before.get(key, "") for key in WITNESSES if now.get(key) or before.get(key)}
