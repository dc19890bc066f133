"""The client's cost for a script: `python bench/client.py [--json FILE]`.

Targets: a `step()` in 2 us, an import in 30 ms, a wheel of 44 kB. A call's figure is the minimum of 200 rounds of 2,000
calls, including the cost of the loop: other processes can only increase it. The median and the machine's load are printed
too. The calls take turns, so that all have the same noise. The import's figure is the median of 20 fresh interpreters with
compiled bytecode, without the start of the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "client"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from extralife.run import Run

from workers.contract import ENV_ATTEMPT, ENV_BEAT, ENV_CONTROL, ENV_RUN_DIR, ENV_TOKEN, Control
from workers.daemon_side import ControlWriter

ROOT = Path(__file__).resolve().parent.parent
THREE = "step(n, loss=..., reward=..., entropy=...)"
TARGETS = {"step(n)": 2.0, "step(n, loss=...)": 2.0, THREE: 2.0, "import extralife (ms)": 30.0, "wheel (kB)": 44.0}
TOKEN = "ab" * 16
_IMPORT = "import time; a = time.perf_counter(); {}; print((time.perf_counter() - a) * 1e3)"


def costs_us(
    measured: dict[str, Callable[[int], object]], rounds: int = 200, calls: int = 2_000
) -> dict[str, tuple[float, float]]:
    """(minimum, median) over the rounds, for each call."""
    took: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, call in measured.items():
            began = time.perf_counter_ns()
            for number in range(calls):
                call(number)
            took[name].append((time.perf_counter_ns() - began) / calls / 1e3)
    return {name: (min(each), statistics.median(each)) for name, each in took.items()}


def import_ms(text: str, python: str = sys.executable) -> float:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'client'}"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    argv = [python, "-c", _IMPORT.format(text)]
    return statistics.median(
        float(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout) for _ in range(20)
    )


def wheel_kb() -> float:
    with tempfile.TemporaryDirectory() as scratch:
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / "client", f"{scratch}/client", ignore=left_out)
        build = "from setuptools import build_meta; build_meta.build_wheel('.')"
        subprocess.run([sys.executable, "-c", build], cwd=f"{scratch}/client", capture_output=True, check=True)
        return next(Path(scratch, "client").glob("*.whl")).stat().st_size / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "results" / "client.json")
    args = parser.parse_args()
    tmpfs = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=tmpfs if tmpfs.is_dir() else None, prefix="client-") as scratch:
        environ = {
            ENV_BEAT: f"{scratch}/beat", ENV_CONTROL: f"{scratch}/control", ENV_TOKEN: TOKEN, ENV_RUN_DIR: scratch,
            ENV_ATTEMPT: "1",
        }  # fmt: skip
        ControlWriter(f"{scratch}/control").write(Control(TOKEN, interval_ms=3_600_000))
        run, alone = Run(10**9, {}, 3600.0, scratch, environ), Run(10**9, {}, 3600.0, scratch, {})
        costs = costs_us({
            "step(n)": run.step,
            "step(n, loss=...)": lambda n: run.step(n, loss=0.5),
            THREE: lambda n: run.step(n, loss=0.5, reward=1.0, entropy=0.3),
            "should_save()": lambda _: run.should_save(),
            "should_stop()": lambda _: run.should_stop(),
            "step(n, loss=...) without a daemon": lambda n: alone.step(n, loss=0.5),
        })  # fmt: skip
        measured = {
            **{name: least for name, (least, _) in costs.items()},
            "import extralife (ms)": import_ms("import extralife"),
            "import extralife and make a run (ms)": import_ms("import extralife; extralife.init(directory='/nonexistent')"),
            "wheel (kB)": wheel_kb(),
        }
    for name, value in measured.items():
        target = TARGETS.get(name)
        unit = "" if name.endswith(")") and ("(ms)" in name or "(kB)" in name) else " us"
        verdict = "" if target is None else f"   target {target:g}: {'kept' if value <= target else 'MISSED'}"
        median = f" (median {costs[name][1]:.2f})" if name in costs else ""
        print(f"{name:45} {value:8.2f}{unit}{median}{verdict}")
    print(f"load of the machine over the last minute: {os.getloadavg()[0]:.1f}")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    medians = {name: median for name, (_, median) in costs.items()}
    found = {"python": sys.version.split()[0], "measured": measured, "medians": medians, "targets": TARGETS}
    args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
