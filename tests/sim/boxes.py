"""Boxes of the simulated world, by name: how often what goes wrong there, and whole nights on them."""

import time
from dataclasses import dataclass, replace

from ladder import climbing
from world import CALM, Chance, Odds, Phase, Verb, World, check_at_length

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
CALM_S = 8 * HOUR_S  # after it everything trains again: the slowest retry is six hours away, and so is the longest silence
ROUGH = Odds(
    crash_s=900.0, stall_s=900.0, finish_s=20 * HOUR_S, operator_s=600.0, daemon_kill_s=600.0, daemon_pause_s=1800.0,
    reboot_s=1200.0, journal_s=1200.0, clock_s=1800.0, suspend_s=HOUR_S, bad_start=0.2, spawn_breaks=0.1,
    evidence_lost=0.3, late=0.1, twice=0.1,
)  # fmt: skip
YEAR = Odds(
    crash_s=6 * HOUR_S, stall_s=12 * HOUR_S, finish_s=60 * DAY_S, operator_s=8 * HOUR_S, daemon_kill_s=12 * HOUR_S,
    daemon_pause_s=DAY_S, reboot_s=12 * HOUR_S, journal_s=DAY_S, clock_s=2 * DAY_S, suspend_s=4 * DAY_S, poison=1e-5,
)  # fmt: skip
CLIMBS_EVERY = 100  # of the mixed boxes, one has a ladder; all of its looks are taken
REBOOTS_AT = {"light": 0.01, "medium": 0.05, "heavy": 1.0}  # share of the reboots of a box that dies under load
DIES_S = (1000.0, DAY_S)  # of such a box at heavy
MIXED_S = (3600.0, 60 * DAY_S)  # between two faults of a box, whatever they are
OFTEN = {  # how often each kind comes beside the others, before chance has its say
    "crash_s": 3.0, "stall_s": 2.0, "finish_s": 0.1, "operator_s": 2.0, "daemon_kill_s": 1.0, "daemon_pause_s": 1.0,
    "reboot_s": 2.0, "journal_s": 1.0, "clock_s": 0.5, "suspend_s": 0.5, "backup_s": 0.5, "network_s": 0.5,
}  # fmt: skip
OF_EACH_PROGRAM = {"crash_s", "stall_s", "finish_s"}


def mixed(seed, programs):
    """A box of its own kind: its time between two faults is drawn log-uniformly, and so is the share of each kind."""
    chance = Chance(f"box {seed}")
    least_s, most_s = MIXED_S
    mean_s = least_s * (most_s / least_s) ** chance.share("faults")
    weights = {kind: often * 30.0 ** (chance.share(kind) - 0.5) for kind, often in OFTEN.items()}
    every_s = {kind: mean_s * sum(weights.values()) / weight for kind, weight in weights.items()}
    each = {kind: seconds * (programs if kind in OF_EACH_PROGRAM else 1) for kind, seconds in every_s.items()}
    odds = Odds(**each, poison=1e-6)
    if not climbs(seed):
        return odds
    dies_s = DIES_S[0] * (DIES_S[1] / DIES_S[0]) ** chance.share("dies")
    return replace(odds, reboot_s=dies_s, operator_s=None)  # who changes slots by hand has no ladder


def climbs(seed):
    return seed % CLIMBS_EVERY == 7


def kept_house(seed, programs):
    """How such a box is looked at, and what it is told beside its programs."""
    from removable import alerts  # by way of `world`

    return {
        "look_s": 600.0, "lively_s": 15.0, "jumps": True, "upkeep": True, **alerts(command=("page",), report_at="08:00"),
        "scripts": int(seed % 5 == 0), "climbs": climbs(seed), "reboots_at": REBOOTS_AT if climbs(seed) else None,
    }  # fmt: skip


BOXES = {  # odds, how long, and how it is looked at
    "usual": (Odds(), 16 * HOUR_S, {"look_s": 20.0}),
    "rough": (ROUGH, 6 * HOUR_S, {"look_s": 20.0}),
    "crashing": (Odds(bad_start=0.9, operator_s=6 * HOUR_S), 12 * HOUR_S, {"look_s": 20.0}),
    "poisoned": (Odds(crash_s=1200.0, poison=0.02, operator_s=None, reboot_s=None), 12 * HOUR_S, {"look_s": 20.0}),
    "scripts": (replace(ROUGH, bad_start=0.05), 8 * HOUR_S, {"look_s": 20.0, "scripts": 4}),
    "reboots": (replace(CALM, reboot_s=600.0, orderly=0.2), 3 * DAY_S, {"look_s": 600.0, "lively_s": 15.0}),
    "mixed": (mixed, 30 * DAY_S, kept_house),
    "year": (YEAR, 7 * DAY_S, {"look_s": 600.0, "lively_s": 15.0}),
}


@dataclass
class Night:
    """A story to its end: the world as it was left, and what broke (None: nothing)."""

    box: str
    seed: int
    programs: int
    world: World
    error: BaseException | None
    only: frozenset | None = None
    without: tuple = ()
    length_s: float | None = None
    slots: int | None = None

    @property
    def name(self):
        """What broke, without its figures: two nights with the same name have found the same thing."""
        return None if self.error is None else getattr(self.error, "name", type(self.error).__name__)


def night(box, seed, programs=4, *, slots=None, length_s=None, only=None, without=(), most_s=None, **more):
    """Misfortunes, then calm, then everything that is wanted trains. `most_s` ends it sooner, wherever it is.

    `more` is said to the world in place of what its box says.
    """
    odds, usual_s, look = BOXES[box]
    if callable(odds):
        odds, look = odds(seed, programs), look(seed, programs)
    look = {**look, **more}
    on_ladder = look.pop("climbs", False)
    world = World(seed, programs=programs, slots=slots or 1 + seed % programs, odds=odds, only=only, without=without, **look)
    if on_ladder:
        world.configured = climbing(world.configured)
    left_s = float("inf") if most_s is None else most_s

    def run(seconds):
        nonlocal left_s
        world.run(min(seconds, left_s))
        left_s -= seconds
        return left_s > 0

    error = None
    try:
        world.begin()
        if run(length_s or usual_s):
            world.calm_down()
            if run(1000.0):  # a daemon is there again: the longest downtime is ten minutes
                world.ask(Verb.START, *world.core.state.programs)
                if run(CALM_S):
                    healed(world)
        check_at_length(world)
    except Exception as found:
        error = found
    return Night(box, seed, programs, world, error, only, tuple(without), length_s, slots)


def healed(world):
    """Nobody stays stuck, nobody wanted stays down, everybody who asked was answered."""
    programs = world.core.state.programs.values()
    at = {program.name: program.phase for program in programs}
    running = [name for name, phase in at.items() if phase is Phase.RUNNING]
    able = [name for name, phase in at.items() if phase is not Phase.DONE]
    assert set(at.values()) <= {Phase.RUNNING, Phase.DONE, Phase.QUEUED}, f"not healed: {at}"
    assert len(running) == min(len(able), world.core.settings.level.slots), f"slots are idle: {at}"
    assert not world.waiting, f"requests {sorted(world.waiting)} were never answered"
    for worker in world.alive():
        assert worker.stuck_at_s is None, f"{worker.name} is stuck since {worker.stuck_at_s}, and stays so"
    for program in programs:
        assert program.phase is not Phase.RUNNING or program.deaths.streak == 0, (
            f"{program.name} trains, and is not forgiven"
        )


def timed(function, *args, **more):
    began = time.perf_counter()
    return function(*args, **more), time.perf_counter() - began
