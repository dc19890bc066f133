"""Random faults under two real games; ground truth from /proc and from the checkpoints themselves (docs/testing.md).

    python bench/chaos.py --minutes 10               # a seed is drawn and printed
    python bench/chaos.py --seed 7 --faults 150      # until 150 faults were injected
    python bench/chaos.py --kinds smoke --minutes 1 --json FILE
    python bench/chaos.py --list                     # the kinds and how each must be reported

The exit code is 1 if an invariant broke or if less than 98 % of the unmasked faults were reported right. As root the state
directory is a small separate file system, in a mount namespace that ends with the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chaos import ROOT, report, table
from chaos.run import Run, plan
from chaos.world import GAMES, World

INSIDE = "CHAOS_NAMESPACE"
DISK_MB = 400


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="of order, times and targets; drawn when not given")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, help="end after so many injected faults (--minutes is then the longest)")
    parser.add_argument(
        "--kinds", nargs="+", default=["all"], choices=["all", "smoke", *table.BY_NAME], metavar="KIND",
        help="names from --list; `smoke` and `all` stand for sets",
    )  # fmt: skip
    parser.add_argument("--programs", type=int, default=2, choices=range(1, len(GAMES) + 1))
    parser.add_argument("--keep", action="store_true", help="leave the directory of the run, and print its name")
    parser.add_argument("--quiet", action="store_true", help="print the table only")
    parser.add_argument("--list", action="store_true", help="print the kinds, and end")
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / "chaos.json"))
    return parser.parse_args()


def in_namespace() -> bool:
    """Whether this process has its own mount namespace. If possible, it starts itself again in a new one."""
    if os.environ.pop(INSIDE, ""):  # removed, because the daemon would reject it as an unknown setting
        return True
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return False
    again = ["unshare", "-m", "--propagation", "private", sys.executable, *sys.orig_argv[1:]]
    return os.execvpe("unshare", again, {**os.environ, INSIDE: "1"})


def small_disk(path: Path) -> bool:
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "tmpfs", str(path)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def preloaded(directory: Path) -> dict[str, str]:
    """The library that steps clocks and refuses forks; nothing without a C compiler."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return {}
    import preload

    return preload.environment(directory)


def main() -> int:
    args = options()
    if args.list:
        for fault in table.FAULTS:
            print(f"{fault.name:<24} {fault.subject:<8} {fault.report or '-':<44} {fault.does}")
        return 0
    chosen = table.chosen(args.kinds)
    mounted = in_namespace()
    seed = random.SystemRandom().randrange(1, 10**6) if args.seed is None else args.seed
    again = [Path(sys.executable).name, "bench/chaos.py", "--seed", str(seed), "--minutes", f"{args.minutes:g}"]
    again += ["--faults", str(args.faults)] if args.faults else []
    again += ["--programs", str(args.programs), "--kinds", *args.kinds]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a terminated run must not leave processes behind
    print(f"seed {seed}; again: {shlex.join(again)}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="xl-chaos-"))
    began_s = time.monotonic()
    disk = directory / "disk" if mounted and small_disk(directory / "disk") else None
    world = World(directory, GAMES[: args.programs], env=preloaded(directory), disk=disk, verbose=not args.quiet)
    run = Run.begin(world)
    try:
        run.drive(plan(seed, chosen, world.programs), minutes=args.minutes, faults=args.faults)
    finally:
        run.close()
        found = report.result(run, seed=seed, took_s=time.monotonic() - began_s)
        print(report.text(found, shlex.join(again)), flush=True)  # also after an early end of the run
        out = Path(args.json)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n")
        put_away(world, disk, keep=args.keep)
    return 0 if report.passed(found) else 1


def put_away(world: World, disk: Path | None, *, keep: bool) -> None:
    """Remove the run's directory, or keep it with a copy of the state and a log of the events."""
    if keep:
        (world.directory / "events.txt").write_text("".join(f"{at:9.1f} {text}\n" for at, text in world.events))
        if disk is not None:
            subprocess.run(["cp", "-a", str(disk / "state"), str(world.directory / "state.copy")], check=False)
        print(f"kept: {world.directory}")
    if disk is not None:
        subprocess.run(["umount", "-l", str(disk)], check=False)
    if not keep:
        shutil.rmtree(world.directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
