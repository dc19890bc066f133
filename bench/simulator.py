"""Duration of a simulated year of ten programs: `python bench/simulator.py [--days 365] [--programs 10] [--seed 1]`.

It runs the real loop, core and policies with all invariants after every step (tests/sim, docs/testing.md), on the box
"year": each program crashes every 6 h and stalls every 12 h, the host reboots and the daemon is killed every 12 h, and so
on. The simulator samples every 10 min while nothing happens, and every 15 s for 90 s after each event, because in a quiet
hour all samples are equal. After the year come seven calm hours, in which all programs must train again. It uses one core.
The target is CPU time, which equals wall time on an otherwise idle core. Both are printed.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "sim"))

from boxes import DAY_S, night

TARGET_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=365.0)
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "simulator.json")
    args = parser.parse_args()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    found = night("year", args.seed, args.programs, slots=args.programs, length_s=args.days * DAY_S)
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    world = found.world
    met = cpu_s <= TARGET_S and found.error is None
    result = {
        "days": args.days, "programs": args.programs, "seed": args.seed, "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1), "target_s": TARGET_S, "met": met,
        "finding": None if found.error is None else str(found.error),
        "turns": world.turns, "facts": len(world.core.journal), "misfortunes": len(world.struck),
        "reboots": world.reboots, "daemons": world.daemons, "attempts": world.counts.get("SpawnIntended", 0),
        "failed_writes": world.writes_failed, "cores": os.cpu_count(), "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }  # fmt: skip
    for name, value in result.items():
        print(f"{name:<16}{value if not isinstance(value, int) or isinstance(value, bool) else format(value, ',')!s:>12}")
    print(
        f"{args.days:g} days of {args.programs} programs: {cpu_s:.0f} s of one core, {wall_s:.0f} s of wall time "
        f"(target: {TARGET_S:.0f} s) {'met' if met else 'NOT MET'}"
    )
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if met else 1)


main()
