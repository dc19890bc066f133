"""A real script that saves with torch by itself, under a real daemon: killed in the act of saving, it goes on from the whole one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from box import Box, until

from supervisor.adapters import procfs

ROOT = Path(__file__).resolve().parents[2]

# It takes its newest file without a look, as most scripts do, and so it dies of a torn one.
SCRIPT = """
import os, re, sys, time
from pathlib import Path
import extralife
run = extralife.init()
import torch
found = sorted((int(re.search(r"step=(\\d+)", path.name)[1]), path) for path in Path("out").glob("*.pt"))
print("told", os.environ["EXTRALIFE_RESUME"], flush=True)
state = torch.load(found[-1][1]) if found else {"step": 0, "w": torch.zeros(100)}
step = state["step"]
while True:
    step += 1
    state["w"] += 0.1
    run.step(step, loss=float(state["w"].mean()))
    if step % 40 == 0:
        torch.save({**state, "step": step}, "out/aside")
        os.rename("out/aside", f"out/step={step}.pt")
    time.sleep(0.01)
"""


def checkpoints(work: Path) -> list[int]:
    return sorted(int(path.name[5:-3]) for path in (work / "out").glob("step=*.pt"))


@pytest.mark.fault("torn-own-checkpoint")
def test_it_is_killed_while_it_saves_and_goes_on_from_the_whole_one(box: Box) -> None:
    work = box.directory / "work"
    (work / "out").mkdir(parents=True)
    (work / "train.py").write_text(SCRIPT)
    env = f'{{ PYTHONPATH = "{ROOT / "client"}", OMP_NUM_THREADS = "1" }}'
    box.config(
        f'[program.it]\ncommand = {json.dumps([sys.executable, "train.py"])}\ndirectory = "{work}"\nenv = {env}\n'
        "checkpoint_glob = 'out/*.pt'\ncheckpoint_step = 'step=(\\d+)'\nstart_timeout_s = 300.0\n",
        extra="[restart]\npoison_deaths = 1\nbase_delay_s = 0.1\n",
        continue_s=600.0,  # one that is stopped stays so until it is killed
    )
    box.start()
    shown = until(lambda: (seen := box.program("it")).get("ckpt_path") and seen, 120, "a checkpoint in status")
    assert shown["ckpt_step"] in checkpoints(work)
    assert shown["ckpt_bytes"] == (work / "out" / f"step={shown['ckpt_step']}.pt").stat().st_size

    os.kill(shown["pid"], signal.SIGSTOP)
    until(lambda: procfs.read_stat(shown["pid"]).state in "Tt", 10, "it to stand still")
    whole = checkpoints(work)[-1]
    torn = work / "out" / f"step={whole + 40}.pt"
    torn.write_bytes((work / "out" / f"step={whole}.pt").read_bytes()[:1000])
    os.kill(shown["pid"], signal.SIGKILL)

    resumed = box.wait_fact("Resumed", "it", timeout_s=150)
    killed, died = box.facts("Exited", "it")
    assert (killed["signal"], died["code"]) == (signal.SIGKILL, 1)
    assert whole <= killed["steps"] < whole + 80
    assert (resumed["step"], resumed["lost_steps"], resumed["at_least"]) == (whole, killed["steps"] - whole, False)
    assert [fact["path"] for fact in box.facts("CheckpointQuarantined", "it")] == [str(torn)]
    assert torn.with_name(f".{torn.name}.bad").stat().st_size == 1000, "set aside, not removed"
    path = f"{work}/out/step={whole}.pt"
    assert [fact["path"] for fact in box.facts("StartsFrom", "it")] == ["", path, path]
    told = [line.strip() for line in box.ctl("tail", "it").stdout.splitlines()]
    assert [line for line in told if line.startswith("told")] == ["told", f"told {path}", f"told {path}"]
