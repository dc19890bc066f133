"""A trainer of the contract with checkpoints of the contract's format, which falls ill in ways that `trainer.py` does not.

    ailing.py FAULT [--batch N]

spin     its loop runs on and completes no step; its side thread beats on
memory   a real MemoryError (RLIMIT_AS) with a batch above 16
killed   eats memory until the kernel's OOM killer comes, with a batch above 16, once there is a file `go-on`
crawl    from step 300 on five times slower, in its first attempt
breather five times slower from step 300 on until there is a file `go-on` in its run directory
no-cuda  twenty times slower from its second attempt on, and warns of it
poison   dies whenever it resumes at step 100
nan      beats on with losses that are not finite from step 150 on, until it was rolled back
explode  from step 150 on its Q is 500 times what can be, until it was rolled back; before, it waits for a file `go-on`
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from workers import contract
from workers.contract import EXIT_LEFT, Client, Manifest, WorkerPhase

CHUNK = 4 << 20


def spin_without_a_step() -> None:
    while True:
        sum(range(1000))
        time.sleep(0.01)  # a core is for other tests


def allocate(batch: int) -> None:
    """As much as this batch needs, under a limit that only half of it fits into."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), resource.RLIM_INFINITY))
    try:
        bytearray(batch << 24)
    finally:  # a thread that ends loads libgcc_s: without room for it, glibc aborts the interpreter on its way out
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def eat() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(CHUNK))


def save(me: Client, step: int) -> None:
    assert me.run_dir is not None
    directory = me.run_dir / contract.CHECKPOINTS_DIR
    directory.mkdir(exist_ok=True)
    aside = directory / f"{contract.checkpoint_name(step, me.token)}.tmp"
    aside.mkdir()
    manifest = Manifest(
        program=me.program, token=me.token, attempt=me.attempt, boot_id=contract.read_boot_id(), env_steps=step,
        created_wall_s=time.time(), identity={}, files={"state": (0, "")},
    )  # fmt: skip
    (aside / contract.MANIFEST_FILE).write_text(manifest.to_json())
    aside.rename(directory / contract.checkpoint_name(step, me.token))
    me.committed(step, stall_s=0.001, write_s=0.001)


def newest(me: Client) -> int:
    assert me.run_dir is not None
    names = [path.name for path in (me.run_dir / contract.CHECKPOINTS_DIR).glob("*")]
    return max((found[0] for name in names if (found := contract.parse_checkpoint_name(name))), default=0)


def fall_ill(fault: str, step: int, batch: int, me: Client) -> float:
    """Whatever is due at this step; returns how long the step takes."""
    if fault == "spin" and step == 60:
        spin_without_a_step()
    if fault == "memory" and step == 60 and batch > 16:
        allocate(batch)
    if fault == "killed" and step == 60 and batch > 16:
        eat()
    while (fault, step) in {("explode", 149), ("killed", 59)} and batch > 16 and not goes_on(me):
        time.sleep(0.01)  # until the daemon has seen it well
    if fault == "poison" and step == 120 and me.attempt == 1:
        raise RuntimeError("falls ill")
    slow = step >= 300 and ((fault == "crawl" and me.attempt == 1) or (fault == "breather" and not goes_on(me)))
    return 0.05 if slow else 0.2 if fault == "no-cuda" and me.attempt > 1 else 0.01


def goes_on(me: Client) -> bool:
    assert me.run_dir is not None
    return (me.run_dir / "go-on").exists()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    me = Client(live_period_s=0.2)
    stacks = open(os.environ[contract.ENV_STACKS], "w")  # noqa: SIM115  for as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    signal.signal(signal.SIGTERM, lambda *_: setattr(me, "leave_wanted", True))
    batch = min(args.batch, int(os.environ.get(contract.ENV_BATCH_SIZE, args.batch)))
    rollbacks = int(os.environ.get(contract.ENV_ROLLBACKS, "0"))
    me.phase(WorkerPhase.RESTORING)
    step = newest(me)
    me.report("resumed", step=step)
    if args.fault == "poison" and step == 100:
        raise RuntimeError("cannot live with checkpoint 100")
    if args.fault == "no-cuda" and me.attempt > 1:
        print("UserWarning: CUDA initialization: CUDA unknown error", file=sys.stderr, flush=True)
    me.phase(WorkerPhase.TRAINING, env_steps=step, batch_size=batch)
    bad = 0
    while True:
        step += 1
        took_s = fall_ill(args.fault, step, batch, me)
        time.sleep(took_s)
        bad += args.fault == "nan" and step >= 150 and not rollbacks
        me.progress(env_steps=step, updates=step, nan_count=bad, steps_per_s=1 / took_s)
        if args.fault == "explode":
            me.progress(q_max_abs=5.0 if step < 150 or rollbacks else 5e4, q_bound=100.0)
        if step % 50 == 0 and not bad:
            save(me, step)
        if me.leave_wanted:
            me.phase(WorkerPhase.LEAVING)
            sys.exit(EXIT_LEFT)


if __name__ == "__main__":
    main()
