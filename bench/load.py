"""The load policy compared with an oracle: `python bench/load.py [--seeds 200] [--fresh 100] [--days 30] [--jobs 2]`.

It plays `policy/level/load.py` and its rivals on the ten archetypes of `bench/simulation/hosts.py` (and, with
--fresh N, on N random boxes, one seed each, that were not used for tuning). It prints the kept work, minus five minutes of
training per reboot, as a share of an oracle's. The oracle knows every speed and rate and changes the level at once. Then it
prints the sensitivities and the time of a decision. All random numbers are seeded. Writes bench/results/load.json.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from load_learner import Learner
from load_rivals import Bandit, ManualLadder, ProbeCycle, RetryLadder
from simulation.hosts import ARCHETYPES, BoxModel, drawn
from simulation.play import DAY_S, Fixed, Play, World, oracle
from simulation.policy_player import PolicyPlayer
from simulation.sensors import Sensors
from simulation.watched import VetoedPlayer, WatchedPlay

from supervisor.policy.level.load import LoadSettings

DAYS = (1, 7, 30)
POLICIES = {
    "hold and probe": lambda _: PolicyPlayer(),
    "same, start at medium": lambda _: PolicyPlayer(start=2),
    "same, penalty 0": lambda _: PolicyPlayer(settings=LoadSettings(reboot_penalty_min=0.0)),
    "always light": lambda _: Fixed(0),
    "always medium": lambda _: Fixed(2),
    "always heavy": lambda _: Fixed(5),
    "manual ladder": lambda _: ManualLadder(),
    "ladder + retry 1..8 h": lambda _: RetryLadder(),
    "probe cycle 4 h": lambda _: ProbeCycle(),
    "Thompson 24 h": Bandit,
    "knows the ten boxes, must learn which": lambda _: Learner(),
    "UCB + CUSUM 72 h": lambda seed: Bandit(seed, by_lot=False, half_life_s=72 * 3600.0, cusum=True),
}
Job = tuple[str, str, str, Sequence[int], int]  # policy, world, host, seeds, days
Cell = tuple[list[float], float]  # shares of the oracle at each mark, reboots a week
Row = dict[str, Cell]
OURS = "hold and probe"
WORLDS = {
    "as it is": World(),
    "10 % of reboots mislabelled": World(mislabelled=0.1, unrelated_h=24.0),
    "throughput read +-25 %": World(noise=0.25),
    "a third of the readings missing": World(missing=1 / 3),
    "no readings at all": World(missing=1.0),
    "GPU readings: all there, vetoes where it is hot": World(),
    "GPU readings: a third missing": World(),
    "GPU readings: missing for hours": World(),
    "GPU readings: missing for ever": World(),
}
SENSORS = {  # in these worlds the policy uses its pre-checks (`bench/simulation/watched.py`)
    "GPU readings: all there, vetoes where it is hot": Sensors(),
    "GPU readings: a third missing": Sensors(missing=1 / 3),
    "GPU readings: missing for hours": Sensors(gap_h=6.0, between_h=6.0),
    "GPU readings: missing for ever": Sensors(missing=1.0),
}


def host_of(name: str) -> BoxModel:
    return ARCHETYPES[name] if name in ARCHETYPES else drawn(int(name.removeprefix("fresh")))


def one(job: Job) -> Cell:
    """Means over the seeds: percentage of the oracle at each mark, and reboots a week."""
    policy, world_name, name, seeds, days = job
    world, host = WORLDS[world_name], host_of(name)
    marks_s = tuple(day * DAY_S for day in DAYS if day <= days)
    ours, best, weekly = [0.0] * len(marks_s), [0.0] * len(marks_s), 0.0
    for seed in seeds:
        if world_name in SENSORS:
            play: Play = WatchedPlay(host, VetoedPlayer(), seed, world, SENSORS[world_name])
        else:
            play = Play(host, POLICIES[policy](seed), seed, world)
        played = play.run(marks_s)
        known = oracle(host, seed, world, marks_s)
        ours = [a + b for a, b in zip(ours, played.work, strict=True)]
        best = [a + b for a, b in zip(best, known.work, strict=True)]
        weekly += played.reboots[-1] * 7 * DAY_S / marks_s[-1] / len(seeds)
    return [100 * a / b for a, b in zip(ours, best, strict=True)], weekly


def table(
    pool: ProcessPoolExecutor,
    policies: list[str],
    world_name: str,
    hosts: list[str],
    seeds: Callable[[str], Sequence[int]],
    days: int,
) -> dict[str, Row]:
    """{policy: {host: ([%, %, %], reboots a week)}}"""
    jobs = [(policy, world_name, host, seeds(host), days) for policy in policies for host in hosts]
    found = dict(zip(jobs_keys(jobs), pool.map(one, jobs), strict=True))
    return {policy: {host: found[policy, host] for host in hosts} for policy in policies}


def jobs_keys(jobs: list[Job]) -> list[tuple[str, str]]:
    return [(policy, host) for policy, _, host, _, _ in jobs]


def summary(row: Row) -> dict[str, Any]:
    """Mean over hosts at each mark, the worst host (at 7 d), share of hosts under 90 %, reboots a week."""
    marks = list(zip(*(shares for shares, _ in row.values()), strict=True))
    week = marks[min(1, len(marks) - 1)]
    return {
        "mean": [statistics.mean(mark) for mark in marks],
        "worst": min(week),
        "worst_host": min(row, key=lambda host: row[host][0][min(1, len(marks) - 1)]),
        "under_90": sum(each < 90 for each in week) / len(week),
        "reboots": statistics.mean(weekly for _, weekly in row.values()),
    }


def show(title: str, rows: dict[str, Row], *, hosts: bool = True) -> None:
    print(f"\n{title}")
    names = list(next(iter(rows.values()))) if hosts else []
    marks = len(next(iter(next(iter(rows.values())).values()))[0])
    heads = [f"{day} d" for day in DAYS[:marks]]
    print("| policy | " + " | ".join([*names, *heads, "worst", "hosts < 90 %", "reboots a week"]) + " |")
    print("|---" * (len(names) + len(heads) + 4) + "|")
    for policy, row in rows.items():
        figures = summary(row)
        week = min(1, marks - 1)
        cells = [f"{row[name][0][week]:.1f}" for name in names] + [f"{each:.1f}" for each in figures["mean"]]
        cells += [f"{figures['worst']:.1f}", f"{100 * figures['under_90']:.0f} %", f"{figures['reboots']:.0f}"]
        print(f"| {policy} | " + " | ".join(cells) + " |", flush=True)


def speed() -> dict[str, float]:
    """Seconds of a decision (mean and 99th percentile), and of a year of one box."""
    took = []

    class Timed(PolicyPlayer):
        def review(self, at_s: float, up_s: float, reading: float | None) -> int:
            began = time.process_time()
            level = super().review(at_s, up_s, reading)
            took.append(time.process_time() - began)
            return level

    Play(ARCHETYPES["seed"], Timed(), 0, World()).run((30 * DAY_S,))
    years_s = []
    for _ in range(3):
        began = time.process_time()
        Play(ARCHETYPES["seed"], PolicyPlayer(), 0, World()).run((365 * DAY_S,))
        years_s.append(time.process_time() - began)
    took.sort()
    return {
        "mean_s": statistics.mean(took),
        "p99_s": took[int(0.99 * len(took))],
        "year_s": min(years_s),  # minimum of three: a busy machine only adds time
        "slowest_year_s": max(years_s),
    }


def show_speed(found: dict[str, float]) -> None:
    print(f"\na decision {1e6 * found['mean_s']:.0f} us (p99 {1e6 * found['p99_s']:.0f} us), a year of one box "
          f"{found['year_s']:.2f} s (best of three, {found['slowest_year_s']:.2f} s the slowest)")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--fresh", type=int, default=100, help="boxes drawn at random, one seed each")
    parser.add_argument("--first-fresh", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ours", action="store_true", help="only the load policy, none of its rivals")
    parser.add_argument("--policies", nargs="*", choices=list(POLICIES), help="only these, by name")
    parser.add_argument("--no-sensitivity", action="store_true")
    parser.add_argument(
        "--worlds", nargs="*", default=list(WORLDS), choices=list(WORLDS), help="of the sensitivities, by name"
    )
    parser.add_argument(
        "--only-sensitivity", action="store_true", help="nothing else; with all seeds, not with half of them"
    )
    parser.add_argument("--hosts", nargs="*", default=list(ARCHETYPES))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "load.json")
    parser.add_argument("--only-speed", action="store_true", help="nothing but the time that a decision and a year take")
    args = parser.parse_args()
    if args.only_speed:
        show_speed(speed())
        return
    policies = [name for name in POLICIES if not args.ours or name == OURS or name.startswith("same, start")]
    policies = args.policies or policies
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    fresh = [f"fresh{args.first_fresh + number}" for number in range(args.fresh)]
    result = {"seeds": args.seeds, "days": args.days}
    with ProcessPoolExecutor(args.jobs) as pool:
        if not args.only_sensitivity:
            rows = table(pool, policies, "as it is", args.hosts, lambda _: seeds, args.days)
            result["archetypes"] = {policy: summary(row) | {"hosts": row} for policy, row in rows.items()}
            show(f"Ten archetypes, {args.seeds} seeds, % of the oracle (hosts: at 7 d)", rows)
        if fresh and not args.only_sensitivity:
            rows = table(pool, policies, "as it is", fresh, lambda name: [int(name.removeprefix("fresh"))], args.days)
            result["fresh"] = {policy: summary(row) for policy, row in rows.items()}
            show(f"{args.fresh} boxes drawn at random, nothing was tuned on them", rows, hosts=False)
        if not args.no_sensitivity:
            few, by_world = seeds if args.only_sensitivity else seeds[: max(1, args.seeds // 2)], {}
            for world_name in args.worlds:
                by_world[world_name] = table(pool, [OURS], world_name, args.hosts, lambda _: few, 7)[OURS]
            result["sensitivity"] = {name: summary(row) for name, row in by_world.items()}
            show(f"Sensitivity, {len(few)} seeds", by_world)
    result["speed"] = speed()
    show_speed(result["speed"])
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
