"""Counts to 500 instead of learning; all else is as in a real training."""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

from workers.contract import ENV_STACKS, EXIT_DONE, EXIT_LEFT, Client, WorkerPhase, TargetKind

STEPS = 500


def main() -> int:
    me = Client()
    if ENV_STACKS in os.environ:  # before a stalled worker is ended, it is asked where it stands
        stacks = open(os.environ[ENV_STACKS], "w")
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)

    def leave(_number, _frame):
        me.leave_wanted = True

    signal.signal(signal.SIGTERM, leave)

    me.phase(WorkerPhase.RESTORING)
    state = (me.run_dir or Path.cwd()) / "state.json"
    step = json.loads(state.read_text())["step"] if state.exists() else 0
    me.report("resumed" if step else "from_scratch", step=step)

    def save() -> None:
        began = time.perf_counter()
        aside = state.with_suffix(".tmp")
        with aside.open("w") as file:
            json.dump({"step": step}, file)
            file.flush()
            os.fsync(file.fileno())
        if me.fence_holds():  # else another attempt owns the directory by now
            aside.rename(state)
            directory = os.open(state.parent, os.O_RDONLY)
            os.fsync(directory)  # without it the new name may be gone after a power cut
            os.close(directory)
            took_s = time.perf_counter() - began
            me.committed(step, stall_s=took_s, write_s=took_s)

    me.phase(WorkerPhase.TRAINING, env_steps=step, target=STEPS, target_kind=TargetKind.ENV_STEPS)
    while step < STEPS and not me.leave_wanted:
        time.sleep(0.001)  # one step of training
        step += 1
        me.progress(env_steps=step, loss=1 / step)
        if me.save_wanted():  # the daemon knows how often this box fails, and so when a save is worth its time
            save()
    me.phase(WorkerPhase.LEAVING)
    save()
    return EXIT_DONE if step >= STEPS else EXIT_LEFT


sys.exit(main())
