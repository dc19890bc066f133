"""The real worker (`python -m workers`), made to fail by its surroundings only.

real_worker.py nan STEPS [its own flags]        rewards are NaN from so many steps on, until it was rolled back
real_worker.py memory MB [its own flags]        so much memory is left once everything is imported (RLIMIT_AS)
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

import workers.run  # noqa: F401  all that the worker imports, before memory is limited
from workers import contract, envs
from workers.__main__ import main


def poison_rewards(after: int) -> None:
    steps, recv = 0, envs.Envs.recv

    def poisoned(self: envs.Envs) -> envs.Step:
        nonlocal steps
        steps += self.num_envs
        step = recv(self)
        return dataclasses.replace(step, rewards=np.full_like(step.rewards, np.nan)) if steps > after else step

    envs.Envs.recv = poisoned  # type: ignore[method-assign]


def limit_memory(left_mb: int) -> None:
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (left_mb << 20), resource.RLIM_INFINITY))


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
