"""Injects faults of a chaos run inside an ordinary worker: envpool's own crash and hang, the GIL, memory, children.

Python imports this file at start because its directory is the first in the program's PYTHONPATH. Every vector step checks
for the file `$CHAOS_DIR/<program>`; its content names the fault. The worker's own code is not changed. A step also sleeps
a few milliseconds, so that two games do not use both cores fully; tests that wait for other events set a longer sleep.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time
from typing import Any

STEP_PAUSE_S = float(os.environ.get("CHAOS_STEP_PAUSE_S", "0.004"))


def _segfault(envs: Any) -> None:
    import numpy as np

    for action in (
        10**6,
        10**7,
        10**8,
        2**31 - 1,
    ):  # unchecked by envpool; some of these addresses may be readable
        envs._pool.send(np.array([action] + [0] * (envs.num_envs - 1), dtype=np.int32))
        envs._pool.recv()
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(envs: Any) -> None:
    while True:  # a `recv` without a `send` before it never returns
        envs._pool.recv()


def _gil(_envs: Any) -> None:
    import ctypes

    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def _memory(_envs: Any) -> None:
    import resource

    used_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (16 << 20), resource.RLIM_INFINITY))
    bytearray(1 << 40)


def _exit(_envs: Any) -> None:
    os._exit(3)


def _orphan(_envs: Any) -> None:
    import subprocess

    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


FAULTS = {"segfault": _segfault, "hang": _hang, "gil": _gil, "memory": _memory, "exit": _exit, "orphan": _orphan}


def _spoil(module: Any) -> None:
    send = module.Envs.send
    order = os.path.join(os.environ["CHAOS_DIR"], os.environ.get("EXTRALIFE_PROGRAM", ""))

    def spoiled(self: Any, actions: Any) -> None:
        time.sleep(STEP_PAUSE_S)
        if os.path.exists(order):
            with open(order) as file:
                fault = file.read()
            os.unlink(order)  # before the fault: the next attempt must not repeat it
            FAULTS[fault](self)
        send(self, actions)

    module.Envs.send = spoiled


class _AfterImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> Any:
        if name != "workers.envs":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), _spoil(module))[0]
        return spec


if os.environ.get("CHAOS_DIR"):
    sys.meta_path.insert(0, _AfterImport())
