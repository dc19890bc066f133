"""A training that keeps books: where it begins, where it left, on which node and in which job, for tests on a real Slurm.

    counts.py [--steps N] [--eat-mib N] [--seed N]

It counts ten steps a second, saves its counter every 20 steps and when it is asked to leave, and writes a line into `trace`
of its run directory for each event. It commits as the built-in trainings do: only while the fence names its attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from workers import contract


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--eat-mib", type=int, default=0)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    me = contract.Client(live_period_s=0.2)
    assert me.run_dir is not None
    leave: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: leave.append(1))
    counter, fence, token = me.run_dir / "counter.json", me.run_dir / contract.FENCE_FILE, os.environ[contract.ENV_TOKEN]
    step = json.loads(counter.read_text())["step"] if counter.exists() else 0

    def note(event: str) -> None:
        line = {
            "event": event, "step": step, "token": token, "pid": os.getpid(), "at_s": time.time(),
            "node": os.environ.get("SLURMD_NODENAME", ""), "job": os.environ.get("SLURM_JOB_ID", ""),
        }  # fmt: skip
        with (me.run_dir / "trace").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save() -> None:
        if fence.read_text().strip() != token:
            note("fenced")
            return
        aside = counter.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({"step": step, "token": token}))
        aside.replace(counter)
        me.committed(step, stall_s=0.001, write_s=0.001)

    me.phase(contract.WorkerPhase.RESTORING)
    me.report("resumed", step=step)
    me.phase(contract.WorkerPhase.TRAINING, env_steps=step)
    note("begins")
    print(f"begins at step {step}", flush=True)
    eaten = bytearray(args.eat_mib << 20)
    for at in range(0, len(eaten), 4096):
        eaten[at] = 1
    while not leave and step < args.steps:
        time.sleep(0.1)
        step += 1
        me.progress(env_steps=step, episodes=step // 10, mean_return=1.5, steps_per_s=10.0)
        if step % 20 == 0 or me.save_wanted():
            save()
    me.phase(contract.WorkerPhase.LEAVING)
    save()
    note("leaves" if leave else "done")
    sys.exit(contract.EXIT_LEFT if leave else contract.EXIT_DONE)


if __name__ == "__main__":
    main()
