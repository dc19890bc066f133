"""Trainers of the contract whose processes go astray.

astray.py state-d UNTIL   after a while its main thread sits in state D until the file UNTIL exists: the kernel suspends a
                          parent that asked for CLONE_VFORK until its child has gone
astray.py late            the first attempt trains in a process that nobody finds: not the worker itself, in a session of
                          its own, without the mark in its environment; later attempts train like any other. All of
                          them save with the real checkpoint writer
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from workers.contract import EXIT_FENCED, EXIT_LEFT, Client, WorkerPhase

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_VFORK = 0x4000


def sit_in_the_kernel(until: Path) -> None:
    libc = ctypes.PyDLL(None)  # keeps the GIL: the child has it too
    pid = libc.syscall(_SYS_CLONE[platform.machine()], _CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        while not until.exists() and os.getppid() > 1:
            time.sleep(0.02)
        os._exit(0)
    os.waitpid(pid, 0)


def train(me: Client, until: Path) -> int:
    """Without checkpoints; in state D as soon as it has trained a little."""
    me.phase(WorkerPhase.TRAINING, env_steps=0)
    leave = []
    signal.signal(signal.SIGTERM, lambda *_: leave.append(1))
    for step in itertools.count(1):
        time.sleep(0.01)
        me.progress(env_steps=step)
        if step == 60:
            sit_in_the_kernel(until)
        if leave:
            return EXIT_LEFT
    raise AssertionError


def train_and_save(me: Client) -> int:
    """What it saves is fenced as that of a real worker."""
    import torch

    from workers.checkpoint import Checkpointer
    from workers.store import Fenced

    assert me.run_dir is not None
    saves = Checkpointer(me.run_dir, me, {"game": "none"})
    me.phase(WorkerPhase.RESTORING)
    loaded = saves.load_newest()
    step = loaded.env_steps if loaded else 0
    me.report("resumed", step=step)
    me.phase(WorkerPhase.TRAINING, env_steps=step)
    try:
        while True:
            time.sleep(0.01)
            step += 1
            me.progress(env_steps=step)
            if step % 20 == 0 and saves.save(step, {"w": torch.zeros(4)}, {}, mean_return=None, stall_s=0.001):
                saves.wait()
                me.committed(step, stall_s=0.001, write_s=0.001)
    except Fenced as error:
        print(f"fenced at step {step}: {error}", flush=True)
        return EXIT_FENCED


def train_in_hiding() -> int:
    """What the worker does whose training nobody finds: start it so that it is the shim's child, and wait."""
    mine = json.dumps({name: value for name, value in os.environ.items() if name.startswith(("EXTRALIFE_", "NOTIFY_"))})
    if os.fork() == 0:
        env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
        subprocess.Popen([sys.executable, __file__, "hidden", mine], env=env, start_new_session=True)
        os._exit(0)
    os.wait()
    signal.pause()
    return EXIT_LEFT


def main() -> int:
    fault, *more = sys.argv[1:]
    if fault == "late" and os.environ["EXTRALIFE_ATTEMPT"] == "1":
        return train_in_hiding()
    if fault == "hidden":
        os.environ.update(json.loads(more[0]))
    me = Client(live_period_s=0.2)
    return train(me, Path(more[0])) if fault == "state-d" else train_and_save(me)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
