"""The shortest story of a failure: programs and misfortunes are left out, one after the other, while it still fails.

Delta debugging (Zeller's ddmin) over the names of the misfortunes that struck. Every draw of chance depends on nothing but
the seed and its own name, so what is left happens as before; every candidate is told anew, from the beginning, and counts
when it breaks the same rule. Bounded by time: what is found by then is printed.
"""

import time
import traceback
from dataclasses import replace

from boxes import night

MOST_S = 60.0
MOST_NAMED = 40  # misfortunes in a command line


def shrink(found, *, most_s=MOST_S, clock=time.monotonic):
    """The smallest night that breaks the same rule as `found` that `most_s` seconds of trying can find."""
    until_s = clock() + most_s
    best = found

    def again(names, without):
        """The night with these misfortunes alone; it ends soon after the moment at which the best one so far broke."""
        nonlocal best
        if clock() > until_s:
            return False
        tried = night(
            found.box, found.seed, found.programs, slots=found.slots, length_s=found.length_s, only=frozenset(names), without=without,
            most_s=best.world.now_s + 1.0,
        )  # fmt: skip
        if tried.name != found.name:
            return False
        best = tried
        return True

    for name in found.world.all_names:
        again(_struck(best), (*best.without, name))
    for last in (0, 1, 2, 4, 8):  # often the last few are enough
        if again(_struck(best)[-last:] if last else [], best.without):
            break
    _minimise(lambda names: again(names, best.without), lambda: _struck(best))
    return replace(best, only=frozenset(each for _, each in best.world.struck))


def _struck(found):
    return [name for _, name in found.world.struck]


def _minimise(fails, struck):
    """ddmin: halves, then quarters ... then single ones, until none can be left out."""
    parts = 2
    while (names := struck()) and parts <= 2 * len(names):
        size = max(1, len(names) // parts)
        chunks = [names[start : start + size] for start in range(0, len(names), size)]
        if any(fails([name for name in names if name not in chunk]) for chunk in chunks):
            parts = max(2, parts - 1)
        elif size == 1:
            return
        else:
            parts *= 2


def told(found):
    """What a person needs: which rule broke, the misfortunes that it takes, the last of the story, and how to see it again."""
    world = found.world
    command = f"python tests/sim/soak.py --box {found.box} --first {found.seed} --seeds 1 --programs {found.programs}"
    if found.length_s is not None:
        command += f" --days {found.length_s / 86400:g}"
    if found.slots is not None:
        command += f" --slots {found.slots}"
    if found.without:
        command += f" --without {','.join(found.without)}"
    if found.only is not None and len(found.only) <= MOST_NAMED:  # the seed alone tells the story again, too
        command += f" --only '{','.join(sorted(found.only))}'"
    cause = found.error.__cause__
    return "\n".join([
        f"seed {found.seed}, box {found.box!r}, {len(world.names)} programs, after {world.now_s:,.0f} s:",
        f"  {type(found.error).__name__}: {found.error}",
        *([f"  because of {cause!r}"] if cause is not None else []),
        *[f"  {line}" for each in traceback.format_tb(found.error.__traceback__)[-3:] for line in each.splitlines()],
        f"{len(world.struck)} misfortunes:",
        *[f"  {_clock(at_s)}  {name}" for at_s, name in world.struck[-40:]],
        "the last of the story:",
        *[f"  {line}" for line in world.story],
        f"again: {command}",
    ])  # fmt: skip


def _clock(at_s):
    return f"{int(at_s) // 3600}:{int(at_s) // 60 % 60:02}:{int(at_s) % 60:02}"
