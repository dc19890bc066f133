"""The real worker (`python -m workers`), made to fail by its surroundings only.

real_worker.py nan STEPS [its own flags]        rewards are NaN from so many steps on, until it was rolled back
real_worker.py memory MB [its own flags]        so much memory is left once training begins (RLIMIT_AS)
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
from pathlib import Path

os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")  # set: the worker does not start itself again
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from workers import contract, envs, run
from workers.__main__ import main


def poison_rewards(after: int) -> None:
    recv, poisonous = envs.Envs.recv, False
    checkpoints = Path(os.environ[contract.ENV_RUN_DIR]) / contract.CHECKPOINTS_DIR

    def poisoned(self: envs.Envs) -> envs.Step:
        nonlocal poisonous
        poisonous = poisonous or sum(1 for path in checkpoints.glob("ckpt-*") if path.suffix != ".tmp") >= after
        step = recv(self)
        return dataclasses.replace(step, rewards=np.full_like(step.rewards, np.nan)) if poisonous else step

    envs.Envs.recv = poisoned  # type: ignore[method-assign]


def limit_memory(left_mb: int) -> None:
    begin = run.Session.begin

    def limited(self: run.Session) -> None:
        begin(self)
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (left_mb << 20), resource.RLIM_INFINITY))

    run.Session.begin = limited  # type: ignore[method-assign]


if __name__ == "__main__":
    fault, amount, *sys.argv[1:] = sys.argv[1:]
    if fault == "memory":
        limit_memory(int(amount))
    elif os.environ.get(contract.ENV_ROLLBACKS, "0") == "0":
        poison_rewards(int(amount))
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
