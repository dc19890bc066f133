"""How much of `supervisor/` runs between the SIGKILL of a worker and RUNNING: functions and files, by thread.

    python bench/staircase.py [--list]

A real daemon without Slurm and without optional features runs one worker with beats, which is killed. Each named function
that the daemon calls until the next attempt counts as RUNNING counts once in each thread.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from supervisor.__main__ import main  # noqa: E402
from supervisor.deciding.context import DecisionContext  # noqa: E402
from supervisor.model import facts  # noqa: E402

WORKER = "import extralife, time; run = extralife.init(10**9)\nfor n in range(10**9): run.step(n); time.sleep(0.02)"
called: defaultdict[str, set[CodeType]] = defaultdict(set)
measuring, record = threading.Event(), DecisionContext.record


def profile(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if event == "call" and measuring.is_set() and "/supervisor/" in code.co_filename and not code.co_name.startswith("<"):
        called[threading.current_thread().name].add(code)


def note(context: DecisionContext, fact: facts.Fact) -> None:
    record(context, fact)
    if isinstance(fact, facts.BecameReady) and measuring.is_set():
        measuring.clear()
        os.kill(os.getpid(), signal.SIGTERM)
    elif isinstance(fact, facts.BecameReady):
        threading.Timer(2.5, lambda: (measuring.set(), os.kill(context.present(fact.program)[1].pid, 9))).start()


DecisionContext.record = note
with tempfile.TemporaryDirectory() as directory:
    config = Path(directory, "extralife.toml")
    command = f'["env", "PYTHONPATH={HERE / "client"}", "{sys.executable}", "-c", {WORKER!a}]'.replace("'", '"')
    config.write_text(f'[program.worker]\nprogress = "beat"\ncommand = {command}\n')
    threading.setprofile(profile)
    sys.setprofile(profile)
    main(["-c", str(config), "--state-dir", f"{directory}/state", "--runtime-dir", f"{directory}/run"])
sys.setprofile(None)
if "--list" in sys.argv:
    print(*sorted({f"{c.co_filename}:{c.co_firstlineno} {c.co_name}" for each in called.values() for c in each}), sep="\n")
for thread, codes in (*called.items(), ("all threads", set().union(*called.values()))):
    print(f"{thread}: {len(codes)} functions in {len({code.co_filename for code in codes})} files")
