"""A repository of copies that several simulated boxes share: leases and whole copies, by the rules of the real one.

Nothing of a copy is there before its end. A box that is gone takes with it what it had begun.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

from world import CALM, World, hold

from supervisor.features.offsite.messages import Claim, Lease, LeaseFound, OffsiteDone, OffsiteTakeOver
from supervisor.features.offsite.rules import judge, newest
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.fold import fold_all

RULES = OffsiteSettings(repository="/srv/copies", every_s=300.0, timeout_s=600.0)
LOOK_S, COPY_S = 1.0, 6.0
LEAVES_S = 30.0
SLICE_S = 5.0


@dataclass
class Copy:
    """What a box was at one moment."""

    id: str
    journal: list
    disks: dict
    mark: object


class Repository:
    def __init__(self):
        self.leases, self.copies, self.begun = [], [], 0

    def does(self, world, command):
        if isinstance(command, OffsiteTakeOver):
            world.lease = self._written(world)
            world.after(LOOK_S, world.arrive, world.daemon, LeaseFound(0.0, Claim.HELD, world.lease))
            world.after(LOOK_S, world.arrive, world.daemon, OffsiteDone(0.0, "take-over"))
            return
        there = newest(self.leases)
        claim = judge(world.lease, there)
        if claim is Claim.WRITE:
            world.lease = there = self._written(world)
            claim = Claim.HELD
        world.after(LOOK_S, world.arrive, world.daemon, LeaseFound(0.0, claim, there))
        what = "look" if command.look_only else "copy"
        if claim is not Claim.HELD or command.look_only:
            told = "" if claim is Claim.HELD else "it is another box's"
            world.after(LOOK_S, world.arrive, world.daemon, OffsiteDone(0.0, what, command.cause, told))
            return
        self.begun += 1
        disks = deepcopy(world.disks)
        made = Copy(f"c{self.begun}", list(world.core.journal), disks, world.mark)
        steps = {name: disk.newest() for name, disk in disks.items()}
        done = OffsiteDone(
            0.0, what, command.cause, "", made.id, world.core.now_s, world.wall_s, steps, 1000, 10, COPY_S, then=command.then
        )
        world.after(COPY_S, self._appears, world, made, done, world.daemon)

    def _appears(self, world, made, done, daemon):
        self.copies.append(made)
        world.arrive(daemon, done)

    def _written(self, world):
        generation = 1 + max((each.generation for each in self.leases), default=0)
        self.leases.append(Lease(f"t{generation}", generation, world.box, world.wall_s))
        return self.leases[-1]


def box(seed=7, **more):
    """A quiet box that copies."""
    world = World(seed, odds=replace(CALM), programs=2, look_s=5.0, offsite=RULES, **more)
    world.repository = Repository()
    return world


def vanish(world):
    """Nothing of it is left but its disk, which may come back."""
    world.reboot()
    world.events = []


def come_back(world, now_s):
    """It was off until now."""
    world.now_s = now_s
    world.boot_began_s = now_s
    world.after(1.0, world.start)


def regained(lost, now_s, name="b"):
    """Another box that goes on from the newest copy, and has taken over."""
    copy = lost.repository.copies[-1]
    world = World(lost.seed + 1, odds=replace(CALM), programs=2, look_s=5.0, offsite=RULES)
    world.repository, world.box = lost.repository, name
    world.core.journal = list(copy.journal)
    world.core.folded = fold_all(world.core.journal)
    world.disks, world.mark = deepcopy(copy.disks), copy.mark
    world.now_s = world.boot_began_s = now_s
    world.boot, world.reboots = 100, world.core.folded.reboots_total
    world.lease = world.repository._written(world)
    return world.begin(), copy


def run_together(boxes, seconds, *, most_double_s):
    """Both go on, side by side. Two of them never train at once for longer than one copy interval and the time to leave."""
    double_s, over_s = 0.0, boxes[0].now_s + seconds
    while boxes[0].now_s < over_s:
        for each in boxes:
            each.run(SLICE_S)
        double_s = double_s + SLICE_S if sum(bool(each.alive()) for each in boxes) > 1 else 0.0
        said = f"{' and '.join(each.box for each in boxes)} train at once since {double_s:.0f} s"
        hold("no double training", double_s <= most_double_s, said)
