"""The faults that extralife tells apart, by the id that tests carry: `@pytest.mark.fault("killed")`.

Each has a row in README's table "what happens when ...", a rule with its reason in the code, a test on real processes and
a story in the simulator; `tests/test_catalogue.py` holds all of that together.
"""

FAULTS = {
    "killed": "a worker is killed",
    "stopped": "a worker is stopped (SIGSTOP)",
    "gil": "a worker's loop holds the GIL",
    "envpool-hang": "an envpool call never returns",
    "segfault": "a worker segfaults",
    "no-progress": "a worker beats without getting on",
    "slow": "a worker slows to a crawl",
    "dies-at-once": "a worker dies at once every time",
    "dies-soon": "a worker dies every two seconds",
    "orphans": "a worker leaves children behind, in a session of their own",
    "nan": "the loss becomes NaN",
    "exploding-q": "Q explodes",
    "collapsed-entropy": "a policy collapses",
    "falling-return": "the return falls far below its best",
    "memory-error": "a worker runs out of memory (MemoryError)",
    "oom-kill": "the kernel's OOM killer takes a worker",
    "gpu-memory": "the GPU's memory is taken",
    "gpu-hangs": "the GPU's driver hangs",
    "gpu-lost": "a GPU falls off the bus, runs hot, or reports an Xid",
    "disk-full-checkpoint": "the disk fills up during a checkpoint",
    "disk-full-journal": "the disk under the journal is full",
    "journal-removed": "the journal is removed or replaced while extralife runs",
    "checkpoint-flipped": "the newest checkpoint has a flipped bit",
    "checkpoint-truncated": "the newest checkpoint is cut short",
    "checkpoint-empty": "a file of the newest checkpoint has no bytes",
    "checkpoint-missing": "a file of the newest checkpoint is missing",
    "checkpoint-poison": "three deaths come from one and the same checkpoint",
    "ignores-sigterm": "a worker ignores SIGTERM",
    "state-d": "a worker sits in state D",
    "late-worker": "a worker comes back after its successor started",
    "daemon-stopped": "the daemon itself stands still for a minute",
    "clock-forward": "the wall clock jumps ahead by an hour",
    "clock-back": "the wall clock jumps back by an hour",
    "pid-reuse": "a dead worker's pid belongs to somebody else",
    "fork-fails": "nothing can be forked (EAGAIN)",
    "two-daemons": "a second daemon is started",
}
