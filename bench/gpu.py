"""All tests that need a GPU, in a quarter of an hour: python bench/gpu.py [--minutes 15] [--only PART ...]

Speed of the three trainers compared with Stable-Baselines3, and without CUDA graphs; a real CUDA
out-of-memory error under a real daemon, solved by a smaller batch; the memory gate against another process that holds the
memory; a GPU that is hidden from the next start; NVML's readings by the worker's activity; a resumed run that is
bit-identical to one that never stopped; several jobs at once; a change of level under load.

Each part is a separate process (bench/gpu_parts.py) with its own time limit: its share of the time that is left, by the
weights below. A part that hangs or crashes becomes a row with its error. At the end it prints one table and the list of
missing features, and writes both to bench/results/gpu.json. Exit status: 0 every part passed, 1 one did not, 77 no GPU.

SB3 is included if bench/throughput.py has made its environment before (bench/.envs/peers: minutes of downloads).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sides

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
RESULTS = BENCH / "results" / "gpu.json"
NO_GPU = 77
ALGORITHMS = ("dqn", "ppo", "pqn")
ENVS = {"full": (32, 64, 256), "tiny": (2, 4)}
_LEAST_S = 30.0  # minimum for one part: on a rented box a worker needs 5 to 8 s until it trains


@dataclass(frozen=True)
class Part:
    """One measurement: the name in the table, the words for gpu_parts.py, and its share of the time."""

    name: str
    words: tuple[str, ...]
    weight: float = 1.0
    alone: bool = True  # False: it measures neither speed nor memory, so its neighbours may run at the same time


@dataclass
class Outcome:
    """The result of a part: its figures, features that are missing here, or the reason of a failure."""

    name: str
    took_s: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    failed: str = ""


def parts(size: str) -> list[Part]:
    """First the parts that are most likely to fail on a new GPU, then the speeds."""
    found = [
        Part("out of memory", ("oom",), 4),
        Part("gate", ("gate",), 3),
        Part("NVML by phase", ("nvml",), 3),
        Part("hidden GPU", ("hidden",), 4, alone=False),
        *(Part(f"resume to the bit, {algo}", ("resume", algo), 1.5, alone=False) for algo in ALGORITHMS),
    ]
    middle = str(ENVS[size][1])
    speeds = [("speed", algo, str(envs), "bf16") for algo in ALGORITHMS for envs in ENVS[size]]
    speeds += [("speed", algo, middle, "fp32") for algo in ALGORITHMS]
    found += [Part(f"{algo}, {envs} envs, {dtype}", words) for words in speeds for _, algo, envs, dtype in [words]]
    found += [
        Part(f"SB3 {algo}, {envs} envs", ("sb3", algo, str(envs)), 2) for algo in ("dqn", "ppo") for envs in ENVS[size]
    ]
    found += [Part(f"{jobs} at once", ("jobs", str(jobs)), 3) for jobs in (1, 2, 4)]
    found.append(Part("change of level", ("levels",), 4))
    found += [Part(f"{algo}, {middle} envs, fp16", ("on_cuda", algo, middle, "fp16")) for algo in ALGORITHMS]
    found += [
        Part(f"{algo}, {middle} envs, without CUDA graphs", ("on_cuda", algo, middle, "auto", "--cuda-graphs=false"))
        for algo in ALGORITHMS
    ]
    return found


def play(part: Part, limit_s: float, device: str, size: str, keep: Path | None = None) -> Outcome:
    """Run a part. This always returns soon after the limit, and ends all processes of the part.

    `keep`: where the files of a part that failed go: its daemon's log, its journal, its workers' logs.
    """
    outcome, began_s = Outcome(part.name), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="extralife-gpu-", ignore_cleanup_errors=True) as scratch:
        output, errors = Path(scratch, "said"), Path(scratch, "complaint")
        command = [sys.executable, BENCH / "gpu_parts.py", device, size, f"{limit_s:.0f}", scratch, *part.words]
        # Output goes to files: a process that a part leaves behind would hold a pipe open, and this would wait for it.
        with output.open("w") as out, errors.open("w") as error:
            packages = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # the caller's stay
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "PYTHONPATH": packages}, stdin=subprocess.DEVNULL, stdout=out,
                stderr=error, start_new_session=True,
            )  # fmt: skip
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            outcome.failed = f"not done after {limit_s:.0f} s"
        _end(process, scratch)
        if not outcome.failed and process.returncode:
            last = (errors.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
            outcome.failed = f"exit status {process.returncode}: {last[:300]}"
        if not outcome.failed:
            result = json.loads(output.read_text().splitlines()[-1])
            outcome.figures, outcome.absent, outcome.failed = result["figures"], result["absent"], result["failed"]
        if keep and outcome.failed:
            shutil.copytree(scratch, keep / part.name.replace(" ", "-"), dirs_exist_ok=True)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def _end(process: subprocess.Popen[bytes], scratch: str) -> None:
    """Send SIGTERM to a part, which then ends its own children. After ten seconds kill all of its remaining processes.

    Killing its session is not enough: a daemon's workers have their own sessions. Their command lines name the directory.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    sides.end(scratch)


def play_all(chosen: list[Part], budget_s: float, device: str, size: str, keep: Path | None) -> list[Outcome]:
    """Run the parts one after another, neighbours that measure neither speed nor memory at the same time.

    Time that a part does not use goes to the later ones.
    """
    until_s, outcomes, left = time.monotonic() + budget_s, [], list(chosen)
    while left:
        together = list(itertools.takewhile(lambda part: not part.alone, left)) or left[:1]
        left_s, left = until_s - time.monotonic(), left[len(together) :]
        share = sum(part.weight for part in together) / sum(part.weight for part in [*together, *left])
        limit_s = min(left_s, max(left_s * share, _LEAST_S))
        if limit_s < _LEAST_S:
            outcomes += [Outcome(part.name, absent=["time: the parts before it took all of it"]) for part in together]
            continue
        with ThreadPoolExecutor(len(together)) as threads:
            for outcome in threads.map(lambda part: play(part, limit_s, device, size, keep), together):  # noqa: B023
                outcomes.append(outcome)
                print(row(outcome), flush=True)
    return outcomes


def row(outcome: Outcome) -> str:
    shown = outcome.failed or ", ".join(f"{name} {_shown(value)}" for name, value in outcome.figures.items()) or "not there"
    state = "FAILED" if outcome.failed else "absent" if outcome.absent and not outcome.figures else "ok"
    return f"{outcome.name:32s} {state:7s} {outcome.took_s:5.0f} s  {shown}"


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def gpu_name() -> str | None:
    """The first GPU's name from torch; None without a GPU. A separate process asks torch, so this one uses no GPU memory."""
    program = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def report(outcomes: list[Outcome], device: str, out: Path) -> None:
    print(f"\n{device}\n")
    print("\n".join(row(outcome) for outcome in outcomes))
    absent = [f"  {outcome.name}: {why}" for outcome in outcomes for why in outcome.absent]
    print("\nNot there:" if absent else "\nEverything was there.")
    print("\n".join(absent))
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"device": device, "parts": [asdict(each) for each in outcomes]}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="for all parts together")
    parser.add_argument("--only", action="append", metavar="PART", help="the parts whose name begins so; may be repeated")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where the results go")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where the files of failed parts go")
    # For this benchmark's own test: it runs every part's code at a small size, on a box without a GPU.
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=list(ENVS), default="full", help=argparse.SUPPRESS)
    options = parser.parse_args()
    name = "the CPU, in small: no figure here is one of a GPU" if options.device == "cpu" else gpu_name()
    if name is None:
        print("There is no GPU here that torch can use: bench/gpu.py measures nothing without one.")
        return NO_GPU
    chosen = [
        part for part in parts(options.size) if not options.only or part.name.startswith(tuple(options.only))
    ]  # fmt: skip
    if not chosen:
        parser.error(
            f"no part begins with {' or '.join(options.only)}; there are: {', '.join(p.name for p in parts('full'))}"
        )
    outcomes = play_all(chosen, options.minutes * 60, options.device, options.size, options.keep)
    report(outcomes, name, options.json)
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
