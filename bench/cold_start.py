"""Time from the start of a resumed worker to its first update, compared with a lower bound.

    python bench/cold_start.py [--num-envs 32] [--rounds 3] [--threads N] [--cold]

Double DQN on Pong, 84x84, batch 32 (so that the update itself costs almost nothing), a replay of 20,000 frames on disk.
The lower bound is imports + environments + reading checkpoint and replay: each is measured in a separate process, one after
the other, in the same rounds. Target: at most 1.2 times their sum. `--cold` drops the libraries and the run's files from
the page cache before each measurement, as after a reboot (unless another process has them mapped). It prints seconds and
CPU seconds (which hardly change on a busy machine), and the time per phase of the worker; results also in
bench/results/cold_start.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workers import contract, daemon_side, prefetch

ROOT = Path(__file__).resolve().parents[1]

TARGET = 1.2
TOKEN = "1" * 32
_IMPORTS = "import numpy, torch, torch._dynamo, envpool"  # PyTorch's optimizers import torch._dynamo at their first use
_BUILD = """
import sys, time, resource
from workers import envs
spec = envs.spec_of("Pong", 84)
begun, used = time.perf_counter(), time.process_time()
envs.make(spec, list(range(1, int(sys.argv[1]) + 1)), int(sys.argv[2]))
print(time.perf_counter() - begun, time.process_time() - used, flush=True)
import os
os._exit(0)
"""
_READ = """
import sys, time
begun, used = time.perf_counter(), time.process_time()
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 22):
            pass
print(time.perf_counter() - begun, time.process_time() - used)
"""


def worker(run_dir: Path, options: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    (run_dir / contract.FENCE_FILE).write_text(TOKEN)
    for name in ("beat", "control"):
        (run_dir / name).unlink(missing_ok=True)
    daemon_side.ControlWriter(run_dir / "control").write(contract.Control(TOKEN, interval_ms=600_000))
    env = {
        **os.environ, contract.ENV_PROGRAM: "Pong", contract.ENV_TOKEN: TOKEN, contract.ENV_ATTEMPT: str(number),
        contract.ENV_RUN_DIR: str(run_dir), contract.ENV_BEAT: str(run_dir / "beat"),
        contract.ENV_CONTROL: str(run_dir / "control"),
    }  # fmt: skip
    env = {name: value for name, value in env.items() if not name.startswith("RL_")}
    command = [
        sys.executable, "-m", "workers", "--game=Pong", f"--num-envs={options.num_envs}", "--batch-size=32",
        "--replay-size=20000", "--learning-starts=2048", "--device=cpu", f"--threads={options.threads}",
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)


def until(process: subprocess.Popen[bytes], run_dir: Path, updates: int) -> dict[str, float]:
    """Seconds until more than `updates` updates are made, in total and per phase."""
    begun = since = time.perf_counter()
    spent: dict[str, float] = {}
    phase = "STARTING"
    while process.poll() is None:
        time.sleep(0.002)  # the resolution of the result; a beat is a record in memory, so it can only be polled
        beat = daemon_side.read_beat(run_dir / "beat")
        if beat is None:
            continue
        now = time.perf_counter()
        if beat.phase.name != phase:
            spent[phase] = spent.get(phase, 0.0) + now - since
            phase, since = beat.phase.name, now
        if beat.phase is contract.WorkerPhase.TRAINING and beat.updates > updates:
            spent[phase] = spent.get(phase, 0.0) + now - since
            return {"wall_s": now - begun, "cpu_s": cpu_s(process.pid), **spent}
    raise SystemExit(f"the worker ended with {process.returncode}")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def floor(run_dir: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(options.threads)}
    begun, used = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", _IMPORTS], env=env, check=True)
    after = os.times()
    imports = time.perf_counter() - begun
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    found = {"imports": {"wall_s": imports, "cpu_s": cpu}}
    for name, program, words in (
        ("environments", _BUILD, [options.num_envs, options.threads]),
        ("reading", _READ, [path for path in run_dir.rglob("*") if path.is_file() and path.stat().st_size]),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, words)], env=env, check=True, stdout=subprocess.PIPE, text=True
        )
        wall, cpu = map(float, done.stdout.split())
        found[name] = {"wall_s": wall, "cpu_s": cpu}
    return found


def drop(run_dir: Path) -> None:
    """Drop the files from the page cache, except those that another process has mapped."""
    os.sync()
    for path in (*prefetch.files(None), *(path for path in run_dir.rglob("*") if path.is_file())):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    (ROOT / "bench" / "results").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cold-start-", dir=ROOT / "bench" / "results") as scratch:  # on a real disk
        run_dir = Path(scratch)
        first = worker(run_dir, options, 1)
        until(first, run_dir, 200)
        first.send_signal(signal.SIGTERM)
        first.wait()
        resumed, floors = [], []
        for number in range(options.rounds):
            if options.cold:
                drop(run_dir)
            process = worker(run_dir, options, number + 2)
            try:
                # Each worker resumes from the same checkpoint: the previous one was killed before it saved.
                resumed.append(until(process, run_dir, saved_updates(run_dir)))
            finally:
                process.kill()
                process.wait()
            if options.cold:
                drop(run_dir)
            floors.append(floor(run_dir, options))
        report(resumed, floors, options)


def saved_updates(run_dir: Path) -> int:
    newest = max((run_dir / contract.CHECKPOINTS_DIR).glob("ckpt-*"), key=lambda path: path.stat().st_mtime)
    return int(json.loads((newest / "state.json").read_text())["updates"])


def report(resumed: list[dict[str, float]], floors: list[dict[str, Any]], options: argparse.Namespace) -> None:
    middle = {name: statistics.median(run.get(name, 0.0) for run in resumed) for name in resumed[0]}
    print(f"{options.num_envs} environments, {'cold' if options.cold else 'warm'} page cache; seconds (CPU seconds)")
    total = {"wall_s": 0.0, "cpu_s": 0.0}
    for name in floors[0]:
        row = {key: statistics.median(run[name][key] for run in floors) for key in total}
        total = {key: total[key] + row[key] for key in total}
        print(f"  {name:28s} {row['wall_s']:7.2f} ({row['cpu_s']:.2f})")
    print(f"  {'together':28s} {total['wall_s']:7.2f} ({total['cpu_s']:.2f})")
    print(f"  {'a resume to its first update':28s} {middle['wall_s']:7.2f} ({middle['cpu_s']:.2f})")
    phases = ", ".join(f"{name.lower()} {spent:.2f}" for name, spent in middle.items() if not name.endswith("_s"))
    print(f"  of which {phases}")
    ratio = {key: middle[key] / total[key] for key in total}
    print(f"ratio {ratio['wall_s']:.2f}, by CPU time {ratio['cpu_s']:.2f} (target: at most {TARGET})")
    out = ROOT / "bench" / "results" / "cold_start.json"
    out.parent.mkdir(exist_ok=True)
    body = {"num_envs": options.num_envs, "cold": options.cold, "resumed": resumed, "floor": floors, "ratio": ratio}
    out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
