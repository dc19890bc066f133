"""A script of a user's own with the client: counts, saves a file with each checkpoint, and fails as `fault` says.

argv: total, seconds between two saves, and a fault: none, hangs, forks (children that step too), nan (after step 300, once
there is a file `go-on` in its run directory).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client"))

import extralife

fault = sys.argv[3]
silence_s = 2.0 if fault == "hangs" else 600.0
run = extralife.init(int(sys.argv[1]), {"what": "counting"}, save_every_s=float(sys.argv[2]), silence_s=silence_s)
found = run.restore()
step = int((found.path / "count").read_text()) if found else 0
assert step == (found.step if found else 0)
if fault == "forks" and os.fork() == 0:
    while True:
        run.step(10**9)
        time.sleep(0.01)
while step < run.total and not run.should_stop():
    time.sleep(0.002)
    step += 1
    loss = float("nan") if fault == "nan" and run.seed(1) == 1 and step > 300 else 1 / step
    run.step(step, loss=loss, episode_return=float(step), accuracy=0.5)
    if run.should_save():
        with run.checkpoint(step) as directory:
            (directory / "count").write_text(str(step))
    while fault == "nan" and step == 300 and not Path(os.environ["EXTRALIFE_RUN_DIR"], "go-on").exists():
        time.sleep(0.01)  # until the daemon has seen it well
    if fault == "hangs" and run.attempt == 1 and step == 400:
        time.sleep(1000)
run.leave()
