"""The cost of a beat for the training thread: `python bench/beat_cost.py [--json FILE]`. Target: 2 us with four counters.

Each figure is the cost of one call in a plain loop, without the cost of the loop itself: the best and the median of 30
rounds of 20,000 calls, with the live thread running as in a worker. Records lie on tmpfs if there is one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from workers.contract import ENV_BEAT, ENV_CONTROL, ENV_TOKEN, Client, Control
from workers.daemon_side import ControlWriter, read_beat

TARGET_US = 2.0
ROUNDS, CALLS = 30, 20_000
TOKEN = "ab" * 16


def cost_us(call: Callable[[int], object], rounds: int = ROUNDS, calls: int = CALLS) -> list[float]:
    """Microseconds per call, one value per round."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for number in range(calls):
            call(number)
        took.append((time.perf_counter_ns() - began) / calls / 1e3)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "beat_cost.json")
    args = parser.parse_args()
    tmpfs = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=tmpfs if tmpfs.is_dir() else None, prefix="beat-cost-") as scratch:
        beat, control = f"{scratch}/beat", f"{scratch}/control"
        me = Client({ENV_BEAT: beat, ENV_CONTROL: control, ENV_TOKEN: TOKEN})
        daemon = ControlWriter(control)
        daemon.write(Control(TOKEN, interval_ms=3_600_000))
        alone = Client({})
        measured = {
            "beat, 4 counters": cost_us(lambda n: me.progress(env_steps=n, frames=4 * n, updates=n, loss=0.5)),
            "beat, 1 counter": cost_us(lambda n: me.progress(env_steps=n)),
            "beat, 8 counters": cost_us(
                lambda n: me.progress(
                    env_steps=n, frames=4 * n, updates=n, episodes=n, loss=0.5, mean_return=1.0, steps_per_s=9.0, nan_count=0
                )
            ),
            "save_wanted()": cost_us(lambda _: me.save_wanted()),
            "beat without a supervisor": cost_us(lambda n: alone.progress(env_steps=n, frames=4 * n, updates=n, loss=0.5)),
            "the daemon reads one": cost_us(lambda _: read_beat(beat), rounds=10, calls=2_000),
        }
        empty = min(cost_us(lambda _: None))
        me.close()
        daemon.close()
    table = {
        name: {"best_us": round(min(took) - empty, 3), "median_us": round(statistics.median(took) - empty, 3)}
        for name, took in measured.items()
    }
    print(f"{'':<28}{'best':>10}{'median':>10}")
    for name, row in table.items():
        print(f"{name:<28}{row['best_us']:>7.2f} us{row['median_us']:>7.2f} us")
    met = table["beat, 4 counters"]["best_us"] <= TARGET_US
    print(f"a beat with four counters costs {'at most' if met else 'MORE THAN'} {TARGET_US:g} us here")
    result = {"target_us": TARGET_US, "met": met, **table}
    print(json.dumps(result))
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if met else 1)


main()
