"""Environment steps a second of each algorithm, compared with Stable-Baselines3 and CleanRL; one at a time, interleaved.

    python bench/throughput.py [dqn] [ppo] [pqn] [--rounds 2] [--seconds 40] [--threads N] [--cleanrl DIR] [--dtype fp32]

Pong, Nature's network, 84x84. Ours is the real worker, `python -m workers`, with its beats, prints and checkpoints (one
every 10 s, on disk); its beat is read from outside. The peers save no checkpoints and run in a separate environment
(bench/.envs/peers, made at first use, with the same torch). CleanRL's scripts run unchanged from DIR, a checkout.

| algorithm | ours | SB3, as it stands | SB3, with the allocator settings that our worker gives itself | CleanRL |
|---|---|---|---|---|
| dqn, 8 a step | 256 x 2048 Double, plain; 64 x 256 | 8 x 32; 64 x 256; 256 x 2048 | 8 x 32; 256 x 2048 | dqn_atari |
| ppo, 4 epochs | 8 x 128, batch 256 | the same | the same | ppo_atari_envpool |
| pqn, 4 epochs | 8 x 128, batch 256 | has none | | pqn_atari_envpool |

A row is the median over the rounds. Times begin and end at whole blocks (a vector step, a rollout), so that no partial
rollout is counted. Steps per CPU second are printed too: they hardly change when the machine has other work. The bound is
1 / (arithmetic of a step / this machine's matrix product rate + 1 / rate of the environments alone), both measured in the
same run. It holds for the format of our worker (`--dtype`; the peers always compute in fp32). A ratio to a peer cannot
exceed bound / peer, which is printed.
Results also in bench/results/throughput.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from environments import environment

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
PEERS = ("stable-baselines3==2.9.2", "ale-py==0.12.1", "opencv-python-headless==5.0.0.93", "envpool==1.2.5", "tyro==1.0.5")
RATIO, EPOCHS = 8, 4
SETTLE_S = 8.0  # seconds of learning before the measurement starts
POLL_S = 0.02  # more frequent polling takes a few per cent from the polled worker
FORWARD_GFLOP = 0.0187  # Nature's network, per observation; backward is twice that, minus the gradient of conv1's input
GFLOP_PER_STEP = {  # acting, plus learning for each step
    "dqn": FORWARD_GFLOP + RATIO * 0.0868,
    "plain": FORWARD_GFLOP + RATIO * 0.0682,
    "ppo": FORWARD_GFLOP + EPOCHS * 0.0495,
    "pqn": FORWARD_GFLOP + EPOCHS * 0.0495,
}
TARGETS = {
    ("dqn", "SB3"): (7.0, 2.8), ("dqn", "SB3, tuned"): (6.0, None), ("dqn", "CleanRL"): (7.0, None),
    ("ppo", "SB3"): (3.5, 3.5), ("ppo", "CleanRL"): (3.0, None), ("pqn", "CleanRL"): (2.5, None),
}  # fmt: skip  # (bf16, fp32 only)

_DOUBLE = ("extralife", "extralife, 64 x 256")

Measured = dict[str, float]


# --- ours --------------------------------------------------------------------------------------------------------------

OURS = {
    "dqn": ["--num-envs=256", "--batch-size=2048", f"--replay-ratio={RATIO}", "--replay-size=20000",
            "--learning-starts=2048", "--n-step=3"],
    "ppo": ["--num-envs=8", "--n-steps=128", "--batch-size=256", f"--epochs={EPOCHS}"],
    "pqn": ["--num-envs=8", "--n-steps=128", "--batch-size=256", f"--epochs={EPOCHS}"],
}  # fmt: skip
BLOCK = {"dqn": 256, "ppo": 1024, "pqn": 1024}


def ours(
    algo: str,
    more: list[str],
    seconds: float,
    threads: int,
    *,
    game: str = "Pong",
    block: int = 0,
    settle_s: float = SETTLE_S,
) -> Measured:
    """Measure our worker. `block` is the environment steps of a vector step or a rollout; 0: the value in BLOCK."""
    from workers import contract, daemon_side

    with tempfile.TemporaryDirectory(prefix="throughput-") as scratch:
        run_dir, token = Path(scratch), "1" * 32
        (run_dir / contract.FENCE_FILE).write_text(token)
        beat, control = run_dir / "beat", run_dir / "control"
        daemon_side.ControlWriter(control).write(contract.Control(token, interval_ms=10_000))
        env = {
            **os.environ, contract.ENV_PROGRAM: game, contract.ENV_TOKEN: token, contract.ENV_ATTEMPT: "1",
            contract.ENV_RUN_DIR: scratch, contract.ENV_BEAT: str(beat), contract.ENV_CONTROL: str(control),
        }  # fmt: skip
        for name in [name for name in env if name.startswith("RL_") or name == "GLIBC_TUNABLES"]:
            del env[name]
        command = [sys.executable, "-m", "workers", f"--game={game}", f"--algo={algo}", f"--threads={threads}"]
        process = subprocess.Popen([*command, *OURS[algo], *more], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        try:
            return _watched(process, lambda: daemon_side.read_beat(beat), block or BLOCK[algo], seconds, settle_s)
        finally:
            process.terminate()
            process.wait()


def _watched(
    process: subprocess.Popen[bytes], read: Callable[[], Any], block: int, seconds: float, settle_s: float
) -> Measured:
    blocks = _blocks(process, read, block)
    learning = next(at for at in blocks if at[3] > 0)
    first = next(at for at in blocks if at[0] - learning[0] >= settle_s)
    last = next(at for at in blocks if at[0] - first[0] >= seconds)
    wall_s, cpu_s, steps, _ = (after - before for before, after in zip(first, last, strict=True))
    return {"steps_per_s": steps / wall_s, "steps_per_cpu_s": steps / cpu_s}


def _blocks(process: subprocess.Popen[bytes], read: Callable[[], Any], block: int) -> Iterator[tuple[float, ...]]:
    """(seconds, CPU seconds, steps, updates) each time the worker begins another block."""
    before = -1
    while process.poll() is None:
        beat = read()
        if beat is not None and beat.env_steps // block != before:
            before = beat.env_steps // block
            yield time.perf_counter(), cpu_s(process.pid), beat.env_steps, beat.updates
        time.sleep(POLL_S)
    raise SystemExit(f"the worker ended with {process.returncode}")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- theirs ------------------------------------------------------------------------------------------------------------


def theirs(script: str, words: list[object], seconds: float, threads: int, *, tuned: bool = False) -> Measured:
    from workers.__main__ import _TUNABLES

    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    env.pop("GLIBC_TUNABLES", None)
    if tuned:
        env["GLIBC_TUNABLES"] = _TUNABLES
    place = words.index("TIMES")
    command = [peers() / "python", "-W", "ignore", BENCH / script, *words[:place], SETTLE_S, seconds, *words[place + 1 :]]
    with tempfile.TemporaryDirectory(prefix="throughput-") as scratch:
        done = subprocess.run(
            [str(word) for word in command], env=env, cwd=scratch, stdout=subprocess.PIPE, text=True, check=True
        )
    result: Measured = json.loads(done.stdout.strip().splitlines()[-1])
    return result


@functools.cache
def peers() -> Path:
    import torch

    return environment("peers", f"torch=={torch.__version__.partition('+')[0]}", *PEERS)


# --- the machine -------------------------------------------------------------------------------------------------------

_PRODUCT = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
a = torch.ones(2048, 2048, dtype=torch.bfloat16 if sys.argv[2] == "bf16" else torch.float32)
times = []
for _ in range(12):
    begun = time.perf_counter()
    a @ a
    times.append(time.perf_counter() - begun)
print(2 * 2048**3 / min(times) / 1e9)
"""
_ALONE = """
import sys, time, numpy as np
from workers import daemon_side, envs
count, threads = map(int, sys.argv[1:])
spec = envs.spec_of("Pong", 84)
games = envs.make(spec, list(range(1, count + 1)), threads)
games.reset()
drawn = np.random.default_rng(1)
begun, steps = time.perf_counter(), 0
while time.perf_counter() - begun < 6.0:
    games.send(drawn.integers(spec.actions, size=count))
    games.recv()
    steps += count
print(steps / (time.perf_counter() - begun))
"""


def _alone(program: str, *words: object) -> float:
    """Run a program in a separate process (threads are set once per process); returns the number that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


# --- measurements and table --------------------------------------------------------------------------------------------


def rows(algorithms: list[str], cleanrl: Path | None, dtype: str) -> dict[tuple[str, str], Callable[[float, int], Measured]]:
    """(algorithm, name of the row) -> function that measures it; ours use the format `dtype`."""
    mine = [f"--dtype={dtype}"]
    sb3 = {"dqn": ["dqn", 8, 32, RATIO, "TIMES"], "ppo": ["ppo", 8, 256, EPOCHS, "TIMES"]}
    scripts = {
        "dqn": ("dqn_atari", "--learning-starts=2000", "--buffer-size=20000"),
        "ppo": ("ppo_atari_envpool", "--env-id=Pong-v5"),
        "pqn": ("pqn_atari_envpool", "--env-id=Pong-v5"),
    }
    found: dict[tuple[str, str], Callable[[float, int], Measured]] = {}
    for algo in algorithms:
        found[algo, "extralife"] = functools.partial(ours, algo, mine)
        if algo == "dqn":
            found[algo, "extralife, plain DQN"] = functools.partial(ours, algo, [*mine, "--use-double-dqn=false"])
        if algo in sb3:
            found[algo, "SB3"] = functools.partial(theirs, "peer_sb3.py", sb3[algo])
            found[algo, "SB3, tuned"] = functools.partial(theirs, "peer_sb3.py", sb3[algo], tuned=True)
        if algo == "dqn":
            middle = ["dqn", 64, 256, RATIO, "TIMES"]
            found[algo, "extralife, 64 x 256"] = functools.partial(ours, algo, [*mine, "--num-envs=64", "--batch-size=256"])
            found[algo, "SB3, 64 x 256"] = functools.partial(theirs, "peer_sb3.py", middle)
            large = ["dqn", 256, 2048, RATIO, "TIMES"]
            found[algo, "SB3, 256 x 2048"] = functools.partial(theirs, "peer_sb3.py", large)
            found[algo, "SB3, 256 x 2048, tuned"] = functools.partial(theirs, "peer_sb3.py", large, tuned=True)
        if cleanrl is not None:
            name, *words = scripts[algo]
            game = [] if algo != "dqn" else ["--env-id=PongNoFrameskip-v4"]
            command = [cleanrl.resolve(), name, "TIMES", *words, *game]
            found[algo, "CleanRL"] = functools.partial(theirs, "peer_cleanrl.py", command)
            found[algo, "CleanRL, tuned"] = functools.partial(theirs, "peer_cleanrl.py", command, tuned=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    # No `choices`: argparse would reject the empty list, which means all algorithms.
    parser.add_argument("algorithms", nargs="*", metavar="{dqn,ppo,pqn}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="1 on a busy machine: no thread waits for another"
    )
    parser.add_argument("--dtype", choices=["auto", "bf16", "fp32"], default="auto", help="what ours computes in")
    parser.add_argument("--cleanrl", type=Path, metavar="DIR", help="a checkout of CleanRL")
    options = parser.parse_args()
    if unknown := set(options.algorithms) - OURS.keys():
        parser.error(f"no such algorithm: {', '.join(sorted(unknown))}; there are {', '.join(OURS)}")
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    from workers.precision import choose

    peers()
    dtype = str(choose("auto", options.dtype)).split()[-1]
    found: dict[tuple[str, str], list[Measured]] = {}
    products, alone = [], []
    for number in range(options.rounds):
        products.append(_alone(_PRODUCT, options.threads, dtype))
        alone.append(_alone(_ALONE, 64, options.threads))
        for name, measure in rows(options.algorithms or list(OURS), options.cleanrl, dtype).items():
            found.setdefault(name, []).append(measure(options.seconds, options.threads))
            print(f"round {number + 1}: {', '.join(name)}: {found[name][-1]['steps_per_s']:.0f} steps/s", flush=True)
    report(found, dtype, max(products), max(alone))


def report(found: dict[tuple[str, str], list[Measured]], dtype: str, gflops: float, alone: float) -> None:
    middle = {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()}
    print(f"\n{dtype}: matrix product {gflops:.0f} GFLOP/s; environments alone {alone:.0f} steps/s")
    heads = ("steps/s", "ours is", "a CPU second", "ours is", "of bound", "bound is")
    print(f"{'':32s} {heads[0]:>8s} {heads[1]:>8s} {heads[2]:>13s} {heads[3]:>8s} {heads[4]:>9s} {heads[5]:>9s}")
    for (algo, name), row in middle.items():
        mine = middle[algo, "extralife"]
        kind = "plain" if algo == "dqn" and name not in _DOUBLE else algo
        bound = 1.0 / (GFLOP_PER_STEP[kind] / gflops + 1.0 / alone)
        most = 1.0 / (GFLOP_PER_STEP[algo] / gflops + 1.0 / alone)
        wall, cpu = row["steps_per_s"], row["steps_per_cpu_s"]
        target = TARGETS.get((algo, name), (None, None))[dtype == "fp32"]
        print(
            f"{algo + ', ' + name:32s} {wall:8.0f} {mine['steps_per_s'] / wall:7.2f}x {cpu:13.1f} "
            f"{mine['steps_per_cpu_s'] / cpu:7.2f}x {wall / bound:9.0%} {most / wall:8.2f}x"
            + (f"  target {target:g}x" if target else "")
        )
    out = BENCH / "results" / "throughput.json"
    out.parent.mkdir(exist_ok=True)
    body = {"dtype": dtype, "cores": os.cpu_count(), "gflops": gflops, "environments_per_s": alone,
            "runs": {", ".join(name): runs for name, runs in found.items()}}  # fmt: skip
    out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
