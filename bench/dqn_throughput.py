"""DQN on Pong: environment steps a second of this project's worker and of Stable-Baselines3, at the same replay ratio.

    python bench/dqn_throughput.py [--rounds 2] [--seconds 25] [--threads N]

Ours is the real worker, `python -m workers`, with its beats, prints and checkpoints (one every 10 s, on disk), read from
outside through its beat. SB3 has no checkpoints on, runs in an environment of its own (bench/.envs/sb3, made here with
the same torch), and is measured three times: with our 64 x 256, with the batch of its own benchmarks (8 x 32), and with
64 x 256 and the same allocator settings that our worker gives itself. All learn from 8 transitions for each step made.
Ours computes Double DQN unless said otherwise, which is 27 % more arithmetic than SB3's DQN.

Runs are interleaved, one at a time; a row is the median over the rounds. Steps a CPU second count too, because they hardly
change when the machine has other work to do. Prints a table and writes
bench/results/dqn_throughput.json. What can be had depends on the machine: the bench also measures what share of the
CPU's matrix product rate each reaches. Where the CPU multiplies bf16 (AMX, AVX512-BF16) our worker does; SB3 does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / "bench" / ".envs" / "sb3"
PACKAGES = ["stable-baselines3==2.9.2", "ale-py==0.12.1", "opencv-python-headless==5.0.0.93"]
RATIO = 8
WARM_UP_STEPS = 2_000  # before learning begins, on both sides
SETTLE_S = 8.0  # of learning before the clock starts
GFLOP_PER_SAMPLE = {"double": 0.0868, "plain": 0.0682}  # of Nature's network: 4 or 3 forward passes' worth, and backward
TARGET = 4.0


# --- ours --------------------------------------------------------------------------------------------------------------


def ours(seconds: float, threads: int, *, double: bool, dtype: str = "auto") -> dict[str, Any]:
    from workers import contract

    with tempfile.TemporaryDirectory(prefix="dqn-throughput-") as scratch:
        run_dir, token = Path(scratch), "1" * 32
        (run_dir / contract.FENCE_FILE).write_text(token)
        beat, control = run_dir / "beat", run_dir / "control"
        writer = contract.ControlWriter(control)
        writer.write(contract.Control(token, interval_ms=10_000))
        env = {
            **os.environ, contract.ENV_PROGRAM: "Pong", contract.ENV_TOKEN: token, contract.ENV_ATTEMPT: "1",
            contract.ENV_RUN_DIR: scratch, contract.ENV_BEAT: str(beat), contract.ENV_CONTROL: str(control),
        }  # fmt: skip
        for name in [name for name in env if name.startswith("RL_")]:
            del env[name]
        command = [
            sys.executable, "-m", "workers", "--game=Pong", "--num-envs=64", "--batch-size=256", f"--replay-ratio={RATIO}",
            "--replay-size=20000", f"--learning-starts={WARM_UP_STEPS}", f"--use-double-dqn={double}", f"--dtype={dtype}",
            f"--threads={threads}",
        ]  # fmt: skip
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        try:
            return watch(process, lambda: contract.read_beat(beat), seconds)
        finally:
            process.terminate()
            process.communicate()


def watch(process: subprocess.Popen[str], read: Callable[[], Any], seconds: float) -> dict[str, Any]:
    learning_since = None
    while True:
        if process.poll() is not None:
            raise SystemExit(f"the worker ended with {process.returncode}")
        beat = read()
        if learning_since is None and beat is not None and beat.updates > 0:
            learning_since = time.perf_counter()
        if learning_since is not None and time.perf_counter() - learning_since > SETTLE_S:
            break
        time.sleep(0.05)
    first, first_cpu_s = read(), cpu_s(process.pid)
    time.sleep(seconds)
    last, last_cpu_s = read(), cpu_s(process.pid)
    elapsed_s = (last.progress_ns - first.progress_ns) / 1e9
    # Steps come in blocks of 64, and progress is also stamped after each update: both ends are right to one block.
    return {
        "steps_per_s": (last.env_steps - first.env_steps) / elapsed_s,
        "steps_per_cpu_s": (last.env_steps - first.env_steps) / (last_cpu_s - first_cpu_s),
        "samples_per_step": (last.updates - first.updates) * 256 / (last.env_steps - first.env_steps),
        "checkpoints": last.ckpt_count - first.ckpt_count,
        "checkpoint_stall_ms": last.ckpt_stall_us / 1e3,
    }


def cpu_s(pid: int) -> float:
    """User and system time of a process so far (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- theirs ------------------------------------------------------------------------------------------------------------

THEIRS = """
import json, sys, time
import ale_py, gymnasium, torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

num_envs, batch_size, ratio, starts, settle_s, seconds = map(float, sys.argv[1:])
num_envs, batch_size = int(num_envs), int(batch_size)
gymnasium.register_envs(ale_py)
updates = int(ratio * num_envs / batch_size)
assert updates * batch_size == ratio * num_envs


class Clock(BaseCallback):
    begun = None

    def _on_step(self):
        now = time.perf_counter()
        if self.model._n_updates == 0:
            return True
        if self.begun is None:
            self.begun = now
        if not hasattr(self, "first") and now - self.begun > settle_s:
            self.first = (now, self.num_timesteps, self.model._n_updates, time.process_time())
        return not hasattr(self, "first") or now - self.first[0] < seconds


env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=num_envs, seed=1), 4)
model = DQN(
    "CnnPolicy", env, learning_rate=1e-4, buffer_size=20_000, learning_starts=int(starts), batch_size=batch_size,
    train_freq=1, gradient_steps=updates, target_update_interval=8_000, optimize_memory_usage=False, seed=1,
)
clock = Clock()
model.learn(10**9, callback=clock)
elapsed, steps = time.perf_counter() - clock.first[0], model.num_timesteps - clock.first[1]
done = (model._n_updates - clock.first[2]) * batch_size
cpu = time.process_time() - clock.first[3]
print(json.dumps({"steps_per_s": steps / elapsed, "steps_per_cpu_s": steps / cpu, "samples_per_step": done / steps}))
"""


def sb3(seconds: float, threads: int, *, num_envs: int, batch_size: int, tuned: bool = False) -> dict[str, Any]:
    from workers.__main__ import _TUNABLES

    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    env.pop("GLIBC_TUNABLES", None)
    if tuned:
        env["GLIBC_TUNABLES"] = _TUNABLES
    numbers = [num_envs, batch_size, RATIO, WARM_UP_STEPS, SETTLE_S, seconds]
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-W", "ignore", "-c", THEIRS, *map(str, numbers)],
        env=env, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def install() -> None:
    import torch

    stamp = ENVIRONMENT / "packages.txt"
    wanted = [f"torch=={torch.__version__.partition('+')[0]}", *PACKAGES]
    if stamp.exists() and stamp.read_text().split() == wanted:
        return
    print(f"installing {', '.join(wanted)} into {ENVIRONMENT}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    subprocess.run([ENVIRONMENT / "bin" / "pip", "install", "--quiet", *wanted], check=True)
    stamp.write_text("\n".join(wanted))


# --- the machine, and the table ----------------------------------------------------------------------------------------


def gflops(bf16: bool) -> float:
    """Of a large matrix product: the most that this machine could give."""
    import torch

    a = torch.ones(2048, 2048, dtype=torch.bfloat16 if bf16 else torch.float32)
    best = 0.0
    for _ in range(6):
        begun = time.perf_counter()
        a @ a
        best = max(best, 2 * 2048**3 / (time.perf_counter() - begun) / 1e9)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="1 on a busy machine: no thread waits for another"
    )
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    install()
    from workers.precision import choose, cpu_has_bf16

    precision = str(choose("auto", "auto"))
    runs = {
        "extralife, 64 x 256, Double DQN": (lambda s, n: ours(s, n, double=True), "double"),
        "extralife, 64 x 256, plain DQN": (lambda s, n: ours(s, n, double=False), "plain"),
        "SB3, 64 x 256, plain DQN": (lambda s, n: sb3(s, n, num_envs=64, batch_size=256), "plain"),
        "SB3, 64 x 256, with our allocator settings": (
            lambda s, n: sb3(s, n, num_envs=64, batch_size=256, tuned=True),
            "plain",
        ),
        "SB3, 8 x 32": (lambda s, n: sb3(s, n, num_envs=8, batch_size=32), "plain"),
    }
    if not precision.endswith("fp32"):
        runs["extralife, 64 x 256, Double DQN in fp32"] = (lambda s, n: ours(s, n, double=True, dtype="fp32"), "double")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    ceilings = {"fp32": gflops(bf16=False)}
    if cpu_has_bf16():  # elsewhere it is emulated, and takes minutes
        ceilings["bf16"] = gflops(bf16=True)
    for number in range(options.rounds):
        for name, (measure, _) in runs.items():
            found[name].append(measure(options.seconds, options.threads))
            print(f"round {number + 1}: {name}: {found[name][-1]['steps_per_s']:.0f} steps/s", flush=True)
    report(found, {name: kind for name, (_, kind) in runs.items()}, ceilings, precision)


def report(
    found: dict[str, list[dict[str, Any]]], kinds: dict[str, str], ceilings: dict[str, float], precision: str
) -> None:
    rates = {name: statistics.median(row["steps_per_s"] for row in rows) for name, rows in found.items()}
    cpu_rates = {name: statistics.median(row["steps_per_cpu_s"] for row in rows) for name, rows in found.items()}
    same, same_cpu = (of["SB3, 64 x 256, plain DQN"] for of in (rates, cpu_rates))
    products = ", ".join(f"{rate:.0f} GFLOP/s {dtype}" for dtype, rate in ceilings.items())
    print(f"\n{precision}; matrix product: {products}")
    heads = ("steps/s", "x SB3", "a CPU second", "x SB3", "samples/step", "of fp32 peak")
    print(f"{'':48s} {heads[0]:>8s} {heads[1]:>6s} {heads[2]:>12s} {heads[3]:>6s} {heads[4]:>12s} {heads[5]:>12s}")
    for name, rate in rates.items():
        share = rate * RATIO * GFLOP_PER_SAMPLE[kinds[name]] / ceilings["fp32"]
        samples = statistics.median(row["samples_per_step"] for row in found[name])
        cpu = cpu_rates[name]
        print(f"{name:48s} {rate:8.0f} {rate / same:6.2f} {cpu:12.1f} {cpu / same_cpu:6.2f} {samples:12.2f} {share:12.0%}")
    print(f"target: at least {TARGET:g} x SB3 at 64 x 256")
    out = ROOT / "bench" / "results" / "dqn_throughput.json"
    out.parent.mkdir(exist_ok=True)
    body = {"precision": precision, "cores": os.cpu_count(), "gflops": ceilings, "steps_per_s": rates,
            "steps_per_cpu_s": cpu_rates, "runs": found}  # fmt: skip
    out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
