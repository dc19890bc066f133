"""A real script that saves with torch by itself, under a real daemon: killed in the act of saving, it goes on from the whole one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from box import Box, until
from tools import ROOT

from supervisor.adapters import procfs

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
@pytest.mark.long
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


# It draws a bar as Hugging Face's Trainer does: at 0 while it loads, then at the step of its checkpoint.
BAR = """
import os, sys, time
from pathlib import Path
def bar(step): print("\\r  %d%%|#| %d/90000 [00:01<09:59, 9.9it/s]" % (step // 900, step), end="", file=sys.stderr, flush=True)
step = max([int(path.stem) for path in Path("out").glob("*.ckpt")], default=0)
bar(0)
time.sleep(1.0)
while True:
    step += 1
    bar(step)
    if step % 50 == 0:
        Path("out/aside").write_text("weights")
        os.rename("out/aside", "out/%d.ckpt" % step)
    time.sleep(0.02)
"""

# It loads its checkpoint and counts from 0 again, as Stable-Baselines3's learn() does, also in the names of its checkpoints.
ANEW = """
import os, sys, time
from pathlib import Path
for count in range(20, 10**6, 20):
    print("|    total_timesteps      | %d       |" % count, flush=True)
    if count % 200 == 0:
        Path("out/aside").write_text("weights")
        os.rename("out/aside", "out/rl_model_%d_steps.ckpt" % count)
    time.sleep(0.1)
"""


def killed_once_more(box: Box, name: str, resumes: int) -> tuple[int, int]:
    """(The step at which it was killed, that from which it goes on)."""
    saved = until(
        lambda: (seen := box.program(name))["ckpt_step"] and seen["steps"] > seen["ckpt_step"] and seen, 120, "a save"
    )
    os.kill(saved["pid"], signal.SIGKILL)
    resumed = box.wait_fact("Resumed", name, count=resumes, timeout_s=120)
    made = box.facts("Exited", name)[-1]["steps"]
    lost = made - resumed["step"]  # none if it saved just before it died: then nothing was seen to be lost
    assert (resumed["lost_steps"], resumed["at_least"]) == ((lost, True) if lost else (None, False))
    assert saved["ckpt_step"] <= resumed["step"] <= made
    return made, resumed["step"]


@pytest.mark.long
def test_scripts_that_show_zero_after_a_resume_have_lost_only_what_they_lost(box: Box) -> None:
    scripts = {
        "bar": (BAR, r"(?P<step>\d+)/(?P<target>\d+) \[", r"(\d+)\.ckpt"),
        "anew": (ANEW, r"total_timesteps +\| (?P<step>\d+)", r"_(\d+)_"),
    }
    programs = ""
    for name, (script, figures, step) in scripts.items():
        (box.directory / name / "out").mkdir(parents=True)
        (box.directory / name / "train.py").write_text(script)
        command = json.dumps([sys.executable, "train.py", *(["-i={resume}"] if name == "anew" else [])])
        programs += f"[program.{name}]\ncommand = {command}\ndirectory = '{box.directory / name}'\nlog_regex = '{figures}'\n"
        programs += f"checkpoint_glob = 'out/*.ckpt'\ncheckpoint_step = '{step}'\ncheckpoint_check = 'true'\n"
    box.config(programs)
    box.start()
    killed_once_more(box, "bar", 1)
    made, began = killed_once_more(box, "anew", 1)
    going = until(lambda: (seen := box.program("anew"))["steps"] > made and seen, 60, "its steps to go on")
    assert going["ckpt_step"] is None or going["ckpt_step"] >= began
    box.kill_daemon()
    box.start()
    again, _ = killed_once_more(box, "anew", 2)
    assert again > made, "the second count goes on from the first one"
    assert not box.facts("ResumeUnknown")


SHARDS = """
import os, sys, time
from pathlib import Path
found = os.environ["EXTRALIFE_RESUME"]
for rank in range(2):
    (Path(found) / f"rank{rank}.json").read_text()
step = int(found.rpartition("step")[2])
while True:
    step += 1
    print(f"step={step}", flush=True)
    time.sleep(0.05)
"""


def test_one_without_a_shard_is_set_aside_and_the_one_before_it_trains(box: Box) -> None:
    work = box.directory / "work"
    for name in ("step10/rank0.json", "step10/rank1.json", "step20/rank0.json"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("{}")
    (work / "train.py").write_text(SHARDS)
    box.config(
        f'[program.it]\ncommand = {json.dumps([sys.executable, "train.py"])}\ndirectory = "{work}"\n'
        "checkpoint_glob = 'step*'\ncheckpoint_step = 'step(\\d+)'\nlog_regex = 'step=(?P<step>\\d+)'\n",
        extra="[restart]\nbase_delay_s = 0.1\n",
    )
    box.start()
    assert box.wait_fact("Resumed", "it", timeout_s=60)["step"] == 10
    assert [fact["path"] for fact in box.facts("StartsFrom", "it")] == [f"{work}/step20"] * 3 + [f"{work}/step10"]
    assert [fact["path"] for fact in box.facts("CheckpointQuarantined", "it")] == [f"{work}/step20"]
    assert (work / ".step20.bad" / "rank0.json").exists(), "set aside, not removed"


# It saves at once at step 20, and never finishes to write over that file.
OVER = """
import os, sys, time, zipfile
step, found = 0, os.environ["EXTRALIFE_RESUME"]
if found:
    step = int(zipfile.ZipFile(found).read("step"))
print(f"begins at {step}", flush=True)
while True:
    step += 1
    print(f"step={step}", flush=True)
    time.sleep(0.05)
    if step == 20:
        with zipfile.ZipFile("last.pt", "w") as file:
            file.writestr("step", str(step))
    if os.path.exists("over") and not found:
        file = zipfile.ZipFile("last.pt", "w")
        file.writestr("step", str(step))
        print("writes", flush=True)
        time.sleep(600)
"""


def test_an_only_file_that_is_cut_while_it_is_written_over_is_put_back(box: Box) -> None:
    work = box.directory / "work"
    work.mkdir()
    (work / "train.py").write_text(OVER)
    box.config(
        f'[program.it]\ncommand = {json.dumps([sys.executable, "train.py"])}\ndirectory = "{work}"\n'
        "checkpoint_glob = '*.pt'\nlog_regex = 'step=(?P<step>\\d+)'\n"
    )
    box.start()
    until((box.state / "programs/it/kept/checkpoint.json").exists, 60, "a copy")
    (work / "over").touch()
    until(lambda: "writes" in box.ctl("tail", "it").stdout, 30, "a write")
    os.kill(box.program("it")["pid"], signal.SIGKILL)
    until(lambda: "begins at 20" in box.ctl("tail", "it").stdout, 60, "a resume from the copy")
    assert (work / ".last.pt.bad").exists(), "set aside, not removed"
    assert "is put back from its copy" in box.facts("StartsFrom", "it")[-1]["why"]


def test_a_checkpoint_that_is_saved_just_before_the_end_shows_that_it_has_finished(box: Box) -> None:
    (box.directory / "ck-50.pt").write_text("x")
    save = "import time; time.sleep(1); open('ck-100.pt', 'w').write('x')"
    box.config(f"""
[program.t]
command = {json.dumps([sys.executable, "-c", save])}
directory = "{box.directory}"
checkpoint_glob = "ck-*.pt"
checkpoint_step = 'ck-(\\d+)'
target_steps = 100
""")
    box.start()
    exited = box.wait_fact("Exited", "t")
    assert (exited["cause"], box.facts("CheckpointSeen", "t")[-1]["step"]) == ("done", 100)
