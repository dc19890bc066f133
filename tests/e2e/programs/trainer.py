"""A small trainer of the contract that can be told to go wrong: real faults, made on purpose, in a real process.

    trainer.py FAULT [--once] [--after STEPS]

It counts steps, commits its counter durably every 50 steps, resumes from it, and after `--after` steps does FAULT:
none, gil, hang, envpool-hang, segfault, die, ignore-term, grandchild, chatty, finish (once there is a file `finish` in its
run directory). With `--once` only the first attempt goes wrong, so that a test can watch the healing succeed.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from workers.contract import ENV_STACKS, EXIT_DONE, EXIT_LEFT, Client, WorkerPhase


def envpool_that_never_returns() -> Callable[[], object]:
    """`recv` without a `send` before it waits for ever inside envpool, in C++, without the GIL.

    (An action of -100000 was seen to do so too, and is a segfault on other builds: it reads whatever lies there.)
    """
    import envpool

    env = envpool.make_gymnasium("Pong-v5", num_envs=4, batch_size=2)
    env.async_reset()
    env.recv()
    env.recv()
    return env.recv


def envpool_that_segfaults() -> Callable[[], object]:
    """envpool does not check the range of actions.

    Of one environment only: when two threads crash at once, the second ends the process before the first has told where.
    """
    import envpool
    import numpy as np

    env = envpool.make_gymnasium("Pong-v5", num_envs=2)
    env.reset()
    return lambda: env.step(np.array([10**6, 0], dtype=np.int32))


PREPARED = {"envpool-hang": envpool_that_never_returns, "segfault": envpool_that_segfaults}


def do(fault: str, prepared: Callable[[], object]) -> None:
    if fault == "gil":
        # PyDLL keeps the GIL: no other thread of this process runs. Not sleep(): the signal that asks for stacks ends it.
        libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)
    elif fault == "hang":
        time.sleep(3600)
    elif fault in PREPARED:
        prepared()
    elif fault == "die":
        raise RuntimeError("died on purpose")
    elif fault == "finish":
        sys.exit(EXIT_DONE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--after", type=int, default=100)
    parser.add_argument("--period-s", type=float, default=0.01)
    args = parser.parse_args()
    me = Client(live_period_s=0.2)
    stacks = open(os.environ[ENV_STACKS], "w")  # noqa: SIM115  for as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    leave = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.fault == "ignore-term" else lambda *_: leave.append(1))
    assert me.run_dir is not None
    counter = me.run_dir / "counter.json"
    done_before = (me.run_dir / "went-wrong").exists()
    # Environments are built before training is reported: on a slow machine that takes longer than a stall's limit here.
    prepared = PREPARED[args.fault]() if args.fault in PREPARED else lambda: None
    me.phase(WorkerPhase.RESTORING)
    step = json.loads(counter.read_text())["step"] if counter.exists() else 0
    me.report("resumed", step=step)
    me.phase(WorkerPhase.TRAINING, env_steps=step)
    if args.fault == "grandchild":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(f"begins at step {step}", flush=True)
    began = step
    saved = []

    def save() -> None:
        aside = counter.with_suffix(".tmp")
        aside.write_text(json.dumps({"step": step}))
        aside.replace(counter)
        me.committed(step, stall_s=0.001, write_s=0.001)
        saved.append(step)

    while True:
        time.sleep(args.period_s)
        step += 1
        me.progress(env_steps=step, episodes=step // 10, mean_return=1.5, steps_per_s=1 / args.period_s)
        if args.fault == "chatty":
            print("x" * 200, flush=True)
        if step % 50 == 0 or me.save_wanted():
            save()
        if leave:
            me.phase(WorkerPhase.LEAVING)
            save()
            sys.exit(EXIT_LEFT)
        due = args.fault != "finish" or (me.run_dir / "finish").exists()
        if due and step - began >= args.after and not (args.once and done_before):
            (me.run_dir / "went-wrong").touch()
            do(args.fault, prepared)


if __name__ == "__main__":
    main()
