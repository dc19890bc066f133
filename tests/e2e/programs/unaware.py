"""A script that knows nothing of extralife: flags, files of its own, and SIGTERM. It says where it begins."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, required=True)
parser.add_argument("--preset", required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--resume", type=Path)
args = parser.parse_args()

step = json.loads(args.resume.read_text())["step"] if args.resume else 0
asked: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))


def save() -> None:
    aside = Path(f"{step}.aside")
    aside.write_text(json.dumps({"step": step}))
    aside.rename(f"step={step}.json")


print(
    f"begins at {step} with {args.num_envs} of {args.preset}, seed {args.seed}, {os.environ['EXTRALIFE_NUM_ENVS']}",
    flush=True,
)
rounds = 0
while not asked:
    time.sleep(0.01)
    step += args.num_envs
    rounds += 1
    if rounds % 20 == 0:
        save()
save()
print(f"leaves at {step}", flush=True)
