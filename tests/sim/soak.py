"""More nights than a commit can wait for: `python tests/sim/soak.py --seeds 300 --days 7 --programs 10`.

Tells each night with its seed, shrinks what it finds to the shortest story, and ends with a table; its exit status is the
number of findings (at most 99). `--box`, `--first`, `--without` and `--only` tell one story again, as a finding says.
"""

import argparse
import collections
import sys
import time

from boxes import BOXES, DAY_S, night
from shrinking import shrink, told

EVERY_S = 30.0  # between two lines of progress


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--box", choices=[*BOXES, "all"], default="year", help="what goes wrong how often (boxes.py)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=10, help="how many, one after the other")
    parser.add_argument("--days", type=float, help="of misfortunes; seven calm hours follow (default: the box's)")
    parser.add_argument("--programs", type=int, default=4)
    parser.add_argument("--slots", type=int, help="programs at once (default: by seed, from one to all)")
    parser.add_argument("--without", default="", help="programs to leave out: P1,P3")
    parser.add_argument("--only", help="the misfortunes that may happen, by name")
    parser.add_argument("--story", action="store_true", help="print the story also when nothing is found")
    parser.add_argument("--shrink-s", type=float, default=60.0, help="how long to look for a shorter story")
    return parser.parse_args()


def main():
    args = arguments()
    boxes = list(BOXES) if args.box == "all" else [args.box]
    without = tuple(name for name in args.without.split(",") if name)
    only = None if args.only is None else frozenset(name for name in args.only.split(",") if name)
    length_s = None if args.days is None else args.days * DAY_S
    began_s = last_s = time.monotonic()
    counts, struck, findings, nights, days = collections.Counter(), collections.Counter(), [], 0, 0.0
    for seed in range(args.first, args.first + args.seeds):
        for box in boxes:
            found = night(box, seed, args.programs, slots=args.slots, length_s=length_s, only=only, without=without)
            nights, days = nights + 1, days + found.world.now_s / DAY_S
            counts.update(found.world.counts)
            struck.update(name.split()[0] for _, name in found.world.struck)
            if found.error is not None:
                small = found if only is not None else shrink(found, most_s=args.shrink_s)
                findings.append((box, seed, found.name))
                print(told(small), flush=True)
            elif args.story:
                print(*found.world.story, sep="\n")
        if time.monotonic() - last_s > EVERY_S:
            last_s = time.monotonic()
            print(
                f"seed {seed}: {nights} nights, {days:,.0f} days, {len(findings)} findings, {last_s - began_s:.0f} s",
                flush=True,
            )
    print(f"\n{nights} nights of {args.programs} programs, {days:,.1f} simulated days in {time.monotonic() - began_s:.0f} s")
    for title, table in (("misfortunes", struck), ("facts", counts)):
        print(f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in table.most_common()))
    for box, seed, name in findings:
        print(f"FOUND  box {box}, seed {seed}: {name}")
    print(f"{len(findings)} findings")
    sys.exit(min(99, len(findings)))


main()
