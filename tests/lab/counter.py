"""A worker of the contract that counts instead of learning, in a box: for tests that want many workers at little cost."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workers.contract import EXIT_LEFT, Client, WorkerPhase


def main() -> int:
    me = Client()

    def leave(_number, _frame):
        me.leave_wanted = True

    signal.signal(signal.SIGTERM, leave)
    assert me.run_dir is not None
    state = me.run_dir / "count"
    step = int(state.read_text()) if state.exists() else 0
    me.phase(WorkerPhase.TRAINING, env_steps=step)
    while not me.leave_wanted:
        time.sleep(0.1)
        step += 1
        me.progress(env_steps=step, updates=step)
        if me.save_wanted():
            state.with_suffix(".new").write_text(str(step))
            state.with_suffix(".new").rename(state)
            me.committed(step, stall_s=0.001, write_s=0.001)
    me.phase(WorkerPhase.LEAVING)
    return EXIT_LEFT


sys.exit(main())
