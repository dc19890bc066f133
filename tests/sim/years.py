"""Years of mixed boxes on several cores: `python tests/sim/years.py --years 1000 --jobs 2 --table years.jsonl`.

Each seed is a year of a box of its own (box "mixed" in boxes.py), with one to four programs. A line of the table is a
year that was told; seeds that are in the table already are left out, so a run that was ended goes on where it was. At the
end, and with `--years 0` at once, comes the sum of the whole table. The exit status is the number of findings (at most 99).
"""

import argparse
import collections
import json
import multiprocessing
import sys
import time
from pathlib import Path

from boxes import DAY_S, night

BOX, DAYS = "mixed", 365.0
EVERY_S = 60.0  # between two lines of progress


def programs_of(seed):
    return 1 + seed // 4 % 4


def year(seed):
    """One year, as a row of the table."""
    began_s = time.process_time()
    found = night(BOX, seed, programs_of(seed), length_s=DAYS * DAY_S)
    world = found.world
    return {
        "seed": seed, "programs": programs_of(seed), "days": world.now_s / DAY_S, "faults": len(world.struck),
        "facts": world.core.last_seq, "turns": world.turns, "looks_left_out": world.jumped,
        "cpu_s": round(time.process_time() - began_s, 2), "finding": None if found.error is None else str(found.error),
        "kinds": world.counts, "struck": collections.Counter(name.split()[0] for _, name in world.struck),
    }  # fmt: skip


def again(seed):
    """The command that tells this year again, and shrinks it."""
    return f"python tests/sim/soak.py --box {BOX} --first {seed} --seeds 1 --programs {programs_of(seed)} --days {DAYS:g}"


def rows_of(table):
    return [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []


def summary(rows):
    """The sum of a table, in lines."""
    total, kinds, struck = collections.Counter(), collections.Counter(), collections.Counter()
    for row in rows:
        total.update({name: row[name] for name in ("days", "faults", "facts", "turns", "looks_left_out", "cpu_s")})
        kinds.update(row["kinds"])
        struck.update(row["struck"])
    findings = [row for row in rows if row["finding"]]
    rough = sum(row["faults"] > 1000 for row in rows)
    calm = sum(row["faults"] < 50 for row in rows)
    return [
        f"{total['days'] / 365:,.1f} simulated years, {total['faults']:,} faults, {len(findings)} findings",
        f"{total['cpu_s'] / 3600:.2f} hours of one core",
        f"{calm} years with fewer than 50 faults, {rough} with more than 1,000",
        f"{total['facts']:,} facts, {total['turns']:,} turns, {total['looks_left_out']:,} looks left out",
        *(
            f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
            for title, counts in (("faults", struck), ("facts", kinds))
        ),
        *(f"FOUND  seed {row['seed']}: {row['finding']}\n  {again(row['seed'])}" for row in findings),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--table", type=Path, default=Path("build/years.jsonl"))
    args = parser.parse_args()
    args.table.parent.mkdir(parents=True, exist_ok=True)
    known = {row["seed"] for row in rows_of(args.table)}
    seeds = [seed for seed in range(args.first, args.first + args.years) if seed not in known]
    last_s = began_s = time.monotonic()
    with args.table.open("a") as table, multiprocessing.Pool(args.jobs, maxtasksperchild=20) as pool:
        for done, row in enumerate(pool.imap_unordered(year, seeds), 1):
            table.write(json.dumps(row) + "\n")
            table.flush()
            if row["finding"]:
                print(f"FOUND  seed {row['seed']}: {row['finding']}\n  {again(row['seed'])}", flush=True)
            if time.monotonic() - last_s > EVERY_S:
                last_s = time.monotonic()
                print(f"{done} of {len(seeds)} years, {last_s - began_s:,.0f} s", flush=True)
    rows = rows_of(args.table)
    print(*summary(rows), sep="\n")
    sys.exit(min(99, sum(row["finding"] is not None for row in rows)))


if __name__ == "__main__":
    main()
