"""Trainings of random habits under extralife, each beside a plain restart loop with the same habits and faults.

    python bench/no_harm.py --seed 7                     # 24 trainings, about five minutes
    python bench/no_harm.py --seeds 1-10 --trainers 16   # many in a row
    python bench/no_harm.py --seed 7 --pick 3 11 --keep  # two of them once more, and their files stay
    python bench/no_harm.py --seed 7 --list              # the habits that the seed draws

Judged by the trainings' own logs. The exit code is 1 if extralife harmed one: see `harms` in no_harm/judge.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from no_harm import habits
from no_harm.run import ROOT, Run


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="of habits and faults; drawn when not given")
    parser.add_argument("--seeds", help="many, as in 1-10", metavar="FIRST-LAST")
    parser.add_argument("--trainers", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=5.0, help="of each seed, if trainings still run then")
    parser.add_argument("--pick", type=int, nargs="+", default=[], metavar="N", help="only these trainings of the seed")
    parser.add_argument("--keep", action="store_true", help="keep the files of each run, as those of a harmful one are")
    parser.add_argument("--hasty", action="store_true", help="evaluations are longer than [stall] slow_restart_s")
    parser.add_argument("--list", action="store_true", help="print the habits, and end")
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / "no_harm.json"))
    return parser.parse_args()


def short(row: dict[str, Any]) -> str:
    drawn = row["habits"]
    faults = [" ".join(str(value) for value in fault.values()) for fault in drawn["faults"]]
    more = [f"{key} {drawn[key]}" for key in ("transient", "older", "second") if drawn[key]]
    return f"{' '.join(str(drawn[key]) for key in habits.SHOWN)} | {'; '.join(more)} | {'; '.join(faults)}"


def table(rows: list[dict[str, Any]]) -> str:
    """For each value of a habit: trainings, harmed, better than the loop."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        drawn = row["habits"]
        seen = {(key, str(drawn[key])) for key in habits.SHOWN}
        seen |= {("with", key) for key in ("transient", "older", "second", "small_disk", "best", "pointer") if drawn[key]}
        seen |= {("fault", f"{fault['do']} at {fault['at']}") for fault in drawn["faults"]}
        for each in seen:
            counts.setdefault(each, Counter()).update(all=1, harmed=bool(row["harms"]), better=row["better"])
    out = [f"{'habit':<38} {'trainings':>9} {'harmed':>7} {'better':>7}"]
    for key, value in sorted(counts):
        count = counts[key, value]
        out.append(f"{key + ' ' + value:<38} {count['all']:>9} {count['harmed']:>7} {count['better']:>7}")
    return "\n".join(out)


def one_seed(seed: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    began_s, drawn = time.monotonic(), habits.draw(seed, args.trainers, hasty=args.hasty)
    run, rows = Run(drawn, args.pick, mounts=os.geteuid() == 0, hasty=args.hasty), []
    try:
        run.play(args.minutes)
        rows = run.results()
    finally:
        keep = args.keep or not rows or any(row["harms"] for row in rows)
        run.close(keep=keep)
    for each in run.ends:
        print(each)
    for row in rows:
        row["seed"] = seed
        word = "HARM" if row["harms"] else "better" if row["better"] else ""
        print(f"{word:<6} {row['program']:<4} {row['phase']:<8} {row['says'][0]} | loop: {row['says'][1]}")
        if row["harms"]:
            print("".join(f"         {each}\n" for each in row["harms"]) + f"         {short(row)}")
    harmed, better = sum(bool(row["harms"]) for row in rows), sum(row["better"] for row in rows)
    where = f"; files in {run.directory}" if keep else ""
    took_s = time.monotonic() - began_s
    print(f"seed {seed}: of {len(rows)}, {harmed} harmed, {better} better; {took_s:.0f} s{where}", flush=True)
    return rows


def main() -> int:
    args = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job, and by its children
    first, _, last = (args.seeds or "").partition("-")
    drawn = random.SystemRandom().randrange(1, 10**6) if args.seed is None else args.seed
    seeds = range(int(first), int(last or first) + 1) if args.seeds else [drawn]
    if args.list:
        for number, each in enumerate(habits.draw(seeds[0], args.trainers, hasty=args.hasty)):
            print(f"p{number}", short({"habits": each}))
        return 0
    rows = [row for seed in seeds for row in one_seed(seed, args)]
    print(table(rows))
    out = Path(args.json)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["harms"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
