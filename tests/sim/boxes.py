"""Boxes of the simulated world, by name: how often what goes wrong there, and whole nights on them."""

import time
from dataclasses import dataclass, replace

from world import CALM, Odds, Phase, Verb, World, check_at_length

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
BOXES = {  # odds, how long, and how it is looked at
    "usual": (Odds(), 16 * HOUR_S, {"look_s": 20.0}),
    "rough": (ROUGH, 6 * HOUR_S, {"look_s": 20.0}),
    "crashing": (Odds(bad_start=0.9, operator_s=6 * HOUR_S), 12 * HOUR_S, {"look_s": 20.0}),
    "poisoned": (Odds(crash_s=1200.0, poison=0.02, operator_s=None, reboot_s=None), 12 * HOUR_S, {"look_s": 20.0}),
    "scripts": (replace(ROUGH, bad_start=0.05), 8 * HOUR_S, {"look_s": 20.0, "scripts": 4}),
    "reboots": (replace(CALM, reboot_s=600.0, orderly=0.2), 3 * DAY_S, {"look_s": 600.0, "lively_s": 15.0}),
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


def night(box, seed, programs=4, *, slots=None, length_s=None, only=None, without=(), most_s=None):
    """Misfortunes, then calm, then everything that is wanted trains. `most_s` ends it sooner, wherever it is."""
    odds, usual_s, look = BOXES[box]
    world = World(seed, programs=programs, slots=slots or 1 + seed % programs, odds=odds, only=only, without=without, **look)
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
        assert program.phase is not Phase.RUNNING or program.streak == 0, f"{program.name} trains, and is not forgiven"


def timed(function, *args, **more):
    began = time.perf_counter()
    return function(*args, **more), time.perf_counter() - began
