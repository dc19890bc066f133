"""A script that knows nothing of extralife: it prints lines as CleanRL does, or draws curves with tensorboardX.

`prints.py log|events FILE`: its step lies in FILE every 100 steps, and it goes on from there. `prints.py rows SEED`: it opens
its file for each row; the steps of a seed begin at a million times the seed, and the loss of an even one is NaN from row 20 on.
The loss of seed 3 is NaN before row 60: it has not learned yet.
"""

import sys
import time
from pathlib import Path

if sys.argv[1] == "rows":
    seed = int(sys.argv[2])
    table = Path(f"runs/{time.time_ns()}/metrics.jsonl")
    table.parent.mkdir(parents=True)
    for step in range(10**9):
        is_bad = step >= 20 if seed == 2 else seed == 3 and step < 60
        with table.open("a") as rows:
            rows.write(f'{{"step": {seed * 10**6 + step}, "loss": {"NaN" if is_bad else "0.5"}}}\n')
        print("a row", flush=True)
        time.sleep(0.05 + seed / 100)
how, saved = sys.argv[1], Path(sys.argv[2])
step = int(saved.read_text()) if saved.exists() else 0
if how == "events":
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(f"runs/{time.time_ns()}", flush_secs=1)
while True:
    time.sleep(0.05)
    step += 4
    if how == "log":
        print(f"global_step={step}, episodic_return=[21.]", flush=True)
    else:
        writer.add_scalar("charts/episodic_return", 21.0, step)
        writer.add_scalar("losses/value_loss", 0.5, step)
    if step % 100 == 0:
        aside = saved.with_suffix(".aside")  # a kill may come between the opening of a file and its contents
        aside.write_text(str(step))
        aside.replace(saved)
