"""Three faults, compared with PyPI supervisor 4.3.0 and circus 0.19.0: children of crashed workers, a crash loop, SIGSTOP.

    python bench/faults.py                # about 9 minutes: three daemons in turn
    python bench/faults.py --watch 30 --stopped 20 --sides supervisor    # shorter, to try it out

* leftovers: 5 programs, each a main process with a grandchild in its own session; the mains are killed (-9) three times
  each. How many of their grandchildren are still alive two seconds after the last crash?
* crasher: a program that lives two seconds and exits with 1. How often is it started, in total and in the last 30 s?
* stopped: a counting worker is suspended (SIGSTOP). How long until it counts again? extralife sees its progress in beats;
  the time limit is the learned one, at least 30 s.

Ground truth is /proc and the files that the programs write. Prints a table and writes bench/results/faults.json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from sides import ROOT, Box, Circus, Ours, Supervisor, end, pids_of, state, table, wait_for, write_json

SIDES = {"extralife": Ours, "supervisor": Supervisor, "circus": Circus}
FAMILIES, CRASHES = 5, 3


def leftovers(side: type[Box]) -> dict[str, Any]:
    """Count grandchildren of crashed main processes that are still alive."""
    tag = f"family{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        born = Path(name) / "born"
        born.mkdir()
        # Each life leaves a file named after its main process, with the grandchild's pid in it.
        family = f"setsid sh -c 'echo $$ > {born}/'$$.tmp'; exec sleep 86400 # {tag}' & sleep 0.3; mv {born}/$$.tmp {born}/$$.$1; wait # {tag}"  # noqa: E501
        box = side({f"f{i}": ["sh", "-c", family, "sh", str(i)] for i in range(FAMILIES)}, Path(name))
        crashed: list[int] = []
        try:
            with contextlib.suppress(TimeoutError):  # circus sometimes fails to restart one: then there are fewer crashes
                for crash in range(1, CRASHES + 1):
                    for number in range(FAMILIES):
                        main = _mains(born, number, crash)[-1]
                        time.sleep(1.2)  # longer than supervisord's startsecs: no crash counts as a failed start
                        crashed.append(int((born / f"{main}.{number}").read_text()))
                        os.kill(main, signal.SIGKILL)
                _mains(born, FAMILIES - 1, CRASHES + 1)
            time.sleep(2.0)  # ending leftovers may take a moment
            left = sum(_lives(pid) for pid in crashed)
        finally:
            box.close()
            end(tag)
            for path in born.iterdir():
                if _lives(int(path.read_text())):
                    os.kill(int(path.read_text()), signal.SIGKILL)
    return {"crashes": len(crashed), "leftovers": left}


def _mains(born: Path, number: int, lives: int) -> list[int]:
    """The main processes of a program, oldest first; waits until there have been `lives` of them."""

    def look() -> list[int] | None:
        found = [path for path in born.glob(f"*.{number}") if not path.name.endswith(".tmp")]
        found.sort(key=lambda path: path.stat().st_mtime_ns)
        return [int(path.name.partition(".")[0]) for path in found] if len(found) >= lives else None

    return wait_for(look, 60, 0.05)  # type: ignore[no-any-return]


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return state(pid) not in "ZX"
    return False


def crasher(side: type[Box], watch_s: float) -> dict[str, Any]:
    """Count the starts of a program that always lives two seconds."""
    tag = f"crasher{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "starts"
        box = side({"crasher": ["sh", "-c", f"date +%s.%N >> {log}; sleep 2; exit 1 # {tag}"]}, Path(name))
        try:
            wait_for(log.exists, 60, 0.05)
            time.sleep(watch_s)  # the starts in this time are counted
            now = time.time()
            starts = [float(line) for line in log.read_text().split()]
            lines = box.ctl("status").stdout.splitlines()
        finally:
            box.close()
            end(tag)
    return {
        "crasher_watched_s": watch_s, "crasher_starts": len(starts),
        "crasher_starts_in_last_30_s": sum(now - start_s < 30 for start_s in starts),
        "crasher_said": next((line for line in lines if line.startswith("crasher")), ""),
    }  # fmt: skip


class Beating(Ours):
    """extralife with the worker's beats as the source of progress."""

    def options(self, _name: str) -> str:
        return 'progress = "beat"'


_COUNT = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from workers.contract import Client, WorkerPhase
me, n, path = Client(), 0, sys.argv[1]
me.phase(WorkerPhase.TRAINING)
while True:
    n += 1
    me.progress(env_steps=n)
    with open(path + ".tmp", "w") as file: file.write(str(n))
    os.rename(path + ".tmp", path)
    time.sleep(0.05)  # a step of the training that it stands for
"""


def stopped(side: type[Box], watch_s: float) -> dict[str, Any]:
    """Seconds from SIGSTOP until the worker or its successor counts again. None: not within `watch_s`."""
    tag = f"stopped{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        counter = Path(name) / "counter"
        box = (Beating if side is Ours else side)({"w": [sys.executable, "-c", _COUNT, str(counter), tag]}, Path(name))
        try:
            wait_for(lambda: _count(counter) > 100, 60, 0.05)
            (pid,) = pids_of(tag)
            os.kill(pid, signal.SIGSTOP)
            wait_for(lambda: state(pid) == "T", 5)
            began, previous = time.monotonic(), _count(counter)
            try:
                wait_for(lambda: _count(counter) != previous, watch_s, 0.02)
                healed: float | None = time.monotonic() - began
            except TimeoutError:
                healed = None
            killed = pids_of(tag) != [pid]
        finally:
            end(tag)
            box.close()
            end(tag)
    return {"stopped_watched_s": watch_s, "stopped_healed_after_s": healed, "stopped_was_replaced": killed}


def _count(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--watch", type=float, default=120.0, help="seconds that the 2-second crasher is watched")
    parser.add_argument("--stopped", type=float, default=40.0, help="seconds that the stopped worker is watched at most")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in args.sides:
        side = SIDES[name]
        rows[side.name] = leftovers(side) | crasher(side, args.watch) | stopped(side, args.stopped)
        print(side.name, rows[side.name], flush=True)
    print("\n" + table(rows, [key for key in next(iter(rows.values())) if key != "crasher_said"]))
    write_json("faults", rows)


if __name__ == "__main__":
    main()
